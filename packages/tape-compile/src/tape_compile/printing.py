"""Programs as text, in the manner of a jaxpr.

The grammar, of which `test_printing.py` has a reader:

```text
program  ::= "inputs" [typed ("," typed)*] NL constant* call* "outputs" [value ("," value)*] NL
constant ::= "constant" typed "=" argument NL
call     ::= result "=" name ["!"] "(" [[key "="] argument ("," [key "="] argument)*] ")" NL part*
part     ::= INDENT name ":" NL INDENT program DEDENT DEDENT
result   ::= typed | "_" | "(" [result ("," result)*] [","] ")"
typed    ::= value ":" name "[" [length ("," length)*] "]"
length   ::= integer | "?"
argument ::= value | "if_exclusive" value | literal | name ["(" [argument ("," argument)*] ")"]
           | "(" [argument ("," argument)*] [","] ")" | "[" [argument ("," argument)*] "]"
value    ::= "%" integer
literal  ::= number | string | "..." | "<" text ">"
name     ::= identifier ("." identifier)*
```

A `!` is a call with an effect, `?` a length that each call has anew, `_` a result that nobody refers to, and `<text>`
an object that has no literal. The parts of a call are the programs that it runs: branches, steps of a loop, a fused
block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from types import EllipsisType

from tape_compile.program import Argument, IfExclusive, Instruction, Out, Program, Raw, Ref, Spec

INDENT = "    "
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_MOST = 60  # characters of an object that has no literal


def program_text(program: Program) -> str:
    """Return the text of a program, one line for each instruction."""
    return "\n".join(_lines(program))


def input_types(program: Program) -> list[str]:
    """Return dtype and shape of each input, as `float32[3,2]`."""
    return [_typed(k, program.specs).rpartition(" ")[2] for k in program.inputs]


def instruction_line(instruction: Instruction, specs: Mapping[int, Spec]) -> str:
    """Return the line of one call; a value that has no spec is shown without a type."""
    arguments = [_argument(arg) for arg in instruction.args]
    arguments += [f"{key}={_argument(value)}" for key, value in instruction.kwargs.items()]
    mark = "!" * instruction.effect
    return f"{_result(instruction.out, specs)} = {_name(instruction.name)}{mark}({', '.join(arguments)})"


def _lines(program: Program) -> Iterator[str]:
    specs = program.specs
    yield _listed("inputs", [_typed(k, specs) for k in program.inputs])
    used = {k for instruction in program.instructions for k in instruction.inputs} | {*program.outputs}
    for k, value in sorted(program.constants.items()):
        if k in used:
            yield f"constant {_typed(k, specs)} = {_constant(value, specs[k])}"
    for instruction in program.instructions:
        yield instruction_line(instruction, specs)
        for name, part in _parts(instruction):
            yield f"{INDENT}{_name(name)}:"
            yield from [INDENT * 2 + line for line in _lines(part)]
    yield _listed("outputs", [f"%{k}" for k in program.outputs])


def _listed(word: str, parts: list[str]) -> str:
    return f"{word} {', '.join(parts)}".rstrip()


def _parts(instruction: Instruction) -> Iterator[tuple[str, Program]]:
    """Return the programs that a call runs, by name."""
    for part in getattr(instruction.fn, "parts", ()):  # of a branch or a loop
        yield part.name, part.program
    group = getattr(instruction.fn, "group", None)  # of a fused block
    if group is not None:
        yield "block", Program(group.instructions, group.inputs, {}, group.outputs, group.specs)


def _typed(k: int, specs: Mapping[int, Spec]) -> str:
    spec = specs.get(k)
    if spec is None:
        return f"%{k}"
    lengths = ",".join(["?" if length < 0 else str(length) for length in spec.shape])
    return f"%{k}: {spec.dtype_name}[{lengths}]"


def _result(out: Out, specs: Mapping[int, Spec]) -> str:
    if out is None:
        return "_"
    return _sequence([_result(part, specs) for part in out]) if isinstance(out, tuple) else _typed(out, specs)


def _sequence(parts: list[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) else re.sub(r"\W", "_", name)


def _constant(value: Raw, spec: Spec) -> str:
    """Return the number that a constant of shape () holds; dots stand for an array with axes."""
    return _argument(value.item() if hasattr(value, "item") else value) if spec.shape == () else "..."


def _argument(value: Argument) -> str:
    if isinstance(value, Ref | IfExclusive):
        return repr(value)
    if isinstance(value, EllipsisType):
        return "..."
    if value is None or isinstance(value, bool | str | int):
        return repr(value)
    if isinstance(value, float) and type(value) is float:
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    if type(value) is complex:
        return f"complex({_argument(value.real)}, {_argument(value.imag)})"
    if isinstance(value, tuple):
        return _sequence([_argument(part) for part in value])
    if isinstance(value, list):
        return f"[{', '.join([_argument(part) for part in value])}]"
    if isinstance(value, slice):
        return f"slice({', '.join([_argument(part) for part in (value.start, value.stop, value.step)])})"
    # What has a name is called by it: dtypes, functions.
    name = str(getattr(value, "name", None) or getattr(value, "__name__", value))
    if _NAME.fullmatch(name):
        return name
    text = re.sub(r"[<>\s]+", " ", name).strip()
    return f"<{text if len(text) <= _MOST else text[:_MOST] + '...'}>"


def _text_of_instruction(instruction: Instruction) -> str:
    return instruction_line(instruction, {})


Program.__str__ = program_text  # type: ignore[method-assign, assignment]
Instruction.__repr__ = _text_of_instruction  # type: ignore[method-assign, assignment]
