"""What comes again and again in a compiled function, as the turns of a loop of Python's, is written once."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_compile import thresholds


def parts(f: Any) -> list[str]:
    """The names of the functions that are written once."""
    return re.findall(r"^def (\w*_part\w*)\(", f.text(), flags=re.MULTILINE)


def test_the_turns_of_a_loop_are_one_function() -> None:
    def last(h: Any, w: Any) -> Any:
        for _ in range(60):
            a, b = tc.split(tc.tanh(h * w + 0.5), 2)
            h = tc.concat([tc.sin(a) * b, a - b])
        return tc.sum(h)

    def f(h: Any, w: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch([h, w])
            y = last(h, w)
        return (y, *tape.gradient(y, [h, w]))

    compiled = tc.function(f)
    for seed in range(3):
        h, w = (tc.default_rng(seed + k).normal((6,)) for k in range(2))
        for found, expected in zip(compiled(h, w), f(h, w), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()
    assert len(parts(compiled)) >= 2  # there and back
    assert compiled.text().count("\n") < 250
    assert compiled.text().count("tanh(") < 10
    assert compiled.stats()[0]["dce"] > 900


def test_values_that_differ_from_turn_to_turn_are_given() -> None:
    def f(x: Any) -> Any:
        for k in range(200):
            x = (
                tc.sin(x * (0.0 if k % 2 else -0.0))
                + x * float(k % 2)
                + (k % 7 if k % 3 else 1.0)
                + (True if k % 5 else 1)
            )
            x = tc.tanh(x)
        return x

    compiled = tc.function(f)
    x = tc.default_rng(0).normal((3,))
    for _ in range(2):
        assert compiled(x).numpy().tobytes() == f(x).numpy().tobytes()

    def g(xs: Any) -> Any:
        h = xs[0]
        for t in range(100):
            h = tc.tanh(h * xs[t, 1:3] + xs[t, t % 2 : t % 2 + 1]) + xs[-t]
        return h

    compiled = tc.function(g)
    xs = tc.default_rng(0).normal((100, 2))
    for _ in range(2):
        assert compiled(xs).numpy().tobytes() == g(xs).numpy().tobytes()
    assert parts(compiled)


STEPS: list[Callable[[list[Any], random.Random], Any]] = [
    lambda xs, draw: tc.tanh(draw.choice(xs)) * draw.choice(xs) + 0.25,
    lambda xs, draw: tc.sin(draw.choice(xs)) - draw.choice(xs),
    lambda xs, draw: tc.where(draw.choice(xs) > 0.0, draw.choice(xs), -draw.choice(xs)),
    lambda xs, draw: tc.concat(tc.split(tc.tanh(draw.choice(xs)), 2)[::-1]),
    lambda xs, draw: draw.choice(xs)[::-1],
    lambda xs, draw: draw.choice([0.5, 2.0, -0.0, 1]) * draw.choice(xs),
]


@pytest.mark.parametrize("seed", range(60))
def test_any_function_gives_what_it_gives_in_one_line(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Turns that are alike, nearly alike, and alike but for which values they are given.
    monkeypatch.setattr(thresholds, "OUTLINE_MIN_PROGRAM", 0)
    monkeypatch.setattr(thresholds, "OUTLINE_MIN_STRETCH", 2 + seed % 5)
    if seed % 2:
        monkeypatch.setattr(thresholds, "RECYCLE_NAMES_MIN_PROGRAM", 0)
    choose = random.Random(seed)
    plans = [choose.random() for _ in range(2)]
    turns = [(choose.choice(plans), choose.randrange(2, 7), choose.random() < 0.2) for _ in range(12)]

    def f(*xs: Any) -> Any:
        known = list(xs)
        for plan, steps, other in turns:
            draw = random.Random(plan)
            for _ in range(steps):
                known.append(draw.choice(STEPS)(known[-4:], draw))
            if other:
                known[-2:] = [known[-1], known[-2]]
        return known[-1], known[-5], known[len(known) // 2]

    def slopes(*xs: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(list(xs))
            y = tc.sum(tc.stack(f(*xs)))
        return tape.gradient(y, list(xs))

    xs = [tc.default_rng(seed + k).normal((4,)) for k in range(3)]
    for function in (f, slopes):
        compiled = tc.function(function)
        for _ in range(2):
            for found, expected in zip(compiled(*xs), function(*xs), strict=True):
                assert (found is None) is (expected is None)
                assert found is None or found.numpy().tobytes() == expected.numpy().tobytes()


def test_variables_random_numbers_and_large_arrays() -> None:
    v, n = tc.Variable(tc.ones(3)), 100

    def walk(x: Any) -> Any:
        for _ in range(n):
            x = tc.sin(x) * v + tc.cos(x)
            v.assign_add(x * 0.01)
        return x

    compiled = tc.function(walk)
    x = tc.asarray([0.5, -1.0, 2.0])
    found = [compiled(x).numpy(), compiled(x).numpy(), v.numpy()]
    v.assign(tc.ones(3))
    expected = [walk(x).numpy(), walk(x).numpy(), v.numpy()]
    assert [a.tobytes() for a in found] == [b.tobytes() for b in expected]
    assert parts(compiled)

    def long(x: Any) -> Any:
        for _ in range(n):
            x = tc.sin(x) * 0.5 + tc.cos(x)
        return x

    large = tc.function(long)
    large(tc.ones(3))
    assert parts(large)
    large = tc.function(long)
    large(tc.ones((1 << 12, 3)))
    assert not parts(large)  # what a function is given lives until it returns

    def drawn(x: Any) -> Any:
        for _ in range(n):
            x = tc.sin(x) + tc.random.global_rng().normal((3,)) * tc.cos(x)
        return x

    results = []
    for f in (drawn, tc.function(drawn)):
        tc.set_seed(0)
        results.append([f(x).numpy().tobytes() for _ in range(2)])
    assert results[0] == results[1]


def test_an_error_names_the_line_in_the_function() -> None:
    def f(x: Any, labels: Any) -> Any:
        for k in range(60):
            x = tc.sin(x) + tc.cos(x) * 2.0 - tc.take(x, labels[k])
        return x

    compiled = tc.function(f)
    x, labels = tc.ones(3), tc.zeros(60, dtype="int64")
    compiled(x, labels)
    with pytest.raises(IndexError) as caught:
        compiled(x, labels + 7)
    shown = "".join(traceback.format_exception(caught.value))
    assert "f_part" in shown
    assert "take" in shown


@pytest.mark.skipif(tc.get_backend().name != "numpy", reason="once is enough")
def test_a_file_has_the_functions_too(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in range(100):
                y = tc.tanh(y * x) + tc.sin(y) * 0.5
            y = tc.sum(y)
        return y, tape.gradient(y, x)

    compiled = tc.function(f)
    x = tc.asarray(np.random.default_rng(0).normal(size=4))
    expected = [a.numpy().tobytes().hex() for a in compiled(x)]
    compiled.export(tmp_path / "exported.py")
    assert "def f_part(" in (tmp_path / "exported.py").read_text()
    code = (
        "import numpy, sys; from exported import f; "
        f"found = f(numpy.frombuffer(bytes.fromhex('{x.numpy().tobytes().hex()}'))); "
        "assert 'tape_core' not in sys.modules; print(*[numpy.asarray(a).tobytes().hex() for a in found])"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == expected
