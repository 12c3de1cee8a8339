"""Steps of data-parallel training in several processes: Tape against PyTorch's DistributedDataParallel and FSDP2.

    torchrun --nproc-per-node 2 benchmarks/parallel.py

Each process trains the same network, an MLP with Adam, on its rows of a batch. The sides take turns in one run; of each
the median step is compared with that of PyTorch's own for the same layout, and the state that a process holds with the
whole.

- `averaged_gradient`: a loop of one's own with plain arrays, and gradients averaged while the backward pass goes on, as
  DistributedDataParallel does.
- `Replicated` and `Sharded`: the strategies of `nn.parallel`, whose arrays are DTensors, eagerly and compiled.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import tape_core as tc
import tape_nn as nn
import torch
from tape_torch.distributed import averaged_gradient, mesh
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


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--rows", type=int, default=256, help="of the whole batch")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tc.set_backend("torch:cpu")
    m = mesh(device="cpu")
    rows = torch.randn(options.rows, options.width, generator=torch.Generator().manual_seed(0))
    own = rows.chunk(m.size)[m.rank].clone()
    size = options.width, options.depth
    sides = {
        "DDP": torch_side(DistributedDataParallel, *size, own),
        "FSDP2": torch_side(lambda model: fully_shard(model, mesh=m.device_mesh), *size, own),
    }
    for kind in ("averaged_gradient", "Replicated", "Sharded"):
        for compiled in (False, True):
            name = f"{kind}, compiled" if compiled else kind
            sides[name] = tape_side(kind, *size, tc.asarray(rows), tc.asarray(own), compiled)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(options.steps + 3):
        for name, (step, _) in sides.items():
            begin = time.perf_counter()
            step()
            if k >= 3:
                times[name].append(time.perf_counter() - begin)
    whole = sides["DDP"][1]
    if m.rank == 0:
        for name, found in times.items():
            peer = "FSDP2" if name.startswith(("Sharded", "FSDP2")) else "DDP"
            ratio = statistics.median(found) / statistics.median(times[peer])
            print(
                f"{name:<30} {statistics.median(found) * 1e3:8.2f} ms   {ratio:5.2f} of {peer:<6}"
                f" holds {sides[name][1] / whole:5.2f} of the parameters"
            )


if __name__ == "__main__":
    main()
