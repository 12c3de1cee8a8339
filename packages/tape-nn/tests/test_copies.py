"""How functional copies are made and taken apart: the first step by step, later ones by functions that are written."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn
from tape_nn import thresholds

Pair = namedtuple("Pair", "first second")
TIMES = thresholds.COPIES_BEFORE_WRITTEN + 5


class Doubling(list[Any]):
    def append(self, value: Any) -> None:
        self.added = getattr(self, "added", 0) + 1
        super().append(value)


class Checked(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        self.set = getattr(self, "set", 0) + 1
        super().__setitem__(key, value)


class Line(nn.Module):
    def __init__(self, slope: float) -> None:
        self.slope = tc.Variable(slope)

    def __call__(self, x: Any) -> Any:
        return self.slope * x


class Many(nn.Module):
    """A Module with parts of each kind."""

    def __init__(self) -> None:
        self.first = Line(1.0)
        self.empty = nn.Module()
        self.settings: Any = [[1, {2: [3.0]}], (4, [None, True]), {}]
        self.listed = Doubling([Line(2.0), tc.Variable(3.0)])
        self.checked = Checked({1: tc.Variable(4.0), "two": [Line(5.0)], (3,): 6})
        self.ordered = OrderedDict(z=tc.Variable(7.0), a=(tc.Variable(8.0),))
        self.default = defaultdict(list, a=[tc.Variable(9.0), 1])
        self.pair = Pair(tc.Variable(10.0), (tc.Variable(11.0), [self.first]))
        self.again = self.pair
        self.tied = [self.first.slope, {"slope": self.listed[0].slope}]
        self.fixed = [tc.Variable(12.0, trainable=False)]
        self.back = {"owner": [self]}
        self.rate = 0.5

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "rate" and not isinstance(value, float):
            raise TypeError("rate must be a number")
        super().__setattr__(name, value)


def seen(value: Any, known: dict[int, int]) -> Any:
    """All that a Module holds: classes, keys and values, and which objects are the same."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, tc.Tensor):
        known[id(value)] = len(known)
        return "leaf", value.item()
    if not isinstance(value, nn.Module | list | tuple | dict):
        return value
    known[id(value)] = len(known)
    entries = vars(value) if isinstance(value, nn.Module) else value
    items: Any = entries.items() if isinstance(entries, dict) else enumerate(entries)
    parts = [(key, seen(part, known)) for key, part in items if key != "_leaf_places"]
    return type(value), parts, getattr(value, "default_factory", None)


def test_copies_that_are_made_often_are_as_the_first_ones() -> None:
    model = Many()
    expected = seen(model, {})
    leaves, structure = tc.tree_flatten(model)
    for k in range(TIMES):
        copied = tc.tree_unflatten(structure, [leaf * 1.0 for leaf in leaves])
        assert copied.listed.added >= 2  # by the methods of its class
        assert copied.checked.set >= 3
        assert seen(copied, {}) == expected
        assert copied.settings is model.settings
        assert copied.fixed[0] is model.fixed[0]
        values = [tc.asarray(float(k + at)) for at in range(len(leaves))]
        copied = tc.tree_unflatten(structure, values)
        found, same = tc.tree_flatten(copied)
        assert same == structure
        assert [a is b for a, b in zip(found, values, strict=True)] == [True] * len(values)
        # The nodes of a deep copy are others, so that it is walked through.
        walked, alike = tc.tree_flatten(copy.deepcopy(copied))
        assert [leaf.item() for leaf in walked] == [leaf.item() for leaf in values]
        assert str(alike) == str(structure)


@pytest.mark.parametrize("times", [1, TIMES])
def test_changes_in_each_kind_of_part_are_seen(times: int) -> None:
    def number() -> Any:
        return tc.asarray(1.0)

    changes: list[Any] = [
        lambda m: m.settings[0][1][2].append(4),
        lambda m: m.settings[0][1].update({5: 6}),
        lambda m: m.settings[1][1].__setitem__(1, 1),
        lambda m: m.settings[2].update(a=1),
        lambda m: m.settings.pop(),
        lambda m: m.listed.append(1),
        lambda m: m.listed.reverse(),
        lambda m: m.checked.pop((3,)),
        lambda m: m.checked.update(two=[]),
        lambda m: m.checked.__setitem__("two", m.checked["two"] * 2),
        lambda m: m.ordered.move_to_end("z"),
        lambda m: setattr(m, "pair", Pair(*m.pair)),
        lambda m: setattr(m, "again", m.pair[1]),
        lambda m: m.tied.__setitem__(0, number()),
        lambda m: setattr(m.first, "slope", number()),
        lambda m: m.tied[1].update(slope=number()),
        lambda m: m.fixed.append(1),
        lambda m: setattr(m.fixed[0], "trainable", True),
        lambda m: m.back["owner"].clear(),
        lambda m: setattr(m, "rate", 0.25),
        lambda m: setattr(m.empty, "more", 1),
        lambda m: setattr(m.empty, "__class__", Line),
    ]
    for change in changes:
        model = Many()
        copied = tc.tree_map(lambda leaf: leaf * 1.0, model)
        for _ in range(times):
            before = tc.tree_flatten(copied)
        change(copied)
        leaves, structure = tc.tree_flatten(copied)
        assert structure != before[1]
        walked, alike = tc.tree_flatten(copy.deepcopy(copied))
        assert str(alike) == str(structure)
        assert [leaf.item() for leaf in leaves] == [leaf.item() for leaf in walked]
        again = tc.tree_unflatten(structure, leaves)
        assert [a is b for a, b in zip(tc.tree_leaves(again), leaves, strict=True)] == [True] * len(leaves)


def test_settings_that_are_equal_again_make_the_skeleton_equal() -> None:
    copied = tc.tree_map(lambda leaf: leaf * 1.0, Many())
    _, before = tc.tree_flatten(copied)
    copied.settings[0].append(1.0)
    _, between = tc.tree_flatten(copied)
    copied.settings[0][-1] = 1
    _, other = tc.tree_flatten(copied)
    copied.settings[0].pop()
    _, after = tc.tree_flatten(copied)
    assert before == after
    assert before != between
    assert between != other


@pytest.mark.parametrize("times", [1, TIMES])
def test_nothing_is_kept_by_what_is_written(times: int) -> None:
    model = Many()
    del model.back
    copied = tc.tree_map(lambda leaf: leaf * 1.0, model)
    for _ in range(times):
        tc.tree_leaves(copied)
    gone = [weakref.ref(one) for one in (copied, copied.first, copied.listed[0].slope, model.first, model.fixed[0])]
    gc.collect()
    gc.disable()
    try:
        del copied, model
        assert [one() for one in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_a_large_module_is_taken_apart_step_by_step() -> None:
    model = nn.Module()
    model.parts = [tc.Variable(float(k)) for k in range(3)]
    model.settings = list(range(thresholds.WRITTEN_PARTS))
    copied = tc.tree_map(lambda leaf: leaf * 1.0, model)
    for _ in range(TIMES):
        assert [leaf.item() for leaf in tc.tree_leaves(copied)] == [0.0, 1.0, 2.0]
    _, before = tc.tree_flatten(copied)
    copied.settings[-1] = 0
    assert tc.tree_flatten(copied)[1] != before


def test_a_tuple_that_holds_itself_through_a_module_is_refused() -> None:
    model = nn.Module()
    inner = nn.Module()
    inner.weight = tc.Variable(1.0)
    model.parts = (inner,)
    inner.parts = model.parts
    for _ in range(3):
        with pytest.raises(ValueError, match="use a list"):
            tc.tree_map(lambda leaf: leaf * 1.0, model)


def test_a_module_with_nothing_in_it() -> None:
    copied = tc.tree_map(lambda leaf: leaf, nn.Module())
    for _ in range(TIMES):
        assert tc.tree_leaves(copied) == []
        copied = tc.tree_map(lambda leaf: leaf, copied)
    assert type(copied) is nn.Module
