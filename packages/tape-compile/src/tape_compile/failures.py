"""Errors of compiled functions in the user's terms: the op, what it was given, and the line that it stands in.

Nothing is kept for it. When a call has failed, the source is made again with the places of instructions in the columns,
so that the code's table of positions says which of them it was.
"""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from tape_compile.program import Instruction, Program, Ref

if TYPE_CHECKING:
    from tape_compile.codegen.source import Source

SOURCE = "__source__"
"""The name under which the globals of a compiled function have a weak reference to its source."""


def fail(error: Exception) -> NoReturn:
    """Raise an error from a compiled function as the op would have raised it, with the line of the user's."""
    raised = error
    try:
        if (found := _found(error.__traceback__)) is not None:
            program, instruction = found
            raised = _as_of_op(error, program, instruction) or error
            if instruction.place is not None:
                from tape_compile.codegen.source import shown

                raised.add_note(f"in a compiled function, at {shown(instruction.place)}")
        if raised is error:
            raise error
        raise raised.with_traceback(error.__traceback__) from error
    finally:
        del error, raised  # their tracebacks have this frame


def _found(traceback: TracebackType | None) -> tuple[Program, Instruction] | None:
    """The innermost instruction that failed, and its program."""
    found = None
    while traceback is not None:
        source = traceback.tb_frame.f_globals.get(SOURCE)
        if source is not None and (owner := source()) is not None:
            found = _instruction(owner, traceback.tb_frame.f_code, traceback.tb_lasti) or found
        traceback = traceback.tb_next
    return found


def _instruction(source: Source, code: CodeType, offset: int) -> tuple[Program, Instruction] | None:
    program = source.program_of(code.co_name)
    if program is None:
        return None
    whole = compile(source.tree(is_marked=True), code.co_filename, "exec")
    marked = next((c for c in whole.co_consts if isinstance(c, CodeType) and c.co_name == code.co_name), None)
    if marked is None or marked.co_code != code.co_code:
        return None
    _, _, at, _ = list(marked.co_positions())[offset // 2]
    if at is None or not 0 <= at < len(program.instructions):
        return None
    return program, program.instructions[at]


def _as_of_op(error: Exception, program: Program, instruction: Instruction) -> Exception | None:
    """The error that the op raises where it is called as it is; None where it is no error of an op's kernel."""
    from tape_core.extend import registry

    known = None if program.backend is None or instruction.effect else program.backend.user_error(error)
    name = instruction.name.removesuffix("_keeping")  # what a tape runs in the op's place
    if known is None or name not in registry:
        return None
    op = registry[name]
    given = [_described(arg, program) for arg in instruction.args]
    inputs = list(op.inputs) if not op.sequence else []
    given[: len(inputs)] = [f"{name}: {text}" for name, text in zip(inputs, given, strict=False)]
    given += [f"{name}={_described(value, program)}" for name, value in instruction.kwargs.items()]
    kind, text = known
    return kind(f"{name}({', '.join(given)}): {text}")


def _described(value: Any, program: Program) -> str:
    from tape_core.tracing import describe  # which knows of compiled functions

    if type(value) is Ref:
        spec = program.specs[value.id]
        return f"{str(spec.dtype).removeprefix('torch.')}{list(spec.shape)}" if spec.dtype is not None else "a number"
    if type(value) in (tuple, list):
        return describe(type(value)([_Described(_described(part, program)) for part in value]))
    return describe(value)


class _Described(str):
    """What is shown as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
