"""How many bytes of PyTorch's tensors are alive at most, which is the same in each run, unlike what a process takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tape_core as tc
import tape_nn as nn
import torch
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Counts, after each call of PyTorch's, the bytes of the memory that tensors seen so far have.

    Attributes:
        most: the largest count.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any([kind is DTensor for kind in types]):
            return NotImplemented  # it comes here again, as calls on the part of this process
        found = func(*args, **(kwargs or {}))
        for x in tree_leaves((args, kwargs, found)):
            if type(x) is torch.Tensor and x.device.type != "meta":  # others have no memory of their own
                storage = x.untyped_storage()
                self._seen[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._seen = {key: (ref, n) for key, (ref, n) in self._seen.items() if not ref.expired()}
        self.most = max(self.most, sum([n for _, n in self._seen.values()]))
        return found


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Fail unless tensors have the same dtypes, shapes and values. NumPy, which marks memory, is not asked."""
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)


def at_most(step: Callable[[], object], steps: int = 6) -> int:
    """Return the bytes that are alive at most in a step, after others have noted, traced and compiled it."""
    for _ in range(steps):
        step()
    live = Live()
    with live:
        step()  # in which it sees all that there is
        live.most = 0
        step()
    return live.most


def at_most_in_each(step: Callable[[], object], steps: int) -> list[int]:
    """Return the bytes that are alive at most in each of the first steps."""
    live, found = Live(), []
    with live:
        for _ in range(steps):
            live.most = 0
            step()
            found.append(live.most)
    return found


def adam_steps(
    width: int, compiled: bool, prepare: Callable[[nn.Module, Any], Any] = lambda model, x: x
) -> tuple[Callable[[], None], int]:
    """Return a step of Adam for four layers, and the bytes of the parameters.

    Args:
        prepare: gets the model and the batch, and returns the batch.
    """
    model = nn.Sequential([nn.Dense(width, activation="tanh") for _ in range(4)])
    model.build((None, width))
    x = prepare(model, torch.ones((4, width)))
    optimizer = nn.Adam(1e-3)
    variables = model.trainable_variables

    def update(x: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - x) ** 2)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    run = tc.function(update) if compiled else update
    return lambda: float(run(x)) and None, 4 * sum(v.size for v in variables)
