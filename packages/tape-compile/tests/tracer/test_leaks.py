"""What compiled functions are kept for, and what they say where a value of the first call would stand for all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pytest
import tape_core as tc
from tape_core.ops import statistical
from tape_core.staging import TracingError


@dataclass(frozen=True)
class Settings:
    value: Any


@dataclass(frozen=True)
class Fixed:
    value: Any = field(metadata={"static": True})


class Pair(NamedTuple):
    a: Any
    b: Any


class Color(Enum):
    RED = 1.0


ALIKE: dict[str, tuple[Any, Any]] = {
    "signs of zero": (Settings(0.0), Settings(-0.0)),
    "an int and a float": (Settings(2), Settings(2.0)),
    "a bool and an int": (Settings(True), Settings(1)),
    "nested tuples": (Settings(((0.0,),)), Settings(((-0.0,),))),
    "nested dataclasses": (Settings(Settings(2)), Settings(Settings(2.0))),
    "complex numbers": (Settings(0j), Settings(-0j)),
    "a set": (frozenset([1]), frozenset([1.0])),
    "decimals": (Settings(Decimal("1.0")), Settings(Decimal("1.00"))),
    "NumPy's numbers": (Fixed(np.float64(0.0)), Fixed(np.float64(-0.0))),
    "a static field": (Fixed(2), Fixed(2.0)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_static_arguments_that_are_equal_and_not_the_same_are_told_apart(name: str) -> None:
    compiled = tc.function(lambda x, static: x + 1)
    for value in (*ALIKE[name], *ALIKE[name]):
        compiled(tc.ones(2), value)
    assert compiled.traces == 2


def test_static_tuples_named_tuples_and_enums_are_told_apart() -> None:
    compiled = tc.function(lambda x, static: x + 1, static_argnames="static", retrace="allow")
    given = [(1, (2,)), (1, (2.0,)), Pair(1, 2), Pair(1, 2.0), (1, 2), Color.RED, 1.0, 1]
    for value in (*given, *given):
        compiled(tc.ones(2), value)
    assert compiled.traces == len(given)


TEXTS: dict[str, Callable[[Any], Any]] = {
    "str": str, "format": lambda x: f"{x}", "a format": lambda x: f"{x:.1f}", "print": print,
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_tensor_is_refused(name: str) -> None:
    with pytest.raises(TracingError, match="needs the value of a traced Tensor here"):
        tc.function(lambda x: (TEXTS[name](x * 2), x)[1])(tc.asarray(1.0))


def test_what_debuggers_show_has_no_values() -> None:
    shown: list[str] = []
    tc.function(lambda x: (shown.append(repr(x * 2)), x)[1])(tc.asarray([7.0]))
    assert "14" not in shown[0]
    assert "shape=(1,)" in shown[0]


def test_the_text_of_a_constant_is_what_it_is() -> None:
    shown: list[str] = []
    tc.function(lambda x: (shown.append(str(tc.arange(3) + 1)), x)[1])(tc.asarray([7.0]))
    assert "[1 2 3]" in shown[0]


@pytest.mark.parametrize("f", [lambda x: np.sin(x.array), lambda x: x.array * 2], ids=["NumPy", "an operator"])
@pytest.mark.parametrize("fallback", [False, "silent"])
def test_raw_arrays_are_refused_or_the_function_runs_as_it_is(f: Callable[[Any], Any], fallback: Any) -> None:
    compiled = tc.function(f, fallback=fallback)
    x = tc.asarray([1.0, 2.0])
    if not fallback:
        with pytest.raises(TracingError, match="a traced array"):
            compiled(x)
        return
    for y in (x, x + 1):
        assert np.array_equal(compiled(y), f(y))
    assert len(compiled.fallbacks) == 1


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slots:
    __slots__ = ("unset", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize("kind", [Plain, Slots])
def test_a_result_that_is_no_pytree_is_named(kind: Any) -> None:
    for result in (kind, lambda y: [kind([y])], lambda y: kind({"y": y})):
        with pytest.raises(TypeError, match=f"{kind.__name__}, a class that is no pytree"):
            tc.function(lambda x, result=result: (x, result(x * 2)))(tc.ones(2))
    assert tc.function(lambda x: kind(3))(tc.ones(2)).value == 3


def test_options_that_are_none_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="passes must be a dict"):
        tc.function(passes=[1])(lambda x: x)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="compile must be the name"):
        tc.function(compile=3)(lambda x: x)  # type: ignore[call-overload]


def test_floating_point_errors_that_are_to_raise_do() -> None:
    compiled = tc.function(lambda x, y: x / y)
    one, zero = tc.asarray([1.0]), tc.asarray([0.0])
    for _ in range(2):
        compiled(one, one)
    for _ in range(2):
        with np.errstate(all="raise"), pytest.raises(FloatingPointError):
            compiled(one, zero)
        with np.errstate(all="raise"), pytest.raises(FloatingPointError), tc.GradientTape() as tape:
            tape.watch(one)
            compiled(one, zero)
    with np.errstate(all="ignore"):
        assert compiled(one, zero).tolist() == [np.inf]
    assert compiled.traces == 1


def test_an_op_that_decides_by_a_value_is_said_to_be_tapes_fault() -> None:
    def decides(x: Any) -> Any:
        return x if tc.sum(x) > 0 else -x

    ours = FunctionType(decides.__code__, {**vars(statistical), "tc": tc}, "decides")
    with pytest.raises(TracingError, match="a bug in Tape, not in your code: please report"):
        tc.function(lambda x: ours(x * 2))(tc.ones(2))
    with pytest.raises(
        TracingError, match=r"needs the value of a traced Tensor here \(`if`, bool\(\)\): .*in .*decides"
    ):
        tc.function(decides)(tc.ones(2))


MASK = np.array([True, False, True])
MASKED: dict[str, Callable[[Any], Any]] = {
    "an array": lambda r: r[:, MASK],
    "a Tensor": lambda r: r[:, tc.asarray(MASK)],
    "made inside": lambda r: r[:, tc.asarray([True, False, True])],
    "computed": lambda r: r[:, tc.arange(3) != 1],
    "vmap": tc.vmap(lambda r: r[MASK]),
    "vmap of a Tensor": tc.vmap(lambda r: r[tc.asarray([True, False, True])]),
    "nonzero": lambda r: r[:, tc.nonzero(tc.asarray(MASK))[0]],
    "assigned": tc.vmap(lambda r: tc.at(r)[MASK].set(0.0)),
    "in a branch": lambda r: tc.cond(tc.sum(r) > 0, lambda: r[:, MASK], lambda: r[:, tc.asarray(MASK)]),
    "a gradient": tc.grad(lambda r: tc.sum(r[:, tc.asarray(MASK)] ** 2)),
    "a gradient in vmap": tc.vmap(tc.grad(lambda r: tc.sum(r[MASK] ** 2))),
    "unique": lambda r: r * tc.unique_values(tc.asarray(MASK)).shape[0],
    "repeat": lambda r: tc.repeat(r, tc.asarray([1, 0, 2]), axis=1),
}


@pytest.mark.parametrize("name", MASKED)
def test_constants_may_decide_shapes(name: str) -> None:
    f = MASKED[name]
    compiled = tc.function(f)
    x = tc.reshape(tc.arange(12.0), (4, 3))
    for y in (x, x + 1):
        assert np.array_equal(compiled(y).numpy(), f(y).numpy())
    assert compiled.traces == 1


def test_a_mask_that_is_another_one_in_each_call_does_not() -> None:
    with pytest.raises(TracingError, match="the shape of the result of getitem"):
        tc.function(lambda r, m: r[m])(tc.ones(3), tc.asarray(MASK))


@pytest.mark.parametrize("where", ["function", "branch"])
def test_who_catches_the_error_about_a_value_is_told_what_is_compiled_then(where: str) -> None:
    def guarded(x: Any) -> Any:
        try:
            return x * 2 if x > 0 else x * 4
        except TypeError:
            return x * 3

    def f(x: Any) -> Any:
        return guarded(x) if where == "function" else tc.cond(tc.sum(x) > 0, guarded, lambda x: x, x)

    compiled = tc.function(f)
    with pytest.warns(
        UserWarning, match=r"f is compiled, and .*test_leaks\.py:\d+, in .*guarded, has caught the error"
    ):
        assert compiled(tc.asarray(1.0)).item() == 3.0
    assert compiled(tc.asarray(2.0)).item() == 6.0  # told once


def test_errors_that_tape_itself_catches_are_not_told(recwarn: pytest.WarningsRecorder) -> None:
    @tc.function
    def steps(x: Any) -> Any:
        return tc.scan(lambda c, k: (c * k, c), x, tc.arange(3.0) + x)[0]

    steps(tc.asarray(1.0))
    tc.grad(steps)(tc.asarray(1.0))
    assert not [w for w in recwarn if "caught" in str(w.message)]


def test_who_catches_the_error_may_have_changed_what_it_has_made() -> None:
    def guarded(x: Any) -> Any:
        y = x * 1
        y[0] = 5.0
        try:
            return y * float(x[0])
        except TypeError:
            return tc.sum(y) * 2

    with pytest.warns(UserWarning, match="guarded, has caught"):
        assert tc.function(lambda x: guarded(x))(tc.ones(3)).item() == 14.0
    with pytest.warns(UserWarning, match="guarded, has caught"):
        compiled = tc.function(tc.grad(lambda x: tc.checkpoint(guarded)(x)))
        assert compiled(tc.ones(3)).tolist() == [0.0, 2.0, 2.0]
