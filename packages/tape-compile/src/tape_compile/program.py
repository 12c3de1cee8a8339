"""The IR: a straight line of calls on raw arrays, which a trace becomes and passes rewrite.

Values are numbers, each assigned once (SSA). `str(program)` prints a program as a jaxpr is printed; the grammar is in
docs/write-a-pass.md and in `printing.py`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

from tape_core.support import one_line

if TYPE_CHECKING:
    from tape_core.backends import Backend

    from tape_compile.codegen.spares import Spares

Raw: TypeAlias = Any
"""An array of the wrapped library, or a Python number."""

Argument: TypeAlias = object
"""An argument of an instruction: a `Ref`, a tuple or list with such, or a literal: a number, a shape, a dtype."""

Out: TypeAlias = "int | tuple[Out, ...] | None"
"""The result of an instruction: the number of a value, or nested tuples of such; None for a part without a number."""


class Ref:
    """A reference to a value in the arguments of an instruction."""

    __slots__ = ("id",)

    def __init__(self, number: int) -> None:
        self.id = number

    def __repr__(self) -> str:
        return f"%{self.id}"

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and other.id == self.id

    def __hash__(self) -> int:
        return self.id


NEVER_OVERWRITTEN = 0
"""The count in `Program.owned` of an old value of a Variable: a run that fails leaves the Variable with it."""


VIEWS = frozenset({
    "T", "astype", "asarray", "broadcast_arrays", "broadcast_to", "conj", "expand_dims", "flip", "getitem", "imag",
    "laid_out_like", "mT", "matrix_transpose", "moveaxis", "permute_dims", "positive", "real", "reshape",
    "sliding_windows", "split", "squeeze", "stop_gradient", "unstack",
})  # fmt: skip
"""The names of calls whose result may have the memory of their first argument."""


class IfExclusive:
    """An array in `out=` that may be overwritten if nobody else refers to it, which each run looks up.

    Attributes:
        id: the number of the value.
        references: the number of references to the array if nobody else has one.
    """

    __slots__ = ("id", "references")

    def __init__(self, number: int, references: int) -> None:
        self.id = number
        self.references = references

    def __repr__(self) -> str:
        return f"if_exclusive %{self.id}"


class Place(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str


class Spec(NamedTuple):
    """The class, shape and dtype that a value had while tracing; a Python number has shape () and no dtype.

    A first axis of -1 has another length in each call: the value comes out of a loop.
    """

    kind: type
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """The number of elements; negative if a length is not known."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    @property
    def dtype_name(self) -> str:
        """The dtype without its library: float32 for torch.float32; the class of a Python number."""
        return self.kind.__name__ if self.dtype is None else str(self.dtype).rpartition(".")[2]


def source_line(place: Place) -> str:
    """Return the text of a line of the user's code, with its place, for comments and messages."""
    text = linecache.getline(place.file, place.line).strip()
    return one_line(f"{place.file.rpartition('/')[2]}:{place.line}  {text}".rstrip())


class Instruction:
    """A call of a function of raw arrays.

    Attributes:
        name: the name of the op or operator.
        fn, args, kwargs: the call, with a `Ref` for each value.
        out: the numbers of the results, as `fn` returns them.
        place: the user's line that led here.
        effect: True if it is called in each run, in the order of the trace, whether or not its result is used.
        inputs: the numbers of the values among the arguments, with repetition.
    """

    __slots__ = ("args", "effect", "fn", "inputs", "kwargs", "name", "out", "place")

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,  # Out; callers know which of its kinds it is
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
        if inputs is None:  # a trace knows them already, and walking nested arguments takes time
            found: list[int] = []
            _collect_numbers(args, found)
            if kwargs:
                _collect_numbers(kwargs.values(), found)
            inputs = found
        self.inputs = inputs

    @property
    def outputs(self) -> list[int]:
        """The numbers of the results."""
        out = self.out
        return [out] if type(out) is int else list(_flatten_numbers(out))

    def arguments(self, values: Mapping[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call, with the values themselves in place of references to them."""
        return resolve(self.args, values), {name: resolve(arg, values) for name, arg in self.kwargs.items()}

    def substitute(self, replaced: Mapping[int, int]) -> Instruction:
        """Return the call with other values for those that are keys; the call itself if it has none of them."""
        if replaced.keys().isdisjoint(self.inputs):
            return self
        args, kwargs = substitute(self.args, replaced), self.kwargs
        if kwargs:
            kwargs = {name: substitute(value, replaced) for name, value in kwargs.items()}
        return Instruction(self.name, self.fn, args, kwargs, self.out, self.place, effect=self.effect)


def _collect_numbers(values: Iterable[Argument], found: list[int]) -> None:
    for value in values:
        kind = type(value)
        if kind is Ref:
            found.append(value.id)  # type: ignore[attr-defined]
        elif kind is tuple or kind is list:
            _collect_numbers(value, found)  # type: ignore[arg-type]


def _flatten_numbers(out: Iterable[Any]) -> Iterator[int]:
    for part in out:
        if type(part) is tuple:
            yield from _flatten_numbers(part)
        elif part is not None:
            yield part


def substitute(value: Any, replaced: Mapping[int, int]) -> Any:
    """Return an argument with other values for those that are keys."""
    kind = type(value)
    if kind is Ref:
        return Ref(replaced[value.id]) if value.id in replaced else value
    if kind is tuple:
        return tuple([substitute(part, replaced) for part in value])
    if kind is list:
        return [substitute(part, replaced) for part in value]
    return value


def resolve(arg: Any, values: Mapping[int, Any]) -> Any:
    """Return an argument with the values themselves in place of references to them."""
    kind = type(arg)
    if kind is Ref:
        return values[arg.id]
    return kind([resolve(part, values) for part in arg]) if kind is tuple or kind is list else arg


def results(out: Any, found: Any) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and the values of what a call with the results `out` has returned."""
    if type(out) is int:
        yield out, found
    elif out is not None:
        for part, value in zip(out, found, strict=True):
            yield from results(part, value)


def _distinct(values: Collection[Any]) -> list[Any]:
    """Return each object once, in order."""
    return list(dict(zip(map(id, values), values, strict=True)).values())


def literal_key(value: Any) -> Any:
    """Return a key for all of an argument but the values it refers to: literals and structure."""
    kind = type(value)
    if kind is int or value is None:
        return value
    if kind is Ref:
        return Ref
    if kind is tuple or kind is list:
        return kind, *[literal_key(part) for part in value]
    if kind is slice:
        return kind, literal_key(value.start), literal_key(value.stop), literal_key(value.step)
    if kind is float or kind is complex:
        return kind, repr(value)  # 0.0 is not -0.0, though they are equal; and NaN is NaN
    return kind, value


def is_literal_number(value: Argument) -> TypeGuard[int | float]:
    """Return whether an argument is a Python int or float; a bool does not count."""
    return type(value) is float or type(value) is int


class Program:
    """A straight line of instructions, with its inputs, constants and outputs.

    Attributes:
        instructions: the calls, in the order in which they run.
        inputs: the numbers of the arrays of the arguments, then of those of Variables.
        constants: by number, the arrays that are the same in each run.
        outputs: the numbers of the arrays of the result, then of the new values of Variables.
        specs: by number, the class, shape and dtype of each value.
        backend: the backend of all arrays; None if there are several.
        owned: the inputs that nothing needs after the run, with the number of references to each: donated arguments,
            and old values of Variables, which have `NEVER_OVERWRITTEN` in place of that number.
        updates: by input that is the value of a Variable, the output that is its new value; only compilers are told.
        replaced: the inputs of `updates` whose memory the user gives away: results may have it, and an error may leave
            the Variable without a value.
        deferrable: the outputs of `updates` that code may return as deferred values, see `tape_core.engine.deferred`.
        spares: memory for the new values of Variables, of which a compiler's Python code may plan the use; or None.
        recomputed: the numbers of values that derivatives compute again, by a `checkpoint`, and that are not kept.
    """

    def __init__(
        self,
        instructions: list[Instruction],
        inputs: list[int],
        constants: dict[int, Raw],
        outputs: list[int],
        specs: dict[int, Spec],
        backend: Backend | None = None,
    ) -> None:
        self.instructions = instructions
        self.inputs = inputs
        self.constants = constants
        self.outputs = outputs
        self.specs = specs
        self.backend = backend
        self.owned: dict[int, int] = {}
        self.updates: dict[int, int] = {}
        self.replaced: frozenset[int] = frozenset()
        self.deferrable: frozenset[int] = frozenset()
        self.spares: Spares | None = None
        self.recomputed: Sequence[range] = ()
        self._distinct: list[Spec] | None = None  # of `specs`, which nobody changes after this

    @property
    def distinct_specs(self) -> list[Spec]:
        """Each object among the specs once, also those of values that passes have removed."""
        if self._distinct is None:
            self._distinct = _distinct(self.specs.values())
        return self._distinct

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """Each object that instructions call once."""
        return _distinct([instruction.fn for instruction in self.instructions])

    @property
    def largest(self) -> int:
        """The number of elements of the largest value, also of one that passes have removed: a cheap bound."""
        return max([spec.size for spec in self.distinct_specs], default=0)

    @property
    def elements(self) -> int:
        """The number of elements of all arrays that a run allocates: all results but those written into `out=`.

        Views count as if they were copies, and a result of unknown length does not.
        """
        made = [instruction for instruction in self.instructions if "out" not in instruction.kwargs]
        return sum([max(0, self.specs[k].size) for instruction in made for k in instruction.outputs])

    def replace(
        self,
        instructions: list[Instruction],
        outputs: list[int] | None = None,
        constants: dict[int, Raw] | None = None,
        specs: dict[int, Spec] | None = None,
    ) -> Program:
        """Return the program with other instructions and, where they are given, other results, constants and specs."""
        program = Program(
            instructions,
            self.inputs,
            self.constants if constants is None else constants,
            self.outputs if outputs is None else outputs,
            self.specs if specs is None else specs,
            self.backend,
        )
        program.owned = self.owned
        program.recomputed = self.recomputed
        if program.specs is self.specs:  # spares a walk over all specs, of which a long trace has thousands
            program._distinct = self._distinct
        return program

    def __repr__(self) -> str:
        return f"<Program of {len(self.instructions)} instructions>"
