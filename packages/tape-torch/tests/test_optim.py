"""torch.optim on Variables: the same bits as in a PyTorch training loop."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import tape_core as tc
import tape_torch
import torch
from tape_torch.optim import Optimizer


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    with tc.use_backend("torch"):
        yield


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.05}),
    "amsgrad": (torch.optim.Adam, {"lr": 0.05, "amsgrad": True, "foreach": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.05, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "adadelta": (torch.optim.Adadelta, {}),
    "rprop": (torch.optim.Rprop, {}),
}


@pytest.mark.parametrize("early", [False, True], ids=["joining", "given"])
@pytest.mark.parametrize("kind", KINDS)
def test_to_the_bit_what_pytorch_does(kind: str, early: bool) -> None:
    make, options = KINDS[kind]
    a, b, x = numbers(4, 3), numbers(3, seed=2), numbers(8, 4, seed=3)
    variables = [tc.Variable(a), tc.Variable(b)]
    parameters = [torch.nn.Parameter(a.clone()), torch.nn.Parameter(b.clone())]
    ours, theirs = Optimizer(make, variables if early else None, **options), make(parameters, **options)
    for _ in range(6):
        with tc.GradientTape() as tape:
            loss = tc.sum((x @ variables[0] + variables[1]) ** 2)
        gradients = tape.gradient(loss, variables)
        ours.apply_gradients(zip(gradients, variables, strict=True))
        # Both loops get the same gradients; gradients themselves are tested elsewhere.
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.array.clone()
        theirs.step()
        for variable, parameter in zip(variables, parameters, strict=True):
            assert torch.equal(variable.array, parameter.detach())
    assert ours.iterations == 6


def test_complex_variables() -> None:
    z = torch.complex(numbers(3), numbers(3, seed=2))
    variable, parameter = tc.Variable(z), torch.nn.Parameter(z.clone())
    ours, theirs = Optimizer(torch.optim.Adam, lr=0.1), torch.optim.Adam([parameter], lr=0.1)
    for _ in range(3):
        with tc.GradientTape() as tape:
            loss = tc.sum(tc.abs(variable) ** 2 + tc.real(variable))
        ours.apply_gradients([(tape.gradient(loss, variable), variable)])
        theirs.zero_grad()
        (parameter.abs() ** 2 + parameter.real).sum().backward()
        theirs.step()
    torch.testing.assert_close(variable.array, parameter.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # PyTorch's own, of its Adagrad
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adagrad", "adam", "sparse"])
def test_gathered_rows(kind: str) -> None:
    make, options = (torch.optim.SparseAdam, {"lr": 0.1}) if kind == "sparse" else KINDS[kind]
    table, index = numbers(5, 2), tc.asarray([3, 1, 3])
    variable, parameter = tc.Variable(table), torch.nn.Parameter(table.clone())
    ours, theirs = Optimizer(make, **options), make([parameter], **options)
    for _ in range(3):
        with tc.GradientTape() as tape:
            loss = tc.sum(tc.gather(variable, index) ** 2)
        gradient = tape.gradient(loss, variable)
        assert isinstance(gradient, tc.IndexedSlices)
        ours.apply_gradients([(gradient, variable)])
        theirs.zero_grad()
        sparse = kind in ("sgd", "adagrad", "sparse")
        (torch.nn.functional.embedding(index.array, parameter, sparse=sparse) ** 2).sum().backward()
        theirs.step()
    torch.testing.assert_close(variable.array, parameter.detach(), rtol=1e-13, atol=1e-13)


def test_a_record_keeps_the_old_value() -> None:
    w = tc.Variable([1.0, 2.0])
    held = w.value
    given = w.array
    optimizer = Optimizer(torch.optim.SGD, lr=0.5)
    with tc.GradientTape(persistent=True) as tape:
        y = tc.sum(w * w * w)
    optimizer.apply_gradients([(tape.gradient(y, w), w)])
    assert tape.gradient(y, w).tolist() == [3.0, 12.0]
    assert held.tolist() == given.tolist() == [1.0, 2.0]
    assert w.tolist() == [-0.5, -4.0]
    with tc.GradientTape() as tape:
        y = tc.sum(w * w)
    assert tape.gradient(y, w).tolist() == [-1.0, -8.0]


def test_an_assignment_between_updates_counts() -> None:
    w, optimizer = tc.Variable(1.0), Optimizer(torch.optim.SGD, lr=1.0)
    optimizer.apply_gradients([(tc.asarray(1.0), w)])
    w.assign(10.0)
    optimizer.apply_gradients([(1.0, w)])
    assert w.item() == 9.0


def test_a_module_of_pytorch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).double()
    twin = copy.deepcopy(model)
    x = numbers(6, 3)
    variables = tape_torch.variables(model)
    ours, theirs = Optimizer(torch.optim.Adam, variables, lr=0.1), torch.optim.Adam(twin.parameters(), lr=0.1)
    for _ in range(4):
        with tc.GradientTape() as tape:
            loss = tape_torch.call(lambda v: (model(v) ** 2).mean(), x)
        ours.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        theirs.zero_grad()
        (twin(x) ** 2).mean().backward()
        theirs.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_schedule_of_pytorch() -> None:
    w, optimizer = tc.Variable(0.0), Optimizer(torch.optim.SGD, lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer.torch, step_size=1, gamma=0.5)
    for expected in (-1.0, -1.5, -1.75):
        optimizer.apply_gradients([(1.0, w)])
        schedule.step()
        assert w.item() == expected
    assert optimizer.learning_rate == 0.125
    optimizer.learning_rate = 2.0
    optimizer.apply_gradients([(1.0, w)])
    assert w.item() == -3.75


def test_groups() -> None:
    a, b, c = (tc.Variable(0.0, name=name) for name in "abc")
    optimizer = Optimizer(torch.optim.SGD, [{"params": [a]}, {"params": b, "lr": 10.0}], lr=1.0)
    optimizer.apply_gradients([(1.0, a), (1.0, b)])
    assert (a.item(), b.item()) == (-1.0, -10.0)
    with pytest.raises(ValueError, match="'c' is none of the variables that this Optimizer was made for"):
        optimizer.apply_gradients([(1.0, c)])


def test_the_state_is_saved_and_loaded() -> None:
    def steps(w: tc.Variable, optimizer: Optimizer, n: int) -> None:
        for _ in range(n):
            optimizer.apply_gradients([(w.value * 2.0, w)])

    w = tc.Variable(numbers(3))
    optimizer = Optimizer(torch.optim.Adam, lr=0.1)
    steps(w, optimizer, 3)
    twin = tc.Variable(w.value)
    other = Optimizer(torch.optim.Adam, [twin], lr=0.5)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(w, optimizer, 3)
    steps(twin, other, 3)
    assert torch.equal(w.array, twin.array)
    with pytest.raises(ValueError, match=r"Optimizer\(kind, variables"):
        Optimizer(torch.optim.Adam).load_state_dict(optimizer.state_dict())


def test_mistakes() -> None:
    w, optimizer = tc.Variable([1.0, 2.0], name="w"), Optimizer(torch.optim.SGD, lr=1.0)
    g = tc.ones(2)
    for error, match, pairs in (
        (ValueError, "No gradients provided.*None: 'w'", [(None, w)]),
        (ValueError, r"the gradient of 'w' has shape \(3,\)", [(tc.ones(3), w)]),
        (ValueError, "'w' is there twice", [(g, w), (g, w)]),
        (TypeError, "Are the two swapped", [(w, g)]),
        (TypeError, "takes .gradient, variable. pairs", [g]),
        (TypeError, "is on backend 'numpy'; the variable is on 'torch'", [(tc.ones(2, backend="numpy"), w)]),
        (TypeError, "is on 'numpy'.*backend='torch'", [(1.0, tc.Variable(1.0, backend="numpy"))]),
        (TypeError, "has dtype int64", [(1.0, tc.Variable(1))]),
    ):
        with pytest.raises(error, match=match):
            optimizer.apply_gradients(pairs)
    assert w.tolist() == [1.0, 2.0]
    with pytest.warns(UserWarning, match="do not exist for variables 'v'") as record:
        optimizer.apply_gradients([(g, w), (None, tc.Variable(1.0, name="v"))])
    assert record[0].filename == __file__
    with pytest.raises(TypeError, match="LBFGS calls the loss itself"):
        Optimizer(torch.optim.LBFGS)
    with pytest.raises(ValueError, match="variables is empty"):
        Optimizer(torch.optim.SGD, [], lr=1.0)
    with pytest.raises(TypeError, match="takes Variables; got one of type 'Tensor'"):
        Optimizer(torch.optim.SGD, [g], lr=1.0)


def test_lazy_names() -> None:
    assert tape_torch.optim.Optimizer is Optimizer
    assert "optim" in dir(tape_torch)
    with pytest.raises(AttributeError, match="no attribute 'cal'"):
        tape_torch.cal  # noqa: B018
