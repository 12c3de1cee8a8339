"""What a trace becomes: a straight line of calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tape_core.backends import Backend


class Ref:
    """Stands for a value in the arguments of an instruction."""

    __slots__ = ("id",)

    def __init__(self, name: int) -> None:
        self.id = name

    def __repr__(self) -> str:
        return f"%{self.id}"

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and other.id == self.id

    def __hash__(self) -> int:
        return self.id


SHOWN = 0
"""References to what may not be overwritten, and is replaced at the end of a run: the old value of a Variable."""


class Own:
    """Stands for an array in `out=` that may be overwritten if nobody else holds it, which only a run can tell."""

    __slots__ = ("id", "references")

    def __init__(self, name: int, references: int) -> None:
        self.id = name
        self.references = references

    def __repr__(self) -> str:
        return f"own %{self.id}"


class Place(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str


class Spec(NamedTuple):
    """What a value was while tracing: the class of its array, its shape and its dtype."""

    kind: type
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """How many elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size


class Instruction:
    """A call of a function of raw arrays; see `tape_compile`.

    Attributes:
        name: of the op or operator.
        fn, args, kwargs: the call, values as `Ref`.
        out: the numbers of what it gives.
        place: the user's line that led here.
        effect: whether it does something besides.
        inputs: the numbers of the values that it is given; as often as they are.
    """

    __slots__ = ("args", "effect", "fn", "inputs", "kwargs", "name", "out", "place")

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        place: Place | None,
        effect: bool = False,
        inputs: Sequence[int] | None = None,
    ) -> None:
        self.name = name
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.out = out
        self.place = place
        self.effect = effect
        if inputs is None:
            found: list[int] = []
            _collect(args, found)
            if kwargs:
                _collect(kwargs.values(), found)
            inputs = found
        self.inputs = inputs

    @property
    def outputs(self) -> list[int]:
        """The numbers of the values that it gives."""
        out = self.out
        return [out] if type(out) is int else list(_numbers(out))

    def with_args(self, replaced: dict[int, int]) -> Instruction:
        """The same call with other values for some."""
        if replaced.keys().isdisjoint(self.inputs):
            return self
        args, kwargs = renamed(self.args, replaced), self.kwargs
        if kwargs:
            kwargs = {name: renamed(value, replaced) for name, value in kwargs.items()}
        return Instruction(self.name, self.fn, args, kwargs, self.out, self.place, effect=self.effect)

    def __repr__(self) -> str:
        given = ", ".join([*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())])
        return f"{self.out} = {self.name}({given})"


def _collect(values: Any, found: list[int]) -> None:
    for value in values:
        kind = type(value)
        if kind is Ref:
            found.append(value.id)
        elif kind is tuple or kind is list:
            _collect(value, found)


def _numbers(out: Any) -> Iterator[int]:
    for part in out:
        if type(part) is tuple:
            yield from _numbers(part)
        elif part is not None:
            yield part


def renamed(value: Any, replaced: dict[int, int]) -> Any:
    """An argument with other values for some."""
    kind = type(value)
    if kind is Ref:
        return Ref(replaced[value.id]) if value.id in replaced else value
    if kind is tuple:
        return tuple([renamed(part, replaced) for part in value])
    if kind is list:
        return [renamed(part, replaced) for part in value]
    return value


def filled(arg: Any, values: Mapping[int, Any]) -> Any:
    """An argument with the values themselves in the place of their numbers."""
    kind = type(arg)
    if kind is Ref:
        return values[arg.id]
    return kind([filled(part, values) for part in arg]) if kind is tuple or kind is list else arg


def renewed(instructions: Iterable[Instruction], replaced: dict[int, int]) -> Iterator[Instruction]:
    """One after the other, with other values for those that are in `replaced` by then."""
    are_as_they_were = replaced.keys().isdisjoint
    for instruction in instructions:
        if replaced and not are_as_they_were(instruction.inputs):
            instruction = instruction.with_args(replaced)
        yield instruction


def _distinct(values: Collection[Any]) -> list[Any]:
    """Each object once, in order."""
    return list(dict(zip(map(id, values), values, strict=True)).values())


def literal(value: Any) -> Any:
    """What stands for an argument but for its values: that of two is the same where they differ in those alone."""
    kind = type(value)
    if kind is int or value is None:
        return value
    if kind is Ref:
        return Ref
    if kind is tuple or kind is list:
        return kind, *[literal(part) for part in value]
    if kind is slice:
        return kind, literal(value.start), literal(value.stop), literal(value.step)
    if kind is float or kind is complex:
        return kind, repr(value)  # 0.0 is not -0.0
    return kind, value


class Program:
    """A straight line of instructions; see `tape_compile`."""

    def __init__(
        self,
        instructions: list[Instruction],
        inputs: list[int],
        constants: dict[int, Any],
        outputs: list[int],
        specs: dict[int, Spec],
        backend: Backend | None = None,
    ) -> None:
        self.instructions = instructions
        self.inputs = inputs
        self.constants = constants
        self.outputs = outputs
        self.specs = specs
        self.backend = backend  # of all arrays; None where there are several
        # Inputs that nothing needs after the run: arguments that are donated, with how many references each has, and
        # old values of Variables, with `SHOWN`.
        self.owned: dict[int, int] = {}
        self._distinct: list[Spec] | None = None

    @property
    def distinct_specs(self) -> list[Spec]:
        """Each object among the specs once, also those of values that are gone; many values share one."""
        if self._distinct is None:
            self._distinct = _distinct(self.specs.values())
        return self._distinct

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """Each object that instructions call once."""
        return _distinct([instruction.fn for instruction in self.instructions])

    @property
    def largest(self) -> int:
        """How many elements the largest value has, or had."""
        return max([spec.size for spec in self.distinct_specs], default=0)

    @property
    def elements(self) -> int:
        """How many elements the arrays have that it makes: all results but those in memory that is there.

        Views count as if they were copies, and what is of another length in each call does not.
        """
        made = [instruction for instruction in self.instructions if "out" not in instruction.kwargs]
        return sum([max(0, self.specs[k].size) for instruction in made for k in instruction.outputs])

    def replaced(
        self,
        instructions: list[Instruction],
        outputs: list[int] | None = None,
        constants: dict[int, Any] | None = None,
    ) -> Program:
        """The program with other instructions, and other numbers for its results."""
        program = Program(
            instructions,
            self.inputs,
            self.constants if constants is None else constants,
            self.outputs if outputs is None else outputs,
            self.specs,
            self.backend,
        )
        program._distinct = self._distinct
        return program

    def __repr__(self) -> str:
        lines = [f"inputs {self.inputs}", *map(repr, self.instructions), f"outputs {self.outputs}"]
        return "\n".join(lines)
