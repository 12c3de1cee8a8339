"""How things print: the section "Printing" of the semantics."""

from __future__ import annotations

import warnings
from html import escape
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend
from tape_core.backends.texts import extent


def test_a_tensor() -> None:
    text = "Tensor(6.0, shape=(), dtype=float32, backend=numpy)"
    assert repr(tc.asarray(6.0)) == str(tc.asarray(6.0)) == f"{tc.asarray(6.0)}" == text
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v * v
    assert str(tape.gradient(y, v)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([3.0, 12.0, 27.0], "Tensor([ 3. 12. 27.], shape=(3,), dtype=float32, backend=numpy)"),
        (
            [[1, 2], [3, 4]],
            "Tensor([[1 2]\n [3 4]], shape=(2, 2), dtype=int64, backend=numpy)",
        ),
        (True, "Tensor(True, shape=(), dtype=bool, backend=numpy)"),
        (1 + 2j, "Tensor((1+2j), shape=(), dtype=complex64, backend=numpy)"),
        ([], "Tensor([], shape=(0,), dtype=float32, backend=numpy)"),
        (np.float64(0.1), "Tensor(0.1, shape=(), dtype=float64, backend=numpy)"),
    ],
    ids=["vector", "matrix", "bool", "complex", "empty", "float64"],
)
def test_other_tensors(value: object, text: str) -> None:
    assert repr(tc.asarray(value)) == text


def test_a_variable() -> None:
    v = tc.Variable([1.0, 2.0])
    assert repr(v) == "Variable([1. 2.], shape=(2,), dtype=float32, backend=numpy)"
    v = tc.Variable(20.0, name="w")
    assert str(v) == "Variable('w', 20.0, shape=(), dtype=float32, backend=numpy)"


def test_a_format_is_applied_to_the_value() -> None:
    assert f"{tc.asarray(3.14159):.2f}" == "3.14"
    assert f"{tc.Variable(7):04d}" == "0007"
    with pytest.raises(TypeError, match=r"'.2f' is for one number; this tensor has shape \(2,\): format its elements"):
        f"{tc.asarray([1.0, 2.0]):.2f}"


@pytest.mark.each_backend
def test_the_display_of_a_notebook_takes_any_array() -> None:
    for value in ([], 1.5, 1 + 2j, True, [[]], [1 + 1j] * 3000, [True] * 3000):
        x = tc.asarray(value)
        assert x._repr_html_() == f"<pre>{x!r}</pre>"
    for dtype in ("float16", "float32", "float64"):
        html = tc.zeros((2000, 2), dtype=dtype)._repr_html_()
        assert len(html) < 1000
        assert "minimum 0, mean 0, maximum 0" in html
    with warnings.catch_warnings(action="error"):
        html = tc.asarray([float("inf"), float("-inf")] * 1000)._repr_html_()
    assert "minimum -inf, mean nan, maximum inf" in html
    assert "&lt;b&gt;" in tc.Variable(1.0, name="<b>")._repr_html_()


def test_dtypes_and_slices() -> None:
    assert (str(tc.float32), repr(tc.bool)) == ("float32", "bool")
    slices = tc.IndexedSlices(tc.ones((1, 2)), tc.asarray([3]), (5, 2))
    assert repr(slices) == (
        "IndexedSlices(values=Tensor([[1. 1.]], shape=(1, 2), dtype=float32, backend=numpy), "
        "indices=Tensor([3], shape=(1,), dtype=int64, backend=numpy), dense_shape=(5, 2))"
    )


def test_printing_inside_a_tape_records_nothing() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = v * v
        n = len(tape._records)
        repr(v), str(y), f"{y[0]:.1f}"
    assert len(tape._records) == n + 1, "the indexing alone"


def test_a_repr_says_what_is_the_matter_where_there_are_no_values() -> None:
    kept: list[tc.Tensor] = []

    @tc.function
    def f(x: tc.Tensor) -> tc.Tensor:
        kept.append(x + 1)
        assert repr(kept[0]) == "Tensor(<another in each call>, shape=(3,), dtype=float32, backend=numpy)"
        return x

    x = tc.ones(3, backend="numpy")
    f(x)
    assert repr(kept[0]) == "Tensor(<of a call that is over>, shape=(3,), dtype=float32, backend=numpy)"
    tc.function(lambda x: x + 1, donate="x")(x)
    assert repr(x) == "<Tensor: this Tensor, of shape (3,), was donated to <lambda>: use what that returned>"
    for thing in (kept[0], x):
        with pytest.raises((TypeError, RuntimeError)):
            str(thing)
        assert thing._repr_html_() == f"<pre>{escape(repr(thing))}</pre>"


HALF_MADE = [
    tc.Tensor, tc.Variable, tc.IndexedSlices, tc.GradientTape, tc.ForwardAccumulator, tc.Sparsity, tc.random.Generator,
    type(tc.function(lambda: None)),
]  # fmt: skip


@pytest.mark.parametrize("kind", HALF_MADE, ids=lambda kind: kind.__name__)
def test_a_debugger_can_show_an_object_that_is_being_made(kind: type) -> None:
    thing = kind.__new__(kind)
    assert repr(thing) == f"<{kind.__name__} that is not initialised>"
    if hasattr(kind, "_repr_html_"):
        assert "that is not initialised" in thing._repr_html_()


class Elsewhere(ArrayAPIBackend):
    """NumPy on a device from which little may be fetched."""

    def device(self, array: Any) -> str:
        return "far:0"

    def numpy(self, array: Any) -> Any:
        assert array.size < 2500
        return np.asarray(array)


@pytest.mark.parametrize("shape", [(3,), (1001,), (2000, 3), (7, 400), (6, 8, 7, 9), (1000, 1000), (2, 10_000), (0, 5)])
def test_only_what_is_shown_of_a_large_array_leaves_its_device(shape: tuple[int, ...]) -> None:
    backend = Elsewhere("elsewhere", np)
    array = np.random.default_rng(0).standard_normal(shape).astype("float32")
    assert backend.format(array) == str(array)
    with np.printoptions(edgeitems=2, precision=3):
        assert backend.format(array) == str(array)
    if array.size > 1000:
        found = extent(backend, array)
        assert found == pytest.approx((array.min(), array.mean(), array.max()), abs=1e-6)
        assert extent(backend, array.astype("float16")) == pytest.approx(found, abs=1e-2)


def test_slices_in_notebooks() -> None:
    slices = tc.IndexedSlices(tc.ones((1, 2)), tc.asarray([3]), (5, 2))
    assert slices._repr_html_().startswith("<p>IndexedSlices: 1 row of an array of shape (5, 2)</p><pre>indices = ")
