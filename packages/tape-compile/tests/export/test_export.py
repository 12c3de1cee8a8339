"""Compiled functions as files that need the array library, and nothing of Tape."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import example, given, settings
from hypothesis import strategies as st

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


# -- what users call things is no code

HOSTILE = [
    'q"""; boom("x"); """', "'; boom(); '", "C:\\new\\x", "a\\N{x}", "a\\", '\\"""\nboom()\n"""', "x\nboom()\n",
    "\u2028    boom()", "\x0c\nboom()", "\x85    boom()", "\x1c    boom()", "\r    boom()", "# -*- coding: utf-7 -*-",
    "{boom()}", "%(boom())s", "\ud800", "\u202eboom()", "numpy", "operator", "tuple", "class", "__file__",
    "__builtins__", "__name__", "__debug__", "None", "\U0001d422\U0001d41f", "\ufb01", "\xb2", "", "_", "xp", "c0",
    "x0", "lambda: boom()", "\0boom()", "types", "functools", "os",
]  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(HOSTILE),
    st.lists(
        st.sampled_from(
            [*"'\"\\\n\r\f\v\t #;:,(){}[]%=", '"""', "boom()", "\u2028", "\x85", "\x1c", "\ud800", "\0", "N{x}"]
        ),
        max_size=8,
    ).map("".join),
    st.text(max_size=6),
)


@settings(max_examples=60)
@given(name=NAMES, variable=NAMES, comment=NAMES, key=NAMES)
@example(name=HOSTILE[0], variable=HOSTILE[0], comment="see\u2028    boom()", key=HOSTILE[0])
@example(name="numpy", variable="numpy", comment="\x0c    boom()", key="numpy")
def test_names_and_comments_are_text_in_exported_files(
    tmp_path_factory: pytest.TempPathFactory, name: str, variable: str, comment: str, key: str
) -> None:
    folder = tmp_path_factory.mktemp("exported")
    comment = (
        comment.replace("\n", "\\").replace("\r", "\\").replace("\0", "").encode("utf-8", "ignore").decode("utf-8")
    )
    user = folder / "user.py"
    # Python itself ends a line at "\n" and "\r" alone.
    user.write_text(f"def f(x):\n    out = tc.sin(x['given'] * w) ** 2 ** 2 + k  # {comment}\n    w.assign(out)\n"
                    f"    return {{KEY: out}}\n", encoding="utf-8", newline="")  # fmt: skip
    w = tc.Variable(tc.linspace(0, 1, 3), name=variable)
    names: dict[str, Any] = {"tc": tc, "w": w, "KEY": key, "k": tc.asarray([1.0, 2.0, 3.0])}
    exec(compile(user.read_text(encoding="utf-8"), str(user), "exec"), names)
    names["f"].__name__ = name
    f = tc.function(names["f"])
    x = tc.asarray([0.5, 1.0, 2.0])
    f({"given": x})
    before = w.value
    f.export(folder / "alone.py")
    found = ast.parse((folder / "alone.py").read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(found) if isinstance(node, ast.Call)}
    assert not {name for name in called if "boom" in name}
    here = sorted(os.listdir(folder))
    alone: dict[str, Any] = {"__file__": str(folder / "alone.py")}
    exec(compile(found, "alone.py", "exec"), alone)
    (own,) = [node.name for node in found.body[-1:] if isinstance(node, ast.FunctionDef)]
    for result, expected in zip(alone[own](*[a._array for a in (x, before)]), [f({"given": x})[key], w], strict=True):
        assert np.asarray(result).tobytes() == expected.numpy().tobytes()
    assert sorted(os.listdir(folder)) == here


def test_the_name_of_the_users_file_is_text(tmp_path: Path) -> None:
    user = tmp_path / "user\u2028    boom()\x0c.py"
    user.write_text("def f(x):\n    return tc.sin(x) * 2\n", encoding="utf-8")
    names: dict[str, Any] = {"tc": tc}
    exec(compile(user.read_text(encoding="utf-8"), str(user), "exec"), names)
    f = tc.function(names["f"])
    f(tc.ones(3))
    f.export(tmp_path / "alone.py")
    text = (tmp_path / "alone.py").read_text(encoding="utf-8")
    assert not any(line.strip().startswith("boom") for line in text.splitlines())


@pytest.mark.parametrize("constants", ["inline", "npz"])
@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_full_disk_keeps_the_files_that_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constants: Any, fails_at: int
) -> None:
    table = tc.linspace(0, 1, 200)
    f = tc.function(lambda x: tc.sin(x) * table)
    f(tc.ones(200))
    f.export(tmp_path / "f.py", constants=constants)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    calls = []
    sync = os.fsync

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(number)

    g = tc.function(lambda x: tc.cos(x) + table)
    g(tc.ones(200))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        if len(before) < fails_at:
            return
        with pytest.raises(OSError, match="No space left") as caught:
            g.export(tmp_path / "f.py", constants=constants)
    assert caught.value.filename is not None
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
