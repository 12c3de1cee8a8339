"""`call` inside vmap, against torch.func: alone, under derivatives inside and outside, nested, and one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_torch
import torch
from tape_core.backends.errors import BatchError


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    torch.manual_seed(0)
    with tc.use_backend("torch"):
        yield


X = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
MODEL = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()


def deciding(row: torch.Tensor) -> torch.Tensor:
    """Return what torch.func.vmap cannot compute: Python decides by a value."""
    return row.sum() * row if row.sum() > 0 else row * row


class Cube(torch.autograd.Function):
    """A function of the old kind, of which torch.func has no derivative."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


def cube(row: torch.Tensor) -> torch.Tensor:
    return Cube.apply(row)  # type: ignore[no-any-return,no-untyped-call]


def close(found: Any, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-9)


FUNCTIONS = {
    "module": MODEL,
    "logcumsumexp": lambda row: torch.logcumsumexp(row, 0),
    "integers": lambda row: torch.sort(row).values * torch.argsort(row),
    "deciding": deciding,
    "old": cube,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives(name: str) -> None:
    f, x = FUNCTIONS[name], tc.asarray(X)

    def called(row: Any) -> Any:
        return tape_torch.call(f, row)

    def loss(row: Any) -> Any:
        return tc.sum(called(row) ** 2)

    def loss_of_torch(row: torch.Tensor) -> torch.Tensor:
        return (f(row) ** 2).sum()

    derivative = torch.autograd.functional
    close(tc.vmap(called)(x), torch.stack([f(row) for row in X]))
    close(tc.vmap(tc.grad(loss))(x), torch.stack([derivative.jacobian(loss_of_torch, row) for row in X]))
    jacobians = torch.stack([derivative.jacobian(f, row) for row in X])
    for jacobian in (tc.jacrev, tc.jacfwd):
        close(tc.vmap(jacobian(called))(x), jacobians)
    hessians = torch.stack([derivative.hessian(loss_of_torch, row) for row in X])
    for hessian in (tc.hessian, lambda f: tc.jacrev(tc.jacrev(f)), lambda f: tc.jacfwd(tc.jacfwd(f))):
        close(tc.vmap(hessian(loss))(x), hessians)
    # A tape around the vmap.
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.vmap(called)(x) ** 2)
    close(tape.gradient(y, x), torch.stack([derivative.jacobian(loss_of_torch, row) for row in X]))


def test_axes_and_nesting() -> None:
    def f(a: Any, b: Any) -> Any:
        return tape_torch.call(lambda a, b: {"p": a * b.sum(), "q": [torch.sin(b)]}, a, b)

    a, b = tc.asarray(X), tc.asarray(X.mT.contiguous())
    found = tc.vmap(f, in_axes=(0, 1))(a, b)
    close(found["p"], X * X.sum(1, keepdim=True))
    close(found["q"][0], torch.sin(X))
    nested = tc.vmap(lambda r: tc.vmap(lambda s: f(s, r)["p"])(r))(a)
    close(nested, X * X.sum(1, keepdim=True))
    shared = tc.vmap(lambda s: tc.grad(lambda w: tc.sum(f(s, w)["p"]))(b[:, 0]), out_axes=1)(a)
    close(shared, X.sum(1).expand(3, 4))


def test_parameters_have_gradients_of_their_own_for_each_example_and_a_sum_outside() -> None:
    variables = tape_torch.variables(MODEL)

    def gradients(row: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.sum(tape_torch.call(MODEL, row) ** 2)
        return tape.gradient(loss, variables)

    parameters = {name: p.detach() for name, p in MODEL.named_parameters()}
    loss = lambda p, row: (torch.func.functional_call(MODEL, p, (row,)) ** 2).sum()  # noqa: E731
    expected = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, X)
    for found, name in zip(tc.vmap(gradients)(tc.asarray(X)), expected, strict=True):
        close(found, expected[name])
    with tc.GradientTape() as tape:
        y = tc.sum(tc.vmap(lambda row: tape_torch.call(MODEL, row))(tc.asarray(X)) ** 2)
    for found, name in zip(tape.gradient(y, variables), expected, strict=True):
        close(found, expected[name].sum(0))


def test_batches_of_cotangents_and_tangents_of_a_call_outside() -> None:
    x, eye = tc.asarray(X[0]), tc.eye(3, dtype=tc.float64)
    f = lambda x: tape_torch.call(lambda v: torch.sin(v) * v.sum(), x)  # noqa: E731
    expected = torch.func.jacrev(lambda v: torch.sin(v) * v.sum())(X[0])
    close(tc.vmap(lambda g: tc.vjp(f, x)[1](g)[0])(eye), expected)
    pull = tc.vjp(f, x)[1]
    close(tc.vmap(lambda g: pull(g)[0])(eye), expected)
    close(tc.vmap(tc.vmap(lambda g: pull(g)[0]))(tc.stack([eye, 2 * eye])), torch.stack([expected, 2 * expected]))
    close(tc.vmap(lambda t: tc.jvp(f, (x,), (t,))[1], out_axes=1)(eye), expected)
    close(tc.vmap(lambda g: tc.jvp(lambda g: pull(g)[0], (g,), (g,))[1])(eye), expected)


def test_a_complex_function() -> None:
    z = torch.complex(X, X.flip(0))
    f = lambda z: (torch.fft.fft(z) * z.conj()).abs().sum()  # noqa: E731
    found = tc.vmap(tc.grad(lambda z: tape_torch.call(f, z)))(tc.asarray(z))
    leaf = z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(sum(f(row) for row in leaf), leaf)
    close(found, expected)


def with_noise(row: torch.Tensor) -> torch.Tensor:
    return row * torch.rand(row.shape, dtype=row.dtype) + torch.randn(())


def with_noise_one_by_one(row: torch.Tensor) -> torch.Tensor:
    """Return what torch.func.vmap cannot compute: Python decides by a value."""
    return with_noise(row) if row.sum() > -1e9 else row


@pytest.mark.parametrize("f", [with_noise, with_noise_one_by_one])
@pytest.mark.parametrize("randomness", ["different", "same"])
def test_random_numbers_are_of_each_example_or_of_all(f: Any, randomness: Any) -> None:
    x = tc.asarray(torch.ones(5, 3, dtype=torch.float64))

    def drawn(x: Any) -> Any:
        return tc.vmap(lambda row: tape_torch.call(f, row), randomness=randomness)(x)

    torch.manual_seed(3)
    first = drawn(x).numpy()
    assert (len(np.unique(first, axis=0)) == 1) == (randomness == "same")
    assert not np.allclose(drawn(x).numpy(), first)  # each call draws anew
    torch.manual_seed(3)
    np.testing.assert_array_equal(drawn(x).numpy(), first)
    # A derivative is that of the numbers which were drawn: of x * u it is u, and of a sum over examples their sum.
    for inside in (True, False):
        torch.manual_seed(3)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = drawn(x)
            value = tc.sum(y)
        u = tape.gradient(value, x).numpy()
        shift = (y.numpy() - u)[:, :1]
        np.testing.assert_allclose(y.numpy() - u, np.broadcast_to(shift, u.shape), atol=1e-12)
        assert (len(np.unique(u, axis=0)) == 1) == (randomness == "same")
        if inside:
            gradient = tc.grad(lambda row: tc.sum(tape_torch.call(f, row)))
            rows = tc.vmap(gradient, randomness=randomness)(x).numpy()
            assert (len(np.unique(rows, axis=0)) == 1) == (randomness == "same")
            assert ((rows >= 0) & (rows < 1)).all()


def test_random_numbers_and_running_statistics_inside_vmap_are_refused() -> None:
    x = tc.asarray(X)
    with pytest.raises(BatchError, match=r"call\(dropout\) draws random numbers inside vmap"):
        tc.vmap(lambda row: tape_torch.call(torch.nn.functional.dropout, row))(x)
    with pytest.raises(BatchError, match="draws random numbers inside vmap"):  # one by one
        tc.vmap(lambda row: tape_torch.call(lambda row: deciding(row) * torch.rand(3), row))(x)
    norm = torch.nn.BatchNorm1d(3).double()
    images = tc.asarray(torch.stack([X, X + 1]))
    with pytest.raises(TypeError, match=r"updates the buffer 'running_mean' of a module inside vmap.*eval\(\)"):
        tc.vmap(lambda rows: tape_torch.call(norm, rows))(images)
    assert norm.num_batches_tracked == 0
    assert torch.equal(norm.running_mean, torch.zeros(3, dtype=torch.float64))
    norm.eval()
    close(tc.vmap(lambda rows: tape_torch.call(norm, rows))(images), norm(images.array.flatten(0, 1)).reshape(2, 4, 3))


def test_shapes_that_differ_by_example_are_refused() -> None:
    with pytest.raises(BatchError, match="the shape of its result depends on values"):
        tc.vmap(lambda row: tape_torch.call(lambda row: row[row > 0], row))(tc.asarray(X))
    with pytest.raises(TypeError, match="its result differs from that of another run"):
        tc.vmap(lambda row: tape_torch.call(lambda row: (row, float(row.sum())), row))(tc.asarray(X))


def test_writing_into_an_example_is_refused() -> None:
    x = tc.asarray(X.clone())
    with pytest.raises(RuntimeError, match=r"call\(<lambda>\) writes into its argument 0"):
        tc.vmap(lambda row: tape_torch.call(lambda row: row.add_(1), row))(x)


def test_functions_that_run_again() -> None:
    x = tc.asarray(X)
    checkpointed = tc.checkpoint(lambda x: tc.sum(tape_torch.call(MODEL, x) ** 2))
    close(tc.grad(checkpointed)(x), torch.func.grad(lambda x: (MODEL(x) ** 2).sum())(X))
    before = torch.get_rng_state()
    with pytest.raises(TypeError, match="draws random numbers of PyTorch, and runs again for the derivative"):
        tc.grad(tc.checkpoint(lambda x: tc.sum(tape_torch.call(torch.nn.functional.dropout, x))))(x)
    torch.set_rng_state(before)
    norm = torch.nn.BatchNorm1d(3).double()
    with pytest.raises(TypeError, match=r"updates the buffer 'running_mean' .* would update them twice"):
        tc.grad(tc.checkpoint(lambda x: tc.sum(tape_torch.call(norm, x))))(x)
    assert norm.num_batches_tracked == 0


def test_custom_gradients_with_functions_of_pytorch() -> None:
    @tc.custom_gradient
    def sine(x: Any) -> Any:
        return tape_torch.call(torch.sin, x), lambda g: g * tape_torch.call(torch.cos, x)

    gradient = tc.grad(lambda x: tc.sum(sine(x)))
    close(tc.vmap(gradient)(tc.asarray(X)), torch.cos(X))
    close(tc.jacrev(gradient)(tc.asarray(X[0])), torch.diag(-torch.sin(X[0])))


def test_loops_and_branches_under_jacobians_of_jacobians() -> None:
    """A derivative of theirs reopens the vmap of the inner Jacobian, where the arguments are what examples share."""
    scale = torch.tensor([1.1, 0.2, -0.7], dtype=torch.float64)

    def scaled(x: Any) -> Any:
        return tape_torch.call(lambda a: a * scale, x)

    def looped(x: Any) -> Any:
        step = lambda s: (s[0] + 1, tc.sin(scaled(s[1])) * x)  # noqa: E731
        return tc.sum(tc.while_loop(lambda s: s[0] < 2, step, (tc.asarray(0), x))[1])

    def branched(x: Any) -> Any:
        return tc.sum(tc.cond(tc.sum(x) < 9, lambda y: scaled(y) * scaled(x), lambda y: y, x))

    def looped_by_torch(x: torch.Tensor) -> torch.Tensor:
        return (torch.sin(torch.sin(x * scale) * x * scale) * x).sum()

    pairs = [(looped, looped_by_torch), (branched, lambda x: ((x * scale) ** 2).sum())]
    for f, by_torch in pairs:
        expected = torch.autograd.functional.hessian(by_torch, X[0])
        for inner in (tc.jacrev, tc.jacfwd):
            for outer in (tc.jacrev, tc.jacfwd):
                close(outer(inner(f))(tc.asarray(X[0])), expected)
