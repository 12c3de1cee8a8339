"""Corners where PyTorch's functions differ from the standard, or from NumPy where the standard leaves it open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import torch
from torch.utils._python_dispatch import TorchDispatchMode

WIDE = ("uint16", "uint32", "uint64")


@pytest.fixture(autouse=True)
def _on_torch() -> Iterator[None]:
    with tc.use_backend("torch"):
        yield


def both(function: Any, *arrays: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Return the result on PyTorch and that on NumPy."""
    found = function(*[tc.asarray(a, backend="torch") if isinstance(a, np.ndarray) else a for a in arrays], **kwargs)
    own = [tc.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays]
    with np.errstate(all="ignore"), tc.use_backend("numpy"):
        return found, function(*own, **kwargs)


def agree_in_sums(function: Any, *arrays: Any) -> None:
    """Check like `agree`, up to rounding: the two libraries add in different orders."""
    found, expected = both(function, *arrays)
    magnitude = function(*(tc.asarray(np.abs(a), backend="numpy") for a in arrays))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    tc.testing.assert_close(found, expected, magnitude=magnitude)


def agree(function: Any, *arrays: Any, **kwargs: Any) -> None:
    found, expected = both(function, *arrays, **kwargs)
    for a, b in zip(*([r] if isinstance(r, tc.Tensor) else r for r in (found, expected)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(
            a.numpy(), b.numpy(), rtol={"float16": 1e-3, "float32": 1e-6}.get(a.dtype.name, 1e-12)
        )


NAMES = ("bool", "int8", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "complex64")


@pytest.mark.parametrize("other", NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_promotion_is_numpys_whatever_the_dimensions(name: Any, other: Any) -> None:
    for shape in ((2,), ()):
        agree(tc.add, np.ones(shape, name), np.ones((2,), other))
        agree(tc.where, np.asarray([True, False]), np.ones(shape, name), np.ones((2,), other))


@pytest.mark.parametrize("scalar", [True, 2, 0.5, 1j])
@pytest.mark.parametrize("name", NAMES)
def test_python_scalars_are_weak(name: Any, scalar: Any) -> None:
    x = np.asarray([1, 0, 1], name)
    agree(tc.multiply, x, scalar)
    agree(tc.add, scalar, x)
    agree(tc.equal, scalar, x)


@pytest.mark.parametrize("name", NAMES[:8])
def test_integers_in_functions_of_real_numbers(name: Any) -> None:
    x = np.asarray([1, 1], name)
    agree(tc.exp, x)
    agree(tc.divide, x, x)
    agree(tc.mean, x)
    agree(tc.var, x)
    agree(tc.sum, x)
    agree(tc.cumulative_prod, x)


@pytest.mark.parametrize("columns", [1, 2, 10, 16])
def test_products_of_large_matrices_with_few_columns(columns: int) -> None:
    rng = np.random.default_rng(columns)
    x, w = rng.standard_normal((300, 64)), rng.standard_normal((64, columns))
    agree_in_sums(tc.matmul, x, w)
    agree_in_sums(lambda x, w: tc.matmul(x.mT, x) @ w, x, w)
    agree_in_sums(lambda x, g: tc.matmul(x.mT, g), x, rng.standard_normal((300, columns)))
    agree_in_sums(tc.matmul, np.stack([x, -x]), w)
    product = tc.asarray(x, backend="torch") @ tc.asarray(w, backend="torch")
    assert product.array.is_contiguous()  # else later kernels would be slower


@pytest.mark.parametrize("name", WIDE)
def test_unsigned_integers_of_more_than_8_bits(name: Any) -> None:
    top = np.iinfo(name).max
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.integers(0, top, 6, name, endpoint=True), np.asarray([top, 0, 1, 7], name)])
    y = np.asarray([3, top, top // 2 + 1, 1, top - 1, 7, top, 5, top, 2], name)
    for f in (tc.add, tc.subtract, tc.multiply, tc.floor_divide, tc.remainder, tc.less, tc.greater_equal, tc.maximum):
        agree(f, x, y)
    for f in (tc.bitwise_invert, tc.square, tc.sign, tc.abs, tc.max, tc.argmin, tc.sort, tc.flip, tc.sum, tc.nonzero):
        agree(f, x)
    shifts = np.asarray([0, 1, 15, 3, 8] * 2, name)
    agree(tc.bitwise_right_shift, x, shifts)
    agree(tc.bitwise_left_shift, x, shifts)
    agree(tc.pow, np.asarray([3, 2, 0], name), np.asarray([5, 4, 0], name))
    agree(tc.clip, x, np.asarray(3, name), np.asarray(top - 1, name))
    agree(tc.searchsorted, np.sort(x), y)
    agree(tc.isin, x, y)
    agree(tc.matmul, x, y)
    agree(tc.unique_all, np.asarray([3, 1, 3, top], name))
    agree(tc.tril, np.reshape(x[:9], (3, 3)), k=-1)
    agree(tc.multiply, x, 2)
    agree(tc.arange, 3, 7, dtype=name)


def test_large_integers_are_compared_with_floats_as_they_are() -> None:
    x = tc.asarray([2**24 + 1])
    assert not (x < 2.0**24 + 0.5).item()
    assert (tc.asarray(2.0**24 + 0.5, dtype="float64") < x).item()


def test_complex_elements_of_a_set() -> None:
    x, y = np.asarray([1j, 2.0, 1j, 3]), np.asarray([[1j], [3]])
    agree(tc.isin, x, y)
    agree(tc.isin, x, y, invert=True)
    assert tc.unique_counts(tc.asarray(x, backend="torch")).counts.tolist() == [2, 1, 1]


def test_nan_among_values() -> None:
    x = np.asarray([1.0, np.nan, -0.0, np.nan, 1.0])
    values, indices, inverse, counts = tc.unique_all(tc.asarray(x, backend="torch"))
    assert counts.tolist() == [1, 2, 1, 1]
    assert indices.tolist() == [2, 0, 1, 3]
    np.testing.assert_array_equal(tc.take(values, inverse).numpy(), x)
    for f in (tc.sign, tc.max, tc.argmax, tc.sort):
        agree(f, x)
    agree(tc.clip, x, float("nan"), 1.0)
    agree(tc.maximum, x, float("nan"))
    agree(tc.minimum, float("nan"), x)


def test_a_remainder_has_the_sign_of_the_divisor() -> None:
    found = tc.remainder(tc.asarray([1.0, -1.0, 0.0]), tc.asarray([-1.0, 1.0, -2.0]))
    assert tc.signbit(found).tolist() == [True, False, True]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, (), 0, -1, (0, 2)])
def test_reductions_over_axes(axis: Any, keepdims: Any) -> None:
    x = np.linspace(-1, 2, 12).reshape(2, 3, 2)
    for f in (tc.sum, tc.prod, tc.mean, tc.max, tc.min, tc.any, tc.all, tc.count_nonzero, tc.var, tc.std):
        agree(f, x, axis=axis, keepdims=keepdims)
    if not isinstance(axis, tuple):
        agree(tc.argmax, x, axis=axis, keepdims=keepdims)
    if axis != ():  # NumPy warns
        agree(tc.var, x, axis=axis, keepdims=keepdims, correction=1.5)


def test_what_pytorch_passes_over() -> None:
    with pytest.raises(ValueError, match="as many dimensions"):
        tc.concat([tc.ones((2, 3)), tc.zeros(0)])
    with pytest.raises(ValueError, match="the length 3, not 1"):
        tc.squeeze(tc.ones((2, 3)), axis=1)
    with pytest.raises(ValueError, match="axis -1 has the lengths 3 and 1"):
        tc.vecdot(tc.ones(3), tc.ones(1))


def test_stacks_of_matrices_are_not_stacks_of_vectors() -> None:
    a = np.random.default_rng(1).normal(size=(3, 3, 3))
    agree(tc.linalg.solve, a, np.ones((3, 3)))


def test_a_tolerance_for_each_matrix() -> None:
    x = tc.asarray([[[1.0, 0.0], [0.0, 0.1]]] * 2)
    tolerances = tc.asarray([0.5, 0.01])
    assert tc.linalg.matrix_rank(x, rtol=tolerances).tolist() == [1, 2]
    np.testing.assert_allclose(tc.linalg.pinv(x, rtol=tolerances).numpy()[:, 1, 1], [0.0, 10.0], rtol=1e-6)


def test_sequences_with_scalars_and_of_mixed_dtypes() -> None:
    x = tc.ones((), dtype="float64")
    assert tc.stack([x, 2.0]).dtype is tc.float64
    assert tc.concat([tc.ones(2, dtype="int64"), tc.ones(1)]).dtype is tc.float32


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_stays(name: Any) -> None:
    x = tc.asarray([1.0, 2.0], dtype=name)
    for y in (x + 1.5, x / 3, tc.sum(x), tc.exp(x), tc.maximum(x, 0.0), tc.where(x > 1, x, 0.0), x @ x, tc.mean(x)):
        assert y.dtype.name == name
    assert (x * 1j).dtype is tc.complex64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_integers_have_products_on_cuda() -> None:
    with tc.use_backend("torch:cuda"):
        x, y = tc.reshape(tc.arange(6), (2, 3)), tc.reshape(tc.arange(12), (3, 4))
        assert (x @ y).tolist() == (x.numpy() @ y.numpy()).tolist()
        assert (x @ y[:, 0]).tolist() == (x.numpy() @ y.numpy()[:, 0]).tolist()


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_are_indexed_like_others(dtype: str) -> None:
    x, rows = tc.asarray([0, 1, 2, 3], dtype=dtype, backend="torch"), tc.asarray([2, 0, 2], backend="torch")
    assert x[::-1].tolist() == [3, 2, 1, 0]
    assert tc.take_along_axis(x, rows).tolist() == x[rows].tolist() == tc.take(x, rows, axis=0).tolist() == [2, 0, 2]
    assert tc.top_k(x, 2).values.tolist() == [3, 2]
    assert tc.at(x)[rows].add(tc.asarray([1, 1, 5], dtype=dtype, backend="torch")).tolist() == [1, 1, 8, 3]
    x[::-1] = x
    assert x.tolist() == [3, 2, 1, 0]
    assert x.dtype.name == dtype


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call, misc]
    """Calls all as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3)])
@pytest.mark.parametrize("rtol", [None, 1e-3])
def test_the_pseudoinverse_of_complex_matrices_is_right_while_a_mode_is_active(shape, rtol) -> None:
    """PyTorch's own is wrong then, and processes compare what compiled functions send in such a mode."""
    real, imaginary = np.random.default_rng(0).standard_normal((2, *shape))
    a = real + 1j * imaginary
    a[..., -1, :] = a[..., 0, :]
    x = tc.asarray(a, backend="torch")
    with Watching():  # type: ignore[no-untyped-call]
        found = tc.linalg.pinv(x, rtol=rtol)
    np.testing.assert_allclose(
        found.numpy(), np.linalg.pinv(a, rtol=1e-10 if rtol is None else rtol), rtol=1e-10, atol=1e-12
    )
