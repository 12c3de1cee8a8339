"""Steps of data-parallel training in several processes: Tape against PyTorch's DistributedDataParallel and FSDP2.

    torchrun --nproc-per-node 2 benchmarks/parallel.py
    torchrun --nproc-per-node 2 benchmarks/parallel.py --memory "Sharded, compiled"

Each process trains the same network, an MLP with Adam, on its rows of a batch. The sides take turns in one run; of each
the median step is compared with that of PyTorch's own for the same layout, and the state that a process holds with the
whole.

- `averaged_gradient`: a loop of one's own with plain arrays, and gradients averaged while the backward pass goes on, as
  DistributedDataParallel does.
- `Replicated` and `Sharded`: the strategies of `nn.parallel`, whose arrays are DTensors, eagerly and compiled,
  which is by parts.

With `--memory` one side alone is run, and the table has by how many bytes its process grew at most, since the data were
made: of several sides in one process it is the largest that would be seen. PyTorch's own sides have the heap
of the C library then as it is without Tape.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tape_core as tc
import tape_nn as nn
import torch
import torch.distributed as dist
from tape_torch.distributed import averaged_gradient, mesh
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def torch_side(wrap: Callable[[Any], Any], width: int, depth: int, x: torch.Tensor) -> tuple[Callable[[], None], int]:
    """Return a step of PyTorch's own, and the bytes of the parameters that this process holds."""
    layers: list[Any] = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    model = wrap(torch.nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss = ((model(x) - x) ** 2).mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return step, sum(_held(p) for p in model.parameters())


def tape_side(
    kind: str, width: int, depth: int, batch: Any, own: Any, compiled: bool
) -> tuple[Callable[[], None], int]:
    """Return a step of Tape's, and the bytes of the parameters that this process holds."""
    tc.set_seed(0)  # the same weights in all processes
    model = nn.Sequential([nn.Dense(width, activation="tanh") for _ in range(depth)])
    model.build((None, width))
    optimizer = nn.Adam(1e-3)
    m = mesh()
    x = own
    if kind != "averaged_gradient":
        strategy = nn.parallel.Replicated(m) if kind == "Replicated" else nn.parallel.Sharded(m)
        strategy.prepare(model)
        x = strategy.divide(batch)
    variables = model.trainable_variables

    def update(x: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - x) ** 2)
        if kind == "averaged_gradient":
            gradients = averaged_gradient(tape, loss, variables, m)
        else:
            gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    run = tc.function(update) if compiled else update
    return lambda: float(run(x)) and None, sum(_held(v.array) for v in variables)


def _held(p: Any) -> int:
    own = p.to_local() if hasattr(p, "to_local") else p
    return int(own.numel() * own.element_size())


def _memory(name: str, make: Callable[[], tuple[Callable[[], None], int]], steps: int, rank: int) -> None:
    """Print by how many MB the process grew at most, and what it holds: parameters, and twice as much for Adam."""
    before = _peak()
    step, held = make()
    for _ in range(5):  # traced, noted, and compiled
        step()
    first = _peak() - before
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
    for _ in range(steps):
        step()
    later = _peak() - before
    if rank == 0:
        print(
            f"{name:<24} grew by {later:7.0f} MB, in its first steps by {first:7.0f}; "
            f"{3 * held / 2**20:.0f} MB are its state"
        )


def _peak() -> float:
    """Return the most MB that the process has had in memory, as Linux counts them."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--rows", type=int, default=256, help="of the whole batch")
    parser.add_argument("--memory", metavar="SIDE", help="measure the memory of one side")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tc.set_backend("torch:cpu")
    if options.memory in ("DDP", "FSDP2"):  # a mesh of Tape's has glibc map large blocks
        dist.init_process_group("gloo")
    else:
        mesh(device="cpu")
    rank, size_of_all = dist.get_rank(), dist.get_world_size()
    processes = init_device_mesh("cpu", (size_of_all,))
    rows = torch.randn(options.rows, options.width, generator=torch.Generator().manual_seed(0))
    own = rows.chunk(size_of_all)[rank].clone()
    size = options.width, options.depth
    makers: dict[str, Callable[[], tuple[Callable[[], None], int]]] = {
        "DDP": lambda: torch_side(DistributedDataParallel, *size, own),
        "FSDP2": lambda: torch_side(lambda model: fully_shard(model, mesh=processes), *size, own),
    }
    for kind in ("averaged_gradient", "Replicated", "Sharded"):
        for compiled in (False, True):
            name = f"{kind}, compiled" if compiled else kind
            makers[name] = partial(tape_side, kind, *size, tc.asarray(rows), tc.asarray(own), compiled)
    if options.memory:
        _memory(options.memory, makers[options.memory], options.steps, rank)
        return
    sides = {name: make() for name, make in makers.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(options.steps + 3):
        for name, (step, _) in sides.items():
            begin = time.perf_counter()
            step()
            if k >= 3:
                times[name].append(time.perf_counter() - begin)
    whole = sides["DDP"][1]
    if rank == 0:
        for name, found in times.items():
            peer = "FSDP2" if name.startswith(("Sharded", "FSDP2")) else "DDP"
            ratio = statistics.median(found) / statistics.median(times[peer])
            print(
                f"{name:<30} {statistics.median(found) * 1e3:8.2f} ms   {ratio:5.2f} of {peer:<6}"
                f" holds {sides[name][1] / whole:5.2f} of the parameters"
            )


if __name__ == "__main__":
    main()
