"""The source of functions of Tape's, with all that they need, for a file that stands alone."""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import inspect
import operator
import re
import symtable
import sys
from collections.abc import Iterator
from functools import cache, partial
from types import FunctionType, ModuleType
from typing import Any

from tape_core.backends import DEFAULT_KERNELS, Kernels
from tape_core.support import identifier

from tape_compile.program import Program
from tape_compile.tracer.trace import AsArray
from tape_compile.tracer.traced_array import Method

_OURS = re.compile(r"tape_\w+")


class ExportError(ValueError):
    """Something that a file that stands alone cannot have."""


class Linker:
    """Collects statements: what comes first is defined first.

    Attributes:
        imports: modules.
        statements: source, in order.
    """

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.statements: list[str] = []
        self.taken: set[str] = {"xp", *dir(builtins)}
        self._names: dict[tuple[str, str], str] = {}  # by module and name there
        self._functions: dict[int, tuple[Any, str]] = {}
        self._open: set[int] = set()  # functions that are being written
        self._kernels: Kernels | None = None
        self._used_of_xp: set[str] = set()
        self._used_defaults: set[str] = set()  # of DEFAULT_KERNELS

    @staticmethod
    def libraries(program: Program) -> set[str]:
        """The packages of what a program calls, which a file may import."""
        return {str(getattr(fn, "__module__", None) or "").partition(".")[0] for fn in program.functions}

    # -- what stands for an object

    def expression(self, thing: Any, wanted: str) -> str:
        """Python source that gives a function, a dtype or a number.

        Raises:
            ExportError: there is none.
        """
        thing = getattr(thing, "unguarded", thing)  # no value is of a dtype that a guard is for
        if isinstance(thing, Method):
            return f"(lambda x, *args, **kwargs: x.{thing.__name__}(*args, **kwargs))"
        if isinstance(thing, partial):
            return self._partial(thing, wanted)
        if isinstance(thing, operator.attrgetter):
            self.imports.add("operator")
            return repr(thing)
        if isinstance(thing, Kernels):
            self._kernels = thing
            return "xp"
        if isinstance(thing, AsArray):
            array = self.expression(thing.backend.namespace.asarray, "asarray")
            return f"(lambda *args, **kwargs: {array}({self.expression(thing.function, wanted)}(*args, **kwargs)))"
        if thing is None or isinstance(thing, bool | int | str):
            return repr(thing)
        if isinstance(thing, float | complex):
            return f"{type(thing).__name__}({str(thing)!r})"
        if isinstance(thing, tuple | list | frozenset):
            parts = "".join([f"{self.expression(part, wanted)}, " for part in thing])
            kind = next(kind for kind in (tuple, list, frozenset) if isinstance(thing, kind))
            return f"{kind.__name__}(({parts}))"
        if isinstance(thing, FunctionType | type) and _is_ours(thing.__module__):
            return self._ours(thing, wanted)
        module = getattr(thing, "__module__", None) or type(thing).__module__
        for path in (getattr(thing, "__qualname__", None), getattr(thing, "__name__", None), str(thing)):
            found = _importable(module, path, thing) or _importable(module.partition(".")[0], path, thing)
            if found is not None:
                self.imports.add(found[0])
                return f"{found[0]}.{found[1]}"
        if (found := _public(thing, module.partition(".")[0])) is not None:
            self.imports.add(found[0])
            return f"{found[0]}.{found[1]}"
        if hasattr(thing, "itemsize") and module.startswith("numpy"):
            self.imports.add("numpy")
            return f"numpy.dtype({str(thing)!r})"
        raise ExportError(f"{wanted} is {thing!r}, which has no source that stands alone")

    def _partial(self, thing: Any, wanted: str) -> str:
        (kernels,) = thing.args if len(thing.args) == 1 else (None,)
        if not isinstance(kernels, Kernels) or thing.keywords:
            raise ExportError(f"{wanted} is {thing!r}, which has no source that stands alone")
        self._kernels = kernels
        self.imports.add("functools")
        return f"functools.partial({self.expression(thing.func, wanted)}, xp)"

    def _ours(self, thing: Any, wanted: str) -> str:
        if id(thing) in self._functions:
            return self._functions[id(thing)][1]
        if id(thing) in self._open:
            raise ExportError(f"{wanted} is made of itself")
        self._open.add(id(thing))
        name = self._written(thing, wanted)
        self._open.remove(id(thing))
        self._functions[id(thing)] = thing, name
        return name

    def _written(self, thing: Any, wanted: str) -> str:
        # Not the module of a function which it wraps.
        module = sys.modules[thing.__globals__["__name__"] if isinstance(thing, FunctionType) else thing.__module__]
        own = str(thing.__name__)
        if own != "<lambda>" and vars(module).get(own) is thing:
            name = self.link(module, own)
        else:
            node = _node_of(thing, module)
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = []
            assert isinstance(thing, FunctionType)
            held = _held(thing)
            if thing.__closure__:
                # Names of ops and the like, by which functions are looked up.
                constants = {name: value for name, value in held.items() if isinstance(value, str)}
                held = {name: value for name, value in held.items() if name not in constants}
                node = self._maker(list(held), _Inlined(constants).visit(node), wanted)
            if isinstance(node, ast.Lambda):
                name = self.free(wanted)
                node = ast.Assign([ast.Name(name, ast.Store())], node, lineno=1)
            else:
                name = self.free(node.name if thing.__closure__ else thing.__name__)
            self._emit(node, module, {node.name if thing.__closure__ else thing.__name__: name})
            if thing.__closure__:
                parts = [self.expression(value, f"{wanted}_part") for value in held.values()]
                made = self.free(wanted)
                self.statements.append(f"{made} = {name}({', '.join(parts)})")
                name = made
        return name

    def _maker(self, names: list[str], node: Any, wanted: str) -> ast.FunctionDef:
        """A function that makes one that holds values of where it was made."""
        if isinstance(node, ast.Lambda):
            result: list[ast.stmt] = [ast.Return(node)]
        else:
            result = [node, ast.Return(ast.Name(node.name, ast.Load()))]
        parameters = [ast.arg(name) for name in names]
        arguments = ast.arguments([], parameters, None, [], [], None, [])
        maker = ast.FunctionDef(f"_make_{wanted}", arguments, result, [], lineno=1)
        return ast.fix_missing_locations(maker)

    def free(self, wanted: str) -> str:
        """A name that nothing has yet."""
        name = identifier(wanted, "f")
        if name.startswith("__") and name.endswith("__"):  # Python looks for such names itself
            name = f"{name.strip('_')}_"
        n = 2
        found = name
        while found in self.taken:
            found, n = f"{name}_{n}", n + 1
        self.taken.add(found)
        return found

    # -- statements

    def link(self, module: ModuleType, name: str) -> str:
        """The statement that defines a name in a module of ours, with what it needs; the name it has here."""
        key = module.__name__, name
        if key in self._names:
            return self._names[key]
        for node in _tree(module).body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if (alias.asname or alias.name.partition(".")[0]) == name:
                        return self._import(key, alias.name, alias.asname)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self._import_from(key, str(node.module), alias.name)
            elif name in _defined(node):
                self._names[key] = found = self.free(name)
                self._emit(node, module, {name: found})
                return found
        raise ExportError(f"{module.__name__}.{name} is made in a way that a file that stands alone cannot have")

    def _import(self, key: tuple[str, str], module: str, name: str | None) -> str:
        found = self._names[key] = self.free(name or module)
        self.statements.append(f"import {module}" + (f" as {found}" if found != module else ""))
        return found

    def _import_from(self, key: tuple[str, str], module: str, name: str) -> str:
        target = importlib.import_module(module)
        value = getattr(target, name, None)
        if not _is_ours(module):
            found = self._names[key] = self.free(key[1])
            self.statements.append(f"from {module} import {name}" + (f" as {found}" if found != name else ""))
            return found
        if isinstance(value, ModuleType):
            raise ExportError(f"{key[0]} uses the module {value.__name__}")
        if (builtin := getattr(value, "of_raw_arrays", None)) is not None:  # a file has no others
            self._names[key] = builtin.__name__
            return self._names[key]
        owner = sys.modules.get(getattr(value, "__module__", None) or "", target)
        found = self.link(owner if name in vars(owner) else target, name)
        self._names[key] = found
        return found

    def _emit(self, node: Any, module: ModuleType, renamed: dict[str, str]) -> None:
        node = _Plain().visit(ast.parse(ast.unparse(node)).body[0])
        for part in ast.walk(node):
            if isinstance(part, ast.ImportFrom) and _is_ours(str(part.module)):
                raise ExportError(f"{module.__name__} imports {part.module} inside a function")
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "xp":
                self._used_of_xp.add(part.attr)
            if isinstance(part, ast.Subscript) and ast.unparse(part.value) == "DEFAULT_KERNELS":
                self._used_defaults.update([str(key.value) for key in [part.slice] if isinstance(key, ast.Constant)])
        node = ast.fix_missing_locations(_Resolved(self, module).visit(node))
        modules = {
            part.value.id
            for part in ast.walk(node)
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)
            and isinstance(found := vars(module).get(part.value.id), ModuleType) and _is_ours(found.__name__)
        }  # fmt: skip
        if modules:
            node = _Members(self, {name: vars(module)[name] for name in modules}).visit(node)
        names = dict(renamed)
        for name in _global_names(node, module):
            if name not in names and name not in modules:
                names[name] = self.link(module, name)
        self.statements.append(ast.unparse(ast.fix_missing_locations(_Renamed(names).visit(node))))

    def namespace(self) -> list[str]:
        """Statements that fill `xp`, the kernels that default kernels compute with."""
        done: set[str] = set()
        done_defaults: set[str] = set()
        lines: list[str] = []
        while self._kernels is not None:
            used, defaults = sorted(self._used_of_xp - done), sorted(self._used_defaults - done_defaults)
            if not used and not defaults:
                break
            done.update(used)
            done_defaults.update(defaults)
            lines += [f"xp.{name} = {self.expression(getattr(self._kernels, name), name)}" for name in used]
            for name in defaults:
                lines.append(f"DEFAULT_KERNELS[{name!r}] = {self.expression(DEFAULT_KERNELS[name], name)}")
        return lines

    @property
    def needs_namespace(self) -> bool:
        """Whether there is `xp`."""
        return self._kernels is not None


def _is_ours(module: str | None) -> bool:
    return module is not None and _OURS.fullmatch(module.partition(".")[0]) is not None


def _importable(module: str, path: str | None, thing: Any) -> tuple[str, str] | None:
    """The module and the path in it where something is to be had; private ones of a library by their public name."""
    module = {"_operator": "operator", "builtins": "builtins"}.get(module, module)
    if path is None or not re.fullmatch(r"\w+(\.\w+)*", path):
        return None
    for candidate in (module, module.partition(".")[0]):
        found: Any = sys.modules.get(candidate)
        for part in path.removeprefix(f"{candidate}.").split("."):
            found = getattr(found, part, None)
        if found is thing:
            return candidate, path.removeprefix(f"{candidate}.")
    return None


def _public(thing: Any, package: str) -> tuple[str, str] | None:
    """The module of a package that has a function by its name, and that name: it may be made in another one."""
    name = getattr(thing, "__name__", None)
    if name is None or not callable(thing):
        return None
    modules = [m for m in sorted(sys.modules) if m.partition(".")[0] == package]
    return next(((m, name) for m in modules if getattr(sys.modules[m], name, None) is thing), None)


def _held(function: FunctionType) -> dict[str, Any]:
    """What a function holds of where it was made, by name."""
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _node_of(function: FunctionType, module: ModuleType) -> Any:
    """The definition of a function that no name leads to: by its place in the file."""
    code = function.__code__
    places = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column]
    found = [
        node
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Lambda | ast.FunctionDef) and _first_line(node) == code.co_firstlineno
    ]
    # Several in a line: the one that the code's places are in, and its arguments' names.
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    found = [
        node
        for node in found
        if [arg.arg for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]] == names
        and (isinstance(node, ast.FunctionDef) or all(_within(node, *place) for place in places))
    ]
    if len(found) != 1:
        raise ExportError(f"the source of a function in {module.__name__}, line {code.co_firstlineno}, is not found")
    return copy.deepcopy(found[0])


def _within(node: Any, line: int, column: int) -> bool:
    """Whether a place, whose column is in bytes, is in a lambda."""
    return (node.lineno, node.col_offset) <= (line, column) <= (node.end_lineno, node.end_col_offset)


def _first_line(node: Any) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(min([node.lineno, *[decorator.lineno for decorator in decorators]]))


def _global_names(node: ast.AST, module: ModuleType) -> Iterator[str]:
    """The names that a statement needs of its module."""
    table = symtable.symtable(ast.unparse(ast.fix_missing_locations(node)), "statement", "exec")
    found: set[str] = set()

    def look(scope: symtable.SymbolTable) -> None:
        for symbol in scope.get_symbols():
            if symbol.is_referenced() and (symbol.is_global() or scope.get_type() == "module"):
                found.add(symbol.get_name())
        for inner in scope.get_children():
            look(inner)

    look(table)
    return (name for name in sorted(found) if name in vars(module))


class _Plain(ast.NodeTransformer):
    """Without annotations, which nothing needs, and docstrings."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        if ast.get_docstring(node) is not None and len(node.body) > 1:
            del node.body[0]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        if ast.get_docstring(node) is not None and len(node.body) > 1:
            del node.body[0]
        # The fields of a named tuple are annotations.
        node.body = [part if isinstance(part, ast.AnnAssign) else self.visit(part) for part in node.body]
        for part in node.body:
            if isinstance(part, ast.AnnAssign):
                part.annotation = ast.Name("object", ast.Load())
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _Inlined(ast.NodeTransformer):
    """With constants in the place of names, which nothing is assigned to."""

    def __init__(self, constants: dict[str, str]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.constants.get(node.id)
        return node if found is None else ast.copy_location(ast.Constant(found), node)


class _Resolved(ast.NodeTransformer):
    """With the function itself for what finds one by constants: an entry of a table, a function that has `resolve`."""

    def __init__(self, linker: Linker, module: ModuleType) -> None:
        self.linker = linker
        self.module = module

    def _value(self, node: ast.expr) -> Any:
        """What a name, or a member of a module of ours, is."""
        if isinstance(node, ast.Name):
            return vars(self.module).get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            if isinstance(owner, ModuleType) and _is_ours(owner.__name__):
                return vars(owner).get(node.attr)
        return None

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        table = self._value(node.value)
        if isinstance(table, dict) and table is not DEFAULT_KERNELS and isinstance(node.slice, ast.Constant):
            found = table.get(node.slice.value)
            if isinstance(found, FunctionType):
                return self._expression(found, str(node.slice.value))
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        resolve = getattr(self._value(node.func), "resolve", None)
        if resolve is None:
            return node
        n = resolve.__code__.co_argcount
        names = [arg.value for arg in node.args[:n] if isinstance(arg, ast.Constant)]
        if len(names) < n:
            return node
        found = self._expression(resolve(*names), str(names[0]))
        return ast.Call(found, node.args[n:], node.keywords) if node.args[n:] else found

    def _expression(self, thing: Any, wanted: str) -> ast.expr:
        return ast.parse(self.linker.expression(thing, wanted), mode="eval").body


class _Members(ast.NodeTransformer):
    """With the names that members of our modules have here."""

    def __init__(self, linker: Linker, modules: dict[str, Any]) -> None:
        self.linker = linker
        self.modules = modules

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            module = self.modules[node.value.id]
            value = getattr(module, node.attr)
            owner = sys.modules.get(getattr(value, "__module__", None) or "", module)
            return ast.Name(self.linker.link(owner if node.attr in vars(owner) else module, node.attr), ast.Load())
        return node


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.name = self.names.get(node.name, node.name)
        return node

    visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]
