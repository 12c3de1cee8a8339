"""Other libraries name dtypes by NumPy's, whatever the backend of the array."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc


@pytest.mark.each_backend
@pytest.mark.parametrize("dtype", [np.int64, np.dtype("int64")], ids=["a type", "a dtype"])
def test_a_dtype_of_numpys_is_that_of_the_same_name(dtype: object) -> None:
    x = tc.asarray([1.0, 2.0], backend="torch")
    assert tc.astype(x, dtype).dtype is tc.int64
    assert tc.zeros((2,), dtype=dtype, backend="torch").dtype is tc.int64


@pytest.mark.each_backend
def test_a_dtype_that_is_none_of_tapes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"numpy\.datetime64.* is not a dtype of backend 'torch'"):
        tc.astype(tc.asarray([1.0], backend="torch"), np.datetime64)
