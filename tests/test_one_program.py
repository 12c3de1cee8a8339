"""Programs that start from NumPy's data and name no backend: the selection is the only difference between two runs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

OTHERS = [name for name in ("torch", "jax") if find_spec(f"tape_{name}") is not None]
"""The backends beside NumPy that are installed."""

pytestmark = [
    pytest.mark.each_backend,
    pytest.mark.skipif(not OTHERS, reason="neither tape-torch nor tape-jax is installed"),
]

TRANSFORMER = """
import numpy as np, tape_core as tc, tape_nn as nn

tc.set_seed(1)
rng = np.random.default_rng(0)
tokens = rng.integers(0, 11, size=(40, 9))

class Block(nn.Module):
    def __init__(self):
        self.what, self.where = nn.Embedding(11, 16), nn.Embedding(8, 16)
        self.attention, self.norm = nn.MultiHeadAttention(2, 8), nn.LayerNorm()
        self.out = nn.Dense(11)
    def __call__(self, ids):
        x = self.what(ids) + self.where(tc.arange(ids.shape[1]))
        x = x + self.attention(self.norm(x), self.norm(x), use_causal_mask=True) * (1 / np.sqrt(16, dtype=np.float32))
        return self.out(x)

model, optimizer = Block(), nn.Adam(0.01)
def step(ids):
    with tc.GradientTape() as tape:
        loss = tc.mean(tc.cross_entropy(model(ids[:, :-1]), ids[:, 1:]))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss
run = tc.function(step) if compiled else step
for k in range(6):
    losses.append(run(tc.asarray(tokens[k::6])).item())
places = {v.backend.name for v in model.variables}
"""

GAUSSIAN_PROCESS = """
import numpy as np, tape_core as tc
from scipy.optimize import minimize

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, 25))
y = np.sin(X) + 0.1 * rng.normal(size=25)
squares = (X[:, None] - X) ** 2

def loss(p):
    k = tc.exp(p["amplitude"]) * tc.exp(-0.5 * squares / tc.exp(p["length"])) + np.eye(25) * tc.exp(p["noise"])
    factor = tc.linalg.cholesky(k)
    z = tc.linalg.solve_triangular(factor, y[:, None], lower=True)
    return 0.5 * tc.sum(z**2) + tc.sum(tc.log(tc.linalg.diagonal(factor)))

start = {"amplitude": np.zeros(()), "length": np.zeros(()), "noise": np.full((), -2.0)}
fun, x0, restore = tc.scipy_objective(tc.function(loss) if compiled else loss, start)
found = minimize(fun, x0, jac=True, method="L-BFGS-B", options={"maxiter": 15})
losses += [float(found.fun), *found.x.tolist()]
hessian = tc.hessian(lambda v: loss(dict(zip(start, tc.unstack(v)))))(found.x)
losses += [float(v) for v in hessian.numpy().ravel()]
places = {x.backend.name for x in [hessian, *restore(found.x).values()]}
"""

FITTED = """
import numpy as np, tape_core as tc, tape_nn as nn

tc.set_seed(2)
rng = np.random.default_rng(0)
x = rng.normal(size=(70, 4)).astype(np.float32)
y = (x.sum(axis=1, keepdims=True) > 0).astype(np.float32)
model = nn.Sequential([nn.Dense(8, activation="tanh"), nn.BatchNorm(), nn.Dense(1)])
history = nn.fit(model, (x, y), loss=nn.losses.BinaryCrossentropy(from_logits=True), optimizer=nn.Adam(0.05), epochs=3,
                 validation=(x, y), progress=False, seed=3)
losses += history["loss"] + history["val_loss"]
model.eval()
mean, spread = x.mean(axis=0), x.std(axis=0)
per_example = tc.vmap(tc.grad(lambda row: tc.sum(model(((row - mean) / spread)[None]))))(x[:5])
losses += [float(v) for v in per_example.numpy().ravel()]
places = {v.backend.name for v in [*model.variables, per_example]}
"""


LONG = [pytest.mark.long_on_jax, pytest.mark.long_on_torch]


def run(program: str, backend: str, *, compiled: bool) -> list[float]:
    """Run a program in a process of its own, where `TAPE_BACKEND` is all that says where."""
    script = f"compiled, losses = {compiled}, []\n{program}\nassert places == {{{backend!r}}}, places\nprint(losses)"
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "TAPE_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return [float(number) for number in found.stdout.strip(" []\n").split(",")]


@pytest.mark.parametrize(
    ("program", "rtol"),
    [
        pytest.param(TRANSFORMER, 1e-3, id="transformer", marks=LONG),
        pytest.param(GAUSSIAN_PROCESS, 1e-4, id="gaussian_process", marks=LONG),
        pytest.param(FITTED, 1e-3, id="fitted"),
    ],
)
def test_the_selection_is_the_only_difference(program: str, rtol: float) -> None:
    if program is GAUSSIAN_PROCESS:
        pytest.importorskip("scipy")
    expected = run(program, "numpy", compiled=False)
    for backend, compiled in [*((name, c) for name in OTHERS for c in (False, True)), ("numpy", True)]:
        assert np.allclose(run(program, backend, compiled=compiled), expected, rtol=rtol, atol=rtol), (
            backend,
            compiled,
        )
