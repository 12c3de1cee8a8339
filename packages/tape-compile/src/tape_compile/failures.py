"""Errors of compiled functions in the user's terms: the op, its arguments, and the user's line.

A successful run pays nothing for this. When a call has failed, the source is written again with the index of each
instruction as its column, so that the table of positions in the compiled code says which instruction it was.
"""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import TYPE_CHECKING, NoReturn

from tape_compile.program import Argument, Instruction, Program, Ref, source_line

if TYPE_CHECKING:
    from tape_compile.codegen.source import Source

SOURCE = "__source__"
"""The name in the globals of a compiled function of a weak reference to its `Source`."""


def fail(error: Exception) -> NoReturn:
    """Raise an error from a compiled function as the op would have raised it, with a note of the user's line."""
    raised = error
    try:
        if (found := _failed_instruction(error.__traceback__)) is not None:
            program, instruction = found
            raised = _op_error(error, program, instruction) or error
            if instruction.place is not None:
                raised.add_note(f"in a compiled function, at {source_line(instruction.place)}")
        if raised is error:
            raise error
        # Its traceback goes on to where the error arose, so that it does not end with this `raise`.
        raised._tape_told = True  # type: ignore[attr-defined]
        raise raised.with_traceback(error.__traceback__) from error
    finally:
        del error, raised  # their tracebacks refer to this frame: a cycle that would keep the arrays in it alive


def _failed_instruction(traceback: TracebackType | None) -> tuple[Program, Instruction] | None:
    """Return the innermost instruction that failed, and its program."""
    found = None
    while traceback is not None:
        source = traceback.tb_frame.f_globals.get(SOURCE)
        if source is not None and (owner := source()) is not None:
            found = _instruction_at(owner, traceback.tb_frame.f_code, traceback.tb_lasti) or found
        traceback = traceback.tb_next
    return found


def _instruction_at(source: Source, code: CodeType, offset: int) -> tuple[Program, Instruction] | None:
    """Return the instruction at an offset in the bytecode of a source, and its program."""
    program = source.program_of(code.co_name)
    if program is None:
        return None
    whole = compile(source.tree(is_marked=True), code.co_filename, "exec")
    marked = next((c for c in whole.co_consts if isinstance(c, CodeType) and c.co_name == code.co_name), None)
    if marked is None or marked.co_code != code.co_code:  # another version of the code, as under a debugger
        return None
    _, _, at, _ = list(marked.co_positions())[offset // 2]  # an instruction of Python's has 2 bytes
    if at is None or not 0 <= at < len(program.instructions):
        return None
    return program, program.instructions[at]


def _op_error(error: Exception, program: Program, instruction: Instruction) -> Exception | None:
    """Return the error that the op raises in an eager call; None where no kernel of it has failed."""
    from tape_core.extend import registry

    known = None if program.backend is None or instruction.effect else program.backend.user_error(error)
    name = instruction.name.removesuffix("_with_residuals")  # that variant of the op keeps residuals for a tape
    if known is None or name not in registry:
        return None
    op = registry[name]
    given = [_describe(arg, program) for arg in instruction.args]
    inputs = list(op.inputs) if not op.sequence else []
    given[: len(inputs)] = [f"{name}: {text}" for name, text in zip(inputs, given, strict=False)]
    given += [f"{name}={_describe(value, program)}" for name, value in instruction.kwargs.items()]
    kind, text = known
    return kind(f"{name}({', '.join(given)}): {text}")


def _describe(value: Argument, program: Program) -> str:
    from tape_core.tracing import describe  # imported late, since it knows compiled functions

    if type(value) is Ref:
        spec = program.specs[value.id]
        return f"{str(spec.dtype).removeprefix('torch.')}{list(spec.shape)}" if spec.dtype is not None else "a number"
    if type(value) is tuple or type(value) is list:
        return describe(type(value)([_Text(_describe(part, program)) for part in value]))
    return describe(value)


class _Text(str):
    """A text whose representation has no quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
