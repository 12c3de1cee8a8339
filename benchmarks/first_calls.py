"""Measure first calls of the whole programs of `programs/` under `compile="xla"`, against those of `jax.jit`.

    python benchmarks/first_calls.py [--programs pinn,vae] [--peers jax.jit,numpy] [--rounds 3] [--small]

A first call traces the function, lowers it, and has XLA compile it. Each is measured in fresh processes, without caches
on the disk, after a trivial function has loaded what is loaded once, and with memory that the system has at hand: to
find 100 MB may take it longer than XLA takes to compile. It is the processor time of the first two calls, since arrays
of NumPy and PyTorch are in XLA's hands from the second, less that of two later ones. The minimum of the rounds
counts. The table also says how many programs XLA has compiled. `--keep FOLDER` has another process write them there,
and says how many operations they have. The exit status is 1 where a ratio is above the target.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any

from peers import threads_environment
from programs import NAMES, program

TARGET = 1.2
MEMORY = 1 << 28  # bytes, more than a step of any program takes anew
PEERS = ("jax.jit", "numpy, xla", "torch, xla", "jax, xla")
ENVIRONMENT = threads_environment(1) | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "JAX_PLATFORMS": "cpu",
}
_OPERATION = re.compile(r"^\s*(?:%\S+ = )?\"?((?:stablehlo|chlo|func)\.[a-z_]+|call)\b", re.MULTILINE)


def _load(peer: str) -> None:
    """Have a trivial function compiled, so that nothing of the libraries is loaded in the calls that are measured."""
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    if peer == "jax.jit":
        found = jax.jit(jax.value_and_grad(lambda x: (x["x"] * x["x"]).sum()))
        jax.block_until_ready([found({"x": jax.numpy.ones(3)}) for _ in range(3)])
        return
    import tape_core as tc

    with tc.use_backend(peer.split(",", maxsplit=1)[0]):
        x = {"x": tc.asarray(np.ones(3, np.float32))}
        found = tc.function(tc.value_and_grad(lambda x: tc.sum(x["x"] * x["x"])), compile="xla")
        for _ in range(3):
            found(x)


def measured(name: str, style: str, peer: str, *, small: bool, keep: str) -> dict[str, Any]:
    """Return the seconds of the first two calls in this process, and the programs that XLA has compiled in them."""
    import jax
    import numpy as np
    from whole_programs import steps_of

    _load(peer)
    step = steps_of(name, style, small)[peer]()
    programs: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            programs.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    if keep:
        jax.config.update("jax_dump_ir_to", keep)
    np.ones(MEMORY // 8)  # memory that is free again, and that a system in a virtual machine has from its host by now
    begin = process_time()
    step()
    step()
    took = process_time() - begin
    begin = process_time()
    step()
    step()
    took -= process_time() - begin
    return {"seconds": took, "programs": len(programs)}


def fresh(name: str, style: str, peer: str, *, small: bool, keep: str = "") -> dict[str, Any]:
    """Return what `measured` says in a fresh process."""
    command = [sys.executable, __file__, "--one", json.dumps([name, style, peer, small, keep])]
    environment = os.environ | ENVIRONMENT
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(NAMES), help="names with commas between them; default: all")
    parser.add_argument("--peers", default="", help="parts of the peers' names with commas between them; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each, in turns")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests: only to try this file")
    parser.add_argument("--keep", help="a folder for the programs that XLA compiles")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, style, peer, small, keep = json.loads(options.one)
        print(json.dumps(measured(name, style, peer, small=small, keep=keep)))
        return 0
    parts = [part for part in options.peers.split(",") if part]
    peers = [peer for peer in PEERS if not parts or any([part in peer for part in parts]) or peer == "jax.jit"]
    print("| program | peer | first two calls | ratio | programs | operations |")
    print("|---|---|---:|---:|---:|---:|")
    failed = False
    for name in options.programs.split(","):
        module = program(name)
        for style in module.STYLES:
            if getattr(module, "JAX_OF_STYLE", {}).get(style, getattr(module, "with_jax", None)) is None:
                continue  # JAX has no such program
            rounds: dict[str, list[dict[str, Any]]] = {}
            for _ in range(options.rounds):
                for peer in peers:
                    rounds.setdefault(peer, []).append(fresh(name, style, peer, small=options.small))
            least = {peer: min([one["seconds"] for one in found]) for peer, found in rounds.items()}
            for peer, found in rounds.items():
                ratio = least[peer] / least["jax.jit"]
                failed |= ratio > TARGET
                operations = ""
                if options.keep:
                    folder = Path(options.keep) / f"{name}-{style}-{peer.split(',')[0]}"
                    fresh(name, style, peer, small=options.small, keep=str(folder))
                    texts = [path.read_text() for path in folder.glob("*compile.mlir")]
                    operations = str(sum([len(_OPERATION.findall(text)) for text in texts]))
                figures = f"{least[peer]:.2f} s | {ratio:.2f} | {found[0]['programs']} | {operations}"
                print(f"| {name}, {style} | {peer} | {figures} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
