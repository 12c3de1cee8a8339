"""Indices on devices where an index out of bounds is an assertion that ends the process's use of the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tape_torch.indexing import gather


def test_off_the_cpu_gather_never_gives_negative_indices_to_a_kernel_that_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`embedding` asserts that indices are not negative; on the meta device, which stands in, it must not be called."""
    table, indices = torch.ones(5, 2), torch.tensor([[0, -1], [4, -5]])
    assert gather(table, indices).shape == (2, 2, 2)

    def refused(*args: Any) -> None:
        raise AssertionError("embedding is called")

    monkeypatch.setattr(torch, "embedding", refused)
    for dtype in (torch.int64, torch.int32):
        assert gather(table.to("meta"), indices.to("meta", dtype)).shape == (2, 2, 2)


def test_on_the_cpu_gather_counts_negative_indices_from_the_end_and_refuses_those_out_of_bounds() -> None:
    table = torch.arange(10.0).reshape(5, 2)
    assert gather(table, torch.tensor([-1, 0])).tolist() == [[8.0, 9.0], [0.0, 1.0]]
    with pytest.raises(IndexError):
        gather(table, torch.tensor([5]))
