"""A pendulum swung up with the least effort by direct collocation; the effort's gradient in mass and length. Float64.

Newton's method on the optimality conditions, with Tape's Jacobians; `custom_root` differentiates what it finds.
"""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 1e-6
TIME, GRAVITY, DAMPING = 2.0, 9.81, 0.1


def data(rng: np.random.Generator, small: bool) -> Data:
    return {"points": 10 if small else 40, "pendulum": np.array([1.0, 0.5])}


def conditions(points: int, tc):
    """The gradient of the Lagrangian in states, efforts and multipliers: zero at the solution."""
    n, h = points, TIME / (points - 1)
    end = np.array([np.pi, 0.0])

    def effort(u):
        return h * tc.sum(u**2)

    def defects(states, u, pendulum):
        mass, length = pendulum[0], pendulum[1]
        angle, speed = states[:, 0], states[:, 1]
        push = (u - DAMPING * speed) / (mass * length**2) - GRAVITY / length * tc.sin(angle)
        slopes = tc.stack([speed, push], axis=1)
        steps = states[1:] - states[:-1] - h / 2 * (slopes[1:] + slopes[:-1])
        return tc.concat([tc.reshape(steps, (-1,)), states[0], states[-1] - end])

    def lagrangian(z, pendulum):
        states, u, multipliers = tc.reshape(z[: 2 * n], (n, 2)), z[2 * n : 3 * n], z[3 * n :]
        return effort(u) + tc.sum(multipliers * defects(states, u, pendulum))

    start = np.concatenate(
        [np.stack([np.linspace(0, np.pi, n), np.full(n, np.pi / TIME)], 1).ravel(), np.zeros(3 * n + 2)]
    )
    return lambda z, pendulum: effort(z[2 * n : 3 * n]), tc.grad(lagrangian), start


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc

    effort, residual, start = conditions(data["points"], tc)
    jacobian, compiled = wrap(tc.jacrev(residual)), wrap(residual)

    def newton(pendulum):
        z = tc.asarray(start)
        for _ in range(60):
            wrong = compiled(z, pendulum)
            if tc.max(tc.abs(wrong)).item() < 1e-10:
                break
            step = tc.linalg.solve(jacobian(z, pendulum), wrong[:, None])[:, 0]
            scale = min(1.0, 2.0 / (1e-12 + tc.max(tc.abs(step[: 2 * data["points"]])).item()))
            z = z - scale * step
        return z

    solution = tc.custom_root(residual, newton, tol=1e-6)
    both = tc.value_and_grad(lambda pendulum: effort(solution(pendulum), pendulum))
    return lambda: list(both(data["pendulum"]))


STYLES = {"custom_root": with_tape}


def with_differences(data: Data) -> Step:
    """The gradient by differences of what Newton's method finds."""
    import tape_core as tc

    step = with_tape(data, lambda f: f)
    d = 1e-5

    def effort(k, sign):
        moved = dict(data, pendulum=data["pendulum"] + sign * d * np.eye(2)[k])
        return with_tape(moved, tc.function)()[0].item()

    return lambda: [step()[0], np.array([(effort(k, 1) - effort(k, -1)) / (2 * d) for k in range(2)])]
