"""What a report looks like: as a page, in a notebook, at a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from tape_conformance.marks import BATCHING_LEGEND, KINDS, LEGEND, MARKS

if TYPE_CHECKING:
    from tape_conformance.report import Report

MOST_ROWS = 24  # of the matrix at a prompt; of a longer one those ops that something is wrong with
MOST_FAILURES = 10  # whose messages a prompt or a notebook shows

_WORDS = {"passed": "passes", "failed": "fails", "expected": "fails as the backend says it does", "skipped": "skipped"}


# -- HTML


def page(report: Report) -> str:
    """Return the support matrix as a self-contained HTML page."""
    title = f"Support matrix: {escape(report.backend)}"
    notes = _rows((id, f"<td class=note>{escape(detail)}</td>") for id, detail in report.notes())
    return (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8>"
        f'<meta name=viewport content="width=device-width"><title>{title}</title>\n<style>{_PAGE}{_MARKED}</style>\n'
        f"<h1>{title}</h1>\n<p>{report.counts()}. {LEGEND}. {BATCHING_LEGEND}</p>\n"
        f"{_matrix(report.matrix(), KINDS)}\n"
        f"<h2>Backend and tape</h2>\n<table>{_groups(report.groups())}</table>\n"
        + (f"<h2>Why</h2>\n<table>{notes}</table>\n" if notes else "")
        + "</html>\n"
    )


def fragment(report: Report) -> str:
    """Return what a notebook shows: the counts, what failed, and the support matrix in a box that scrolls."""
    matrix, groups = report.matrix(), report.groups()
    parts = [f"<style>{_NOTEBOOK}{_MARKED}</style>", f"<p><b>{escape(report.backend)}</b>: {report.counts()}</p>"]
    parts += [f"<p class=failed>{escape(line)}</p>" for line in report.headlines()]
    failed = [(result.id, result.detail) for result in report.failed]
    expected = [(result.id, result.detail) for result in report.results if result.outcome == "expected"]
    for notes, what, state in ((failed, "failed", " open"), (expected, "failed as expected", "")):
        if notes:
            rows = _rows(
                (id, f"<td class=note><pre>{escape(detail)}</pre></td>") for id, detail in notes[:MOST_FAILURES]
            )
            more = f"<p>and {len(notes) - MOST_FAILURES} more</p>" if len(notes) > MOST_FAILURES else ""
            parts.append(f"<details{state}><summary>{len(notes)} {what}</summary><table>{rows}</table>{more}</details>")
    if matrix:
        parts.append(f"<div class=scrolls>{_matrix(matrix, _used(matrix))}</div><p>{LEGEND}. {BATCHING_LEGEND}</p>")
    if groups:
        passed = sum(mark == MARKS["passed"] for mark in groups.values())
        parts.append(
            f"<details><summary>Backend and tape: {passed} of {len(groups)} pass</summary>"
            f"<table>{_groups(groups)}</table></details>"
        )
    return "<div class=tape-report>" + "\n".join(parts) + "</div>"


def _matrix(matrix: Mapping[str, Mapping[str, str]], kinds: Sequence[str]) -> str:
    head = "".join(f"<th scope=col>{kind}</th>" for kind in kinds)
    rows = _rows((op, "".join(_cell(row.get(kind, "")) for kind in kinds)) for op, row in matrix.items())
    return f"<table><thead><tr><th scope=col>op</th>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"


def _groups(groups: Mapping[str, str]) -> str:
    return _rows((id, _cell(mark)) for id, mark in groups.items())


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<tr><th scope=row><code>{escape(name)}</code></th>{cells}</tr>\n" for name, cells in rows)


def _cell(mark: str) -> str:
    outcome = next((outcome for outcome, own in MARKS.items() if own and own == mark[:1]), "")
    return f'<td class={outcome} title="{_WORDS[outcome]}">{mark}</td>' if outcome else f"<td>{mark}</td>"


_PAGE = (
    "body{font:15px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #ddd;padding:.15rem .6rem;text-align:center}"
    "tbody th,tr>th:first-child{text-align:left;font-weight:normal}thead th{position:sticky;top:0;background:#fff}"
    ".note{text-align:left}"
)

# A notebook has colours of its own, light or dark: these take its text colour, and tint its background.
_NOTEBOOK = (
    ".tape-report p{margin:.4em 0}.tape-report .scrolls{max-height:28em;overflow:auto}"
    ".tape-report table{border-collapse:collapse;margin:.3em 0}"
    ".tape-report td,.tape-report th{border-bottom:1px solid rgba(128,128,128,.35);padding:.1em .5em;text-align:center}"
    ".tape-report tbody th,.tape-report tr>th:first-child{text-align:left;font-weight:normal}"
    ".tape-report thead th{position:sticky;top:0;backdrop-filter:blur(6px);background:rgba(128,128,128,.15)}"
    ".tape-report .note{text-align:left}.tape-report pre{margin:0;white-space:pre-wrap;background:none;color:inherit}"
    ".tape-report summary{cursor:pointer}"
)
_MARKED = "td.failed,p.failed{background:rgba(255,60,50,.28)}td.expected{background:rgba(255,190,0,.28)}"


# -- text


def text(report: Report) -> str:
    """Return what a prompt shows: the counts, what failed, and the matrix, of a long one what is wrong with it."""
    lines = [f"{report.backend}: {report.counts()}", *report.headlines()]
    lines += [f"  {result.id}: {result.detail}".replace("\n", "\n  ") for result in report.failed[:MOST_FAILURES]]
    if len(report.failed) > MOST_FAILURES:
        lines.append(f"  and {len(report.failed) - MOST_FAILURES} more, which print() shows")
    matrix = report.matrix()
    shown = matrix
    if len(matrix) > MOST_ROWS:
        marks = MARKS["failed"], MARKS["expected"]
        shown = {op: row for op, row in matrix.items() if any(mark[:1] in marks for mark in row.values() if mark)}
        shown = dict(list(shown.items())[:MOST_ROWS])
    if shown:
        lines += _table(shown)
    if left := len(matrix) - len(shown):
        lines.append(f"{left} {'other ' if shown else ''}ops are not shown: to_markdown() and write(file) have all")
    return "\n".join(lines)


def _table(matrix: Mapping[str, Mapping[str, str]]) -> list[str]:
    kinds = _used(matrix)
    table = [["op", *kinds], *[[op, *[row.get(kind, "") for kind in kinds]] for op, row in matrix.items()]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def _used(matrix: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the columns to show: those of a page that have marks, and others in which something is wrong.

    Where no kind of check has a column on the page, as with a compiler's checks, all are shown.
    """
    marks: dict[str, set[str]] = {}
    for row in matrix.values():
        for kind, mark in row.items():
            if mark:
                marks.setdefault(kind, set()).add(mark[:1])
    columns = [kind for kind in KINDS if kind in marks]
    return columns + [k for k, found in marks.items() if k not in KINDS and (not columns or found != {MARKS["passed"]})]
