"""Measure Tape on PyTorch against PyTorch, eager and compiled, on a GPU.

    python benchmarks/gpu.py                          on the CUDA device
    python benchmarks/gpu.py --device cpu --small     whether it works, in seconds

A step computes a value and the gradients of all parameters. Before timing, each peer is compared with PyTorch in
float32, and runs a step in which waiting for the device is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import memory
import tape_core as tc
import torch
from report import number, table
from torch.nn import functional

ROOT = Path(__file__).resolve().parent
SEED = 20260
PEERS = {"tape": "Tape on PyTorch", "torch": "PyTorch eager", "compiled": "torch.compile"}

Arrays = list[Any]
Loss = Callable[[Arrays, Arrays], Any]
Step = Callable[[], tuple[Any, Arrays]]


@dataclass
class Workload:
    """The same function of inputs and parameters, written for Tape and for PyTorch."""

    title: str
    inputs: list[torch.Tensor]
    parameters: list[torch.Tensor]
    tape: Loss
    torch: Loss


# -- the workloads


def tape_mlp(inputs: Arrays, parameters: Arrays) -> Any:
    x, labels = inputs
    w1, b1, w2, b2, w3, b3 = parameters
    h1 = tc.relu(x @ w1 + b1)
    h2 = tc.relu(h1 @ w2 + b2)
    return tc.mean(tc.cross_entropy(h2 @ w3 + b3, labels))


def torch_mlp(inputs: Arrays, parameters: Arrays) -> Any:
    x, labels = inputs
    w1, b1, w2, b2, w3, b3 = parameters
    h1 = torch.relu(torch.addmm(b1, x, w1))
    h2 = torch.relu(torch.addmm(b2, h1, w2))
    return functional.cross_entropy(torch.addmm(b3, h2, w3), labels)


def mlp(batch: int, device: torch.device) -> Workload:
    sizes = (784, 512, 512, 10)
    parameters = []
    for n, m in pairwise(sizes):
        parameters += [torch.randn(n, m, device=device) * (2 / n) ** 0.5, torch.randn(m, device=device) * 0.1]
    inputs = [torch.randn(batch, sizes[0], device=device), torch.randint(sizes[-1], (batch,), device=device)]
    return Workload(f"mnist_mlp, batch {batch}, float32", inputs, parameters, tape_mlp, torch_mlp)


def wide(size: int, device: torch.device) -> Workload:
    def on_tape(inputs: Arrays, parameters: Arrays) -> Any:
        x, w, b = parameters
        return tc.sum(tc.tanh(x * w + b) ** 2 * tc.exp(-x * x))

    def on_torch(inputs: Arrays, parameters: Arrays) -> Any:
        x, w, b = parameters
        return torch.sum(torch.tanh(x * w + b) ** 2 * torch.exp(-x * x))

    parameters = [torch.randn(size, device=device) for _ in range(3)]
    return Workload(f"wide, {size:,} elements, float32", [], parameters, on_tape, on_torch)


EACH = 12  # parameters of a block


def tape_block(x: Any, parameters: Arrays, heads: int) -> Any:
    s1, o1, w_in, b_in, w_out, b_out, s2, o2, w_up, b_up, w_down, b_down = parameters
    n, length, features = x.shape
    h = tc.reshape(tc.layer_norm(x, s1, o1) @ w_in + b_in, (n, length, 3, heads, features // heads))
    query, key, value = tc.unstack(tc.permute_dims(h, (2, 0, 3, 1, 4)))
    h = tc.scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + (tc.reshape(tc.permute_dims(h, (0, 2, 1, 3)), (n, length, features)) @ w_out + b_out)
    return x + (tc.gelu(tc.layer_norm(x, s2, o2) @ w_up + b_up) @ w_down + b_down)


def torch_block(x: Any, parameters: Arrays, heads: int) -> Any:
    s1, o1, w_in, b_in, w_out, b_out, s2, o2, w_up, b_up, w_down, b_down = parameters
    n, length, features = x.shape
    h = functional.linear(functional.layer_norm(x, (features,), s1, o1), w_in.mT, b_in)
    query, key, value = h.reshape(n, length, 3, heads, features // heads).permute(2, 0, 3, 1, 4).unbind()
    h = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    x = x + functional.linear(h.permute(0, 2, 1, 3).reshape(n, length, features), w_out.mT, b_out)
    h = functional.linear(functional.layer_norm(x, (features,), s2, o2), w_up.mT, b_up)
    return x + functional.linear(functional.gelu(h), w_down.mT, b_down)


def transformer(blocks: int, batch: int, length: int, features: int, heads: int, device: torch.device) -> Workload:
    def through(block: Callable[..., Any], x: Any, parameters: Arrays) -> Any:
        for k in range(0, len(parameters), EACH):
            x = block(x, parameters[k : k + EACH], heads)
        return x

    def on_tape(inputs: Arrays, parameters: Arrays) -> Any:
        return tc.mean(tc.square(through(tape_block, inputs[0], parameters)))

    def on_torch(inputs: Arrays, parameters: Arrays) -> Any:
        return torch.mean(torch.square(through(torch_block, inputs[0], parameters)))

    def dense(n: int, m: int) -> list[torch.Tensor]:
        return [torch.randn(n, m, device=device) * n**-0.5, torch.randn(m, device=device) * 0.1]

    def norm() -> list[torch.Tensor]:
        return [1 + 0.1 * torch.randn(features, device=device), 0.1 * torch.randn(features, device=device)]

    parameters: list[torch.Tensor] = []
    for _ in range(blocks):
        parameters += [*norm(), *dense(features, 3 * features), *dense(features, features)]
        parameters += [*norm(), *dense(features, 4 * features), *dense(4 * features, features)]
    parameters = [p.to(torch.bfloat16) for p in parameters]
    inputs = [torch.randn(batch, length, features, device=device).to(torch.bfloat16)]
    title = f"{blocks} transformer blocks, {batch} × {length} × {features}, {heads} heads, bfloat16"
    return Workload(title, inputs, parameters, on_tape, on_torch)


def workloads(device: torch.device, small: bool) -> dict[str, Callable[[], Workload]]:
    """Made one after the other, for each may need most of the memory."""
    sizes = {
        "mnist_mlp": (16, 64) if small else (128, 8192),
        "transformer": (2, 2, 16, 32, 4) if small else (4, 32, 512, 1024, 16),
        "wide": 10_000 if small else 100_000_000,
    }
    first, second = sizes["mnist_mlp"]
    return {
        "mnist_mlp": lambda: mlp(first, device),
        "mnist_mlp_large": lambda: mlp(second, device),
        "transformer": lambda: transformer(*sizes["transformer"], device),
        "wide": lambda: wide(sizes["wide"], device),
    }


# -- the peers


def tape_step(workload: Workload) -> Step:
    inputs = [tc.asarray(x) for x in workload.inputs]
    parameters = [tc.Variable(p) for p in workload.parameters]

    def step():
        with tc.GradientTape() as tape:
            loss = workload.tape(inputs, parameters)
        return loss, tape.gradient(loss, parameters)

    return step


def torch_step(workload: Workload, loss_of: Loss, dtype: torch.dtype | None = None) -> Step:
    def of_dtype(x: torch.Tensor) -> torch.Tensor:
        return x.detach().to(dtype) if dtype is not None and x.is_floating_point() else x.detach()

    inputs = [of_dtype(x) for x in workload.inputs]
    parameters = [of_dtype(p).clone().requires_grad_() for p in workload.parameters]

    def step():
        loss = loss_of(inputs, parameters)
        return loss, list(torch.autograd.grad(loss, parameters))

    return step


def as_torch(value: Any) -> torch.Tensor:
    found: torch.Tensor = value.array if isinstance(value, tc.Tensor) else value
    return found.detach().to(torch.float32)


def errors(step: Step, reference: list[torch.Tensor]) -> float:
    """The largest relative error, in the norm, of the value and the gradients."""
    value, gradients = step()
    worst = 0.0
    for got, want in zip([value, *gradients], reference, strict=True):
        got = as_torch(got)
        if got.shape != want.shape:
            raise ValueError(f"a result has shape {tuple(got.shape)}, PyTorch's {tuple(want.shape)}")
        error = float(torch.linalg.vector_norm(got - want) / torch.linalg.vector_norm(want))
        if error != error:
            raise ValueError("a result is NaN")
        worst = max(worst, error)
    return worst


# -- measuring


@contextlib.contextmanager
def without_waiting(device: torch.device) -> Iterator[None]:
    """Whatever makes the host wait for the device is an error."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def seconds(step: Step, count: int, device: torch.device) -> float:
    """Seconds per step; on CUDA, between events of its stream."""
    if device.type != "cuda":
        begin = perf_counter()
        for _ in range(count):
            step()
        return (perf_counter() - begin) / count
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    first.record()
    for _ in range(count):
        step()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / count


def peak(step: Step, device: torch.device) -> int:
    """Bytes at the peak of one step, its results included, above what was there before it."""
    if device.type != "cuda":
        return memory.torch_peak(step)
    step()
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def measure(workload: Workload, peers: list[str], device: torch.device, limit: float) -> dict[str, Any]:
    """Times and peaks of the peers that agree with PyTorch in float32 as well as PyTorch itself does."""
    if "compiled" in peers:
        torch._dynamo.reset()
    eager = torch_step(workload, workload.torch)
    makers: dict[str, Callable[[], Step]] = {
        "tape": lambda: tape_step(workload),
        "torch": lambda: eager,
        "compiled": lambda: torch_step(workload, torch.compile(workload.torch)),
    }
    value, gradients = torch_step(workload, workload.torch, torch.float32)()
    reference = [as_torch(x) for x in (value, *gradients)]
    del value, gradients
    allowed = max(1e-4, 2 * errors(eager, reference))
    steps, failures, found = {}, {}, {}
    for peer in peers:
        try:
            step = makers[peer]()
            found[peer] = errors(step, reference)
            if found[peer] > allowed:
                raise ValueError(f"differs from PyTorch in float32 by {found[peer]:.1e}; {allowed:.1e} is allowed")
            with without_waiting(device):
                step()
        except Exception as error:  # noqa: BLE001  # one peer's failure must not end the run
            failures[peer] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        steps[peer] = step
    del reference
    return {"errors": found, "failures": failures, **times_and_peaks(steps, device, limit)}


def times_and_peaks(steps: dict[str, Step], device: torch.device, limit: float) -> dict[str, Any]:
    peaks = {peer: peak(step, device) for peer, step in steps.items()}
    samples: dict[str, list[float]] = {peer: [] for peer in steps}
    counts = {}
    for peer, step in steps.items():
        seconds(step, 3, device)  # warm
        counts[peer] = max(1, round(0.05 / seconds(step, 3, device)))
    gc.collect()
    gc.freeze()  # what PyTorch has loaded makes collections slow, and is not garbage
    begin, rounds = perf_counter(), 0
    while steps and (rounds < 5 or perf_counter() - begin < limit):
        for peer, step in steps.items():
            gc.collect()
            gc.disable()
            try:
                samples[peer].append(seconds(step, counts[peer], device))
            finally:
                gc.enable()
        rounds += 1
    gc.unfreeze()
    return {"peaks": peaks, "samples": samples}


# -- the page


def markdown(results: dict[str, dict[str, Any]], system: str) -> str:
    rows, notes = [], []
    for title, found in results.items():
        cells = [title]
        for peer in PEERS:
            samples = found["samples"].get(peer)
            cells.append(
                f"{number(min(samples) * 1e3)} ({number(statistics.median(samples) * 1e3)}), "
                f"{found['peaks'][peer] / 2**20:.1f} MiB"
                if samples
                else ""
            )
        for other in ("torch", "compiled"):
            ours, theirs = found["samples"].get("tape"), found["samples"].get(other)
            cells.append(number(min(ours) / min(theirs)) if ours and theirs else "")
        ours, theirs = found["peaks"].get("tape"), found["peaks"].get("torch")
        cells.append(f"{ours / theirs:.2f}" if ours and theirs else "")
        rows.append(cells)
        notes += [f"Failed: {title}, {PEERS[peer]}: {why}." for peer, why in found["failures"].items()]
    header = ["ms per step: minimum (median), peak memory", *PEERS.values(), "÷ eager", "÷ compiled", "memory ÷ eager"]
    agreement = "Relative error, in the norm, against PyTorch in float32: " + "; ".join(
        f"{title}: " + ", ".join(f"{PEERS[peer]} {error:.0e}" for peer, error in found["errors"].items())
        for title, found in results.items()
    )
    text = (
        "A step computes a value and the gradients of all parameters. Peers take turns, after warm-up. Peak memory is "
        "what a step needs above what was there before. In no step the host waits for the device."
    )
    return (
        "\n\n".join(["# Benchmark results on a GPU", system, text, *notes, table(header, rows), f"{agreement}."]) + "\n"
    )


def described(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    cuda = f", CUDA {torch.version.cuda}" if device.type == "cuda" else ""
    return (
        f"Written by `python benchmarks/gpu.py` on {date}. {name}, Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}{cuda}, Tape {tc.__version__}."
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", default="cuda", help="cuda, cuda:1, or cpu to try it (default: cuda)")
    add("--small", action="store_true", help="small sizes, to see whether it works")
    add("--workloads", default="", help="some of mnist_mlp, mnist_mlp_large, transformer, wide (default: all)")
    add(
        "--peers",
        default="",
        help=f"some of {', '.join(PEERS)} (default: all; on a CPU not compiled, which takes minutes)",
    )
    add("--seconds", type=float, default=None, help="for each workload (default: 10, with --small 0.2)")
    add("--out", type=Path, default=ROOT / "results" / "gpu.md", help="the page")
    add("--docs", action="store_true", help="also write the documentation's page")
    options = parser.parse_args()
    try:
        options.device = torch.device(options.device)
    except RuntimeError as error:
        parser.error(f"--device: {error}")
    if options.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no CUDA device here; --device cpu --small tries the program")
    if options.device.type not in ("cuda", "cpu"):
        parser.error(f"--device must be cuda or cpu, not {options.device.type}")
    default = [peer for peer in PEERS if peer != "compiled" or options.device.type == "cuda"]
    options.peers = options.peers.split(",") if options.peers else default
    if unknown := [peer for peer in options.peers if peer not in PEERS]:
        parser.error(f"--peers: {unknown[0]!r} is none of {', '.join(PEERS)}")
    return options


def main() -> int:
    options = arguments()
    device: torch.device = options.device
    known = workloads(device, options.small)
    names = options.workloads.split(",") if options.workloads else list(known)
    if unknown := [name for name in names if name not in known]:
        print(f"--workloads: {unknown[0]!r} is none of {', '.join(known)}", file=sys.stderr)
        return 2
    limit = options.seconds if options.seconds is not None else 0.2 if options.small else 10.0
    if device.type == "cuda":
        torch.cuda.set_device(device)
    tc.set_backend(f"torch:{device}")
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        torch.manual_seed(SEED)
        workload = known[name]()
        results[workload.title] = found = measure(workload, options.peers, device, limit)
        shown = ", ".join(f"{peer} {min(samples) * 1e3:.3g} ms" for peer, samples in found["samples"].items())
        print(f"{workload.title}: {shown}", flush=True)
        for peer, why in found["failures"].items():
            print(f"{workload.title}: {peer} FAILED: {why}", flush=True)
        del workload
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    page = markdown(results, described(device))
    for path in (options.out, *([ROOT.parent / "docs" / "benchmarks-gpu.md"] if options.docs else [])):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
        print(f"wrote {path}")
    return 1 if any(found["failures"] for found in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
