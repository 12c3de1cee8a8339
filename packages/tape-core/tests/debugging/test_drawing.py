"""tape.draw(), tape.summary(), and how a tape shows itself."""

from __future__ import annotations

import gc
import shutil
import time
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.debugging.drawing.layout import layout

SVG = "{http://www.w3.org/2000/svg}"


def layer(h: Any, w: Any) -> Any:
    return tc.tanh(h @ w)


def recorded(*, persistent: bool = False, debug: bool = False) -> Any:
    x, w = tc.asarray([[1.0, 2.0]]), tc.Variable([[1.0, 2.0], [3.0, 4.0]], name="w<1>")
    with tc.GradientTape(persistent=persistent, debug=debug) as tape:
        tape.watch(x)
        y = tc.sum(layer(layer(x, w), w))
    return tape, y, x, w


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(svg).iter(f"{SVG}text")]


# -- pictures


@pytest.mark.parametrize("debug", [False, True])
def test_each_op_is_a_node_with_shape_and_dtype(debug: bool) -> None:
    tape, *_ = recorded(debug=debug)
    drawing = tape.draw(engine="plain")
    found = texts(drawing.svg)
    assert sorted(t for t in found if t in ("matmul", "tanh", "sum", "w<1>", "watched")) == [
        "matmul", "matmul", "sum", "tanh", "tanh", "w<1>", "watched",
    ]  # fmt: skip
    assert found.count("float32[1, 2]") == 5, "the watched tensor and four results"
    assert "float32[2, 2]" in found
    assert any("µs" in t or "ns" in t or " ms" in t for t in found) is debug
    assert any(" 8 B" in t for t in found) is debug
    titles = [node.text or "" for node in ET.fromstring(drawing.svg).iter(f"{SVG}title")]
    assert any(f'File "{__file__}"' in t and "inside layer" in t for t in titles) is debug


def test_edges_run_downwards_and_nothing_overlaps() -> None:
    tape, *_ = recorded()
    root = ET.fromstring(tape.draw(engine="plain").svg)
    boxes = []
    for group in root.iter(f"{SVG}g"):
        rects = group.findall(f"{SVG}rect")
        boxes += [tuple(float(rect.get(k, "0")) for k in ("x", "y", "width", "height")) for rect in rects]
    assert len(boxes) == 7
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(x >= -12 and x + w <= width and y >= -12 and y + h <= height for x, y, w, h in boxes)


@pytest.mark.parametrize("seed", range(5))
def test_layouts_of_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    edges = sorted({(int(a), int(b)) for a, b in rng.integers(0, n, (2 * n, 2)) if a < b})
    sizes = [(float(w), float(h)) for w, h in rng.uniform(20, 200, (n, 2))]
    found = layout(sizes, edges)
    assert set(found.edges) == set(edges)
    for a, b in edges:
        points = found.edges[a, b]
        assert points[0] == pytest.approx((found.places[a][0], found.places[a][1] + sizes[a][1] / 2))
        assert points[-1] == pytest.approx((found.places[b][0], found.places[b][1] - sizes[b][1] / 2))
        assert all(p[1] < q[1] for p, q in pairwise(points)), "downwards"
    for i, (x, y) in enumerate(found.places):
        assert x - sizes[i][0] / 2 >= -1e-6
        assert x + sizes[i][0] / 2 <= found.width + 1e-6
        for j, (x2, y2) in enumerate(found.places[:i]):
            apart = abs(x - x2) * 2 >= sizes[i][0] + sizes[j][0] - 1e-6
            assert apart or abs(y - y2) * 2 >= sizes[i][1] + sizes[j][1] - 1e-6


def test_dot_has_the_same_nodes_and_edges() -> None:
    tape, *_ = recorded(debug=True)
    dot = tape.draw().dot
    assert dot.startswith("digraph")
    assert dot.count(" -> ") == 7
    assert dot.count("label=") == 7
    assert 'label="w<1>\\nfloat32[2, 2]"' in dot
    assert dot.count('\\"') % 2 == 0


@pytest.mark.parametrize("suffix", ["svg", "dot", "gv"])
def test_it_is_written_to_a_file(tmp_path: Path, suffix: str) -> None:
    tape, *_ = recorded()
    drawing = tape.draw(tmp_path / f"tape.{suffix}", engine="plain")
    text = (tmp_path / f"tape.{suffix}").read_text(encoding="utf-8")
    assert text == (drawing.svg if suffix == "svg" else drawing.dot)
    assert drawing._repr_svg_() == drawing.svg


def test_functions_collapse_to_one_node_a_call() -> None:
    tape, *_ = recorded(debug=True)
    for collapse in (True, "layer", ["layer"]):
        found = texts(tape.draw(collapse=collapse, engine="plain").svg)
        assert found.count("layer") == 2, "two calls"
        assert found.count("2 ops: matmul ×1, tanh ×1") == 2
        assert "sum" in found
        assert "tanh" not in found
    assert "tanh" in texts(tape.draw(collapse=["other"], engine="plain").svg)


def test_nested_functions_collapse_to_the_outermost_named() -> None:
    v = tc.Variable([1.0, 2.0])

    def inner(h: Any) -> Any:
        return tc.sin(h) * v

    def block(h: Any) -> Any:
        return tc.exp(inner(h))

    with tc.GradientTape(debug=True) as tape:
        y = v
        for _ in range(3):
            y = block(y)
    assert texts(tape.draw(collapse=True, engine="plain").svg).count("block") == 3, "each turn of a loop"
    found = texts(tape.draw(collapse="inner", engine="plain").svg)
    assert (found.count("inner"), found.count("exp"), found.count("block")) == (3, 3, 0)


def test_a_generator_is_one_node_each_time_it_runs() -> None:
    v = tc.Variable(1.0)

    def turns() -> Any:
        h = yield tc.sin(v)
        while True:
            h = yield tc.sin(h)

    with tc.GradientTape(debug=True) as tape:
        generator = turns()
        y = next(generator)
        for _ in range(3):
            y = generator.send(y * 2.0)
    found = texts(tape.draw(collapse=True, engine="plain").svg)
    assert (found.count("turns"), found.count("multiply")) == (4, 3)


def test_a_large_graph_says_what_is_left_out_and_is_fast() -> None:
    v = tc.Variable(1.01)
    with tc.GradientTape() as tape:
        y: Any = v
        for k in range(10_000):
            y = tc.sin(y * v) if k % 2 else y * 1.01
    gc.collect()
    start = time.process_time()
    drawing = tape.draw(engine="plain")
    found = texts(drawing.svg)
    assert time.process_time() - start < 10, "some tenths of a second; this is for slow machines"
    assert "14,602 more ops" in found
    assert "multiply ×9,735, sin ×4,867" in found or any("multiply ×9,7" in t for t in found)
    assert drawing.dot.count("label=") == 400
    few = texts(tape.draw(max_nodes=5, engine="plain").svg)
    assert "14,997 more ops" in few or "14,996 more ops" in few


def test_what_draw_refuses() -> None:
    tape, *_ = recorded()
    with pytest.raises(ValueError, match=r"path must end in \.svg, \.dot or \.gv, got 'tape\.png'"):
        tape.draw("tape.png")
    with pytest.raises(
        ValueError, match=r"collapse needs a tape that knows your functions: GradientTape\(debug=True\)"
    ):
        tape.draw(collapse=True)
    with pytest.raises(ValueError, match="engine must be 'graphviz', 'plain' or None, got 'neato'"):
        tape.draw(engine="neato")
    with pytest.raises(ValueError, match="max_nodes must be an int of at least 3, got 2"):
        tape.draw(max_nodes=2)


def test_graphviz_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tape, *_ = recorded()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert tape.draw().svg == tape.draw(engine="plain").svg
    with pytest.raises(RuntimeError, match="engine='graphviz' needs Graphviz's program 'dot' on the PATH"):
        _ = tape.draw(engine="graphviz").svg
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\nread first\necho "<?xml?>"\necho "<svg>$first</svg>"\n')
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(program))
    assert tape.draw().svg == "<svg>digraph tape {</svg>\n"
    program.write_text("#!/bin/sh\nexit 1\n")
    assert tape.draw().svg == tape.draw(engine="plain").svg, "it fails: do without"
    with pytest.raises(RuntimeError, match="failed"):
        _ = tape.draw(engine="graphviz").svg


# -- the table


@pytest.mark.parametrize("debug", [False, True])
def test_the_summary_counts_ops_and_bytes(debug: bool) -> None:
    tape, y, _, w = recorded(persistent=True, debug=debug)
    found = tape.summary()
    assert {row.op: row.count for row in found.rows} == {"matmul": 2, "tanh": 2, "sum": 1}
    assert found.total.count == 5
    kept = {row.op: row.bytes for row in found.rows}
    # The products keep their inputs: x (8), w (16), and the second the result of the first tanh (8), which tanh keeps.
    assert found.total.bytes == sum(kept.values()) == 8 + 16 + 8 + 8
    assert kept["sum"] == 0
    assert (found.total.forward is not None) is debug
    assert "total" in str(found)
    assert str(found).count("\n") == 7
    assert ("debug=True" in str(found)) is not debug
    tape.gradient(y, w)
    if debug:
        again = tape.summary()
        assert all(row.forward > 0 and row.backward > 0 for row in again.rows)
        costs = [row.forward + row.backward for row in again.rows]
        assert costs == sorted(costs, reverse=True)
        assert again.total.backward == pytest.approx(sum(row.backward for row in again.rows))


def test_bytes_of_shared_arrays_count_once_and_views_count_what_they_hold() -> None:
    x = tc.Variable(tc.ones((100,)))
    with tc.GradientTape() as tape:
        y = tc.exp(x)
        u = tc.reshape(y, (10, 10))
        z = tc.sum(u * u) + tc.sum(y * y)
    assert tape.summary().total.bytes == 400, "one array of 100 float32, kept by three ops"
    assert z.shape == ()


def test_the_summary_after_the_only_gradient() -> None:
    tape, y, _, w = recorded(debug=True)
    tape.gradient(y, w)
    assert tape.summary().total.count == 5
    assert tape.summary().total.backward > 0
    tape, y, _, w = recorded()
    tape.gradient(y, w)
    assert tape.summary().rows == ()
    assert "persistent=True or debug=True keeps what it recorded" in str(tape.summary())
    assert tape.draw().svg.startswith("<svg")


def test_the_table_in_html() -> None:
    tape, *_ = recorded(debug=True)
    html = ET.fromstring(f"<div>{tape.summary()._repr_html_()}</div>")
    heads = [node.text for node in html.iter("th")]
    assert heads[:5] == ["op", "count", "forward", "backward", "bytes kept"]
    assert [node.text for node in html.iter("td")][::5] != []


# -- the tape itself


def test_a_tape_says_what_state_it_is_in() -> None:
    tape = tc.GradientTape()
    assert repr(tape) == "<GradientTape: not recording, 0 ops>"
    tape, y, _, w = recorded(persistent=True)
    assert repr(tape) == "<GradientTape: not recording, persistent, 5 ops, watches w<1>, 1 Tensor>"
    with tape:
        assert repr(tape).startswith("<GradientTape: recording, persistent")
    tape, y, _, w = recorded(debug=True)
    tape.gradient(y, w)
    assert repr(tape) == "<GradientTape: used, debug, 5 ops, watches w<1>, 1 Tensor>"
    assert "check_numerics" in repr(tc.GradientTape(check_numerics=True))


def test_a_tape_shows_itself_in_notebooks() -> None:
    tape, *_ = recorded()
    html = tape._repr_html_()
    root = ET.fromstring(html)
    assert "w<1>" in "".join(root.itertext())
    assert root.find("table") is not None
    assert root.find(f"{SVG}svg") is not None, "small enough to draw"
    v = tc.Variable(1.0)
    with tc.GradientTape() as tape:
        y: Any = v
        for _ in range(100):
            y = y * v
    root = ET.fromstring(tape._repr_html_())
    assert root.find("table") is not None
    assert root.find(f"{SVG}svg") is None
