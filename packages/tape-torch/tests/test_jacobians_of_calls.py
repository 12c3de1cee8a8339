"""Jacobians and Hessians of `call`, and the refusal of distributed modules, whose gradients backward() adds up."""

import numpy as np
import pytest
import tape_core as tc
import tape_torch
import torch

X = torch.tensor([1.0, 2.0, 3.0])


def wave(a):
    return torch.sin(a) * a.sum()


def energy(a):
    return (wave(a) ** 2).sum()


def test_jacobians_through_a_function_of_pytorch_are_those_of_pytorch():
    x = tc.asarray(X)
    for f in (wave, lambda a: torch.logcumsumexp(a, 0), torch.nn.Linear(3, 2)):
        expected = torch.func.jacrev(f)(X).detach().numpy()

        def called(x, f=f):
            return tape_torch.call(f, x)

        for jacobian in (tc.jacrev(called), tc.jacfwd(called), tc.jacrev(called, chunk_size=1)):
            np.testing.assert_allclose(jacobian(x).numpy(), expected, rtol=1e-5, atol=1e-6)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = called(x)
        np.testing.assert_allclose(tape.jacobian(y, x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_second_derivatives_through_a_function_of_pytorch_in_every_nesting():
    def called(x):
        return tape_torch.call(energy, x)

    expected = torch.func.jacrev(torch.func.jacrev(energy))(X).numpy()
    for second in (
        tc.hessian(called),
        tc.jacrev(tc.jacrev(called)),
        tc.jacrev(tc.jacfwd(called)),
        tc.jacfwd(tc.jacrev(called)),
        tc.jacfwd(tc.jacfwd(called)),
    ):
        np.testing.assert_allclose(second(tc.asarray(X)).numpy(), expected, rtol=1e-4, atol=1e-3)


def test_modules_that_exchange_gradients_in_hooks_are_refused():
    # A process group of one process, without a network: the type alone decides.
    class Sharded(torch.distributed.fsdp.FSDPModule, torch.nn.Linear):
        def __new__(cls, *args, **kwargs):
            return object.__new__(cls)

    inside = torch.nn.Sequential(Sharded(2, 1))
    for module in (Sharded(2, 1), inside):
        with pytest.raises(TypeError, match=r"FSDPModule adds up gradients in hooks .*train alone"):
            tape_torch.call(module, tc.asarray(torch.ones(3, 2)))
    parallel = torch.nn.parallel.DistributedDataParallel.__new__(torch.nn.parallel.DistributedDataParallel)
    torch.nn.Module.__init__(parallel)
    with pytest.raises(TypeError, match=r"DistributedDataParallel adds up gradients in hooks"):
        tape_torch.call(lambda x: parallel(x), tc.asarray(torch.ones(3, 2)))
