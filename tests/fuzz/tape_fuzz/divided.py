"""Random programs on arrays that a mesh divides, against plain arrays: values, gradients and Variables.

`python -m tape_fuzz.divided --number 100 --seed 0` is run in each of several processes, as `torchrun` starts them. All
draw the same programs, on NumPy, and compare them in the same order; a failure is the program as code that runs. With
TAPE_BACKEND=jax it is run in one process that has several devices.
"""

from __future__ import annotations

import argparse
import os
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any
from zlib import crc32

import numpy as np
import tape_core as tc
import tape_nn as nn
from hypothesis import HealthCheck, Phase, given, seed, settings
from numpy.typing import NDArray

from tape_fuzz.programs import Program, check, programs

_TAKEN_OUT = "is divided among processes"
"""Of an error: the program takes values out of an array of which a process has only a part."""

_UNKNOWN_TO_XLA = "fft_thunk.cc"
"""Of an error of XLA's compiler for CPUs: an array lies as its own Fourier transform cannot read it."""

ON_JAX = os.environ.get("TAPE_BACKEND") == "jax"

RUNS = 2 if ON_JAX else 4
"""The calls of each program, the last of which counts: a compiled one is computed by parts from the fourth on."""

WAYS = {"eager": None, "compiled by XLA": "xla"} if ON_JAX else {"eager": None, "compiled": "python"}


@cache
def _mesh() -> nn.parallel.Mesh:
    with tc.use_backend("jax" if ON_JAX else "torch:cpu"):
        return nn.parallel.mesh({"data": 2, "model": -1} if ON_JAX else {"data": -1}, device="cpu")


def layout(shape: tuple[int, ...], axes: Mapping[str, int], k: int) -> tuple[str | None, ...]:
    """Return how the value number `k` of a program is divided: along axes that can be, or not at all."""
    able = [(at, name) for at, n in enumerate(shape) for name, size in axes.items() if n and n % size == 0]
    if not able or k % 4 == 3:
        return ()
    found: list[str | None] = [None] * len(shape)
    for at, name in [able[k % len(able)], able[k * 7 % len(able)] if k % 3 else able[0]]:
        if found[at] is None and name not in found:
            found[at] = name
    return tuple(found)


def _spread(m: nn.parallel.Mesh, value: Any, k: int) -> Any:
    """Divide the value number `k` of a program, which leaves some as plain arrays beside the divided ones."""
    return value if k % 5 == 1 else m.engine.distribute(value, layout(value.shape, m.axes, k), mesh=m)


_HOSTILE = (np.nan, -np.nan, np.inf, -np.inf)


def _with_nan(inputs: Callable[[int], list[Any]]) -> Callable[[int], list[Any]]:
    """Return inputs that have NaN, and now and then an infinity, at places that depend on their values.

    A process has them in its part, or has none: what comes of them is the same in all.
    """

    def found(of: int) -> list[Any]:
        xs = inputs(of)
        for k, x in enumerate(xs):
            array = x.numpy()
            chance = np.random.default_rng(crc32(array.tobytes()))
            if not array.size or not x.dtype.inexact or (k and chance.random() < 0.5):
                continue
            for _ in range(int(chance.integers(1, 4))):
                array.flat[chance.integers(array.size)] = chance.choice(_HOSTILE, p=(0.5, 0.2, 0.15, 0.15))
            xs[k] = tc.asarray(array)
        return xs

    return found


def _results(
    made: Callable[[], Any], inputs: Callable[[int], list[Any]], spread: Callable[[Any, int], Any], how: str | None
) -> list[NDArray[Any] | None]:
    """Return what a program gives: its values, the gradients of their squares, and its Variables afterwards."""
    tc.set_seed(0)
    function, variables = made()
    xs = [spread(x, k) for k, x in enumerate([*inputs(2), *variables])][: len(inputs(2))]

    def derived(*xs: Any) -> list[Any]:
        sources = [x for x in (*xs, *variables) if x.dtype.inexact]
        with tc.GradientTape() as tape:
            tape.watch(sources)
            found = function(*xs)
            loss = sum([tc.sum(tc.real(x * tc.conj(x))) for x in found if x.dtype.inexact], tc.sum(xs[0]) * 0.0)
        return [*found, *tape.gradient(loss, sources)]

    run = derived if how is None else tc.function(derived, compile=None if how == "python" else how)
    for _ in range(RUNS):
        found = run(*xs)
    full = _mesh().engine.full
    whole = [value if value is None else full(tc.asarray(value)) for value in (*found, *variables)]
    return [None if value is None else np.asarray(value.numpy()) for value in whole]


def compare(made: Callable[[], Any], inputs: Callable[[int], list[Any]], *, has_nan: bool = False) -> None:
    """Compare a program on divided arrays with the same on plain ones, eagerly and compiled.

    Args:
        made: returns a function and its Variables.
        inputs: returns arguments for it.
        has_nan: whether NaN and infinities are put among the arguments.

    Raises:
        AssertionError: they differ, or the program raises on divided arrays alone.
    """
    m = _mesh()
    # JAX's own extremes over several devices of the CPU lose a NaN, as docs/jax.md says.
    inputs = _with_nan(inputs) if has_nan and not ON_JAX else inputs
    with tc.use_backend("jax" if ON_JAX else "torch:cpu"):
        try:
            expected = _results(made, inputs, lambda value, k: value, None)
        except Exception:  # noqa: BLE001 - whatever it is, it has nothing to do with layouts
            return
        for name, how in WAYS.items():
            try:
                found = _results(made, inputs, partial(_spread, m), how)
            except ValueError as error:
                if _TAKEN_OUT in str(error):
                    return
                raise
            except RuntimeError as error:
                if ON_JAX and _UNKNOWN_TO_XLA in str(error):
                    return
                raise
            for k, (one, other) in enumerate(zip(found, expected, strict=True)):
                assert (one is None) == (other is None), f"{name}: value {k} is {one}, and not {other}"
                if one is None or other is None:
                    continue
                scale = float(np.max(np.abs(other), initial=1.0, where=np.isfinite(other)))
                same = one.shape == other.shape and np.allclose(one, other, 1e-7, 1e-8 * scale, equal_nan=True)
                assert same, f"{name}: value {k} is\n{one}\nand not\n{other}"


def main() -> None:
    """Draw programs and check each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="go on after a failure, and print it")
    parser.add_argument("--grammar", choices=("divided", "extremes"), help="by default both")
    options = parser.parse_args()
    _mesh()

    @seed(options.seed)
    @settings(
        max_examples=options.number,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # to make a failure smaller the processes would have to agree on it
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(programs(options.grammar) if options.grammar else programs("divided") | programs("extremes"))
    def search(drawn: tuple[Program, str]) -> None:
        try:
            check(drawn)
        except AssertionError:
            if not options.all:
                raise
            traceback.print_exc()

    with warnings.catch_warnings(), tc.use_backend("numpy"):
        warnings.simplefilter("ignore")
        search()


if __name__ == "__main__":
    main()
