"""A Gaussian process, its hyperparameters found by SciPy with gradients from the tape.

python docs/examples/gaussian_process.py                       # seconds
TAPE_BACKEND=torch python docs/examples/gaussian_process.py    # the same on PyTorch
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import tape_core as tc
from matplotlib.figure import Figure
from scipy.optimize import minimize

parser = argparse.ArgumentParser(description="Fit a Gaussian process with scipy.optimize.")
parser.add_argument("--points", type=int, default=120, help="how many measurements there are")
parser.add_argument("--seed", type=int, default=0, help="decides the measurements")
parser.add_argument("--quick", action="store_true", help="only a few measurements")
parser.add_argument("--out", type=Path, default=Path("gaussian_process.png"), help="where the picture goes")
args = parser.parse_args()

# Measurements of a curve, with noise, and a gap: what is there, and how sure can one be?
rng = tc.default_rng(args.seed)
points = 40 if args.quick else args.points
x = rng.uniform((points,), low=0.0, high=10.0, dtype=tc.float64)
x = tc.where((x > 5.0) & (x < 7.0), x - 4.0, x)
NOISE = 0.15


def curve(x: tc.Tensor) -> tc.Tensor:
    """What the process is to find, which it is not told."""
    return tc.sin(2.0 * x) * tc.exp(-0.1 * x) + 0.2 * x


y = curve(x) + rng.normal((points,), stddev=NOISE, dtype=tc.float64)

# The logarithms of what is looked for: they may be any number, the things themselves are positive.
start = {"amplitude": 0.0, "length": 1.0, "noise": 0.0}
start = {name: tc.asarray(value, dtype=tc.float64) for name, value in start.items()}


def covariance(p: dict[str, tc.Tensor], a: tc.Tensor, b: tc.Tensor) -> tc.Tensor:
    """Values of the curve are the more alike the nearer they are: the squared exponential kernel."""
    distance = (a[:, None] - b) / tc.exp(p["length"])
    return tc.exp(2.0 * p["amplitude"]) * tc.exp(-0.5 * distance * distance)


def factor(p: dict[str, tc.Tensor]) -> tc.Tensor:
    """The Cholesky factor of the covariance of the measurements."""
    return tc.linalg.cholesky(covariance(p, x, x) + tc.exp(2.0 * p["noise"]) * tc.eye(points, dtype=tc.float64))


def misfit(p: dict[str, tc.Tensor]) -> tc.Tensor:
    """Minus the logarithm of the likelihood of the measurements (Rasmussen and Williams, 2006, equation 2.30)."""
    lower = factor(p)
    white = tc.linalg.solve_triangular(lower, y, lower=True)
    log_determinant = 2.0 * tc.sum(tc.log(tc.linalg.diagonal(lower)))
    return 0.5 * (tc.sum(white * white) + log_determinant + points * math.log(2.0 * math.pi))


# SciPy knows vectors of float64, the function a dictionary of Tensors: `scipy_objective` goes between.
fun, vector, restore = tc.scipy_objective(misfit, start)
path = [vector]
started = time.perf_counter()
result = minimize(fun, vector, jac=True, method="BFGS", callback=lambda v: path.append(v.copy()))
seconds = time.perf_counter() - started
best = restore(result.x)
found = {name: math.exp(value.item()) for name, value in best.items()}
summary = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
summary += f" (noise of the measurements: {NOISE}) after {result.nit} steps"
print(f"{summary}, {seconds:.2f} s on {tc.get_backend().name}")


def prediction(p: dict[str, tc.Tensor], at: tc.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The curve at other places, and by how much it may be wrong (algorithm 2.1)."""
    lower, beside = factor(p), covariance(p, x, at)
    weights = tc.linalg.solve_triangular(lower, beside, lower=True)
    mean = tc.matrix_transpose(weights) @ tc.linalg.solve_triangular(lower, y, lower=True)
    variance = tc.exp(2.0 * p["amplitude"]) - tc.sum(weights * weights, axis=0)
    return mean.numpy(), np.sqrt(np.maximum(variance.numpy(), 0.0))


# The picture: the prediction before and after, and the way to the most likely hyperparameters.
at = tc.linspace(-1.0, 11.0, 400, dtype=tc.float64)
truth = curve(at).numpy()
figure = Figure(figsize=(12, 7.5), layout="constrained")
figure.suptitle(f"A Gaussian process: {summary}", fontsize=15, fontweight="bold")
grid = figure.subplot_mosaic([["before", "way"], ["after", "after"]], height_ratios=[1, 1.4])
for axes, p, title in [
    (grid["before"], start, "Before: hyperparameters from where the search starts"),
    (grid["after"], best, "After: the band has the curve in it with 95 %, the wider one a measurement"),
]:
    mean, deviation = prediction(p, at)
    measured = np.hypot(deviation, math.exp(p["noise"].item()))
    axes.fill_between(at.numpy(), mean - 1.96 * measured, mean + 1.96 * measured, color="tab:blue", alpha=0.12, lw=0)
    axes.fill_between(at.numpy(), mean - 1.96 * deviation, mean + 1.96 * deviation, color="tab:blue", alpha=0.3, lw=0)
    axes.plot(at.numpy(), mean, color="tab:blue", label="prediction")
    axes.plot(at.numpy(), truth, color="black", linestyle="--", linewidth=1, label="the curve itself")
    axes.plot(x.numpy(), y.numpy(), ".", color="tab:red", markersize=5, label="measurements")
    axes.set(title=title, xlabel="x", xlim=(-1, 11))
    axes.grid(alpha=0.3)
grid["after"].legend(loc="upper left")

# The likelihood of many lengths and noises, all at once by vmap, with the best amplitude.
axes = grid["way"]
lengths, noises = tc.linspace(-1.5, 1.5, 60, dtype=tc.float64), tc.linspace(-3.0, 0.5, 50, dtype=tc.float64)
of_noise = tc.vmap(lambda length, noise: misfit({**best, "length": length, "noise": noise}), in_axes=(None, 0))
values = tc.vmap(of_noise, in_axes=(0, None))(lengths, noises).numpy().T
worse = values - values.min()
lines = axes.contour(
    np.exp(lengths.numpy()), np.exp(noises.numpy()), worse, [1, 3, 10, 30, 100, 300, 1000], colors="gray"
)
axes.clabel(lines, fontsize=8)
way = [restore(v) for v in path]
axes.plot(*[[math.exp(p[name].item()) for p in way] for name in ("length", "noise")], "o-", color="tab:orange")
axes.set(title="Log-likelihood below the best, and the way of BFGS", xlabel="length", ylabel="noise")
axes.set(xscale="log", yscale="log", xticks=[0.3, 1, 3], yticks=[0.1, 0.3, 1])
axes.minorticks_off()
for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_formatter("{x:g}")
figure.savefig(args.out, dpi=100)
print(f"The picture is {args.out.resolve()}")
