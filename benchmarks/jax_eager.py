"""Eager Tape on JAX's arrays against eager JAX, op for op: the value, and the gradients of all inputs.

    python benchmarks/jax_eager.py [--ops sin,matmul] [--sizes 16,1024] [--seconds 0.3]

Tape records on a tape and asks it for the gradients; JAX calls `jax.vjp`, and what that returns. Both take turns in one
process, on one thread, after their results were compared. Ratios are of minima; the last column has that of the values
alone. The last rows are whole steps of training, against `jax.value_and_grad`. The exit status is 1 where a ratio is
above the target.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import timing
from peers import threads_environment

TARGET = 1.5
TOLERANCE = 2e-4  # relative to the largest element, float32

Function = Callable[..., Any]
"""Takes a namespace, that of Tape or that of JAX, and arrays."""

Makers = Callable[[int], list[Any]]
"""Makes the arguments at a size: matrices of so many rows and columns."""


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def one(n: int) -> list[Any]:
    return [normal(n, n)]


def positive(n: int) -> list[Any]:
    return [np.abs(normal(n, n)) + 0.5]


def inside(n: int) -> list[Any]:
    return [np.tanh(normal(n, n)) * 0.9]


def two(n: int) -> list[Any]:
    return [normal(n, n), normal(n, n, seed=1)]


def base_and_power(n: int) -> list[Any]:
    return [np.abs(normal(n, n)) + 0.5, normal(n, n, seed=1)]


def three(n: int) -> list[Any]:
    return [normal(n, n), normal(n, n, seed=1), normal(n, n, seed=2)]


def and_row(n: int) -> list[Any]:
    return [normal(n, n), normal(n, seed=1)]


def regular(n: int) -> list[Any]:
    n = min(n, 256)  # a factorisation of more is time of LAPACK alone
    return [normal(n, n) + 3 * np.sqrt(n).astype("f") * np.eye(n, dtype="f")]


def and_columns(n: int) -> list[Any]:
    (a,) = regular(n)
    return [a, normal(len(a), 3, seed=1)]


def definite(n: int) -> list[Any]:
    (a,) = regular(n)
    return [a @ a.T / len(a)]


def stacks(n: int) -> list[Any]:
    return [normal(8, n // 4, n // 4), normal(8, n // 4, n // 4, seed=1)]


def images(n: int) -> list[Any]:
    n = min(n, 64)
    return [normal(4, n, n, 3), normal(3, 3, 3, 8, seed=1)]


def rows_and_labels(n: int) -> Any:
    return np.arange(n) % 7


def each(names: str, make: Makers) -> dict[str, tuple[Function, Makers]]:
    """Return ops that have one name, and take nothing but arrays."""

    def of(name: str) -> Function:
        return lambda xp, *xs: getattr(xp, name)(*xs)

    return {name: (of(name), make) for name in names.split()}


def along(name: str) -> Function:
    return lambda xp, x: getattr(xp, name)(x, axis=1)


ROWS = np.asarray([5, 0, 3, 5, 7])

OPS: dict[str, tuple[Function, Makers]] = {
    **each("sin cos tan sinh cosh tanh asinh atan exp expm1 abs negative square", one),
    **each("sigmoid softplus silu gelu relu erf erfc elu leaky_relu log_sigmoid", one),
    **each("log log1p log2 log10 sqrt reciprocal digamma gammaln", positive),
    **each("asin acos atanh erfinv", inside),
    **each("add subtract multiply divide maximum minimum atan2 hypot logaddexp", two),
    **each("pow", base_and_power),
    "x + row": (lambda xp, x, r: x + r, and_row),
    "x * row": (lambda xp, x, r: x * r, and_row),
    "x * 2.5": (lambda xp, x: x * 2.5, one),
    "x ** 2": (lambda xp, x: x**2, one),
    "x ** 3": (lambda xp, x: x**3, one),
    "1 / x": (lambda xp, x: 1 / x, positive),
    "clip": (lambda xp, x: xp.clip(x, -0.5, 0.5), one),
    "where": (lambda xp, x, y, z: xp.where(x > 0, y, z), three),
    **each("sum mean max min var std", one),
    **{name: (along(name), one) for name in ("cumulative_sum", "sort", "logsumexp", "softmax", "log_softmax")},
    "prod": (lambda xp, x: xp.prod(x, axis=1), inside),
    "sum, axis 0": (lambda xp, x: xp.sum(x, axis=0), one),
    "sum, keepdims": (lambda xp, x: xp.sum(x, axis=1, keepdims=True), one),
    "mean, axis 1": (lambda xp, x: xp.mean(x, axis=1), one),
    "max, axis 1": (lambda xp, x: xp.max(x, axis=1), one),
    "var, axis 0": (lambda xp, x: xp.var(x, axis=0), one),
    "reshape": (lambda xp, x: xp.reshape(x, (-1,)), one),
    "permute_dims": (lambda xp, x: xp.permute_dims(x, (1, 0)), one),
    "expand_dims": (lambda xp, x: xp.expand_dims(x, axis=1), one),
    "broadcast_to": (lambda xp, x: xp.broadcast_to(x, (3, *x.shape)), one),
    "concat": (lambda xp, x, y: xp.concat([x, y], axis=0), two),
    "stack": (lambda xp, x, y: xp.stack([x, y], axis=0), two),
    "flip": (lambda xp, x: xp.flip(x, axis=1), one),
    "roll": (lambda xp, x: xp.roll(x, 3, axis=0), one),
    "tile": (lambda xp, x: xp.tile(x, (2, 1)), one),
    "repeat": (lambda xp, x: xp.repeat(x, 2, axis=0), one),
    "pad": (lambda xp, x: xp.pad(x, ((1, 1), (0, 2))), one),
    "x[2]": (lambda xp, x: x[2], one),
    "x[1:5]": (lambda xp, x: x[1:5], one),
    "x[:, ::2]": (lambda xp, x: x[:, ::2], one),
    "x[:, None]": (lambda xp, x: x[:, None], one),
    "x[rows]": (lambda xp, x: x[ROWS], one),
    "x[rows, rows]": (lambda xp, x: x[ROWS, ROWS], one),
    "take": (lambda xp, x: xp.take(x, xp.asarray(ROWS), axis=0), one),
    "take_along_axis": (lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1), one),
    "trace": (lambda xp, x: xp.linalg.trace(x), one),
    "diagonal": (lambda xp, x: xp.linalg.diagonal(x), one),
    "matmul": (lambda xp, x, y: x @ y, two),
    "matmul, stacks": (lambda xp, x, y: x @ y, stacks),
    "matrix @ vector": (lambda xp, x, r: x @ r, and_row),
    "vecdot": (lambda xp, x, y: xp.vecdot(x, y), two),
    "einsum": (lambda xp, x, y: xp.einsum("bij,bjk->bik", x, y), stacks),
    "tensordot": (lambda xp, x, y: xp.tensordot(x, y, axes=1), two),
    "outer": (lambda xp, x, y: xp.linalg.outer(x[0], y[0]), two),
    "vector_norm": (lambda xp, x: xp.linalg.vector_norm(x), one),
    "inv": (lambda xp, x: xp.linalg.inv(x), regular),
    "det": (lambda xp, x: xp.linalg.slogdet(x)[1], regular),
    "solve": (lambda xp, a, b: xp.linalg.solve(a, b), and_columns),
    "cholesky": (lambda xp, x: xp.linalg.cholesky(x), definite),
    "eigvalsh": (lambda xp, x: xp.linalg.eigvalsh(x), definite),
    "svdvals": (lambda xp, x: xp.linalg.svdvals(x), regular),
    "qr": (lambda xp, x: xp.linalg.qr(x)[1], regular),
    "fft": (lambda xp, x: xp.abs(xp.fft.fft(x)), one),
    "rfft": (lambda xp, x: xp.abs(xp.fft.rfft(x)), one),
    "conv": (lambda xp, x, w: xp.conv(x, w), images),
    "cross_entropy": (lambda xp, x: xp.cross_entropy(x, rows_and_labels(len(x))), one),
}


class Names:
    """Tape's names in JAX: those of its NumPy, neural networks and special functions, and what JAX's users write."""

    def __init__(self) -> None:
        import jax

        self.linalg, self.fft, self.lax = jax.numpy.linalg, jax.numpy.fft, jax.lax
        self.modules = (jax.numpy, jax.nn, jax.scipy.special)
        self.numpy, self.nn = jax.numpy, jax.nn

    def __getattr__(self, name: str) -> Any:
        found = next(getattr(module, name) for module in self.modules if hasattr(module, name))
        setattr(self, name, found)
        return found

    def gelu(self, x: Any) -> Any:
        return self.nn.gelu(x, approximate=False)

    def conv(self, x: Any, w: Any) -> Any:
        return self.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def cross_entropy(self, x: Any, labels: Any) -> Any:
        return -self.numpy.take_along_axis(self.nn.log_softmax(x), labels[:, None], axis=1)[:, 0]


def steps_of(name: str, function: Function, arrays: Sequence[Any]) -> dict[str, Callable[[], list[Any]]]:
    """Return the value and the gradients, by Tape and by JAX."""
    import jax
    import tape_core as tc

    mine = [tc.asarray(a) for a in arrays]
    theirs = [jax.numpy.asarray(a) for a in arrays]
    names = Names()

    def tape(seed: Any = None) -> list[Any]:
        with tc.GradientTape() as tape:
            tape.watch(mine)
            y = function(tc, *mine)
        return [y, *tape.gradient(y, mine, output_gradients=seed, unconnected_gradients="zero")]

    def vjp(seed: Any = None) -> list[Any]:
        y, back = jax.vjp(lambda *xs: function(names, *xs), *theirs)
        return [y, *back(jax.numpy.ones_like(y) if seed is None else seed)]

    def tape_value() -> list[Any]:
        return [function(tc, *mine)]

    def jax_value() -> list[Any]:
        return [function(names, *theirs)]

    # By other cotangents than the ones that are timed: by ones the gradient of a softmax is 0.
    (y,) = jax_value()
    seed = jax.numpy.cos(jax.numpy.arange(y.size, dtype=y.dtype)).reshape(y.shape)
    _compare(name, tape(seed), vjp(seed))
    return {"tape": tape, "jax": vjp, "tape_value": tape_value, "jax_value": jax_value}


def training_steps(batch: int, width: int, adam: bool) -> dict[str, Callable[[], list[Any]]]:
    """Return a step of training a perceptron of three layers, by Tape and by JAX; each has its own parameters."""
    import jax
    import tape_core as tc

    rng = np.random.default_rng(0)
    sizes = [width, width, width, 10]
    weights = [(rng.normal(size=s) / np.sqrt(s[0])).astype("f") for s in pairwise(sizes)]
    start = [p for w in weights for p in (w, np.zeros(w.shape[1], "f"))]
    x, labels = normal(batch, width), rng.integers(0, 10, batch)
    variables = [tc.Variable(p) for p in start]
    inputs, wanted = tc.asarray(x), tc.asarray(labels)

    def logits(xp: Any, parameters: Sequence[Any], x: Any) -> Any:
        for k in range(0, len(parameters) - 2, 2):
            x = xp.maximum(x @ parameters[k] + parameters[k + 1], 0)
        return x @ parameters[-2] + parameters[-1]

    def tape() -> list[Any]:
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(logits(tc, variables, inputs), wanted))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return [loss]

    jnp, names = jax.numpy, Names()
    given, truth = jnp.asarray(x), jnp.asarray(labels)

    def loss_of(parameters: Sequence[Any]) -> Any:
        return jnp.mean(names.cross_entropy(logits(jnp, parameters, given), truth))

    state = {"p": [jnp.asarray(p) for p in start], "k": 0}
    state["m"] = state["v"] = [jnp.zeros_like(p) for p in state["p"]]

    def own() -> list[Any]:
        loss, gradients = jax.value_and_grad(loss_of)(state["p"])
        if adam:
            state["k"] += 1
            state["m"] = [0.9 * m + 0.1 * g for m, g in zip(state["m"], gradients, strict=True)]
            state["v"] = [0.999 * v + 0.001 * g * g for v, g in zip(state["v"], gradients, strict=True)]
            rate = 1e-3 * (1 - 0.999 ** state["k"]) ** 0.5 / (1 - 0.9 ** state["k"])
            triples = zip(state["p"], state["m"], state["v"], strict=True)
            state["p"] = [p - rate * m / (jnp.sqrt(v) + 1e-7) for p, m, v in triples]
        else:
            state["p"] = [p - 1e-2 * g for p, g in zip(state["p"], gradients, strict=True)]
        return [loss]

    import tape_nn as nn

    optimizer: Any = nn.Adam(1e-3) if adam else nn.SGD(1e-2)
    for _ in range(3):
        _compare("training", tape(), own())
    return {"tape": tape, "jax": own}


def _compare(name: str, found: Sequence[Any], expected: Sequence[Any]) -> None:
    pairs = zip(map(timing.to_numpy, found), map(timing.to_numpy, expected), strict=True)
    worst = max(float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1)) for a, b in pairs)
    if not worst <= TOLERANCE:
        raise AssertionError(f"{name}: Tape's results differ from JAX's by {worst:.1e} of the largest element")


def row(name: str, steps: dict[str, Callable[[], list[Any]]], seconds: float) -> float:
    """Time and print a row; return the ratio."""
    import jax

    waiting = {column: (lambda step=step: jax.block_until_ready(_raw(step()))) for column, step in steps.items()}
    minima = {column: t.minimum for column, t in timing.interleaved(waiting, seconds).items()}
    ratio = minima["tape"] / minima["jax"]
    value = f"{minima['tape_value'] / minima['jax_value']:8.2f}" if "tape_value" in minima else " " * 8
    mark = "" if ratio <= TARGET else "  above"
    print(f"{name:28}{minima['tape'] * 1e6:10.0f}{minima['jax'] * 1e6:10.0f}{ratio:8.2f}{value}{mark}", flush=True)
    return ratio


def _raw(results: Sequence[Any]) -> list[Any]:
    return [getattr(r, "array", r) for r in results]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(OPS).replace(", ", "; "), help="names, separated by commas")
    parser.add_argument("--sizes", default="16,1024", help="rows and columns of the matrices")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each row")
    options = parser.parse_args()

    import tape_core as tc

    tc.set_backend("jax")
    print(f"{'':28}{'Tape, µs':>10}{'JAX, µs':>10}{'ratio':>8}{'value':>8}")
    ratios = []
    chosen = [name.replace("; ", ", ") for name in options.ops.split(",")]
    for n in map(int, options.sizes.split(",")):
        print(f"{n} x {n}")
        ratios += [row(f"  {name}", steps_of(name, OPS[name][0], OPS[name][1](n)), options.seconds) for name in chosen]
    if len(chosen) == len(OPS):
        print("a step of training")
        for batch, width in ((32, 64), (128, 512)):
            for adam in (False, True):
                name = f"  {width} wide, {'Adam' if adam else 'SGD'}"
                ratios.append(row(name, training_steps(batch, width, adam), 4 * options.seconds))
    over = sum(ratio > TARGET for ratio in ratios)
    print(f"{len(ratios)} rows, {over} above {TARGET}; median {float(np.median(ratios)):.2f}, most {max(ratios):.2f}")
    return 1 if over else 0


if __name__ == "__main__":
    if os.environ.get("NPROC") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **threads_environment(1)})
    sys.exit(main())
