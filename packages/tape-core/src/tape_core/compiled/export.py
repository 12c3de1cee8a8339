"""A compiled function as a file that stands alone: it needs the array library, and nothing of Tape."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tape_core._version import __version__
from tape_core.compiled import passes
from tape_core.compiled.linker import ExportError, Linker
from tape_core.compiled.program import Program
from tape_core.compiled.source import Source
from tape_core.compiled.subprograms import Flow

_ARRAYS = "constants_beside"
_SMALL = 64  # elements of a constant that stays in the file

_HEAD = '''"""{summary}

Written by tape_core {version} from a compiled function.
"""
'''


def exported(
    program: Program, name: str, inputs: list[tuple[str, str]], outputs: list[str], beside: dict[str, Any] | None = None
) -> str:
    """The file.

    Args:
        program: what the function computes.
        name: what it is called.
        inputs: for each input a name and what it is; outputs: what each result is.
        beside: where large constants are put, which the file then finds beside it; None to have them in it.

    Raises:
        ValueError: it has something that no such file can have.
    """
    effects = sorted({instruction.name for instruction in program.instructions if instruction.effect})
    if effects:
        raise ExportError(
            f"export: {name} calls {', '.join(effects)}, which is more than arithmetic: draw random numbers outside, "
            f"and return gradients in place of calling an optimizer"
        )
    linker = Linker()
    linker.taken.add(_ARRAYS)
    function = linker.free(name)
    parameters = [linker.free(wanted) for wanted, _ in inputs]
    source = Source(program, function, parameters=parameters)
    linker.taken.update(source.names)
    try:
        aliases = [f"{own} = {text}" for own, text in _names(program, source, linker, beside) if text != own]
        filled = linker.namespace()
    except ExportError as error:
        raise ExportError(f"export: {name} cannot be written to a file: {error}") from None
    if linker.needs_namespace:
        linker.imports.add("types")
    described = [f"    {p}: {what}" for p, (_, what) in zip(parameters, inputs, strict=True)]
    lines = source.text.splitlines()
    lines[1:1] = [
        f'    """What {name} computes.',
        "",
        "    Args:",
        *["    " + line for line in described],
        "",
        "    Returns:",
        f"        a tuple: {', '.join(outputs) or 'nothing'}.",
        '    """',
    ]
    parts = [
        _HEAD.format(summary=f"{name}, as straight-line code.", version=__version__),
        "\n".join(f"import {module}" for module in sorted(linker.imports)),
        f"{_ARRAYS} = numpy.load(os.path.splitext(os.path.abspath(__file__))[0] + '.npz')" if beside else "",
        "xp = types.SimpleNamespace()\n" if linker.needs_namespace else "",
        "\n".join(linker.statements),
        "\n".join(filled),
        "\n".join(aliases),
        "\n" + "\n".join([*source.parts, *lines]),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _names(
    program: Program, source: Source, linker: Linker, beside: dict[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """What the source of a program refers to: its names there, and Python source for each."""
    for own, thing in source.names.items():
        if own in source.functions or own in ("__name__", "__builtins__"):
            continue
        constant = own[1:].isdigit() and own.startswith("c") and int(own[1:]) in program.constants
        if constant:
            yield own, _constant(thing, program, linker, beside)
        elif isinstance(thing, Flow):
            yield own, _flow(thing, linker, beside)
        else:
            yield own, linker.expression(thing, own)


def _flow(flow: Flow, linker: Linker, beside: dict[str, Any] | None) -> str:
    """A branch or a loop: the function that runs it, given the functions of its parts."""
    linker.imports.add("functools")
    made = []
    for part in flow.parts:
        program, _ = passes.run(part.traced, {"fusion": False})
        source = Source(program, part.name)
        # A function that makes it, so that its names are its own.
        names = list(_names(program, source, linker, beside))
        maker = linker.free(f"make_{part.name}")
        body = source.joined.replace("\n", "\n    ").rstrip()
        linker.statements.append(
            f"def {maker}({', '.join(own for own, _ in names)}):\n    {body}\n    return {part.name}"
        )
        made.append(f"{maker}({', '.join(text for _, text in names)})")
    settings = "".join(f", {linker.expression(setting, flow.__name__)}" for setting in flow.settings)
    return f"functools.partial({linker.expression(flow.run, flow.__name__)}, [{', '.join(made)}]{settings})"


def _constant(value: Any, program: Program, linker: Linker, beside: dict[str, Any] | None) -> str:
    assert program.backend is not None
    if not ((hasattr(value, "shape") and hasattr(value, "__array_namespace__")) or hasattr(value, "numpy")):
        raise ExportError(f"{value!r} is no array")
    array = program.backend.numpy(value)
    if beside is not None and array.size > _SMALL:
        linker.imports |= {"os", "numpy"}
        key = f"a{len(beside)}"
        beside[key] = array
        text = f"{_ARRAYS}[{key!r}]"
    else:
        linker.imports |= {"base64", "numpy"}
        data = base64.b64encode(array.tobytes()).decode()
        text = f"numpy.frombuffer(base64.b64decode({data!r}), {str(array.dtype)!r}).reshape({tuple(array.shape)!r})"
    if program.backend.name == "torch":
        linker.imports.add("torch")
        return f"torch.from_numpy({text}.copy())"
    return f"{text}[()]" if not array.shape else text


def write(path: Any, text: str, beside: dict[str, Any] | None) -> None:
    """Write the file, and the constants that are to be beside it."""
    compile(text, str(path), "exec")
    target = Path(path)
    if beside:
        import numpy as np

        np.savez(target.with_suffix(".npz"), **beside)
    target.write_text(text, encoding="utf-8")
