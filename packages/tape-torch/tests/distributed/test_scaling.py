"""The formulas by which the documentation says how communication grows are what processes do, counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import run_processes

ROOT = Path(__file__).parents[4] / "benchmarks"

_COUNT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import scaling

found = {}
if len(sys.argv) > 2:
    for layout in scaling.LAYOUTS:
        n, t = 512, 8 if layout.startswith("tensor") else 1
        found[layout] = scaling.simulate(layout, n, t), scaling.expected(layout, n, t)
else:
    import torch.distributed as dist
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    for layout in scaling.LAYOUTS:
        t = 2 if layout.startswith("tensor") else 1
        found[layout] = scaling.count(layout, n, t), scaling.expected(layout, n, t)
        dist.barrier()
print(json.dumps({k: [one.volume, one.wire, one.weights, *wanted] for k, (one, wanted) in found.items()}))
"""


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize("n", [2, 4])
def test_processes_send_and_hold_what_the_formulas_say(n: int) -> None:
    for output in run_processes(_COUNT, n, str(ROOT)):
        for layout, (volume, wire, weights, sent, held) in json.loads(output).items():
            assert volume == sent, layout
            assert weights == held, layout
            if layout == "sharded":  # gloo, unlike NCCL, scatters a sum by an all-reduce: a third more
                sent *= 4 / 3
            if wire is not None:  # what really went through the sockets
                assert 0.95 * sent < wire < 1.15 * sent, (layout, wire, sent)


def test_simulated_processes_send_and_hold_what_the_formulas_say() -> None:
    for volume, _, weights, sent, held in json.loads(run_processes(_COUNT, 1, str(ROOT), "512")[0]).values():
        assert (volume, weights) == (sent, held)


@pytest.mark.parametrize("n", [2, 8, 4096])
def test_the_cost_model_of_pytorch_counts_the_same_bytes(n: int) -> None:
    import scaling

    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        assert scaling.cost_model(kind, 1e9, n) == pytest.approx(scaling.ring(kind, 1e9, n), rel=1e-6)


def test_the_formulas_give_the_figures_that_are_published() -> None:
    import scaling

    # ZeRO, figure 1: a model of 7.5e9 parameters on 64 processes takes 120 GB of each, and 1.9 GB if all is divided.
    model = scaling.Transformer(blocks=1000, width=790, sequence=1, batch=1)
    assert model.parameters == pytest.approx(7.5e9, rel=0.01)
    assert scaling.cost(model, "replicated", 64).state == pytest.approx(120e9, rel=0.01)
    assert scaling.cost(model, "sharded", 64).state == pytest.approx(1.9e9, rel=0.05)
    # Its section 7: twice the parameters are sent, and three times where they are divided.
    whole = 4 * model.parameters
    assert scaling.cost(model, "replicated", 4096).volume == pytest.approx(2 * whole, rel=1e-3)
    assert scaling.cost(model, "sharded", 4096).volume == pytest.approx(3 * whole, rel=1e-3)
