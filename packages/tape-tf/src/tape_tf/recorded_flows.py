"""Branches and loops in programs of ops that are data: as the fifth part of a call, with programs in their turn.

The arguments of such a call are the condition of a branch, the carry of a loop and the arrays that it goes through, and
then what each of its programs takes from around it: `sizes` says how many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tape_core as tc
from tape_compile.extend import Flow, Program

from tape_tf.typing import Json

_PARTS = {"cond": 2, "while_loop": 2, "scan": 1}
"""How many programs there are: both branches; the test and the step; the step."""


class Unrecordable(ValueError):
    """A program has a part that no file can hold."""


def record_flow(flow: Flow, record: Callable[[Program], Json]) -> Json:
    """Return a branch or a loop as JSON; `record` does so for each of its programs.

    Raises:
        Unrecordable: it is the loop of a derivative or of a vmap inside of the function.
    """
    name = flow.__name__
    sizes, *settings = flow.settings
    found: dict[str, Json] = {"sizes": list(sizes)}
    axes: Sequence[int] = ()
    keep = False
    if name == "while_loop":
        axes, keep, assigned, *_ = settings
        found["assigned"] = [list(places) for places in assigned]
    elif name == "scan":
        carry, columns, specs, depths, length, reverse, keep, assigned, *_ = settings
        axes = [*columns, *depths]
        found |= {"carry": carry, "length": length, "reverse": reverse, "assigned": list(assigned)}
        found["results"] = len(specs)
    elif name != "cond":
        raise Unrecordable("it is neither a branch nor a loop")
    if keep or any(axes):
        raise Unrecordable(
            "loops of which the function itself takes a derivative, or that are in a vectorized_map, are in no file"
        )
    found["parts"] = [record(part.traced) for part in flow.parts]
    return found


def made_flow(
    name: object, args: Sequence[Any], results: object, flow: Sequence[Any], replay: Callable[[Any], Any]
) -> Callable[..., tuple[Any, ...]]:
    """Return a function of Tensors that does what :func:`record_flow` has written.

    Raises:
        ValueError: it is not what that writes.
    """
    if not isinstance(name, str) or name not in _PARTS or len(flow) != 1 or not isinstance(flow[0], dict):
        raise ValueError(f"there is no branch or loop {name!r} here")
    (found,) = flow
    parts = [replay(part) for part in found["parts"]]
    sizes = [_count(size) for size in found["sizes"]]
    own = len(args) - sum(sizes)  # the arguments before what the programs take from around them
    if len(parts) != _PARTS[name] or len(sizes) != len(parts) or own < 0:
        raise ValueError(f"{name} with {len(parts)} programs and {len(sizes)} sizes")
    makers: dict[str, type[_Cond] | type[_While] | type[_Scan]] = {"cond": _Cond, "while_loop": _While, "scan": _Scan}
    made = makers[name](parts, sizes, own, found)
    if made.inputs != [part.inputs for part in parts] or any(
        len(part.outputs) != n for part, n in zip(parts, made.outputs, strict=True)
    ):
        raise ValueError(f"{name} whose programs have other inputs or outputs than it gives them")
    if results != made.results:
        raise ValueError(f"{name} with {results!r} results, not {made.results}")
    return made


def _count(value: object, below: int | None = None) -> int:
    if type(value) is not int or value < 0 or (below is not None and value >= below):
        raise ValueError(f"{value!r} is no place or number in a branch or loop")
    return value


class _Cond:
    """A branch: the condition, what both programs get, and what each takes from around it."""

    def __init__(self, parts: list[Any], sizes: list[int], own: int, found: dict[str, Any]) -> None:
        if own < 1:
            raise ValueError("cond without a condition")
        self._parts, self._sizes, self._own = parts, sizes, own
        self.inputs = [own - 1 + size for size in sizes]
        self.results = len(parts[0].outputs)
        self.outputs = [self.results] * 2

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        pred, given = args[0], args[1 : self._own]
        middle = self._own + self._sizes[0]
        taken = [args[self._own : middle], args[middle:]]

        def branch(k: int) -> Callable[[], Any]:
            return lambda: tuple(self._parts[k]([*given, *taken[k]], like=pred))

        return tc.cond(pred, branch(0), branch(1))


class _While:
    """A loop with a test: the carry, and what the test and the step take from around them.

    Among what the step takes are Variables that it assigns: `assigned` has their places there and, where the test reads
    them, among what that takes. They are a part of the carry.
    """

    def __init__(self, parts: list[Any], sizes: list[int], own: int, found: dict[str, Any]) -> None:
        self._parts, self._sizes, self._own = parts, sizes, own
        self._assigned = [
            (_count(k, sizes[1]), None if j is None else _count(j, sizes[0])) for k, j in found["assigned"]
        ]
        self.inputs = [own + size for size in sizes]
        self.results = own + len(self._assigned)
        self.outputs = [1, self.results]

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        middle = self._own + self._sizes[0]
        carry, of_test, of_step = args[: self._own], args[self._own : middle], args[middle:]
        like = next(iter(args), None)

        def test(state: Any) -> Any:
            values, variables = state
            taken = list(of_test)
            for (_, j), value in zip(self._assigned, variables, strict=True):
                if j is not None:
                    taken[j] = value
            return self._parts[0]([*values, *taken], like=like)[0]

        def step(state: Any) -> Any:
            values, variables = state
            taken = list(of_step)
            for (k, _), value in zip(self._assigned, variables, strict=True):
                taken[k] = value
            outs = self._parts[1]([*values, *taken], like=like)
            return tuple(outs[: self._own]), tuple(outs[self._own :])

        variables = tuple([of_step[k] for k, _ in self._assigned])
        values, variables = tc.while_loop(test, step, (tuple(carry), variables))
        return *values, *variables


class _Scan:
    """A loop over the elements of arrays: the carry, the arrays, and what the step takes from around it."""

    def __init__(self, parts: list[Any], sizes: list[int], own: int, found: dict[str, Any]) -> None:
        self._step, self._own = parts[0], own
        self._carry = _count(found["carry"], own + 1)
        self._length, self._reverse = _count(found["length"]), found["reverse"]
        if type(self._reverse) is not bool:
            raise ValueError(f"scan with reverse={self._reverse!r}")
        self._assigned = [_count(k, sizes[0]) for k in found["assigned"]]
        self.inputs = [own + sizes[0]]
        self.results = self._carry + _count(found["results"]) + len(self._assigned)
        self.outputs = [self.results]

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        n, captured = self._carry, args[self._own :]
        like = next(iter(args), None)

        def step(state: Any, row: Any) -> Any:
            values, variables = state
            taken = list(captured)
            for k, value in zip(self._assigned, variables, strict=True):
                taken[k] = value
            outs = self._step([*values, *row, *taken], like=like)
            end = len(outs) - len(self._assigned)
            return (tuple(outs[:n]), tuple(outs[end:])), tuple(outs[n:end])

        start = args[:n], tuple([captured[k] for k in self._assigned])
        rows = args[n : self._own]
        (values, variables), ys = tc.scan(
            step, (tuple(start[0]), start[1]), tuple(rows), length=None if rows else self._length, reverse=self._reverse
        )
        return *values, *ys, *variables
