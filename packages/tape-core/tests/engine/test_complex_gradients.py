"""Gradients of complex values: conj(f'(z)), as in TensorFlow and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

Z = 1 + 2j
F = Callable[[Any], Any]


def gradient(f: F, z: Any, dtype: str | None = None, seed: Any = None) -> Any:
    x = tc.asarray(z, dtype=dtype)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, output_gradients=seed)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda z: z * z, 2 - 4j),
        (lambda z: tc.real(z * z), 2 - 4j),
        (tc.abs, Z / abs(Z)),
        (tc.exp, np.conj(np.exp(Z))),
        (tc.real, 1),
        (tc.imag, 1j),
        (tc.conj, 1),
        (lambda z: z**3, np.conj(3 * Z**2)),
        (lambda z: 1 / z, np.conj(-1 / Z**2)),
        (lambda z: 3j * z, -3j),
        (lambda z: z * tc.conj(z), 2 * Z),
        (tc.log, np.conj(1 / Z)),
        (tc.sqrt, np.conj(0.5 / np.sqrt(Z))),
        (lambda z: tc.real(z) * tc.imag(z), 2 + 1j),
        (lambda z: tc.atan2(tc.imag(z), tc.real(z)), 1j * Z / abs(Z) ** 2),
    ],
    ids=[
        "z*z", "real(z*z)", "abs", "exp", "real", "imag", "conj", "z**3", "1/z", "3jz", "z conj z",
        "log", "sqrt", "re*im", "angle",
    ],
)  # fmt: skip
def test_known_gradients(f: F, expected: complex) -> None:
    g = gradient(f, Z, "complex128")
    assert g.dtype is tc.complex128
    assert g.item() == pytest.approx(complex(expected), rel=1e-12)


def test_the_gradient_of_complex64_is_complex64() -> None:
    g = gradient(tc.abs, Z)
    assert g.dtype is tc.complex64
    assert g.item() == pytest.approx(0.4472136 + 0.8944272j, rel=1e-6)


def test_abs_at_0() -> None:
    assert gradient(tc.abs, 0j).item() == 0


def test_a_complex_target_may_have_a_seed() -> None:
    g = gradient(lambda z: z * z, Z, "complex128", seed=1j)
    assert g.item() == 1j * (2 - 4j)


@pytest.mark.parametrize(
    "f", [tc.fft.rfft, lambda x: tc.linalg.eigvals(tc.reshape(x, (2, 2)))], ids=["rfft", "eigvals"]
)
def test_a_seed_of_a_real_source_where_the_only_op_makes_complex_of_real(f: F) -> None:
    x = tc.asarray([1.0, -3.0, 2.0, 0.5], dtype="float64")
    seed = tc.asarray([1 + 2j, -1j, 3.0][: f(x).shape[0]], dtype="complex128")
    expected = gradient(lambda x: tc.sum(tc.real(tc.conj(seed) * f(x))), x)
    tc.testing.assert_close(gradient(f, x, seed=seed).numpy(), expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: tc.real(x * 2j * 1j), -2.0),
        (lambda x: tc.real(tc.asarray([2j]) * x * 1j), -2.0),
        (lambda x: tc.real(tc.astype(x, "complex64") * -2), -2.0),
        (lambda x: tc.real((x * 1j) ** 2), -6.0),
        (lambda x: x * 1j, 0.0),
    ],
    ids=["scalars", "array", "cast", "power", "imaginary"],
)
def test_a_real_source_of_a_complex_computation_has_a_real_gradient(f: F, expected: float) -> None:
    g = gradient(f, [3.0])
    assert g.dtype is tc.float32
    assert g.tolist() == [expected]


@pytest.mark.parametrize(
    "enter",
    [
        lambda x, c: x * c,
        lambda x, c: c * x,
        lambda x, c: tc.vecdot(c, x),
        lambda x, c: tc.vecdot(x, c),
        lambda x, c: tc.matmul(x, c),
        lambda x, c: tc.tensordot(x, c, axes=1),
        lambda x, c: tc.concat([x, c]),
        lambda x, c: tc.stack([x, c]),
        lambda x, c: tc.where(tc.asarray([True, False, True]), x, c),
        lambda x, c: tc.outer(x, c),
        lambda x, c: x + c,
        lambda x, c: x / c,
        lambda x, c: c**x,
        lambda x, c: tc.astype(x, "complex128") * c,
        lambda x, c: x * (2 - 1j),
        lambda x, c: (2 - 1j) ** x,
    ],
    ids=[
        "multiply", "reflected", "vecdot1", "vecdot2", "matmul", "tensordot", "concat", "stack",
        "where", "outer", "add", "divide", "power", "astype", "scalar", "scalar power",
    ],
)  # fmt: skip
def test_wherever_complex_values_come_in_the_rest_is_conjugated(enter: Any) -> None:
    """A real source meets a complex constant; what follows has a complex derivative."""
    x = np.asarray([0.3, -0.5, 0.8])
    c = tc.asarray([1 + 2j, -0.5j, 0.2 - 1j], dtype="complex128")

    def loss(x: Any) -> Any:
        z = enter(x, c)
        return tc.sum(tc.abs(tc.exp(z) * tc.sin(z)))

    found = gradient(loss, x)
    assert found.dtype is tc.float64
    for k in range(3):
        step = np.zeros(3)
        step[k] = 1e-6
        up, down = loss(tc.asarray(x + step)).item(), loss(tc.asarray(x - step)).item()
        assert found[k].item() == pytest.approx((up - down) / 2e-6, rel=1e-6, abs=1e-8)


def test_second_order_of_a_cube() -> None:
    z = tc.asarray(Z, dtype="complex128")
    with tc.GradientTape() as outer:
        outer.watch(z)
        with tc.GradientTape() as inner:
            inner.watch(z)
            y = z * z * z
        g = inner.gradient(y, z)
    assert g.item() == np.conj(3 * Z**2)
    # The sum of real and imaginary part is what `gradient` of a complex target starts from.
    assert outer.gradient(g, z).item() == pytest.approx(np.conj(6 * Z))


def test_fft_like_loss_agrees_with_differences_in_both_parts() -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3))
    x = rng.standard_normal(3) + 1j * rng.standard_normal(3)

    def loss(x: Any) -> Any:
        return tc.sum(tc.abs(tc.asarray(w) @ x) ** 2 + tc.real(tc.tanh(x)))

    found = gradient(loss, x).numpy()
    for k in range(3):
        for direction in (1, 1j):
            step = np.zeros(3, complex)
            step[k] = 1e-6 * direction
            up, down = loss(tc.asarray(x + step)).item(), loss(tc.asarray(x - step)).item()
            expected = (up - down) / 2e-6
            part = found[k].real if direction == 1 else found[k].imag
            assert part == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_a_complex_number_on_the_left_of_a_0d_tensor_makes_a_tensor() -> None:
    # 1j * np.float64(2) is a Python complex, for np.float64 is a float.
    x = tc.Variable(2.0, dtype="float64")
    with tc.GradientTape() as tape:
        y = 1j * x
        z = tc.real(y * (1j - x))
    assert y.dtype is tc.complex128
    assert y.shape == ()
    assert z.item() == -2.0
    assert tape.gradient(z, x).item() == -1.0
