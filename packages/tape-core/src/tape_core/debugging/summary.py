"""`tape.summary()`: what was recorded, op by op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tape_core.debugging.graph import Graph, graph_of

if TYPE_CHECKING:
    from tape_core.engine.tape import GradientTape


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        op: the op's name.
        count: how often it was recorded.
        forward, backward: seconds its kernels and its derivative rules took, in all gradients so far; None without
            `debug=True`.
        bytes: what its records keep for the backward pass. An array that several keep is counted once.
    """

    op: str
    count: int
    forward: float | None
    backward: float | None
    bytes: int


@dataclass(frozen=True)
class Summary:
    """The result of :meth:`GradientTape.summary`: it prints as a table, the costliest op first.

    Attributes:
        rows: one for each op.
        total: their sum.
        note: a limit of the table, and the reason; empty if there is none.
    """

    rows: tuple[Row, ...]
    total: Row
    note: str

    @property
    def _table(self) -> list[list[str]]:
        timed = self.total.forward is not None
        head = ["op", "count", *(["forward", "backward"] * timed), "bytes kept"]
        return [head, *[_cells(row) for row in (*self.rows, self.total)]]

    def __str__(self) -> str:
        table = self._table
        widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]])
            for row in table
        ]
        rule = "-" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:-1], *([rule] if self.rows else []), lines[-1], *self._notes])

    __repr__ = __str__

    @property
    def _notes(self) -> list[str]:
        return [self.note] if self.note else []

    def _repr_html_(self) -> str:
        head, *body = self._table
        align = [' style="text-align:left"', *[' style="text-align:right"'] * (len(head) - 1)]

        def row(cells: Sequence[str], tag: str) -> str:
            inner = (f"<{tag}{a}>{escape(c)}</{tag}>" for a, c in zip(align, cells, strict=True))
            return f"<tr>{''.join(inner)}</tr>"

        rows = "".join(row(cells, "td") for cells in body[:-1])
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes)
        return (
            f"<table><thead>{row(head, 'th')}</thead><tbody>{rows}</tbody>"
            f"<tfoot>{row(body[-1], 'th')}</tfoot></table>{notes}"
        )


def _cells(row: Row) -> list[str]:
    times = [] if row.forward is None else [duration(row.forward), duration(row.backward or 0.0)]
    return [row.op, f"{row.count:,}", *times, size(row.bytes)]


def summary(tape: GradientTape) -> Summary:
    """See :meth:`GradientTape.summary`."""
    return summary_of(graph_of(tape))


def summary_of(graph: Graph) -> Summary:
    """Return the table of a graph."""
    sums: dict[str, list[float]] = {}
    for node in graph.nodes:
        # A node that is one of several results is counted with the node of its op.
        if node.kind == "op" and node.part_of is None:
            row = sums.setdefault(node.name, [0, 0.0, 0.0, 0])
            for k, value in enumerate((1, node.seconds, node.backward, node.kept)):
                row[k] += value
    rows = [_row(name, values, graph) for name, values in sums.items()]
    rows.sort(key=lambda r: ((r.forward or 0.0) + (r.backward or 0.0), r.bytes, r.count), reverse=True)
    totals = [sum(values[k] for values in sums.values()) for k in range(4)]
    note = "" if graph.debug else "times are known to a tape made with debug=True"
    if graph.used and not graph.debug:
        note = "the tape has been used for its one gradient: persistent=True or debug=True keeps what it recorded"
    elif graph.debug:
        note = "times are those of the calls: on a GPU, of launching kernels"
    return Summary(tuple(rows), _row("total", totals, graph), note)


def _row(name: str, values: Sequence[float], graph: Graph) -> Row:
    count, forward, backward, kept = values
    return Row(name, int(count), forward if graph.debug else None, backward if graph.debug else None, int(kept))


def duration(seconds: float) -> str:
    """Return a time as text, in seconds, ms, µs or ns."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns" if seconds else "0"


def size(n: int) -> str:
    """Return a number of bytes as text, in B, KiB, MiB or GiB."""
    amount = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{n:,} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError
