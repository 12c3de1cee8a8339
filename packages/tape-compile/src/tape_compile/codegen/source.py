"""A program as one Python function: a line for each instruction, below a comment with the user's line.

A call whose result is used once stands in the expression that uses it, so that the array is freed as in the user's own
code. Large arrays are deleted after their last use.

The function is compiled from a syntax tree, not from text, which could be read otherwise than it was meant. The text,
for those who look at it, is made of the same tree by `ast.unparse`.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, count
from types import BuiltinFunctionType, EllipsisType
from typing import Any, TypeVar

from tape_core.support import Lines, generated, identifier, one_line

from tape_compile import printing as _printing  # noqa: F401 - gives programs their text
from tape_compile import thresholds
from tape_compile.codegen.outlining import outline
from tape_compile.failures import SOURCE
from tape_compile.program import Argument, IfExclusive, Instruction, Place, Program, Ref, source_line
from tape_compile.tracer.traced_array import Method

N = TypeVar("N", bound=ast.AST)

_INFIX: dict[Any, ast.operator] = {
    operator.add: ast.Add(), operator.sub: ast.Sub(), operator.mul: ast.Mult(), operator.truediv: ast.Div(),
    operator.floordiv: ast.FloorDiv(), operator.mod: ast.Mod(), operator.matmul: ast.MatMult(),
    operator.pow: ast.Pow(), operator.and_: ast.BitAnd(), operator.or_: ast.BitOr(), operator.xor: ast.BitXor(),
    operator.lshift: ast.LShift(), operator.rshift: ast.RShift(),
}  # fmt: skip
_COMPARED: dict[Any, ast.cmpop] = {
    operator.lt: ast.Lt(), operator.le: ast.LtE(), operator.gt: ast.Gt(), operator.ge: ast.GtE(),
    operator.eq: ast.Eq(), operator.ne: ast.NotEq(),
}  # fmt: skip
_PREFIX: dict[Any, ast.unaryop] = {
    operator.neg: ast.USub(), operator.pos: ast.UAdd(), operator.invert: ast.Invert(),
}  # fmt: skip
_BUILTINS = frozenset({"abs", "slice"})  # Python's own functions that the source calls
_LOAD, _STORE, _DEL, _MINUS, _IS_NOT = ast.Load(), ast.Store(), ast.Del(), ast.USub(), ast.IsNot()
# The names that generated code gives by itself: values x0, constants c0, and its own variables.
_RESERVED = re.compile(r"[xc]\d+|arrays|given|own|is_exclusive|_")

_files = count()

Constant = bool | int | float | str | EllipsisType | None

Expression = tuple[ast.expr, list[Any], int]
"""A call in the source, the nodes that it is made of, and about how many characters it has."""


class Source:
    """A program as Python source, and compiled.

    Args:
        program: the program.
        name: the name of the function, if the source has no other use for that.
        parameters: names for the program's inputs, each of which is a parameter then.

    Attributes:
        name: of the function in the source.
        functions: its name and those of outlined functions, which it calls.
        names: the objects that the source refers to, by name: its globals.
        run: the function: it takes the list of the program's inputs, which it empties, and returns a tuple.
    """

    def __init__(self, program: Program, name: str, parameters: list[str] | None = None) -> None:
        self.program = program
        # The weak reference leads an error back to this object (failures.py); a strong one would be a cycle, and keep
        # constants alive until a collection.
        self.names: dict[str, Any] = {"__name__": __name__, SOURCE: weakref.ref(self)}
        self.names.update({f"c{k}": constant for k, constant in program.constants.items()})
        names = self._names = _Names(self.names, {*_BUILTINS, *(parameters or ())}, alone=parameters is not None)
        self.name = name if parameters is not None else names.free(name)
        names.taken.add(self.name)
        whole, made = outline(program)
        self.functions = {self.name}
        self._programs: list[tuple[Program, str, list[str] | None, bool]] = []
        for part in made:
            own = names.free(f"{self.name}_part")
            names.give(part, own)
            self.functions.add(own)
            self._programs.append((part, own, [f"x{k}" for k in part.inputs], True))
        self._programs.append((whole, self.name, parameters, False))
        file = f"<tape_core: {one_line(name)} compiled, {next(_files)}>"
        self.run: Callable[[list[Any]], tuple[Any, ...]] = generated(
            self.tree(), self.name, file, self.names, Lines(self, "joined")
        )

    # Text and marked trees are wanted seldom: they are written again each time, and take no memory meanwhile.
    def _write(self, *, is_marked: bool = False, is_shown: bool = False) -> list[_Function]:
        """Return the definitions of all functions, outlined ones first; the text is the same each time."""
        found: list[_Function] = []
        line = 1
        for program, name, parameters, is_part in self._programs:
            made = _Function(program, name, self._names, parameters, is_part=is_part, first=line, is_marked=is_marked,
                             is_shown=is_shown)  # fmt: skip
            line = made.line + 2
            found.append(made)
        return found

    def tree(self, *, is_marked: bool = False) -> ast.Module:
        """Return the syntax tree. In one that `is_marked`, columns are the indices of instructions in their program."""
        return ast.Module([function.node for function in self._write(is_marked=is_marked)], [])

    def program_of(self, function: str) -> Program | None:
        """Return the program of the function of this name."""
        return next((program for program, name, _, _ in self._programs if name == function), None)

    @property
    def text(self) -> str:
        """The source of the function, without those that it calls."""
        return self._write(is_shown=True)[-1].text

    @property
    def parts(self) -> list[str]:
        """The sources of outlined functions."""
        return [function.text for function in self._write(is_shown=True)[:-1]]

    @property
    def joined(self) -> str:
        """The source of the function, after those of outlined ones."""
        return "\n".join([function.text for function in self._write(is_shown=True)])

    @property
    def whole(self) -> str:
        """The source, after those of the branches and loops in it."""
        parts = [part for instruction in self.program.instructions for part in getattr(instruction.fn, "parts", ())]
        return "\n".join([*[part.source.whole for part in parts], self.joined])


class _Names:
    """Names in the source for objects without a literal, functions above all.

    Args:
        names: the globals, to which they are added; taken: names that are none.
        alone: whether the source is written to a file, where other code uses Python's builtins by their names.
    """

    def __init__(self, names: dict[str, Any], taken: set[str], *, alone: bool) -> None:
        self.names = names
        self.taken = taken
        self.alone = alone
        self._named: dict[int, str] = {}  # by what the name is of
        self._keep: list[Any] = []

    def of(self, thing: object, wanted: str) -> str:
        """Return the name of an object, or a new one like the one that is wanted."""
        name = self._named.get(id(thing))
        if name is None:
            name = self.free(wanted)
            self.give(thing, name)
            self.names[name] = thing
        return name

    def give(self, thing: object, name: str) -> None:
        """Let an object have a name."""
        self._named[id(thing)] = name
        self._keep.append(thing)  # `_named` has its id
        self.taken.add(name)

    def free(self, wanted: str) -> str:
        """Return a name that is not taken."""
        wanted = identifier(wanted.strip("_"), "f")
        if _RESERVED.fullmatch(wanted):
            wanted = f"{wanted}_"
        name, n = wanted, 2
        while name in self.names or name in self.taken or (self.alone and hasattr(builtins, name)):
            name, n = f"{wanted}_{n}", n + 1
        return name


class _Function:
    """One function of the source.

    Args:
        program: its program.
        name: its name; parameters: those of its parameters, None for one list of arrays.
        names: for objects that it refers to.
        is_part: whether it is outlined: a single result is returned without a tuple then.
        first: its first line.
        is_marked: whether columns are the indices of instructions; is_shown: whether the text is wanted.

    Attributes:
        node: its definition, with the lines that it has in the text.
        text: its source, if it is to be shown.
        line: its last line.
    """

    def __init__(
        self,
        program: Program,
        name: str,
        names: _Names,
        parameters: list[str] | None,
        *,
        is_part: bool,
        first: int,
        is_marked: bool,
        is_shown: bool,
    ) -> None:
        self.program = program
        self._is_part = is_part
        self._is_marked = is_marked
        self._is_shown = is_shown
        self._at = 0  # the index of the instruction that is being written
        self.names = names
        # Results that are used once, as expressions, in order, each with the values that it is the last to use.
        self._waiting: dict[int, tuple[Expression, list[int]]] = {}
        recycles = len(program.instructions) > thresholds.RECYCLE_NAMES_MIN_PROGRAM
        self._free: list[str] | None = [] if recycles else None  # names to be used again
        self._sizes: dict[int, int] = {}  # by specs, of which many values share one
        self._values = {k: f"c{k}" for k in program.constants}
        self._parameters = parameters
        for k, given in zip(program.inputs, parameters or [f"x{k}" for k in program.inputs], strict=True):
            self._values[k] = given
        self._nodes: list[Any] = []  # nodes that have no line yet
        self._loads: dict[int, ast.expr] = {}  # names of values
        self._functions: dict[int, ast.Name] = {}
        self._width = 0  # characters of the expression that is being made
        self._lines: list[str] = []
        self._body: list[ast.stmt] = []
        self.line = first
        self._write_body()
        inputs = [self._values[k] for k in program.inputs] if parameters is not None else ["arrays"]
        self.node = _definition(name, inputs, self._body, first)
        self.text = "\n".join([f"def {name}({', '.join(inputs)}):", *self._lines]) + "\n" if is_shown else ""

    # -- lines

    def _write_body(self) -> None:
        program, waiting, values = self.program, self._waiting, self._values
        uses = Uses(program)
        huge = (
            {k for k in program.specs if self._is_large(k, thresholds.DELETE_AT_ONCE_MIN_ELEMENTS)}
            if program.largest >= thresholds.DELETE_AT_ONCE_MIN_ELEMENTS
            else None
        )
        counts, ends = uses.counts, uses.ends
        inputs = [values[k] for k in program.inputs]
        if inputs and self._parameters is None:
            self._assign(self._tuple([self._stored(name) for name in inputs], _STORE), self._named("arrays"))
            # The caller's list would keep every input alive until the function returns: none could be freed, or
            # overwritten, before.
            self._call_alone(self._calling(self._attribute(self._named("arrays"), "clear"), []))
            self._comment_on_constants()
        place: Place | None = None
        for at, instruction in enumerate(program.instructions):
            if instruction.place is not place and instruction.place is not None:
                # No expression goes beyond a line of the user's: the comment above a line is true of all of it.
                self._flush()
                place = instruction.place
                self._comment(lambda place=place: source_line(place))  # type: ignore[misc]
            self._at = at
            out, dying = instruction.out, ends.get(at, [])
            if instruction.effect and hasattr(instruction.fn, "take_over"):
                self._flush()
                self._hand_over(instruction, dying)
                continue
            # Out of order, nested in a later line, is only what nobody can tell from in order.
            # A value may wait for the line that uses it: see `_nested` for when it may stand there.
            once = counts.get(out) == 1 and not instruction.effect
            if instruction.kwargs:
                targets = [given for given in instruction.kwargs.values() if _is_if_exclusive(given)]
                if targets:
                    # The references are counted before the call, which adds some, and after lines that make views.
                    self._flush()
                    self._assign(self._stored("own"), self._if_exclusive(targets[0]))
                    once = False
            if waiting and not waiting.keys().isdisjoint(instruction.inputs):
                if huge and instruction.fn is operator.mul and self._may_be_swapped(instruction.args[1]):
                    self._flush(instruction.args[1].id)
                made, dying = self._nested(instruction, dying)
            else:
                made = self._call(instruction)
            # A nested operand ends only with the whole line: where a huge one dies, a line of its own frees it at
            # once.
            if once and (not huge or huge.isdisjoint(dying)):
                waiting[out] = made, dying
                continue
            if waiting:
                self._flush()
            self._write(out, made, dying)
            if out not in counts and (unused := [k for k in instruction.outputs if k not in counts]):
                # A call may be kept for an effect or a check: its unused results must not live until the function
                # returns.
                self._del(self._free_names(unused))
        self._flush()
        if self._is_part and len(program.outputs) == 1:
            result = self._named(values[program.outputs[0]])
        else:
            result = self._tuple([self._named(values[k]) for k in program.outputs])
        self._add(ast.Return(result))

    def _add(self, statement: ast.stmt) -> None:
        """Append a line, of a statement with all nodes that have no line yet."""
        line = self.line = self.line + 1
        nodes = self._nodes
        nodes.append(statement)
        # Python keeps columns with the code: by them failures.py finds the instruction that has raised.
        if self._is_marked:
            for node in nodes:
                node.lineno = node.end_lineno = line
                node.col_offset = node.end_col_offset = node.__dict__.get("col_offset", self._at)
        else:
            for node in nodes:
                node.lineno = line
                node.col_offset = -1  # errors are located by lines alone
        self._nodes = []
        self._body.append(statement)
        if self._is_shown:
            self._lines.append(f"    {ast.unparse(statement)}")

    def _comment(self, text: Callable[[], str]) -> None:
        self.line += 1
        if self._is_shown:
            self._lines.append(f"    # {text()}")

    def _comment_on_constants(self) -> None:
        """Append a comment with the values of constants of shape ()."""
        program = self.program
        found = [k for k, value in program.constants.items() if program.specs[k].shape == () and hasattr(value, "item")]
        if found:
            self._comment(lambda: one_line(", ".join([f"c{k} = {program.constants[k]!s}" for k in sorted(found)])))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        self._add(ast.Assign([target], value))

    def _call_alone(self, call: ast.expr) -> None:
        self._add(ast.Expr(call))

    def _write(self, out: Any, made: Expression, dying: list[int]) -> None:
        """Append a line that assigns to results, and one that deletes large arrays that nothing needs after it."""
        # Names are freed before the target gets one: it may be that of an operand, which is then not deleted.
        gone = self._free_names(dying) if dying else []
        value, self._nodes, _ = made
        target = self._target(out)
        if target is None:
            self._call_alone(value)
        else:
            self._assign(target, value)
        if gone:
            given = {self._values[k] for k in out_numbers(out)}  # names that the line has used again
            self._del([name for name in gone if name not in given])

    def _del(self, names: list[str]) -> None:
        if names:
            self._add(ast.Delete([_nowhere(ast.Name(name, _DEL)) for name in names]))

    def _free_names(self, dying: Iterable[int]) -> list[str]:
        """Free the names of values where names are used again, and return those of large ones, to be deleted."""
        values, free = self._values, self._free
        least = thresholds.DELETE_MIN_ELEMENTS if free is None else thresholds.DELETE_MIN_ELEMENTS_RECYCLED
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

    def _may_be_swapped(self, factor: Argument) -> bool:
        """Return whether the second factor of a product needs a name, without which NumPy may swap the two."""
        # NumPy computes `a * temporary` in the memory of a large temporary, as `temporary *= a`. The last bits of a
        # complex product depend on the order of the factors where processors multiply and add in one instruction.
        if (
            type(factor) is not Ref
            or factor.id not in self._waiting
            or not self._is_large(factor.id, thresholds.SWAPPED_MIN_ELEMENTS)
        ):
            return False
        return "complex" in str(self.program.specs[factor.id].dtype)

    def _nested(self, instruction: Instruction, dying: list[int]) -> tuple[Expression, list[int]]:
        """Return a call as an expression, with calls that wait nested in it if the order of evaluation stays the same.

        Python evaluates operands from left to right, so these must be the last that wait, in the order of the
        arguments.
        """
        waiting = self._waiting
        used = [k for k in instruction.inputs if k in waiting]
        if len(used) == 1:
            nested = used if used[0] == next(reversed(waiting)) else []
        else:
            # The longest end of what waits that this call uses in the same order; any other operand gets a line before
            # it.
            nested = list(waiting)[-len(used) :]
            while [k for k in used if k in nested] != nested:
                del nested[0]
        if len(nested) < len(used):
            for k in used:
                if k not in nested:
                    self._flush(k)
        made = self._call(instruction)
        if not nested:
            return made, dying
        if made[2] > thresholds.NEST_MAX_WIDTH:
            # Too wide: the operands get names, and the call is made again of these.
            self._flush()
            return self._call(instruction), dying
        dying = [k for k in dying if k not in nested]
        # The values that an operand is the last to use end with the whole expression.
        for k in nested:
            dying += waiting.pop(k)[1]
        return made, dying

    def _flush(self, until: int | None = None) -> None:
        """Append lines for expressions that wait: for all, or for those up to one."""
        waiting = self._waiting
        while waiting and (until is None or until in waiting):
            k = next(iter(waiting))
            made, dying = waiting.pop(k)
            self._write(k, made, dying)

    def _hand_over(self, instruction: Instruction, dying: list[int]) -> None:
        """Append lines that pass arrays to an effect in a list that it empties, so that nobody else refers to them.

        It may update them in place then.
        """
        given = ast.List([self._argument(arg) for arg in instruction.args], _LOAD)
        self._assign(self._stored("given"), self._made(given))
        self._del([self._values[k] for k in dying])
        self._free_names(dying)
        function = self._named(self.names.of(instruction.fn, instruction.name))
        call = self._calling(self._attribute(function, "take_over"), [self._named("given")])
        target = self._target(instruction.out)
        if target is None:
            self._call_alone(call)
        else:
            self._assign(target, call)

    def _target(self, out: Any) -> ast.expr | None:
        if type(out) is int:
            free = self._free
            name = self._values[out] = free.pop() if free else f"x{out}"
            return self._stored(name)
        if out is None:
            return self._stored("_")
        if not out_numbers(out):
            return None
        return self._tuple([self._target(part) or self._stored("_") for part in out], _STORE)

    # -- expressions

    def _made(self, node: N, width: int = 0) -> N:
        """Return a node that gets its line with the statement that it is in."""
        self._nodes.append(node)
        self._width += width
        return node

    def _named(self, name: str) -> ast.expr:
        self._width += len(name)
        return _nowhere(ast.Name(name, _LOAD))

    def _stored(self, name: str) -> ast.expr:
        return _nowhere(ast.Name(name, _STORE))

    def _tuple(self, parts: list[ast.expr], context: ast.expr_context = _LOAD) -> ast.expr:
        return self._made(ast.Tuple(parts, context), 2 * len(parts))

    def _attribute(self, of: ast.expr, name: str) -> ast.expr:
        return self._made(ast.Attribute(of, name, _LOAD), len(name) + 1)

    def _calling(self, function: ast.expr, args: list[ast.expr], keywords: Iterable[ast.keyword] = ()) -> ast.expr:
        return self._made(ast.Call(function, args, [*keywords]), 2 * len(args) + 2)

    def _constant(self, value: Constant) -> ast.expr:
        """Return a literal; that of a negative number is a sign and a number, in the tree as when text is read."""
        if (type(value) is int and value < 0) or (type(value) is float and math.copysign(1, value) < 0):
            return self._made(ast.UnaryOp(_MINUS, self._constant(-value)))
        self._width += len(repr(value))
        return _nowhere(ast.Constant(value))

    def _call(self, instruction: Instruction) -> Expression:
        """Return a call as an expression."""
        # The nodes are kept with the expression: they get a line when its statement is written, which may be later.
        nodes: list[Any] = []
        self._nodes = nodes
        self._width = 4
        fn, args, argument = instruction.fn, instruction.args, self._argument
        node: Any
        if type(fn) is BuiltinFunctionType and not instruction.kwargs:
            if (infix := _INFIX.get(fn)) is not None:
                node = ast.BinOp(argument(args[0]), infix, argument(args[1]))
            elif fn is operator.getitem:
                node = ast.Subscript(argument(args[0]), self._key(args[1]), _LOAD)
            elif fn in _PREFIX:
                node = ast.UnaryOp(_PREFIX[fn], argument(args[0]))
            elif fn in _COMPARED:
                node = ast.Compare(argument(args[0]), [_COMPARED[fn]], [argument(args[1])])
            else:
                node = self._called(instruction)
        elif isinstance(fn, operator.attrgetter):
            node = argument(args[0])
            # An attrgetter does not tell its names in another way.
            for name in fn.__reduce__()[1][0].split("."):
                node = self._attribute(node, name)
        else:
            node = self._called(instruction)
        nodes.append(node)
        if self._is_marked:
            for part in nodes:
                # The nodes of an operand have the index of their own instruction already.
                part.__dict__.setdefault("col_offset", self._at)
        return node, nodes, self._width

    def _called(self, instruction: Instruction) -> ast.expr:
        fn, args, kwargs = instruction.fn, instruction.args, instruction.kwargs
        function: Any
        if type(fn) is Method and type(args[0]) is Ref:
            function, args = self._attribute(self._argument(args[0]), fn.__name__), args[1:]
        else:
            function = self._functions.get(id(fn))
            if function is None:
                name = "abs" if fn is operator.abs else self.names.of(fn, instruction.name)
                function = self._functions[id(fn)] = _nowhere(ast.Name(name, _LOAD))
            self._width += len(function.id)
        given = [self._argument(arg) for arg in args]
        return ast.Call(function, given, [self._keyword(*item) for item in kwargs.items()] if kwargs else [])

    def _keyword(self, name: str, value: Argument) -> ast.keyword:
        self._width += len(name) + 3
        given = self._argument(value)
        if name == "in_place" and _is_if_exclusive(value):
            # `own` is the array or None, and this parameter is a bool.
            given = self._made(ast.Compare(given, [_IS_NOT], [self._constant(None)]))
        if identifier(name, "") != name:
            # Only `**{...}` passes a name that is none of Python's.
            return self._made(ast.keyword(None, self._made(ast.Dict([self._constant(name)], [given]))))
        return self._made(ast.keyword(name, given))

    def _if_exclusive(self, target: Any) -> ast.expr:
        """Return an array that a call may overwrite, if nobody else refers to it, else None."""
        if type(target) is tuple:
            return self._tuple([self._if_exclusive(part) for part in target])
        if type(target) is not IfExclusive:  # a value that nobody else can refer to, or None
            return self._argument(target)
        name = self._values[target.id]
        self.names.names["is_exclusive"] = self.program.backend.is_exclusive  # type: ignore[union-attr]
        arguments = [self._named(name), self._constant(target.references)]
        test = self._calling(self._named("is_exclusive"), arguments)
        return self._made(ast.IfExp(test, self._named(name), self._constant(None)))

    def _key(self, key: Any) -> ast.expr:
        return self._tuple([self._part(part) for part in key]) if type(key) is tuple and key else self._part(key)

    def _part(self, part: Any) -> ast.expr:
        if type(part) is slice:
            ends = [None if v is None else self._argument(v) for v in (part.start, part.stop, part.step)]
            return self._made(ast.Slice(*ends), 1)
        return self._argument(part)

    def _argument(self, value: Any) -> ast.expr:
        kind = type(value)
        if kind is Ref:
            k = value.id
            waits = self._waiting.get(k)
            if waits is not None:
                node, nodes, width = waits[0]
                self._nodes += nodes
                self._width += width
                return node
            self._width += 4
            known = self._loads.get(k)
            if known is None:
                known = self._loads[k] = _nowhere(ast.Name(self._values[k], _LOAD))
            return known
        if kind is bool or kind is int or kind is str or value is None or value is ...:
            return self._constant(value)
        if _is_if_exclusive(value):
            return self._named("own")
        # Infinities and NaN have no literals: they get names, as other objects do.
        if kind is float and math.isfinite(value):
            return self._constant(value)
        if kind is tuple:
            return self._tuple([self._argument(v) for v in value])
        if kind is list:
            return self._made(ast.List([self._argument(v) for v in value], _LOAD), 2 * len(value))
        if kind is slice:
            ends = [self._argument(v) for v in (value.start, value.stop, value.step)]
            return self._calling(self._named("slice"), ends)
        wanted = str(getattr(value, "name", None) or getattr(value, "__name__", kind.__name__))
        return self._named(self.names.of(value, wanted))


def _nowhere(node: N) -> N:
    """Return a name or a literal without a place: it cannot fail, and may be part of several expressions."""
    place: Any = node  # not all kinds of nodes have one
    place.lineno = place.col_offset = -1
    return node


_ANY: Any = ast.parse("def f(): pass").body[0]  # it has the fields of this version of Python


def _definition(name: str, inputs: list[str], body: list[ast.stmt], line: int) -> ast.FunctionDef:
    given = ast.arguments(**{field: getattr(_ANY.args, field) for field in _ANY.args._fields})
    given.args = [ast.arg(name, lineno=line, col_offset=0) for name in inputs]
    fields = {field: getattr(_ANY, field) for field in _ANY._fields}
    fields |= {"name": name, "args": given, "body": body}
    return ast.FunctionDef(**fields, lineno=line, col_offset=0)


def _is_if_exclusive(value: Any) -> bool:
    """Return whether an argument, or a part of it, is an array that may be overwritten if nobody else refers to it."""
    return type(value) is IfExclusive or (type(value) is tuple and any([type(part) is IfExclusive for part in value]))


def out_numbers(out: Any) -> list[int]:
    """Return the numbers in the nested tuples of results."""
    if type(out) is int:
        return [out]
    return [] if out is None else [k for part in out for k in out_numbers(part)]


class Uses:
    """The uses of a program's values.

    Attributes:
        counts: by value the number of its uses as an argument; 0 for constants and results.
        ends: by the index of an instruction the values that it is the last to use; no constants, no results.
    """

    def __init__(self, program: Program) -> None:
        given = [instruction.inputs for instruction in program.instructions]
        self.counts = Counter(chain.from_iterable(given))
        last = {k: at for at, inputs in enumerate(given) for k in inputs}
        for k in chain(program.constants, program.outputs):
            # A count of 0 is not 1, so these never wait to be nested: they have names, and the callers keep them.
            last.pop(k, None)
            self.counts[k] = 0
        self.ends: dict[int, list[int]] = {}
        for k, at in last.items():
            self.ends.setdefault(at, []).append(k)
