"""The linker of exported files: the source of Tape's own functions, with all definitions that they need.

A function is found in the syntax tree of its module, and so are the names that it refers to, in turn. Annotations and
docstrings are dropped, lookups by constants are replaced by what they find, and names are changed where two modules use
the same one. What cannot be had that way, as a function that imports inside, is an ExportError.
"""

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
from types import FunctionType, MethodType, ModuleType
from typing import Any

from tape_core.backends import DEFAULT_KERNELS, Backend, Kernels
from tape_core.support import identifier

from tape_compile.program import Program
from tape_compile.tracer.trace import AsArray
from tape_compile.tracer.traced_array import Method

_OURS = re.compile(r"tape_\w+")


class ExportError(ValueError):
    """A function cannot be exported, as it depends on something that a file cannot contain."""


class Linker:
    """The statements of a file.

    Attributes:
        imports: the names of modules that it imports.
        statements: definitions as source, in order: each after those that it needs.
        taken: names that are in use.
    """

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.statements: list[str] = []
        self.taken: set[str] = {"xp", *dir(builtins)}
        self._names: dict[tuple[str, str], str] = {}  # by module and name in it the name in the file
        self._functions: dict[int, tuple[Any, str]] = {}  # by id an object, which it keeps alive, and its name
        self._open: set[int] = set()  # functions that are being written
        self._kernels: Kernels | None = None
        self._used_of_xp: set[str] = set()
        self._used_defaults: set[str] = set()  # of DEFAULT_KERNELS

    @staticmethod
    def libraries(program: Program) -> set[str]:
        """Return the packages of the functions that a program calls: their names are taken."""
        return {str(getattr(fn, "__module__", None) or "").partition(".")[0] for fn in program.functions}

    # -- expressions for objects

    def expression(self, thing: Any, wanted: str) -> str:
        """Return an expression for a function, a dtype or a number; `wanted` is a name that suits it.

        Raises:
            ExportError: there is none.
        """
        thing = getattr(thing, "unguarded", thing)  # `export` has refused dtypes that need the guard
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
        if isinstance(thing, MethodType) and isinstance(thing.__self__, Backend) and thing.__name__ == "asarray":
            return self._asarray(thing.__self__)
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
        # Modules and names that objects tell are often wrong: one counts if looking it up gives this very object.
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

    def _asarray(self, backend: Backend) -> str:
        """Return an expression for the library's function that makes arrays of numbers, on a device by its name."""
        library = backend.namespace.__name__.removeprefix("array_api_compat.")  # a file needs PyTorch alone
        found = self.expression(importlib.import_module(library).asarray, "asarray")
        if library in ("numpy", "torch"):
            return found
        # Others have objects for devices, and put a number where it meets arrays.
        return f"(lambda x, dtype=None, device=None, copy=None: {found}(x, dtype=dtype, copy=copy))"

    def _partial(self, thing: partial[Any], wanted: str) -> str:
        """Return an expression for a default kernel, which is given the namespace of kernels."""
        (kernels,) = thing.args if len(thing.args) == 1 else (None,)
        if not isinstance(kernels, Kernels) or thing.keywords:
            raise ExportError(f"{wanted} is {thing!r}, which has no source that stands alone")
        self._kernels = kernels
        self.imports.add("functools")
        return f"functools.partial({self.expression(thing.func, wanted)}, xp)"

    def _ours(self, thing: FunctionType | type, wanted: str) -> str:
        """Return the name of a function or class of Tape's, which is defined once."""
        if id(thing) in self._functions:
            return self._functions[id(thing)][1]
        if id(thing) in self._open:
            raise ExportError(f"{wanted} is made of itself")
        self._open.add(id(thing))
        name = self._define(thing, wanted)
        self._open.remove(id(thing))
        self._functions[id(thing)] = thing, name
        return name

    def _define(self, thing: FunctionType | type, wanted: str) -> str:
        # By `__globals__`: `functools.wraps` has changed `__module__` to that of the function inside.
        module = sys.modules[thing.__globals__["__name__"] if isinstance(thing, FunctionType) else thing.__module__]
        own = str(thing.__name__)
        # At the top of its module it is linked by name; a lambda or an inner function is found by its place in the
        # file.
        if own != "<lambda>" and vars(module).get(own) is thing:
            name = self.link(module, own)
        else:
            assert isinstance(thing, FunctionType)  # classes have names
            node = _node_of(thing, module)
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = []
            held = _closure(thing)
            if thing.__closure__:
                # Strings are names of ops by which functions are looked up: as constants they can be resolved.
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
                # What was in the closure is passed to a function around it, as it came there in the first place.
                parts = [self.expression(value, f"{wanted}_part") for value in held.values()]
                made = self.free(wanted)
                self.statements.append(f"{made} = {name}({', '.join(parts)})")
                name = made
        return name

    def _maker(self, names: list[str], node: ast.Lambda | ast.FunctionDef, wanted: str) -> ast.FunctionDef:
        """Return a function of the values in a closure that returns the function with that closure."""
        if isinstance(node, ast.Lambda):
            result: list[ast.stmt] = [ast.Return(node)]
        else:
            result = [node, ast.Return(ast.Name(node.name, ast.Load()))]
        parameters = [ast.arg(name) for name in names]
        arguments = ast.arguments([], parameters, None, [], [], None, [])
        maker = ast.FunctionDef(f"_make_{wanted}", arguments, result, [], lineno=1)
        return ast.fix_missing_locations(maker)

    def free(self, wanted: str) -> str:
        """Return a name that is not taken, like the one that is wanted; it is taken then."""
        name = identifier(wanted, "f")
        if name.startswith("__") and name.endswith("__"):  # such names have a meaning in Python
            name = f"{name.strip('_')}_"
        n = 2
        found = name
        while found in self.taken:
            found, n = f"{name}_{n}", n + 1
        self.taken.add(found)
        return found

    # -- statements

    def link(self, module: ModuleType, name: str) -> str:
        """Define what a module of Tape's has under a name, with all that it needs, and return the name in the file."""
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
                # Known before its statement is written, in which it may occur: functions may call themselves, and each
                # other.
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
        if (
            builtin := getattr(value, "of_raw_arrays", None)
        ) is not None:  # a function that differs from the builtin for Tensors alone
            self._names[key] = builtin.__name__
            return self._names[key]
        owner = sys.modules.get(getattr(value, "__module__", None) or "", target)
        found = self.link(owner if name in vars(owner) else target, name)
        self._names[key] = found
        return found

    def _emit(self, node: ast.stmt, module: ModuleType, renamed: dict[str, str]) -> None:
        """Append a statement of a module, with names as they are in the file, after those that it needs."""
        node = _Plain().visit(ast.parse(ast.unparse(node)).body[0])  # a copy: trees of modules are cached
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and not node.value.keys:
            table = vars(module)[ast.unparse(node.targets[0])]
            # Of constants, such as dtypes; those of ops and kernels are for lookups, which have been resolved.
            if not any([callable(value) or _is_ours(type(value).__module__) for value in table.values()]):
                self.statements.append(self._filled(table, *renamed.values()))
                return
        # What it takes of `xp` is noted for `namespace`, which comes after all functions.
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

    def _filled(self, table: dict[Any, Any], name: str) -> str:
        """Return the statement of a table that a module fills after its definition: with what it holds now."""
        entries = [f"{self.expression(key, name)}: {self.expression(value, name)}" for key, value in table.items()]
        return f"{name} = {{{', '.join(entries)}}}"

    def namespace(self) -> list[str]:
        """Return statements that put into `xp` the kernels that linked functions use, which may use others."""
        done: set[str] = set()
        done_defaults: set[str] = set()
        lines: list[str] = []
        # Until nothing is new: the function of a kernel may use further kernels.
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
        """Return whether linked functions use `xp`."""
        return self._kernels is not None


def _is_ours(module: str | None) -> bool:
    return module is not None and _OURS.fullmatch(module.partition(".")[0]) is not None


def _importable(module: str, path: str | None, thing: object) -> tuple[str, str] | None:
    """Return the module, or its package, and the path in it that lead to an object; None where they lead elsewhere."""
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


def _public(thing: object, package: str) -> tuple[str, str] | None:
    """Return a module that has the function under a public name, and the name; another one may define it."""
    name = getattr(thing, "__name__", None)
    if name is None or not callable(thing):
        return None
    modules = [m for m in sorted(sys.modules) if m.partition(".")[0] == package]
    return next(((m, name) for m in modules if getattr(sys.modules[m], name, None) is thing), None)


def _closure(function: FunctionType) -> dict[str, Any]:
    """Return the values in a function's closure, by name."""
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
    """Return the definition of a function that has no name in its module, by its place in the file."""
    code = function.__code__
    places = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column]
    found = [
        node
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Lambda | ast.FunctionDef) and _first_line(node) == code.co_firstlineno
    ]
    # Of several that begin in one line it is the one with the code's positions in it, and the code's arguments.
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


def _within(node: ast.Lambda, line: int, column: int) -> bool:
    """Return whether a position, whose column is in bytes as those of nodes are, is in a lambda."""
    return (node.lineno, node.col_offset) <= (line, column) <= (node.end_lineno, node.end_col_offset)


def _first_line(node: ast.Lambda | ast.FunctionDef) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(min([node.lineno, *[decorator.lineno for decorator in decorators]]))


def _global_names(node: ast.AST, module: ModuleType) -> Iterator[str]:
    """Return the names of its module to which a statement refers."""
    # By Python's own table of symbols: a parameter or local variable of the same name is no global.
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
    """Drops annotations and docstrings."""

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
        # The fields of a named tuple are annotations: these stay, as `object`.
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
    """Replaces names by constants; nothing may be assigned to them."""

    def __init__(self, constants: dict[str, str]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.constants.get(node.id)
        return node if found is None else ast.copy_location(ast.Constant(found), node)


class _Resolved(ast.NodeTransformer):
    """Replaces lookups by constants, in a table or by a function that has `resolve`, by the function that they find."""

    def __init__(self, linker: Linker, module: ModuleType) -> None:
        self.linker = linker
        self.module = module

    def _value(self, node: ast.expr) -> Any:
        """Return the object of a name, or of a member of a module of Tape's."""
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
    """Replaces members of Tape's modules by their names in the file."""

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
    """Changes names."""

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
