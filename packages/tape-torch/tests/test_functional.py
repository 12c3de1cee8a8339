"""`call` and `variables`: functions of PyTorch on a tape."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import tape_torch
import torch
from torch.nn import functional as F

Array = Any


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    torch.manual_seed(0)
    with tc.use_backend("torch"):
        yield


def numbers(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def check(fn: Callable[..., Any], *arrays: torch.Tensor) -> None:
    """Check first and second derivatives against torch.autograd."""
    leaves = [a.clone().requires_grad_() for a in arrays]
    out = fn(*leaves)
    expected = torch.autograd.grad(_loss(out), leaves, create_graph=True)
    expected2 = torch.autograd.grad(sum(_loss(d) for d in expected), leaves, allow_unused=True)
    xs = [tc.asarray(a) for a in arrays]
    with tc.GradientTape() as outer:
        outer.watch(xs)
        with tc.GradientTape() as tape:
            tape.watch(xs)
            loss = _loss(tape_torch.call(fn, *xs))
        first = tape.gradient(loss, xs)
        total = sum((_loss(d) for d in first), tc.asarray(0.0, dtype=tc.float64))
    second = outer.gradient(total, xs, unconnected_gradients="zero")
    for d, e, a in zip((*first, *second), (*expected, *expected2), (*arrays, *arrays), strict=True):
        torch.testing.assert_close(d.array, torch.zeros_like(a) if e is None else e.detach(), rtol=1e-12, atol=1e-12)
        assert not d.array.requires_grad


def _loss(value: Any) -> Any:
    """Return a real number computed from a Tensor or a torch tensor."""
    if isinstance(value, torch.Tensor):
        value = value.abs() ** 2 + value.real if value.is_complex() else value * value + value
        return value.sum()
    value = tc.abs(value) ** 2 + tc.real(value) if value.dtype.kind == "complex floating" else value * value + value
    return tc.sum(value)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (torch.sin, [(3,)]),
        (lambda x, y: torch.logcumsumexp(x * y, dim=0), [(3,), (3,)]),
        (torch.linalg.solve, [(3, 3), (3,)]),
        (lambda x: x, [(2,)]),
        (lambda x: x.mT, [(2, 3)]),
        (lambda x: x[1:] * x[:-1].exp(), [(4,)]),
        (lambda x, y: torch.nn.functional.conv1d(x, y, padding=1), [(1, 2, 5), (3, 2, 3)]),
        (lambda x: x.sum().expand(3), [(2, 2)]),
    ],
    ids=["sin", "two", "solve", "same", "view", "slices", "conv", "expand"],
)
def test_derivatives_are_those_of_torch(fn: Any, shapes: list[tuple[int, ...]]) -> None:
    check(fn, *[numbers(*shape, seed=k) for k, shape in enumerate(shapes)])


@pytest.mark.parametrize(
    "fn",
    [torch.sin, lambda z: z.conj() * z * z, lambda z: z.abs() + z.imag, lambda z: torch.fft.fft(z) ** 2],
    ids=["sin", "conj", "real", "fft"],
)
def test_complex_derivatives(fn: Any) -> None:
    check(fn, numbers(3, dtype=torch.complex128))


def test_a_function_of_real_and_complex() -> None:
    check(lambda x, z: torch.fft.irfft(x * z * z), numbers(4), numbers(4, dtype=torch.complex128))


def _by_pytorch(x: tc.Tensor, axis: int) -> tc.Tensor:
    return tape_torch.call(torch.logcumsumexp, x, dim=axis)  # type: ignore[no-any-return]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_second_derivatives_of_logcumsumexp_hold(axis: int) -> None:
    """At a cotangent of 0, the derivative of PyTorch's own formula is 0, and NaN in forward mode."""
    x, w = tc.asarray(numbers(2, 3)), tc.asarray(torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64))

    def loss(f: Any) -> Any:
        return lambda x: tc.sum(w * f(x, axis) ** 2)

    def own(x: tc.Tensor, axis: int) -> tc.Tensor:
        return tc.logcumsumexp(x, axis=axis)

    expected = tc.hessian(loss(own))(x).numpy()
    for hessian in (tc.hessian, lambda f: tc.jacrev(tc.grad(f)), lambda f: tc.jacfwd(tc.jacfwd(f))):
        np.testing.assert_allclose(hessian(loss(_by_pytorch))(x).numpy(), expected, rtol=1e-12, atol=1e-12)

    def by_weight(f: Any) -> Any:
        return tc.jacrev(lambda w: tc.grad(lambda x: tc.sum(w * f(x, axis)))(x))(w).numpy()

    np.testing.assert_allclose(by_weight(_by_pytorch), by_weight(own), rtol=1e-12, atol=1e-12)


def test_third_derivative() -> None:
    x = tc.asarray(numbers())
    with tc.GradientTape() as t3:
        t3.watch(x)
        with tc.GradientTape() as t2:
            t2.watch(x)
            with tc.GradientTape() as t1:
                t1.watch(x)
                y = tape_torch.call(lambda v: torch.sin(v) * v, x) * x
            first = t1.gradient(y, x)
        second = t2.gradient(first, x)
    v = float(x)
    import math

    expected = 6 * math.cos(v) - 6 * v * math.sin(v) - v * v * math.cos(v)
    assert float(t3.gradient(second, x)) == pytest.approx(expected, rel=1e-12)


def test_structures_of_arguments_and_results() -> None:
    a, b = tc.Variable(numbers(2)), tc.Variable(numbers(2, seed=2))
    with tc.GradientTape(persistent=True) as tape:
        out = tape_torch.call(
            lambda pair, *, scale, mode: {"sum": pair["a"] + scale[0], "rest": (pair["a"] * 2, [mode, 3])},
            {"a": a},
            scale=[b],
            mode="x",
        )
    assert out["rest"][1] == ["x", 3]
    assert tape.gradient(out["sum"], [a, b])[1].tolist() == [1.0, 1.0]
    assert tape.gradient(out["rest"][0], [a, b])[1] is None
    with pytest.raises(TypeError, match="target"):
        tape.gradient(out, a)


def test_results_that_have_no_derivative() -> None:
    x = tc.Variable(numbers(4))
    with tc.GradientTape() as tape:
        values, indices = tape_torch.call(torch.sort, x)
        y = values[0] * tc.astype(indices[0], tc.float64)
        count = tape_torch.call(torch.count_nonzero, x)
    assert indices.dtype is tc.int64
    assert count.item() == 4
    grad = tape.gradient(y, x)
    assert grad[int(indices[0])].item() == float(indices[0])


def test_named_tuples_stay() -> None:
    out = tape_torch.call(torch.max, tc.asarray([[1.0, 3.0]]), dim=1)
    assert out.values.tolist() == [3.0]
    assert isinstance(out, torch.return_types.max)


def test_of_several_results_some_are_used() -> None:
    x, y = tc.Variable(numbers(2)), tc.Variable(numbers(2))
    with tc.GradientTape() as tape:
        first, _ = tape_torch.call(lambda a, b: (a * a, b * b), x, y)
    found = tape.gradient(first, [x, y])
    torch.testing.assert_close(found[0].array, 2 * x.array)
    assert found[1] is None


def test_integers_are_constants() -> None:
    table, index = tc.Variable(numbers(4, 2)), tc.asarray([1, 1, 3])
    with tc.GradientTape() as tape:
        y = tape_torch.call(torch.nn.functional.embedding, index, table)
    assert tape.gradient(y, table).tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_a_persistent_tape_sweeps_twice() -> None:
    x = tc.Variable(numbers(3))
    with tc.GradientTape(persistent=True) as tape:
        y = tape_torch.call(torch.exp, x)
    assert tape.gradient(y, x).tolist() == tape.gradient(y, x).tolist()


def test_the_function_runs_once() -> None:
    calls = []

    def fn(x: Any) -> Any:
        calls.append(torch.is_grad_enabled())
        return x**3

    x = tc.Variable(2.0)
    tape_torch.call(fn, x)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = tape_torch.call(fn, x)
        g = inner.gradient(y, x)
    assert outer.gradient(g, x).item() == 12.0
    assert calls == [False, True]


def test_dropout_is_the_same_in_all_derivatives() -> None:
    x = tc.Variable(numbers(100))
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = tape_torch.call(lambda v: F.dropout(v, 0.5) ** 2, x)
        g = inner.gradient(y, x)
    h = outer.gradient(g, x)
    assert [v == 0 for v in g.tolist()] == [v == 0 for v in h.tolist()]
    assert 20 < sum(v == 0 for v in h.tolist()) < 80


def test_nothing_requires_grad_and_nothing_is_kept() -> None:
    x = tc.Variable(numbers(3))
    with tc.GradientTape() as tape:
        y = tape_torch.call(lambda v: [v * 1, v.detach() * 2], x)
        assert not any(v.array.requires_grad for v in y)
        g = tape.gradient(y[0], x)
    assert not g.array.requires_grad
    graph: list[Any] = []
    with tc.GradientTape() as tape:
        y = tape_torch.call(lambda v: graph.append(weakref.ref(v)) or v.exp(), x)
    tape.gradient(y, x)
    gc.collect()
    assert graph[0]() is None


def test_in_inference_mode() -> None:
    with torch.inference_mode():
        x = tc.Variable(torch.ones(2))
        with tc.GradientTape() as tape:
            y = tape_torch.call(torch.exp, x)
        assert tape.gradient(y, x).tolist() == y.tolist()


# -- mistakes


def test_writing_into_an_argument_is_refused() -> None:
    x = tc.Variable(numbers(3))
    with tc.GradientTape(), pytest.raises(RuntimeError, match=r"call\(relu_\) writes into an argument.*clone"):
        tape_torch.call(torch.relu_, x)
    t = tc.asarray(numbers(3))
    with pytest.raises(RuntimeError, match=r"call\(<lambda>\) writes into its argument 1"):
        tape_torch.call(lambda a, b: b.add_(a), 1.0, t)


def test_a_tensor_of_another_backend_is_refused() -> None:
    with pytest.raises(TypeError, match=r"argument 1\['w'\] is on backend 'numpy'.*asarray\(x, backend='torch'\)"):
        tape_torch.call(lambda x, d: x, tc.ones(2), {"w": tc.ones(2, backend="numpy")})
    with pytest.raises(TypeError, match="argument scale is on backend 'numpy'"):
        tape_torch.call(lambda x, scale: x, tc.ones(2), scale=tc.ones(2, backend="numpy"))


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a function or module first"):
        tape_torch.call(tc.ones(2), torch.sin)


def test_a_gradient_that_would_be_lost_is_refused() -> None:
    w = [torch.ones(2, requires_grad=True)]
    x = tc.Variable(torch.ones(2))
    with tc.GradientTape(), pytest.raises(TypeError, match=r"depends on tensors that require grad.*shape \(2,\)"):
        tape_torch.call(lambda v: v * w[0], x)
    with tc.GradientTape(), pytest.raises(TypeError, match="depends on tensors that require grad"):
        tape_torch.call(lambda v: w[0], x)
    with tc.GradientTape() as tape:
        y = tape_torch.call(lambda v: v * w[0].detach(), x)
    assert tape.gradient(y, x).tolist() == [1.0, 1.0]


def test_a_result_that_is_no_tensor_is_refused() -> None:
    class Output:
        pass

    x = tc.Variable(torch.ones(2))
    with pytest.raises(TypeError, match=r"call\(<lambda>\): its result\['y'\] is a Output"):
        tape_torch.call(lambda v: {"y": Output()}, x)
    with pytest.raises(TypeError, match=r"its result is a Tensor; .* give it every Tensor as an argument"):
        tape_torch.call(lambda v: v * x, 2 * x.array)
    with pytest.raises(TypeError, match="computes with torch tensors: give it every Tensor as an argument"):
        tape_torch.call(lambda v: torch.mul(v, x), 2 * x.array)
    with (
        tc.GradientTape(),
        pytest.raises(TypeError, match=r"wrap what Tape .* in tape_torch\.as_torch"),
    ):
        tape_torch.call(lambda v: tc.sin(v), x)


def test_an_error_of_the_function_is_its_own() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        tape_torch.call(torch.mm, tc.ones((2, 3)), tc.ones((2, 3)))


def test_a_tensor_with_a_graph_is_a_constant_with_a_warning() -> None:
    w = torch.ones(2, requires_grad=True)
    for use in (
        lambda: tape_torch.call(torch.mul, tc.ones(2), w * 2),
        lambda: tc.asarray(w * 2),
        lambda: tc.ones(2) * (w * 2),
        lambda: tc.Variable(w * 2),
        lambda: tc.asarray([w * 2, w * 3]),
    ):
        with pytest.warns(UserWarning, match=r"requires grad becomes a Tensor.*as_torch") as record:
            out = use()
        assert not out.array.requires_grad
        assert record[0].filename == __file__
    assert not tc.asarray(w).array.requires_grad  # no warning: a parameter is a leaf, whose graph is not cut
    assert tc.asarray(w).array.data_ptr() == w.data_ptr()


# -- modules


def module() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
    ).double()


def gradients_of(loss: torch.Tensor, source: torch.nn.Module) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(source.parameters())))


def same(found: Any, expected: Any) -> None:
    for d, e in zip(found, expected, strict=True):
        torch.testing.assert_close(d.array, e, rtol=1e-12, atol=1e-12)


def test_a_module_with_its_parameters() -> None:
    model, x = module(), numbers(5, 3)
    twin = copy.deepcopy(model)
    variables = tape_torch.variables(model)
    assert [v.name for v in variables] == [name for name, _ in model.named_parameters()]
    with tc.GradientTape() as tape:
        loss = tc.sum(tape_torch.call(model, x) ** 2)
    same(tape.gradient(loss, variables), gradients_of((twin(x) ** 2).sum(), twin))
    assert all(p.grad is None for p in model.parameters())


def test_buffers_are_updated_once() -> None:
    model, x = module(), tc.asarray(numbers(5, 3))
    twin = copy.deepcopy(model)
    twin(x.array)
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            loss = tc.sum(tape_torch.call(model, x) ** 2)
        g = tc.sum(inner.gradient(loss, x) ** 2)
    outer.gradient(g, [x, *tape_torch.variables(model)])
    assert model[1].num_batches_tracked == 1
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)


def test_second_order_through_parameters() -> None:
    model, x = module().eval(), numbers(5, 3)
    variables = tape_torch.variables(model)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            loss = tc.mean(tape_torch.call(model, x) ** 2)
        penalty = sum((tc.sum(g * g) for g in inner.gradient(loss, variables)), tc.asarray(0.0, dtype=tc.float64))
    first = torch.autograd.grad((model(x) ** 2).mean(), list(model.parameters()), create_graph=True)
    same(outer.gradient(penalty, variables), gradients_of(sum((g * g).sum() for g in first), model))


def test_frozen_parameters_are_constants() -> None:
    model = module()
    model[0].weight.requires_grad_(False)
    assert tape_torch.variables(model)[0].name == "0.bias"
    with tc.GradientTape() as tape:
        tape_torch.call(model, numbers(5, 3))
    assert "0.weight" not in [v.name for v in tape.watched_variables()]


def test_modules_that_a_function_names() -> None:
    model, x = module().eval(), numbers(5, 3)
    variables = tape_torch.variables(model)
    expected = gradients_of((model(x) ** 2).sum(), model)

    class Owner:
        def __init__(self) -> None:
            self.model = model

        def run(self, v: Any) -> Any:
            return (self.model(v) ** 2).sum()

    calls: list[Callable[[], Any]] = [
        lambda: tape_torch.call(lambda v: (model(v) ** 2).sum(), x),
        lambda: tape_torch.call(lambda m, v: (m(v) ** 2).sum(), model, x),
        lambda: tape_torch.call(functools.partial(lambda m, v: (m(v) ** 2).sum(), model), x),
        lambda: tc.sum(tape_torch.call(model.forward, x) ** 2),
    ]
    for run in calls:
        with tc.GradientTape() as tape:
            loss = run()
        same(tape.gradient(loss, variables), expected)
    with tc.GradientTape(), pytest.raises(TypeError, match="Give them, or the module that has them, as arguments"):
        tape_torch.call(Owner().run, tc.Variable(x))


def test_shared_parameters_count_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).double()
    model[1].weight = model[0].weight
    x = numbers(2, 3)
    variables = tape_torch.variables(model)
    assert len(variables) == 3
    with tc.GradientTape() as tape:
        loss = tc.sum(tape_torch.call(lambda v: (model(v), model[0](v))[0], x) ** 2)
    same(tape.gradient(loss, variables), gradients_of((model(x) ** 2).sum(), model))


def test_a_recurrent_network() -> None:
    model, x = torch.nn.LSTM(3, 4, batch_first=True).double(), numbers(2, 5, 3)
    variables = tape_torch.variables(model)
    with tc.GradientTape() as tape:
        out, (_, _) = tape_torch.call(model, x)
        loss = tc.sum(out * out)
    same(tape.gradient(loss, variables), gradients_of((model(x)[0] ** 2).sum(), model))


def test_parameters_that_nothing_uses_have_no_gradient() -> None:
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "other": torch.nn.Linear(2, 2)})
    with tc.GradientTape() as tape:
        y = tape_torch.call(lambda v: model["used"](v), torch.ones(1, 2))
    found = tape.gradient(y, tape_torch.variables(model))
    assert [g is None for g in found] == [False, False, True, True]


def test_a_parameter_among_the_arguments() -> None:
    layer, x = torch.nn.Linear(3, 2).double(), numbers(4, 3)
    with tc.GradientTape() as tape:
        y = tape_torch.call(F.linear, x, layer.weight, bias=layer.bias)
    same(tape.gradient(y, tape_torch.variables(layer)), gradients_of(layer(x).sum(), layer))


def test_variables_share_memory_and_write_through() -> None:
    layer = torch.nn.Linear(2, 1)
    weight, bias = tape_torch.variables(layer)
    assert tape_torch.variables(layer)[0] is weight is tape_torch.variables(layer.weight)[0]
    assert weight.array.data_ptr() == layer.weight.data_ptr()
    given = tc.asarray([[5.0, 6.0]])
    weight.assign(given)
    assert layer.weight.tolist() == [[5.0, 6.0]]
    with torch.no_grad():
        layer.weight.mul_(2)
    assert weight.tolist() == [[10.0, 12.0]]
    assert given.tolist() == [[5.0, 6.0]]
    bias.assign_add(tc.ones(1))
    assert bias.tolist() == layer.bias.tolist()
    layer.double()
    assert weight.dtype is tc.float64
    assert layer.weight.requires_grad
    assert isinstance(layer.weight, torch.nn.Parameter)
    assert type(copy.deepcopy(weight)) is tc.Variable


def test_an_assignment_changes_no_gradient() -> None:
    layer = torch.nn.Linear(1, 1, bias=False).double()
    (weight,) = tape_torch.variables(layer)
    weight.assign([[3.0]])
    x = tc.Variable([[2.0]], dtype=tc.float64)
    with tc.GradientTape(persistent=True) as tape:
        y = tape_torch.call(layer, x) ** 2
    weight.assign([[100.0]])
    assert tape.gradient(y, [x, weight])[0].item() == 36.0
    assert tape.gradient(y, weight).item() == 24.0
    with tc.GradientTape() as tape:
        y = tape_torch.call(layer, x)
    assert tape.gradient(y, x).item() == 100.0


def test_the_variables_go_with_the_module() -> None:
    layer = torch.nn.Linear(1, 1)
    reference = weakref.ref(layer.weight)
    tape_torch.variables(layer)
    del layer
    gc.collect()
    assert reference() is None


def test_what_has_no_variables_is_refused() -> None:
    with pytest.raises(TypeError, match="got 'int'"):
        tape_torch.variables(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got a tensor that is computed"):
        tape_torch.variables(torch.ones(2, requires_grad=True) * 2)
    with pytest.raises(TypeError, match="got 'str'"):
        tape_torch.variables(["w"])


def test_an_optimizer_of_tape_trains_a_module() -> None:
    model, x = torch.nn.Linear(3, 1), numbers(20, 3, dtype=torch.float32)
    y = x @ torch.tensor([[1.0], [2.0], [3.0]])
    variables, optimizer = tape_torch.variables(model), nn.Adam(learning_rate=0.1)
    for _ in range(200):
        with tc.GradientTape() as tape:
            loss = tc.mean((tape_torch.call(model, x) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    assert torch.nn.functional.mse_loss(model(x), y) < 1e-3


def test_as_torch_inside_call() -> None:
    """A PyTorch function that uses Tape inside, on a tape: each library sees the other's part as one op."""
    inner = tape_torch.as_torch(lambda x: tc.sin(x) * x)
    check(lambda x: inner(torch.exp(x)), numbers(3))


@pytest.mark.parametrize("recorded", [False, True])
def test_parameters_of_a_module_read_as_bound_values(recorded: bool) -> None:
    linear = torch.nn.Linear(2, 1)
    before = linear.bias.detach().clone()

    class Holder(nn.Module):
        def __init__(self) -> None:
            self.weight, self.bias = tape_torch.variables(linear)

        def __call__(self, x: tc.Tensor) -> tc.Tensor:
            return tape_torch.call(linear, x)  # type: ignore[no-any-return]

    holder, x = Holder(), tc.ones((3, 2), backend="torch")
    values = {"weight": tc.zeros((1, 2), backend="torch"), "bias": tc.asarray([5.0], backend="torch")}
    if recorded:
        found = tc.grad(lambda p: tc.sum(nn.functional_call(holder, p, x)))(values)
        assert found["weight"].tolist() == [[3.0, 3.0]]
        assert found["bias"].tolist() == [3.0]
    else:
        assert nn.functional_call(holder, values, x).tolist() == [[5.0]] * 3
    with holder.using(values) as bound:
        holder.bias.assign(tc.asarray([7.0], backend="torch"))
    assert bound["bias"].tolist() == [7.0]
    assert torch.equal(linear.bias, before)


class _Linear(nn.Module):
    """A layer of Tape around one of PyTorch."""

    def __init__(self) -> None:
        self.linear = torch.nn.Linear(2, 1)
        self.weight, self.bias = tape_torch.variables(self.linear)

    def __call__(self, x: tc.Tensor) -> tc.Tensor:
        return tape_torch.call(self.linear, x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_an_ensemble_of_bound_parameters(compiled: bool, frozen: bool) -> None:
    layer, x = _Linear(), tc.ones((3, 2), backend="torch")
    layer.linear.weight.requires_grad_(not frozen)
    weights, biases = tc.asarray(torch.randn(4, 1, 2)), tc.asarray(torch.randn(4, 1))

    def loss(weight: tc.Tensor, bias: tc.Tensor) -> tc.Tensor:
        return tc.sum(nn.functional_call(layer, {"weight": weight, "bias": bias}, x) ** 2)  # type: ignore[arg-type]

    def torch_loss(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.linear(x.array, weight, bias) ** 2).sum()

    expected = torch.func.vmap(torch.func.grad(torch_loss, (0, 1)))(weights.array, biases.array)
    gradients = tc.vmap(lambda weight, bias: tc.grad(loss, (0, 1))(weight, bias))
    gradients = tc.function(gradients) if compiled else gradients
    for _ in range(2):
        for found, wanted in zip(gradients(weights, biases), expected, strict=True):
            torch.testing.assert_close(found.array, wanted)


def test_a_bound_parameter_is_assigned_inside_vmap() -> None:
    layer, x = _Linear(), tc.ones((3, 2), backend="torch")
    biases = tc.asarray([[1.0], [2.0]], backend="torch")

    def twice(bias: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        with layer.using({"weight": tc.zeros((1, 2), backend="torch"), "bias": bias}) as bound:
            layer.bias.assign(layer.bias * 2)
            return layer(x), bound["bias"]

    ys, new = tc.vmap(twice)(biases)
    assert new.tolist() == [[2.0], [4.0]]
    assert ys.tolist() == [[[2.0]] * 3, [[4.0]] * 3]


def test_a_frozen_parameter_that_a_tape_watches() -> None:
    layer, x = _Linear(), tc.ones((3, 2), backend="torch")
    layer.linear.requires_grad_(False)
    with tc.GradientTape() as tape:
        tape.watch(layer.weight)
        y = layer(x)
    weight, bias = tape.gradient(y, [layer.weight, layer.bias])
    assert weight.tolist() == [[3.0, 3.0]]
    assert bias is None


def test_a_hook_of_a_parameter_is_refused_where_a_tape_records() -> None:
    """It would be ignored, and the gradient would be another than PyTorch's."""
    linear = torch.nn.Linear(2, 1)
    hook = linear.weight.register_hook(lambda g: g * 0)
    x = tc.ones((3, 2), backend="torch")
    assert tape_torch.call(linear, x).shape == (3, 1)
    with tc.GradientTape(), pytest.raises(TypeError, match=r"'weight' has a hook.*remove it"):
        tape_torch.call(linear, x)
    hook.remove()
    with tc.GradientTape() as tape:
        y = tape_torch.call(linear, x)
    assert tape.gradient(y, tape_torch.variables(linear)[0]).tolist() == [[3.0, 3.0]]


def test_parameters_of_pytorch_are_moved_by_pytorch_alone() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            self.own = tc.Variable(tc.ones(2, backend="torch"))
            self.parameters = tape_torch.variables(torch.nn.Linear(2, 1))

    model = Both()
    with pytest.raises(TypeError, match=r"Module\.to.*parameter of PyTorch; move it by the `to` of its PyTorch module"):
        model.to("numpy")
    assert {v.backend.name for v in model.variables} == {"torch"}
    optimizer = nn.Adam(0.1)  # its slots follow the Variables
    optimizer.apply_gradients([(tc.ones_like(v), v) for v in model.parameters])


def test_arrays_of_numpy_are_data_and_numbers_are_numbers() -> None:
    module, rows = torch.nn.Linear(3, 2), np.ones((4, 3), np.float32)
    expected = module(torch.as_tensor(rows)).detach().numpy()
    for run in (tape_torch.call, tc.function(lambda m, x: tape_torch.call(m, x))):
        np.testing.assert_allclose(run(module, rows).numpy(), expected, rtol=1e-6)
    x = tc.Variable([1.0, 2.0, 3.0], backend="torch")
    with tc.GradientTape() as tape:
        y = tape_torch.call(lambda a, b, k: torch.sum(a * b) * k, x, rows, np.float64(2.0))
    assert tape.gradient(y, x).tolist() == [8.0, 8.0, 8.0]
