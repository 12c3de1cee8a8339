"""Checkpoints of several processes: every bit comes back, in other layouts and from other numbers of processes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import tape_core as tc
import torch
from support import run_processes
from tape_torch import distributed
from tape_torch.distributed import checkpoints
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load as load_of_torch

_COMMON = """
import sys, torch, torch.distributed as dist
import tape_core as tc
from tape_torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
rank, world, folder = dist.get_rank(), dist.get_world_size(), sys.argv[1]
draw = torch.Generator().manual_seed(0)
w = torch.randn(7, 5, generator=draw)
b = torch.randn(6, generator=draw).to(torch.bfloat16)
k = torch.arange(3) - (1 << 60)

def layout(mesh, value, *placements):
    return tc.asarray(distribute_tensor(value, mesh, placements), backend="torch")
"""

_SAVE = (
    _COMMON
    + """
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
sums = DTensor.from_local(torch.full((3,), float(rank // 2)), mesh, [Partial(), Replicate()])
state = {
    "w": tc.Variable(layout(mesh, w, Shard(0), Shard(1))),  # 7 and 5 are not even
    "b": layout(mesh, b, Replicate(), Shard(0)),
    "k": layout(mesh, k, Shard(0), Shard(0)),  # fewer rows than processes
    "sum": tc.asarray(sums, backend="torch"),
    "number": tc.asarray(0.1, dtype=tc.float64, backend="torch"),
    "flags": tc.asarray([True, False]),
    "nothing": torch.zeros(0, 3),
    "transposed": w.T,
}
for step in range(4):
    saving = distributed.save(folder, state, {"note": "ä"}, step=step, keep=2, asynchronous=step % 2 == 1)
    if step == 1:
        # The values are those of the call: what happens to the memory afterwards is not saved.
        state["b"].array.to_local().add_(1)
    if step == 2:
        state["b"].array.to_local().sub_(1)
saving.wait()
"""
)

_LOAD = (
    _COMMON
    + """
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("data",))
like = {
    "w": layout(mesh, torch.zeros(7, 5, dtype=torch.float64), Shard(1)),
    "k": layout(mesh, torch.zeros_like(k), Shard(0)),
    "b": layout(mesh, torch.zeros(9), Shard(0)),
}
step, found, metadata = distributed.load(folder, like)
assert (step, metadata) == (3, {"note": "ä"})
assert found["w"].array.placements == (Shard(1),) and found["w"].array.to_local().shape[1] < 5
assert torch.equal(found["w"].array.full_tensor(), w) and torch.equal(found["k"].array.full_tensor(), k)
assert not isinstance(found["b"].array, DTensor)  # of another shape than `like`: as a whole
print("fine")
"""
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "run"
    run_processes(_SAVE, 4, str(folder))
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "run")
    return tmp_path / "run"


def _expected() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    w = torch.randn(7, 5, generator=draw)
    b = torch.randn(6, generator=draw).to(torch.bfloat16)
    return {
        "w": w,
        "b": b,
        "k": torch.arange(3) - (1 << 60),
        "sum": torch.full((3,), 1.0),
        "number": torch.tensor(0.1, dtype=torch.float64),
        "flags": torch.tensor([True, False]),
        "nothing": torch.zeros(0, 3),
        "transposed": w.T,
    }


def test_one_process_reads_what_four_wrote(saved: Path) -> None:
    names = sorted(os.listdir(saved))
    assert names == ["000003-step-2", "000004-step-3"]  # `keep`, and no drafts
    step, found, metadata = distributed.load(saved)
    assert (step, metadata) == (3, {"note": "ä"})
    assert found.keys() == _expected().keys()
    for name, expected in _expected().items():
        array: Any = found[name].array
        assert array.dtype == expected.dtype, name
        assert torch.equal(array, expected), name


def test_two_processes_read_what_four_wrote_in_other_layouts(saved: Path) -> None:
    assert run_processes(_LOAD, 2, str(saved)) == ["fine\n"] * 2


def test_each_process_writes_its_parts_only(saved: Path) -> None:
    parts = json.loads((saved / "000004-step-3" / "tape.json").read_text())["checkpoint"]["tensors"]
    assert sorted(part[2] for part in parts["w"]["parts"]) == [[3, 2], [3, 3], [4, 2], [4, 3]]
    assert len({part[0] for part in parts["w"]["parts"]}) == 4
    assert len(parts["transposed"]["parts"]) == 1  # a copy on every process is written once


def test_torch_reads_the_files_too(saved: Path) -> None:
    expected = _expected()
    state: dict[str, Any] = {name: torch.zeros_like(expected[name]) for name in ("w", "b", "k", "number")}
    with pytest.warns(UserWarning, match="single process"):
        load_of_torch(state, storage_reader=HuggingFaceStorageReader(str(saved / "000004-step-3")))
    for name, value in state.items():
        assert torch.equal(value, expected[name]), name


# -- bad files


def test_a_damaged_or_a_missing_file_is_named(copy: Path) -> None:
    file = copy / "000004-step-3" / "process-00002.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"process-00002.safetensors' is damaged"):
        distributed.load(copy)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"process-00002.safetensors' is missing"):
        distributed.load(copy)
    # The one before it is whole, and can be named.
    assert distributed.load(copy / "000003-step-2").step == 2


class _Trap:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("name", [".metadata", "process-00000.safetensors", "tape.json"])
def test_nothing_in_a_checkpoint_is_run(copy: Path, tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    (copy / "000004-step-3" / name).write_bytes(pickle.dumps(_Trap(mark)))
    if name == ".metadata":
        distributed.load(copy)  # the index of torch's own storage: not a file of ours
    else:
        with pytest.raises(ValueError, match="damaged"):
            distributed.load(copy)
    assert not mark.exists()


def test_a_manifest_cannot_name_files_elsewhere(copy: Path) -> None:
    from tape_torch.distributed import storage

    file = copy / "000004-step-3" / "tape.json"
    facts = json.loads(file.read_text())["checkpoint"]
    facts["files"]["../../secret.safetensors"] = {"size": 0, "sha256": ""}
    file.write_bytes(storage._sealed(facts))
    with pytest.raises(ValueError, match="not the name of a file of a checkpoint"):
        distributed.load(copy)


def test_no_checkpoint_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        distributed.load(tmp_path)
    assert distributed.latest(tmp_path) is None


# -- one process


def test_a_single_process_saves_in_the_background(tmp_path: Path) -> None:
    x = tc.Variable([1.0, 2.0], backend="torch")
    saving = distributed.save(tmp_path, {"x": x}, step=1, asynchronous=True)
    x.assign([5.0, 5.0])
    assert saving.wait() == distributed.latest(tmp_path)
    assert distributed.load(tmp_path).tensors["x"].tolist() == [1.0, 2.0]


def test_the_folder_is_free_once_a_checkpoint_was_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlock = checkpoints._unlock

    def late(lock: int | None) -> None:
        time.sleep(0.3)
        unlock(lock)

    monkeypatch.setattr(checkpoints, "_unlock", late)  # as on a busy machine
    for step in range(2):
        distributed.save(tmp_path, {"w": torch.ones(3)}, step=step, asynchronous=True).wait()
    assert distributed.load(tmp_path).step == 1


def test_a_second_program_is_kept_out_and_drafts_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".000001-step-0.0123456789abcdef").mkdir()
    (tmp_path / ".mine").mkdir()
    lock = checkpoints._locked(str(tmp_path))
    if lock is not None:
        with pytest.raises(RuntimeError, match="another program is saving"):
            distributed.save(tmp_path, {})
        checkpoints._unlock(lock)
    distributed.save(tmp_path, {"x": [1.0]})
    assert sorted(os.listdir(tmp_path)) == [".mine", "000001-step-0"]


def test_arguments_that_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'z' has dtype complex128"):
        distributed.save(tmp_path, {"z": tc.asarray([1j], dtype=tc.complex128)})
    with pytest.raises(TypeError, match="strings by name"):
        distributed.save(tmp_path, {}, {"a": 1})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="keep must be at least 1"):
        distributed.save(tmp_path, {}, keep=0)
    assert os.listdir(tmp_path) == []


# -- several processes that do not agree

_DISAGREE = (
    _COMMON
    + """
mesh = init_device_mesh("cpu", (world,))
def message(*args, **kwargs):
    try:
        distributed.save(folder, *args, **kwargs)
    except ValueError as error:
        return str(error)

print(message({"w": w}, step=rank))
print(message({"w": w, **({"extra": w} if rank else {})}))
print(message({"w": w if rank else w.double()}))
print(message({}, {"state": "x" * 10_000 + str(rank) + "y" * 10_000}))
print(message({"w": w, "b": b + rank}))
drifted = DTensor.from_local(w + rank, mesh, [Replicate()], run_check=False)
print(message({"d": tc.asarray(drifted, backend="torch")}))
"""
)


def test_processes_that_do_not_agree_are_named(tmp_path: Path) -> None:
    outputs = run_processes(_DISAGREE, 2, str(tmp_path / "run"))
    assert outputs[0] == outputs[1]
    text = outputs[0]
    assert "'step' is 1 on process 1 and 0 on process 0" in text
    assert "'extra' is float32 (7, 5) on process 1 and missing on process 0" in text
    assert "'w' is float32 (7, 5) on process 1 and float64 (7, 5) on process 0" in text
    assert "xxx1yyy" in text
    assert "xxx0yyy" in text
    assert len(text) < 2_000
    assert "'b' should be the same on all processes that have a copy" in text
    assert "'d' should be the same on all processes that have a copy" in text
    assert not (tmp_path / "run").exists()
