"""Formulas of optimizers' updates: what they compute, in whose memory, and with the same bits in compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import torch
from tape_torch.updates import FORMULAS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

BY_OPERATORS: dict[str, Callable[..., Any]] = {
    "lerp": lambda x, y, weight: x + (y - x) * weight,
    "lerp_square": lambda x, y, weight: x + (y * y - x) * weight,
    "accumulate": lambda x, decay, y, scale: x * decay + y * scale,
    "subtract_scaled": lambda w, x, scale: w - x * scale,
    "subtract_root_quotient": lambda w, a, b, epsilon, scale: w - a / (np.sqrt(b) + epsilon) * scale,
}
NUMBERS: dict[str, dict[int, float]] = {
    "lerp": {2: 0.1},
    "lerp_square": {2: 0.001},
    "accumulate": {1: 0.9, 3: -0.3},
    "subtract_scaled": {2: 0.3},
    "subtract_root_quotient": {3: 1e-3, 4: 0.02},
}
COUNTS = {"lerp": 3, "lerp_square": 3, "accumulate": 4, "subtract_scaled": 3, "subtract_root_quotient": 5}


def arguments(name: str, size: int, dtype: torch.dtype) -> list[Any]:
    draw = torch.Generator().manual_seed(3)
    numbers = NUMBERS[name]
    return [
        numbers[k] if k in numbers else torch.rand(size, generator=draw, dtype=dtype) + 0.25
        for k in range(COUNTS[name])
    ]


def test_each_formula_is_tested() -> None:
    assert FORMULAS.keys() == BY_OPERATORS.keys()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_what_operators_compute(name: str, dtype: torch.dtype) -> None:
    given = arguments(name, 37, dtype)
    expected = BY_OPERATORS[name](*[x.numpy() if isinstance(x, torch.Tensor) else x for x in given])
    np.testing.assert_allclose(FORMULAS[name](*given).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_result_may_be_written_over_any_argument(name: str) -> None:
    given = arguments(name, 37, torch.float32)
    expected = FORMULAS[name](*given)
    for k, x in enumerate(given):
        if isinstance(x, torch.Tensor):
            args = [y.clone() if isinstance(y, torch.Tensor) else y for y in given]
            before = [y.clone() if isinstance(y, torch.Tensor) else y for y in args]
            memory = args[k].view(-1)  # another object of the same memory
            assert FORMULAS[name](*args, out=memory) is memory
            assert torch.equal(memory, expected)
            for n, y in enumerate(args):
                assert n == k or not isinstance(y, torch.Tensor) or torch.equal(y, before[n])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_the_bits_do_not_depend_on_where_an_element_lies(name: str, dtype: torch.dtype) -> None:
    """So that compiled functions may compute them block by block."""
    given = arguments(name, 203, dtype)
    whole = FORMULAS[name](*given)
    for start in range(23):
        for length in (1, 2, 7, 16, 33, 64):
            cut = [x[start : start + length].clone() if isinstance(x, torch.Tensor) else x for x in given]
            assert torch.equal(FORMULAS[name](*cut), whole[start : start + length])


@pytest.mark.parametrize("name", ["accumulate", "subtract_scaled", "subtract_root_quotient"])
def test_a_rate_may_be_an_array(name: str) -> None:
    given = arguments(name, 37, torch.float64)
    expected = FORMULAS[name](*given)
    for out in (None, torch.empty_like(expected)):
        found = FORMULAS[name](*given[:-1], torch.tensor(given[-1], dtype=torch.float64), out=out)
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_computed_of_tensors_without_values(name: str) -> None:
    """So that compiled functions of divided arrays find what it computes of parts, and do not go op by op."""
    with FakeTensorMode() as fake:
        given = [fake.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments(name, 37, torch.float32)]
        found = FORMULAS[name](*given, out=torch.empty(37))
    assert found.shape == (37,)


OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "SGD": lambda: nn.SGD(0.1),
    "momentum": lambda: nn.SGD(0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda: nn.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: nn.Adam(0.1),
    "AMSGrad": lambda: nn.Adam(nn.schedules.CosineDecay(0.1, 4), amsgrad=True, clipnorm=0.5),
    "AdamW": lambda: nn.AdamW(0.1, global_clipnorm=0.5),
    "Nadam": lambda: nn.Nadam(0.1),
    "RMSprop": lambda: nn.RMSprop(0.1, centered=True, momentum=0.5),
    "Lion": lambda: nn.Lion(0.1),
}


def train(optimizer: nn.Optimizer, w: Any, *, compiled: bool) -> list[torch.Tensor]:
    x = tc.asarray(torch.linspace(-1.0, 1.0, w.size, dtype=w.array.dtype).reshape(w.shape))

    def step() -> None:
        with tc.GradientTape() as tape:
            loss = tc.sum((w - x) ** 2 * 0.5)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    run = tc.function(step) if compiled else step
    for _ in range(5):
        run()
    return [v.array.clone() for v in (w, *[s for state in optimizer._states.values() for s in state.slots.values()])]


@pytest.mark.parametrize("size", [5, 400], ids=["small", "in blocks"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_compiled_updates_have_the_bits_of_eager_ones(
    kind: str, dtype: torch.dtype, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tape_torch.backend.BLOCK_ELEMENTS_PER_THREAD", 64)
    monkeypatch.setattr("tape_torch.blocks.BLOCK_ELEMENTS_PER_THREAD", 64)
    with tc.use_backend("torch:cpu"):
        start = torch.linspace(0.5, -2.0, size, dtype=dtype)
        eager = train(OPTIMIZERS[kind](), tc.Variable(tc.asarray(start)), compiled=False)
        compiled = train(OPTIMIZERS[kind](), tc.Variable(tc.asarray(start)), compiled=True)
    assert len(eager) == len(compiled)
    for one, other in zip(eager, compiled, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_updates_in_bfloat16_are_those_in_float64_within_rounding(kind: str) -> None:
    start = torch.linspace(0.5, -2.0, 33, dtype=torch.bfloat16)
    with tc.use_backend("torch:cpu"):
        found = train(OPTIMIZERS[kind](), tc.Variable(tc.asarray(start)), compiled=False)[0]
        exact = train(OPTIMIZERS[kind](), tc.Variable(tc.asarray(start.double())), compiled=False)[0]
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), exact, rtol=0.05, atol=0.15)


class _Count(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kind", "most"), [("Adam", 6), ("momentum", 5), ("SGD", 1)])
def test_an_update_takes_few_passes(kind: str, most: int) -> None:
    with tc.use_backend("torch:cpu"):
        w = tc.Variable(tc.asarray(torch.ones(5)))
        g = tc.asarray(torch.ones(5))
        optimizer = OPTIMIZERS[kind]()
        optimizer.apply_gradients([(g, w)])
        with _Count() as count:
            optimizer.apply_gradients([(g, w)])
    assert count.calls <= most
