"""Making Tensors: asarray, creation functions, default dtypes, and NumPy arrays as operands."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
    with tc.use_backend("numpy"):
        yield
    tc.set_default_dtype(None)


# -- dtypes


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, "float32"), (1, "int64"), (True, "bool"), (1j, "complex64"), ([1.0, 2], "float32"), ([], "float32"),
        ([[1, 2]], "int64"), ([True], "bool"), ([1, 1j], "complex64"), (np.float64(1), "float64"),
        (np.ones(2), "float64"), (np.ones(2, "float16"), "float16"), (np.int8(1), "int8"),
        ([np.float64(1), np.float64(2)], "float64"), (range(3), "int64"), (memoryview(b"ab"), "uint8"),
    ],
    ids=lambda value: repr(value).split(" at ")[0],
)  # fmt: skip
def test_python_values_have_the_default_dtype_and_arrays_keep_theirs(value: Any, dtype: str) -> None:
    assert str(tc.asarray(value).dtype) == dtype
    assert str(tc.Variable(value).dtype) == dtype


def test_the_default_dtype_can_be_set() -> None:
    tc.set_default_dtype(tc.float64)
    assert tc.asarray(1.0).dtype is tc.zeros(2).dtype is tc.linspace(0, 1, 3).dtype is tc.float64
    assert tc.asarray([1j]).dtype is tc.complex128
    assert tc.asarray(1).dtype is tc.int64
    assert tc.asarray(np.ones(1, "float32")).dtype is tc.float32
    assert tc.get_default_dtype() is tc.float64
    tc.set_default_dtype("float16")
    assert tc.asarray([1.0]).dtype is tc.float16
    tc.set_default_dtype(None)
    assert tc.asarray(1.0).dtype is tc.float32
    with pytest.raises(ValueError, match=r"set_default_dtype: dtype must be one of .*float32.*; got 'int64'"):
        tc.set_default_dtype("int64")


@pytest.mark.parametrize(("value", "text"), [("float64", "float64 float64"), ("int8", "TAPE_DEFAULT_DTYPE must be")])
def test_the_default_dtype_of_the_environment(value: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_DEFAULT_DTYPE", value)
    code = "import tape_core as tc; print(tc.asarray(1.0, backend='numpy').dtype, tc.ones(1, backend='numpy').dtype)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert text in done.stdout + done.stderr


def test_python_scalars_do_not_widen() -> None:
    for x in (tc.asarray(1.0), tc.asarray([1.0]), tc.ones((2, 2))):
        for y in (x + 1.5, 2 * x, x / 3, 1 - x, x**2, x**0.5, 2.0**x, tc.maximum(x, 0.0), tc.where(x > 0, x, 1.0)):
            assert y.dtype is tc.float32
    assert (tc.asarray(1) + 2).dtype is tc.int64
    assert (tc.asarray(1.0) + np.ones(1)).dtype is tc.float64, "arrays promote as the standard says"


# -- asarray


def test_a_tensor_is_returned_itself_and_the_path_is_kept() -> None:
    x = tc.asarray([1.0, 2.0])
    assert tc.asarray(x) is x
    assert tc.asarray(x, dtype=tc.float32, copy=False) is x
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.asarray(x) * tc.asarray(x, dtype=tc.float64) + tc.asarray(x, copy=True)
    assert tape.gradient(y, x).tolist() == [3.0, 5.0]


def test_a_list_of_tensors_is_stacked_with_its_path() -> None:
    v, x = tc.Variable(2.0), tc.asarray(3.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.asarray([[v, x], [1.0, v * x]])
        z = tc.sum(y * y)
    assert y.tolist() == [[2.0, 3.0], [1.0, 6.0]]
    assert [g.item() for g in tape.gradient(z, [v, x])] == [40.0, 30.0]
    assert tc.asarray((v, 1.0), dtype="float64").dtype is tc.float64


def test_copies() -> None:
    raw = np.ones(3)
    assert np.shares_memory(tc.asarray(raw).array, raw)
    assert np.shares_memory(tc.asarray(raw, copy=False).array, raw)
    for copied in (tc.asarray(raw, copy=True), tc.Variable(raw), tc.asarray(raw, dtype="float32")):
        assert not np.shares_memory(copied.array, raw)
    x = tc.asarray(raw)
    assert not np.shares_memory(tc.asarray(x, copy=True).array, raw)
    assert not np.shares_memory(x.numpy(), raw)
    with pytest.raises(ValueError, match="asarray: "):
        tc.asarray(raw, dtype="float32", copy=False)
    with pytest.raises(ValueError, match="asarray: "):
        tc.asarray([1.0, 2.0], copy=False)


@pytest.mark.parametrize(
    "bad", ["text", None, object(), {"a": 1.0}, [1.0, "b"], [[1.0], [1.0, 2.0]]], ids=lambda v: repr(v).split(" at ")[0]
)
def test_what_is_no_array_is_refused(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="asarray: cannot make an array of"):
        tc.asarray(bad)


def test_an_unknown_dtype_is_refused_with_the_names() -> None:
    with pytest.raises(TypeError, match="unknown dtype 'float'; the names are bool, int8"):
        tc.asarray(1.0, dtype="float")


def test_dtypes_can_be_given_in_many_ways() -> None:
    for dtype in (tc.float64, "float64", np.float64, np.dtype("float64")):
        assert tc.asarray(1, dtype=dtype).dtype is tc.float64
        assert tc.zeros(2, dtype=dtype).dtype is tc.float64
    assert tc.asarray(1, dtype=float).dtype is tc.float32, "Python's types mean the defaults"
    assert tc.asarray(1.0, dtype=int).dtype is tc.int64


def test_a_tensor_of_another_backend_is_converted() -> None:
    import array_api_compat.numpy

    other = ArrayAPIBackend("other", array_api_compat.numpy, array_types=["nowhere:Array"])
    x = tc.asarray([1.0, 2.0])
    y = tc.asarray(x, backend=other)
    assert (y.backend.name, y.tolist(), y.dtype) == ("other", [1.0, 2.0], tc.float32)
    with pytest.raises(TypeError, match=r"add: x2 is on backend 'other', another operand on 'numpy'; convert"):
        x + y
    with pytest.raises(TypeError, match=r"asarray\(value, backend='numpy'\)"):
        tc.Variable(x).assign(y)


def test_tensor_is_not_called() -> None:
    with pytest.raises(TypeError, match=r"use tape_core\.asarray"):
        tc.Tensor([1.0])


# -- creation functions


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: tc.zeros((2, 3)), np.zeros((2, 3), "float32")),
        (lambda: tc.zeros(2, dtype="int32"), np.zeros(2, "int32")),
        (lambda: tc.ones(()), np.ones((), "float32")),
        (lambda: tc.full((2,), 7), np.full(2, 7)),
        (lambda: tc.full(2, 7.0), np.full(2, 7, "float32")),
        (lambda: tc.full(1, True), np.full(1, True)),
        (lambda: tc.eye(2, 3, k=1), np.eye(2, 3, 1, "float32")),
        (lambda: tc.arange(3), np.arange(3)),
        (lambda: tc.arange(1, 7, 2), np.arange(1, 7, 2)),
        (lambda: tc.arange(0.0, 1.0, 0.25), np.arange(0, 1, 0.25, "float32")),
        (lambda: tc.arange(2, dtype="float64"), np.arange(2.0)),
        (lambda: tc.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype="float32")),
        (lambda: tc.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, False, dtype="float32")),
        (lambda: tc.zeros_like(tc.arange(3)), np.zeros(3, "int64")),
        (lambda: tc.ones_like(tc.zeros((2, 1)), dtype="int8"), np.ones((2, 1), "int8")),
        (lambda: tc.full_like(tc.zeros(2), 3), np.full(2, 3, "float32")),
        (lambda: tc.empty((2, 0)), np.empty((2, 0), "float32")),
        (lambda: tc.tril(tc.ones((3, 3)), k=-1), np.tril(np.ones((3, 3), "float32"), -1)),
        (lambda: tc.triu(tc.ones((2, 3), dtype=tc.bool)), np.triu(np.ones((2, 3), bool))),
        (lambda: tc.meshgrid(tc.arange(2), tc.arange(3))[1], np.meshgrid(np.arange(2), np.arange(3))[1]),
        (
            lambda: tc.meshgrid(tc.arange(2), tc.arange(3), indexing="ij")[0],
            np.meshgrid(np.arange(2), np.arange(3), indexing="ij")[0],
        ),
    ],
)  # fmt: skip
def test_creation(made: Any, expected: Any) -> None:
    x = made()
    assert (x.shape, str(x.dtype)) == (expected.shape, str(expected.dtype))
    assert np.array_equal(x.numpy(), expected)


def test_errors_of_creation_name_the_function() -> None:
    with pytest.raises((TypeError, ValueError), match="zeros: "):
        tc.zeros(-1)
    with pytest.raises(ValueError, match="meshgrid: indexing must be 'xy' or 'ij', got 'yx'"):
        tc.meshgrid(tc.arange(2), indexing="yx")


def test_tril_and_meshgrid_pass_gradients() -> None:
    v, w = tc.Variable([[1.0, 2.0], [3.0, 4.0]]), tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = tc.sum(tc.tril(v) ** 2) + tc.sum(tc.meshgrid(w, w)[0])
    dv, dw = tape.gradient(y, [v, w])
    assert dv.tolist() == [[2.0, 0.0], [6.0, 8.0]]
    assert dw.tolist() == [2.0, 2.0]


# -- scalars out


def test_conversions_to_python() -> None:
    x = tc.asarray(2.5)
    assert (float(x), int(x), bool(x), complex(x), x.item()) == (2.5, 2, True, 2.5, 2.5)
    assert (type(x.item()), type(tc.asarray(1).item()), type(tc.asarray(True).item())) == (float, int, bool)
    assert list(range(5))[tc.asarray(2)] == 2
    assert [t.item() for t in tc.asarray([1, 2])] == [1, 2]
    assert len(tc.zeros((3, 2))) == 3
    for bad in (len, list):
        with pytest.raises(TypeError, match="0-d tensor"):
            bad(x)
    with pytest.raises(ValueError, match=r"one element; this one has shape \(2,\)"):
        tc.ones(2).item()
    assert isinstance(x.array, np.ndarray)
    assert isinstance((x * x).array, np.ndarray), "also where kernels give scalars"


# -- NumPy arrays as operands


@pytest.mark.parametrize("c", [np.asarray([2.0, 4.0], "float32"), np.float32(4.0)], ids=["array", "scalar"])
def test_numpy_on_either_side_of_an_operator_records(c: Any) -> None:
    x = tc.asarray([2.0, 4.0])
    for f, slope in [
        (lambda x: c * x, c), (lambda x: x * c, c), (lambda x: c + x, 1.0), (lambda x: c - x, -1.0),
        (lambda x: c / x, -c / np.asarray([4.0, 16.0])), (lambda x: tc.multiply(c, x), c),
        (lambda x: c**x, c ** np.asarray([2.0, 4.0]) * np.log(c)),
        (lambda x: tc.concat([c * np.ones(2, "float32"), x]), 1.0),
    ]:  # fmt: skip
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert type(y) is tc.Tensor
        np.testing.assert_allclose(tape.gradient(y, x).numpy(), slope * np.ones(2), rtol=1e-6)
    v = tc.Variable([[1.0, 2.0]])
    with tc.GradientTape() as tape:
        y = np.ones((3, 1), "float32") @ v
    assert tape.gradient(y, v).tolist() == [[3.0, 3.0]]
    assert type(c < x) is type(c == x) is tc.Tensor


def test_operators_decline_what_they_do_not_know() -> None:
    class Left:
        def __radd__(self, other: Any) -> str:
            return "mine"

    x = tc.asarray(1.0)
    assert x + Left() == "mine"
    for bad in ("a", None, [1.0], object()):
        with pytest.raises(TypeError, match="unsupported operand"):
            x + bad
        for name, call in [
            ("add: x2", lambda bad=bad: tc.add(x, bad)),
            ("add: x1", lambda bad=bad: tc.add(bad, x)),
            ("where: x1", lambda bad=bad: tc.where(x > 0, bad, x)),
            ("sin: x", lambda bad=bad: tc.sin(bad)),
            ("sum: x", lambda bad=bad: tc.sum(bad)),
            (r"stack: arrays\[1\]", lambda bad=bad: tc.stack([x, bad])),
        ]:
            with pytest.raises(TypeError, match=rf"^{name} must be a Tensor.*asarray"):
                call()


# -- random numbers


def test_random_numbers_repeat_with_their_seed() -> None:
    a, b = tc.default_rng(3), tc.default_rng(3)
    assert a.normal((2, 3)).tolist() == b.normal((2, 3)).tolist()
    assert a.uniform(4).tolist() == b.uniform(4).tolist()
    assert a.integers(0, 9, 5).tolist() == b.integers(0, 9, 5).tolist()
    assert a.permutation(6).tolist() == b.permutation(6).tolist()
    assert sorted(a.permutation(6).tolist()) == list(range(6))
    x = a.normal(20_000, mean=2.0, stddev=3.0).numpy()
    assert x.dtype == np.float32
    assert (x.mean(), x.std()) == (pytest.approx(2.0, abs=0.1), pytest.approx(3.0, abs=0.1))
    u = a.uniform(10_000, low=-1.0, high=2.0).numpy()
    assert u.min() >= -1.0
    assert u.max() < 2.0
    assert u.mean() == pytest.approx(0.5, abs=0.05)
    assert a.normal().shape == ()
    assert not math.isinf(a.normal(dtype="float64").item())
    with pytest.raises(TypeError, match="seed must be an int or None, got 'a'"):
        tc.default_rng("a")
    with pytest.raises(ValueError, match="high must be above low, got low=3, high=3"):
        a.integers(3, 3)


@pytest.mark.parametrize("value", [None, "7", b"8"])
def test_arrays_are_not_filled_with_what_is_no_number(value: Any) -> None:
    for make in (lambda: tc.full((2,), value), lambda: tc.full_like(tc.ones(2), value)):
        with pytest.raises(TypeError, match="fill_value must be a number"):
            make()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("dtype", [None, "uint8", "float32"])
def test_bytes_are_a_buffer_of_them_and_no_text(kind: Any, dtype: str | None) -> None:
    assert tc.asarray(kind(b"12"), dtype=dtype).tolist() == [49, 50]
