"""The contract of compilers, and the one that is always there.

A compiler is a plugin of the entry-point group `tape.compilers`, see `docs/write-a-compiler.md`. It gets the `Program`
that was traced, and the function that runs it line by line, and returns a function that does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tape_core.staging import TracingError

if TYPE_CHECKING:
    from tape_compile.program import Program

Run = Callable[[list[Any]], tuple[Any, ...]]
"""A compiled program: a function of a list of arrays, which it empties, that returns a tuple of arrays.

The arrays are the inputs of the program in order, the tuple its outputs. It empties the list so that an array which
nobody else holds is freed, or written to, at its last use.
"""

EFFECTS = "effects"
"""Calls that must happen in each run, in order: random draws, host callbacks, opaque calls."""
NUMBERS = "numbers"
"""Inputs and outputs that are Python numbers, such as the count of an optimizer."""
BRANCHES = "branches"
"""Branches and loops that decide by values in each run."""


class NeedsValues(TracingError):
    """A trace of arrays without values has come to where values are needed: it is made again with values."""


class StandIns(Protocol):
    """What stands for arrays while a function is traced, where to compute each call by itself would take long."""

    def takes(self, array: object) -> bool:
        """Return whether something can stand for an array."""

    def of(self, array: Any) -> Any:
        """Return what stands for an array: it has its shape, dtype and device, and raises NeedsValues for a value."""

    def example(self, array: Any) -> Any:
        """Return an array with the shape and dtype of a stand-in; what has values is returned itself."""

    def evaluate(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function; for stand-ins, return stand-ins for its results."""

    def effect(self, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return stand-ins for the results of a call with an effect, which is not made; or raise NeedsValues."""


class Compiler:
    """The base class of compilers.

    Attributes:
        supports: what programs may have besides calls of kernels, out of `EFFECTS`, `NUMBERS` and `BRANCHES`. A program
            with anything else is an error that says so.
        exact: whether its code returns the bits of `run`; the conformance suite compares bits then, and else values.
        fuses: whether it fuses kernels and plans memory itself. Tape's own passes for that are left out then.
        by_name: whether it knows calls by their names and arguments, and not by the functions of the array library. A
            trace for it has neither kernels with residuals nor rules of a backend's own, whose calls have no meaning
            for another library; and passes that make calls of functions are left out.
        under_tape: whether it also compiles calls inside tapes' blocks: a program for the call, which returns what
            derivatives need, and one for each derivative. Otherwise such calls are plain Python, whose ops are
            recorded.
        stand_ins: what stands for arrays in traces for this compiler; None where they are traced with their values. The
            first call then returns what the compiled code computes.

    >>> class Counting(Compiler):
    ...     def compile(self, program, run, examples):
    ...         print(len(program.instructions), "instructions")
    ...         return run
    >>> Counting().fuses
    True
    """

    supports: frozenset[str] = frozenset()
    exact: bool = False
    fuses: bool = True
    by_name: bool = False
    under_tape: bool = False
    stand_ins: StandIns | None = None

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        """Return a function that does what `program` says.

        Args:
            program: the instructions, after the passes.
            run: the program as Python code, line by line: what to fall back on, or to trace once more.
            examples: arrays of the shapes, dtypes and devices that the inputs will have.

        Raises:
            ValueError: the program cannot be compiled; the message says what in it, and what to do.
            RuntimeError: something that the compiler needs is missing.
        """
        raise NotImplementedError

    def joined(self, program: Program) -> Program:
        """Return a program that computes the same, of a function together with its derivatives; by default the program.

        For calls inside tapes' blocks both are one program first, which is then split: what the derivatives can take
        from the function is found there. The parts come to :meth:`compile` afterwards.
        """
        return program

    def serialized(self, program: Program, name: str, derivatives: int) -> bytes:
        """Return a program in a format of the compiler's own, for `Function.export`; by default there is none.

        Args:
            program: the program, as for :meth:`compile`.
            name: of the function.
            derivatives: up to which order its derivatives are included.

        Raises:
            ValueError: the compiler has no format, or the program has a part that cannot be in it.
        """
        raise ValueError("export: the function's compiler has no format of its own; format='python' writes Python code")

    def offer(self, program: Program, run: Run, examples: Sequence[Any]) -> Run | None:
        """Return a faster function for a user who names no compiler, or None.

        Only the compilers that a backend names in `Backend.compilers` are asked. The function must have the bits of
        `run`.
        """
        return None


class Python(Compiler):
    """The compiler that leaves the program as it is: Python code that calls one kernel after the other."""

    supports = frozenset({EFFECTS, NUMBERS, BRANCHES})
    exact = True
    fuses = False
    under_tape = True

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        """Return `run`."""
        return run
