"""The contract with a backend's array library: what it tells the compiler, so that passes can use it.

A backend has it as `Backend.compiler_support`, an instance of a subclass of `LibrarySupport`, or None. tape_core names
no type of this package there; :func:`support_of` checks the class. `tape_numpy.compiler_support` and
`tape_torch.blocks` implement it. Each method has a default with which the passes that ask for it do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from tape_compile.program import Argument, Instruction, Program, Raw, Spec
from tape_compile.rewrite import Rules

if TYPE_CHECKING:
    from tape_core.support import Call

    from tape_compile.passes.fusion import Group

Specs: TypeAlias = Mapping[int, Spec]
Overwrites: TypeAlias = Callable[[Sequence[Raw]], "tuple[list[Call], int] | None"]
"""Called with the arguments of a fused function, it returns calls of C functions that write the results over some of
them, and into how many pieces each array is cut; None where that cannot be with these arrays."""
Key: TypeAlias = tuple["int | slice", ...]

Role = Literal["each", "mixed", "number", "spread", "sum", "line", "short", "view"]
"""The part that a call has in a group of calls that become one function over blocks of arrays of the group's shape:

- `each`: elementwise, of arrays of the group's shape and of numbers;
- `mixed`: elementwise, with smaller arrays, too, which are broadcast;
- `number`: a number that is broadcast to the group's shape;
- `spread`: a smaller array that is;
- `sum`: the sum of all elements;
- `line`: a reduction along the last axis;
- `short`: elementwise, with results of such reductions;
- `view`: such a result with other axes of length 1.
"""


class FusedFunction(Protocol):
    """A function with the results of a group of calls, to the last bit: it takes the inputs and returns the outputs.

    Attributes:
        group: the calls.
        own: the numbers of results with memory of their own.
        targets: by the number of a result the input over which it may be written.
    """

    @property
    def group(self) -> Group: ...

    @property
    def own(self) -> Sequence[int]: ...

    @property
    def targets(self) -> Mapping[int, int]: ...

    def over(self, dead: Sequence[int], spare: Sequence[int]) -> FusedFunction:
        """Return the function with results in the memory of inputs that nothing needs afterwards.

        Args:
            dead: the numbers of inputs that may be overwritten if they are in `out`: a run finds out.
            spare: the numbers of inputs that may be overwritten in any case.
        """

    def __call__(self, *arrays: Raw, out: Sequence[Raw | None] | None = None) -> tuple[Raw, ...]:
        """Return the results, each in the array of `out` that is in its place, if there is one."""


class LibrarySupport:
    """The facts about an array library that the compiler uses. A subclass overrides what it knows of.

    Attributes:
        lowering: rules that write kernels as calls of the library; they stand under the kernels.
        slices_are_alike: whether an elementwise function gives an element of a slice the bits that it gives it in the
            whole array. (Vector instructions may differ from the scalar ones that do the rest of an array.)
    """

    lowering: Rules = Rules()
    slices_are_alike: bool = False

    # -- fusion

    def role(self, instruction: Instruction, specs: Specs, group: Group | None) -> Role | None:
        """Return the part that a call would have in a group, or in a new one; None where it has none."""
        return None

    def fused(self, group: Group) -> FusedFunction | None:
        """Return a function for a group of calls; None where they stay calls."""
        return None

    def is_slow(self, spec: Spec) -> bool:
        """Return whether a call costs so much, whatever it computes, that groups on small arrays pay as well."""
        return False

    # -- memory

    def gives_new(self, instruction: Instruction, specs: Specs) -> bool:
        """Return whether the result is an array with memory of its own, and no argument is kept."""
        return False

    def into(self, instruction: Instruction) -> tuple[Callable[..., Raw], list[Argument]] | None:
        """Return a function that takes `out=`, and its arguments, to do what an elementwise call does; or None."""
        return None

    def takes_memory(self, instruction: Instruction, specs: Specs) -> Callable[..., Raw] | None:
        """Return a function with the bits of a call that takes `out=`, too; None if there is none.

        That is an array of the result's shape and dtype which is none of the arguments, row by row, or None. Of a call
        with a tuple of results it is a tuple of such.
        """
        return None

    def overwrites(self, instruction: Instruction, over: Mapping[int, int]) -> Overwrites | None:
        """Return what writes the results of a fused call, to the last bit, over inputs; None if there is no such.

        Args:
            over: by the number of each result that of the input.
        """
        return None

    def lies_in(self, instruction: Instruction, value: int) -> int | None:
        """Return the value in whose memory a result lies; None if it has memory of its own, or if that is unknown."""
        return None

    # -- layout

    def axes_in_rows(self, fn: Callable[..., Raw]) -> int | None:
        """Return the number of axes up to which results lie row by row whatever the arguments; None if they may not."""
        return None

    def can_be_divided(self, spec: Spec) -> bool:
        """Return whether arrays of this class may be divided among devices or processes."""
        return True

    def is_in_rows(self, instruction: Instruction, specs: Specs) -> bool:
        """Return whether the result of a call that `gives_new` lies row by row whatever the arguments."""
        axes = self.axes_in_rows(instruction.fn)
        return axes is not None and len(specs[instruction.outputs[0]].shape) <= axes

    def full(self, instruction: Instruction) -> Callable[[tuple[int, ...], Raw], Raw] | None:
        """Return a function of a shape and a number, if the call is faster with such an array; or None."""
        return None

    def scalar(self, instruction: Instruction, specs: Specs) -> tuple[Callable[..., Raw], Spec] | None:
        """Return a function of a Python number and a dtype, and its result's spec, if it is faster; or None."""
        return None

    # -- sums of scattered parts: functions of a module, which exported files can have

    joined: Callable[..., Raw] | None = None
    """`joined(axis, *parts)`: parts one after the other, each added to 0."""

    placed: Callable[..., Raw] | None = None
    """`placed(shape, keys, *parts)`: zeros, to which each part is added where its key says."""

    def can_place(self, spec: Spec) -> bool:
        """Return whether `joined` and `placed` take such arrays as parts."""
        return True


def support_of(program: Program) -> LibrarySupport | None:
    """Return the support of the library of a program's arrays; None where there are several, or it has none.

    Raises:
        TypeError: the backend's `compiler_support` is no LibrarySupport.
    """
    support = None if program.backend is None else program.backend.compiler_support
    if support is None or isinstance(support, LibrarySupport):
        return support
    raise TypeError(
        f"backend {program.backend.name!r}: compiler_support must be a tape_compile.library.LibrarySupport or None, "  # type: ignore[union-attr]
        f"got {support!r}"
    )
