"""A program as the source of one Python function: a line for each instruction, grouped by the user's lines."""

from __future__ import annotations

import builtins
import keyword
import linecache
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, count
from types import BuiltinFunctionType
from typing import Any

from tape_core.backends.traced import Method
from tape_core.compiled.outlining import outlined
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
_CLOSE = 4  # how closely a sign binds
_WHOLE = 9  # a name, a call
_LARGE = 32  # elements: arrays from this size on are let go of where they are needed last, so that the next is in cache
LONG = 1 << 8  # instructions: with more, names are used again, which Python compiles faster, and runs faster
_LARGE_IN_LONG = 1 << 9  # elements: there, what is smaller is let go of when its name is used again
_HUGE = 1 << 12  # elements: an array of this size is let go of at once, not at the end of an expression
_TAKEN = re.compile(r"[xc]\d+|arrays|given|own|is_exclusive|_")
_WIDTH = 96  # of a line in which an expression stands in another one

_files = count()

Expression = tuple[str, int, list[int]]
"""A call in the source, how closely it binds, and the values that nothing after it needs, but those inside it."""


class Source:
    """The function that a program becomes.

    Attributes:
        text: its source.
        parts: the sources of functions that it calls, for what comes again and again.
        functions: the names of all.
        names: what the source refers to.
        run: the function: it takes the list of the program's inputs and empties it, and returns a tuple. With names for
            the inputs it takes each of them.
    """

    def __init__(self, program: Program, name: str, parameters: list[str] | None = None) -> None:
        self.program = program
        function = re.sub(r"\W", "_", name)
        self.names: dict[str, Any] = {"__name__": __name__}
        self.names.update({f"c{k}": constant for k, constant in program.constants.items()})
        names = _Names(self.names, {function, *(parameters or ())}, alone=parameters is not None)
        whole, made = outlined(program)
        self.functions = {function}
        self.parts = []
        for part in made:
            own = names.free(f"{function}_part")
            names.give(part, own)
            self.functions.add(own)
            self.parts.append(_Function(part, own, names, [f"x{k}" for k in part.inputs], is_part=True).text)
        self.text = _Function(whole, function, names, parameters).text
        file = f"<tape_core: {name} compiled, {next(_files)}>"
        self.run: Callable[[list[Any]], tuple[Any, ...]] = generated(self.joined, function, file, self.names)

    @property
    def joined(self) -> str:
        """The source with that of its parts."""
        return "\n".join([*self.parts, self.text])

    @property
    def whole(self) -> str:
        """The source, after that of the branches and loops in it."""
        parts = [part for instruction in self.program.instructions for part in getattr(instruction.fn, "parts", ())]
        return "\n".join([*[part.source.whole for part in parts], self.joined])


class _Names:
    """The names of what has no literal, functions above all.

    Args:
        names: where they are found; taken: what others have.
        alone: whether the source stands in a file, in which what else is there uses the names of Python.
    """

    def __init__(self, names: dict[str, Any], taken: set[str], *, alone: bool) -> None:
        self.names = names
        self.taken = taken
        self.alone = alone
        self._named: dict[int, str] = {}  # by what the name is of
        self._keep: list[Any] = []

    def of(self, thing: Any, wanted: str) -> str:
        """Of a function or of something else; if it has none yet, like the one that is wanted."""
        name = self._named.get(id(thing))
        if name is None:
            name = self.free(wanted)
            self.give(thing, name)
            self.names[name] = thing
        return name

    def give(self, thing: Any, name: str) -> None:
        """Let something have a name."""
        self._named[id(thing)] = name
        self._keep.append(thing)
        self.taken.add(name)

    def free(self, wanted: str) -> str:
        """A name that nothing has."""
        wanted = re.sub(r"\W", "_", wanted).strip("_") or "f"
        if wanted[0].isdigit() or keyword.iskeyword(wanted) or _TAKEN.fullmatch(wanted):
            wanted = f"{wanted}_"
        name, n = wanted, 2
        while name in self.names or name in self.taken or (self.alone and hasattr(builtins, name)):
            name, n = f"{wanted}_{n}", n + 1
        return name


class _Function:
    """The source of one function: `text`. One that is a part of another one gives a single result as it is."""

    def __init__(
        self, program: Program, name: str, names: _Names, parameters: list[str] | None, *, is_part: bool = False
    ) -> None:
        self.program = program
        self._is_part = is_part
        self.names = names
        self._waiting: dict[int, Expression] = {}  # of values that are used once, not written yet; in order
        self._free: list[str] | None = [] if len(program.instructions) > LONG else None  # names to be used again
        self._sizes: dict[int, int] = {}  # by specs, of which many values share one
        self._values = {k: f"c{k}" for k in program.constants}
        self._parameters = parameters
        for k, given in zip(program.inputs, parameters or [f"x{k}" for k in program.inputs], strict=True):
            self._values[k] = given
        self.text = self._written(name)

    def _written(self, name: str) -> str:
        program, waiting, values = self.program, self._waiting, self._values
        uses = Uses(program)
        huge = {k for k in program.specs if self._is_large(k, _HUGE)} if program.largest >= _HUGE else None
        counts, ends = uses.counts, uses.ends
        inputs = [values[k] for k in program.inputs]
        lines = [f"def {name}({'arrays' if self._parameters is None else ', '.join(inputs)}):"]
        if inputs and self._parameters is None:
            lines += [f"    {', '.join(inputs)}{',' * (len(inputs) == 1)} = arrays", "    arrays.clear()"]
            lines += self._told()
        place: Place | None = None
        comments: dict[Place, str] = {}
        for at, instruction in enumerate(program.instructions):
            if instruction.place is not place and instruction.place is not None:
                self._flush(lines)
                place = instruction.place
                lines.append(comments.get(place) or comments.setdefault(place, f"    # {_shown(place)}"))
            out, dying = instruction.out, ends.get(at, [])
            if instruction.effect and hasattr(instruction.fn, "take_over"):
                self._flush(lines)
                self._hand_over(instruction, dying, lines)
                continue
            once = counts.get(out) == 1 and not instruction.effect  # several results have no count together
            if instruction.kwargs:
                targets = [given for given in instruction.kwargs.values() if _is_own(given)]
                if targets:
                    # Before the call, which holds its arguments itself, and with no view of them still to come.
                    self._flush(lines)
                    lines.append(f"    own = {self._owned(targets[0])}")
                    once = False
            if waiting and not waiting.keys().isdisjoint(instruction.inputs):
                text, close, dying = self._nested(instruction, dying, lines)
            else:
                text, close = self._call(instruction)
            if once and (not huge or huge.isdisjoint(dying)):
                waiting[out] = text, close, dying
                continue
            if waiting:
                self._flush(lines)
            self._write(out, text, dying, lines)
            if out not in counts and (unused := [k for k in instruction.outputs if k not in counts]):
                self._del(self._let_go(unused), lines)
        self._flush(lines)
        if self._is_part and len(program.outputs) == 1:
            lines.append(f"    return {values[program.outputs[0]]}")
        else:
            outputs = "".join([f"{values[k]}, " for k in program.outputs])
            lines.append(f"    return ({outputs})" if outputs else "    return ()")
        return "\n".join(lines) + "\n"

    def _told(self) -> list[str]:
        """A line for readers: which numbers constants are."""
        program = self.program
        found = [k for k in sorted(program.constants) if program.specs[k].shape == ()]
        numbers = [f"c{k} = {program.constants[k]!s}" for k in found if hasattr(program.constants[k], "item")]
        return [f"    # {', '.join(numbers)}"] if numbers else []

    def _write(self, out: Any, text: str, dying: list[int], lines: list[str]) -> None:
        """A line for what `out` numbers; what nothing needs after it is let go of."""
        gone = self._let_go(dying) if dying else []
        target = self._target(out)
        lines.append(f"    {target} = {text}" if target else f"    {text}")
        if gone:
            given = {self._values[k] for k in instruction_outputs(out)}  # names that are in use again
            self._del([name for name in gone if name not in given], lines)

    def _del(self, names: list[str], lines: list[str]) -> None:
        if names:
            lines.append(f"    del {', '.join(names)}")

    def _let_go(self, dying: Iterable[int]) -> list[str]:
        """The names of those values that are large; where names are used again, these are free now."""
        values, free = self._values, self._free
        least = _LARGE if free is None else _LARGE_IN_LONG
        if free is not None:
            fixed = () if self._parameters is None else self.program.inputs
            free += [values[k] for k in dying if k not in fixed]
        return [values[k] for k in dying if self._is_large(k, least)]

    def _is_large(self, k: int, least: int) -> bool:
        spec = self.program.specs[k]
        size = self._sizes.get(id(spec))
        if size is None:
            size = self._sizes[id(spec)] = spec.size
        return size >= least

    def _nested(self, instruction: Instruction, dying: list[int], lines: list[str]) -> Expression:
        """A call as an expression, with those in it that wait and are evaluated last before it, in their order."""
        waiting = self._waiting
        used = [k for k in instruction.inputs if k in waiting]
        if len(used) == 1:
            nested = used if used[0] == next(reversed(waiting)) else []
        else:
            nested = list(waiting)[-len(used) :]
            while [k for k in used if k in nested] != nested:
                del nested[0]
        if len(nested) < len(used):
            for k in used:
                if k not in nested:
                    self._flush(lines, k)
        text, close = self._call(instruction)
        if not nested:
            return text, close, dying
        if len(text) > _WIDTH:
            self._flush(lines)
            return *self._call(instruction), dying
        dying = [k for k in dying if k not in nested]
        for k in nested:
            dying += waiting.pop(k)[2]
        return text, close, dying

    def _flush(self, lines: list[str], until: int | None = None) -> None:
        """Lines for what waits; only up to one of them."""
        waiting = self._waiting
        while waiting and (until is None or until in waiting):
            k = next(iter(waiting))
            text, _, dying = waiting.pop(k)
            self._write(k, text, dying, lines)

    def _hand_over(self, instruction: Instruction, dying: list[int], lines: list[str]) -> None:
        """Lines that give arrays away: what nothing needs afterwards may be updated in place."""
        given = [self._argument(arg) for arg in instruction.args]
        function = self.names.of(instruction.fn, instruction.name)
        lines.append(f"    given = [{', '.join(given)}]")
        if dying:
            lines.append(f"    del {', '.join([self._values[k] for k in dying])}")
        self._let_go(dying)
        out = self._target(instruction.out)
        lines.append(f"    {f'{out} = ' if out else ''}{function}.take_over(given)")

    def _target(self, out: Any) -> str:
        if type(out) is int:
            free = self._free
            name = self._values[out] = free.pop() if free else f"x{out}"
            return name
        if out is None:
            return "_"
        if not instruction_outputs(out):
            return ""
        return f"({', '.join([self._target(part) or '_' for part in out])},)"

    def _call(self, instruction: Instruction) -> tuple[str, int]:
        """A call as an expression, and how closely that binds."""
        fn, args, kwargs = instruction.fn, instruction.args, instruction.kwargs
        if type(fn) is BuiltinFunctionType and not kwargs:
            infix = _INFIX.get(fn)
            if infix is not None:
                symbol, close = infix
                a, b = args
                return f"{self._operand(a, close)} {symbol} {self._operand(b, close + 1)}", close
            if fn is operator.getitem:
                return f"{self._operand(args[0])}[{self._key(args[1])}]", _WHOLE
            prefix = _PREFIX.get(fn)
            if prefix is not None:
                return f"{prefix}{self._operand(args[0], _CLOSE)}", _CLOSE
        elif isinstance(fn, operator.attrgetter):
            return f"{self._operand(args[0])}.{fn.__reduce__()[1][0]}", _WHOLE
        if type(fn) is Method and type(args[0]) is Ref:
            function, args = f"{self._operand(args[0])}.{fn.__name__}", args[1:]
        else:
            function = "abs" if fn is operator.abs else self.names.of(fn, instruction.name)
        given = [self._argument(arg) for arg in args]
        if kwargs:
            given += [
                f"{name}={self._argument(value)}{' is not None' if name == 'in_place' and _is_own(value) else ''}"
                for name, value in kwargs.items()
            ]
        return f"{function}({', '.join(given)})", _WHOLE

    def _owned(self, target: Any) -> str:
        if type(target) is tuple:
            return f"({', '.join(map(self._owned, target))},)"
        if target is None:
            return "None"
        array = self._values[target.id]
        self.names.names["is_exclusive"] = self.program.backend.is_exclusive  # type: ignore[union-attr]
        return f"{array} if is_exclusive({array}, {target.references}) else None"

    def _operand(self, value: Any, close: int = _WHOLE) -> str:
        """An argument beside an operator that binds so closely."""
        if type(value) is Ref:
            k = value.id
            if k not in self._waiting:
                return self._values[k]
            text, own, _ = self._waiting[k]
            return text if own >= close and own > 1 else f"({text})"
        text = self._argument(value)
        return f"({text})" if text.startswith("-") else text

    def _key(self, key: Any) -> str:
        if type(key) is tuple and key:
            return ", ".join([self._part(part) for part in key]) + "," * (len(key) == 1)
        return self._part(key)

    def _part(self, part: Any) -> str:
        if type(part) is slice:
            start, stop, step = ["" if v is None else self._argument(v) for v in (part.start, part.stop, part.step)]
            return f"{start}:{stop}" + (f":{step}" if step else "")
        return self._argument(part)

    def _argument(self, value: Any) -> str:
        kind = type(value)
        if kind is Ref:
            k = value.id
            return self._waiting[k][0] if k in self._waiting else self._values[k]
        if kind is bool or kind is int or kind is str or value is None:
            return repr(value)
        if value is ...:
            return "..."
        if _is_own(value):
            return "own"
        if kind is float and math.isfinite(value):
            return repr(value)
        if kind is tuple:
            return f"({', '.join([self._argument(v) for v in value])}{',' * (len(value) == 1)})"
        if kind is list:
            return f"[{', '.join([self._argument(v) for v in value])}]"
        if kind is slice:
            return f"slice({', '.join([self._argument(v) for v in (value.start, value.stop, value.step)])})"
        return self.names.of(value, str(getattr(value, "name", None) or getattr(value, "__name__", kind.__name__)))


def _is_own(value: Any) -> bool:
    """Whether an argument, or a part of it, is what only a run can tell."""
    return type(value) is Own or (type(value) is tuple and any([type(part) is Own for part in value]))


def instruction_outputs(out: Any) -> list[int]:
    """The numbers in the nested tuples of what an instruction gives."""
    if type(out) is int:
        return [out]
    return [] if out is None else [k for part in out for k in instruction_outputs(part)]


def _shown(place: Place) -> str:
    text = linecache.getline(place.file, place.line).strip()
    return f"{place.file.rpartition('/')[2]}:{place.line}  {text}".rstrip()


class Uses:
    """Where the values of a program are used.

    Attributes:
        counts: how often each is, by all instructions; 0 for constants and results.
        ends: by the place of an instruction the values that none after it needs; not constants, nor results.
    """

    def __init__(self, program: Program) -> None:
        given = [instruction.inputs for instruction in program.instructions]
        self.counts = Counter(chain.from_iterable(given))
        last = {k: at for at, inputs in enumerate(given) for k in inputs}
        for k in chain(program.constants, program.outputs):
            last.pop(k, None)
            self.counts[k] = 0
        self.ends: dict[int, list[int]] = {}
        for k, at in last.items():
            self.ends.setdefault(at, []).append(k)
