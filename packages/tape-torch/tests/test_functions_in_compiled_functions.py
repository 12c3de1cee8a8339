"""`call` inside of compiled functions: an error that explains it, or the fallback to plain Python."""

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
import tape_torch
import torch
from tape_core.staging import TracingError


@pytest.mark.parametrize(
    "f",
    [lambda x: tape_torch.call(torch.logcumsumexp, x, 0), lambda x: torch.logcumsumexp(x, 0)],
    ids=["call", "dispatch"],
)
def test_a_function_of_pytorch_is_refused_or_falls_back(f: Callable[[Any], Any]) -> None:
    x = tc.asarray([1.0, 2.0], backend="torch")
    with pytest.raises(TracingError, match="a function of PyTorch cannot be traced"):
        tc.function(f)(x)
    falling = tc.function(f, fallback="silent")
    for y in (x, x + 1):
        assert falling(y).tolist() == f(y).tolist()
    assert len(falling.fallbacks) == 1
