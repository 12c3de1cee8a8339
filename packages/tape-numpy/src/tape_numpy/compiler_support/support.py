"""NumPy's side of the contract with the compiler, `tape_compile.library.LibrarySupport`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tape_compile.extend import Argument, FusedFunction, Instruction, LibrarySupport, Raw, Role, Spec, Specs

from tape_numpy.compiler_support import blocks, calls
from tape_numpy.compiler_support.lowering import RULES
from tape_numpy.indexing import joined, placed

if TYPE_CHECKING:
    from tape_compile.extend import Group


class NumPySupport(LibrarySupport):
    """Lowered kernels, calls with `out=`, and functions that take large arrays block by block."""

    lowering = RULES
    slices_are_alike = True  # blocks rely on it, too
    joined = staticmethod(joined)
    placed = staticmethod(placed)

    def can_be_divided(self, spec: Spec) -> bool:
        return False

    def role(self, instruction: Instruction, specs: Specs, group: Group | None) -> Role | None:
        return blocks.role(instruction, specs, group)

    def fused(self, group: Group) -> FusedFunction:
        return blocks.Blocks(group)

    def gives_new(self, instruction: Instruction, specs: Specs) -> bool:
        return calls.gives_new(instruction, specs)

    def into(self, instruction: Instruction) -> tuple[Callable[..., Raw], list[Argument]] | None:
        return calls.into(instruction)

    def axes_in_rows(self, fn: Callable[..., Raw]) -> int | None:
        return calls.axes_in_rows(fn)

    def full(self, instruction: Instruction) -> Callable[[tuple[int, ...], Raw], Raw] | None:
        return calls.full(instruction)

    def scalar(self, instruction: Instruction, specs: Specs) -> tuple[Callable[..., Raw], Spec] | None:
        return calls.scalar(instruction, specs)


SUPPORT = NumPySupport()
