"""A layered layout of a directed acyclic graph, for pictures without Graphviz.

The steps are those of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system
structures" (1981): layers by longest paths, the order in a layer by barycentres, then places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 8
_MAX_BENDS = 4000  # places that long edges are led through; above this they go straight
GAP_X, GAP_Y = 24.0, 40.0

Point = tuple[float, float]


@dataclass
class Layout:
    """The centres of the nodes, and the points that edges pass."""

    places: list[Point]
    edges: dict[tuple[int, int], list[Point]]
    width: float
    height: float


def layout(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    """Places for nodes of these widths and heights; edges lead from lower to higher numbers.

    What is not connected stands side by side.
    """
    whole = Layout([(0.0, 0.0)] * len(sizes), {}, 0.0, 0.0)
    for nodes in _components(len(sizes), edges):
        number = {i: k for k, i in enumerate(nodes)}
        part = _layered([sizes[i] for i in nodes], [(number[a], number[b]) for a, b in edges if a in number])
        left = whole.width + GAP_X if whole.width else 0.0
        for i, (x, y) in zip(nodes, part.places, strict=True):
            whole.places[i] = x + left, y
        for (a, b), points in part.edges.items():
            whole.edges[nodes[a], nodes[b]] = [(x + left, y) for x, y in points]
        whole.width = left + part.width
        whole.height = max(whole.height, part.height)
    return whole


def _components(n: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The nodes of each connected part, in order."""
    parent = list(range(n))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for a, b in edges:
        parent[find(b)] = find(a)
    parts: dict[int, list[int]] = {}
    for i in range(n):
        parts.setdefault(find(i), []).append(i)
    return list(parts.values())


def _layered(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    n = len(sizes)
    layers = _layers(n, edges)
    widths = [w for w, _ in sizes]
    chains: dict[tuple[int, int], list[int]] = {}
    links: list[tuple[int, int]] = []
    bends = sum(max(layers[b] - layers[a] - 1, 0) for a, b in edges)
    for a, b in edges:
        chain = [a]
        if bends <= _MAX_BENDS:
            for layer in range(layers[a] + 1, layers[b]):
                chain.append(len(layers))
                layers.append(layer)
                widths.append(2.0)
        chain.append(b)
        chains[a, b] = chain
        links.extend(pairwise(chain))
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    above: list[list[int]] = [[] for _ in layers]
    below: list[list[int]] = [[] for _ in layers]
    for a, b in links:
        above[b].append(a)
        below[a].append(b)
    _order(rows, above, below)
    x = _spread(rows, widths, above, below)
    heights = [max([sizes[i][1] for i in row if i < n], default=0.0) for row in rows]
    y, top = [], 0.0
    for height in heights:
        y.append(top + height / 2)
        top += height + GAP_Y
    points = [(x[i], y[layers[i]]) for i in range(len(layers))]
    drawn = {}
    for (a, b), chain in chains.items():
        start = (x[a], points[a][1] + sizes[a][1] / 2)
        end = (x[b], points[b][1] - sizes[b][1] / 2)
        drawn[a, b] = [start, *[points[i] for i in chain[1:-1]], end]
    left = min([x[i] - widths[i] / 2 for i in range(len(x))], default=0.0)
    right = max([x[i] + widths[i] / 2 for i in range(len(x))], default=0.0)
    moved = {e: [(px - left, py) for px, py in way] for e, way in drawn.items()}
    return Layout([(px - left, py) for px, py in points[:n]], moved, right - left, max(top - GAP_Y, 0.0))


def _layers(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return each node's layer: the longest path from a node without inputs; those are just above their first use."""
    layers = [0] * n
    inputs: list[list[int]] = [[] for _ in range(n)]
    outputs: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        inputs[b].append(a)
        outputs[a].append(b)
    for b in range(n):
        layers[b] = max([layers[a] + 1 for a in inputs[b]], default=0)
    for a in range(n):
        if not inputs[a] and outputs[a]:
            layers[a] = max(min(layers[b] for b in outputs[a]) - 1, 0)
    return layers


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    place = {i: float(k) for row in rows for k, i in enumerate(row)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            weight = {i: sum(place[j] for j in near[i]) / len(near[i]) if near[i] else place[i] for i in row}
            row.sort(key=weight.__getitem__)
            for k, i in enumerate(row):
                place[i] = float(k)


def _spread(
    rows: list[list[int]], widths: Sequence[float], above: list[list[int]], below: list[list[int]]
) -> list[float]:
    """Horizontal places: each node near the mean of its neighbours, in its row's order and without overlap."""
    x = [0.0] * len(widths)
    for row in rows:
        at = 0.0
        for i in row:
            x[i] = at + widths[i] / 2
            at += widths[i] + GAP_X
        for i in row:
            x[i] -= at / 2
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = []
            for i in row:
                near = (above[i] if down else below[i]) if sweep < 2 * _SWEEPS - 2 else above[i] + below[i]
                wanted.append(sum(x[j] for j in near) / len(near) if near else x[i])
            _settle(row, wanted, widths, x)
    return x


def _settle(row: list[int], wanted: list[float], widths: Sequence[float], x: list[float]) -> None:
    """Places as near to the wanted ones as the row's order allows, by least squares: overlapping blocks merge."""
    blocks: list[list[float]] = []  # [place of the first node, sum of wishes for it, number of nodes]
    offsets: list[float] = []
    offset = 0.0
    for k, i in enumerate(row):
        if k:
            offset += (widths[row[k - 1]] + widths[i]) / 2 + GAP_X
        offsets.append(offset)
        blocks.append([wanted[k] - offset, wanted[k] - offset, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            _, total, count = blocks.pop()
            blocks[-1][1] += total
            blocks[-1][2] += count
            blocks[-1][0] = blocks[-1][1] / blocks[-1][2]
    k = 0
    for start, _, count in blocks:
        for _ in range(int(count)):
            x[row[k]] = start + offsets[k]
            k += 1
