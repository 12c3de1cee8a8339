"""The NumPy backend: kernels in place of the defaults, reuse of memory, the allocator's setting."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import run_python
from tape_core.backends import ArrayAPIBackend
from tape_numpy import allocator
from tape_numpy.backend import NumPyBackend

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def backend() -> NumPyBackend:
    return NumPyBackend()


@pytest.fixture(scope="module")
def plain() -> ArrayAPIBackend:
    """NumPy with none of this package's kernels."""
    return ArrayAPIBackend("plain", np, array_types=("numpy:ndarray",))


# -- kernels agree with the defaults they replace


@pytest.mark.parametrize("shape", [(3, 7001), (20_000,)], ids=str)
def test_special_functions_in_blocks(shape: tuple[int, ...], backend: Any, plain: Any) -> None:
    x = np.abs(RNG.standard_normal(shape)) + 0.01
    assert np.array_equal(backend.xp.gammaln(x), plain.xp.gammaln(x))
    assert np.array_equal(backend.xp.betaln(x, x.T.copy().T), plain.xp.betaln(x, x))
    assert np.array_equal(backend.xp.betaln(2.0, x), plain.xp.betaln(2.0, x))
    assert np.array_equal(backend.xp.betaln(x[:1], x), plain.xp.betaln(x[:1], x))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("kwargs", [{"axis": 0}, {"axis": -1, "include_initial": True}], ids=str)
def test_logcumsumexp(dtype: str, kwargs: Any, backend: Any, plain: Any) -> None:
    x = (RNG.standard_normal((3, 40)) * 100).astype(dtype)
    found, expected = backend.xp.logcumsumexp(x, **kwargs), plain.xp.logcumsumexp(x, **kwargs)
    assert found.dtype == expected.dtype
    tc.testing.assert_close(found, expected, rtol=1e-6 if found.dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("shape", [(5, 3), (4, 40), (2, 3, 4), (7,), (0, 3)], ids=str)
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_cross_entropy(shape: tuple[int, ...], axis: int, dtype: str, backend: Any, plain: Any) -> None:
    if shape[axis] == 0:
        pytest.skip("no classes")
    logits = RNG.standard_normal(shape) * 3
    rest = tuple(np.delete(shape, axis).tolist())
    labels = RNG.integers(0, shape[axis], rest).astype(dtype)
    g = RNG.standard_normal(rest)
    for name, arguments in (("cross_entropy", (logits, labels)), ("cross_entropy_vjp", (g, logits, labels))):
        found = getattr(backend.xp, name)(*arguments, axis=axis)
        expected = getattr(plain.xp, name)(*arguments, axis=axis)
        assert np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("classes", [3, 100])
@pytest.mark.parametrize("label", [-1, "n"])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_labels_out_of_range_are_refused(classes: int, label: Any, dtype: str) -> None:
    labels = np.array([0, classes if label == "n" else label], dtype)
    with pytest.raises(ValueError, match=rf"cross_entropy.*labels must be in \[0, {classes}\), got"):
        tc.cross_entropy(np.zeros((2, classes)), labels)


def test_cross_entropy_of_large_logits_neither_overflows_nor_loses_the_gradient() -> None:
    x = tc.asarray([[1000.0, -1000.0], [-1e30, 0.0]])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.cross_entropy(x, tc.asarray([0, 0]))
    assert y.tolist() == pytest.approx([0.0, 1e30])
    assert tape.gradient(y, x).tolist() == [[0.0, 0.0], [-1.0, 1.0]]


@pytest.mark.parametrize("shape", [(5, 3), (1, 4), (0, 3), (1500, 2), (3, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_sum_over_rows(shape: tuple[int, int], dtype: str, backend: Any) -> None:
    x = (RNG.standard_normal(shape) * 8).astype(dtype)
    for array in (x, np.asfortranarray(x), x[::-1]):
        found = backend.xp.sum(array, axis=0)
        assert found.dtype == np.sum(array, axis=0).dtype
        np.testing.assert_allclose(found, np.sum(array, axis=0), rtol=1e-5, atol=1e-4)


def test_sum_over_rows_of_infinities_and_nan(backend: Any) -> None:
    x = np.array([[np.inf, np.nan, 1.0], [1.0, 1.0, -np.inf]], np.float32)
    np.testing.assert_array_equal(backend.xp.sum(x, axis=0), np.sum(x, axis=0))


def test_the_gradient_of_a_sum_cannot_be_written_to_by_accident() -> None:
    v = tc.Variable(np.ones((3, 2)))
    with tc.GradientTape() as tape:
        y = tc.sum(v)
    g = tape.gradient(y, v)
    with pytest.raises(ValueError, match="read-only"):
        g.array[0, 0] = 5.0  # all elements share one place in memory


# -- memory


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("size", [10, 1 << 15, 100_003])
def test_scale_in_blocks(size: int, in_place: bool, backend: Any) -> None:
    g, x, y = (RNG.standard_normal(size) for _ in range(3))
    kept = g.copy(), x.copy(), y.copy()
    seen: list[int] = []

    def partial(xp: Any, x: Any, power: int, y: Any) -> Any:
        seen.append(x.size)
        return xp.sin(x) ** power + y

    out = backend.scale(g, partial, (x, 2, y), in_place)
    np.testing.assert_allclose(out, kept[0] * (np.sin(x) ** 2 + y), rtol=1e-12)
    assert (out is g) == in_place
    assert np.array_equal(g, kept[0]) != in_place
    assert np.array_equal(x, kept[1])
    assert np.array_equal(y, kept[2])
    assert sum(seen) == size
    assert len(seen) == -(-size // (1 << 15))


@pytest.mark.parametrize("argument", ["itself", "row", "transposed", "number"])
def test_scale_where_blocks_do_not_fit(argument: str, backend: Any) -> None:
    g, x = RNG.standard_normal((300, 200)), RNG.standard_normal((300, 200))
    a = {"itself": x, "row": x[:1], "transposed": RNG.standard_normal((200, 300)).T, "number": 3.0}[argument]
    before = np.array(a)
    found = backend.scale(g.copy(), lambda xp, a: a, (a,), True)
    np.testing.assert_allclose(found, g * a)
    assert np.array_equal(before, a)


@pytest.mark.parametrize("size", [10, 100_003])
def test_add_scaled_in_blocks(size: int, backend: Any) -> None:
    h, g, x = (RNG.standard_normal(size) for _ in range(3))
    kept = h.copy(), g.copy(), x.copy()
    backend.add_scaled(h, g, lambda xp, x, factor: factor * x, (x, 3))
    np.testing.assert_allclose(h, kept[0] + g * 3 * x, rtol=1e-12, atol=1e-14)
    assert np.array_equal(g, kept[1])
    assert np.array_equal(x, kept[2])
    row = np.broadcast_to(np.float64(2.0), (size,))
    backend.add_scaled(h, row, lambda xp, x: x, (x,))
    np.testing.assert_allclose(h, kept[0] + g * 3 * x + 2 * x, rtol=1e-12, atol=1e-14)


def test_is_exclusive_only_for_what_nobody_else_holds(backend: Any) -> None:
    if backend.array_class is None:
        pytest.skip("this Python does not count references")
    array = np.ones(3)
    assert backend.is_exclusive(array, 1)
    other = array
    assert not backend.is_exclusive(array, 1)
    assert backend.is_exclusive(other, 2)
    del other
    view = array[:2]
    assert not backend.is_exclusive(view, 1), "a view"
    assert not backend.is_exclusive(array, 1), "one that has a view"
    del view
    array.flags.writeable = False
    assert not backend.is_exclusive(array, 1), "read-only"
    assert not backend.is_exclusive(np.float64(1.0), 9), "no array"


# -- the allocator


def test_the_allocators_setting_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_NUMPY_ALLOCATOR", "keeps")
    with pytest.raises(ValueError, match="TAPE_NUMPY_ALLOCATOR must be 'keep' or 'system', got 'keeps'"):
        allocator.configure()
    monkeypatch.setenv("TAPE_NUMPY_ALLOCATOR", "system")
    assert allocator.configure() is False


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc")
@pytest.mark.parametrize("setting", ["keep", "system"])
def test_kept_memory_is_not_faulted_in_again(setting: str) -> None:
    code = """
import resource, numpy as np, tape_core as tc
x = tc.asarray(np.ones(1_000_000))
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        tc.sin(x)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""
    # With thresholds of its own in the environment glibc hands memory back, unless they are set again.
    environment = {
        "TAPE_NUMPY_ALLOCATOR": setting,
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
    }
    faults = int(run_python("-c", code, environment=environment))
    assert faults < 20 if setting == "keep" else faults > 20


def test_tile_takes_a_number_as_numpy_does() -> None:
    x = tc.asarray(np.arange(3.0), backend="numpy")
    twice: Any = 2
    weights = tc.arange(6.0, dtype=x.dtype)
    assert tc.grad(lambda x: tc.sum(tc.tile(x, twice) * weights))(x).tolist() == [3.0, 5.0, 7.0]
    assert tc.vmap(lambda x: tc.tile(x, twice))(tc.stack([x, x])).shape == (2, 6)


@pytest.mark.parametrize("call", [tc.tile, np.tile], ids=["ours", "numpy"])
def test_tile_takes_tensors_of_integers_and_no_others(call: Any) -> None:
    x = tc.asarray(np.arange(2.0), backend="numpy")
    for repetitions in (2, np.int64(2), tc.asarray(2), tc.asarray([2]), [tc.asarray(2)]):
        assert call(x, repetitions).tolist() == [0.0, 1.0, 0.0, 1.0]
    with pytest.raises(TypeError, match="integer"):
        call(x, tc.asarray([2.0]))
