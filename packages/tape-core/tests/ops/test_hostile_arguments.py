"""Arguments that no call should be given: what the fuzzer of hostile calls found, one test for each kind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

X = np.arange(6.0).reshape(3, 2)


@pytest.fixture(autouse=True)
def numpy_backend() -> Any:
    with tc.use_backend("numpy"):
        yield


_NUMBERS = itertools.count()


def numbered(f: Any) -> str:
    return str(next(_NUMBERS))


def refusal(function: Callable[..., Any], *args: Any) -> tuple[type[Exception], str]:
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        function(*args)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("name", ["add", "multiply", "min", "max", "set"])
@pytest.mark.parametrize("index", [[0.5, 1.9], [2**63 - 1], [-(2**63)], [3], [-4]])
def test_an_update_refuses_indices_that_are_no_integers_or_out_of_range(name: str, index: list[float]) -> None:
    for x in (X, np.zeros((3, 0))):
        kind, _ = refusal(lambda i, x=x: getattr(tc.at(tc.asarray(x))[i], name)(5.0), tc.asarray(np.asarray(index)))
        assert issubclass(kind, IndexError)


def test_broadcasting_leaves_out_no_dimension() -> None:
    assert refusal(tc.broadcast_to, tc.ones((1, 1, 3)), (3,))[0] is ValueError


@pytest.mark.parametrize("small", [1e-7, 1e-8])
def test_the_bound_of_pinv_is_that_of_the_standard_however_it_is_called(small: float) -> None:
    x = np.eye(3, dtype=np.float32)
    x[2, 2] = small
    expected = np.linalg.pinv(x, rtol=None)
    for found in (tc.linalg.pinv(tc.asarray(x)), tc.vmap(tc.linalg.pinv)(tc.asarray(x[None]))[0]):
        np.testing.assert_allclose(found.numpy(), expected)
    assert tc.linalg.pinv(tc.asarray(np.eye(2, dtype=np.int64))).numpy().tolist() == [[1, 0], [0, 1]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("z", [complex(np.inf, 0), complex(-0.0, -0.0), complex(0, -np.inf), complex(np.nan, 1)])
@pytest.mark.parametrize(
    "f", [lambda z: z * 1.0, lambda z: z / 1, lambda z: 1 * z, lambda z: z - 0, lambda z: z**1], ids=numbered
)
def test_complex_products_with_one_are_as_they_are_eagerly(z: complex, f: Callable[[Any], Any]) -> None:
    x = tc.asarray(np.asarray([z, 1 + 1j]))
    compiled = tc.function(f)
    for _ in range(3):
        parts = [out.numpy().view(np.float64) for out in (compiled(x), f(x))]
        found, expected = [np.where(np.isnan(p), np.nan, p).tobytes() for p in parts]
        assert found == expected


def test_vmap_refuses_what_one_example_does() -> None:
    x = tc.ones((2, 3, 4))
    for f in (
        tc.logcumsumexp,
        lambda a: tc.max(a, axis=0.0),
        lambda a: tc.expand_dims(a, axis=0.5),
        lambda a: tc.take(a, tc.asarray([0]), axis=np.float32(1)),
        lambda a: tc.linalg.solve(a, 0),
        lambda a: tc.linalg.matrix_rank(a[0]),
    ):
        refusal(f, x[0])
        refusal(tc.vmap(f), x)


GOOD, BAD = tc.asarray([0, 1], backend="numpy"), tc.asarray([0, 9], backend="numpy")


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: x[i, 1],
        lambda x, i: tc.at(x)[i].get(),
        lambda x, i: tc.at(x)[:, i].add(1.0),
        lambda x, i: tc.at(x)[i, [0, 1]].set(x[:2, 0]),
    ],
    ids=numbered,
)
def test_errors_say_the_same_however_the_op_is_called_and_nothing_of_traces_and_batches(f: Any) -> None:
    x = tc.asarray(X)
    eager = refusal(f, x, BAD)
    fresh, traced = tc.function(f), tc.function(f)
    traced(x, GOOD)
    traced(x, GOOD)
    batched = refusal(tc.vmap(f, in_axes=(None, 0)), x, tc.stack([GOOD, BAD]))
    assert refusal(fresh, x, BAD) == refusal(traced, x, BAD) == eager
    assert batched[0] is eager[0]
    for text in (eager[1], batched[1]):
        assert "int64[2]" in text
        assert "Array(" not in text


@pytest.mark.parametrize(
    "f",
    [
        lambda: tc.matrix_transpose(tc.sum(tc.asarray(X))),
        lambda: tc.diff(-1.5),
        lambda: tc.linalg.matrix_norm(1e-3),
        lambda: tc.trapezoid(2, tc.asarray(X)),
        lambda: tc.take_along_axis(2, tc.asarray([[1]]), axis=0),
        lambda: tc.split(tc.asarray(1.0), 3, axis=1),
        lambda: tc.moveaxis(1, 0, 1),
        lambda: tc.tensordot(tc.asarray(X), 2.0, axes=1),
        lambda: tc.tensordot(tc.asarray(X), tc.asarray(X), axes=(0,)),
        lambda: tc.expand_dims(tc.asarray(X), axis=tc.asarray(0.5)),
        lambda: tc.stats.norm.logpdf(tc.asarray(X), tc.float32),
        lambda: tc.special.multigammaln(tc.asarray(3.0), 2**70),
    ],
    ids=numbered,
)
def test_numbers_in_the_place_of_arrays_are_refused_or_have_no_dimensions(f: Callable[[], Any]) -> None:
    refusal(f)
    refusal(tc.function(lambda x: (f(), x)[1]), tc.ones(2))


def test_a_tensor_for_an_integer_parameter_is_a_constant_of_a_compiled_function() -> None:
    x = tc.asarray(X)
    f = tc.function(lambda x: tc.fft.fft(x, n=tc.asarray(1)))
    for _ in range(3):
        assert f(x).shape == (3, 1)
    g = tc.function(lambda x: tc.max(x, axis=tc.asarray(1)))
    for _ in range(3):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = g(x)
        assert tape.gradient(y, x).tolist() == [[0, 1]] * 3
