"""Arrays in and out: nothing that others write later changes an array of JAX; DLPack both ways."""

from __future__ import annotations

import array
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from tape_jax import conversion


def _aligned(n: int) -> np.ndarray:
    """Return ones in memory that XLA could use as it is."""
    memory = np.empty(8 * n + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + 8 * n].view(np.float64)
    found[...] = 1.0
    return found


_MADE = {
    "aligned": _aligned,
    "unaligned": lambda n: _aligned(n + 1)[1:],
    "strided": lambda n: np.ones(2 * n)[::2],
    "of NumPy": np.ones,
}


@pytest.mark.parametrize("n", [3, 1000, 1_000_000])
@pytest.mark.parametrize("make", _MADE.values(), ids=_MADE)
def test_what_is_written_to_a_numpy_array_later_does_not_show(n: int, make: object) -> None:
    given = make(n)  # type: ignore[operator]
    for convert in (
        lambda a: tc.asarray(a, backend="jax"),
        lambda a: tc.asarray(a, backend="jax", copy=True),
        lambda a: tc.Variable(a, backend="jax"),
        lambda a: tc.to_backend(a, "jax"),
        lambda a: tc.exp(tc.zeros(1, dtype="float64", backend="jax")) * a,
    ):
        given[...] = 1.0
        x = convert(given)
        given[...] = 7.0
        assert (x.numpy() == 1.0).all()


def test_an_array_of_jax_is_itself_and_no_copy() -> None:
    x = jnp.arange(3.0)
    assert tc.asarray(x).array is x
    assert tc.asarray(x, copy=False).array is x
    assert tc.asarray(x, dtype="float64").array is x
    assert tc.astype(tc.asarray(x), "float64").array is x
    assert tc.asarray(x, copy=True).array is not x
    with pytest.raises(ValueError, match="copy=False"):
        tc.asarray(x, dtype="float32", copy=False)


def test_numpy_gets_a_copy_to_write_to_or_a_view_to_read() -> None:
    x = tc.exp(tc.asarray(np.zeros(3), backend="jax"))
    x.numpy()[0] = 7.0
    seen = x.backend.numpy(x.array)
    assert seen.ctypes.data == x.array.unsafe_buffer_pointer()
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 7.0
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_lists_numbers_and_buffers() -> None:
    def made(obj: object, **options: object) -> object:
        return tc.asarray(obj, backend="jax", **options).array

    assert made([[1, 2], [3, 4]]).dtype == np.int64  # type: ignore[attr-defined]
    assert made([1.5, 2]).dtype == np.float32  # type: ignore[attr-defined]
    assert made(2.0).dtype == np.float32  # type: ignore[attr-defined]
    assert not made(2.0).weak_type  # type: ignore[attr-defined]
    assert made(1 + 2j).dtype == np.complex64  # type: ignore[attr-defined]
    assert made([]).shape == (0,)  # type: ignore[attr-defined]
    assert made(array.array("d", [1.0, 2.0])).tolist() == [1.0, 2.0]  # type: ignore[attr-defined]
    assert made(memoryview(b"ab")).tolist() == [97, 98]  # type: ignore[attr-defined]
    for wrong in ("text", [[1.0], [1.0, 2.0]], np.asarray(["a"]), np.asarray([object()]), object()):
        with pytest.raises((TypeError, ValueError)):
            made(wrong)


def test_dlpack_goes_both_ways_with_numpy() -> None:
    x = tc.asarray([1.0, 2.0], backend="jax")
    assert np.from_dlpack(x).tolist() == [1.0, 2.0]
    back = tc.from_dlpack(np.arange(3.0), backend="jax")
    assert back.backend.name == "jax"
    assert back.array.tolist() == [0, 1, 2]
    aligned = _aligned(100)
    shared = tc.asarray(aligned, backend="jax", copy=False).array
    assert shared.unsafe_buffer_pointer() == aligned.ctypes.data


def test_dlpack_goes_both_ways_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    given = torch.arange(3.0)
    x = tc.asarray(given, backend="jax")
    given[0] = 7.0
    assert x.numpy().tolist() == [0, 1, 2]
    assert torch.from_dlpack(x).tolist() == [0, 1, 2]
    assert tc.from_dlpack(torch.ones(2, dtype=torch.bfloat16), backend="jax").dtype is tc.bfloat16
    assert tc.to_backend(x, "torch").backend.name == "torch"


def test_what_is_known_inside_jit_stays_known() -> None:
    def f(x: jax.Array) -> jax.Array:
        rows = tc.asarray([2, 0], backend="jax")
        assert isinstance(rows.array, jax.Array)
        assert not isinstance(rows.array, jax.core.Tracer)
        return tc.asarray(x)[rows].array

    assert jax.jit(f)(jnp.arange(3.0)).tolist() == [2.0, 0.0]


def test_an_array_of_a_new_shape_compiles_no_program() -> None:
    compiled: list[str] = []

    def listen(name: str, *_: Any, **__: Any) -> None:
        if "backend_compile" in name:
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for shape in ((7, 13, 1), (7, 13, 2), ()):
            for dtype in (np.float32, np.int16, np.bool_):
                array = np.ones(shape, dtype)
                assert tc.asarray(array, backend="jax").tolist() == array.tolist()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == []


def test_arrays_of_a_shape_that_comes_often_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "STAGED_FROM", 2)
    monkeypatch.setattr(conversion, "STAGED_MAX_KINDS", 2)
    monkeypatch.setattr(conversion, "_TIMES", {})
    for _ in range(4):
        for n in (3, 4, 5):
            made = conversion.as_jax_array(np.arange(n, dtype=np.int16), None, None)
            assert made.tolist() == list(range(n))
            assert (made.dtype, made.weak_type, made.committed) == (np.int16, False, False)
    for _ in range(4):
        assert conversion.as_jax_array(np.arange(3), None, None).tolist() == [0, 1, 2]
    assert len(conversion._TIMES) <= 2


def test_numpys_arrays_among_arguments_go_where_the_other_ones_are() -> None:
    data = np.asarray([[1.0, 2.0], [3.0, 4.0]])
    with tc.use_backend("numpy"):
        x = tc.asarray([1.0, -1.0], dtype="float64", backend="jax")
        found = {
            "scan": tc.scan(lambda c, row: (c + row, c), x, data)[0],
            "scan of a Variable": tc.scan(lambda c, row: (c + row, c), tc.Variable(x), data)[0],
            "vmap": tc.vmap(lambda row, factor: tc.sum(row * factor))(data, x),
            "jvp": tc.jvp(lambda a, b: a * b, (x, data), (data[0], data))[1][0],
            "vjp": tc.vjp(lambda a, b: tc.sum(a * b, axis=0), data, x)[0],
        }
    assert {name: (y.backend.name, y.tolist()) for name, y in found.items()} == {
        "scan": ("jax", [5.0, 5.0]),
        "scan of a Variable": ("jax", [5.0, 5.0]),
        "vmap": ("jax", [3.0, -7.0]),
        "jvp": ("jax", [2.0, 2.0]),
        "vjp": ("jax", [4.0, -6.0]),
    }
