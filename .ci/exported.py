"""Exported files where there is nothing but NumPy: `write FOLDER` makes them, `run FOLDER` runs them elsewhere.

What each function gives is stored beside it by `write`, and `run` wants the same bits.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np


def functions() -> dict[str, tuple[Any, list[Any]]]:
    """What is exported, by name, with arguments."""
    import tape_core as tc
    import tape_nn as nn

    tc.set_seed(0)
    rng = tc.default_rng(0)
    labels = tc.asarray([0, 2, 1, 2])
    w = tc.Variable(rng.normal((3, 3)), name="w")
    model = nn.Sequential([nn.Dense(8, activation="gelu"), nn.BatchNorm(), nn.Dense(3)])
    optimizer = nn.Adam(0.1)
    square = rng.normal((4, 4), dtype="float64")

    def step(x: Any) -> Any:
        """A step of training."""
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(x), labels))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def curvature(x: Any) -> Any:
        def f(x: Any) -> Any:
            return tc.sum(tc.gammaln(x * x + 1) * tc.softplus(x)) + tc.logsumexp(x) * tc.erf(x[0])

        return tc.jacrev(lambda x: tc.tanh(w @ x))(x), tc.hessian(f)(x), tc.jvp(f, (x,), (x,))

    def loops(b: Any, x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(b)
            h, rows = tc.scan(lambda h, e: (tc.tanh(h @ w + e * b), h), tc.zeros(3), x, reverse=True)
            total = tc.cond(h[0] > 0, lambda: tc.sum(h), lambda: tc.sum(tc.map(tc.cos, h * b))) ** 2
            last, _ = tc.while_loop(lambda c: c[1] < 20, lambda c: (c[0] * 1.5 + b, c[1] + tc.sum(b)), (h, total))
            loss = tc.sum(last) + total
        return loss, rows, tape.gradient(loss, b)

    def algebra(a: Any, b: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch([a, b])
            spd = a @ a.T + 4.0 * tc.eye(4, dtype=a.dtype)
            x = tc.linalg.solve(a, b)
            u, s, vh = tc.linalg.svd(a, full_matrices=False)
            loss = tc.sum(x * x) + tc.linalg.slogdet(spd)[1] + tc.sum(tc.linalg.cholesky(spd)) + tc.sum(s)
            loss = loss + tc.sum(tc.einsum("ij,jk->ki", u * s, vh)) + tc.linalg.vector_norm(tc.linalg.pinv(a))
        return loss, tape.gradient(loss, [a, b])

    def spectrum(x: Any) -> Any:
        return tc.value_and_grad(lambda x: tc.sum(tc.abs(tc.fft.rfft(x * tc.exp(-x * x))) ** 2))(x)

    def image(x: Any, kernel: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch([x, kernel])
            y = tc.max_pool(tc.relu(tc.conv(x, kernel, padding="same")), 2)
            loss = tc.mean(tc.layer_norm(y, axis=-1) ** 3)
        return loss, tape.gradient(loss, [x, kernel])

    def places(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(tc.sort(x[1:, ::2], axis=0) * tc.take(x, tc.asarray([0, 0, 1]), axis=0)[:, :1])
            y = y + tc.sum(tc.where(x > 0, tc.cumulative_sum(x, axis=1), x)) + tc.sum(tc.top_k(x, 2)[0])
        return y, tape.gradient(y, x)

    def normal(*shape: int) -> Any:
        return rng.normal(shape)

    return {
        "step": (step, [normal(4, 5)]),
        "curvature": (curvature, [normal(3)]),
        "loops": (loops, [tc.ones(3), normal(4, 3)]),
        "algebra": (algebra, [square, square[0]]),
        "spectrum": (spectrum, [normal(16)]),
        "image": (image, [normal(2, 6, 6, 2), normal(3, 3, 2, 4)]),
        "places": (places, [normal(4, 6)]),
    }


def write(folder: Path) -> None:
    import tape_core as tc
    from tape_core.support import pytree

    folder.mkdir(parents=True, exist_ok=True)
    for name, (python, arguments) in functions().items():
        compiled = tc.function(python)
        for _ in range(2):  # the first call may make Variables
            compiled(*arguments)
        compiled.export(folder / f"{name}.py", constants="npz")
        (trace,) = next(iter(compiled._compiled.values()))
        before = {f"{k}": t.numpy() for k, t in enumerate(arguments)}
        # Counts and rates of optimizers are Python's numbers.
        kept = [v._array for v in trace.variables]
        before |= {f"{k}{'n' * isinstance(a, int | float)}": np.array(a) for k, a in enumerate(kept, len(before))}
        results = [leaf for leaf in pytree.flatten(compiled(*arguments))[0] if leaf is not None]
        after = [*[t.numpy() for t in results], *[v._array for v in trace.assigned]]
        np.savez(folder / f"{name}.in.npz", **before)
        np.savez(folder / f"{name}.out.npz", *after)


def run(folder: Path) -> None:
    for package in ("tape_core", "tape_numpy"):
        if importlib.util.find_spec(package) is not None:
            raise SystemExit(f"{package} is installed here: nothing is shown")
    files = sorted(folder.glob("*.py"))
    for path in files:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        given, expected = (np.load(folder / f"{path.stem}.{end}.npz") for end in ("in", "out"))
        arguments = [given[k].item() if k.endswith("n") else given[k] for k in given.files]
        found = getattr(module, path.stem)(*arguments)
        if len(found) != len(expected.files):
            raise SystemExit(f"{path.name}: {len(found)} results, {len(expected.files)} expected")
        for k, array in enumerate(found):
            want = expected[f"arr_{k}"]
            if np.asarray(array).dtype != want.dtype or np.asarray(array).tobytes() != want.tobytes():
                raise SystemExit(f"{path.name}: result {k} is {array}, expected {want}")
    print(f"{len(files)} exported files give the same bits with NumPy {np.__version__} alone")


if __name__ == "__main__":
    {"write": write, "run": run}[sys.argv[1]](Path(sys.argv[2]))
