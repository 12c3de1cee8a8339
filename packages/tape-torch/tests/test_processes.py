"""Forked processes after PyTorch has computed with several threads: a child computes the same, and does not hang.

Each test is a program of its own, with two threads on any machine, and a time limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")

_PRELUDE = """
import multiprocessing, os, sys, warnings
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)  # the subject of these tests
import torch
torch.set_num_threads(2)
import tape_core as tc

x = tc.asarray(torch.linspace(-2, 2, 2_000_000))
w = tc.Variable(torch.ones(600, 600))

def large(x):
    return tc.mean(tc.tanh(x) * tc.exp(-x * x) + tc.sin(x) ** 2)

def product():
    with tc.GradientTape() as tape:
        y = tc.mean(w @ w)
    return tape.gradient(y, w)

def close(found, expected):
    return abs(found - expected) <= 1e-4 * (abs(expected) + 1)
"""


def run(program: str, seconds: int = 120) -> None:
    """Run a program, and check that it ends in time and without an error."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(program)],
        env=environment | {"TAPE_BACKEND": "torch"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "function",
    ["lambda: large(x).item()", "lambda: compiled(x).item()", "lambda: product()[0, 0].item()"],
    ids=["eager", "compiled", "products"],
)
def test_a_child_forked_after_a_call_with_threads_computes_the_same(function: str) -> None:
    run(f"""
        compiled = tc.function(large)
        call = {function}
        expected = [call() for _ in range(3)][-1]
        child = os.fork()
        if child == 0:
            os._exit(0 if close(call(), expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert close(call(), expected) and torch.get_num_threads() == 2
    """)


def test_a_pool_and_a_loader_of_forked_processes_compute_the_same() -> None:
    run("""
        compiled = tc.function(large)
        expected = [compiled(x + k).item() for k in range(4)]
        assert all(close(compiled(x + k).item(), expected[k]) for k in range(4))

        def work(k):
            return compiled(x + k).item()

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, k):
                return work(k)

        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert all(map(close, pool.map_async(work, range(4)).get(60), expected))
        loader = torch.utils.data.DataLoader(
            Data(), batch_size=2, num_workers=1, multiprocessing_context="fork", timeout=60
        )
        assert all(map(close, [value.item() for batch in loader for value in batch], expected))
    """)


def test_a_child_trains_with_one_thread() -> None:
    run("""
        import tape_nn as nn
        model, optimizer = nn.Sequential([nn.Dense(600), nn.Dense(1)]), nn.Adam(0.01)
        data = tc.asarray(torch.ones(500, 600))

        def step():
            with tc.GradientTape() as tape:
                loss = tc.mean((model(data) - 1.0) ** 2)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss.item()

        step()
        child = os.fork()
        if child == 0:
            losses = [step() for _ in range(20)]
            os._exit(0 if losses[-1] < losses[0] and torch.get_num_threads() == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
    """)
