"""Sparse Jacobians and Hessians: the pattern, the colours and the matrix."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st

sparse = pytest.importorskip("scipy.sparse")

Function = Callable[[Any], Any]


def numbers(*shape: int, seed: int = 0) -> Any:
    """Float64 numbers on the backend that is tested, away from 0."""
    values = np.random.default_rng(seed).uniform(0.5, 2.0, shape)
    return tc.reshape(tc.asarray(values.reshape(-1).tolist(), dtype="float64"), shape)


def dense_jacobian(f: Function, x: Any) -> Any:
    y = f(x)
    return tc.jacrev(f)(x).numpy().reshape(math.prod(y.shape), -1)


def pattern_of(f: Function, x: Any) -> list[list[int]]:
    found: list[list[int]] = tc.jacobian_sparsity(f, x).pattern.toarray().astype(int).tolist()
    return found


def constant(*rows: Any) -> Any:
    return tc.asarray(np.asarray(rows, "float64").tolist(), dtype="float64")


def rosenbrock(x: Any) -> Any:
    return tc.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def arrow(x: Any) -> Any:
    return tc.sum(x[0] * x**2)


# -- patterns


BAND = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
DIAGONAL = np.eye(4, dtype=int).tolist()
BLOCKS = np.kron(np.eye(2, dtype=int), np.ones((2, 2), dtype=int)).tolist()

EXACT: dict[str, tuple[Function, tuple[int, ...], Any]] = {
    "elementwise": (lambda x: tc.sin(x) * x + 2.0, (4,), DIAGONAL),
    "constant": (lambda x: tc.zeros(2, dtype="float64"), (2,), [[0, 0], [0, 0]]),
    "cut": (lambda x: tc.stop_gradient(x) + tc.floor(x), (2,), [[0, 0], [0, 0]]),
    "slices": (lambda x: x[1:] - x[:-1] ** 2, (4,), BAND),
    "differences": (lambda x: tc.diff(x), (4,), BAND),
    "reversed": (lambda x: tc.flip(x) * 1.0, (4,), DIAGONAL[::-1]),
    "broadcast": (lambda x: x[:2, None] * x[None, 2:], (4,), [[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]]),
    "transposed": (lambda x: x.T, (2, 2), [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]]),
    "concat": (
        lambda x: tc.concat([x[2:], tc.ones(1, dtype="float64"), x[:1]]),
        (3,),
        [[0, 0, 1], [0, 0, 0], [1, 0, 0]],
    ),
    "stack": (lambda x: tc.stack([x[0], x[1] * x[0]]), (2,), [[1, 0], [1, 1]]),
    "pad": (lambda x: tc.pad(x, 1, constant_values=5.0), (2,), [[0, 0], [1, 0], [0, 1], [0, 0]]),
    "take": (lambda x: tc.take(x, tc.asarray([2, 2, 0])), (3,), [[0, 0, 1], [0, 0, 1], [1, 0, 0]]),
    "gather": (lambda x: tc.gather(x, tc.asarray([2, 0])), (3,), [[0, 0, 1], [1, 0, 0]]),
    "set": (lambda x: tc.at(x)[1].set(x[0]), (3,), [[1, 0, 0], [1, 0, 0], [0, 0, 1]]),
    "add": (lambda x: tc.at(x)[tc.asarray([0, 0])].add(x[1:]), (3,), [[1, 1, 1], [0, 1, 0], [0, 0, 1]]),
    "segments": (lambda x: tc.segment_sum(x, tc.asarray([1, 0, 1]), num_segments=2), (3,), [[0, 1, 0], [1, 0, 1]]),
    "sum": (lambda x: tc.sum(x, axis=1), (2, 2), [[1, 1, 0, 0], [0, 0, 1, 1]]),
    "sum of all": (lambda x: tc.sum(x), (2, 2), [[1, 1, 1, 1]]),
    "mean": (lambda x: tc.mean(x, axis=0), (2, 2), [[1, 0, 1, 0], [0, 1, 0, 1]]),
    "trace": (lambda x: tc.linalg.trace(x), (2, 2), [[1, 0, 0, 1]]),
    "cumulative sum": (lambda x: tc.cumulative_sum(x), (3,), np.tri(3, dtype=int).tolist()),
    "cumulative sum from 0": (
        lambda x: tc.cumulative_sum(x, include_initial=True),
        (2,),
        [[0, 0], [1, 0], [1, 1]],
    ),
    "softmax": (lambda x: tc.softmax(x, axis=-1), (2, 2), BLOCKS),
    "rows of a product": (lambda x: x @ constant([1, 2], [3, 4]), (2, 2), BLOCKS),
    "product": (
        lambda x: tc.reshape(x[:4], (2, 2)) @ x[4:],
        (6,),
        [[1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]],
    ),
    "einsum": (lambda x: tc.einsum("ij,jk->ik", x, constant([1, 2], [3, 4])), (2, 2), BLOCKS),
    "columns of solve": (
        lambda x: tc.linalg.solve(constant([2, 1], [1, 3]), x),
        (2, 2),
        [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]],
    ),
    "inverses": (lambda x: tc.linalg.inv(x[:, None, None] * constant([1, 0], [0, 1]))[:, 0, 0], (2,), [[1, 0], [0, 1]]),
    "conv": (
        lambda x: tc.conv(x[None, :, None], tc.ones((2, 1, 1), dtype="float64"))[0, :, 0],
        (4,),
        BAND,
    ),
    "max_pool": (lambda x: tc.max_pool(x[None, :, None], 2)[0, :, 0], (4,), [[1, 1, 0, 0], [0, 0, 1, 1]]),
    "vmap": (tc.vmap(lambda row: row[0] * row), (2, 2), [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]),
    "checkpoint": (tc.checkpoint(lambda x: x[1:] * x[:-1]), (4,), BAND),
    "gradient": (tc.grad(lambda x: tc.sum(x**3)), (4,), DIAGONAL),
    "forward": (lambda x: tc.jvp(lambda y: y**2, (x,), (x,))[1], (4,), DIAGONAL),
}


@pytest.mark.parametrize("name", EXACT)
def test_patterns(name: str) -> None:
    f, shape, expected = EXACT[name]
    assert pattern_of(f, numbers(*shape)) == expected


@tc.custom_gradient
def doubled_pairs(x: Any) -> Any:
    return x[1:] * x[:-1], lambda g: tc.concat([g * x[1:], g[:1] * 0]) + tc.concat([g[:1] * 0, g * x[:-1]])


def test_a_gradient_of_ones_own_is_looked_into() -> None:
    # Element 0 of the last cotangent appears in both ends: zero times it is an entry.
    assert pattern_of(doubled_pairs, numbers(4)) == [[1, 1, 0, 1], [0, 1, 1, 0], [0, 0, 1, 1]]


def test_values_do_not_matter() -> None:
    zeros = tc.zeros(4, dtype="float64")
    f = lambda x: x[1:] * x[:-1] * zeros[1:]  # noqa: E731
    assert pattern_of(f, zeros) == pattern_of(f, numbers(4)) == BAND


def test_the_path_taken_counts() -> None:
    f = lambda x: x[1:] if x[0] > 1 else x[:-1] * x[1:]  # noqa: E731
    assert pattern_of(f, constant(2, 1, 1)) == [[0, 1, 0], [0, 0, 1]]
    assert pattern_of(f, constant(0, 1, 1)) == [[1, 1, 0], [0, 1, 1]]


def test_a_function_of_all_inputs_takes_little_memory() -> None:
    """Ten thousand elements that depend on all of ten thousand: told apart these would be 10**8 entries."""
    assert tc.jacobian_sparsity(lambda x: tc.sum(tc.softmax(x))[None], numbers(10_000)).nnz == 10_000


# -- random programs


def steps_of(x: Any, y: Any) -> list[Callable[[], Any]]:
    """What a program may do with two vectors."""
    n, m = x.shape[0], min(x.shape[0], y.shape[0])
    a, b = x[:m], y[-m:]
    return [
        lambda: tc.sin(x),
        lambda: x[1:] if n > 2 else x,
        lambda: x[::2],
        lambda: tc.flip(x),
        lambda: tc.roll(x, 1),
        lambda: tc.concat([x, x[:1] ** 2]),
        lambda: tc.cumulative_sum(x),
        lambda: tc.cumulative_prod(x),
        lambda: tc.sum(x) * x,
        lambda: x - tc.mean(x),
        lambda: tc.softmax(x),
        lambda: tc.max(tc.sliding_windows(x, 2, axis=0), axis=-1) if n > 2 else x,
        lambda: tc.repeat(x, 2)[: n + 1],
        lambda: tc.tile(x, (2,))[1 : n + 1],
        lambda: tc.sort(x),
        lambda: tc.reshape(x[: n // 2 * 2], (-1, 2)) @ constant(1.0, 2.0) if n > 1 else x,
        lambda: tc.at(x)[tc.asarray([0, n - 1, 0])].add(x[0] * 2),
        lambda: tc.gather(x, tc.asarray([n - 1, 0, 0])),
        lambda: tc.pad(x, 1, constant_values=1.0),
        lambda: tc.where(x > 1, x, x[0] * x),
        lambda: a * b,
        lambda: a - b,
        lambda: tc.maximum(a, b),
        lambda: tc.where(a > b, a, b),
        lambda: (a[:, None] * b)[0],
        lambda: tc.sum(a[:, None] + b, axis=0) / m,
        lambda: tc.convolve(a, b)[:m],
        lambda: tc.concat([a, b])[1 : m + 2],
    ]


Program = list[tuple[int, int, int]]
PROGRAMS = st.lists(st.tuples(st.integers(0, 27), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5)


def run(program: Program, x: Any) -> Any:
    """A function of a vector: each step is one of those there are, of two earlier results."""
    values = [tc.tanh(x)]
    for step, one, other in program:
        values.append(tc.tanh(steps_of(values[one % len(values)], values[other % len(values)])[step]()))
    return values[-1]


@settings(max_examples=60, deadline=None)
@given(PROGRAMS, st.integers(1, 6), st.integers(0, 100))
def test_random_programs(program: Program, n: int, seed: int) -> None:
    f = lambda x: run(program, x)  # noqa: E731
    x = numbers(n, seed=seed)
    pattern = tc.jacobian_sparsity(f, x).pattern.toarray()
    expected = dense_jacobian(f, x)
    assert not ((expected != 0) & ~pattern).any()
    np.testing.assert_allclose(tc.sparse_jacobian(f, x).toarray(), expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(PROGRAMS, st.integers(1, 5), st.integers(0, 100))
def test_hessians_of_random_programs(program: Program, n: int, seed: int) -> None:
    x = numbers(n, seed=seed)
    g = lambda x: tc.sum(run(program, x) ** 2)  # noqa: E731
    found = tc.sparse_hessian(g, x, tc.hessian_sparsity(g, x))
    np.testing.assert_allclose(found.toarray(), tc.hessian(g)(x).numpy(), rtol=1e-9, atol=1e-9)


# -- colours


def colors_needed(pattern: Any, of: str) -> int:
    return int(tc.Sparsity(np.asarray(pattern)).colors(of)[1])


def test_numbers_of_colors() -> None:
    n = 50
    band = np.tri(n, k=1, dtype=int) - np.tri(n, k=-2, dtype=int)
    head = np.eye(n, dtype=int)
    head[0] = head[:, 0] = 1
    assert [colors_needed(np.eye(n), of) for of in ("columns", "rows", "star")] == [1, 1, 1]
    assert [colors_needed(band, of) for of in ("columns", "rows", "star")] == [3, 3, 3]
    assert [colors_needed(head, of) for of in ("columns", "rows", "star")] == [n, n, 2]
    assert [colors_needed(head[:1], of) for of in ("columns", "rows")] == [n, 1]
    assert [colors_needed(head[:, :1], of) for of in ("columns", "rows")] == [1, n]
    assert colors_needed(np.zeros((3, 2)), "columns") == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 1), st.integers(0, 1000))
def test_colors_tell_entries_apart(m: int, n: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pattern = rng.random((m, n)) < density
    color, count = tc.Sparsity(pattern).colors("columns")
    assert all(len(set(color[row])) == row.sum() for row in pattern)
    assert count == (len(set(color[pattern.any(axis=0)])))
    square = rng.random((n, n)) < density / 2
    square = square | square.T
    color, count = tc.Sparsity(square).colors("star")
    edges = square & ~np.eye(n, dtype=bool)
    assert all(color[i] != color[j] for i, j in np.argwhere(edges))
    for path in itertools.permutations(range(n), 4):
        if all(edges[i, j] for i, j in itertools.pairwise(path)):
            assert len(set(color[list(path)])) > 2
    assert count == len(set(color.tolist()))


def test_rows_where_they_are_fewer() -> None:
    """A full row needs one product backward, and a full column one forward: not as many as there are elements."""
    wide = lambda x: tc.sum(x**2)[None]  # noqa: E731
    tall = lambda x: x[0] ** tc.arange(1, 6, dtype="float64")  # noqa: E731
    x = numbers(5)
    for f, colored in ((wide, "rows"), (tall, "columns")):
        sparsity = tc.jacobian_sparsity(f, x)
        assert sparsity.colors(colored)[1] == 1
        np.testing.assert_allclose(tc.sparse_jacobian(f, x).toarray(), dense_jacobian(f, x))


# -- matrices


def test_the_matrix() -> None:
    x = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
    found = tc.sparse_jacobian(lambda x: x[:, 1] * x[:, 0], x)
    assert isinstance(found, sparse.csr_array)
    assert (found.shape, found.dtype, found.nnz) == ((2, 4), np.float32, 4)
    assert found.toarray().tolist() == [[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 4.0, 3.0]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rosenbrock(dtype: str) -> None:
    x = tc.astype(numbers(30), dtype)
    found, expected = tc.sparse_hessian(rosenbrock, x), tc.hessian(rosenbrock)(x).numpy()
    assert (found.dtype, found.nnz) == (np.dtype(dtype), 88)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-3)
    assert tc.hessian_sparsity(rosenbrock, x).colors("columns")[1] == 3


def test_rosenbrock_by_hand() -> None:
    x = numbers(1000)
    v = x.numpy()
    main = np.zeros(1000)
    main[:-1] += 1200 * v[:-1] ** 2 - 400 * v[1:] + 2
    main[1:] += 200
    expected = sparse.diags_array([-400 * v[:-1], main, -400 * v[:-1]], offsets=[-1, 0, 1])
    assert abs(tc.sparse_hessian(rosenbrock, x) - expected).max() < 1e-9


def test_an_arrow_takes_two_products() -> None:
    x = numbers(12)
    sparsity = tc.hessian_sparsity(arrow, x)
    assert sparsity.colors("star")[1] == 2
    tc.testing.assert_close(tc.sparse_hessian(arrow, x).toarray(), tc.hessian(arrow)(x).numpy(), rtol=1e-12)


def test_gathered_rows() -> None:
    table, rows = numbers(4, 2), tc.asarray([1, 3, 1])
    f = lambda t: tc.sum(tc.gather(t, rows) ** 3)  # noqa: E731
    found = tc.sparse_hessian(f, table)
    assert found.nnz == 4
    tc.testing.assert_close(found.toarray(), tc.hessian(f)(table).numpy().reshape(8, 8), rtol=1e-12)


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_chunks(chunk: int) -> None:
    x = numbers(7)
    f = lambda x: x[2:] * x[1:-1] * x[:-2]  # noqa: E731
    expected = dense_jacobian(f, x)
    np.testing.assert_allclose(tc.sparse_jacobian(f, x, chunk_size=chunk).toarray(), expected)
    np.testing.assert_allclose(
        tc.sparse_hessian(rosenbrock, x, chunk_size=chunk).toarray(), tc.hessian(rosenbrock)(x).numpy()
    )


def test_a_complex_result() -> None:
    x = numbers(3)
    found = tc.sparse_jacobian(lambda x: tc.sum(x * 2j)[None] * 1.0, x)
    assert found.dtype == np.complex128
    assert found.toarray().tolist() == [[2j, 2j, 2j]]


def test_empty_and_single() -> None:
    assert tc.sparse_jacobian(lambda x: x * 2.0, tc.zeros(0)).shape == (0, 0)
    assert tc.sparse_jacobian(lambda x: x[:0], numbers(2)).shape == (0, 2)
    constant_matrix = tc.sparse_jacobian(lambda x: tc.ones(3, dtype="float64"), numbers(2))
    assert (constant_matrix.shape, constant_matrix.nnz) == ((3, 2), 0)
    assert tc.sparse_jacobian(lambda x: x**2, 3.0).toarray().tolist() == [[6.0]]
    assert tc.sparse_hessian(lambda x: x**3, tc.asarray(2.0)).toarray().tolist() == [[12.0]]
    assert tc.sparse_hessian(lambda x: tc.sum(x), numbers(2)).nnz == 0


def test_variables_and_tapes_outside() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        matrix = tc.sparse_jacobian(lambda x: x * x, v)
        y = tc.sum(v * v)
    assert matrix.toarray().tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert tape.gradient(y, v).tolist() == [2.0, 4.0]
    scale = tc.Variable(3.0)
    assert tc.sparse_jacobian(lambda x: x * scale, v).toarray().tolist() == [[3.0, 0.0], [0.0, 3.0]]


# -- patterns that are given


def test_a_pattern_is_used_again() -> None:
    f = lambda x: x[1:] - x[:-1] ** 2  # noqa: E731
    x, other = numbers(6), numbers(6, seed=1)
    sparsity = tc.jacobian_sparsity(f, x)
    for given_pattern in (sparsity, sparsity.pattern, sparsity.pattern.toarray(), sparsity.pattern.tocoo()):
        np.testing.assert_allclose(tc.sparse_jacobian(f, other, given_pattern).toarray(), dense_jacobian(f, other))
    assert sparsity.colors("columns") is sparsity.colors("columns")
    found = tc.sparse_jacobian(f, other, sparsity)
    found.data[:] = 0
    found.indices[:] = 0
    np.testing.assert_allclose(tc.sparse_jacobian(f, other, sparsity).toarray(), dense_jacobian(f, other))


def test_one_triangle_of_a_hessian_is_enough() -> None:
    x = numbers(6)
    band = np.tri(6, dtype=int) - np.tri(6, k=-2, dtype=int)
    found = tc.sparse_hessian(rosenbrock, x, band)
    np.testing.assert_allclose(found.toarray(), tc.hessian(rosenbrock)(x).numpy())


@pytest.mark.parametrize("rows", [False, True])
def test_a_pattern_that_lacks_entries_is_an_error(rows: bool) -> None:
    x = numbers(4)
    pattern = np.eye(3, 4)
    f: Function = lambda x: x[:3] * x[1:]  # noqa: E731
    if rows:
        f, pattern = (lambda x: tc.concat([tc.sum(x)[None], x[:1]])), np.asarray([[1, 1, 1, 0], [1, 0, 0, 0]])
    with pytest.raises(ValueError, match=r"sparse_jacobian: sparsity lacks entries .* leave sparsity out"):
        tc.sparse_jacobian(f, x, pattern)
    with pytest.raises(ValueError, match=r"sparse_hessian: sparsity lacks entries"):
        tc.sparse_hessian(rosenbrock, x, np.eye(4))
    with pytest.raises(ValueError, match="lacks entries"):
        tc.sparse_hessian(rosenbrock, x, np.zeros((4, 4)))


def test_a_pattern_of_another_path_is_an_error() -> None:
    f = lambda x: x[1:] if x[0] > 1 else x[:-1] * x[1:]  # noqa: E731
    sparsity = tc.jacobian_sparsity(f, constant(2, 1, 1))
    with pytest.raises(ValueError, match="lacks entries"):
        tc.sparse_jacobian(f, constant(0.5, 1, 1), sparsity)
    for x in (constant(2, 1, 1), constant(0.5, 1, 1)):
        np.testing.assert_allclose(tc.sparse_jacobian(f, x).toarray(), dense_jacobian(f, x))


def test_patterns_of_another_shape() -> None:
    x = numbers(3)
    with pytest.raises(ValueError, match=r"sparsity has shape \(3, 4\), x has 3 elements"):
        tc.sparse_jacobian(lambda x: x, x, np.eye(3, 4))
    for pattern in (np.eye(4, 3), np.ones((4, 3))):
        with pytest.raises(ValueError, match=r"sparsity has shape \(4, 3\), f\(x\) has 3 elements"):
            tc.sparse_jacobian(lambda x: x, x, pattern)
    with pytest.raises(ValueError, match=r"sparsity must have shape \(3, 3\), got \(2, 3\)"):
        tc.sparse_hessian(lambda x: tc.sum(x), x, np.eye(2, 3))
    with pytest.raises(TypeError, match="must be a sparse matrix of SciPy or a NumPy array, got 'list'"):
        tc.sparse_jacobian(lambda x: x, x, [[1, 0, 0]])
    with pytest.raises(ValueError, match="must have 2 dimensions"):
        tc.Sparsity(np.ones(3))
    with pytest.raises(ValueError, match="'columns', 'rows' or 'star'"):
        tc.Sparsity(np.eye(2)).colors("cells")
    with pytest.raises(ValueError, match="not symmetric"):
        tc.Sparsity(np.tri(2)).colors("star")


# -- what is refused


@pytest.mark.parametrize("of", [tc.sparse_jacobian, tc.jacobian_sparsity])
def test_arguments(of: Any) -> None:
    name = of.__name__
    x = numbers(3)
    with pytest.raises(TypeError, match=rf"{name}: x must be one array, got a dict of 2; let f take one vector"):
        of(lambda x: x["a"], {"a": x, "b": x})
    with pytest.raises(TypeError, match=rf"{name}: x must be a real floating array; dtype int64 has no derivative"):
        of(lambda x: x, tc.asarray([1, 2]))
    with pytest.raises(TypeError, match="real and imaginary parts"):
        of(lambda x: x, tc.asarray([1j]))
    with pytest.raises(TypeError, match=rf"{name}: f must return one array, got a tuple of 2; join them"):
        of(lambda x: (x, x), x)
    with pytest.raises(TypeError, match=rf"{name}: the result of f must be a Tensor"):
        of(lambda x: None, x)
    with pytest.raises(TypeError, match=rf"{name}: the result of f has dtype int64"):
        of(lambda x: tc.argsort(x), x)
    with pytest.raises(TypeError, match=rf"{name} inside vmap"):
        tc.vmap(lambda x: of(lambda x: x, x))(numbers(2, 2))


def test_a_hessian_is_of_one_number() -> None:
    with pytest.raises(ValueError, match="must return one number"):
        tc.sparse_hessian(lambda x: x * x, numbers(2))


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def no_scipy(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "scipy":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_scipy)
    for of in (tc.sparse_jacobian, tc.jacobian_sparsity):
        with pytest.raises(ImportError, match=rf"{of.__name__} needs SciPy; .*tape-core\[sparse\]"):
            of(lambda x: x, numbers(2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matrices_of_functions_in_16_bits_are_in_float32(dtype: str) -> None:
    try:
        x = tc.asarray([1.5, 2.0, 0.1, -1.0], dtype=dtype)
    except TypeError:
        pytest.skip(f"the backend has no {dtype}")
    found = tc.sparse_jacobian(lambda x: x[1:] * x[:-1], x)
    assert found.dtype == np.float32
    low = x.tolist()
    np.testing.assert_array_equal(found.toarray()[0], [low[1], low[0], 0, 0])
    again = tc.sparse_jacobian(lambda x: x[1:] * x[:-1], x, sparsity=found)  # which is checked with a random vector
    assert (found != again).nnz == 0
    if dtype == "float16":  # a vector's products in bfloat16 are too coarse to tell
        with pytest.raises(ValueError, match="sparsity lacks entries"):
            tc.sparse_jacobian(lambda x: x[1:] * x[:-1], x, sparsity=np.eye(3, 4))
