"""What pendulum is this? Its length, its friction and how it was let go, from noisy angles, through an ODE solver.

python docs/examples/pendulum.py                       # seconds
TAPE_BACKEND=torch python docs/examples/pendulum.py    # the same on PyTorch
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tape_core as tc
from matplotlib.figure import Figure
from scipy.optimize import least_squares

parser = argparse.ArgumentParser(description="The parameters of a pendulum from noisy angles.")
parser.add_argument("--seed", type=int, default=0, help="decides the noise")
parser.add_argument("--quick", action="store_true", help="a shorter time")
parser.add_argument("--out", type=Path, default=Path("pendulum.png"), help="where the picture goes")
args = parser.parse_args()

GRAVITY, STEP, NOISE = 9.81, 0.05, 0.15  # m/s^2, s, rad
NAMES = ("length", "friction", "angle", "speed")  # m, 1/s, and those at the start: rad, rad/s
TRUTH, GUESS = (1.2, 0.15, 2.2, 1.0), (0.8, 0.0, 2.0, 0.0)


def vector(values: object) -> tc.Tensor:
    return tc.asarray(values, dtype=tc.float64)


def runge_kutta(f: Callable[[tc.Tensor], tc.Tensor], state: tc.Tensor, steps: int, h: float) -> tc.Tensor:
    """The classical method of order 4 for `state' = f(state)`: the states after 0, 1, ... steps. It is all recorded."""
    states = [state]
    for _ in range(steps):
        k1 = f(state)
        k2 = f(state + (0.5 * h) * k1)
        k3 = f(state + (0.5 * h) * k2)
        k4 = f(state + h * k3)
        state = state + (h / 6.0) * (k1 + 2.0 * (k2 + k3) + k4)
        states.append(state)
    return tc.stack(states)


def swing(p: tc.Tensor, steps: int) -> tc.Tensor:
    """The pendulum's angle and speed, (steps + 1, 2)."""
    pull = GRAVITY / p[0]

    def motion(state: tc.Tensor) -> tc.Tensor:
        angle, speed = state[0], state[1]
        return tc.stack([speed, -pull * tc.sin(angle) - p[1] * speed])

    return runge_kutta(motion, p[2:], steps, STEP)


measured_steps = 60 if args.quick else 160
rng = tc.default_rng(args.seed)
angles = swing(vector(TRUTH), measured_steps)[:, 0]
angles = angles + rng.normal(angles.shape, stddev=NOISE, dtype=tc.float64)


def fit(p: np.ndarray, steps: int) -> np.ndarray:
    """Least squares over the first steps. There are 4 parameters and many residuals: forward mode is the cheap one."""

    def residuals(p: tc.Tensor) -> tc.Tensor:
        return (swing(p, steps)[:, 0] - angles[: steps + 1]) / NOISE

    jacobian = tc.jacfwd(residuals)
    return least_squares(
        lambda v: residuals(vector(v)).numpy(),
        p,
        jac=lambda v: jacobian(vector(v)).numpy(),
        bounds=([0.01, 0.0, -np.inf, -np.inf], np.inf),
        x_scale="jac",
    )


# Over a long time a wrong length gives the wrong number of swings, which no small change puts right. So first the
# beginning is explained, then more and more of it, each time from what was found before.
started = time.perf_counter()
p, way = np.asarray(GUESS), []
for steps in (s for s in (20, 40, 80, 160) if s <= measured_steps):
    result = fit(p, steps)
    p = result.x
    way.append((steps, p))
seconds = time.perf_counter() - started

# How sure is that? The residuals have variance 1, so the inverse of J^T J is the covariance of what was found.
covariance = np.linalg.inv(result.jac.T @ result.jac)
deviations = np.sqrt(np.diag(covariance))
for name, true, value, deviation in zip(NAMES, TRUTH, p, deviations, strict=True):
    print(f"{name:8} {value:7.3f} +- {deviation:.3f}, in truth {true:.3f}")
print(f"found in {seconds:.1f} s on {tc.get_backend().name}")

# The picture: the angles, what was found and what it says about the time after, the way there, and the phase plane.
total = 2 * measured_steps
times = STEP * np.arange(total + 1)
truth, found, guess = (swing(vector(v), total).numpy() for v in (TRUTH, p, GUESS))
slopes = tc.jacfwd(lambda p: swing(p, total)[:, 0])(vector(p)).numpy()
band = 1.96 * np.sqrt(np.einsum("ti,ij,tj->t", slopes, covariance, slopes))

figure = Figure(figsize=(12, 7.5), layout="constrained")
summary = ", ".join(f"{n} {v:.3f} ± {d:.3f}" for n, v, d in zip(NAMES, p, deviations, strict=True))
figure.suptitle(f"A pendulum: {summary}", fontsize=14, fontweight="bold")
grid = figure.subplot_mosaic([["time", "time"], ["way", "phase"]], height_ratios=[1.2, 1])
axes = grid["time"]
axes.plot(times, guess[:, 0], color="silver", label="first guess")
axes.fill_between(times, found[:, 0] - band, found[:, 0] + band, color="tab:blue", alpha=0.25, lw=0)
axes.plot(times, found[:, 0], color="tab:blue", label="found, with a band of 95 %")
axes.plot(times, truth[:, 0], color="black", linestyle="--", linewidth=1, label="truth")
axes.plot(times[: measured_steps + 1], angles.numpy(), ".", color="tab:red", markersize=4, label="measured")
axes.axvline(times[measured_steps], color="black", linewidth=0.8, linestyle=":")
axes.set(title="Angle, also after the last measurement", xlabel="time, s", ylabel="rad", xlim=(0, times[-1]))
axes.legend(loc="upper right", ncols=4)

axes = grid["way"]
for name, values in zip(NAMES, np.asarray([GUESS, *(v for _, v in way)]).T, strict=True):
    axes.plot(values - TRUTH[NAMES.index(name)], "o-", label=name)
axes.axhline(0, color="black", linewidth=0.8)
axes.set(title="Parameters less the truth", xticks=range(len(way) + 1))
axes.set_xticklabels(["guess", *(f"from the first\n{steps * STEP:g} s" for steps, _ in way)])
axes.legend()

axes = grid["phase"]
for states, color, style in [(guess, "silver", "-"), (found, "tab:blue", "-"), (truth, "black", "--")]:
    axes.plot(*states.T, color=color, linestyle=style, linewidth=1)
axes.set(title="Angle and speed", xlabel="rad", ylabel="rad/s")
for axes in grid.values():
    axes.grid(alpha=0.3)
figure.savefig(args.out, dpi=100)
print(f"The picture is {args.out.resolve()}")
