"""A few ops of the conformance suite on arrays that two gloo processes hold; `nox -s dtensor` runs all."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from tape_conformance import check_backend
from tape_conformance.distributions import Distribution, distribution_of
from tape_conformance.processes import Processes
from tape_core.backends import BackendError

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="PyTorch is built without gloo",
)

# One op for each way in which kernels are called: PyTorch's own strategy, parts, the whole, a kernel of many calls;
# and for each fault of PyTorch that is gone around.
_OPS = (
    "add/*/mixed/broadcast:2x3,3",
    "gammainc/*/partial/2x3,2x3",  # SciPy would get the terms of a sum
    "std/*/divided/2x3",  # by a mean of one element along each axis, of which PyTorch mistakes the layout
    "matmul/*/divided/3,3x2",  # PyTorch gives the product a dimension too many
    "tanh/*/divided/complex:2x3",  # of which PyTorch cannot divide the conjugates, so that each process has its part
    "cholesky/*/divided/3x3",  # on the whole, in each process
    "solve/*/divided/2x2x2,2",
    "reshape/*/divided/2x3,?3,2?",
    "reshape/*/divided/empty:0x3,?3,0?",  # PyTorch's strategy searches for ever
)


def test_ops_on_two_processes_are_those_on_one() -> None:
    report = check_backend("torch:dtensor:2", only=_OPS)
    assert report.ok, [f"{result.id}: {result.detail}" for result in report.failed]
    assert report.backend == "torch:dtensor:2"
    for pattern in _OPS:
        kinds = {result.id.split("/")[1] for result in report.results if fnmatchcase(result.id, pattern)}
        assert kinds >= {"value", "vjp", "jvp"}, pattern


def test_how_many_processes_is_part_of_the_name() -> None:
    found = distribution_of("torch:dtensor:4")
    assert found is not None
    assert (found.backend, found.processes, found.spec) == ("torch", 4, "torch:dtensor:4")
    two = distribution_of("torch:dtensor")
    assert two is not None
    assert two.processes == 2
    assert distribution_of("torch:cpu") is None
    assert distribution_of("torch") is None
    with pytest.raises(BackendError, match="how many processes must be a number"):
        distribution_of("torch:dtensor:many")


_STUBBORN = """
import os, time
from tape_torch.distributed.conformance import DTensors

class Stubborn(DTensors):
    def distribute(self, array, layout, place):
        if int(os.environ["RANK"]) == 1:
            {what}
        return super().distribute(array, layout, place)

    def __init__(self, rank, size, store, timeout):
        os.environ["RANK"] = str(rank)
        super().__init__(rank, size, store, timeout)

PROCESSES = {{"stubborn": Stubborn}}
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [("time.sleep(600)", "no answer of process 1 within"), ("os._exit(3)", "process 1 has ended")],
    ids=["sleeps", "dies"],
)
def test_no_process_waits_for_ever_for_another(
    what: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stubborn_arrays.py").write_text(_STUBBORN.format(what=what), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    group = Processes(Distribution("torch", "stubborn", 2, "stubborn_arrays"), limit=4.0)
    try:
        with pytest.raises(AssertionError, match=said):
            group.run("add/value/divided/2x3,2x3")
    finally:
        group.close()
