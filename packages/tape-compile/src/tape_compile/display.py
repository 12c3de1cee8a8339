"""The display of a compiled function in notebooks: what it was traced for, and where its source is to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tape_compile.printing import input_types
from tape_compile.program import Program

_HEAD = ("Trace", "Inputs", "Instructions", "After passes")
_MOST = 8  # inputs that are listed, and reasons and traces


def function_html(text: str, name: str, traces: Sequence[tuple[str, Program, Program]], reasons: Sequence[str]) -> str:
    """Return a table of the traces of a compiled function.

    Args:
        text: its `repr`.
        name: what it is called.
        traces: of each what it is for, and its program before and after the passes.
        reasons: why it runs as plain Python for some arguments.
    """
    parts = [f"<p>{escape(text)}</p>"]
    rows = [_row("td", _cells(*trace)) for trace in traces[-_MOST:]]
    if rows:
        parts.append(f"<table><thead>{_row('th', _HEAD)}</thead><tbody>{''.join(rows)}</tbody></table>")
        older = f"{len(traces) - _MOST} older traces are not listed; " if len(traces) > _MOST else ""
        parts.append(f"<p>{older}<code>{escape(name)}.show()</code> prints the generated source of each trace</p>")
    else:
        parts.append("<p>it is traced when it is first called</p>")
    parts += [f"<p>runs as plain Python for some arguments: {escape(reason)}</p>" for reason in reasons[:_MOST]]
    return "".join(parts)


def _cells(what: str, traced: Program, program: Program) -> tuple[str, ...]:
    inputs = input_types(traced)
    more = [f"and {len(inputs) - _MOST} more"] if len(inputs) > _MOST else []
    return what, ", ".join([*inputs[:_MOST], *more]), str(len(traced.instructions)), str(len(program.instructions))


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join([f"<{tag}>{escape(cell)}</{tag}>" for cell in cells]) + "</tr>"
