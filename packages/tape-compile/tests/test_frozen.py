"""What a compiled function finds around it stays what it was at the trace, whole: it is copied then, once."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

USES: dict[str, Callable[[Any, Any], Any]] = {
    "array": lambda x, k: x * k,
    "asarray": lambda x, k: x * tc.asarray(k),
    "folded": lambda x, k: x * (tc.asarray(k) + 1),
    "both": lambda x, k: x * (tc.asarray(k) + 1) + k,
    "reflected": lambda x, k: k - x,
    "NumPy's function": lambda x, k: np.add(x, k),
    "in a sequence": lambda x, k: tc.concat([x, tc.asarray(k)]),
    "in a branch": lambda x, k: tc.cond(tc.sum(x) > 0, lambda: x * k, lambda: x),
    "in a scan": lambda x, k: tc.scan(lambda c, e: (c * k, c[0]), x, tc.ones(2))[0],
    "in vmap": lambda x, k: tc.vmap(lambda e: e * k)(x),
    "in a gradient": lambda x, k: tc.grad(lambda y: tc.sum(y * y * k))(x),
    "set": lambda x, k: tc.at(x)[0].set(k[0]),
    "where": lambda x, k: tc.where(tc.asarray(k) > 2, x, -x),
    "assigned": lambda x, k: tc.at(x)[1:].add(k[1:]),
    "returned": lambda x, k: tc.asarray(k),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", USES)
def test_an_array_that_is_written_to_later_changes_nothing(name: str, wrapped: bool) -> None:
    k = np.ones(3, np.float32)
    around = tc.asarray(k) if wrapped and name not in ("set", "assigned") else k
    compiled = tc.function(lambda x: USES[name](x, around))
    x = tc.asarray([1.0, 2.0, 3.0])
    expected = USES[name](x, np.ones(3, np.float32)).tolist()
    for _ in range(3):
        assert compiled(x).tolist() == expected
        k += 4


def test_indices_that_are_written_to_later_change_nothing() -> None:
    k = np.asarray([0, 1])
    compiled = tc.function(lambda x: x[k] + tc.take(x, tc.asarray(k)))
    x = tc.asarray([1.0, 2.0, 3.0])
    for _ in range(3):
        assert compiled(x).tolist() == [2.0, 4.0]
        k[:] = 2


def test_a_call_inside_a_tape_has_the_array_of_the_trace_in_its_derivative() -> None:
    k = np.ones(3, np.float32)
    compiled = tc.function(lambda x: tc.sum(x * k))
    x = tc.asarray([1.0, 2.0, 3.0])
    compiled(x)

    def slope() -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = compiled(x)
        return tape.gradient(y, x).tolist()

    assert slope() == [1.0] * 3
    assert slope() == [1.0] * 3
    k[:] = 5
    assert slope() == [1.0] * 3


def test_a_new_trace_sees_what_an_array_holds_by_then() -> None:
    k = np.ones(1, np.float32)
    compiled = tc.function(lambda x: x * k)
    assert compiled(tc.ones(2)).tolist() == [1.0] * 2
    k[:] = 5
    assert compiled(tc.ones(3)).tolist() == [5.0] * 3
    assert compiled(tc.ones(2)).tolist() == [1.0] * 2


def test_an_array_that_changes_during_the_trace_is_each_time_what_it_is_then() -> None:
    k = np.ones(2, np.float32)

    def f(x: Any) -> Any:
        y = x * k
        k[:] = 5
        return y + x * k

    assert tc.function(f)(tc.ones(2)).tolist() == [6.0] * 2


def test_one_copy_does_for_all_traces_and_goes_with_them() -> None:
    from tape_compile import frozen

    gc.collect()
    before = len(frozen._own_copies)
    k = np.ones(100_000, np.float32)
    functions = [
        tc.function(lambda x: tc.sum(x * k)),
        tc.function(lambda x: tc.sum(x + tc.asarray(k)), retrace="allow"),
    ]
    for f in functions:
        f(tc.ones(()))
        f(tc.ones(1))
    assert len(frozen._own_copies) - before == 1
    del functions, f
    gc.collect()
    assert len(frozen._own_copies) == before


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::2],
        lambda a: a[:, ::-2],
        lambda a: np.broadcast_to(a[0], a.shape),
        lambda a: np.swapaxes(a[:30].reshape(5, 6, 41), 0, 1),
        lambda a: a[:, 0],
    ],
    ids=["transposed", "rows", "backwards", "broadcast", "swapped", "a column"],
)
def test_sums_over_views_have_the_bits_of_eager_ones(view: Callable[[Any], Any]) -> None:
    a = np.random.default_rng(0).normal(size=(31, 41)).astype(np.float32)
    k = view(a)

    def f(x: Any) -> Any:
        return tc.sum(k * x), tc.sum(tc.asarray(k), axis=0) * x, tc.mean(tc.asarray(k) * x)

    compiled = tc.function(f)
    x = tc.asarray(1.5)
    for _ in range(2):
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()
