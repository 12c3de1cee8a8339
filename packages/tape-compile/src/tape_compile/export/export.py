"""Export: a compiled function as a Python file that needs the array library, and nothing of Tape."""

from __future__ import annotations

import ast
import base64
import io
import os
from collections.abc import Iterator
from numbers import Integral
from typing import Any

from tape_core import __version__
from tape_core.backends import backend_of_type
from tape_core.support import one_line, write_whole

from tape_compile import passes, thresholds
from tape_compile.codegen.source import Source
from tape_compile.control_flow import Flow
from tape_compile.export.linker import ExportError, Linker
from tape_compile.failures import SOURCE
from tape_compile.program import Program, Raw

_ARRAYS = "constants_beside"
_MODULES = ("base64", "functools", "numpy", "operator", "os", "torch", "types")

_HEAD = """{summary}

Written by tape_core {version} from a compiled function.
"""


def exported(
    program: Program, name: str, inputs: list[tuple[str, str]], outputs: list[str], beside: dict[str, Any] | None = None
) -> str:
    """Return the text of the file.

    Args:
        program: the program of the function.
        name: of the function.
        inputs: for each input a name and a description; outputs: a description of each result.
        beside: a dict to which large constants are added, which the file loads from a file beside it; None to write all
            constants into the file.

    Raises:
        ExportError: the function has an effect, or calls something of which there is no source.
    """
    effects = sorted({instruction.name for instruction in program.instructions if instruction.effect})
    if effects:
        raise ExportError(
            f"export: {name} calls {', '.join(effects)}, which is more than arithmetic: draw random numbers outside, "
            f"and return gradients in place of calling an optimizer"
        )
    _refuse_narrow(program, name)
    linker = Linker()
    # The file's own names come first: a function or Variable of the user's that is called `torch` is renamed.
    linker.taken.update([_ARRAYS, *_MODULES, *linker.libraries(program)])
    function = linker.free(name)
    parameters = [linker.free(wanted) for wanted, _ in inputs]
    source = Source(program, function, parameters=parameters)
    linker.taken.update(source.names)
    try:
        aliases = [f"{own} = {text}" for own, text in _names(program, source, linker, beside) if text != own]
        # After the names, whose functions tell which kernels the file needs.
        kernels = linker.namespace()
    except ExportError as error:
        raise ExportError(f"export: {name} cannot be written to a file: {error}") from None
    if linker.needs_namespace:
        linker.imports.add("types")
    described = [f"{p}: {what}" for p, (_, what) in zip(parameters, inputs, strict=True)]
    told = [one_line(f"What {name} computes."), "", "Args:", *[f"    {one_line(line)}" for line in described], ""]
    told += ["Returns:", one_line(f"    a tuple: {', '.join(outputs) or 'nothing'}.")]
    # Each text in these is one statement, which `_check` makes sure of.
    groups = [
        [f"import {module}" for module in sorted(linker.imports)],
        [f"{_ARRAYS} = numpy.load(os.path.splitext(os.path.abspath(__file__))[0] + '.npz')"] if beside else [],
        ["xp = types.SimpleNamespace()"] if linker.needs_namespace else [],
        linker.statements,
        kernels,
        aliases,
    ]
    head = _docstring(_HEAD.format(summary=one_line(f"{name}, as straight-line code."), version=__version__))
    definition, _, body = source.text.partition("\n")
    docstring = _docstring("\n".join([told[0], *[f"    {line}" if line else "" for line in told[1:]], "    "]))
    whole = "\n".join(
        [
            head, *["\n".join(group) for group in groups if group], "",
            *source.parts, f"{definition}\n    {docstring}\n{body}",
        ]
    )  # fmt: skip
    _check(whole, [statement for group in groups for statement in group], source, function)
    return whole


def _refuse_narrow(program: Program, name: str) -> None:
    """Refuse a dtype that the library only stores: computing with it, in float32, is Tape's code.

    Raises:
        ExportError: the program has a value of one.
    """
    backend = program.backend
    if backend is None or not backend.narrow:
        return
    for spec in program.specs.values():
        if spec.dtype is not None and backend.dtype(spec.dtype) in backend.narrow:
            dtype = backend.dtype(spec.dtype)
            raise ExportError(
                f"export: {name} computes with {dtype}, for which backend {backend.name!r} needs Tape: compute with "
                f"float32 (tape_core.astype), or export it on a backend whose library has {dtype}"
            )


def _docstring(text: str) -> str:
    """Return a docstring of this text as source; quotes in it that could end it are escaped."""
    module = ast.Module([ast.Expr(ast.Constant(text))], [])
    return ast.unparse(module)


def _check(text: str, statements: list[str], source: Source, function: str) -> None:
    """Check that Python reads a docstring, these statements and the functions of the source in the file, and no more.

    Names and texts come from users, so a fault in escaping them could put other code in the file.

    Raises:
        RuntimeError: it reads something else.
    """
    compile(text, function, "exec")  # some errors are found in a whole file only
    found = ast.parse(text).body[1:]
    functions = [*source.tree().body]
    bodies = found[len(found) - len(functions) :]
    if bodies and isinstance(last := bodies[-1], ast.FunctionDef):
        del last.body[0]  # its docstring
    expected = [ast.parse(statement).body for statement in statements]
    bound = [name for node in found for name in _bound(node)]
    # Dumps of trees have no lines and columns. Were the function's name bound twice, importers would get another
    # object.
    if (
        any([len(nodes) != 1 for nodes in expected])
        or [*map(ast.dump, found)] != [*map(ast.dump, [*[nodes[0] for nodes in expected], *functions])]
        or bound.count(function) != 1
    ):
        raise RuntimeError(
            f"export: the file of {function} does not read as it was written: an error of Tape's, please report it"
        )


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement of the file binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _names(
    program: Program, source: Source, linker: Linker, beside: dict[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """Return the names to which the source of a program refers, each with an expression for its object."""
    for own, thing in source.names.items():
        if own in source.functions or own in ("__name__", "__builtins__", SOURCE):
            continue
        constant = own[1:].isdigit() and own.startswith("c") and int(own[1:]) in program.constants
        if constant:
            yield own, _constant(thing, program, linker, beside)
        elif isinstance(thing, Flow):
            yield own, _flow(thing, linker, beside)
        else:
            yield own, linker.expression(thing, own)


def _flow(flow: Flow, linker: Linker, beside: dict[str, Any] | None) -> str:
    """Return an expression for the function of a branch or a loop, with the code of its parts."""
    linker.imports.add("functools")
    made = []
    for part in flow.parts:
        program, _ = passes.run(
            part.traced, part.options, frozenset({"fusion"})
        )  # a fused function has no source of its own
        source = Source(program, part.name)
        # It is made inside another function, so that its names, such as c1, are its own.
        names = list(_names(program, source, linker, beside))
        maker = linker.free(f"make_{source.name}")
        body = source.joined.replace("\n", "\n    ").rstrip()
        linker.statements.append(
            f"def {maker}({', '.join(own for own, _ in names)}):\n    {body}\n    return {source.name}"
        )
        made.append(f"{maker}({', '.join(text for _, text in names)})")
    settings = "".join(f", {linker.expression(setting, flow.__name__)}" for setting in flow.settings)
    return f"functools.partial({linker.expression(flow.run, flow.__name__)}, [{', '.join(made)}]{settings})"


def _constant(value: Raw, program: Program, linker: Linker, beside: dict[str, Any] | None) -> str:
    """Return an expression for a constant array."""
    assert program.backend is not None
    if type(value) in (bool, int, float, complex):  # a number of the host's, as an optimizer has it
        return linker.expression(value, "constant")
    owner = backend_of_type(type(value))  # on another backend a parameter may be an array of NumPy
    if owner is None:
        raise ExportError(f"{value!r} is no array")
    if owner is not program.backend.library and isinstance(value, Integral):
        return repr(int(value))
    array = owner.numpy(value)
    if beside is not None and array.size > thresholds.EXPORT_INLINE_MAX_ELEMENTS:
        linker.imports |= {"os", "numpy"}
        key = f"a{len(beside)}"
        beside[key] = array
        text = f"{_ARRAYS}[{key!r}]"
    else:
        linker.imports |= {"base64", "numpy"}
        # Bytes are exact for each dtype, NaN's payload included.
        data = base64.b64encode(array.tobytes()).decode()
        text = f"numpy.frombuffer(base64.b64decode({data!r}), {str(array.dtype)!r}).reshape({tuple(array.shape)!r})"
    if owner.name == "torch":
        linker.imports.add("torch")
        # `frombuffer` gives read-only memory, of which `from_numpy` warns: hence the copy.
        return f"torch.from_numpy({text}.copy())"
    if owner is not program.backend.library:
        return f"{text}.copy()"  # it is writable then, as PyTorch wants it
    return f"{text}[()]" if not array.shape else text


def write_data(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file of a compiler's own format, whole or not at all.

    Raises:
        OSError: it cannot be written; a file that was there is unchanged.
    """
    write_whole("export", [(os.path.realpath(path), [data])])


def write(path: str | os.PathLike[str], text: str, beside: dict[str, Any] | None) -> None:
    """Write the file, and that of the constants beside it: both whole, or neither.

    Raises:
        OSError: a file cannot be written; files that were there are unchanged.
    """
    target = os.path.realpath(path)
    contents = [(target, [text.encode("utf-8")])]
    if beside:
        import numpy as np

        arrays = io.BytesIO()
        np.savez(arrays, **beside)
        contents.insert(0, (os.path.splitext(target)[0] + ".npz", [arrays.getvalue()]))
    write_whole("export", contents)
