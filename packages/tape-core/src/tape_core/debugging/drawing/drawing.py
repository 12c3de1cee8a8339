"""`tape.draw()`: the recorded graph as SVG and as Graphviz's DOT."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tape_core.debugging.drawing.layout import layout
from tape_core.debugging.graph import Graph, Node, graph_of
from tape_core.debugging.summary import duration, size

if TYPE_CHECKING:
    from tape_core.engine.tape import GradientTape

_ENGINES = (None, "graphviz", "plain")
_FILLS = {"op": "#f8fafc", "variable": "#dbeafe", "watched": "#dcfce7", "group": "#fef3c7", "more": "#e5e7eb"}
_BORDERS = {"op": "#94a3b8", "variable": "#3b82f6", "watched": "#22a35a", "group": "#d9950a", "more": "#6b7280"}
_CHARACTER, _LINE, _MARGIN = 6.7, 15.0, 9.0  # of the text in a node
_LIMIT_S = 60  # for Graphviz


@dataclass
class Box:
    """A node of the picture: one of the graph, a function of the user's, or what is left out.

    Attributes:
        kind: "op", "variable", "watched", "group" or "more", which have colours of their own.
        title, lines: the text in it.
        hint: the text beside the pointer.
        inputs: the numbers of the boxes that lead to this one, which are lower than its own.
    """

    kind: str
    title: str
    lines: list[str]
    hint: str
    inputs: list[int] = field(default_factory=list)


class Drawing:
    """The result of :meth:`GradientTape.draw`; notebooks show it.

    Args:
        boxes: the nodes.
        engine: "graphviz", "plain" or None, as for `draw`.

    Attributes:
        dot: the graph in Graphviz's language.
    """

    def __init__(self, boxes: Sequence[Box], engine: str | None) -> None:
        self._boxes = boxes
        self._engine = engine
        self.dot = _dot(boxes)

    @cached_property
    def svg(self) -> str:
        """The picture."""
        program = None if self._engine == "plain" else shutil.which("dot")
        if program is None and self._engine == "graphviz":
            raise RuntimeError(
                "draw: engine='graphviz' needs Graphviz's program 'dot' on the PATH (https://graphviz.org); "
                "engine='plain' does without"
            )
        if program is not None:
            try:
                done = subprocess.run(
                    [program, "-Tsvg"],
                    input=self.dot,
                    capture_output=True,
                    encoding="utf-8",
                    timeout=_LIMIT_S,
                    check=True,
                )
                return done.stdout[done.stdout.index("<svg") :]
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                if self._engine == "graphviz":
                    raise RuntimeError(f"draw: Graphviz's program {program} failed: {error}") from error
        return _svg(self._boxes)

    def save(self, path: Any) -> Drawing:
        """Write the picture to a file of suffix `.svg`, or `.dot` or `.gv` for Graphviz.

        Raises:
            ValueError: another suffix.
        """
        target = Path(path)
        if target.suffix not in (".svg", ".dot", ".gv"):
            raise ValueError(f"draw: path must end in .svg, .dot or .gv, got {str(path)!r}")
        target.write_text(self.svg if target.suffix == ".svg" else self.dot, encoding="utf-8")
        return self

    def __repr__(self) -> str:
        return f"<Drawing of {len(self._boxes):,} nodes; .svg, .dot, .save(path)>"

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow:auto">{self.svg}</div>'


def draw(tape: GradientTape, path: Any, collapse: bool | Iterable[str], max_nodes: int, engine: str | None) -> Drawing:
    """See :meth:`GradientTape.draw`."""
    if engine not in _ENGINES:
        raise ValueError(f"draw: engine must be 'graphviz', 'plain' or None, got {engine!r}")
    if type(max_nodes) is not int or max_nodes < 3:
        raise ValueError(f"draw: max_nodes must be an int of at least 3, got {max_nodes!r}")
    graph = graph_of(tape)
    if collapse and not graph.debug:
        raise ValueError("draw: collapse needs a tape that knows your functions: GradientTape(debug=True)")
    drawing = drawing_of(graph, collapse=collapse, max_nodes=max_nodes, engine=engine)
    return drawing if path is None else drawing.save(path)


def drawing_of(graph: Graph, *, collapse: bool | Iterable[str], max_nodes: int, engine: str | None) -> Drawing:
    """The picture of a graph."""
    keys = _keys(graph, _chooser(collapse))
    order = list(dict.fromkeys(keys)) if not collapse else _sorted(keys, _edges(graph, keys))
    if len(order) > max_nodes:
        first = (max_nodes - 1) // 2
        last = first + 1 - max_nodes
        middle = set(order[first:last])
        keys = [_MORE if key in middle else key for key in keys]
        order[first:last] = [_MORE]
    groups: dict[Key, list[Node]] = {key: [] for key in order}
    for node, key in zip(graph.nodes, keys, strict=True):
        groups[key].append(node)
    number = {key: k for k, key in enumerate(order)}
    boxes = [_box(key, groups[key], graph) for key in order]
    for a, b in sorted((number[a], number[b]) for a, b in _edges(graph, keys)):
        boxes[b].inputs.append(a)
    return Drawing(boxes, engine)


# -- what is a node

Key = Any  # of what becomes one box: a slot, a Scope, or _MORE
_MORE = "more"


def _chooser(collapse: bool | Iterable[str]) -> Callable[[Node], Key]:
    """Return a function that returns for a node the key of its box: the node itself, or a call around it."""
    if not collapse:
        return lambda node: node.slot
    if isinstance(collapse, str):
        collapse = [collapse]
    names = None if collapse is True else frozenset(collapse)

    def choose(node: Node) -> Key:
        for scope in [] if node.scope is None else node.scope.chain():
            if names is None or scope.name in names or not names.isdisjoint(scope.name.split(".")):
                return scope
        return node.slot

    return choose


def _keys(graph: Graph, choose: Callable[[Node], Key]) -> list[Key]:
    """Return for each node the key of its box; one of several results goes into the box of its op."""
    keys: list[Key] = []
    for node in graph.nodes:
        keys.append(choose(node) if node.part_of is None else keys[node.part_of])
    return keys


def _edges(graph: Graph, keys: Sequence[Key]) -> set[tuple[Key, Key]]:
    """Return the edges between different boxes."""
    return {(keys[i], key) for node, key in zip(graph.nodes, keys, strict=True) for i in node.inputs if keys[i] != key}


def _sorted(keys: Sequence[Key], edges: set[tuple[Key, Key]]) -> list[Key]:
    """Inputs first: as they came, but a leaf that a function reads before the function.

    There is no circle: what one call of a function records stands together.
    """
    distinct = list(dict.fromkeys(keys))
    rank = {key: k for k, key in enumerate(distinct)}
    waiting = Counter(b for _, b in edges)
    after: dict[Key, list[Key]] = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    ready = [rank[key] for key in distinct if not waiting[key]]
    heapify(ready)
    order = []
    while ready:
        key = distinct[heappop(ready)]
        order.append(key)
        for b in after.get(key, ()):
            waiting[b] -= 1
            if not waiting[b]:
                heappush(ready, rank[b])
    return order


def _box(key: Key, nodes: list[Node], graph: Graph) -> Box:
    node = nodes[0]
    if key == _MORE or type(key) is not int:
        ops = Counter(n.name for n in nodes if n.kind == "op" and n.part_of is None)
        count = sum(ops.values())
        named = ", ".join(f"{name} ×{n:,}" for name, n in ops.most_common(3)) + ", ..." * (len(ops) > 3)
        title = f"{count:,} more ops" if key == _MORE else key.name
        lines = [named] if key == _MORE else [f"{count:,} op{'s' * (count != 1)}: {named}"]
        kind = "more" if key == _MORE else "group"
        return Box(kind, title, [*lines, *_costs(nodes, graph)], ", ".join(f"{name} ×{n:,}" for name, n in ops.items()))
    spec = "" if node.spec is None else f"{node.spec[1]}{list(node.spec[0])}"
    hint = [] if node.place is None else [str(node.place)]
    if node.scope is not None:
        hint.append("inside " + " > ".join(scope.name for scope in node.scope.chain()))
    if node.kept:
        hint.append(f"keeps {size(node.kept)} for the backward pass")
    lines = [spec] if spec else []
    if node.kind == "op":
        lines += _costs(nodes, graph)
    title = "watched" if node.kind == "watched" else node.name
    return Box(node.kind, title, lines, "\n".join(hint))


def _costs(nodes: list[Node], graph: Graph) -> list[str]:
    if not graph.debug:
        return []
    forward, backward = sum(n.seconds for n in nodes), sum(n.backward for n in nodes)
    back = f" + {duration(backward)} back" if backward else ""
    return [f"{duration(forward)}{back}, {size(sum(n.bytes for n in nodes))}"]


# -- as text


def _dot(boxes: Sequence[Box]) -> str:
    lines = [
        "digraph tape {",
        '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
        '  edge [color="#64748b", arrowsize=0.6];',
    ]
    for k, box in enumerate(boxes):
        label = "\\n".join(_quoted(line) for line in (box.title, *box.lines))
        fill, border = _FILLS[box.kind], _BORDERS[box.kind]
        hint = f', tooltip="{_quoted(box.hint)}"' if box.hint else ""
        lines.append(f'  n{k} [label="{label}", fillcolor="{fill}", color="{border}"{hint}];')
    lines += [f"  n{a} -> n{b};" for b, box in enumerate(boxes) for a in box.inputs]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _svg(boxes: Sequence[Box]) -> str:
    sizes = [
        (
            max(_CHARACTER * max([len(box.title) * 1.08, *map(len, box.lines)]) + 2 * _MARGIN, 56.0),
            _LINE * (1 + len(box.lines)) + _MARGIN,
        )
        for box in boxes
    ]
    edges = [(a, b) for b, box in enumerate(boxes) for a in box.inputs]
    found = layout(sizes, edges)
    pad = 12.0
    width, height = found.width + 2 * pad, found.height + 2 * pad
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-pad:.0f} {-pad:.0f} {width:.0f} {height:.0f}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11" text-anchor="middle">'
    )
    parts = [
        head,
        f'<rect x="{-pad:.0f}" y="{-pad:.0f}" width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        '<g fill="none" stroke="#94a3b8">',
        *[f'<path d="{_curve(points)}"/>' for points in found.edges.values()],
        '</g><g fill="#64748b">',
        *[_arrow(points[-1]) for points in found.edges.values()],
        "</g>",
    ]
    used = {a for a, _ in edges}
    for k, (box, (w, h), (x, y)) in enumerate(zip(boxes, sizes, found.places, strict=True)):
        dash = ' stroke-dasharray="4 3"' if box.kind == "more" else ""
        thick = 2 if box.kind == "op" and k not in used else 1  # a result
        parts.append(
            f'<g><title>{escape(box.hint or box.title)}</title><rect x="{x - w / 2:.1f}" y="{y - h / 2:.1f}" '
            f'width="{w:.1f}" height="{h:.1f}" rx="6" fill="{_FILLS[box.kind]}" stroke="{_BORDERS[box.kind]}" '
            f'stroke-width="{thick}"{dash}/>'
        )
        for n, line in enumerate((box.title, *box.lines)):
            style = ' font-weight="bold" font-size="12"' if n == 0 else ' fill="#475569"'
            at = y - h / 2 + _MARGIN / 2 + _LINE * (n + 0.75)
            parts.append(f'<text x="{x:.1f}" y="{at:.1f}"{style}>{escape(line)}</text>')
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts)


def _curve(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    parts = [f"M{x:.1f},{y:.1f}"]
    for nx, ny in rest:
        middle = (y + ny) / 2
        parts.append(f"C{x:.1f},{middle:.1f} {nx:.1f},{middle:.1f} {nx:.1f},{ny:.1f}")
        x, y = nx, ny
    return " ".join(parts)


def _arrow(tip: tuple[float, float]) -> str:
    x, y = tip
    return f'<path d="M{x:.1f},{y:.1f} l-3.5,-7 h7 z"/>'
