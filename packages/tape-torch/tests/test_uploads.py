"""Host data on their way to the model: nothing is copied more than once, and uploads overlap with computing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch
from tape_torch import conversion

X = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)


def pointer(x: Any) -> int:
    return int(x.array.data_ptr())


def test_arrays_are_loaded_without_a_copy_and_variables_have_their_own() -> None:
    with tc.use_backend("torch:cpu"):
        at = X.__array_interface__["data"][0]
        assert pointer(tc.asarray(X)) == pointer(tc.asarray(X[None])) == at
        assert pointer(tc.Variable(X)) != at
        v = tc.Variable(np.zeros_like(X))
        v.assign(X)
        assert pointer(v) != at


@pytest.mark.parametrize("kind", ["arrays", "batches"])
def test_fit_gets_rows_of_the_arrays_themselves(kind: str) -> None:
    rows: list[int] = []
    lasting = X.__array_interface__["data"][0] + np.arange(4) * X[:16].nbytes

    def step(run: Any, batch: Any) -> dict[str, Any]:
        rows.append(pointer(batch[0]))
        return {"loss": tc.mean(run.model(batch[0]))}

    with tc.use_backend("torch:cpu"):
        model = nn.Dense(1)
        data: Any = (X, X[:, 0]) if kind == "arrays" else [(X[k : k + 16], X[k : k + 16, 0]) for k in range(0, 64, 16)]
        size = {"batch_size": 16} if kind == "arrays" else {}
        nn.fit(model, data, train_step=step, shuffle=False, progress=False, epochs=2, **size)
    assert rows == [*lasting, *lasting]


class _Stream:
    """A stand-in for a stream of CUDA, which notes what waits for what."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes
        self.device = torch.device("cuda", 0)

    def wait_stream(self, other: _Stream) -> None:
        self.notes.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done with CUDA, where there is none."""
    found: list[str] = []
    now = [_Stream("computing", found)]
    pinned: list[torch.Tensor] = []

    @contextmanager
    def stream(other: _Stream) -> Iterator[None]:
        now.append(other)
        yield
        now.pop()

    def pin(x: torch.Tensor) -> torch.Tensor:
        found.append("pinned")
        pinned.append(x.clone())
        return pinned[-1]

    def to(x: torch.Tensor, place: torch.device, dtype: torch.dtype, non_blocking: bool = False) -> torch.Tensor:
        found.append(f"copied {'beside' if non_blocking else 'before'} {now[0].name} in {now[-1].name}")
        return x.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda x: any(x is one for one in pinned))
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda x, s: found.append(f"kept for {s.name}"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda place: now[-1])
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(conversion, "_uploads", lambda device: _Stream("uploading", found))
    return found


def upload(x: Any) -> torch.Tensor:
    return conversion.as_torch_tensor(x, None, torch.device("cuda"), torch.device("cpu"), None)


def test_an_upload_goes_on_beside_computing_and_what_follows_waits_for_it(notes: list[str]) -> None:
    values = np.arange(1 << 16)
    found = upload(values)
    assert notes == [
        "pinned",
        "copied beside computing in uploading",
        "computing waits for uploading",
        "kept for computing",
    ]
    values[:] = 0
    assert found[-1].item() == (1 << 16) - 1


def test_small_arrays_and_graphs_that_are_captured(notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    upload(np.ones(3))
    assert notes == ["copied before computing in computing"]
    notes.clear()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    upload(np.ones(1 << 16))
    assert notes == ["pinned", "copied beside computing in computing"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_uploads_from_one_buffer_on_a_device() -> None:
    buffer, weights = np.empty((1 << 10, 1 << 10), np.float32), tc.ones((1 << 10, 1 << 10), backend="torch:cuda:0")
    sums = []
    for k in range(20):
        buffer[:] = k
        x = tc.asarray(buffer, backend="torch", device="cuda:0")
        buffer[:] = -1
        sums.append(tc.sum(x @ weights) / (1 << 30))
        del x  # its memory is used again
    assert [s.item() for s in sums] == list(range(20))
