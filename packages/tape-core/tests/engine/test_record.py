"""Records: each call path writes the layout that the accessors of `tape_core.engine.record` read."""

from __future__ import annotations

from typing import Any

import pytest
import tape_core as tc
from tape_core.engine import record


def recorded(f: Any, *xs: Any) -> list[Any]:
    """The records of `f` at Tensors that are watched, without those of leaves."""
    with tc.GradientTape() as tape:
        tape.watch(xs)
        f(*xs)
    return [rec for rec in tape._records if rec is not None]


X = tc.asarray([[4.0, 1.0], [1.0, 3.0]])
B = tc.asarray([[1.0], [2.0]])

CALLS = {
    "one input": (tc.exp, (X,), [0], (), {}),
    "one input and parameters": (
        lambda x: tc.sum(x, axis=1, keepdims=True),
        (X,),
        [0],
        (),
        {"axis": 1, "keepdims": True},
    ),
    "two inputs": (tc.multiply, (X, B), [0, 1], (), {}),
    "two inputs, one watched": (lambda x: tc.multiply(2.0, x), (X,), [None, 0], (), {}),
    "any number of inputs": (lambda x, y: tc.clip(x, 0.0, y), (X, X + 1), [0, None, 1], (), {}),
    "a sequence": (lambda x, y: tc.concat([x, y], axis=1), (X, B), [(0, 1)], (), {"axis": 1}),
    "residuals": (tc.linalg.solve, (X, B), [0, 1], (), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_accessors_read_what_the_call_path_wrote(name: str) -> None:
    f, xs, slots, params, kwargs = CALLS[name]
    rec = recorded(f, *xs)[-1]
    plan = rec[record.PLAN]
    assert list(record.input_slots(rec)) == slots
    assert [record.slot(rec, k) for k in range(plan.n)] == slots
    flat = [i for s in slots for i in (s if isinstance(s, tuple) else (s,)) if i is not None]
    assert list(record.each_slot(rec)) == flat
    assert (record.params(rec), record.kwargs(rec)) == (params, kwargs)
    assert type(record.out_slots(rec)) is dict
    assert bool(record.residuals(rec)) == (name == "residuals")


def test_a_record_keeps_the_arrays_that_rules_name() -> None:
    (rec,) = recorded(tc.multiply, X, B)
    assert record.array(rec, 0) is X._array
    assert record.array(rec, 1) is B._array
    assert record.slots(rec, 0) is X._slots
    assert record.out(rec) is None
    (rec,) = recorded(tc.exp, X)
    assert record.array(rec, 0) is None
    assert record.out(rec) is not None


def test_each_of_several_results_hands_its_cotangent_to_the_record_of_the_op() -> None:
    whole, *parts = recorded(tc.linalg.eigh, X)
    assert type(record.out_slots(whole)) is list
    assert [record.slot(part, 0) for part in parts] == [1, 1]


def test_a_record_with_other_slots_is_the_same_in_all_else() -> None:
    (rec,) = recorded(tc.multiply, X, B)
    other = record.with_slots(rec, {1: 7})
    assert record.input_slots(other) == (0, 7)
    assert [a is b for a, b in zip(rec, other, strict=True)].count(False) == 1
