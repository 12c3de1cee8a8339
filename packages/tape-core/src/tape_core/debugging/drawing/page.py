"""The display of a tape: a line of text, and in notebooks a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tape_core.debugging.drawing.drawing import drawing_of
from tape_core.debugging.graph import Graph, graph_of
from tape_core.debugging.summary import summary_of
from tape_core.engine import recording

if TYPE_CHECKING:
    from tape_core.engine.tape import GradientTape

_DRAWN = 60  # nodes


def _state(tape: GradientTape) -> list[str]:
    if recording.is_active(tape):
        state = "recording"
    elif tape._used and not tape._persistent:
        state = "used"
    else:
        state = "not recording"
    journal = tape._journal
    ways = ["persistent"] * tape._persistent
    if journal is not None:
        ways.append("check_numerics" if journal.check_numerics else "debug")
    return [state, *ways]


def _watched(tape: GradientTape, graph: Graph) -> str:
    variables = tape.watched_variables()
    names = [v.name or f"Variable of shape {v.shape}" for v in variables[:5]]
    if len(variables) > 5:
        names.append(f"{len(variables) - 5} more Variables")
    others = sum(node.kind == "watched" for node in graph.nodes)
    if others:
        names.append(f"{others:,} Tensor{'s' * (others != 1)}")
    return ", ".join(names)


def text(tape: GradientTape) -> str:
    """Return the text of a tape for `repr`."""
    graph = graph_of(tape)
    ops = sum(node.kind == "op" and node.part_of is None for node in graph.nodes)
    watched = _watched(tape, graph)
    about = [*_state(tape), f"{ops:,} op{'s' * (ops != 1)}"] + [f"watches {watched}"] * bool(watched)
    return f"<GradientTape: {', '.join(about)}>"


def html(tape: GradientTape) -> str:
    """Return the page of a tape for notebooks."""
    graph = graph_of(tape)
    parts = [f"<p><b>GradientTape</b>: {escape(', '.join(_state(tape)))}</p>"]
    if watched := _watched(tape, graph):
        parts.append(f"<p>watches {escape(watched)}</p>")
    parts.append(summary_of(graph)._repr_html_())
    if 0 < len(graph.nodes) <= _DRAWN:
        parts.append(drawing_of(graph, collapse=False, max_nodes=_DRAWN, engine="plain").svg)
    return f"<div>{''.join(parts)}</div>"
