"""Check a function under a name of SciPy's: values, arguments, derivatives, transformations, backends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tape_core as tc
from support import leaves
from tape_core.backends import select


def floating(results: Any) -> Iterator[Any]:
    """The parts of results that are of floating-point numbers, Tensors or arrays."""
    for leaf in leaves(results):
        kind = leaf.dtype.kind if isinstance(leaf, tc.Tensor) else np.asarray(leaf).dtype.kind
        if kind in ("f", "c", "real floating", "complex floating"):
            yield leaf


def array(x: Any) -> Any:
    return x.numpy() if isinstance(x, tc.Tensor) else np.asarray(x)


def check_signature(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    """Fail unless the parameters have SciPy's names, order, kinds and defaults."""
    found, expected = ([*inspect.signature(f).parameters.values()] for f in (ours, theirs))
    assert [p.name for p in found] == [p.name for p in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.kind == other.kind, one
        plain = isinstance(other.default, int | float | str | tuple | complex | None)
        same = one.default == other.default or (one.default != one.default and other.default != other.default)
        assert same or not plain, f"{one}, not {other}"


def check(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *xs: Any,
    rtol: float = 1e-9,
    slope: float = 2e-6,
    second: bool = True,
    transformed: bool = True,
    derivative: bool = True,
) -> None:
    """Fail unless a function has the values and derivatives of SciPy's on the selected backend, however it is run."""
    arrays = [np.asarray(x, dtype="float64") for x in xs]
    expected = [np.asarray(leaf) for leaf in leaves(theirs(*arrays))]
    tensors = [tc.asarray(x) for x in arrays]
    found = leaves(ours(*tensors))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape if isinstance(one, tc.Tensor) else True, (one.shape, other.shape)
        np.testing.assert_allclose(array(one), other, rtol=rtol, atol=rtol)
    # XLA compiles each op of each program: there, one derivative and one program of each function must do.
    compiles = select().backend.name == "jax"
    if derivative:
        _check_derivatives(ours, theirs, arrays, tensors, slope, second and not compiles)
    if transformed and not compiles:
        _check_transformed(ours, tensors)


def _weights(k: int, shape: tuple[int, ...]) -> Any:
    random = np.random.default_rng(k)
    return random.uniform(0.5, 1.5, shape) + 1j * random.uniform(0.5, 1.5, shape)


def weighted(results: Any) -> Any:
    """One real number that depends on every part of Tensors."""
    total: Any = 0.0
    for k, leaf in enumerate(floating(results)):
        w = _weights(k, leaf.shape)
        total = total + tc.sum(tc.real(leaf) * tc.asarray(w.real.copy(), backend=leaf.backend.root))
        if leaf.dtype.kind == "complex floating":
            total = total - tc.sum(tc.imag(leaf) * tc.asarray(w.imag.copy(), backend=leaf.backend.root))
    return total


def _weighted_numbers(results: Any) -> float:
    return sum(float(np.sum(np.real(_weights(k, np.shape(leaf)) * leaf))) for k, leaf in enumerate(floating(results)))


def _check_derivatives(
    ours: Callable[..., Any], theirs: Callable[..., Any], arrays: Any, tensors: Any, slope: float, second: bool
) -> None:
    argnums = range(len(arrays))
    gradients = tc.grad(lambda *xs: weighted(ours(*xs)), argnums=argnums)(*tensors)
    for n, gradient in enumerate(gradients):
        expected = np.zeros(arrays[n].shape)
        for place in np.ndindex(arrays[n].shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [x.copy() for x in arrays]
                moved[n][place] += step
                ends.append(_weighted_numbers(theirs(*moved)))
            expected[place] = (ends[0] - ends[1]) / 2e-6
        scale = 1 + np.max(np.abs(expected), initial=0.0)
        np.testing.assert_allclose(array(gradient) / scale, expected / scale, atol=slope)
    backend = tensors[0].backend.root
    directions = [
        tc.asarray(np.random.default_rng(n).standard_normal(x.shape), backend=backend) for n, x in enumerate(arrays)
    ]
    _, forward = tc.jvp(lambda *xs: weighted(ours(*xs)), tuple(tensors), tuple(directions))
    back = sum(float(tc.sum(g * d).item()) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(forward.item(), back, rtol=1e-8, atol=1e-8)
    if second:
        # Along a line, the second derivative is that of the first one.
        def along(t: Any) -> Any:
            return weighted(ours(*[x + t * d for x, d in zip(tensors, directions, strict=True)])) ** 2

        zero = tc.asarray(np.asarray(0.0), backend=backend)
        step = 1e-5
        ends = [tc.grad(along)(zero + s).item() for s in (step, -step)]
        curved = (ends[0] - ends[1]) / (2 * step)
        for found in (tc.hessian(along)(zero), tc.jacfwd(tc.grad(along))(zero)):
            np.testing.assert_allclose(found.item(), curved, rtol=1e-4, atol=1e-4)


def _check_transformed(ours: Callable[..., Any], tensors: Any) -> None:
    eager = [array(leaf) for leaf in leaves(ours(*tensors))]
    compiled = tc.function(ours)
    for _ in range(2):
        for one, other in zip(leaves(compiled(*tensors)), eager, strict=True):
            np.testing.assert_allclose(array(one), other, rtol=1e-9, atol=1e-10)
    pairs = [tc.stack([x, x * 1.01]) for x in tensors]
    batched = [array(leaf) for leaf in leaves(tc.vmap(ours)(*pairs)) if isinstance(leaf, tc.Tensor)]
    for k in range(2):
        apart = [array(leaf) for leaf in leaves(ours(*[p[k] for p in pairs])) if isinstance(leaf, tc.Tensor)]
        for one, other in zip(batched, apart, strict=True):
            np.testing.assert_allclose(one[k], other, rtol=1e-8, atol=1e-9)
