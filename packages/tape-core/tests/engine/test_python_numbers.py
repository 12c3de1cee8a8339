"""Python's numbers are weak in every function: they take the dtype of the Tensors beside them, or else the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from support import STRICT

F = tc.asarray([1.0, 2.0])
M = tc.asarray([True, False])
I = tc.asarray([1, 2])  # noqa: E741
H = tc.asarray([1.0, 2.0], dtype="float16")
D = tc.asarray([1.0, 2.0], dtype="float64")
C = tc.asarray([1.0j, 2.0])

CASES: list[tuple[str, Callable[[], Any], str]] = [
    ("where(m, 1., 2.)", lambda: tc.where(M, 1.0, 2.0), "float32"),
    ("where(m, 1, 2.)", lambda: tc.where(M, 1, 2.0), "float32"),
    ("where(m, True, 2.)", lambda: tc.where(M, True, 2.0), "float32"),
    ("where(m, 1, 2)", lambda: tc.where(M, 1, 2), "int64"),
    ("where(m, True, False)", lambda: tc.where(M, True, False), "bool"),
    ("where(m, 1j, 2)", lambda: tc.where(M, 1j, 2), "complex64"),
    ("where(m, f, 2.)", lambda: tc.where(M, F, 2.0), "float32"),
    ("where(m, 2., f)", lambda: tc.where(M, 2.0, F), "float32"),
    ("where(m, 2., h)", lambda: tc.where(M, 2.0, H), "float16"),
    ("where(m, 1., d)", lambda: tc.where(M, 1.0, D), "float64"),
    ("where(m, 2j, f)", lambda: tc.where(M, 2j, F), "complex64"),
    ("stack([1., f])", lambda: tc.stack([1.0, F[0]]), "float32"),
    ("stack([f, 1])", lambda: tc.stack([F[0], 1]), "float32"),
    ("stack([1., h])", lambda: tc.stack([1.0, H[0]]), "float16"),
    ("stack([1., d])", lambda: tc.stack([1.0, D[0]]), "float64"),
    ("stack([1j, f])", lambda: tc.stack([1j, F[0]]), "complex64"),
    ("stack([1., i])", lambda: tc.stack([1.0, I[0]]), "float32"),
    ("stack([1., 2.])", lambda: tc.stack([1.0, 2.0]), "float32"),
    ("stack([1, 2.])", lambda: tc.stack([1, 2.0]), "float32"),
    ("asarray([1., f])", lambda: tc.asarray([1.0, F[0]]), "float32"),
    ("asarray([[1., h], [2., 3.]])", lambda: tc.asarray([[1.0, H[0]], [2.0, 3.0]]), "float16"),
    ("concat([f, 1.])", lambda: tc.concat([F, 1.0], axis=None), "float32"),
    ("clip(f, 0., 1.)", lambda: tc.clip(F, 0.0, 1.0), "float32"),
    ("clip(1., f, 2.)", lambda: tc.clip(1.0, F, 2.0), "float32"),
    ("clip(1., None, h)", lambda: tc.clip(1.0, None, H), "float16"),
    ("maximum(1., f)", lambda: tc.maximum(1.0, F), "float32"),
    ("hypot(f, 1.)", lambda: tc.hypot(F, 1.0), "float32"),
    ("einsum(2., f)", lambda: tc.einsum(",i->i", 2.0, F), "float32"),
    ("linspace(0., f)", lambda: tc.linspace(0.0, F, 3), "float32"),
    ("interp(1.5, f, f)", lambda: tc.interp(1.5, F, F), "float32"),
    ("broadcast_arrays(f, 1.)", lambda: tc.broadcast_arrays(F, 1.0)[1], "float32"),
    ("meshgrid(f, 1.)", lambda: tc.meshgrid(F, 1.0)[1], "float32"),
    ("full(2, 1.)", lambda: tc.full(2, 1.0), "float32"),
]


@pytest.mark.parametrize(("function", "dtype"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_python_number_takes_the_dtype_of_what_is_beside_it(function: Any, dtype: str) -> None:
    assert function().dtype.name == dtype
    assert tc.function(function)().dtype.name == dtype


def test_numbers_among_others_are_weak_for_each_example_and_in_derivatives() -> None:
    found = tc.vmap(lambda x: (tc.where(x > 1, 1.0, 2.0), tc.stack([1.0, x, 3.0]), tc.clip(1.5, x, 3.0)))(F)
    assert [f.dtype.name for f in found] == ["float32"] * 3
    assert [f.tolist() for f in found] == [[2.0, 1.0], [[1.0, 1.0, 3.0], [1.0, 2.0, 3.0]], [1.5, 2.0]]
    grad = tc.grad(lambda x: tc.sum(tc.stack([1.0, x, x * x]) * tc.where(tc.stack([x, x, x]) > 1, 2.0, 3.0)))
    assert grad(2.0).item() == 10.0
    assert tc.jvp(lambda x: tc.stack([1.0, x]), (2.0,), (1.0,))[1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("transform", [tc.grad, tc.value_and_grad, tc.jacrev, tc.hessian])
def test_a_complex_result_of_a_real_argument_has_no_gradient(transform: Any) -> None:
    for f in (lambda x: x * 1j, lambda x: tc.exp(1j * x)):
        with pytest.raises(TypeError, match=r"the result of the function is complex .*, an argument is real"):
            transform(f)(1.0)
    assert transform(lambda x: tc.real(tc.exp(1j * x)))(0.5) is not None


def test_the_derivative_of_a_complex_result_goes_forward_and_that_of_complex_arguments_both_ways() -> None:
    assert tc.jacfwd(lambda x: x * 1j)(1.0).item() == 1j
    assert tc.jvp(lambda x: x * 1j, (1.0,), (2.0,))[1].item() == 2j
    assert tc.grad(lambda z: z * z)(1 + 2j).item() == 2 - 4j


def test_limits_of_integers_are_those_of_the_backend() -> None:
    """A dtype of array-api-strict has the hash of NumPy's, and warns when it is compared with it."""
    for backend in ("numpy", STRICT):
        x = tc.asarray([1.0, 2.0], dtype="float64", backend=backend)
        assert (x - 300).tolist() == [-299.0, -298.0]
