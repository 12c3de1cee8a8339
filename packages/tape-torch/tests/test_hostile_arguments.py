"""Senseless arguments on PyTorch, found by the fuzzer of hostile calls: errors instead of crashes."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import torch


@pytest.fixture(autouse=True)
def torch_backend() -> Any:
    with tc.use_backend("torch"):
        yield


@pytest.mark.parametrize("dtype", ["complex128", "float64", "int16"])
def test_elements_at_odd_addresses_are_copied(dtype: str) -> None:
    memory = np.zeros(16 * 101, np.uint8)
    x = memory[1 : 1 + 100 * np.dtype(dtype).itemsize].view(dtype)
    x[...] = np.arange(100)
    tensor = tc.asarray(x, backend="torch")
    assert tensor.array.data_ptr() % x.itemsize == 0
    assert float(tc.sum(tc.real(tensor) if x.dtype.kind == "c" else tensor)) == 4950


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_a_kernel_that_falls_back_is_exported_with_what_it_falls_back_to(dtype: str, tmp_path: Path) -> None:
    x = tc.asarray([0.5, 2.0], dtype=dtype)
    f = tc.function(lambda x: tc.i1e(x))
    expected = f(x).numpy()
    f.export(tmp_path / "alone.py")
    alone: Any = next(v for k, v in runpy.run_path(str(tmp_path / "alone.py")).items() if k.startswith("_lambda"))
    assert alone(x.array)[0].numpy().tobytes() == expected.tobytes()


def test_parameters_of_numpy_are_exported(tmp_path: Path) -> None:
    mask = np.asarray([True, False])
    f = tc.function(lambda x: tc.var(tc.at(x)[mask].multiply(2.0), axis=np.int64(1)))
    x = tc.asarray([[1.0, 2.0], [3.0, 5.0]])
    expected = f(x).numpy()
    f.export(tmp_path / "alone.py")
    alone: Any = next(v for k, v in runpy.run_path(str(tmp_path / "alone.py")).items() if k.startswith("_lambda"))
    np.testing.assert_array_equal(alone(x.array)[0].numpy(), expected)


def test_errors_of_pytorch_are_errors_of_values_and_types() -> None:
    with pytest.raises(ValueError, match="arange"):
        tc.arange(float("nan"), 5.0)
    with pytest.raises(TypeError, match="DType"):
        tc.asarray(tc.float32)
    x = tc.ones(3)
    with pytest.raises(TypeError, match="'str'"):
        tc.interp(x, x, x, "", 2.0)
    with pytest.raises(ValueError, match="two dimensions"):
        tc.matrix_transpose(tc.sum(x))
    with pytest.raises(TypeError, match="Python value"):
        tc.sum(x, axis=tc.asarray(0.5))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_eigenvalues_of_what_is_not_finite_are_refused(dtype: Any, bad: float) -> None:
    for x in (torch.full((3, 3), bad, dtype=dtype), torch.full((2, 1, 1), bad, dtype=dtype)):
        with pytest.raises(ValueError, match="NaN"):
            tc.linalg.eigvals(tc.asarray(x))
        with pytest.raises(ValueError, match="NaN"):
            tc.linalg.eig(tc.asarray(x))
