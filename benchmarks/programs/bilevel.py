"""Regularisation chosen by gradients: SciPy's BFGS fits, `custom_root` differentiates the fit, twice. Float64."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 1e-3  # of differences between problems that BFGS solves to about 1e-8


def data(rng: np.random.Generator, small: bool) -> Data:
    n, features = (30, 3) if small else (200, 10)
    true = rng.standard_normal(features)

    def sample():
        x = rng.standard_normal((n, features))
        return x, (x @ true + 0.5 * rng.standard_normal(n) > 0).astype(np.float64)

    x, y = sample()
    held_x, held_y = sample()
    return {"x": x, "y": y, "held x": held_x, "held y": held_y, "strengths": np.full(features, -1.0)}


def with_tape(data: Data, wrap: Wrap, hessian: bool = True) -> Step:
    import tape_core as tc
    from scipy.optimize import minimize

    def cost(w, x, y):
        logits = x @ w
        return tc.mean(tc.softplus(logits) - y * logits)

    def inner(w, strengths):
        return cost(w, data["x"], data["y"]) + 0.5 * tc.sum(tc.exp(strengths) * w**2)

    # The strengths are arguments, so that nothing is traced again for other ones.
    inside = wrap(inner)

    def fit(strengths):
        fun, start, restore = tc.scipy_objective(inside, np.zeros(len(data["strengths"])))
        return restore(minimize(fun, start, args=(strengths,), jac=True, method="BFGS", options={"gtol": 1e-10}).x)

    solution = tc.custom_root(tc.grad(inner), fit)

    def outer(strengths):
        return cost(solution(strengths), data["held x"], data["held y"])

    def step():
        value, gradient = tc.value_and_grad(outer)(data["strengths"])
        return [value, gradient, *([tc.hessian(outer)(data["strengths"])] if hessian else [])]

    return step


STYLES = {"custom_root": with_tape}


def with_differences(data: Data) -> Step:
    """Gradient by differences of values, Hessian by differences of gradients."""
    d = 1e-4

    def at(k, sign):
        moved = dict(data, strengths=data["strengths"] + sign * d * np.eye(len(data["strengths"]))[k])
        return with_tape(moved, lambda f: f, hessian=False)()

    def step():
        pairs = [(at(k, 1), at(k, -1)) for k in range(len(data["strengths"]))]
        gradient = np.array([(up[0].item() - down[0].item()) / (2 * d) for up, down in pairs])
        hessian = np.stack([(up[1].numpy() - down[1].numpy()) / (2 * d) for up, down in pairs])
        return [with_tape(data, lambda f: f, hessian=False)()[0], gradient, hessian]

    return step
