"""A compiled function as a file that stands alone: it needs the array library, and nothing of Tape."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tape_core._version import __version__
from tape_core.compiled.linker import ExportError, Linker
from tape_core.compiled.program import Program
from tape_core.compiled.source import Source

_HEAD = '''"""{summary}

Written by tape_core {version} from a compiled function.
"""
'''


def exported(program: Program, name: str, inputs: list[tuple[str, str]], outputs: list[str]) -> str:
    """The file.

    Args:
        program: what the function computes.
        name: what it is called.
        inputs: for each input a name and what it is; outputs: what each result is.

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
    function = linker.free(name)
    parameters = [linker.free(wanted) for wanted, _ in inputs]
    source = Source(program, function, parameters=parameters)
    linker.taken.update(source.names)
    aliases: list[str] = []
    for own, thing in source.names.items():
        if own in (function, "__name__", "__builtins__"):
            continue
        constant = own[1:].isdigit() and own.startswith("c") and int(own[1:]) in program.constants
        try:
            text = _constant(thing, program, linker) if constant else linker.expression(thing, own)
        except ExportError as error:
            raise ExportError(f"export: {name} cannot be written to a file: {error}") from None
        if text != own:
            aliases.append(f"{own} = {text}")
    try:
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
        "xp = types.SimpleNamespace()\n" if linker.needs_namespace else "",
        "\n".join(linker.statements),
        "\n".join(filled),
        "\n".join(aliases),
        "\n" + "\n".join(lines),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _constant(value: Any, program: Program, linker: Linker) -> str:
    assert program.backend is not None
    if not ((hasattr(value, "shape") and hasattr(value, "__array_namespace__")) or hasattr(value, "numpy")):
        raise ExportError(f"{value!r} is no array")
    array = program.backend.numpy(value)
    linker.imports |= {"base64", "numpy"}
    data = base64.b64encode(array.tobytes()).decode()
    text = f"numpy.frombuffer(base64.b64decode({data!r}), {str(array.dtype)!r}).reshape({tuple(array.shape)!r})"
    if program.backend.name == "torch":
        linker.imports.add("torch")
        return f"torch.from_numpy({text}.copy())"
    return f"{text}[()]" if not array.shape else text


def write(path: Any, text: str) -> None:
    """Write the file, whole or not at all."""
    compile(text, str(path), "exec")
    target = Path(path)
    target.write_text(text, encoding="utf-8")
