"""Declarations and registrations that are refused, each with what is wrong; nothing half-done is left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend
from tape_core.backends.kernels import DEFAULT_KERNELS
from tape_core.extend import elementwise, linear, op, registry, transpose, vjp

pytestmark = pytest.mark.usefixtures("_ops_are_forgotten")


def declare_bad(declare: Any, signature: str, **options: Any) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def bad_for_test({signature}): 'Bad.'", namespace)
    declare(**options)(namespace["bad_for_test"])


@pytest.mark.parametrize(
    ("declare", "signature", "rules", "message"),
    [
        (elementwise, "x, /", {"y": 1}, "op 'bad_for_test' has no input 'y'"),
        (elementwise, "x1, x2, /", {"x2": 1}, "rules must name the first parameters"),
        (elementwise, "x1, x2, /", {"x2": 1, "x1": 1}, "in their order"),
        (elementwise, "x, /", {"x": lambda xp, z: z}, "'bad_for_test' for 'x' .*asks for 'z'.* x, out, x_spec"),
        (elementwise, "x, /", {"x": lambda xp, y_spec: 1}, "asks for 'y_spec'"),
        (elementwise, "x, /", {"x": lambda x: x}, "must take xp first; it takes x"),
        (elementwise, "x, /", {"x": vjp(lambda xp, x: x)}, "must take xp, g first; it takes xp, x"),
        (elementwise, "x, /", {"x": "2 x"}, "must be a function, vjp"),
        (op, "x, /", {"x": lambda xp, g: g}, r"op: the rule of 'bad.*' for 'x' must be vjp\(...\), NONDIFF or TODO"),
        (op, "x, /", {"x": 1}, "op: the rule of 'bad_for_test' for 'x' must be vjp"),
        (op, "x, /, axis", {"x": vjp(lambda xp, g, axes: g)}, "asks for 'axes'.*axis"),
        (linear, "x, /", {"x": vjp(lambda xp, g: g)}, r"linear: the rule of 'bad.*' for 'x' must be transpose\(...\)"),
        (linear, "x, /", {"x": transpose(lambda xp, g, x: g)}, "is a transpose and cannot depend on x"),
        (linear, "x, /", {"x": transpose(lambda xp, g, out: g)}, "is a transpose and cannot depend on out"),
    ],
    ids=[
        "unknown input", "missing input", "order", "unknown name", "unknown spec", "no xp", "no g",
        "no function", "bare function", "bare number", "unknown parameter", "linear vjp",
        "transpose of x", "transpose of out",
    ],
)  # fmt: skip
def test_mistakes_in_a_declaration(declare: Any, signature: str, rules: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        declare_bad(declare, signature, kernel=lambda xp, x: x, **rules)
    assert "bad_for_test" not in registry
    assert "bad_for_test" not in DEFAULT_KERNELS


def test_an_op_without_any_rule_is_refused() -> None:
    with pytest.raises(TypeError, match="bad_for_test"):
        declare_bad(elementwise, "x, /", kernel=lambda xp, x: x)
    assert "bad_for_test" not in registry


def test_a_mistake_names_the_file_and_line_of_the_rule() -> None:
    rule = lambda xp, nothing: 1  # noqa: E731
    with pytest.raises(TypeError, match=rf"test_declarations\.py:{rule.__code__.co_firstlineno}\)"):
        declare_bad(elementwise, "x, /", x=rule)


def test_a_second_registration_is_refused_and_changes_nothing() -> None:
    @elementwise(x=2, kernel=lambda xp, x: x * 2)
    def doubles_for_test(x: Any, /) -> Any:
        """`2 x`."""

    first = doubles_for_test
    with pytest.raises(ValueError, match="op 'doubles_for_test' is registered already"):

        @elementwise(x=3, kernel=lambda xp, x: x * 3)
        def doubles_for_test(x: Any, /) -> Any:
            """`3 x`."""

    assert registry["doubles_for_test"].function is first
    x = tc.asarray(1.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = first(x)
    assert (y.item(), tape.gradient(y, x).item()) == (2.0, 2.0)


def test_a_standard_op_cannot_be_registered_again() -> None:
    with pytest.raises(ValueError, match="op 'sin' is registered already"):

        @elementwise(x=1, kernel=lambda xp, x: x)
        def sin(x: Any, /) -> Any:
            """Not the sine."""

    assert "sin" not in DEFAULT_KERNELS


@pytest.mark.parametrize(("name", "rule"), [("softmax", lambda xp, out: out), ("sum", vjp(lambda xp, g: g))])
def test_an_override_of_the_wrong_kind_changes_nothing(name: str, rule: Any) -> None:
    backend = ArrayAPIBackend("there", np, array_types=("nowhere:Array",))
    with pytest.raises(TypeError, match=f"the rule of {name!r} for 'x' must be"):
        registry.override(name, backend, x=rule)
    assert name not in backend.rules


def test_a_call_that_does_not_fit_shows_how_the_op_is_called() -> None:
    with pytest.raises(TypeError) as error:
        tc.sum(tc.ones(3), axes=0)  # type: ignore[call-arg]
    assert str(error.value) == (
        "sum: got an unexpected keyword argument 'axes'; it is called 'axis' here; its signature is sum(x, /, *, "
        "axis=None, dtype=None, keepdims=False)"
    )
    assert repr(registry["sum"]) == "<op sum(x, /, *, axis=None, dtype=None, keepdims=False)>"


# -- what rules share, and what kernels leave them


def test_what_rules_share_is_computed_once_and_only_if_it_is_needed() -> None:
    computed: list[str] = []

    def shared(xp: Any, g: Any, x2: Any) -> Any:
        computed.append("shared")
        return g * x2

    @op(
        x1=vjp(lambda xp, g, common: common),
        x2=vjp(lambda xp, g, x1, common, x2: x1 * common / x2),
        common=shared,
        kernel=lambda xp, x1, x2: x1 * x2,
    )
    def product_for_test(x1, x2, /):  # type: ignore[no-untyped-def]
        """The product."""

    x, y = tc.asarray([3.0]), tc.asarray([5.0])
    for sources in ([x, y], [x], [y]):
        computed.clear()
        with tc.GradientTape() as tape:
            tape.watch(sources)
            z = product_for_test(x, y)
        found = [g.tolist() for g in tape.gradient(z, sources)]
        assert found == [[5.0] if source is x else [3.0] for source in sources]
        assert computed == ["shared"]
    with tc.GradientTape() as outer:
        outer.watch([x, y])
        with tc.GradientTape() as inner:
            inner.watch([x, y])
            z = product_for_test(x, y)
        gx, gy = inner.gradient(z, [x, y])
        both = gx * gy
    assert [g.tolist() for g in outer.gradient(both, [x, y])] == [[5.0], [3.0]]


def test_a_kernel_keeps_for_its_rule_where_a_tape_watches_and_no_sweep_is_recorded() -> None:
    calls: list[Any] = []

    def keeping(xp: Any, x: Any) -> Any:
        calls.append("keeping")
        y = xp.exp(x)
        return y, (y,)

    def rule(xp: Any, g: Any, x: Any, residuals: Any) -> Any:
        calls.append(len(residuals))
        return g * (residuals[0] if residuals else xp.exp(x))

    @op(x=vjp(rule), residual_kernel=keeping, kernel=lambda xp, x: xp.exp(x))
    def exp_for_test(x, /):  # type: ignore[no-untyped-def]
        """The exponential."""

    x = tc.asarray([0.0])
    with tc.GradientTape():
        exp_for_test(x)
    assert calls == []
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = exp_for_test(x)
    assert tape.gradient(y, x).tolist() == [1.0]
    assert calls == ["keeping", 1]
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = exp_for_test(x)
        g = inner.gradient(y, x)
    assert outer.gradient(g, x).tolist() == [1.0]
    assert calls == ["keeping", 1, "keeping", 0]


def test_the_former_names_of_residuals_work_with_a_warning() -> None:
    def rule(xp: Any, g: Any, kept: Any) -> Any:
        return g * kept[0]

    with pytest.warns(DeprecationWarning, match="is called") as told:

        @op(x=vjp(rule), keeping=lambda xp, x: (xp.exp(x), (xp.exp(x),)), kernel=lambda xp, x: xp.exp(x))
        def former_exp_for_test(x, /):  # type: ignore[no-untyped-def]
            """The exponential."""

    assert ["'residual_kernel'" in str(w.message) or "'residuals'" in str(w.message) for w in told] == [True, True]
    x = tc.asarray([0.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = former_exp_for_test(x)
    assert tape.gradient(y, x).tolist() == [1.0]


@pytest.mark.filterwarnings("error")
def test_a_parameter_may_be_called_as_residuals_are() -> None:
    @op(
        x=vjp(lambda xp, g, kept, residuals: g * (kept + residuals)),
        kernel=lambda xp, x, *, kept=2.0, residuals=1.0: x * (kept + residuals),
    )
    def scaled_for_test(x, /, *, kept=2.0, residuals=1.0):  # type: ignore[no-untyped-def]
        """A product."""

    x = tc.asarray([1.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = scaled_for_test(x, kept=4.0)
    assert tape.gradient(y, x).tolist() == [5.0]


def test_common_and_kept_mean_nothing_where_there_is_none() -> None:
    for name in ("common", "residuals", "y_watched"):
        with pytest.raises(TypeError, match=f"asks for '{name}'"):
            declare_bad(op, "x, /", x=eval(f"vjp(lambda xp, g, {name}: g)", {"vjp": vjp}))
