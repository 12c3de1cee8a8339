"""Time the whole programs of `programs/`: Tape on NumPy and PyTorch, eager and compiled, against PyTorch and JAX.

    python benchmarks/whole_programs.py [--programs pinn,vae] [--peers jax.jit,xla] [--seconds 4] [--small]

All steps of a program take turns in a process, on one thread; the table has minima divided by the minimum of `jax.jit`,
or of PyTorch where JAX has no such program or is not installed, and the time of the first two calls in seconds: a
function that is compiled by XLA is traced in its first call, and NumPy's and PyTorch's arrays are in XLA's hands from
the second. The last lines sum up the ratios of each peer over the programs that it has in common with the base.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from statistics import fmean
from time import perf_counter
from typing import Any

from peers import threads_environment
from programs import NAMES, Step, program, program_data


def on_backend(backend: str, make: Callable[[], Step]) -> Step:
    """Return the step that is made and taken on a backend of Tape."""
    import tape_core as tc

    with tc.use_backend(backend):
        step = make()

    def taken() -> list[Any]:
        if tc.get_backend().name != backend:  # once in each turn: programs select their backend once
            tc.set_backend(backend)
        found = step()
        if backend == "jax":  # JAX returns before its arrays are computed
            import jax

            jax.block_until_ready([x.array if isinstance(x, tc.Tensor) else x for x in tc.tree_leaves(found)])
        return found

    return taken


def steps_of(name: str, style: str, small: bool) -> dict[str, Callable[[], Step]]:
    """Return what makes the steps of Tape and of the peers."""
    import tape_core as tc

    module, data = program(name), program_data(name, small)
    makers: dict[str, Callable[[], Step]] = {}
    for peer, wrapped in (("jax.jit", True), ("JAX", False)):
        make = getattr(module, "JAX_OF_STYLE", {}).get(style, getattr(module, "with_jax", None))
        if make and find_spec("jax") and (wrapped or small):  # eager JAX takes minutes for some
            import jax

            makers[peer] = functools.partial(make, data, jax.jit if wrapped else lambda f: f)
    if find_spec("torch"):
        make = getattr(module, "TORCH_OF_STYLE", {}).get(style, getattr(module, "with_torch", None))
        if make:
            makers["PyTorch"] = functools.partial(make, data)
    has_jax = bool(find_spec("tape_jax"))
    xla = functools.partial(tc.function, compile="xla")
    for backend in ["numpy"] + ["torch"] * bool(find_spec("tape_torch")) + ["jax"] * has_jax:
        ways: list[tuple[str, Any]] = [(backend, lambda f: f), (f"{backend}, compiled", tc.function)]
        if backend == "jax":  # its kernels one by one are measured elsewhere, and take minutes here
            ways = []
        if has_jax:
            ways.append((f"{backend}, xla", xla))
        if backend == "jax":  # as `jax.jit` is told in the programs that train
            ways.append(("jax, xla, Variables donated", functools.partial(xla, donate_variables=True)))
        for label, wrap in ways:
            style_of = module.STYLES[style]
            makers[label] = functools.partial(on_backend, backend, functools.partial(style_of, data, wrap))
    return makers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(NAMES), help="names with commas between them; default: all")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each style of each program")
    parser.add_argument("--peers", default="", help="parts of the peers' names with commas between them; default: all")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests: only to try this file")
    options = parser.parse_args()
    if find_spec("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)

    import timing

    print("| program | peer | time | ratio | first two calls |\n|---|---|---:|---:|---:|")
    failed = False
    wanted = [part for part in options.peers.split(",") if part]
    ratios: dict[str, list[float]] = {}
    firsts: dict[str, list[float]] = {}
    for name in options.programs.split(","):
        for style in program(name).STYLES:
            steps: dict[str, Step] = {}
            first: dict[str, float] = {}
            for peer, make in steps_of(name, style, options.small).items():
                if wanted and not any([part in peer for part in wanted]):
                    continue
                try:
                    step = make()
                    begin = perf_counter()
                    step()
                    step()
                    first[peer] = perf_counter() - begin
                    steps[peer] = step
                except Exception as error:  # noqa: BLE001  # the others are measured
                    failed = True
                    print(f"| {name}, {style} | {peer} | {type(error).__name__}: {error} | | |", flush=True)
            times = {p: t.minimum for p, t in timing.interleaved(steps, options.seconds).items()}  # type: ignore[arg-type]
            base = next((times[peer] for peer in ("jax.jit", "PyTorch") if peer in times), min(times.values()))
            for peer, seconds in times.items():
                if "jax.jit" in times:
                    ratios.setdefault(peer, []).append(seconds / base)
                    firsts.setdefault(peer, []).append(first[peer] / first["jax.jit"])
                figures = f"{seconds * 1e3:.3g} ms | {seconds / base:.2f} | {first[peer]:.2f} s"
                print(f"| {name}, {style} | {peer} | {figures} |", flush=True)
    for peer, found in ratios.items():
        print(
            f"{peer}: {len(found)} programs, a step is {fmean(found):.2f} times jax.jit's on average, at most "
            f"{max(found):.2f}; the first two calls {fmean(firsts[peer]):.2f}"
        )
    return int(failed)


ENVIRONMENT = threads_environment(1) | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

if __name__ == "__main__":
    # Read when libraries are loaded, hence the second process.
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENVIRONMENT)
    sys.exit(main())
