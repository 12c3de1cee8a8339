"""NumPy's functions, operators and containers on Tensors: the same values, shapes and dtypes, and a gradient."""

from __future__ import annotations

import contextlib
import io
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import overrides
from support import STRICT, run_python

RNG = np.random.default_rng(0)
A, B = RNG.uniform(0.2, 0.9, (2, 3, 3))
C = RNG.uniform(0.2, 0.9, (2, 3, 4))
V = RNG.uniform(0.2, 0.9, 3)
SPD = A @ A.T + np.eye(3)


def tensors(value: Any, backend: Any = None) -> Any:
    """Tensors in place of NumPy's arrays."""
    if isinstance(value, np.ndarray):
        return tc.asarray(value, backend=backend)
    return type(value)(tensors(v, backend) for v in value) if type(value) in (list, tuple) else value


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            assert_same(f, e)
        return
    assert isinstance(found, tc.Tensor)
    assert (found.shape, found.dtype.name) == (expected.shape, expected.dtype.name)
    np.testing.assert_allclose(found.backend.numpy(found.array), expected, rtol=1e-6, atol=1e-6)


def parts(value: Any) -> list[Any]:
    return [p for v in value for p in parts(v)] if isinstance(value, list | tuple) else [value]


# -- every function, on a few arguments


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    return pytest.param(name, args, kwargs, id=f"{next(NUMBER)}-{name}")


NUMBER = itertools.count()


def words(text: str) -> list[str]:
    return text.split()


def calls(names: str, *args: Any, **kwargs: Any) -> list[Any]:
    return [call(name, *args, **kwargs) for name in words(names)]


DIFFERENTIABLE = [
    *calls(
        "absolute cos cosh deg2rad degrees exp exp2 expm1 fabs log log10 log1p log2 negative positive rad2deg radians "
        "reciprocal sin sinh sqrt square tan tanh arccos arcsin arcsinh arctan arctanh conjugate modf sign",
        A,
    ),
    *calls(
        "add arctan2 copysign divide divmod fmax fmin hypot logaddexp logaddexp2 maximum minimum multiply power "
        "remainder subtract matmul vecdot",
        A,
        B,
    ),
    call("arccosh", A + 1),
    call("matvec", A, V),
    call("vecmat", V, A),
    call("vecdot", A, B, axis=0),
    *calls(
        "amax amin average copy cumprod cumsum diff flip max mean min nan_to_num nanmean nanprod nansum prod "
        "ptp ravel real sinc sort squeeze std sum transpose trapezoid tril triu var atleast_1d atleast_2d "
        "atleast_3d diag diagflat diagonal fliplr flipud matrix_transpose rot90 trace unique",
        A,
    ),
    *calls("sum mean max min prod std var cumsum cumprod sort nansum nanmean ptp average flip diff", C, axis=0),
    *calls("sum mean max min prod std var cumsum cumprod sort nansum nanmean ptp average flip diff", C, axis=-1),
    *calls("sum mean max min prod std var nansum ptp", C, axis=(0, -1), keepdims=True),
    *calls("sum mean max", C, 1),
    *calls("std var", C, ddof=1),
    call("var", C, axis=1, correction=1),
    call("sum", A, axis=0, dtype=np.float32, out=None),
    call("mean", A, dtype="f4"),
    call("sort", A, axis=None),
    call("sort", A, kind="stable"),
    *calls("dot inner outer matmul vdot kron tensordot append cross", A, B),
    *calls("dot inner vdot outer cross", V, V + 1),
    call("dot", A, V),
    call("dot", C, RNG.random((2, 4, 3))),
    call("dot", V, 2.0),
    call("inner", C, RNG.random((5, 4))),
    *[call("tensordot", A, B, axes=axes) for axes in (1, (0, 1), [[0], [1]])],
    *calls("concatenate stack vstack hstack dstack column_stack", [A, B]),
    *calls("concatenate stack vstack hstack dstack column_stack", (V, V)),
    call("concatenate", [A, B], 1),
    call("concatenate", (A, V), axis=None),
    call("concatenate", [A, B], dtype=np.float32),
    call("stack", [A, B], -1),
    *calls("where", A > 0.5, A, 0.0),
    call("select", [A > 0.5, B > 0.5], [A, B], 1.0),
    call("clip", A, 0.4, 0.6),
    call("clip", A, None, B),
    call("clip", A, min=0.5),
    *[call("reshape", C, shape) for shape in ((4, -1), -1, [6, 4])],
    *[call("transpose", C, axes) for axes in ((1, 2, 0), [1, -1, 0])],
    call("swapaxes", C, 0, -1),
    call("moveaxis", C, [0, 1], [-1, 0]),
    call("expand_dims", A, (0, -1)),
    call("squeeze", C[:1], 0),
    call("broadcast_to", V, (2, 3)),
    call("broadcast_arrays", V, A),
    call("meshgrid", V, V, indexing="ij"),
    *[call("tile", A, reps) for reps in (2, (2, 1))],
    call("repeat", A, 2, axis=1),
    call("repeat", A, [1, 2, 0], 0),
    call("roll", A, 1),
    call("roll", A, (1, 2), (0, 1)),
    call("take", A, [0, 2]),
    call("take", A, [0, 2], 1),
    call("take_along_axis", A, np.argsort(A, 0), 0),
    *[call("split", C, sections, axis=2) for sections in (2, [1, 3])],
    call("array_split", C, 3, -1),
    call("hsplit", A, 3),
    call("vsplit", A, [1]),
    call("dsplit", C, 2),
    call("diff", A, 2, 0),
    call("diff", V, prepend=0.0),
    call("diff", A, append=A[:, :1]),
    *[call("pad", A, width) for width in (1, ((1, 0), (2, 1)))],
    call("pad", V, (1, 2), constant_values=3.0),
    call("average", A, weights=B),
    call("average", A, axis=1, weights=V),
    call("trapezoid", A, V, axis=0),
    call("kron", A, V),
    call("convolve", V, A[0], mode="same"),
    call("i0", V),
    call("polyval", V, A),
    call("linspace", np.asarray(0.5), 2.0, 4),
    call("diag", V, k=-1),
    call("diagonal", C, 0, 2, 1),
    call("trace", C, 1, 1, 2),
    call("angle", A + 1j * B),
    call("astype", A, np.float32),
    *calls(
        "linalg.cholesky linalg.det linalg.inv linalg.pinv linalg.eigvalsh linalg.norm linalg.qr linalg.slogdet "
        "linalg.svdvals linalg.matrix_norm linalg.matrix_transpose linalg.diagonal linalg.trace linalg.vector_norm",
        SPD,
    ),
    *[call("linalg.norm", C, order, (0, 2), True) for order in (None, 1, np.inf, "fro", "nuc", -2)],
    *[call("linalg.norm", A, order, 0) for order in (None, 1, 3, np.inf)],
    call("linalg.svd", A, compute_uv=False),
    call("linalg.solve", A, V),
    call("linalg.matrix_power", A, 3),
    call("linalg.multi_dot", [A, B, A]),
    *calls("linalg.matmul linalg.tensordot linalg.vecdot linalg.cross", A, B),
    call("linalg.outer", V, V),
    *calls(
        "fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft fft.fft2 "
        "fft.ifft2 fft.rfft2 fft.irfft2 fft.fftshift fft.ifftshift",
        A,
    ),
    call("fft.fft", A, 5, 0),
    call("fft.fft2", C, axes=(0, 1), norm="ortho"),
    *calls("add.reduce multiply.reduce maximum.reduce minimum.reduce add.accumulate multiply.accumulate", A),
    call("add.reduce", A, axis=None),
    call("maximum.reduce", A, 1, keepdims=True),
    call("multiply.outer", V, A),
    call("cumulative_sum", V, include_initial=True),
    call("cumulative_prod", V),
    *calls("polyadd polysub polymul", V, A[0, :2]),
    call("polymul", np.asarray([0.0, 0.5, 0.3]), V),
    *calls("polyder polyint poly trim_zeros unwrap", V),
    call("polyder", V, 2),
    call("polyint", V, m=2),
    call("polyfit", A.ravel(), B.ravel(), 2),
    call("polyfit", A.ravel(), np.stack([B.ravel(), A.ravel()], axis=1), 2, w=B.ravel()),
    call("trim_zeros", np.asarray([0.0, 0.5, 0.0, 0.3, 0.0])),
    call("trim_zeros", np.asarray([0.0, 0.5, 0.0]), "b"),
    call("unwrap", np.asarray([0.5, 4.0, 9.0, 3.0])),
    call("unwrap", 4 * C, axis=0, period=1.5),
    call("bincount", np.asarray([2, 0, 2]), V),
    call("bincount", np.asarray([2, 0, 2]), V, 5),
    call("choose", np.asarray([1, 0, 1]), [V, 2 * V]),
    call("choose", np.asarray([[1], [0]]), [V, 2 * V]),
    call("ldexp", V, np.asarray([1, -2, 3])),
    call("apply_along_axis", np.sum, 0, C),
    call("apply_along_axis", np.diff, 1, C),
    call("apply_along_axis", lambda row: np.outer(row, row), 0, A),
    call("lib.stride_tricks.sliding_window_view", V, 2),
    call("lib.stride_tricks.sliding_window_view", C, (2, 3), (0, 2)),
    call("linalg.tensorsolve", A, V),
    call("linalg.tensorsolve", RNG.uniform(0.2, 0.9, (2, 3, 6)), RNG.uniform(0.2, 0.9, (2, 3))),
    call("linalg.tensorsolve", RNG.uniform(0.2, 0.9, (6, 2, 3)), RNG.uniform(0.2, 0.9, (2, 3)), axes=(0,)),
    call("linalg.tensorinv", A, 1),
    call("linalg.tensorinv", RNG.uniform(0.2, 0.9, (2, 3, 6))),
]

CONSTANT = [
    *calls("ceil floor trunc rint isfinite isinf isnan signbit fix", A),
    *calls("equal not_equal less less_equal greater greater_equal nextafter floor_divide isclose isin heaviside", A, B),
    *calls("logical_and logical_or logical_xor", A > 0.5, B > 0.5),
    *calls("bitwise_and bitwise_or bitwise_xor left_shift right_shift", np.arange(3), np.arange(3)),
    *calls("logical_not invert", A > 0.5),
    *calls("all any argmax argmin argsort count_nonzero nonzero where argwhere flatnonzero isneginf isreal", A),
    *calls("argmax argsort all count_nonzero", C, axis=1),
    *calls("ones_like zeros_like imag round around", A),
    call("round", A, 1),
    *[call("round", np.arange(0, 60, 7), decimals) for decimals in (0, 1, -1)],
    call("full_like", A, 2.0, dtype=np.float32),
    call("searchsorted", np.sort(V), B[0], "right"),
    call("bincount", np.asarray([2, 0, 2])),
    call("digitize", V, [0.3, 0.6]),
    call("lexsort", (V, V)),
    *calls("logical_and.reduce logical_or.reduce", A > 0.5),
    call("linalg.matrix_rank", A),
    call("unique", np.array([1.0, 2.0, 1.0]), True, True, True),
]


def function_of(name: str) -> Callable[..., Any]:
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "args", "kwargs"), DIFFERENTIABLE)
def test_a_function_gives_what_numpy_gives_and_is_recorded(name: str, args: Any, kwargs: Any) -> None:
    function = function_of(name)
    given = tensors(args)
    watched = [x for x in parts(given) if isinstance(x, tc.Tensor) and x.dtype.inexact]
    with tc.GradientTape() as tape:
        tape.watch(watched)
        found = function(*given, **kwargs)
    assert_same(found, function(*args, **kwargs))
    assert any(g is not None for g in tape.gradient(parts(found), watched))


@pytest.mark.parametrize(("name", "args", "kwargs"), CONSTANT)
@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # from NumPy 2.5 on
def test_a_function_without_a_derivative_gives_what_numpy_gives(name: str, args: Any, kwargs: Any) -> None:
    function = function_of(name)
    assert_same(function(*tensors(args), **kwargs), function(*args, **kwargs))


STANDARD = words(
    "absolute add arctan2 multiply sqrt sum mean max std ravel transpose concatenate stack vstack hstack swapaxes "
    "where clip reshape dot outer take repeat pad diag linalg.solve linalg.norm add.reduce argmax isclose "
    "nonzero zeros_like diff average split kron multiply.outer"
)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [p for p in DIFFERENTIABLE + CONSTANT if p.values[0] in STANDARD and "dtype" not in p.id],
)
def test_numpys_functions_run_on_other_backends(name: str, args: Any, kwargs: Any) -> None:
    function = function_of(name)
    found = function(*tensors(args, STRICT), **{k: tensors(v, STRICT) for k, v in kwargs.items()})
    assert all(p.backend is STRICT for p in parts(found))
    assert_same(found, function(*args, **kwargs))


# -- broad tables on drawn arrays

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, max_side=3)
ARRAYS = hnp.arrays(st.sampled_from(["float32", "float64", "int64"]), SHAPES, elements=st.integers(-3, 3)) | hnp.arrays(
    "complex128", SHAPES, elements=st.integers(-3, 3)
)
UNARY = words(
    "absolute cos exp negative positive sin square conjugate isfinite isnan sign sinh tanh arctan sum prod mean std "
    "var cumsum cumprod ravel transpose flip real imag squeeze diff nansum copy any all ones_like zeros_like argwhere "
    "flatnonzero count_nonzero atleast_2d angle iscomplexobj shape size nonzero"
)
WITH_AXIS = words("sum prod mean std var cumsum cumprod any all flip")
BINARY = words(
    "add subtract multiply divide matmul power equal not_equal where dot vdot inner outer kron tensordot concatenate "
    "stack append array_equal isclose allclose"
)


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What it gives, or that it raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except (ValueError, IndexError, TypeError) as error:
            return type(error)


def assert_same_outcome(found: Any, expected: Any) -> None:
    if isinstance(expected, type):
        assert isinstance(found, type), f"NumPy raises {expected}"
    elif isinstance(expected, np.ndarray | np.generic) or type(expected) in (tuple, list):
        if isinstance(expected, tuple) and not isinstance(expected[0], np.ndarray):
            assert found == expected
        else:
            assert_same(found, expected)
    else:
        assert type(found) is type(expected)
        assert found == expected


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(UNARY), ARRAYS, st.sampled_from([None, 0, -1, 1, 2]), st.booleans())
def test_functions_of_one_array_agree(name: str, x: Any, axis: int | None, with_axis: bool) -> None:
    function = getattr(np, name)
    kwargs = {"axis": axis} if with_axis and name in WITH_AXIS else {}
    assert_same_outcome(outcome(function, tc.asarray(x), **kwargs), outcome(function, x, **kwargs))


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(BINARY), ARRAYS, st.data(), st.sampled_from(["tt", "tn", "nt"]))
def test_functions_of_two_arrays_agree(name: str, x: Any, data: Any, which: str) -> None:
    function = getattr(np, name)
    y = data.draw(hnp.arrays(st.sampled_from(["float32", "float64"]), x.shape, elements=st.integers(-3, 3)))
    if x.dtype.kind in "bi":
        # Tape's own promotion, by which float32 stays float32 beside integers, is that of NumPy for float arrays.
        x = x.astype(y.dtype)
    args = [tc.asarray(a) if w == "t" else a for a, w in zip((x, y), which, strict=True)]
    if name in ("concatenate", "stack"):
        assert_same_outcome(outcome(function, args), outcome(function, [x, y]))
    elif name == "where":
        assert_same_outcome(outcome(function, x > 0, *args), outcome(function, x > 0, x, y))
    else:
        assert_same_outcome(outcome(function, *args), outcome(function, x, y))


# -- operators with an array or a NumPy scalar on the left


@pytest.mark.parametrize("left", [V, V.astype("float32"), np.float64(2.0), np.float32(2.0), np.int64(2), V[0]])
def test_an_array_on_the_left_of_an_operator_is_recorded(left: Any) -> None:
    x = tc.Variable([1.0, 2.0, 3.0], dtype=tc.float64)
    with tc.GradientTape() as tape:
        y = left * x + left - left / x
    assert isinstance(y, tc.Tensor)
    np.testing.assert_allclose(tape.gradient(y, x), left + left / x.numpy() ** 2, rtol=1e-6)


def test_comparisons_and_matmul_with_an_array_on_the_left() -> None:
    x = tc.asarray(V)
    for found, expected in ((B[0] < x, B[0] < V), (np.float64(0.5) >= x, V <= 0.5), (A @ x, A @ V)):
        assert_same(found, expected)


@pytest.mark.parametrize("backend", [None, STRICT])
def test_writing_into_an_array_is_refused(backend: Any) -> None:
    array, t = V.copy(), tc.asarray(V, backend=backend)
    with pytest.raises(TypeError, match=r"numpy\.add: out=.*`array = array \+ t`"):
        array += t
    with pytest.raises(TypeError, match=r"numpy\.sin: out="):
        np.sin(t, out=array)
    with pytest.raises(TypeError, match=r"numpy\.sum with out= has no counterpart"):
        np.sum(t, out=array)
    assert np.array_equal(array, V)


def test_tensors_of_two_backends_are_refused() -> None:
    with pytest.raises(TypeError, match="multiply: x2 is on backend 'strict', another operand on 'numpy'"):
        tc.asarray(V) * tc.asarray(V, backend=STRICT)


def test_an_array_goes_to_the_backend_of_the_tensor() -> None:
    t = tc.asarray(V, backend=STRICT)
    for found in (V * t, t * V, np.multiply(V, t), tc.multiply(t, V)):
        assert found.backend is STRICT
        assert np.array_equal(found.numpy(), V * V)


# -- what there is not


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda t: np.gcd(t, t), "numpy.gcd"),
        (lambda t: np.add.at(t, 0, 1), "numpy.add.at"),
        (lambda t: np.add.reduceat(t, [0]), "numpy.add.reduceat"),
        (lambda t: np.subtract.reduce(t), "numpy.subtract.reduce"),
        (lambda t: np.add(t, V, where=V > 0), "numpy.add with where="),
        (lambda t: np.sin(t, dtype="f4"), "numpy.sin with dtype="),
        (lambda t: np.mean(t, where=V > 0), "numpy.mean with where="),
        (lambda t: np.sum(t, initial=1), "numpy.sum with initial="),
        (lambda t: np.reshape(t, 3, order="F"), "numpy.reshape with order="),
        (lambda t: np.apply_over_axes(np.sum, t, [0]), "numpy.apply_over_axes"),
        (lambda t: np.histogram(t), "numpy.histogram"),
        (lambda t: np.pad(t, 1, "reflect", reflect_type="odd"), "numpy.pad with reflect_type="),
        (lambda t: np.put(t, 0, 1.0), "numpy.put"),
        (lambda t: np.copyto(np.zeros(3), t), "numpy.copyto"),
        (lambda t: np.frompyfunc(abs, 1, 1)(t), "ufunc abs"),
    ],
)
def test_what_is_not_there_is_named(call: Any, what: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(tc.asarray(V))
    assert str(caught.value).startswith(what)
    assert "give it t.numpy() where none is needed, or use functions of tape_core" in str(caught.value)


def test_every_function_that_asks_is_answered_or_refused_by_name() -> None:
    """Nothing is computed by NumPy behind the tape's back: a result is a Tensor, or holds no array."""
    for function in overrides.get_overridable_numpy_array_functions() | overrides.get_overridable_numpy_ufuncs():
        if function.__name__.startswith("_") or function.__name__ in READING:
            continue
        result: Any = None
        for args in ((tc.asarray(A),), (tc.asarray(A), tc.asarray(B)), (tc.asarray(A), 1)):
            with contextlib.suppress(Exception):
                result = outcome(function, *args)
            assert not any(isinstance(p, np.ndarray) and p.dtype.kind == "f" for p in parts(result)), function


READING = words("array asarray asanyarray ascontiguousarray asfortranarray require fromfile fromfunction fromiter")
READING += words("frombuffer fromstring genfromtxt loadtxt save savez savez_compressed savetxt")


class Stranger:
    """An array of a library that Tape does not know."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return "taken"

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return "taken"


def test_other_libraries_have_their_turn() -> None:
    assert np.add(tc.asarray(V), Stranger()) == "taken"
    assert np.concatenate([tc.asarray(V), Stranger()]) == "taken"


def test_wrong_arguments_are_numpys_own_errors() -> None:
    with pytest.raises(TypeError, match="must be a Tensor, a Variable"):
        np.add(tc.asarray(V), {})
    with pytest.raises(ValueError, match="broadcast"):
        np.add(tc.asarray(V), np.ones(2))
    with pytest.raises(ValueError, match="no 2 equal parts"):
        np.split(tc.asarray(V), 2)


# -- lists, dtypes, values


def test_lists_among_tensors_are_what_numpy_makes_of_them() -> None:
    x = tc.asarray([1.0, 2.0])
    assert np.add(x, [0.5, 0.25]).dtype is tc.float64
    assert np.concatenate([x, [3, 4]]).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert np.add(tc.asarray([1.0], backend=STRICT), [1.0]).backend is STRICT


def test_numbers_lose_nothing_beside_float64() -> None:
    x = tc.asarray(V)
    for function in (np.dot, np.outer, np.kron, np.inner, np.multiply):
        assert_exact(function(0.1, x), function(0.1, V))
    assert_exact(np.hstack([x, 0.1]), np.hstack([V, 0.1]))
    assert_exact(np.stack([x[0], 0.1]), np.stack([V[0], 0.1]))
    assert_exact(np.diff(x, prepend=0.1), np.diff(V, prepend=0.1))
    assert_exact(np.where(x > 0.5, x, 0.1), np.where(V > 0.5, V, 0.1))


def assert_exact(found: Any, expected: Any) -> None:
    assert found.numpy().tolist() == expected.tolist()


def test_a_list_of_tensors_is_recorded_where_numpy_asks() -> None:
    x = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = np.array([x, x * x], like=x) * np.where(x > np.array([0, 5]), [x, x], 1.0)
    assert tape.gradient(y, x).item() == 12.0


def test_like_makes_tensors() -> None:
    x = tc.asarray([1.0], backend=STRICT)
    for y in (np.zeros(2, like=x), np.asarray([1, 2], like=x), np.arange(3, like=x), np.full((2,), 1.5, like=x)):
        assert isinstance(y, tc.Tensor)
        assert y.backend is STRICT


def test_tapes_dtypes_are_dtypes_for_numpy() -> None:
    x = tc.asarray([1.0])
    if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        assert np.zeros(2, dtype=x.dtype).dtype == np.float32
    assert np.result_type(x, np.float64) == np.float64
    assert np.sum(x, dtype=tc.float64).dtype is tc.float64


def test_functions_of_values() -> None:
    x = tc.asarray(V)
    assert (np.shape(x), np.ndim(x), np.size(x), np.iscomplexobj(x)) == ((3,), 1, 3, False)
    assert np.allclose(x, V)
    assert np.array_equal(x, V)
    assert np.array2string(x) == np.array2string(V)
    np.testing.assert_allclose(x, V)
    file = io.BytesIO()
    np.save(file, x)
    file.seek(0)
    assert np.array_equal(np.load(file), V)


def test_asarray_is_a_copy_out_of_the_path() -> None:
    x = tc.asarray(V)
    array = np.asarray(x)
    array[0] = 7.0
    assert type(array) is np.ndarray
    assert x.tolist() == V.tolist()


def test_variables_are_read_and_watched() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = np.concatenate([np.sin(v), np.ones(1, "f4")]) @ np.ones(3, "f4")
    np.testing.assert_allclose(tape.gradient(y, v), np.cos([1.0, 2.0]), rtol=1e-6)


def test_second_order_through_numpys_functions() -> None:
    x = tc.Variable([0.5, 1.0], dtype=tc.float64)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = np.sum(np.sin(x) * np.exp(x))
        dy = inner.gradient(y, x)
    np.testing.assert_allclose(outer.gradient(dy, x), 2 * np.cos(x) * np.exp(x), rtol=1e-12)


def test_scipys_ufuncs_are_ours_where_we_have_them() -> None:
    special = pytest.importorskip("scipy.special")
    if not isinstance(special.expit, np.ufunc):
        pytest.skip("SCIPY_ARRAY_API is set")
    x = tc.Variable(0.0)
    with tc.GradientTape() as tape:
        y = special.expit(x)
    assert tape.gradient(y, x).item() == 0.25


def test_nothing_is_imported_before_numpy_asks() -> None:
    code = (
        "import sys, tape_core as tc; t = tc.ones(2); t * 2.0\n"
        "assert 'tape_core.interop.numpy_protocol' not in sys.modules\n"
        "import numpy as np; np.sin(t)\n"
        "assert 'tape_core.interop.numpy_protocol' in sys.modules\n"
    )
    run_python("-c", code)
