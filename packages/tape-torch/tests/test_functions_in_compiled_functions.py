"""`call` inside of compiled functions: one instruction, which calls PyTorch in each run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import tape_torch
import torch
from tape_core.staging import TracingError


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    torch.manual_seed(0)
    with tc.use_backend("torch"):
        yield


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def close(found: Any, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-10)


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()


@pytest.mark.parametrize(
    "f",
    [lambda x: tape_torch.call(torch.logcumsumexp, x, 0), lambda x: torch.logcumsumexp(x, 0)],
    ids=["call", "dispatch"],
)
def test_a_function_of_pytorch_and_its_derivatives_are_compiled(f: Callable[[Any], Any]) -> None:
    x = tc.asarray(numbers(3))

    def loss(x: Any) -> Any:
        return tc.sum(f(x) ** 2)

    for transformed in (f, tc.grad(loss), tc.jacrev(f), tc.jacfwd(f), tc.hessian(loss)):
        compiled = tc.function(transformed)
        for k in range(3):
            np.testing.assert_array_equal(compiled(x + k).numpy(), transformed(x + k).numpy())
        assert compiled.traces == 1


def test_values_of_parameters_are_those_of_the_run() -> None:
    model, x = network(), numbers(5, 3)
    model[2].weight.requires_grad_(False)
    compiled = tc.function(lambda x: tape_torch.call(model, x))
    for _ in range(3):
        close(compiled(tc.asarray(x)), model(x))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
    model.load_state_dict(network().state_dict())
    close(compiled(tc.asarray(x)), model(x))
    assert compiled.traces == 1
    model[0] = torch.nn.Linear(3, 4).double()
    close(compiled(tc.asarray(x)), model(x))


def training(compiled: bool) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train an encoder of PyTorch, with dropout and batch norm, and a head of Tape's behind a frozen encoder."""
    torch.manual_seed(0)
    tc.set_seed(0)
    encoder = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 4)
    )
    frozen = torch.nn.Linear(4, 4)
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    kept = frozen.weight.clone()
    head, optimizer = nn.Dense(1), nn.Adam(0.05)
    variables = tape_torch.variables(encoder)

    def step(x: Any, y: Any) -> Any:
        with tc.GradientTape() as tape:
            z = tape_torch.call(frozen, tape_torch.call(encoder, x))
            loss = tc.mean((head(z) - y) ** 2)
        trained = [*variables, *head.trainable_variables]
        optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
        return loss

    run = tc.function(step) if compiled else step
    x = tc.asarray(torch.randn(8, 3))
    losses = [run(x, x[:, :1]).item() for _ in range(6)]
    assert not compiled or run.traces == 1  # type: ignore[attr-defined]
    assert torch.equal(frozen.weight, kept)
    return losses, encoder.state_dict()


def test_a_training_step_with_an_encoder_of_pytorch_has_the_bits_of_the_eager_one() -> None:
    losses, state = training(compiled=True)
    expected, expected_state = training(compiled=False)
    assert losses == expected
    assert losses[-1] < losses[0]
    for name, value in state.items():
        assert torch.equal(value, expected_state[name]), name
    assert state["1.num_batches_tracked"] == 6


def test_per_example_gradients_of_parameters_are_compiled() -> None:
    model, x = network(), numbers(5, 3)
    variables = tape_torch.variables(model)

    def gradients(row: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.sum(tape_torch.call(model, row) ** 2)
        return tape.gradient(loss, variables)

    parameters = {name: p.detach() for name, p in model.named_parameters()}
    loss = lambda p, row: (torch.func.functional_call(model, p, (row,)) ** 2).sum()  # noqa: E731
    expected = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for f in (tc.vmap(gradients), tc.function(tc.vmap(gradients))):
        for found, name in zip(f(tc.asarray(x)), expected, strict=True):
            close(found, expected[name])


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_loops_and_branches(compiled: bool) -> None:
    x, model = numbers(4, 3), network()

    def scanned(x: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            return tape_torch.call(lambda c, row: torch.sin(c * row) + row, c, row), c

        return tc.sum(tc.scan(step, x[0], x)[0])

    def scanned_by_torch(x: torch.Tensor) -> torch.Tensor:
        c = x[0]
        for row in x:
            c = torch.sin(c * row) + row
        return c.sum()

    def looped(x: Any) -> Any:
        def step(c: Any) -> Any:
            return c[0] + 1, tape_torch.call(lambda c: torch.sin(c) * c, c[1])

        return tc.sum(tc.while_loop(lambda c: c[0] < 3, step, (tc.asarray(0), x))[1])

    def looped_by_torch(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.sin(x) * x
        return x.sum()

    def branched(x: Any) -> Any:
        two = lambda x: tape_torch.call(lambda x: model(x) * 2, x)  # noqa: E731
        return tc.sum(tc.cond(tc.sum(x) > 0, lambda x: tape_torch.call(model, x), two, x))

    def branched_by_torch(x: torch.Tensor) -> torch.Tensor:
        return model(x).sum() * (1 if x.sum() > 0 else 2)

    for f, by_torch in ((scanned, scanned_by_torch), (looped, looped_by_torch), (branched, branched_by_torch)):
        gradient = tc.function(tc.grad(f)) if compiled else tc.grad(f)
        for point in (x, -x):
            close(gradient(tc.asarray(point)), torch.func.grad(by_torch)(point))


def test_a_compiled_function_inside_a_tape() -> None:
    model, x = network(), numbers(5, 3).requires_grad_()
    variables, compiled = tape_torch.variables(model), tc.function(lambda x: tape_torch.call(model, x))
    expected = torch.autograd.grad((model(x) ** 2).sum(), [x, *model.parameters()])
    point = tc.asarray(x.detach())
    for _ in range(4):
        with tc.GradientTape() as tape:
            tape.watch(point)
            loss = tc.sum(compiled(point) ** 2)
        for found, e in zip(tape.gradient(loss, [point, *variables]), expected, strict=True):
            close(found, e)


def test_each_run_draws() -> None:
    for f in (
        lambda: tape_torch.call(torch.rand, 3),
        lambda: tape_torch.call(torch.nn.functional.dropout, torch.ones(100)),
    ):
        compiled = tc.function(f)
        assert len({tuple(compiled().tolist()) for _ in range(4)}) == 4
        torch.manual_seed(1)
        found = [compiled().tolist() for _ in range(3)]
        torch.manual_seed(1)
        assert found == [f().tolist() for _ in range(3)]


def test_draws_in_a_loop_are_refused_and_change_nothing() -> None:
    def f(x: Any) -> Any:
        return tc.scan(lambda c, row: (c + tape_torch.call(F_dropout, row), row), x[0], x)[0]

    F_dropout = torch.nn.functional.dropout
    before = torch.get_rng_state()
    with pytest.raises(TracingError, match=r"call\(dropout\) draws random numbers in a branch or a loop"):
        tc.function(f)(tc.asarray(numbers(4, 3)))
    assert torch.equal(torch.get_rng_state(), before)
    falling = tc.function(f, fallback="silent")
    assert falling(tc.asarray(numbers(4, 3))).shape == (3,)


def test_what_depends_on_values_falls_back_or_is_refused() -> None:
    x = tc.asarray(numbers(4))
    with pytest.raises(TracingError, match=r"the shape of the result of call\(nonzero\)"):
        tc.function(torch.nonzero)(x)
    falling = tc.function(lambda x: torch.nonzero(x), fallback="silent")
    assert [falling(v).shape for v in (x, x * 0)] == [(4, 1), (0, 1)]
    shaped = tc.function(lambda x: tape_torch.call(lambda x: x[x > 0], x))
    shaped(x)
    with pytest.raises(TypeError, match="other shapes or dtypes than in the run that was compiled"):
        shaped(x * 0)
    numbered = tc.function(lambda x: tape_torch.call(lambda x: (x, float(x.sum())), x))
    numbered(x)
    with pytest.raises(TypeError, match="its result differs from that of another run"):
        numbered(x + 1)


def test_an_exported_file_refuses_it(tmp_path: Any) -> None:
    compiled = tc.function(lambda x: tape_torch.call(torch.logcumsumexp, x, 0))
    with pytest.raises(ValueError, match=r"torch_call is call\(logcumsumexp\) of PyTorch, which has no source"):
        compiled.export(tmp_path / "f.py", tc.ones(2))


def test_a_failing_run_changes_no_buffer() -> None:
    norm = torch.nn.BatchNorm1d(3).double()

    def f(x: Any, wrong: bool) -> Any:
        y = tape_torch.call(norm, x)
        if wrong:
            raise ValueError("stop")
        return y

    compiled, x = tc.function(f, static_argnames=["wrong"]), tc.asarray(numbers(4, 3))
    before = copy.deepcopy(norm.state_dict())
    with pytest.raises(ValueError, match="stop"):
        compiled(x, wrong=True)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    compiled(x, wrong=False)
    compiled(x, wrong=False)
    assert norm.num_batches_tracked == 2


def test_a_module_is_traced_again_when_its_mode_changes() -> None:
    """In eval() mode it has updated no buffers, and in train() mode it returns more."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    x = tc.asarray(torch.randn(5, 3))
    step = tc.function(lambda x: tape_torch.call(model, x))
    model.eval()
    step(x)
    model.train()
    twin = copy.deepcopy(model)
    torch.testing.assert_close(step(x).array, twin(x.array).detach())
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)
    model.eval()
    torch.testing.assert_close(step(x).array, twin.eval()(x.array).detach())
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_frozen_encoder_in_a_compiled_training_step_is_as_in_pytorch() -> None:
    """A pretrained encoder with a batch norm behind it, whose buffers move on, and a head of Tape that is trained."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    encoder = torch.nn.TransformerEncoder(layer, 2).requires_grad_(False)
    model = torch.nn.Sequential(encoder, torch.nn.Flatten(), torch.nn.BatchNorm1d(32, dtype=torch.float64))
    twin = copy.deepcopy(model)
    data = numbers(6, 4, 8)
    start = torch.randn(32, 1, dtype=torch.float64)

    head, optimizer = tc.Variable(tc.asarray(start)), nn.SGD(0.1)
    trained = [head, *tape_torch.variables(model)]

    @tc.function
    def step(x: tc.Tensor) -> tc.Tensor:
        with tc.GradientTape() as tape:
            loss = tc.mean((tape_torch.call(model, x) @ head - 1) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
        return loss

    weight = start.clone().requires_grad_()
    reference = torch.optim.SGD([weight, *[p for p in twin.parameters() if p.requires_grad]], 0.1)
    for _ in range(4):
        reference.zero_grad()
        loss = ((twin(data) @ weight - 1) ** 2).mean()
        loss.backward()
        reference.step()
        torch.testing.assert_close(step(tc.asarray(data)).array, loss.detach())
    torch.testing.assert_close(head.array, weight.detach())
    for (name, found), (_, expected) in zip(model.state_dict().items(), twin.state_dict().items(), strict=True):
        torch.testing.assert_close(found, expected, msg=name)


@pytest.mark.parametrize("kind", ["value", "gradient", "under a tape"])
def test_autocast_around_a_compiled_function_is_that_around_an_eager_one(kind: str) -> None:
    x = tc.asarray(numbers(8, 8).float())
    module = network().float()

    def f(x: Any) -> Any:
        return tc.sum(tc.tanh(x @ x) ** 2) + tc.sum(tape_torch.call(module, x[:, :3]))

    def under_a_tape(f: Any) -> Any:
        def gradient(x: Any) -> Any:
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)

        return gradient

    eager = tc.grad(f) if kind == "gradient" else f
    compiled = tc.function(eager)
    if kind == "under a tape":
        eager, compiled = under_a_tape(f), under_a_tape(compiled)
    for mixed in (False, False, True, True, True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            found, expected = compiled(x), eager(x)
        assert found.dtype is expected.dtype
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["lambda", "module", "in a loop", "in a branch"])
def test_compiled_hessians_through_functions_of_ones_own(kind: str) -> None:
    module, x = network(), tc.asarray(numbers(3))

    def called(x: Any) -> Any:
        if kind == "module":
            return tape_torch.call(module, x)
        return tape_torch.call(lambda a: torch.sin(a) * torch.sum(a * a), x)

    def f(x: Any) -> Any:
        if kind == "in a loop":
            return tc.sum(
                tc.scan(lambda c, r: (tc.tanh(called(c) * r), c), x, tc.asarray([0.5, 2.0], dtype="float64"))[0]
            )
        if kind == "in a branch":
            return tc.cond(tc.sum(x) > -9, lambda: tc.sum(called(x)), lambda: tc.sum(x))
        return tc.sum(called(x) ** 2)

    for derivative in (tc.hessian(f), tc.jacfwd(tc.grad(f)), tc.jacrev(tc.grad(f))):
        compiled = tc.function(derivative)
        for k in range(3):
            np.testing.assert_allclose(compiled(x + k).numpy(), derivative(x + k).numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_a_compiled_vmap_of_what_draws_is_refused(randomness: Any) -> None:
    state = torch.random.get_rng_state()

    def dropped(x: Any) -> Any:
        return tape_torch.call(lambda a: torch.nn.functional.dropout(a, 0.5), x)

    with pytest.raises(TracingError, match="draws random numbers"):
        tc.function(tc.vmap(dropped, randomness=randomness))(tc.asarray(numbers(2, 3)))
    assert torch.equal(torch.random.get_rng_state(), state)
    jacobian = tc.function(tc.jacfwd(dropped))
    found = {tuple(np.diag(jacobian(tc.asarray(numbers(3))).numpy())) for _ in range(20)}
    assert len(found) > 1  # a Jacobian is of one call, and each call draws others
    assert {one for diagonal in found for one in diagonal} == {0.0, 2.0}
