"""Functions in straight lines, which make the functional copies with one skeleton and take them apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tape_core import Variable
from tape_core.support import generated

if TYPE_CHECKING:
    from tape_nn.copies import Constant, Step

_numbers = count()
_WRITTEN = frozenset({type(None), bool})  # classes of values that are written as they are


class StraightFunctions(NamedTuple):
    """What is written for the copies with one skeleton."""

    made: Callable[[Sequence[Any], Any, Any], Any]
    """Takes leaves, an `Alive` and the skeleton; returns a copy."""

    apart: Callable[[Any, list[Any]], list[Any] | None]
    """Takes a copy and its nodes; returns its leaves, or None if it may differ in anything else."""


def straight_functions(
    steps: Sequence[Step], variables: Sequence[Variable], settings: Sequence[Constant], names: dict[str, Any]
) -> StraightFunctions:
    """Return functions that do the same as `Plan._make` and `Plan._take_apart`, in a fraction of the time.

    Args:
        steps, variables, settings: those of the plan.
        names: the functions and classes that they use.
    """
    source = _Source(steps, names)
    lines = [*source.made(), *source.apart(variables, settings)]
    made = generated("\n".join(lines), "made", f"<copies of Modules {next(_numbers)}>", source.names)
    # Out of their own globals: so what these hold ends with the functions, without the garbage collector.
    del source.names["made"]
    return StraightFunctions(made, source.names.pop("apart"))


class _Source:
    """The two functions, in which node k is `nk`, leaf k is `lk`, and part k of the node at hand is `pk`."""

    def __init__(self, steps: Sequence[Step], names: dict[str, Any]) -> None:
        self.steps = steps
        self._lines: list[str] = []
        self.names = {**names, "new": object.__new__, "new_tuple": tuple.__new__, "set_attribute": object.__setattr__}
        self._known: dict[int, str] = {}
        self._nodes = ", ".join([f"n{k}" for k in range(1, len(steps))])
        self._leaves = ", ".join([f"l{k}" for k in sorted({k for step in steps for _, k in step.leaves})])

    def _name(self, value: object) -> str:
        if type(value) in _WRITTEN:
            return repr(value)
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"v{len(self._known)}"
            self.names[name] = value
        return name

    def made(self) -> list[str]:
        """Return the lines of the function that makes a copy."""
        lines = ["def made(leaves, alive, skeleton):", f"    [{self._leaves}] = leaves"]
        # All objects exist before they are filled, since parts may refer to what is around them.
        for step in self.steps:
            kind = self._name(step.kind)
            if step.of is None:
                lines.append(f"    n{step.number} = new({kind})")
            elif step.of is not tuple:
                made = repr(step.of()) if step.empty is None else f"empty({kind}, {self._name(step.empty)})"
                lines.append(f"    n{step.number} = {made}")
        for step in self.steps:
            values = [*map(self._name, step.parts)]
            if step.of is None:
                tokens = self._name(step.tokens)
                values[0] = f"new_tuple(Places, (alive, {tokens}))"
                if step.number == 0:
                    values[0] = f"RootPlaces(alive, {tokens}, skeleton, [None, {self._nodes}])"
            for at, k in step.leaves:
                values[at] = f"l{k}"
            for at, k in step.nodes:
                values[at] = f"n{k}"
            entries = ", ".join([f"{self._key(key)}: {value}" for key, value in zip(step.keys, values, strict=True)])
            parts = f"{{{entries}}}" if step.of is None or step.of is dict else f"[{', '.join(values)}]"
            node = f"n{step.number}"
            if step.of is None:
                lines.append(f"    set_attribute({node}, '__dict__', {parts})")
            elif step.of is tuple:
                lines.append(f"    {node} = as_tuple({self._name(step.kind)}, {parts})")
            elif step.empty is None:
                lines.append(f"    {node}.{'extend' if step.of is list else 'update'}({parts})")
            else:
                lines.append(f"    fill({node}, {parts})")
        return [*lines, "    return n0", ""]

    def _key(self, key: object) -> str:
        return repr(key) if type(key) is str else self._name(key)

    def apart(self, variables: Sequence[Variable], settings: Sequence[Constant]) -> list[str]:
        """Return the lines of the function that takes a copy apart."""
        self._lines = ["def apart(n0, nodes):", f"    [_, {self._nodes}] = nodes"]
        self._unless([f"not {self._name(variable)}.trainable" for variable in variables])
        for value, seen in settings:
            self._unless_seen(self._name(value), seen, "s")
        known: set[int] = set()
        for step in self.steps:
            node = f"n{step.number}"
            parts = [f"p{at}" for at in range(len(step.parts))]
            expected = [*map(self._name, step.parts)]
            for at, k in step.nodes:
                expected[at] = f"n{k}"
            for at, k in step.leaves:
                if k not in known:
                    parts[at] = f"l{k}"
                    known.add(k)
                expected[at] = f"l{k}"
            kind = f"type({node}) is {self._name(step.kind)}"
            if step.of is list or step.of is tuple:
                self._unless([kind, f"len({node}) == {len(parts)}"])
                values = node
            else:
                entries = node if step.of is dict else f"{node}.__dict__"
                self._unless([kind, f"tuple({entries}) == {self._name(step.keys)}"])
                values = f"{entries}.values()"
            if step.of is None:
                parts[0] = expected[0] = "_"
            self._lines.append(f"    [{', '.join(parts)}] = {values}")
            self._unless_same(parts, expected)
        return [*self._lines, f"    return [{self._leaves}]"]

    def _unless(self, conditions: Sequence[str]) -> None:
        if conditions:
            self._lines += [f"    if not ({' and '.join(conditions)}):", "        return None"]

    def _unless_same(self, names: Sequence[str], values: Sequence[str]) -> None:
        self._unless([f"{name} is {value}" for name, value in zip(names, values, strict=True) if name != value])

    def _unless_seen(self, name: str, seen: Any, prefix: str) -> None:
        """Add what `copies._is_as_seen` looks at."""
        self._unless([f"type({name}) is {self._name(seen.kind)}", f"len({name}) == {len(seen.parts)}"])
        parts = [f"{prefix}{at}" for at in range(len(seen.parts))]
        targets = f"    [{', '.join(parts)}] = "
        if seen.keys is not None:
            self._lines.append(f"{targets}{name}")
            self._unless_same(parts, [*map(self._name, seen.keys)])
            name = f"{name}.values()"
        self._lines.append(f"{targets}{name}")
        contents = [type(part) is type(seen) for part in seen.parts]
        self._unless_same(
            [part for part, inner in zip(parts, contents, strict=True) if not inner],
            [self._name(value) for value, inner in zip(seen.parts, contents, strict=True) if not inner],
        )
        for part, value, inner in zip(parts, seen.parts, contents, strict=True):
            if inner:
                self._unless_seen(part, value, f"{part}_")
