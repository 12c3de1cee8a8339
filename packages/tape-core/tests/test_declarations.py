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
        "sum: got an unexpected keyword argument 'axes'; its signature is sum(x, /, *, axis=None, dtype=None, "
        "keepdims=False)"
    )
    assert repr(registry["sum"]) == "<op sum(x, /, *, axis=None, dtype=None, keepdims=False)>"
