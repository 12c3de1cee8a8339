"""Compiled functions as files that need the array library, and nothing of Tape."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc

ALONE = """\
import importlib.util, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].startswith("tape_"):
            raise ImportError(f"{name} must not be needed")
sys.meta_path.insert(0, Refuse())
import numpy as np
spec = importlib.util.spec_from_file_location("alone", sys.argv[1])
alone = importlib.util.module_from_spec(spec)
spec.loader.exec_module(alone)
given = np.load(sys.argv[2])
arrays = [given[name] for name in given.files]
if sys.argv[4] == "torch":
    import torch
    arrays = [torch.from_numpy(a) for a in arrays]
np.savez(sys.argv[3], *[np.asarray(out) for out in getattr(alone, sys.argv[5])(*arrays)])
"""


def run_alone(folder: Path, name: str, *arrays: Any) -> list[Any]:
    """What the function of the exported file gives in an interpreter that has no Tape."""
    np.savez(folder / "in.npz", *[a.numpy() for a in arrays])
    backend = tc.get_backend().name
    command = [sys.executable, "-c", ALONE, *(str(folder / n) for n in ("f.py", "in.npz", "out.npz")), backend, name]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert result.returncode == 0, result.stderr
    found = np.load(folder / "out.npz")
    return [found[n] for n in found.files]


def test_a_training_step_runs_alone(tmp_path: Path) -> None:
    w = tc.Variable(tc.default_rng(0).normal((3, 4)), name="kernel")
    table = tc.linspace(0, 1, 4)
    labels = tc.asarray([0, 3])

    @tc.function
    def train(x: Any) -> Any:
        with tc.GradientTape() as tape:
            z = tc.gelu(tc.softmax(x @ w) * table) + tc.sin(x[:, :1])
            loss = tc.mean(tc.cross_entropy(z, labels)) + tc.sum(tc.softplus(w * w))
        w.assign_sub(0.5 * tape.gradient(loss, w))
        return loss, {"z": z}

    x = tc.default_rng(1).normal((2, 3))
    train(x)
    before = w.value
    train.export(tmp_path / "f.py")
    loss, more = train(x)
    found = run_alone(tmp_path, "train", x, before)
    for array, expected in zip(found, (loss, more["z"], w.value), strict=True):
        assert array.tobytes() == expected.numpy().tobytes()
    text = (tmp_path / "f.py").read_text(encoding="utf-8")
    assert "tape_" not in text.replace("Written by tape_core", "").partition("def train(")[0]
    assert "kernel: a Variable, " in text
    assert "the new value of kernel of shape (3, 4)" in text
    assert "# test_export.py:" in text


def test_kernels_that_others_find_by_name_are_in_the_file(tmp_path: Path) -> None:
    @tc.function
    def f(a: Any, b: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch([a, b])
            y = tc.linalg.solve(a, b) + tc.digamma(1 + b * b)
            loss = tc.sum(y) + tc.sum(tc.gelu(a)) + tc.logsumexp(b[0]) + tc.sum(tc.expand_dims(b, axis=(0, 2)))
        return loss, tape.gradient(loss, [a, b])

    a, b = tc.eye(3) * 2 + 0.1, tc.ones(3)
    expected = [f(a, b)[0], *f(a, b)[1]]
    f.export(tmp_path / "f.py")
    for found, e in zip(run_alone(tmp_path, "f", a, b), expected, strict=True):
        assert found.tobytes() == e.numpy().tobytes()


def test_gradients_of_slices_run_alone(tmp_path: Path) -> None:
    @tc.function
    def f(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            a, b = tc.split(tc.sigmoid(x[0]) * x[1], 2)
            loss = tc.sum(a * tc.tanh(b)) + tc.sum(x[1] ** 2)
        return tape.gradient(loss, x)

    x = tc.default_rng(0).normal((2, 6))
    expected = f(x)
    f.export(tmp_path / "f.py")
    (found,) = run_alone(tmp_path, "f", x)
    assert found.tobytes() == expected.numpy().tobytes()
    assert "joined(" in f.text()
    assert "placed(" in f.text()


def test_a_result_that_is_the_same_in_each_call_runs_alone(tmp_path: Path) -> None:
    f = tc.function(lambda x: tc.arange(x.shape[0]))
    f(tc.ones(3))
    f.export(tmp_path / "f.py")
    source = (tmp_path / "f.py").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(source.replace("<lambda>", "f"), "f.py", "exec"), names)
    (found,) = names["_lambda_"](None)
    assert found.tolist() == [0, 1, 2]


def test_branches_and_loops_run_alone_with_their_gradients(tmp_path: Path) -> None:
    w = tc.Variable(tc.default_rng(5).normal((3, 3)), name="w")

    @tc.function
    def slope(b: Any, x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(b)
            h, _ = tc.scan(lambda h, e: (tc.tanh(h @ w + e * b), None), tc.zeros(3), x, reverse=True)
            total = tc.cond(h[0] > 0, lambda: tc.sum(h), lambda: tc.map(tc.cos, h * b)[0]) ** 2
            last, _ = tc.while_loop(lambda c: c[1] < 20, lambda c: (c[0] * 1.5 + b, c[1] + tc.sum(b)), (h, total))
            loss = tc.sum(last) + total
        w.assign(w * 0.5)
        return loss, tape.gradient(loss, b)

    x, b = tc.default_rng(0).normal((4, 3)), tc.ones(3)
    slope(b, x)
    slope.export(tmp_path / "f.py")
    for sign in (1, -1):  # each branch, and other numbers of steps
        before = w.value
        found = run_alone(tmp_path, "slope", b * (1 + 0.1 * sign), x * sign, before)
        expected = [*slope(b * (1 + 0.1 * sign), x * sign), w.value]
        for f, e in zip(found, expected, strict=True):
            assert f.tobytes() == e.numpy().tobytes()
    assert slope.traces == 1


def test_variables_and_constants_go_into_the_file_or_beside_it(tmp_path: Path) -> None:
    w = tc.Variable(tc.default_rng(5).normal((20, 20)), name="w")
    table = tc.linspace(0, 1, 200)

    @tc.function
    def f(x: Any) -> Any:
        return tc.map(lambda row: tc.sum(tc.tanh(row @ w)) * table, x)

    xs = [tc.default_rng(k).normal((3 + k, 20)) for k in range(2)]
    for x in xs:  # the second one is for what was not called yet
        for constants in ("inline", "npz"):
            f.export(tmp_path / "f.py", x, constants=constants, variables="constants")
            assert (tmp_path / "f.npz").exists() is (constants == "npz")
            (found,) = run_alone(tmp_path, "f", x)
            assert found.tobytes() == f(x).numpy().tobytes()
        (tmp_path / "f.npz").unlink()
    assert f.traces == 2
    g = tc.function(lambda: w.assign(w * 2).value)
    g()
    with pytest.raises(ValueError, match=r"assigns to w of shape .* cannot be a constant"):
        g.export(tmp_path / "g.py", variables="constants")
    with pytest.raises(ValueError, match="constants must be 'inline' or 'npz', got 'x'"):
        f.export(tmp_path / "g.py", constants="x")


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    f = tc.function(lambda x: tc.dropout(x, 0.5))
    with pytest.raises(RuntimeError, match="was not traced yet"):
        f.export(tmp_path / "f.py")
    f(tc.ones(3))
    with pytest.raises(ValueError, match=r"calls random_bits.*draw random numbers outside"):
        f.export(tmp_path / "f.py")
    g = tc.function(lambda x: tc.map(lambda e: tc.dropout(e, 0.5), x))
    g(tc.ones((2, 3)))
    with pytest.raises(ValueError, match=r"calls scan.*draw random numbers outside"):
        g.export(tmp_path / "f.py")
    assert not (tmp_path / "f.py").exists()
