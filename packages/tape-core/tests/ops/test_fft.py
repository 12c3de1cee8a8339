"""Fourier transforms: NumPy's values, round trips, gradients that are known. (Derivatives: see test_ops.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_agrees

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)
NORMS = st.sampled_from(["backward", "ortho", "forward"])
LENGTHS = st.integers(1, 6)


def spectrum(data: st.DataObject, shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        *((name, ("complex64", "complex128")) for name in ("fft", "ifft", "irfft", "hfft")),
        *((name, ("float32", "float64")) for name in ("rfft", "ihfft")),
    ],
)
@FAST
@given(data=st.data(), rows=LENGTHS, columns=st.integers(2, 6), norm=NORMS)
def test_one_axis(name: str, dtypes: tuple[str, ...], data: st.DataObject, rows: int, columns: int, norm: Any) -> None:
    axis = data.draw(st.sampled_from([0, 1, -1, -2]))
    n = data.draw(st.one_of(st.none() if (rows, columns)[axis] > 1 else st.nothing(), LENGTHS))
    x = spectrum(data, (rows, columns), data.draw(st.sampled_from(dtypes)))
    before = x.copy()
    expected = getattr(np.fft, name)(x, n=n, axis=axis, norm=norm)
    assert_agrees(getattr(tc.fft, name)(tc.asarray(x), n=n, axis=axis, norm=norm), expected)
    assert np.array_equal(x, before), "the input was changed"


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        *((name, ("complex64", "complex128")) for name in ("fftn", "ifftn", "irfftn")),
        ("rfftn", ("float32", "float64")),
    ],
)
@FAST
@given(data=st.data(), norm=NORMS)
def test_several_axes(name: str, dtypes: tuple[str, ...], data: st.DataObject, norm: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(2, 4), min_size=2, max_size=3)))
    axes = data.draw(st.one_of(st.none(), st.permutations(range(len(shape))).map(lambda order: tuple(order[:2]))))
    s = None if axes is None else data.draw(st.one_of(st.none(), st.tuples(LENGTHS, LENGTHS)))
    x = spectrum(data, shape, data.draw(st.sampled_from(dtypes)))
    expected = getattr(np.fft, name)(x, s=s, axes=axes, norm=norm)
    assert_agrees(getattr(tc.fft, name)(tc.asarray(x), s=s, axes=axes, norm=norm), expected)


@FAST
@given(n=st.integers(1, 9), d=st.floats(0.25, 4))
def test_frequencies(n: int, d: float) -> None:
    assert_agrees(tc.fft.fftfreq(n, d=d, dtype="float64"), np.fft.fftfreq(n, d))
    assert_agrees(tc.fft.rfftfreq(n, d=d, dtype="float64"), np.fft.rfftfreq(n, d))
    assert tc.fft.fftfreq(n).dtype is tc.float32
    x = tc.fft.fftfreq(n, d=d, dtype="float64")
    assert_agrees(tc.fft.fftshift(x), np.fft.fftshift(x.numpy()))
    assert_agrees(tc.fft.ifftshift(tc.fft.fftshift(x)), x.numpy())


def test_the_gradient_of_the_power_spectrum_is_parsevals() -> None:
    """sum |fft(x)|**2 is n * sum x**2."""
    x = tc.asarray([1.0, -2.0, 0.5, 3.0, 0.0], dtype="float64")
    with tc.GradientTape() as tape:
        tape.watch(x)
        power = tc.sum(tc.abs(tc.fft.fft(x)) ** 2)
    gradient = tape.gradient(power, x)
    assert gradient.dtype is tc.float64, "a real input has a real gradient"
    tc.testing.assert_close(gradient.numpy(), 2 * 5 * x.numpy(), rtol=1e-12)


def test_a_shift_in_time_is_found_by_gradient() -> None:
    """What the extension is for in an autodiff library: fit a delay through the spectrum."""
    signal = tc.exp(-((tc.arange(32, dtype="float64") - 12) ** 2) / 4)
    target = tc.exp(-((tc.arange(32, dtype="float64") - 13.5) ** 2) / 4)
    frequencies = tc.fft.rfftfreq(32, dtype="float64")
    delay = tc.Variable(1.0, dtype="float64")
    for _ in range(40):
        with tc.GradientTape() as tape:
            moved = tc.fft.irfft(tc.fft.rfft(signal) * tc.exp(-2j * tc.pi * frequencies * delay), n=32)
            loss = tc.sum((moved - target) ** 2)
        delay.assign_sub(0.3 * tape.gradient(loss, delay))
    assert delay.item() == pytest.approx(1.5, abs=1e-3)


def test_a_real_transform_refuses_a_complex_array() -> None:
    with pytest.raises(TypeError, match=r"rfft\(x: complex128\[3\]"):
        tc.fft.rfft(tc.asarray([1j, 2.0, 3.0], dtype="complex128"))
