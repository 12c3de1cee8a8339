"""Proofs of checks: what is between bounds in every run is not looked at in each.

The numbers of segments that `argmin` returns are those of its axis, and `clip(k, 0, 9)` is at most 9. So integers are
followed from the calls that make them, as intervals that hold whatever the inputs are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple

from tape_compile.passes.registry import pass_
from tape_compile.program import Argument, Instruction, Program, Ref, Spec

_LOOKED_AT_MAX_ELEMENTS = 1 << 20
"""Constants up to this size are read to find their least and greatest elements."""


@pass_(stage="exact", after=["constant_folding", "simplify"], before=["dce"])
def prove_checks(program: Program) -> Program:
    """Leave out checks that integers are between two bounds, where they surely are."""
    checks = [i for i in program.instructions if i.effect and hasattr(i.fn, "bounds")]
    if not checks:
        return program
    ranges = _Ranges(program)
    kept = []
    for instruction in program.instructions:
        bounds: Interval | None = getattr(instruction.fn, "bounds", None) if instruction.effect else None
        if bounds is None or len(instruction.args) != 1:
            ranges.follow(instruction)
        else:
            (checked,) = instruction.args
            found = ranges.of(checked)
            if found is not None and bounds[0] <= found[0] and found[1] <= bounds[1]:
                continue
            ranges.narrow(checked, bounds)
        kept.append(instruction)
    return program if len(kept) == len(program.instructions) else program.replace(kept)


class Interval(NamedTuple):
    """The numbers from `least` to `greatest`."""

    least: int
    greatest: int


class _Ranges:
    """The intervals of the integers in a program, up to a call."""

    def __init__(self, program: Program) -> None:
        self._specs: Mapping[int, Spec] = program.specs
        self._constants = program.constants
        self._known: dict[int, Interval | None] = {}

    def spec(self, x: Argument) -> Spec | None:
        """Return the spec of an array; None of anything else, and where a length differs between calls."""
        if type(x) is not Ref or self._specs[x.id].dtype is None or -1 in self._specs[x.id].shape:
            return None
        return self._specs[x.id]

    def of(self, x: Argument) -> Interval | None:
        """Return the interval of an argument; None where nothing is known of it."""
        if type(x) is int or type(x) is bool:
            return Interval(int(x), int(x))
        if type(x) is not Ref:
            return None
        if x.id not in self._known:
            spec = self._specs[x.id]
            # Of an empty array all is true, and nothing is the least.
            is_constant = x.id in self._constants and 0 < spec.size <= _LOOKED_AT_MAX_ELEMENTS and limits(spec)
            self._known[x.id] = _extremes(self._constants[x.id]) if is_constant else limits(spec)
        return self._known[x.id]

    def narrow(self, x: Argument, bounds: Interval) -> None:
        """Note that a value is between bounds from here on: the program has stopped otherwise."""
        found = self.of(x)
        if type(x) is Ref and found is not None:
            least, greatest = max(found[0], bounds[0]), min(found[1], bounds[1])
            if least <= greatest:
                self._known[x.id] = Interval(least, greatest)

    def follow(self, instruction: Instruction) -> None:
        """Note the intervals of the results of a call, if they can be told."""
        out = instruction.out
        if instruction.name == "top_k" and type(out) is tuple and len(out) == 2:
            self._note(out[1], _place_on_axis(self, instruction, -1))
        elif type(out) is int and not instruction.effect:
            rule = _RULES.get(instruction.name)
            if rule is not None and limits(self._specs[out]) is not None:
                self._note(out, rule(self, instruction))

    def _note(self, number: int, found: Interval | None) -> None:
        # What does not fit into the dtype has come round to other numbers.
        whole = limits(self._specs[number])
        if found is not None and whole is not None and whole[0] <= found[0] <= found[1] <= whole[1]:
            self._known[number] = found


def limits(spec: Spec) -> Interval | None:
    """Return the interval of a dtype of integers or bool; None of any other, and of Python numbers."""
    if spec.dtype is None:
        return None
    name = spec.dtype_name
    if name == "bool":
        return Interval(0, 1)
    kind, bits = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    if kind == "int" and bits:
        return Interval(-(1 << (int(bits) - 1)), (1 << (int(bits) - 1)) - 1)
    if kind == "uint" and bits:
        return Interval(0, (1 << int(bits)) - 1)
    return None


def _extremes(constant: object) -> Interval | None:
    least, greatest = getattr(constant, "min", None), getattr(constant, "max", None)
    return Interval(int(least()), int(greatest())) if callable(least) and callable(greatest) else None


Rule = Callable[[_Ranges, Instruction], "Interval | None"]
_RULES: dict[str, Rule] = {}


def _of(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return add


def _hull(found: list[Interval | None]) -> Interval | None:
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    return Interval(min([one.least for one in known]), max([one.greatest for one in known]))


# -- where the numbers are places along an axis


def _place_on_axis(ranges: _Ranges, instruction: Instruction, axis: int | None) -> Interval | None:
    spec = ranges.spec(instruction.args[0])
    axis = instruction.kwargs.get("axis", axis)
    if spec is None or not (axis is None or type(axis) is int):
        return None
    length = spec.size if axis is None else spec.shape[axis]
    return Interval(0, length - 1) if length > 0 else None


@_of("argmin", "argmax")
def _extreme_place(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    return _place_on_axis(ranges, instruction, None) if len(instruction.args) == 1 else None


@_of("argsort")
def _order(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    return _place_on_axis(ranges, instruction, -1) if len(instruction.args) == 1 else None


@_of("search_in_order")
def _insertion(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    spec = ranges.spec(instruction.args[0])
    return Interval(0, spec.shape[-1]) if spec is not None and spec.shape else None


@_of("count_nonzero")
def _count(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    spec = ranges.spec(instruction.args[0])
    return None if spec is None else Interval(0, spec.size)


# -- arithmetic


def _arithmetic(*names: str) -> Callable[[Callable[..., Interval | None]], Callable[..., Interval | None]]:
    """Make a function of the intervals of all arguments a rule."""

    def add(function: Callable[..., Interval | None]) -> Callable[..., Interval | None]:
        count = function.__code__.co_argcount

        @_of(*names)
        def rule(ranges: _Ranges, instruction: Instruction) -> Interval | None:
            given = [ranges.of(x) for x in instruction.args]
            if len(given) != count or instruction.kwargs or None in given:
                return None
            return function(*given)

        return function

    return add


@_arithmetic("add")
def _add(x: Interval, y: Interval) -> Interval:
    return Interval(x.least + y.least, x.greatest + y.greatest)


@_arithmetic("subtract")
def _subtract(x: Interval, y: Interval) -> Interval:
    return Interval(x.least - y.greatest, x.greatest - y.least)


@_arithmetic("multiply")
def _multiply(x: Interval, y: Interval) -> Interval:
    corners = [one * other for one, other in product(x, y)]
    return Interval(min(corners), max(corners))


@_arithmetic("negative")
def _negative(x: Interval) -> Interval:
    return Interval(-x.greatest, -x.least)


@_arithmetic("abs")
def _abs(x: Interval) -> Interval:
    return Interval(max(x.least, -x.greatest, 0), max(-x.least, x.greatest))


@_arithmetic("remainder")
def _remainder(x: Interval, y: Interval) -> Interval | None:
    if y.least < 1:
        return None
    return Interval(0, min(y.greatest - 1, x.greatest) if x.least >= 0 else y.greatest - 1)


@_arithmetic("floor_divide")
def _floor_divide(x: Interval, y: Interval) -> Interval | None:
    if y.least < 1:
        return None
    corners = [one // other for one, other in product(x, y)]
    return Interval(min(corners), max(corners))


@_arithmetic("minimum")
def _minimum(x: Interval, y: Interval) -> Interval:
    return Interval(min(x.least, y.least), min(x.greatest, y.greatest))


@_arithmetic("maximum")
def _maximum(x: Interval, y: Interval) -> Interval:
    return Interval(max(x.least, y.least), max(x.greatest, y.greatest))


@_of("clip")
def _clip(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    given = [*instruction.args, *[instruction.kwargs.get(name) for name in ("min", "max")[len(instruction.args) - 1 :]]]
    found = ranges.of(given[0])
    if found is None or len(given) != 3:
        return None
    low, high = [None if x is None else ranges.of(x) for x in given[1:]]
    if (given[1] is not None and low is None) or (given[2] is not None and high is None):
        return None
    if low is not None:
        found = Interval(max(found.least, low.least), max(found.greatest, low.greatest))
    if high is not None:  # the result is the greatest also where that is less than the least
        found = Interval(min(found.least, high.least), min(found.greatest, high.greatest))
    return found


@_of("where")
def _where(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    return _hull([ranges.of(x) for x in instruction.args[1:]]) if len(instruction.args) == 3 else None


@_of("astype")
def _astype(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    return ranges.of(instruction.args[0])  # of floats nothing is known; what does not fit is not noted


# -- where the elements are those of other arrays


@_of(
    "asarray", "broadcast_to", "copy", "expand_dims", "flip", "mT", "matrix_transpose", "max", "min", "moveaxis",
    "permute_dims", "positive", "repeat", "reshape", "roll", "sort", "squeeze", "stop_gradient", "T", "tile"
)  # fmt: skip
def _same(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    return ranges.of(instruction.args[0])


@_of("getitem")
def _part(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    key = instruction.args[1]
    parts = key if type(key) is tuple else (key,)
    # At arrays, XLA may find indices out of range, where it has numbers of its own.
    plain = all([part is None or part is ... or type(part) in (int, slice) for part in parts])
    return ranges.of(instruction.args[0]) if plain else None


@_of("concat", "stack")
def _joined(ranges: _Ranges, instruction: Instruction) -> Interval | None:
    parts = instruction.args[0]
    return _hull([ranges.of(x) for x in parts]) if type(parts) in (tuple, list) else None
