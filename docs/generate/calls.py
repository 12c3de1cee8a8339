"""Pictures of what is called: by a block of a tape, and by a gradient, as a profile hook sees it."""

from __future__ import annotations

import gc
import linecache
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import tape_core as tc

SOURCES = Path(__file__).parents[2] / "packages"
# Frames that some versions of Python have, and what happens when the tape before this one is freed.
SKIPPED = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "__del__")

FILLS = {"engine": "#dcfce7", "ops": "#fef3c7", "base": "#e5e7eb", "backends": "#fae8ff", "generated": "#fee2e2"}
OTHER = "#dbeafe"
ROW, INDENT, WIDTH, FILE_AT, PAD = 22, 26, 760, 470, 12


class Call(NamedTuple):
    """One call of a Python function."""

    depth: int
    function: str
    file: str
    line: str  # of the program that is measured, where it is called from there


def calls(run: Callable[[], object]) -> list[Call]:
    """The calls of functions of ours that `run` makes, in order. It runs once before, since first calls make more."""
    run()
    found: list[Call] = []
    above: list[FrameType] = []

    def hook(frame: FrameType, event: str, _: object) -> None:
        file = _file(frame)
        if file is None or frame.f_code.co_name in SKIPPED:
            return
        if event == "call":
            caller = frame.f_back
            assert caller is not None
            line = "" if above else linecache.getline(caller.f_code.co_filename, caller.f_lineno).strip()
            found.append(Call(len(above), frame.f_code.co_qualname.replace(".<locals>", ""), file, line))
            above.append(frame)
        elif event == "return" and above and above[-1] is frame:
            above.pop()

    collecting = gc.isenabled()
    gc.disable()  # no finalizer may run in between
    sys.setprofile(hook)
    try:
        run()
    finally:
        sys.setprofile(None)
        if collecting:
            gc.enable()
    return found


def _file(frame: FrameType) -> str | None:
    """Where a function stands: a path beneath tape_core, a package's, or "generated"; None if it is not ours."""
    name = frame.f_code.co_filename
    if name.startswith("<tape_core"):
        return "generated"
    path = Path(name)
    if not path.is_relative_to(SOURCES):
        return None
    return path.relative_to(SOURCES).as_posix().partition("/src/")[2].removeprefix("tape_core/")


def recorded() -> list[Call]:
    """What a tape's block calls that watches a Tensor and computes its sine."""
    x = tc.asarray(0.5, backend="numpy")

    def run() -> None:
        with tc.GradientTape() as tape:
            tape.watch(x)
            tc.sin(x)

    return calls(run)


def differentiated() -> list[Call]:
    """What the gradient of a sine calls."""
    x = tc.asarray(0.5, backend="numpy")
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.sin(x)

    def run() -> None:
        tape.gradient(y, x)

    return calls(run)


def svg(found: list[Call]) -> str:
    """The calls as an indented list: the lines of the program, beneath each what it calls, with the files."""
    rows: list[Call | str] = []
    line = ""
    for call in found:
        if call.line not in ("", line):
            line = call.line
            rows.append(line)
        rows.append(call)
    height = ROW * len(rows) + 2 * PAD
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">'
    )
    parts = [
        head,
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for k, row in enumerate(rows):
        y = PAD + ROW * k
        if isinstance(row, str):
            parts.append(f'<text x="{PAD}" y="{y + 15}" font-weight="bold">{escape(row)}</text>')
            continue
        x = PAD + INDENT * (row.depth + 1)
        fill = FILLS.get(row.file.partition("/")[0], OTHER)
        width = 7.3 * len(row.function) + 12
        parts += [
            f'<rect x="{x}" y="{y + 2}" width="{width:.0f}" height="{ROW - 4}" rx="4" fill="{fill}"/>',
            f'<text x="{x + 6}" y="{y + 15}">{escape(row.function)}</text>',
            f'<text x="{FILE_AT}" y="{y + 15}" fill="#475569">{escape(row.file)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
