"""Derivatives of functions under SciPy's names beside those of JAX, where it has the function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

RNG = np.random.default_rng(0)
S = RNG.uniform(0.1, 0.6, (3, 3)) + 2 * np.diag([1.0, 1.3, 1.7])
X = RNG.standard_normal(24)
M = RNG.standard_normal((5, 4))
K = RNG.standard_normal((2, 3))

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "linalg.expm": (lambda m: m.linalg.expm, S),
    "linalg.expm_frechet": (lambda m: lambda x: m.linalg.expm_frechet(x, 2 * x)[1], S),
    "linalg.cho_solve": (lambda m: lambda x: m.linalg.cho_solve(m.linalg.cho_factor(x @ x.T), x[0]), S),
    "linalg.solve_triangular": (lambda m: lambda x: m.linalg.solve_triangular(x, x[0], lower=True), S),
    "linalg.lu": (lambda m: lambda x: m.linalg.lu(x)[2], S[[1, 0, 2]]),
    "linalg.toeplitz": (lambda m: lambda x: m.linalg.toeplitz(x[0], x[1]), S),
    "linalg.block_diag": (lambda m: lambda x: m.linalg.block_diag(x, x[0]), S),
    "signal.convolve": (lambda m: lambda x: m.signal.convolve(x, x[:4], mode="same"), X),
    "signal.correlate": (lambda m: lambda x: m.signal.correlate(x, x[:4]), X),
    "signal.convolve2d": (lambda m: lambda x: m.signal.convolve2d(x, x[:2, :3]), M),
    "signal.detrend": (lambda m: m.signal.detrend, X),
    "signal.welch": (lambda m: lambda x: m.signal.welch(x, nperseg=8)[1], X),
    "signal.csd": (lambda m: lambda x: abs(m.signal.csd(x, x[::-1], nperseg=8)[1]) ** 2, X),
    "signal.istft": (lambda m: lambda x: m.signal.istft(m.signal.stft(x, nperseg=8)[2] ** 2, nperseg=8)[1], X),
    "ndimage.map_coordinates": (
        lambda m: lambda x: m.ndimage.map_coordinates(x, x[:2] * 0 + 1.3 + x[:2] / 9, order=1, mode="reflect"),
        M,
    ),
}


@pytest.mark.each_backend
@pytest.mark.parametrize("name", CASES)
def test_the_derivative_is_that_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    for part in ("linalg", "ndimage", "signal"):
        importlib.import_module(f"jax.scipy.{part}")
    function, x = CASES[name]
    with jax.enable_x64(True):
        theirs = function(jax.scipy)
        expected = jax.grad(lambda x: jax.numpy.sum(jax.numpy.sin(theirs(x))))(jax.numpy.asarray(x))
    ours = function(tc.scipy)
    found = tc.grad(lambda x: tc.sum(tc.sin(ours(x))))(tc.asarray(x))
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=1e-8, atol=1e-9)
