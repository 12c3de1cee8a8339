"""NumPy's functions in all the ways they are called: what NumPy gives, with derivatives, compiled and under vmap."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import leaves

RNG = np.random.default_rng(3)
A = RNG.normal(size=(3, 4))
B = RNG.normal(size=(3, 4))
V = RNG.normal(size=4)
U = RNG.normal(size=3)
INTS = RNG.integers(-4, 9, (3, 4))
GAPS = np.where(RNG.random((3, 4)) < 0.3, np.nan, A)
NUMBER = itertools.count()
NUMPY = tuple(map(int, np.__version__.split(".")[:2]))


def function_of(name: str) -> Callable[..., Any]:
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def mapped(f: Callable[[Any], Any], value: Any) -> Any:
    """Each array in a structure of lists and tuples replaced."""
    if isinstance(value, np.ndarray):
        return f(value)
    return type(value)(mapped(f, v) for v in value) if type(value) in (list, tuple) else value


VALUES_DECIDE = ("compress", "extract", "linalg.lstsq")
"""The shape of the result hangs on values: neither compiled nor for many examples at once."""


def assert_same(found: Any, expected: Any) -> None:
    expected, found = leaves(expected), leaves(found)
    assert len(found) == len(expected)
    for own, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, np.ndarray | np.generic):
            assert isinstance(own, tc.Tensor)
            assert (own.shape, own.dtype.name) == (theirs.shape, theirs.dtype.name)
            small = theirs.dtype.name in ("float32", "complex64")
            scale = float(np.max(np.abs(theirs[np.isfinite(theirs)]), initial=1.0))
            tolerance = (1e-5 if small else 1e-11) * scale
            np.testing.assert_allclose(own.numpy(), theirs, rtol=0, atol=tolerance)
        else:
            assert own == theirs or (own != own and theirs != theirs)


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    return pytest.param(name, args, kwargs, id=f"{next(NUMBER)}-{name}")


WIDTHS = [1, (1, 2), [(2, 0)], ((1,), (2,)), ((1, 0), (2, 3)), {0: (1, 2)}, {-1: 2}]
FILLS = [3.5, (5, 6), [2.0], ((7, 8),), ((1, 2), (3, 4)), np.asarray([1.0, 2.0]), ((0.5,), (1.5,))]
CALLS = [
    *[call("pad", A, width, constant_values=fill) for width in WIDTHS for fill in FILLS],
    *[call("pad", A, width, "linear_ramp", end_values=fill) for width in WIDTHS for fill in (0, (5, 6))],
    *[
        call("pad", A, width, mode, stat_length=length)
        for width in ((1, 2), {1: 3})
        for mode in ("mean", "maximum", "minimum", "median")
        for length in (None, 2, (1, 2), ((1, 9), (3, 2)))
    ],
    *[call("pad", INTS, 2, mode) for mode in ("mean", "maximum", "minimum", "median", "linear_ramp", "edge", "wrap")],
    *[call("pad", A * 1j, 1, "mean"), call("pad", V, (2, 3), constant_values=(1, 2))],
    *[
        call("linspace", *ends, num, endpoint=endpoint, axis=axis)
        for ends in ((U, U + 3), (U, 5.0), (0.5, V), (A, V), (A[:, :1], 2j))
        for num in (0, 1, 3, 4)
        for endpoint in (True, False)
        for axis in (0, -1)
    ],
    *[call("linspace", U, 5.0, num, retstep=True) for num in (1, 4)],
    *[call("linspace", INTS[0], 7, 5, dtype=dtype) for dtype in (None, "i8", "f4", "c16")],
    call("linspace", np.asarray([7], "u1"), np.asarray([2], "u1"), 4),
    call("linspace", np.asarray(0), np.asarray(10), 5),
    call("linspace", np.asarray([1, 2], "f4"), 7.0, 3),
    *[call("logspace", U, 2.0, 4, axis=axis) for axis in (0, -1)],
    call("logspace", U, U + 1, 4, base=np.exp(U)),
    call("logspace", U, U + 1, 3, base=2),
    *[call("geomspace", np.abs(U), 7.0, 4, endpoint=endpoint, axis=-1) for endpoint in (True, False)],
    call("geomspace", -np.abs(U), -np.abs(V[:3]), 4),
    *[
        call(name, x, axis=axis, keepdims=keepdims)
        for name in ("median", "nanmedian", "nanmax", "nanmin", "nanstd", "nanvar", "nanmean", "nansum", "nanprod")
        for x in (A, GAPS, INTS)
        for axis, keepdims in ((None, False), (0, False), (1, True), ((0, 1), True))
    ],
    *[call(name, x, axis) for name in ("nancumsum", "nancumprod") for x in (A, GAPS) for axis in (None, 0)],
    *[
        call(name, A, q, axis=axis, method=method)
        for name, q in (("quantile", [0.1, 0.35, 1.0]), ("quantile", 0.3), ("percentile", 40), ("percentile", [0, 70]))
        for axis, method in (
            *((None, "linear"), (0, "hazen"), (1, "weibull"), (0, "median_unbiased"), (0, "normal_unbiased")),
            *((0, "lower"), (1, "higher"), (0, "midpoint"), (1, "nearest"), (0, "interpolated_inverted_cdf")),
        )
    ],
    *[call(name, GAPS, 0.3, axis=1) for name in ("quantile", "nanquantile")],
    *[call("nanpercentile", GAPS, 30, axis=axis) for axis in (None, 0)],
    call("quantile", A.astype("f4"), 0.3),
    call("quantile", A, 0.3, keepdims=True),
    *[call(name, A) for name in ("cov", "corrcoef")],
    *[call(name, A, B, rowvar=False) for name in ("cov", "corrcoef")],
    *[call(name, V) for name in ("cov", "corrcoef")],
    *[call("cov", A, **o) for o in ({"bias": True}, {"ddof": 0}, {"fweights": [1, 2, 0, 1]}, {"aweights": np.abs(V)})],
    call("cov", A, fweights=[1, 2, 0, 1], aweights=np.abs(V)),
    *[call(name, A.astype("f4")) for name in ("cov", "corrcoef")],
    *[call("cov", A[:, :2], ddof=ddof) for ddof in (1, 0)],
    call("cov", A + 1j * B),
    call("nanmean", A.astype("f4"), dtype="f8"),
    *[call("heaviside", 2, A.astype("f4")), call("heaviside", A.astype("f4"), 2)],
    *[call("fmod", 2.5, np.abs(A).astype("f4") + 1), call("fmod", 7, np.abs(INTS).astype("u1") + 2)],
    *[call("diag", V > 0, k) for k in (0, -1, 2)],
    *[call("gradient", V.astype("f4"), h) for h in (2.0, 3)],
    call("vander", V.astype("f4"), 3),
    *[call("clip", A, *b) for b in ((B - 1, B + 1), (None, B), (-0.5, B), ([-1.0] * 4, [0.5, 1, 0, 2]))],
    *[call("linalg.qr", A.T, mode=mode) for mode in ("reduced", "complete", "r")],
    *[call("nan_to_num", x) for x in (INTS, A, np.asarray([np.nan, np.inf, -np.inf, 1.0]), A + 1j * B)],
    *[call(name, V, k) for name in ("tril", "triu") for k in (0, 1)],
    # NumPy 2.5 has no cross products of two numbers any more.
    *[call("cross", A[:, :n], B[:, :m]) for n, m in ((2, 3), (3, 2), (3, 3)) if n == m or NUMPY < (2, 5)],
    call("cross", A, B, axis=0),
    call("cross", A[:, :3], B[:, :3], axisc=0),
    call("cross", A[:, :3], B.T[:3, :3], axisb=0),
    *[call(name, x) for name in ("rint", "fabs", "cbrt") for x in (A, INTS, INTS.astype("i1"), INTS.astype("i2"))],
    *[call("heaviside", x, 0.5) for x in (A, INTS)],
    *[call(name, INTS) for name in ("i0", "trapezoid", "mean", "std", "var", "gradient")],
    *[call("trapezoid", A, dx=0.5), call("trapezoid", A, V), call("mean", A, axis=0, dtype="i8")],
    *[call("mean", INTS, axis=k, dtype=t) for k in (None, 0) for t in ("i8", "f4", "f8")],
    *[call(name, INTS, dtype="f4") for name in ("std", "var")],
    *[call("linalg.norm", INTS, order) for order in (None, 1, 2, np.inf, "fro")],
    *[call("gradient", A), call("gradient", A, 0.5, axis=1), call("gradient", A, 0.5, 2.0, edge_order=2)],
    *[call("gradient", V, np.asarray([0.0, 1.0, 1.5, 4.0]), edge_order=k) for k in (1, 2)],
    call("gradient", A, np.asarray([0.0, 1.0, 3.5]), np.asarray([0.0, 0.5, 1.5, 2.0])),
    *[call("rollaxis", RNG.normal(size=(2, 3, 4)), *a) for a in ((2,), (1, 3), (0, 2), (-1, 1), (1, -1))],
    call("real_if_close", A),
    *[call(f"linalg.{name}", A @ A.T, UPLO=uplo) for name in ("eigvalsh",) for uplo in "LU"],
    call("einsum", A, [0, 1], B, [0, 1]),
    call("einsum", A, [0, 1], B.T, [1, 2], [0, 2]),
    call("einsum", "ij,ij->j", A, B),
    call("block", [[A, B], [B, A]]),
    call("block", [A, B]),
    call("block", [[V], [U[:1], V[:3]]]),
    *[
        call("insert", A, obj, values, axis=k)
        for obj, values, k in ((1, 5.0, 0), (1, V, 0), ([0, 2], 1.0, 1), (-1, U, 1))
    ],
    *[call("insert", V, obj, values) for obj, values in ((0, 1.0), (slice(0, 2), U[:2]), ([1, 1, 3], U), (2, U))],
    *[call("delete", A, obj, axis=k) for obj, k in ((1, 0), ([0, 2], 1), (slice(1, 3), 1), (-1, None), ([0, 1], 1))],
    *[call("resize", A, shape) for shape in ((2, 2), 30, (0,), (5, 4))],
    *[call("float_power", np.abs(A), 1.5), call("float_power", INTS, 2), call("fmod", A, B), call("fmod", INTS, 3)],
    *[call("fmod", INTS, -3), call("fmod", A, 0.3)],
    *[call("compress", [True, False, True], A, axis=0), call("compress", [0, 1], A), call("extract", A > 0, A)],
    *[call("correlate", V, U, mode) for mode in ("valid", "same", "full")],
    *[call("correlate", U, V, mode) for mode in ("valid", "same", "full")],
    *[call("correlate", A[0], B[0] * 1j, mode) for mode in ("valid", "same", "full")],
    *[call("vander", x, *a) for x in (V, INTS[0]) for a in ((), (2,), (3, True))],
    *[call("ediff1d", A), call("ediff1d", V, to_begin=0.0, to_end=[1.0, 2.0])],
    *[call("linalg.cond", A[:, :3], p) for p in (None, 2, -2, "fro", 1, np.inf)],
    *[call("linalg.lstsq", A.T, V), call("linalg.lstsq", A.T, B.T), call("linalg.lstsq", A, U)],
]


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Arrays of 2-dimensional vectors")
def test_a_call_gives_what_numpy_gives_eagerly_compiled_and_under_vmap(name: str, args: Any, kwargs: Any) -> None:
    function = function_of(name)
    expected = function(*args, **kwargs)
    given = mapped(tc.asarray, args)
    own = mapped(tc.asarray, kwargs)
    assert_same(function(*given, **own), expected)
    arrays = [x for x in leaves(given) if isinstance(x, tc.Tensor)]

    def again(*values: Any) -> Any:
        each = iter(values)
        return function(*mapped(lambda _: next(each), args), **own)

    if name in VALUES_DECIDE:
        return
    compiled = tc.function(again)
    for _ in range(2):
        assert_same([p for p in leaves(compiled(*arrays)) if isinstance(p, tc.Tensor)], _arrays(expected))
    twice = tc.vmap(lambda *values: [p for p in leaves(again(*values)) if isinstance(p, tc.Tensor)])(
        *(tc.stack([x, x]) for x in arrays)
    )
    assert_same([p[1] for p in twice], _arrays(expected))


def _arrays(value: Any) -> list[Any]:
    return [v for v in leaves(value) if isinstance(v, np.ndarray | np.generic)]


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Arrays of 2-dimensional vectors")
def test_the_derivatives_of_a_call_are_those_of_finite_differences(name: str, args: Any, kwargs: Any) -> None:
    function = function_of(name)
    floating = [x for x in leaves(mapped(tc.asarray, args)) if isinstance(x, tc.Tensor) and x.dtype.name == "float64"]
    results = _arrays(function(*args, **kwargs))
    if name == "linalg.eigvalsh" or kwargs.get("mode") == "complete":
        return  # differences do not keep to symmetric matrices, and completing columns are arbitrary
    if not floating or any(r.dtype.kind in "iub" or np.isnan(r).any() for r in results):
        return  # nothing flows there, or differences tell nothing

    def f(*values: Any) -> Any:
        each = iter(values)
        found = function(
            *mapped(lambda x: next(each) if x.dtype == "float64" else tc.asarray(x), args), **mapped(tc.asarray, kwargs)
        )
        return [p for p in leaves(found) if isinstance(p, tc.Tensor) and p.size]

    tc.testing.check_grads(f, floating)


# -- padding


def test_the_constants_of_pad_may_be_tensors_with_a_gradient() -> None:
    fill = tc.asarray([5.0, 6.0])
    with tc.GradientTape() as tape:
        tape.watch(fill)
        y = np.pad(tc.ones((2, 2)), ((1, 2), (0, 0)), constant_values=fill)
    np.testing.assert_array_equal(y, [[5, 5], [1, 1], [1, 1], [6, 6], [6, 6]])
    assert tape.gradient(y, fill).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("width", [1, ((1, 2), (0, 3))])
def test_tapes_own_pad_takes_pairs_of_constants(width: Any) -> None:
    for fill in ((5, 6), ((1, 2), (3, 4)), [(7, 8)]):
        found = tc.pad(tc.asarray(A), width, constant_values=fill)
        np.testing.assert_array_equal(found, np.pad(A, width, constant_values=fill))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mode": "reflect", "reflect_type": "odd"}, "reflect_type"),
        ({"mode": lambda *_: None}, "function as mode"),
        ({"mode": "mirror"}, "mirror"),
        ({"constant_values": (1, 2, 3)}, "broadcast"),
    ],
)
def test_what_pad_cannot_do_is_refused_by_name(options: Any, what: str) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        np.pad(tc.asarray(A), 1, **options)


def test_constants_that_are_neither_one_number_nor_pairs_are_an_error() -> None:
    with pytest.raises(ValueError, match="constant_values must be a number, a pair"):
        tc.pad(tc.asarray(A), 1, constant_values=(1, 2, 3))


# -- sequences


def test_a_sequence_between_integers_is_floating() -> None:
    found = tc.linspace(tc.asarray(0), tc.asarray(10), 5)
    assert found.tolist() == [0.0, 2.5, 5.0, 7.5, 10.0]


def test_the_last_value_of_a_sequence_is_its_end_to_the_last_bit() -> None:
    start, stop = tc.asarray([0.1, -7.3], dtype="float64"), tc.asarray([0.7, 1e-17], dtype="float64")
    assert tc.linspace(start, stop, 7)[-1].tolist() == stop.tolist()


def test_linspace_refuses_an_axis_that_is_not_there() -> None:
    with pytest.raises(IndexError, match="axis 2 is out of bounds for a result of 2 dimensions"):
        tc.linspace(tc.zeros(3), 1.0, 4, axis=2)
    with pytest.raises(IndexError, match="axis 1"):
        tc.linspace(0.0, 1.0, 4, axis=1)


# -- what a table does not say


def test_an_empty_list_picks_nothing() -> None:
    t = tc.asarray(A)
    assert t[[]].shape == (0, 4)
    assert t[:, []].shape == (3, 0)
    assert t[[], :2].shape == (0, 2)


def test_eigenvectors_from_the_upper_triangle() -> None:
    a = A @ A.T
    lower = np.where(np.tri(3, k=-1) > 0, 99.0, a)  # what must not be looked at
    values, vectors = np.linalg.eigh(tc.asarray(lower), UPLO="U")
    np.testing.assert_allclose(values, np.linalg.eigh(lower, UPLO="U")[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(a @ vectors.numpy(), vectors.numpy() * values.numpy(), atol=1e-12)


def test_a_partition_has_its_element_in_place() -> None:
    found = np.partition(tc.asarray(V), 2).numpy()
    assert found[2] == np.sort(V)[2]
    assert (found[:2] <= found[2]).all()
    assert (found[3:] >= found[2]).all()
    tc.testing.check_grads(lambda x: np.partition(x, 1, axis=0), (tc.asarray(A),))


def test_a_piecewise_function_has_the_derivatives_of_its_pieces() -> None:
    def f(x: Any) -> Any:
        return np.piecewise(x, [x < 0, x >= 1], [lambda v: v**2, np.exp, 0.5])

    x = np.asarray([-2.0, 0.5, 1.5])
    np.testing.assert_allclose(f(tc.asarray(x)), f(x))
    np.testing.assert_allclose(tc.grad(lambda x: tc.sum(f(x)))(tc.asarray(x)), [-4.0, 0.0, np.exp(1.5)])
    assert np.piecewise(tc.asarray(INTS), [tc.asarray(INTS) > 0], [1.7]).dtype == np.int64


def test_arrays_beside_none_are_broadcast() -> None:
    x, none, word, y = np.broadcast_arrays(tc.asarray(A), None, "//", 2.0)
    assert (none.shape, word.shape) == (A.shape, A.shape)
    np.testing.assert_array_equal(x, A)
    np.testing.assert_array_equal(y, np.full(A.shape, 2.0))


def test_python_rounds_and_divides_tensors() -> None:
    t = tc.asarray([1.234, -2.345])
    np.testing.assert_allclose(round(t, 2), np.round(t.numpy(), 2), rtol=1e-6)
    np.testing.assert_allclose(round(t), np.round([1.234, -2.345]))
    for found, expected in zip(divmod(t, 2), divmod(t.numpy(), 2), strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(divmod(5, t), divmod(5, t.numpy()), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_cube_root_is_exact_for_cubes_and_has_a_derivative_for_negative_numbers() -> None:
    x = np.asarray([-27.0, -1e-300, 0.0, 8.0, 1e300, np.inf, np.nan])
    np.testing.assert_allclose(np.cbrt(tc.asarray(x)), np.cbrt(x), rtol=1e-15)
    np.testing.assert_allclose(tc.grad(lambda x: np.cbrt(x))(tc.asarray(-27.0, dtype="float64")), 1 / 27, rtol=1e-13)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda t: np.mean(t[0, 0], axis=0), IndexError),
        (lambda t: np.std(t * 1j, dtype=np.float32), TypeError),
        (lambda t: np.var(t, dtype="i8"), TypeError),
        (lambda t: np.cumsum(t, axis=(0,)), TypeError),
        (lambda t: np.triu(t, 1.5), TypeError),
        (lambda t: np.nanstd(t, dtype="i8"), TypeError),
        (lambda t: np.nanmean(t * 1j, dtype="f4"), TypeError),
        (lambda t: np.fabs(t * 1j), TypeError),
        (lambda t: np.linalg.qr(t, mode="raw"), ValueError),
        (lambda t: np.quantile(t, 0.5, method="closest"), ValueError),
    ],
    ids=range(10),
)
def test_what_numpy_refuses_is_refused(function: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        function(tc.asarray(A))


def test_dtypes_are_those_of_numpy() -> None:
    t = tc.asarray([1.0, 2.0])
    assert t.dtype == np.float32
    assert t.dtype == np.dtype("float32")
    assert np.float32 == t.dtype
    assert t.dtype == "float32"
    assert t.dtype != np.float64
    assert t.dtype != float
    assert t.dtype.type is np.float32
    assert tc.asarray([True]).dtype == np.bool_
    assert t.dtype in (np.float64, np.float32)
    assert {t.dtype: 1}[tc.float32] == 1


def test_an_axis_that_is_not_there_is_refused_by_name() -> None:
    t = tc.asarray(A)
    calls: list[Callable[[], Any]] = [
        lambda: tc.moveaxis(t, 2, 0),
        lambda: tc.moveaxis(t, 0, -3),
        lambda: np.moveaxis(t, 0, 2),
        lambda: tc.tensordot(t, t, axes=([2], [0])),
        lambda: np.median(t, axis=2),
        lambda: np.quantile(t, 0.5, axis=-3),
        lambda: np.expand_dims(t, 4),
        lambda: np.average(t[0, 0], axis=0),
        lambda: np.gradient(t, axis=2),
        lambda: np.insert(t, 0, 1.0, axis=2),
    ]
    for call_it in calls:
        with pytest.raises((IndexError, ValueError), match="axis"):
            call_it()
    with pytest.raises(ValueError, match=r"quantiles must be in \[0, 1\]"):
        np.quantile(t, 1.5)
