"""GradientTape(check_numerics=True): the first NaN or infinity raises, where it is made."""

from __future__ import annotations

import linecache
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from tape_core.debugging import NumericsError


def caught(f: Callable[[], Any]) -> NumericsError:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is raised says it better than NumPy's warning
        with pytest.raises(NumericsError) as info:
            f()
    place = info.value.place
    assert place is not None
    assert linecache.getline(place.file, place.line).endswith("# bad\n"), str(info.value)
    assert f'File "{place.file}", line {place.line}' in str(info.value)
    return info.value


def test_forward_names_op_line_and_statistics() -> None:
    x = tc.Variable([1.0, -1.0, 2.0])

    def f() -> None:
        with tc.GradientTape(check_numerics=True):
            h = x * 2.0
            y = tc.log(h)  # bad
            tc.sqrt(y)

    error = caught(f)
    assert (error.op, error.backward, error.argument) == ("log", False, None)
    assert "log made NaN" in str(error)
    assert "x: float32[3], min -2, max 4, mean 1.33333" in str(error)
    assert "1 NaN of 3" in str(error)
    assert isinstance(error, FloatingPointError)


@pytest.mark.parametrize(
    ("op", "f"),
    [
        ("divide", lambda x: 1 / (x - 1)),  # bad
        ("exp", lambda x: tc.exp(x * 50 + 20)),  # bad
        ("pow", lambda x: (x - 1) ** -1.0),  # bad
        ("sum", lambda x: tc.sum(x * 1.5e38)),  # bad
        ("concat", lambda x: tc.concat([x, tc.asarray([math.inf])])),  # bad
    ],
    ids=["divide", "exp", "pow", "sum", "concat"],
)
def test_infinities_of_many_ops(op: str, f: Callable[[Any], Any]) -> None:
    x = tc.Variable([1.0, 2.0])

    def run() -> None:
        with tc.GradientTape(check_numerics=True):
            f(x)

    error = caught(run)
    assert error.op == op
    assert "an infinity" in str(error)
    assert "1 infinite of " in str(error)
    assert ("arrays[1]: not finite before" in str(error)) == (op == "concat")


def test_backward_names_the_forward_line_and_the_argument() -> None:
    x, w = tc.Variable([1.0, 0.0]), tc.Variable([2.0, 3.0])
    with tc.GradientTape(check_numerics=True) as tape:
        h = tc.sqrt(x)  # bad
        y = tc.sum(w * h)
    error = caught(lambda: tape.gradient(y, [x, w]))
    assert (error.op, error.backward, error.argument) == ("sqrt", True, "x")
    assert "the gradient of sqrt for x is an infinity" in str(error)
    assert "the cotangent of its result: float32[2], min 2, max 3, mean 2.5" in str(error)
    assert "its result: float32[2], min 0, max 1" in str(error)


def test_backward_of_two_arguments_and_of_a_sequence() -> None:
    a, b = tc.Variable([0.0, 1.0]), tc.Variable([2.0, 3.0])
    with tc.GradientTape(check_numerics=True) as tape:
        y = a**b
        z = b ** (a - 0.5)
        u = tc.hypot(a, b)
        s = tc.stack([tc.sum(y) * 0.0, tc.sum(z), tc.sum(u)])  # bad
    g = tc.asarray([0.0, math.nan, 0.0])
    error = caught(lambda: tape.gradient(s, [a, b], output_gradients=g))
    assert (error.op, error.argument) == ("stack", "arrays[1]")
    assert "the cotangent of its result: not finite before" in str(error)


@pytest.mark.parametrize("loop", [False, True])
def test_jacobians(loop: bool) -> None:
    x = tc.Variable([1.0, 0.0])
    with tc.GradientTape(check_numerics=True) as tape:
        y = tc.sqrt(x)  # bad
        z = y * 2.0
    error = caught(lambda: tape.jacobian(z, x, experimental_use_pfor=not loop))
    assert (error.op, error.backward) == ("sqrt", True)


def test_nested_tapes_and_what_is_masked_in_a_recorded_pass() -> None:
    x = tc.Variable([1.0, 0.0, 4.0])

    def inner_checks() -> None:
        with tc.GradientTape():
            with tc.GradientTape(check_numerics=True) as tape:
                y = tc.sqrt(x)  # bad
            tape.gradient(y, x)

    assert caught(inner_checks).backward
    # The branch that is not taken makes an infinity on its way, which where() masks: no reason to raise.
    with tc.GradientTape(check_numerics=True) as outer:
        with tc.GradientTape(check_numerics=True) as inner:
            y = tc.where(x > 0, tc.sqrt(x), 0.0)
        g = inner.gradient(y, x)
        z = tc.sum(g * x)
    assert outer.gradient(z, x).tolist() == [0.25, 0.0, 0.125]


def test_second_derivatives_are_checked() -> None:
    x = tc.Variable(0.0)
    with tc.GradientTape(check_numerics=True) as outer:
        with tc.GradientTape() as inner:
            y = tc.abs(x) ** 1.5
        g = inner.gradient(y, x)  # bad
        z = g * 1.0
    error = caught(lambda: outer.gradient(z, x))
    assert error.backward


def test_inside_vmap_and_around_it() -> None:
    x = tc.Variable([1.0, 0.0, 2.0])

    def around() -> None:
        with tc.GradientTape(check_numerics=True):
            tc.vmap(lambda a: 1.0 / a)(x)  # bad

    assert "divide made an infinity" in str(caught(around))

    def one(a: tc.Tensor) -> Any:
        with tc.GradientTape(check_numerics=True) as tape:
            tape.watch(a)
            y = tc.sqrt(a)  # bad
        return tape.gradient(y, a)

    assert caught(lambda: tc.vmap(one)(x)).argument == "x"


def test_complex_numbers() -> None:
    x = tc.Variable([1j, 0j])

    def f() -> None:
        with tc.GradientTape(check_numerics=True):
            1.0 / x  # bad

    with pytest.raises(NumericsError, match=r"of \|x\|: min 0, max 1, mean 0.5"):
        f()


def test_what_is_not_computed_is_not_checked() -> None:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(check_numerics=True) as tape:
        mask = tc.asarray([0.0, -math.inf])
        low = tc.full((2,), -math.inf)
        with tape.stop_recording():
            assert not tc.all(tc.isfinite(x + low))
        y = tc.sum(x * x)
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    assert mask.shape == (2,)
    assert tc.all(tc.isinf(x + low)), "outside the block nothing looks"


def test_the_input_that_was_bad_before_is_named() -> None:
    x = tc.Variable([1.0, math.nan])

    def f() -> None:
        with tc.GradientTape(check_numerics=True):
            x * 2.0  # bad

    with pytest.raises(NumericsError, match="x1: not finite before") as info:
        f()
    assert "x2: 2.0" in str(info.value)


def test_a_healthy_program_is_the_same() -> None:
    x = tc.Variable([0.5, 1.5])
    results = []
    for check in (False, True):
        with tc.GradientTape(check_numerics=check) as tape:
            y = tc.sum(tc.gather(x, tc.asarray([1, 0, 1])) * 2.0) + tc.logsumexp(x)
        slices = tape.gradient(y, x)
        results.append(slices.tolist() if isinstance(slices, tc.Tensor) else slices.densify().tolist())
    assert results[0] == results[1]
