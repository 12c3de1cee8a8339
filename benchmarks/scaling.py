"""How communication and memory grow with the number of processes: by formulas, by simulation, and counted.

    python benchmarks/scaling.py              the table, and the check against simulated processes
    python benchmarks/scaling.py --docs       also the picture of docs/distributed.md

The formulas are those of the literature:

- A ring of N processes sends (N - 1) / N of the bytes for an all-gather and for a reduce-scatter, and twice that for an
  all-reduce, which is one after the other (Patarasuk and Yuan, 2009). PyTorch's cost model counts the same.
- Replicated: one all-reduce of the gradients, 2 Ψ. Fully sharded: the weights are gathered forward and again backward,
  and the gradients are reduced and scattered, 3 Ψ (Rajbhandari et al., ZeRO, 2020, section 7).
- Tensor-parallel: four all-reduces of the activations in each block, two forward and two backward (Shoeybi et al.,
  Megatron-LM, 2019), over T processes, and the all-reduce of the gradients of 1 / T of the weights over N / T.
- A parameter takes 16 bytes with its gradient and the two moments of Adam in float32; in mixed precision, as ZeRO
  counts, they are 2 + 2 + 12, which is the same.
- The activations of a block are s b h (10 + 24 / T) bytes in 16 bits if attention keeps no scores (Korthikanti et al.,
  Reducing Activation Recomputation, 2022, equation 2), and twice that in float32.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Layout = Literal["replicated", "sharded", "tensor x data"]
LAYOUTS: tuple[Layout, ...] = ("replicated", "sharded", "tensor x data")
SIZES = tuple(2**k for k in range(3, 13))  # 8 to 4,096 processes
FLOAT = 4  # bytes
STATE = 16  # bytes of a parameter, with its gradient and what Adam keeps
DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class Transformer:
    """The blocks of a transformer, without its embeddings, and the work of a process.

    Attributes:
        blocks, width, sequence: of the model.
        batch: sequences for each process in a step.
        tensor: the processes among which "tensor x data" divides each weight: those of one machine.
    """

    blocks: int
    width: int
    sequence: int
    batch: int
    tensor: int = 8

    @property
    def parameters(self) -> int:
        """Those of the matrices: 4 of width x width in attention, 2 of width x 4 width after it."""
        return 12 * self.width**2 * self.blocks


LARGE = Transformer(blocks=32, width=4096, sequence=2048, batch=1)  # 6.4e9 parameters


@dataclass(frozen=True)
class Cost:
    """Of one process: the bytes that it sends in a step, and those that it holds."""

    volume: float
    state: float
    activations: float


def ring(kind: Literal["all_reduce", "all_gather", "reduce_scatter"], size: float, n: int) -> float:
    """Return the bytes that each of n processes sends for a collective of a whole array of so many bytes."""
    return (2 if kind == "all_reduce" else 1) * size * (n - 1) / n


def cost(model: Transformer, layout: Layout, n: int) -> Cost:
    """Return the cost of a process of n, by the formulas."""
    weights = FLOAT * model.parameters
    tokens = model.sequence * model.batch
    if layout == "replicated":
        return Cost(
            ring("all_reduce", weights, n), STATE * model.parameters, model.blocks * activations(model, tokens, 1)
        )
    if layout == "sharded":
        volume = 2 * ring("all_gather", weights, n) + ring("reduce_scatter", weights, n)
        # The weights of one block are whole for a moment, and so are its gradients.
        whole = 2 * weights / model.blocks
        state = STATE * model.parameters / n + whole
        return Cost(volume, state, model.blocks * activations(model, tokens, 1))
    t = min(model.tensor, n)
    tokens *= t  # the processes that divide the weights have their sequences together
    volume = ring("all_reduce", weights / t, n // t)
    volume += 4 * model.blocks * ring("all_reduce", FLOAT * tokens * model.width, t)
    return Cost(volume, STATE * model.parameters / t, model.blocks * activations(model, tokens, t))


def activations(model: Transformer, tokens: int, t: int) -> float:
    """Return the bytes that a block keeps for the backward pass."""
    return tokens * model.width * (20 + 48 / t)


# -- counted: a step in processes that are real, or simulated by PyTorch's "fake" group, which moves nothing


@dataclass(frozen=True)
class Counted:
    """What a step of the model below has sent and holds.

    Attributes:
        volume: the bytes of its collectives, as a ring sends them.
        wire: the bytes that the process gave to the system meanwhile; None where it does not say.
        weights: the bytes of the weights of this process.
    """

    volume: float
    wire: int | None
    weights: int


BLOCKS, WIDTH, INNER, ROWS = 3, 4096, 32, 2


def expected(layout: Layout, n: int, t: int) -> tuple[float, float]:
    """Return by the formulas the bytes sent, and of the weights held, by the model of `count`.

    Its blocks are pairs of matrices with a function between, as attention and what follows it are for communication:
    so there are two all-reduces of activations in each and not four; those of the input's gradient are not needed.
    """
    weights = FLOAT * 2 * WIDTH * INNER * BLOCKS
    if layout == "replicated":
        return ring("all_reduce", weights, n), weights
    if layout == "sharded":
        return 2 * ring("all_gather", weights, n) + ring("reduce_scatter", weights, n), weights / n
    volume = ring("all_reduce", weights / t, n // t)
    volume += (2 * BLOCKS - 1) * ring("all_reduce", FLOAT * ROWS * t * WIDTH, t)
    return volume, weights / t


def count(layout: Layout, n: int, t: int = 1) -> Counted:
    """Take a step of training in this process, of n that there are, and count."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    names = ("data", "model") if layout == "tensor x data" else ("data",)
    shape = (n // t, t) if layout == "tensor x data" else (n,)
    device_mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    torch.manual_seed(0)
    step, weights = (_mixed_step if layout == "tensor x data" else _tape_step)(layout, device_mesh, t)
    with _counting() as counting:
        before = written()
        step()
        after = written()
    wire = None if before is None or after is None else after - before
    return Counted(counting.volume, wire, weights)


def _tape_step(layout: Layout, device_mesh: Any, t: int) -> tuple[Callable[[], object], int]:
    import tape_core as tc
    import torch
    from tape_torch.distributed import Mesh, distribute, local
    from torch.distributed.tensor import DTensor, Shard

    tc.set_backend("torch:cpu")
    mesh = Mesh(device_mesh)
    pairs = [(tc.Variable(_matrix(WIDTH, INNER)), tc.Variable(_matrix(INNER, WIDTH))) for _ in range(BLOCKS)]
    along = {WIDTH: ("data",), INNER: (None, "data")}
    variables = [variable for pair in pairs for variable in pair]
    distribute(variables, () if layout == "replicated" else lambda _, one: along[one.shape[0]], mesh=mesh)
    x = tc.asarray(DTensor.from_local(torch.randn(ROWS, WIDTH), device_mesh, [Shard(0)], run_check=False))

    def block(x: tc.Tensor, *weights: tc.Tensor) -> tc.Tensor:
        # Whole for the time of the block; where they are copies already, this does nothing.
        inward, outward = (distribute(weight + 0.0, (), mesh=mesh) for weight in weights)
        return tc.tanh(x @ inward) @ outward

    # What is forgotten is gathered again in the backward pass.
    take = block if layout == "replicated" else tc.checkpoint(block)

    def step() -> object:
        with tc.GradientTape() as tape:
            y = x
            for pair in pairs:
                y = take(y, *pair)
            loss = tc.sum(y)
        return tape.gradient(loss, variables)

    step()  # groups connect when they are first used
    return step, sum(local(one).size * FLOAT for one in variables)


def _matrix(rows: int, columns: int) -> Any:
    import torch

    return torch.randn(rows, columns) / rows**0.5


def _mixed_step(layout: Layout, device_mesh: Any, t: int) -> tuple[Callable[[], object], int]:
    import torch
    from torch.distributed import _functional_collectives
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    collectives: Any = _functional_collectives
    layers: list[torch.nn.Module] = []
    plan: dict[str, Any] = {}
    for k in range(BLOCKS):
        plan |= {str(3 * k): ColwiseParallel(), str(3 * k + 2): RowwiseParallel()}
        layers += [torch.nn.Linear(WIDTH, INNER, bias=False), torch.nn.Tanh()]
        layers += [torch.nn.Linear(INNER, WIDTH, bias=False)]
    model = parallelize_module(torch.nn.Sequential(*layers), device_mesh["model"], plan)
    x = torch.randn(ROWS * t, WIDTH)

    def step() -> object:
        model(x).sum().backward()
        averaged = []
        for p in model.parameters():
            gradient: Any = p.grad
            averaged.append(collectives.all_reduce(gradient.to_local(), "avg", device_mesh["data"]))
            p.grad = None
        return [collectives.wait_tensor(one) for one in averaged]

    step()
    local: Any = list(model.parameters())
    return step, sum(p.to_local().nbytes for p in local)


def _counting() -> Any:
    """Return a context that adds up the bytes of collectives, of arrays that are no mere numbers such as the loss."""
    import torch
    from torch.distributed import distributed_c10d
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    mode: Any = TorchDispatchMode
    c10d: Any = distributed_c10d
    kinds: dict[str, Any] = {
        "_c10d_functional::all_reduce": "all_reduce",
        "_c10d_functional::all_reduce_": "all_reduce",
        "_c10d_functional::all_gather_into_tensor": "all_gather",
        "_c10d_functional::reduce_scatter_tensor": "reduce_scatter",
    }

    class Counting(mode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.volume = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(kind is DTensor for kind in types):
                return NotImplemented  # it comes again, as what it does with its parts
            out = func(*args, **(kwargs or {}))
            name = func._schema.name
            if name in kinds and isinstance(args[-1], str):
                whole = out if kinds[name] == "all_gather" else args[0]
                if isinstance(whole, torch.Tensor) and whole.numel() > 1:
                    self.volume += ring(kinds[name], whole.nbytes, c10d._resolve_process_group(args[-1]).size())
            return out

    return Counting()


def written() -> int | None:
    """Return the bytes that this process has given to the system so far, to sockets as to files."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def simulate(layout: Layout, n: int, t: int = 1) -> Counted:
    """Count a step of the first of n processes, of which the others do not exist."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=n)
    try:
        return count(layout, n, t)
    finally:
        dist.destroy_process_group()


def cost_model(kind: str, size: float, n: int) -> float:
    """Return the seconds that a collective takes by PyTorch's cost model without its latency, times the bandwidth.

    That is the number of bytes which the model takes to be sent.
    """
    from torch.distributed.tensor import _collective_utils as torch_costs

    gigabytes = size / 2**30
    topology = torch_costs.MeshTopoInfo(None, [n], [1.0], [0.0])  # type: ignore[arg-type]
    functions: dict[str, Any] = {
        "all_reduce": torch_costs.allreduce_cost,
        "all_gather": torch_costs.allgather_cost,
        "reduce_scatter": torch_costs.reduce_scatter_cost,
    }
    latency = functions[kind](0.0, topology, 0)
    found: float = (functions[kind](gigabytes, topology, 0) - latency) / 1e6 * 2**30
    return found


# -- the page


def table(model: Transformer) -> list[str]:
    """Return the lines of a table in Markdown: gigabytes of each process."""
    lines = [
        "| processes | " + " | ".join(f"{layout}: sent | holds" for layout in LAYOUTS) + " |",
        "|---|" + "---|---|" * len(LAYOUTS),
    ]
    for n in SIZES[::3]:
        cells = []
        for layout in LAYOUTS:
            one = cost(model, layout, n)
            cells += [f"{one.volume / 1e9:.1f}", f"{(one.state + one.activations) / 1e9:.1f}"]
        lines.append(f"| {n:,} | " + " | ".join(cells) + " |")
    return lines


def draw(model: Transformer, simulated: dict[Layout, dict[int, float]], path: Path) -> None:
    """Draw volume and memory against the number of processes; rings where a simulated step was counted."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    looks = {"replicated": ("#0466c8", "o"), "sharded": ("#c1121f", "s"), "tensor x data": ("#40916c", "^")}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for layout in LAYOUTS:
        color, marker = looks[layout]
        costs = [cost(model, layout, n) for n in SIZES]
        label = layout.replace(" x ", " × ")
        left.plot(SIZES, [one.volume / 1e9 for one in costs], color=color, marker=marker, markersize=4, label=label)
        # The simulated model is small: its ratio to the formula, put on the curve.
        points = [(n, cost(model, layout, n).volume / 1e9 * ratio) for n, ratio in simulated.get(layout, {}).items()]
        left.scatter(*zip(*points, strict=True), s=90, facecolors="none", edgecolors=color, linewidths=1.2)
        right.plot(SIZES, [one.state / 1e9 for one in costs], color=color, marker=marker, markersize=4)
        total = [(one.state + one.activations) / 1e9 for one in costs]
        right.plot(SIZES, total, "--", color=color, linewidth=1)
    left.scatter([], [], s=90, facecolors="none", edgecolors="#555555", label="counted in simulated processes")
    right.plot([], [], color="#555555", label="weights, gradients, Adam's moments")
    right.plot([], [], "--", color="#555555", linewidth=1, label="and activations")
    left.set_ylim(bottom=0)
    right.set_yscale("log")
    right.yaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100, 200]))
    right.yaxis.set_minor_formatter(NullFormatter())
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(SIZES))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.tick_params(axis="x", labelsize=7.5)
        axes.grid(color="#ececec")
        axes.set_axisbelow(True)
        axes.set_xlabel("processes")
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1.0, 0.68))
    left.set_ylabel("GB that a process sends in a step")
    right.set_ylabel("GB that a process holds")
    figure.suptitle(
        f"A transformer of {model.parameters / 1e9:.1f}e9 parameters, {model.batch} sequence of {model.sequence:,} for "
        "each process",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    """Print the table, simulate, and with `--docs` draw."""
    if sys.argv[1:2] == ["--simulate"]:
        layout: Any = sys.argv[2]
        n = int(sys.argv[3])
        t = min(LARGE.tensor, n)
        found, (volume, weights) = simulate(layout, n, t), expected(layout, n, t)
        print(found.volume / volume, found.weights / weights)
        return
    print("\n".join(table(LARGE)))
    simulated: dict[Layout, dict[int, float]] = {}
    for layout in LAYOUTS:
        for n in SIZES[::3]:
            # In a process of its own: a process group is for the whole process.
            command = [sys.executable, __file__, "--simulate", layout, str(n)]
            output = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
            volume, weights = map(float, output.split())
            print(f"{layout}, {n:,} simulated: {volume:.4f} of the formula's bytes, {weights:.4f} of its weights")
            simulated.setdefault(layout, {})[n] = volume
    if "--docs" in sys.argv:
        draw(LARGE, simulated, DOCS / "_static" / "distributed-growth.png")


if __name__ == "__main__":
    main()
