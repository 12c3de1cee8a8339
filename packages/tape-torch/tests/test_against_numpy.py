"""Programs give the same results on NumPy and on PyTorch: dtypes, shapes, values up to rounding, and errors."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn

Program = Callable[[], Any]
PROGRAMS: list[Program] = []
DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
REAL = DTYPES[1:9]
ROUNDING = {"float16": 4e-3, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-11, "complex128": 1e-11}


def program(function: Program) -> Program:
    """Decorator: register a program that is run on both backends."""
    PROGRAMS.append(function)
    return function


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function, or the name of the exception that it raises."""
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever it is, both must raise it
        kinds = [kind.__name__ for kind in (TypeError, ValueError, IndexError) if isinstance(error, kind)]
        return f"raises {kinds}"


def gradients(function: Callable[..., Any], *values: Any) -> Any:
    """Return the result and the gradients with respect to all values."""
    with tc.GradientTape() as tape:
        tape.watch(values)
        y = function(*values)
    return y, tape.gradient(y, values)


def some(shape: Any, dtype: str = "float32", seed: int = 0) -> Any:
    """Return random numbers."""
    values = tc.default_rng(seed).uniform(shape, low=-2.0, high=2.0, dtype="float64")
    if dtype.startswith("complex"):
        values = values + 1j * tc.default_rng(seed + 1).uniform(shape, low=-2.0, high=2.0, dtype="float64")
    if dtype.startswith("uint"):
        values = abs(values)
    return tc.astype(values * (3 if "int" in dtype else 1), dtype)


@program
def losses_with_python_scalars() -> Any:
    def loss(w: Any, b: Any) -> Any:
        x, y = tc.asarray([[1.0, 2.0], [3.0, 4.0]]), tc.asarray([1, 0])
        p = tc.sigmoid(x @ w + b)
        return -tc.mean(y * tc.log(p + 1e-7) + (1 - y) * tc.log(1 - p + 1e-7)) + 0.5 * tc.sum(w**2) / 3

    return gradients(loss, tc.asarray([0.1, -0.2]), tc.asarray(0.3))


@program
def scalars_are_weak() -> Any:
    def combine(f: Any, x: Any, scalar: Any) -> Any:
        return [outcome(f, x, scalar), outcome(f, scalar, x)]

    found = []
    for dtype in DTYPES:
        for shape in ((), (2,)):
            x = tc.ones(shape, dtype=dtype)
            functions = (operator.add, operator.mul, operator.truediv)
            found += [combine(f, x, scalar) for scalar in (True, 2, 2.5, 1j) for f in functions]
    return found


@program
def arrays_of_two_dtypes() -> Any:
    return [
        [outcome(f, tc.ones(shape1, dtype=a), tc.ones(shape2, dtype=b)) for f in (operator.add, operator.mul)]
        for a in DTYPES
        for b in DTYPES
        for shape1, shape2 in (((), ()), ((), (2,)), ((2,), ()), ((2,), (2,)))
    ]


@program
def gradients_of_mixed_dtypes() -> Any:
    x, y = some((3,), "float32"), some((), "float64", 1)
    n = tc.asarray([1, 2, 3])
    return gradients(lambda x, y: tc.sum(x * y + n * x - n / y), x, y)


@program
def boolean_arithmetic() -> Any:
    a, b = tc.asarray([True, True, False]), tc.asarray([True, False, False])
    operations = [operator.add, operator.mul, operator.sub, operator.and_, operator.or_, operator.xor, operator.eq]
    return [outcome(f, a, b) for f in operations] + [
        ~a,
        tc.sum(a),
        tc.mean(tc.astype(a, "float32")),
        outcome(lambda: -a),
    ]


@program
def reductions_of_each_dtype() -> Any:
    functions = [tc.sum, tc.prod, tc.mean, tc.max, tc.min, tc.var, tc.std, tc.any, tc.all, tc.argmax, tc.count_nonzero]
    found = []
    for f in functions:
        for dtype in REAL if f not in (tc.sum, tc.prod, tc.argmax) else REAL[2:]:
            x = some((2, 3), dtype)
            found.append([f(x), f(x, axis=0, keepdims=True), f(some((), dtype))])
    return found


@program
def reductions_of_nothing() -> Any:
    functions = [tc.sum, tc.prod, tc.max, tc.any, tc.all, tc.argmax, tc.count_nonzero]
    shapes = [(0,), (0, 3), (2, 0)]
    return [[outcome(f, tc.ones(s)), outcome(f, tc.ones(s), axis=-1)] for f in functions for s in shapes]


@program
def axes_out_of_range() -> Any:
    functions = [tc.sum, tc.max, tc.softmax, tc.sort, tc.cumulative_sum, tc.argmax, tc.flip, tc.expand_dims, tc.std]
    return [[outcome(f, x, axis=a) for a in (2, -3, 5)] for f in functions for x in (tc.ones((2,)), tc.ones(()))]


@program
def reductions_of_no_axes_and_of_0d_arrays() -> Any:
    return [
        [outcome(f, tc.ones(()), axis=0), outcome(f, tc.ones((2, 2)), axis=())]
        for f in (tc.sum, tc.max, tc.mean, tc.var)
    ]


@program
def division_of_integers() -> Any:
    a, b = tc.asarray([7, -7, 7, -7, 0]), tc.asarray([2, 2, -2, -2, 5])
    return [
        [f(a, b), f(a, 3), f(10, b), f(tc.astype(a, "float32"), 3)]
        for f in (operator.truediv, operator.floordiv, operator.mod)
    ]


@program
def remainders_of_floats() -> Any:
    a = tc.asarray([5.5, -5.5, 0.0, float("inf"), 3.0])
    return [[f(a, b) for b in (2.0, -2.0, 0.0, float("inf"))] for f in (operator.floordiv, operator.mod)]


@program
def powers() -> Any:
    x, n = tc.asarray([-2.0, 0.0, 0.5, 3.0]), tc.asarray([3, 0, 2, -1])
    return [
        x**2,
        x**0,
        x**-1,
        x**0.5,
        2**x,
        x**n,
        tc.asarray([2, 3]) ** 2,
        tc.asarray([2, 3]) ** tc.asarray([1.5, 2.0]),
        gradients(lambda x: tc.sum(x**3 - 2**x), x),
    ]


@program
def comparisons() -> Any:
    a, b = tc.asarray([1, 2, 3]), tc.asarray([1.0, 2.5, float("nan")])
    operations = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
    return [[f(a, b), f(a, 2), f(2.5, a), f(b, b)] for f in operations]


@program
def integers_that_wrap_around() -> Any:
    a = tc.asarray([100, 127, -128], dtype="int8")
    b = tc.asarray([200, 255, 0], dtype="uint8")
    return [a + a, a * a, -a, abs(a), b + b, b - 1, ~b, a << 1, a >> 1, outcome(operator.add, b, 300)]


@program
def indexing() -> Any:
    x = tc.reshape(tc.arange(24.0), (2, 3, 4))
    i, mask = tc.asarray([1, 0, -1]), tc.asarray([[True, False, True], [False, True, False]])
    keys = [
        0,
        -1,
        (0, 1, 2),
        slice(None, None, -1),
        (..., slice(3, 0, -2)),
        None,
        (slice(None), None, 1),
        ...,
        (),
        i,
        (0, i),
        (slice(None), i, 0),
        (i[:2], slice(None), i[:2]),
        mask,
        mask[0:1, :][0:0],
        (1, mask[0]),
        tc.asarray(True),
        (slice(0, 0),),
        [0, 1],
        [[0], [1]],
        (tc.asarray([0, 1]), tc.asarray([[0], [2]])),
        np.asarray([1]),
        5,
        (0, 3),
        (0, 0, 0, 0),
        1.0,
        tc.asarray([2]),
        tc.asarray([1], dtype="uint8"),
        tc.asarray([1], dtype="int32"),
        "a",
        tc.asarray(1),
    ]
    return [[outcome(lambda k=k: x[k]), outcome(lambda k=k: gradients(lambda x: tc.sum(x[k] ** 2), x))] for k in keys]


@program
def assignment() -> Any:
    found = []
    i, mask = tc.asarray([1, 0, 1]), tc.asarray([True, False, True])
    for key, value in [
        (0, 9.0),
        (slice(None, None, -1), tc.asarray([1.0, 2.0, 3.0])),
        (i, tc.asarray([5.0, 6.0, 7.0])),
        (mask, 0.0),
        (mask, tc.asarray([1.0, 2.0])),
        (slice(1), [4.0]),
        (4, 1.0),
        (slice(2), tc.ones((3,))),
        (0, 1j),
        (0, True),
        (i, 2),
        (0, tc.asarray(7, dtype="int32")),
        (0, tc.asarray(7.0, dtype="float64")),
        (mask, tc.ones((3,))),
    ]:

        def change(key: Any = key, value: Any = value) -> Any:
            x = tc.asarray([1.0, 2.0, 3.0])
            x[key] = value
            return x

        found.append(
            [
                outcome(change),
                outcome(lambda k=key, v=value: tc.at(tc.asarray([1.0, 2.0, 3.0]))[k].set(v)),
                outcome(lambda k=key, v=value: tc.at(tc.asarray([1.0, 2.0, 3.0]))[k].add(v)),
            ]
        )
    return found


@program
def in_place_operators() -> Any:
    found = []
    for dtype in ("int64", "float32", "bool"):
        for value in (2, 1.5, True, tc.asarray([1.0, 2.0], dtype="float64"), tc.asarray([[1.0], [2.0]])):
            for f in (operator.iadd, operator.imul, operator.itruediv, operator.ipow, operator.ifloordiv):
                x = tc.ones((2,), dtype=dtype)
                found.append(outcome(f, x, value))
    return found


@program
def sorting() -> Any:
    x = tc.asarray([3.0, 1.0, 2.0, 1.0, 3.0, float("nan"), -1.0, 2.0])
    n = tc.asarray([[3, 1, 3, 1], [2, 2, 1, 1]])
    return [
        [f(a, descending=d, stable=True) for d in (False, True)] for f in (tc.sort, tc.argsort) for a in (x, n, n > 1)
    ] + [
        gradients(lambda x: tc.sum(tc.sort(x, descending=True) * tc.arange(8.0)), tc.where(tc.isnan(x), 0.0, x)),
        tuple(tc.top_k(n, 2)),
        tuple(tc.top_k(n, 2, largest=False)),
        tc.sort(n, axis=0),
    ]


@program
def ties() -> Any:
    x = tc.asarray([1.0, 3.0, 3.0, 2.0])
    return [
        gradients(f, x)
        for f in (
            tc.max,
            tc.min,
            lambda x: tc.max(x * 0.0),
            lambda x: tc.sum(tc.maximum(x, 3.0)),
            lambda x: tc.sum(tc.relu(x - 3.0)),
            lambda x: tc.sum(tc.clip(x, 2.0, 3.0)),
            lambda x: tc.sum(abs(x - 3.0)),
            lambda x: tc.linalg.vector_norm(x * 0.0),
        )
    ] + [tc.argmax(x), tc.argmin(x - x)]


@program
def numbers_that_are_not() -> Any:
    x = tc.asarray([1.0, float("nan"), float("inf"), -float("inf"), 0.0])
    functions = [
        tc.sum,
        tc.max,
        tc.min,
        tc.argmax,
        tc.argmin,
        tc.sort,
        tc.sign,
        tc.sqrt,
        tc.log,
        tc.exp,
        tc.isnan,
        tc.any,
        tc.softmax,
        tc.logsumexp,
        tc.relu,
        tc.round,
        tc.cumulative_sum,
        tc.unique_values,
        tc.count_nonzero,
        tc.tanh,
        tc.sigmoid,
    ]
    return [f(x) for f in functions] + [
        tc.maximum(x, 1.0),
        tc.minimum(x, 1.0),
        tc.clip(x, 0.0, 1.0),
        1.0 / x,
        x * 0.0,
        tc.hypot(x, 1.0),
    ]


@program
def casts() -> Any:
    x = tc.asarray([1.7, -1.7, 0.0])
    return [
        [tc.astype(x, d) for d in ("int32", "int64", "bool", "float16", "float64", "complex64")],
        outcome(tc.astype, tc.asarray([1j]), "float32"),
        tc.round(tc.asarray([0.5, 1.5, 2.5, -0.5])),
        tc.result_type(x, 1j).name,
        tc.can_cast("int32", "float32"),
    ]


@program
def functions_of_each_dtype() -> Any:
    exact = [tc.abs, tc.sign, tc.square, tc.floor, tc.round, tc.isnan, tc.isfinite, tc.negative, tc.positive, tc.trunc]
    exact += [tc.logical_not, tc.cumulative_sum, tc.sort, tc.relu, tc.max]
    rounded = [tc.exp, tc.sqrt, tc.sin, tc.log1p, tc.tanh, tc.expm1]
    smooth = [tc.sigmoid, tc.softmax, tc.reciprocal, tc.gelu, tc.erf, tc.gammaln, tc.logsumexp, tc.softplus]
    return [
        [f(abs(some((3,), d))) for f in functions for d in dtypes]
        for functions, dtypes in (
            (exact, ("int32", "int64", "float16", "float32", "float64")),
            (rounded, ("int32", "int64", "float16", "float32", "float64", "complex64", "complex128")),
            (smooth, ("float16", "float32", "float64")),
        )
    ]


@program
def scatters_and_segments() -> Any:
    x, i = some((5, 2)), tc.asarray([2, 0, 2, 1, 0])
    functions = [tc.segment_sum, tc.segment_mean, tc.segment_max, tc.segment_min, tc.segment_prod]
    return [
        [f(x, i), f(x, i, 4), outcome(f, x, i, 2), gradients(lambda x, f=f: tc.sum(f(x, i) ** 2), x)] for f in functions
    ] + [
        tc.at(tc.zeros((3, 2)))[i].add(x),
        tc.at(tc.ones((3, 2)))[i].multiply(x),
        tc.at(tc.zeros((3, 2)))[i].max(x),
        tc.at(tc.zeros(3, dtype="int64"))[i].add(1),
    ]


@program
def linear_algebra() -> Any:
    a = some((3, 3), "float64")
    s, b = a @ a.mT + 2 * tc.eye(3, dtype="float64"), some((3, 2), "float64", 5)
    la = tc.linalg
    return [
        la.inv(s),
        la.det(a),
        tuple(la.slogdet(a)),
        la.solve(s, b),
        la.cholesky(s),
        la.cholesky(s, upper=True),
        la.eigvalsh(s),
        la.svdvals(a),
        abs(la.qr(a).R),
        la.pinv(b),
        la.matrix_rank(a),
        la.trace(a),
        la.diagonal(a, offset=1),
        la.cross(a, s),
        la.expm(a),
        la.matrix_power(a, 3),
        la.matrix_norm(a),
        la.vector_norm(a, ord=1, axis=0),
        la.vecdot(a, s),
        la.tensordot(a, s, axes=1),
        tc.kron(a, b),
        tc.tril(a),
        la.lu_factor(a),
        gradients(lambda s: la.slogdet(s).logabsdet + tc.sum(la.inv(s)), s),
        outcome(la.inv, b),
        outcome(la.cholesky, -s),
        outcome(la.inv, a * 0),
        outcome(la.inv, tc.ones((2, 2), dtype="int64")),
        outcome(la.solve, s, b[:2]),
        outcome(tc.matmul, a, b[:2]),
        outcome(la.eigh, s[0]),
    ]


@program
def fourier_transforms() -> Any:
    x, z = some((2, 6)), some((6,), "complex64")
    fft = tc.fft
    return [
        fft.fft(x),
        fft.ifft(z),
        fft.rfft(x, n=4),
        fft.irfft(z),
        fft.fftn(x),
        fft.rfftn(x, axes=(0,)),
        fft.irfftn(x + 0j),
        fft.hfft(z),
        fft.ihfft(x),
        fft.fftshift(x),
        fft.fftfreq(5, d=0.5),
        fft.rfft(x, norm="ortho"),
        fft.fft(tc.astype(x, "float64")),
        gradients(lambda x: tc.sum(abs(fft.rfft(x)) ** 2), x),
        outcome(fft.rfft, z),
        outcome(fft.fft, tc.asarray([1, 2, 3])),
    ]


@program
def random_numbers() -> Any:
    rng = tc.default_rng(7)
    x = tc.ones((4, 4))
    return [
        rng.uniform((3,)),
        rng.normal((2, 2), dtype="float64"),
        rng.integers(0, 9, (5,)),
        rng.permutation(6),
        tc.dropout(x, 0.4, rng=rng),
    ]


@program
def classes_and_losses() -> Any:
    logits, labels = some((4, 3)), tc.asarray([0, 2, 1, 1])
    return [
        tc.one_hot(labels, 3),
        tc.one_hot(labels, 3, dtype="int32", axis=0),
        tc.cross_entropy(logits, labels),
        gradients(lambda x: tc.mean(tc.cross_entropy(x, labels)), logits),
        outcome(tc.cross_entropy, logits, labels + 1),
        outcome(tc.cross_entropy, logits, labels[:2]),
        outcome(tc.cross_entropy, logits, tc.astype(labels, "float32")),
        tc.cross_entropy(logits, tc.astype(labels, "uint8")),
        tc.one_hot(tc.asarray([5, -1]), 3),
        tc.softmax(logits, axis=0),
        tc.log_softmax(logits),
        tc.logsumexp(logits),
    ]


@program
def convolutions_and_pools() -> Any:
    x, w = some((2, 5, 5, 2)), some((3, 3, 2, 4), seed=3)

    def network(x: Any, w: Any) -> Any:
        h = tc.max_pool(tc.relu(tc.conv(x, w, padding="same")), 2)
        return tc.mean(tc.avg_pool(h, 2) ** 2)

    return [
        tc.conv(x, w),
        tc.conv(x, w, stride=2, padding="same"),
        tc.conv(x, w, padding=((1, 2), 0), dilation=2 - 1),
        gradients(network, x, w),
        tc.conv_transpose(tc.conv(x, w), w),
        tc.max_pool(x, 3, stride=1, padding="same"),
        tc.avg_pool(x, (2, 3), padding="same"),
        outcome(tc.conv, x, w[:, :, :1]),
        outcome(tc.conv, x, w, stride=0),
        tc.sliding_windows(x, 2, axis=1),
        tc.pad(x, 1, "reflect"),
    ]


@program
def normalisation_and_attention() -> Any:
    x, q = some((4, 6)), some((2, 3, 4), seed=2)
    mask = tc.tril(tc.ones((3, 3), dtype="bool"))
    return [
        tc.layer_norm(x),
        tc.rms_norm(x, tc.ones((6,))),
        tuple(tc.batch_norm(x)),
        tc.group_norm(x, groups=3),
        gradients(lambda x: tc.sum(tc.layer_norm(x) ** 3), x),
        gradients(lambda q: tc.sum(tc.scaled_dot_product_attention(q, q, q, mask) ** 2), q),
        tc.scaled_dot_product_attention(q, q, q, is_causal=True),
    ]


@program
def einsums() -> Any:
    a, b = some((2, 3)), some((3, 4), seed=1)
    return [
        tc.einsum("ij,jk->ik", a, b),
        tc.einsum("ij->j", a),
        tc.einsum("ii->i", b[:, :3]),
        tc.einsum("...j,j->...", a, b[:, 0]),
        gradients(lambda a, b: tc.sum(tc.einsum("ij,jk->ki", a, b) ** 2), a, b),
        outcome(tc.einsum, "ij,jk->ik", a, a),
        tc.einsum("ij,ij->", a, tc.astype(a, "float64")),
    ]


@program
def making_arrays() -> Any:
    given = [
        1,
        1.5,
        True,
        2j,
        [1, 2],
        [1, 2.5],
        [True, False],
        [1j, 2],
        [],
        [[]],
        [[1, 2], [3, 4]],
        np.float32(2),
        np.ones(2),
        np.arange(3, dtype="int16"),
        np.ones((2, 2))[::-1],
        np.float64(1),
        np.ones(2, "float16"),
        [np.float64(1), 2],
        [[1], [2, 3]],
        "text",
        [1, None],
        2**40,
        np.ones(2, ">f4"),
        np.ones(2, "uint16"),
    ]
    return (
        [outcome(tc.asarray, v) for v in given]
        + [outcome(tc.asarray, v, dtype="float64") for v in given]
        + [
            tc.arange(5),
            tc.arange(0, 1, 0.25),
            tc.arange(5, 0, -2),
            tc.linspace(0, 1, 5),
            tc.linspace(0, 1, 4, endpoint=False),
            tc.full((2,), 3),
            tc.full((2,), 1.5),
            tc.full((2,), True),
            tc.eye(2, 3, k=1),
            tc.zeros(3),
            tc.zeros((2,), dtype="int32"),
            tc.ones_like(tc.asarray([1])),
            tc.full_like(tc.ones((2,)), 2),
            tc.empty((0, 2)),
            tc.meshgrid(tc.arange(2), tc.arange(3)),
            tc.asarray(tc.asarray([1.0, 2.0]), dtype="int32"),
        ]
    )


@program
def shapes() -> Any:
    x = tc.reshape(tc.arange(6), (2, 3))
    return [
        x.T,
        x.mT,
        tc.flip(x),
        tc.roll(x, 1),
        tc.roll(x, (1, 2), axis=(0, 1)),
        tc.tile(x, (2, 1)),
        tc.repeat(x, 2, axis=1),
        tc.stack([x, x], axis=-1),
        tc.concat([x, x * 1.5]),
        tc.concat([x, x], axis=None),
        tc.squeeze(x[None], axis=0),
        tc.unstack(x),
        tc.split(x, 3, axis=1),
        tc.moveaxis(x, 0, 1),
        tc.broadcast_to(x, (2, 2, 3)),
        tc.diff(x),
        outcome(tc.reshape, x, (4,)),
        outcome(tc.squeeze, x, axis=0),
        outcome(tc.concat, [x, x[0]]),
        outcome(tc.broadcast_to, x, (3, 2)),
        outcome(tc.stack, [x, x[0]]),
        outcome(tc.permute_dims, x, (0, 0)),
        outcome(operator.add, x, tc.ones((2, 2))),
        tc.searchsorted(tc.asarray([1, 3, 5]), x),
        tuple(tc.unique_counts(x % 2)),
        tuple(tc.unique_inverse(x % 2)),
        tc.nonzero(x),
        tc.where(x > 2, x, 0.5),
        tc.isin(x, tc.asarray([1, 9])),
        tc.take(x, tc.asarray([2, 0], dtype="int32"), axis=1),
        outcome(tc.take, x, tc.asarray([3]), axis=1),
    ]


@program
def complex_numbers() -> Any:
    z = some((3,), "complex64")
    return [
        abs(z),
        z * z.conj() if hasattr(z, "conj") else z * tc.conj(z),
        tc.real(z),
        tc.imag(z),
        z**2,
        tc.exp(z),
        1 / z,
        tc.sqrt(z),
        z + 1,
        z * 1.5,
        tc.sum(z),
        tc.mean(z),
        tc.prod(z),
        gradients(lambda z: tc.sum(abs(z) ** 2), z),
        gradients(lambda z: tc.sum(z * z), z),
        outcome(tc.max, z),
        outcome(operator.lt, z, z),
        outcome(tc.sort, z),
        tc.var(z),
        tc.imag(tc.ones((2,))),
        tc.sign(z),
    ]


@program
def half_precision() -> Any:
    x = some((3, 4), "float16")
    return [
        x + 1,
        x @ x.mT,
        tc.exp(x),
        tc.sum(x),
        tc.mean(x, axis=0),
        tc.softmax(x),
        tc.layer_norm(x),
        x * tc.ones((), dtype="float32"),
        gradients(lambda x: tc.sum(tc.tanh(x) ** 2), x),
    ]


@program
def sparse_gradients() -> Any:
    table = tc.Variable(some((5, 2)))
    optimizers = [tape_nn.SGD(0.1), tape_nn.SGD(0.1, momentum=0.9), tape_nn.Adam(0.1)]
    found = []
    for optimizer in optimizers:
        with tc.GradientTape() as tape:
            loss = tc.sum(tc.gather(table, tc.asarray([3, 0, 3])) ** 2)
        gradient = tape.gradient(loss, table)
        found += [type(gradient).__name__, gradient.values, gradient.indices, gradient.densify()]
        optimizer.apply_gradients([(gradient, table)])
        found.append(table + 0)
    return found


@program
def second_derivatives() -> Any:
    x = some((4,), "float64")
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = tc.sum(tc.sin(x) * tc.exp(x) / (1 + x**2)) + tc.logsumexp(x[::-1]) * tc.prod(x)
        g = inner.gradient(y, x)
        h = tc.sum(g**2)
    return y, g, outer.gradient(h, x)


@program
def training() -> Any:
    tc.set_seed(3)
    model = tape_nn.Sequential([tape_nn.Dense(8, activation=tc.tanh), tape_nn.Dense(1)])
    x = some((16, 2))
    y, optimizer, losses = tc.sum(x, axis=1, keepdims=True), tape_nn.Adam(0.02), []
    for _ in range(5):
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(loss)
    return losses, [v + 0 for v in model.trainable_variables]


@program
def variables() -> Any:
    v = tc.Variable([1.0, 2.0])
    v.assign_add([1, 1])
    v.assign(v * 2)
    return [
        v + 0,
        outcome(v.assign, [1.0, 2.0, 3.0]),
        str(v.dtype),
        tc.Variable(3) + 0,
        tc.Variable(np.ones(2)) + 0,
        tc.Variable([True]) & True,
    ]


@program
def pickles_and_prints() -> Any:
    x = tc.asarray([[1.0, 2.5], [-3.0, 1e-8]])
    values = [
        x,
        x > 0,
        tc.arange(3),
        x[0, 0],
        tc.asarray([1 + 2j]),
        tc.zeros((0, 2)),
        tc.ones((200,)),
        tc.asarray([float("nan"), 1e20]),
    ]
    return (
        [pickle.loads(pickle.dumps(v)) for v in values]
        + [repr(v).replace("torch", "numpy").replace(", device=cpu", "") for v in values]
        + [
            f"{x[0, 1]:.3f}",
            float(x[0, 0]),
            x.tolist(),
            len(x),
            bool(x[0, 0] > 0),
            int(tc.asarray(3)),
            outcome(bool, x),
            outcome(float, x),
            outcome(len, x[0, 0]),
            list(x[0]),
            outcome(iter, x[0, 0]),
            operator.index(tc.asarray(3)),
            outcome(operator.index, x[0, 0]),
        ]
    )


NOT_YET = {
    "indexing": "an empty mask of all axes; the class of the error for a string",
}


def _cases() -> list[Any]:
    cases = []
    for function in PROGRAMS:
        reason = NOT_YET.get(function.__name__)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        cases.append(pytest.param(function, id=function.__name__, marks=marks))
    return cases


@pytest.mark.parametrize("function", list(_cases()))
def test_the_same_on_both(function: Program) -> None:
    with tc.use_backend("numpy"), np.errstate(all="ignore"):
        expected = dict(leaves(function()))
    with tc.use_backend("torch"):
        found = dict(leaves(function()))
    differences = [
        f"{at}: {shown(found.get(at))} on PyTorch, {shown(expected.get(at))} on NumPy"
        for at in {**expected, **found}
        if not same(expected.get(at), found.get(at))
    ]
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences[:30])


def leaves(result: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a program's result, with their places in it."""
    if isinstance(result, list | tuple):
        for k, item in enumerate(result):
            yield from leaves(item, f"{at}[{k}]")
    else:
        yield at, result


def shown(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)} {x.tolist()}"[:150] if isinstance(x, tc.Tensor) else repr(x)[:150]


def same(a: Any, b: Any) -> bool:
    """Return whether two results are the same up to rounding."""
    if not isinstance(a, tc.Tensor) or not isinstance(b, tc.Tensor):
        if isinstance(a, str) and isinstance(b, str) and "raises" in a and "raises" in b:
            return any(kind in a and kind in b for kind in ("TypeError", "ValueError", "IndexError")) or a == b
        return type(a) is type(b) and (a == b or (a != a and b != b))
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    x, y = a.numpy(), b.numpy()
    rounding = ROUNDING.get(a.dtype.name, 0)
    finite = np.abs(x[np.isfinite(x)]).max(initial=0) if rounding else 0
    with np.errstate(all="ignore"):
        return bool(np.allclose(x, y, rtol=rounding, atol=rounding * max(1, float(finite)), equal_nan=True))


OUT_OF_BOUNDS = [([[0], [77]], 0), ([[0], [3]], 0), ([[0], [-4]], 0), ([[0, 1, 9]], 0), ([[77]], 1), ([[0, 5, 1]], 1)]


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(("indices", "axis"), OUT_OF_BOUNDS)
def test_take_along_axis_refuses_indices_out_of_bounds(backend: str, indices: Any, axis: int) -> None:
    x = tc.asarray(np.arange(9.0).reshape(3, 3), backend=backend)
    places = tc.asarray(indices, backend=backend)

    def taken(x: Any, places: Any) -> Any:
        return tc.take_along_axis(x, places, axis=axis)

    def slope(x: Any, places: Any) -> Any:
        return tc.grad(lambda x: tc.sum(taken(x, places)))(x)

    bad = next(k for row in indices for k in row if not -3 <= k < 3)
    for program in (taken, slope, tc.function(taken), tc.function(slope)):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for axis {axis} with size 3"):
            program(x, places)


@pytest.mark.parametrize("dtype", ["float32", "uint16", "bool"])
@pytest.mark.parametrize(
    ("shape", "indices", "axis"),
    [((3, 4), [[0], [-1]], 0), ((1, 4), [[0], [0], [-1]], 0), ((3, 1), [[0, -1, 0]], 1), ((2, 3), [[2], [-3]], -1)],
)
def test_take_along_axis_broadcasts_as_numpys(dtype: str, shape: tuple[int, ...], indices: Any, axis: int) -> None:
    x = np.arange(shape[0] * shape[1]).reshape(shape).astype(dtype)
    expected = np.take_along_axis(x, np.asarray(indices), axis)
    found = tc.take_along_axis(tc.asarray(x, backend="torch"), tc.asarray(indices, backend="torch"), axis=axis)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_take_along_axis_refuses_indices_of_other_dimensions() -> None:
    with pytest.raises(ValueError, match="dimensions"):
        tc.take_along_axis(tc.ones((2, 3), backend="torch"), tc.asarray([0], backend="torch"), axis=1)


MASK = np.asarray([True, False, True, True])
BESIDE: list[Any] = [
    lambda t: np.pad(t, 1, constant_values=(5, 6)),
    lambda t: np.pad(t, [[0, 2]], constant_values=np.asarray([3.0, 4.0])),
    lambda t: np.pad(t, 2, mode="linear_ramp", end_values=(5, 7)),
    lambda t: np.compress(MASK, t),
    lambda t: np.extract(MASK, t),
    lambda t: np.piecewise(t, [MASK, ~MASK], [lambda q: q * q, lambda q: -q]),
    lambda t: np.piecewise(t, MASK, [1.0, 2.0]),
]


@pytest.mark.parametrize("program", BESIDE, ids=range(len(BESIDE)))
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_numpys_functions_take_lists_and_masks_beside_tensors_of_any_backend(program: Any, backend: str) -> None:
    a = np.arange(4.0)
    t = tc.asarray(a, backend=backend)
    for run in (program, tc.function(program), lambda t: tc.vmap(program)(t[None])[0]):
        np.testing.assert_array_equal(run(t).numpy(), program(a))


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_numbers_in_the_state_of_a_loop_stand_where_its_tensors_do(backend: str) -> None:
    def doubled(x: Any) -> Any:
        return tc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]

    def summed(x: Any) -> Any:
        return tc.scan(lambda c, r: ((c[0] + 1, c[1] + r * c[1]), None), (0, x[0]), x)[0][1]

    x = tc.asarray([1.0, 2.0], backend=backend)
    for loop in (doubled, summed):
        for program in (loop, tc.grad(lambda x, loop=loop: tc.sum(loop(x)))):
            np.testing.assert_array_equal(tc.function(program)(x).numpy(), program(x).numpy())
    assert tc.function(doubled)(x).tolist() == [8.0, 16.0]


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0), (2, 2)])
def test_repeat_of_unsigned_integers(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    for repeats in (2, np.arange(shape[0])):
        given = repeats if isinstance(repeats, int) else tc.asarray(repeats, backend="torch")
        found = tc.repeat(tc.asarray(x, backend="torch"), given, axis=0)
        assert str(found.dtype) == dtype
        np.testing.assert_array_equal(found.numpy(), np.repeat(x, repeats, axis=0))
