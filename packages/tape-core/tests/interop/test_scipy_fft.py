"""The cosine and sine transforms of `scipy.fft` take Tensors: values are SciPy's, and derivatives hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import run_python

fft = pytest.importorskip("scipy.fft")

X = np.random.default_rng(0).normal(size=(3, 5))
NAMES = ["dct", "idct", "dst", "idst"]


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_each_transform_gives_what_scipy_gives(name: str, kind: int) -> None:
    call: Any = getattr(fft, name)
    for norm in (None, "backward", "ortho", "forward"):
        for options in ({}, {"n": 4, "axis": 0}, {"n": 2}, {"orthogonalize": True}, {"orthogonalize": False}):
            found, expected = (call(x, kind, norm=norm, **options) for x in (tc.asarray(X), X))
            assert isinstance(found, tc.Tensor)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-13)
    tc.testing.check_grads(lambda x: call(x, kind, norm="ortho"), [tc.asarray(X)])


@pytest.mark.parametrize("name", [f"{name}n" for name in NAMES])
@pytest.mark.parametrize(
    "options", [{}, {"axes": 0}, {"axes": (1, 0), "s": (6, 2)}, {"s": (4,)}, {"type": 3, "norm": "ortho"}]
)
def test_transforms_of_several_axes(name: str, options: dict[str, Any]) -> None:
    call: Any = getattr(fft, name)
    np.testing.assert_allclose(call(tc.asarray(X), **options).numpy(), call(X, **options), rtol=1e-12, atol=1e-13)


def test_dtypes_and_complex_numbers() -> None:
    for x in (X.astype("float32"), X + 2j * X, np.arange(4)):
        found, expected = fft.dct(tc.asarray(x)), fft.dct(x)
        assert str(found.dtype) == str(expected.dtype)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_an_inverse_gives_back_what_was_transformed_in_a_compiled_function() -> None:
    back = tc.function(lambda x: fft.idct(fft.dct(x, norm="ortho"), norm="ortho"))
    x = tc.asarray(X)
    for _ in range(2):
        np.testing.assert_allclose(back(x).numpy(), X, rtol=1e-12)


def test_wrong_arguments() -> None:
    x = tc.asarray(X)
    with pytest.raises(ValueError, match="type of a transform must be 1, 2, 3 or 4; got 5"):
        fft.dct(x, 5)
    with pytest.raises(ValueError, match="norm must be 'backward'"):
        fft.dct(x, norm="other")
    with pytest.raises(ValueError, match="at least 2 elements; got 1"):
        fft.dct(x[:, :1], 1)


@pytest.mark.parametrize("imports", ["import scipy.fft, tape_core as tc", "import tape_core as tc; import scipy.fft"])
def test_either_may_be_imported_first(imports: str) -> None:
    program = f"{imports}; print(type(scipy.fft.dct(tc.ones(3))).__name__, type(scipy.fft.dct([1.0, 2.0])).__name__)"
    assert run_python("-c", program) == "Tensor ndarray\n"
