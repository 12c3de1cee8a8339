"""A program as the source of one Python function: a line for each instruction, grouped by the user's lines."""

from __future__ import annotations

import builtins
import keyword
import linecache
import math
import operator
import re
from collections.abc import Callable
from itertools import count
from typing import Any

from tape_core.backends.traced import Method
from tape_core.compiled.program import Instruction, Own, Place, Program, Ref
from tape_core.generated import generated

_INFIX: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.lshift: "<<", operator.rshift: ">>", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip
_PREFIX: dict[Any, str] = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
_LARGE = 32  # elements: arrays from this size on are let go of where they are needed last, so that the next is in cache

_TAKEN = re.compile(r"[xc]\d+|arrays|given|own|is_exclusive|_")

_files = count()


class Source:
    """The function that a program becomes.

    Attributes:
        text: its source.
        names: what the source refers to.
        run: the function: it takes the list of the program's inputs and empties it, and returns a tuple. With names for
            the inputs it takes each of them.
    """

    def __init__(self, program: Program, name: str, parameters: list[str] | None = None) -> None:
        self.program = program
        self.names: dict[str, Any] = {"__name__": __name__}
        self._named: dict[Any, str] = {}  # by what the name is of
        self._values: dict[int, str] = {}
        self._keep: list[Any] = []
        for k, constant in program.constants.items():
            self._values[k] = f"c{k}"
            self.names[f"c{k}"] = constant
        self._parameters = parameters
        if parameters is not None:
            self._values.update(zip(program.inputs, parameters, strict=True))
        function = re.sub(r"\W", "_", name)
        self.text = self._written(function)
        file = f"<tape_core: {name} compiled, {next(_files)}>"
        self.run: Callable[[list[Any]], tuple[Any, ...]] = generated(self.text, function, file, self.names)

    @property
    def whole(self) -> str:
        """The source, after that of the branches and loops in it."""
        parts = [part for instruction in self.program.instructions for part in getattr(instruction.fn, "parts", ())]
        return "\n".join([*[part.source.whole for part in parts], self.text])

    def _written(self, name: str) -> str:
        program = self.program
        last = _last_uses(program)
        inputs = [self._value(k) for k in program.inputs]
        lines = [f"def {name}({'arrays' if self._parameters is None else ', '.join(inputs)}):"]
        if inputs and self._parameters is None:
            lines += [f"    {', '.join(inputs)}{',' * (len(inputs) == 1)} = arrays", "    arrays.clear()"]
        place: Place | None = None
        for at, instruction in enumerate(program.instructions):
            if instruction.place is not None and instruction.place != place:
                place = instruction.place
                lines.append(f"    # {_shown(place)}")
            if hasattr(instruction.fn, "take_over"):
                lines += self._handed_over(instruction, last.pop(at, []))
                continue
            targets = instruction.kwargs.get("out")
            if type(targets) is Own or (type(targets) is tuple and any([type(target) is Own for target in targets])):
                # Before the call, which holds its arguments itself.
                lines.append(f"    own = {self._owned(targets)}")
            lines.append(f"    {self._line(instruction)}")
            if done := [self._value(k) for k in last.get(at, ()) if self._is_large(k)]:
                lines.append(f"    del {', '.join(done)}")
        outputs = "".join(f"{self._value(k)}, " for k in program.outputs)
        lines.append(f"    return ({outputs})" if outputs else "    return ()")
        return "\n".join(lines) + "\n"

    def _is_large(self, k: int) -> bool:
        spec = self.program.specs.get(k)
        return spec is not None and spec.size >= _LARGE

    def _value(self, k: int) -> str:
        return self._values.setdefault(k, f"x{k}")

    def _line(self, instruction: Instruction) -> str:
        call = self._call(instruction)
        out = self._target(instruction.out)
        return call if not out else f"{out} = {call}"

    def _handed_over(self, instruction: Instruction, last: list[int]) -> list[str]:
        """Lines that give arrays away: what nothing needs afterwards may be updated in place."""
        given = [self._argument(arg) for arg in instruction.args]
        outs = set(instruction.outputs)
        dead = [self._value(k) for k in last if k not in outs]
        function, out = self._name_of(instruction.fn, instruction.name), self._target(instruction.out)
        return [
            f"    given = [{', '.join(given)}]",
            *([f"    del {', '.join(dead)}"] if dead else []),
            f"    {f'{out} = ' if out else ''}{function}.take_over(given)",
        ]

    def _target(self, out: Any) -> str:
        if out is None:
            return "_"
        if type(out) is int:
            return self._value(out)
        if not instruction_outputs(out):
            return ""
        return f"({', '.join([self._target(part) or '_' for part in out])},)"

    def _call(self, instruction: Instruction) -> str:
        fn, args = instruction.fn, instruction.args
        if not instruction.kwargs and _hashable(fn):
            if fn in _INFIX and len(args) == 2:
                return f"{self._operand(args[0])} {_INFIX[fn]} {self._operand(args[1])}"
            if fn in _PREFIX and len(args) == 1:
                return f"{_PREFIX[fn]}{self._operand(args[0])}"
            if fn is operator.abs:
                return f"abs({self._argument(args[0])})"
            if fn is operator.getitem and len(args) == 2:
                return f"{self._operand(args[0])}[{self._key(args[1])}]"
        if isinstance(fn, operator.attrgetter):
            return f"{self._operand(args[0])}.{fn.__reduce__()[1][0]}"
        given = [self._argument(arg) for arg in args]
        method = type(fn) is Method and type(args[0]) is Ref
        given += [f"{name}={self._argument(value)}" for name, value in instruction.kwargs.items()]
        if method:
            return f"{given[0]}.{fn.__name__}({', '.join(given[1:])})"
        return f"{self._name_of(fn, instruction.name)}({', '.join(given)})"

    def _owned(self, target: Any) -> str:
        if type(target) is tuple:
            return f"({', '.join(map(self._owned, target))},)"
        if target is None:
            return "None"
        array = self._value(target.id)
        self.names["is_exclusive"] = self.program.backend.is_exclusive  # type: ignore[union-attr]
        return f"{array} if is_exclusive({array}, {target.references}) else None"

    def _operand(self, value: Any) -> str:
        text = self._argument(value)
        return f"({text})" if text.startswith("-") else text

    def _key(self, key: Any) -> str:
        if type(key) is tuple and key:
            return ", ".join([self._part(part) for part in key]) + "," * (len(key) == 1)
        return self._part(key)

    def _part(self, part: Any) -> str:
        if type(part) is slice:
            start, stop, step = ("" if v is None else self._argument(v) for v in (part.start, part.stop, part.step))
            return f"{start}:{stop}" + (f":{step}" if step else "")
        return self._argument(part)

    def _argument(self, value: Any) -> str:
        kind = type(value)
        if kind is Ref:
            return self._value(value.id)
        if kind is Own or (kind is tuple and any([type(part) is Own for part in value])):
            return "own"
        if kind is bool or kind is int or kind is str or value is None or value is ...:
            return "..." if value is ... else repr(value)
        if kind is float and math.isfinite(value):
            return repr(value)
        if kind is tuple:
            return f"({', '.join([self._argument(v) for v in value])}{',' * (len(value) == 1)})"
        if kind is list:
            return f"[{', '.join([self._argument(v) for v in value])}]"
        if kind is slice:
            return f"slice({', '.join([self._argument(v) for v in (value.start, value.stop, value.step)])})"
        return self._name_of(value, getattr(value, "name", None) or getattr(value, "__name__", None) or kind.__name__)

    def _name_of(self, thing: Any, wanted: str) -> str:
        """The name of a function or of something else that has no literal."""
        key = id(thing)
        if key not in self._named:
            wanted = re.sub(r"\W", "_", str(wanted)).strip("_") or "f"
            if wanted[0].isdigit() or keyword.iskeyword(wanted) or _TAKEN.fullmatch(wanted):
                wanted = f"{wanted}_"
            name, n = wanted, 2
            alone = self._parameters is not None  # then what else is in the file uses the names of Python
            while name in self.names or (alone and hasattr(builtins, name)):
                name, n = f"{wanted}_{n}", n + 1
            self._named[key] = name
            self._keep.append(thing)
            self.names[name] = thing
        return self._named[key]


def instruction_outputs(out: Any) -> list[int]:
    """The numbers in the nested tuples of what an instruction gives."""
    if type(out) is int:
        return [out]
    return [] if out is None else [k for part in out for k in instruction_outputs(part)]


def _hashable(fn: Any) -> bool:
    try:
        hash(fn)
    except TypeError:
        return False
    return True


def _shown(place: Place) -> str:
    text = linecache.getline(place.file, place.line).strip()
    return f"{place.file.rpartition('/')[2]}:{place.line}  {text}".rstrip()


def _last_uses(program: Program) -> dict[int, list[int]]:
    """By the place of an instruction the values that no later one needs; not constants, nor results."""
    kept = {*program.constants, *program.outputs}
    seen: set[int] = set()
    found: dict[int, list[int]] = {}
    for at in range(len(program.instructions) - 1, -1, -1):
        instruction = program.instructions[at]
        for k in [*instruction.inputs, *instruction.outputs]:
            if k not in seen and k not in kept:
                seen.add(k)
                found.setdefault(at, []).append(k)
    return found
