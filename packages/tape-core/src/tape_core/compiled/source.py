"""A program as the source of one Python function: a line for each instruction, grouped by the user's lines."""

from __future__ import annotations

import builtins
import keyword
import linecache
import math
import operator
import re
from collections import Counter
from collections.abc import Callable
from itertools import chain, count
from typing import Any

from tape_core.backends.traced import Method
from tape_core.compiled.program import Instruction, Own, Place, Program, Ref
from tape_core.generated import generated

_INFIX: dict[Any, tuple[str, int]] = {
    operator.add: ("+", 2), operator.sub: ("-", 2), operator.mul: ("*", 3), operator.truediv: ("/", 3),
    operator.floordiv: ("//", 3), operator.mod: ("%", 3), operator.matmul: ("@", 3), operator.pow: ("**", 5),
    operator.and_: ("&", 1), operator.or_: ("|", 1), operator.xor: ("^", 1), operator.lshift: ("<<", 1),
    operator.rshift: (">>", 1), operator.lt: ("<", 1), operator.le: ("<=", 1), operator.gt: (">", 1),
    operator.ge: (">=", 1), operator.eq: ("==", 1), operator.ne: ("!=", 1),
}  # fmt: skip
"""Operators, and how closely they bind; those of 1 get parentheses wherever they are an operand."""
_PREFIX: dict[Any, str] = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
_OPERATORS = frozenset({*_INFIX, *_PREFIX})
_CLOSE = 4  # how closely a sign binds
_WHOLE = 9  # a name, a call
_LARGE = 32  # elements: arrays from this size on are let go of where they are needed last, so that the next is in cache

_HUGE = 1 << 12  # elements: an array of this size is let go of at once, not at the end of an expression
_TAKEN = re.compile(r"[xc]\d+|arrays|given|own|is_exclusive|_")
_WIDTH = 96  # of a line in which an expression stands in another one

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
        self._waiting: dict[int, Expression] = {}  # of values that are used once, not written yet; in order
        for k, constant in program.constants.items():
            self._values[k] = f"c{k}"
            self.names[f"c{k}"] = constant
        self._parameters = parameters
        if parameters is not None:
            self._values.update(zip(program.inputs, parameters, strict=True))
        self._function = function = re.sub(r"\W", "_", name)
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
        uses, waiting, specs = Uses(program), self._waiting, program.specs
        distinct = {id(spec): spec for spec in specs.values()} if program.largest >= _LARGE else {}
        sizes = {key: spec.size for key, spec in distinct.items()}
        large = {k for k, spec in specs.items() if sizes[id(spec)] >= _LARGE} if sizes else set()
        inputs = [self._value(k) for k in program.inputs]
        lines = [f"def {name}({'arrays' if self._parameters is None else ', '.join(inputs)}):"]
        if inputs and self._parameters is None:
            lines += [f"    {', '.join(inputs)}{',' * (len(inputs) == 1)} = arrays", "    arrays.clear()"]
            lines += self._told(used={k for instruction in program.instructions for k in instruction.inputs})
        place: Place | None = None
        for at, instruction in enumerate(program.instructions):
            if instruction.place is not place and instruction.place is not None:
                self._flush(lines)
                place = instruction.place
                lines.append(f"    # {_shown(place)}")
            if instruction.effect and hasattr(instruction.fn, "take_over"):
                self._flush(lines)
                lines += self._handed_over(instruction, uses.last(at))
                continue
            targets = [given for given in instruction.kwargs.values() if _is_own(given)] if instruction.kwargs else []
            owned = bool(targets)
            if owned:
                # Before the call, which holds its arguments itself, and with no view of them still to come.
                self._flush(lines)
                lines.append(f"    own = {self._owned(targets[0])}")
            expression = self._nested(instruction, lines)
            dying: list[int] = []
            if large and not large.isdisjoint((*instruction.inputs, *instruction.outputs)):
                dying = [k for k in uses.last(at) if k in large and k not in expression.inside]
                expression.dying += dying
            out = instruction.out
            once = type(out) is int and uses.counts.get(out) == 1 and not instruction.effect and not owned
            if once and (not dying or max([sizes[id(specs[k])] for k in dying]) < _HUGE):
                waiting[out] = expression
                continue
            if waiting:
                self._flush(lines)
            target = self._target(out)
            self._write(f"{target} = {expression.text}" if target else expression.text, expression, lines)
        self._flush(lines)
        outputs = "".join([f"{self._value(k)}, " for k in program.outputs])
        lines.append(f"    return ({outputs})" if outputs else "    return ()")
        return "\n".join(lines) + "\n"

    def _told(self, used: set[int]) -> list[str]:
        """A line for readers: which numbers constants are."""
        program = self.program
        found = [k for k in sorted(used & program.constants.keys()) if program.specs[k].shape == ()]
        numbers = [f"c{k} = {program.constants[k]!s}" for k in found if hasattr(program.constants[k], "item")]
        return [f"    # {', '.join(numbers)}"] if numbers else []

    def _write(self, line: str, expression: Expression, lines: list[str]) -> None:
        lines.append(f"    {line}")
        if expression.dying:
            lines.append(f"    del {', '.join([self._value(k) for k in expression.dying])}")

    def _nested(self, instruction: Instruction, lines: list[str]) -> Expression:
        """A call as an expression, with those in it that wait and are evaluated last before it, in their order."""
        waiting = self._waiting
        if waiting and (used := [k for k in instruction.inputs if k in waiting]):
            if len(used) == 1:
                nested = used if used[0] == next(reversed(waiting)) else []
            else:
                nested = list(waiting)[-len(used) :]
                while [k for k in used if k in nested] != nested:
                    del nested[0]
            for k in used:
                if k not in nested:
                    self._flush(lines, k)
            if nested:
                found = self._call(instruction)
                if len(found.text) <= _WIDTH:
                    for k in nested:
                        found.dying += waiting.pop(k).dying
                    found.inside = nested
                    return found
                self._flush(lines)
        return self._call(instruction)

    def _flush(self, lines: list[str], until: int | None = None) -> None:
        """Lines for what waits; only up to one of them."""
        waiting = self._waiting
        while waiting and (until is None or until in waiting):
            k = next(iter(waiting))
            expression = waiting.pop(k)
            self._write(f"{self._value(k)} = {expression.text}", expression, lines)

    def _value(self, k: int) -> str:
        return self._values.get(k) or self._values.setdefault(k, f"x{k}")

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

    def _call(self, instruction: Instruction) -> Expression:
        """A call as an expression."""
        fn, args, kwargs = instruction.fn, instruction.args, instruction.kwargs
        if not kwargs and _is_operator(fn):
            if len(args) == 1:
                return Expression(f"{_PREFIX[fn]}{self._operand(args[0], _CLOSE)}", _CLOSE)
            symbol, close = _INFIX[fn]
            return Expression(f"{self._operand(args[0], close)} {symbol} {self._operand(args[1], close + 1)}", close)
        if fn is operator.getitem:
            return Expression(f"{self._operand(args[0])}[{self._key(args[1])}]")
        if isinstance(fn, operator.attrgetter):
            return Expression(f"{self._operand(args[0])}.{fn.__reduce__()[1][0]}")
        if type(fn) is Method and type(args[0]) is Ref:
            function, args = f"{self._operand(args[0])}.{fn.__name__}", args[1:]
        else:
            function = "abs" if fn is operator.abs else self._name_of(fn, instruction.name)
        given = [self._argument(arg) for arg in args]
        if kwargs:
            given += [
                f"{name}={self._argument(value)}{' is not None' if name == 'in_place' and _is_own(value) else ''}"
                for name, value in kwargs.items()
            ]
        return Expression(f"{function}({', '.join(given)})")

    def _owned(self, target: Any) -> str:
        if type(target) is tuple:
            return f"({', '.join(map(self._owned, target))},)"
        if target is None:
            return "None"
        array = self._value(target.id)
        self.names["is_exclusive"] = self.program.backend.is_exclusive  # type: ignore[union-attr]
        return f"{array} if is_exclusive({array}, {target.references}) else None"

    def _operand(self, value: Any, close: int = _WHOLE) -> str:
        """An argument beside an operator that binds so closely."""
        if type(value) is Ref:
            found = self._waiting.get(value.id)
            if found is None:
                return self._values.get(value.id) or self._value(value.id)
            return found.text if found.close >= close and found.close > 1 else f"({found.text})"
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
            found = self._waiting.get(value.id)
            return self._value(value.id) if found is None else found.text
        if _is_own(value):
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
            while name in self.names or name == self._function or (alone and hasattr(builtins, name)):
                name, n = f"{wanted}_{n}", n + 1
            self._named[key] = name
            self._keep.append(thing)
            self.names[name] = thing
        return self._named[key]


def _is_own(value: Any) -> bool:
    """Whether an argument, or a part of it, is what only a run can tell."""
    return type(value) is Own or (type(value) is tuple and any([type(part) is Own for part in value]))


def instruction_outputs(out: Any) -> list[int]:
    """The numbers in the nested tuples of what an instruction gives."""
    if type(out) is int:
        return [out]
    return [] if out is None else [k for part in out for k in instruction_outputs(part)]


def _is_operator(fn: Any) -> bool:
    try:
        return fn in _OPERATORS
    except TypeError:  # not hashable
        return False


def _shown(place: Place) -> str:
    text = linecache.getline(place.file, place.line).strip()
    return f"{place.file.rpartition('/')[2]}:{place.line}  {text}".rstrip()


class Expression:
    """A call in the source.

    Attributes:
        text: what it is.
        close: how closely it binds.
        inside: the values whose expressions are in it.
        dying: other values that nothing after it needs.
    """

    __slots__ = ("close", "dying", "inside", "text")

    def __init__(self, text: str, close: int = _WHOLE) -> None:
        self.text = text
        self.close = close
        self.inside: list[int] = []
        self.dying: list[int] = []


class Uses:
    """Where the values of a program are used.

    Attributes:
        counts: how often each is, by all instructions; 0 for constants and results.
    """

    def __init__(self, program: Program) -> None:
        self.instructions = program.instructions
        given = [instruction.inputs for instruction in program.instructions]
        self.counts = Counter(chain.from_iterable(given))
        self._last = {k: at for at, inputs in enumerate(given) for k in inputs}
        for k in chain(program.constants, program.outputs):
            self._last[k] = -1
            self.counts[k] = 0

    def last(self, at: int) -> list[int]:
        """The values that no instruction after this one needs; not constants, nor results."""
        instruction, last = self.instructions[at], self._last
        found = [k for k in dict.fromkeys(instruction.inputs) if last[k] == at]
        return found + [k for k in instruction.outputs if k not in last]
