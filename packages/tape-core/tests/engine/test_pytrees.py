"""Classes that are nodes of pytrees: registered ones and dataclasses; functions of trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import tape_core as tc


@dataclass(frozen=True)
class Line:
    slope: Any
    offset: Any
    degree: int = field(default=1, metadata={"static": True})

    def __post_init__(self) -> None:
        assert self.degree > 0


def value(line: Line, x: Any = 3.0) -> Any:
    return line.slope * x**line.degree + line.offset


TRANSFORMED: dict[str, Callable[[Line], Any]] = {
    "grad": lambda line: tc.grad(value)(line).slope,
    "value_and_grad": lambda line: tc.value_and_grad(value)(line)[1].slope,
    "vjp": lambda line: tc.vjp(value, line)[1](1.0)[0].slope,
    "jacrev": lambda line: tc.jacrev(value)(line).slope,
    "jacfwd": lambda line: tc.jacfwd(value)(line).slope,
    "jvp": lambda line: tc.jvp(value, (line,), (Line(tc.asarray(1.0), tc.asarray(0.0), 2),))[1],
    "linearize": lambda line: tc.linearize(value, line)[1](Line(tc.asarray(1.0), tc.asarray(0.0), 2)),
    "hessian": lambda line: tc.hessian(lambda p: 0.5 * value(p) ** 2)(line).slope.offset,
    "checkpoint": lambda line: tc.grad(tc.checkpoint(value))(line).slope,
    "function": lambda line: tc.function(tc.grad(value))(line).slope,
    "vmap": lambda line: tc.vmap(tc.grad(value))(tc.tree_map(lambda x: x * tc.ones(4), line)).slope[2],
    "scan": lambda line: (
        tc.grad(lambda p: value(tc.scan(lambda c, _: (tc.tree_map(lambda a: 2.0 * a, c), None), p, length=2)[0]))(
            line
        ).slope
        / 4
    ),
    "cond": lambda line: tc.grad(lambda p: value(tc.cond(p.slope > 0, lambda q: q, lambda q: q, p)))(line).slope,
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_dataclasses_go_through(name: str) -> None:
    line = Line(tc.asarray(2.0), tc.asarray(1.0), 2)
    assert TRANSFORMED[name](line).item() == pytest.approx(9.0)


def test_a_tape_takes_a_dataclass() -> None:
    line = Line(tc.Variable(2.0), tc.Variable(1.0), 2)
    with tc.GradientTape() as tape:
        y = value(line)
    found = tape.gradient(y, line)
    assert isinstance(found, Line)
    assert (found.slope.item(), found.offset.item(), found.degree) == (9.0, 1.0, 2)


def test_static_fields_belong_to_the_structure() -> None:
    compiled = tc.function(value)
    one, two = Line(tc.asarray(2.0), tc.asarray(1.0), 1), Line(tc.asarray(2.0), tc.asarray(1.0), 2)
    for _ in range(2):
        assert (compiled(one).item(), compiled(two).item()) == (7.0, 19.0)
    assert compiled.traces == 2
    with pytest.raises(ValueError, match="structure of the first"):
        tc.tree_map(lambda a, b: a + b, one, two)


def test_dataclasses_nest_and_may_have_slots() -> None:
    @dataclass(slots=True)
    class Pair:
        line: Line
        others: list[Any]

    pair = Pair(Line(1.0, 2.0), [3.0, {"a": 4.0}])
    doubled = tc.tree_map(lambda x: 2 * x, pair)
    assert (doubled.line.offset, doubled.others) == (4.0, [6.0, {"a": 8.0}])
    assert tc.tree_leaves(pair) == [1.0, 2.0, 3.0, 4.0]


def test_registered_classes() -> None:
    class Stack:
        def __init__(self, items: list[Any], label: str) -> None:
            self.items, self.label = items, label

    with pytest.raises(TypeError, match="Stack"):
        tc.grad(lambda s: s.items[0] * 2.0)(Stack([1.0], "a"))
    tc.register_pytree(Stack, lambda s: (s.items, s.label), lambda label, items: Stack(list(items), label))
    found = tc.grad(lambda s: s.items[0] * s.items[1])(Stack([2.0, 3.0], "a"))
    assert ([x.item() for x in found.items], found.label) == ([3.0, 2.0], "a")
    leaves, structure = tc.tree_flatten([Stack([1.0], "a"), None])
    assert leaves == [1.0, None]
    assert structure.num_leaves == 2
    assert structure == tc.tree_flatten([Stack([5.0], "a"), 3.0])[1]
    assert structure != tc.tree_flatten([Stack([5.0], "b"), 3.0])[1]
    assert tc.tree_unflatten(structure, [7.0, 8.0])[0].items == [7.0]


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="must be a class"):
        tc.register_pytree(Line(1, 2), lambda x: ((), None), lambda _, c: c)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="Variable is a leaf"):
        tc.register_pytree(tc.Variable, lambda x: ((), None), lambda _, c: c)
    with pytest.raises(TypeError, match="flatten must be a function"):
        tc.register_pytree(type("A", (), {}), None, lambda _, c: c)  # type: ignore[arg-type]
    tc.tree_leaves(Line(1.0, 2.0))
    with pytest.raises(ValueError, match="registered already"):
        tc.register_pytree(Line, lambda x: ((), None), lambda _, c: c)
    with pytest.raises(ValueError, match="3 leaves; got 1"):
        tc.tree_unflatten(tc.tree_flatten((1, 2, 3))[1], [1])
    with pytest.raises(TypeError, match="structure of tree_flatten"):
        tc.tree_unflatten([1, 2], [1, 2])  # type: ignore[arg-type]


def test_none_stays_none_in_tree_map() -> None:
    assert tc.tree_map(lambda x: x + 1, [1, None, (2,)]) == [2, None, (3,)]
    assert tc.tree_map(lambda a, b: (a, b), [1, None], [None, None]) == [(1, None), None]
