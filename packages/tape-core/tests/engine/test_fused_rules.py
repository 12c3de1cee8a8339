"""Rules of one backend that compute with its library's own functions, and what kernels leave for them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import array_api_compat.numpy
import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend
from tape_core.extend import NONDIFF, elementwise, fused, linear, op, registry, transpose, vjp

pytestmark = pytest.mark.usefixtures("_ops_are_forgotten")


class Library:
    """A backend with fused rules that write down when they run."""

    def __init__(self, rules: dict[str, Any], kernels: dict[str, Any] | None = None) -> None:
        self.backend = ArrayAPIBackend(
            "fusing", array_api_compat.numpy, array_types=["nowhere:Array"], rules=rules, kernels=kernels
        )

    def array(self, *values: float) -> Any:
        return tc.asarray(list(values), dtype="float64", backend=self.backend)


def derivatives(f: Any, x: Any) -> tuple[list[float], list[float]]:
    """The gradient of the sum of f, and that of the sum of the gradient's squares over two."""
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    first = tape.gradient(y, x)
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = f(x)
        g = inner.gradient(y, x)
        half = g * g / 2
    return first.tolist(), outer.gradient(half, x, unconnected_gradients="zero").tolist()


def test_an_elementwise_op_is_fused_where_nothing_records() -> None:
    ran: list[type] = []

    def rule(xp: Any, g: Any, out: Any) -> Any:
        ran.append(type(g))
        return g * out

    @elementwise(x=lambda xp, x: xp.exp(x), kernel=lambda xp, x: xp.exp(x))
    def fused_exp(x: Any, /) -> Any:
        """The exponential."""

    library = Library({"fused_exp": {"x": fused(rule)}})
    x = library.array(0.0, 1.0)
    first, second = derivatives(fused_exp, x)
    assert first == pytest.approx(np.exp([0.0, 1.0]))
    assert second == pytest.approx(np.exp([0.0, 2.0]))
    assert ran == [np.ndarray], "once, on raw arrays; where an outer tape records, the op's own rule runs"
    with tc.ForwardAccumulator(x, library.array(1.0, 2.0)) as accumulator:
        y = fused_exp(x)
    assert accumulator.jvp(y).tolist() == pytest.approx([1.0, 2 * np.e])
    assert len(ran) == 1
    masked = derivatives(lambda x: tc.where(x > 0.5, fused_exp(x), x * 3.0), x)
    assert masked[0] == pytest.approx([3.0, np.e])
    assert masked[1] == pytest.approx([0.0, np.e**2])
    assert len(ran) == 2, "a tape that left values out is no reason to do without"


def test_a_record_keeps_what_either_rule_names() -> None:
    @op(x=vjp(lambda xp, g, x: g * 2 * x), kernel=lambda xp, x, scale=1.0: x * x * scale)
    def fused_square(x: Any, /, scale: float = 1.0) -> Any:
        """The square."""

    library = Library({"fused_square": {"x": fused(lambda xp, g, out: g * 2 * xp.sqrt(out))}})
    raw = np.asarray([1.0, 2.0])
    x = tc.asarray(raw, backend=library.backend)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = fused_square(x)
    alive = [weakref.ref(raw), weakref.ref(y._array)]
    del raw, x, y
    gc.collect()
    assert [reference() is not None for reference in alive] == [True, True]
    del tape


def test_several_fused_rules_share_what_they_need_and_see_what_is_watched() -> None:
    calls: list[Any] = []

    def both(xp: Any, g: Any, x: Any, y: Any, x_watched: bool, y_watched: bool) -> Any:
        calls.append((x_watched, y_watched))
        return g * y if x_watched else None, g * x if y_watched else None

    @op(x=vjp(lambda xp, g, y: g * y), y=vjp(lambda xp, g, x: g * x), kernel=lambda xp, x, y, power=1: x * y)
    def fused_product(x: Any, y: Any, /, power: int = 1) -> Any:
        """The product."""

    rules = {
        "x": fused(lambda xp, g, common: common[0], common=both),
        "y": fused(lambda xp, g, common: common[1], common=both),
    }
    library = Library({"fused_product": rules})
    x, y = library.array(2.0), library.array(5.0)
    for mask in (False, True):
        calls.clear()
        with tc.GradientTape(persistent=True) as tape:
            tape.watch([x, y])
            z = fused_product(x, y)
            if mask:
                z = tc.where(z > 0, z, 0.0)
        assert [g.item() for g in tape.gradient(z, [x, y])] == [5.0, 2.0]
        assert calls == [(True, True)]
        assert tape.gradient(z, y).item() == 2.0
    calls.clear()
    with tc.GradientTape() as tape:
        tape.watch(y)
        z = fused_product(x, y)
    assert tape.gradient(z, y).item() == 2.0
    assert calls == [(False, True)]
    assert derivatives(lambda x: fused_product(x, x), x) == ([4.0], [8.0])


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_backend_keeps_for_its_fused_rule(inputs: int) -> None:
    calls: list[Any] = []

    def keeping(x: Any, *others: Any, scale: float = 1.0) -> Any:
        y = np.exp(x) * scale
        calls.append("keeping")
        return y, (y,)

    def rule(xp: Any, g: Any, residuals: Any) -> Any:
        calls.append("fused")
        return g * residuals[0]

    own = vjp(lambda xp, g, x, scale: g * xp.exp(x) * scale)
    if inputs == 1:

        @op(x=own, kernel=lambda xp, x, *, scale=1.0: xp.exp(x) * scale)
        def kept_exp(x: Any, /, *, scale: float = 1.0) -> Any:
            """The exponential."""

        f: Any = kept_exp

    else:

        @op(x=own, y=NONDIFF, kernel=lambda xp, x, y=None, *, scale=1.0: xp.exp(x) * scale)
        def kept_exp_of_two(x: Any, y: Any = None, /, *, scale: float = 1.0) -> Any:
            """The exponential."""

        f = kept_exp_of_two

    library = Library({f.__name__: {"x": fused(rule)}}, {f"{f.__name__}_with_residuals": keeping})
    x = library.array(0.0, 1.0)
    f(x, scale=2.0)
    with tc.GradientTape():
        f(x, scale=2.0)
    assert calls == [], "nothing is kept where nothing is watched"
    first, second = derivatives(lambda x: f(x, scale=2.0), x)
    assert first == pytest.approx(2 * np.exp([0.0, 1.0]))
    assert second == pytest.approx(4 * np.exp([0.0, 2.0]))
    assert calls == ["keeping", "fused", "keeping"]
    here = tc.asarray([0.0], dtype="float64", backend="numpy")
    assert derivatives(lambda x: f(x, scale=2.0), here) == ([2.0], [4.0])
    assert len(calls) == 3, "other backends keep nothing"


def test_what_a_fused_rule_may_not_be() -> None:
    with pytest.raises(TypeError, match="is fused: it must stand in for a rule of the op"):

        @op(x=fused(lambda xp, g: g), kernel=lambda xp, x: x)
        def never(x: Any, /) -> Any:
            """Not declared."""

    @linear(x=transpose(lambda xp, g: g), i=NONDIFF, kernel=lambda xp, x, i: x)
    def fused_identity(x: Any, i: Any, /) -> Any:
        """Itself."""

    library = Library({})
    with pytest.raises(TypeError, match="asks for 'residuals'"):
        registry.override("fused_identity", library.backend, x=fused(lambda xp, g, residuals: g))
    with pytest.raises(TypeError, match="is fused: it must stand in for a rule of the op"):
        registry.override("fused_identity", library.backend, i=fused(lambda xp, g: g))
    registry.override("fused_identity", library.backend, x=fused(lambda xp, g, i: g * 1))
    assert derivatives(lambda x: fused_identity(x, x), library.array(3.0)) == ([1.0], [0.0])


def test_a_backend_may_have_its_kernel_and_its_rule_with_the_former_names() -> None:
    @op(x=vjp(lambda xp, g, x, scale: g * xp.exp(x) * scale), kernel=lambda xp, x, /, *, scale=1.0: xp.exp(x) * scale)
    def former_exp(x: Any, /, *, scale: Any = 1.0) -> Any:
        """The exponential."""

    def kernel(x: Any, /, *, scale: float = 1.0) -> Any:
        return np.exp(x) * scale, (3 * np.exp(x) * scale,)

    rule = fused(lambda xp, g, kept: g * kept[0])
    library = Library({"former_exp": {"x": rule}}, {"former_exp_keeping": kernel})
    x = library.array(0.0)
    with pytest.warns(DeprecationWarning, match="is called") as told, tc.GradientTape() as tape:
        tape.watch(x)
        y = former_exp(x)
    assert tape.gradient(y, x).tolist() == [3.0]
    texts = [str(warning.message) for warning in told]
    for text, name in zip(texts, ("'former_exp_with_residuals'", "'residuals'"), strict=True):
        assert f"called {name} now" in text
