"""A debugging tape among others: it changes nothing, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.base.ambient import ACTIVE


def test_debugging_changes_no_result() -> None:
    def run(debug: bool) -> list[Any]:
        x, w = tc.Variable([0.5, 1.5]), tc.Variable([[1.0, 2.0], [3.0, 4.0]])
        with tc.GradientTape(persistent=True, debug=debug) as outer:
            with tc.GradientTape(debug=debug) as tape:
                h = tc.zeros(2)
                h[0] = x[1] * 2.0
                h += x
                y = tc.real(tc.sum(tc.tanh(h @ w)) + 1j * tc.sum(h))
            first = tape.gradient(y, x)
            z = tc.sum(first * first)
        with tc.GradientTape(debug=debug) as rows:
            s = tc.vmap(lambda a: tc.softmax(a * w))(x)
        with tc.ForwardAccumulator(x, tc.ones(2)) as acc, tc.GradientTape(debug=debug) as last:
            u = tc.sum(x * x * x)
            du = last.gradient(u, x)
        tangent = acc.jvp(du)
        return [first, *outer.gradient(z, [x, w]), rows.jacobian(s, x), tangent]

    for a, b in zip(run(False), run(True), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_explain_inside_vmap_and_through_it() -> None:
    w = tc.Variable([1.0, 2.0])
    found = []

    def f(a: tc.Tensor) -> tc.Tensor:
        with tc.GradientTape(debug=True) as inner:
            inner.watch(a)
            y = tc.floor(a) * 2.0
        found.append(inner.explain(y, a))
        return tc.exp(a)

    with tc.GradientTape(debug=True) as tape:
        out = tc.sum(tc.vmap(f)(w * 2.0))
    assert (found[0].reason, found[0].op) == ("non-differentiable", "floor")
    assert [step.op for step in tape.explain(out, w).path] == ["multiply", "exp", "sum"]


def test_a_plain_tape_looks_at_no_frame_and_binds_no_other_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from tape_core.base import user_code
    from tape_core.debugging import journal

    x = tc.Variable([1.0, 2.0])
    op = tc.exp.op  # type: ignore[attr-defined]
    tc.exp(x)
    before = op.bindings[x.backend]
    with tc.GradientTape(debug=True):
        tc.exp(x)
        assert op.bindings[x.backend] != before
        assert journal._in_blocks
        with tc.GradientTape(debug=True):
            tc.exp(x)
        assert journal._in_blocks
    assert op.bindings[x.backend] == before
    assert not journal._in_blocks

    def fail(*_: Any) -> Any:
        raise AssertionError("a frame was looked at")

    monkeypatch.setattr(user_code.sys, "_getframe", fail)
    with tc.GradientTape() as tape:
        tape.watch(tc.asarray(1.0))
        y = tc.sum(tc.exp(x) * x)
    assert tape._records[-1][0].op.name == "sum"
    assert tape._journal is None
    assert tape.gradient(y, x).shape == (2,)


def test_kernels_that_a_checkpoint_replaces_in_the_block_are_told_of_once() -> None:
    """A policy's own kernels stay, a debugging tape's go."""
    from tape_core.debugging.journal import NotedKernel

    x = tc.Variable([1.0, 2.0])
    op = tc.log1p.op  # type: ignore[attr-defined]
    for _ in range(2):
        with tc.GradientTape(debug=True) as tape:
            f = tc.checkpoint(lambda t: tc.exp(tc.log1p(t)), policy=["log1p"])
            y = tc.sum(tc.log1p(f(x)))
        calls = [call.name for call in tape._journal.now.calls]  # type: ignore[union-attr]
        assert calls == ["checkpoint(<lambda>)", "log1p", "sum"]
        assert tape.gradient(y, x) is not None
        kernel, plans, *_ = op.bindings[x.backend]
        assert kernel.__name__ == "asking"
        assert type(kernel) is not NotedKernel
        inside = [cell.cell_contents for cell in kernel.__closure__]
        assert not any(type(cell) is NotedKernel for cell in inside)
        assert type(plans.residual_kernel) is not NotedKernel


def test_an_exception_in_the_block_leaves_nothing_behind() -> None:
    from tape_core.debugging import journal

    x = tc.Variable([1.0, 2.0])
    with pytest.raises(ValueError, match="matmul"), tc.GradientTape(debug=True):
        x @ tc.ones((3, 3))
    assert not journal._in_blocks
    assert not ACTIVE.get()


def test_other_threads_are_not_listened_to() -> None:
    import threading

    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=True) as tape:
        worker = threading.Thread(target=lambda: [tc.exp(x) for _ in range(10)])
        worker.start()
        worker.join()
        tc.sum(x)
    assert [row.op for row in tape.summary().rows] == ["sum"]
    assert [call.name for call in tape._journal.now.calls] == ["sum"]  # type: ignore[union-attr]


def test_a_debugging_tape_holds_no_arrays_that_its_records_do_not() -> None:
    import gc
    import weakref

    x = tc.Variable(np.ones(1000, dtype=np.float32))
    with tc.GradientTape(debug=True, persistent=True) as tape:
        h = x + 1.0
        gone = weakref.ref(h)
        array = weakref.ref(h.array) if hasattr(h.array, "__array_interface__") else gone
        y = tc.sum(h + 2.0)
        del h
    gc.collect()
    assert gone() is None
    assert array() is None
    assert tape.explain(y, x).connected


# -- arrays that are written to after they were recorded

BUFFERS = {
    "an operand": lambda buffer, w: buffer @ w,
    "a Tensor": lambda buffer, w: tc.asarray(buffer) @ w,
    "a view": lambda buffer, w: tc.asarray(buffer)[1, :] * w[:, 0],
    "a transpose": lambda buffer, w: tc.reshape(tc.asarray(buffer), (3, 2)).T @ w,
    "one of several": lambda buffer, w: tc.einsum("ij,jk->ik", buffer, w),
}


@pytest.mark.parametrize("compute", BUFFERS.values(), ids=BUFFERS)
def test_a_debugging_tape_notices_an_array_that_is_written_to_after_it_was_recorded(compute: Any) -> None:
    buffer, w = np.ones((2, 3), np.float32), tc.Variable(np.ones((3, 1), np.float32))
    with tc.GradientTape(debug=True, persistent=True) as tape:
        y = tc.sum(compute(buffer, w))
    tape.gradient(y, w)
    buffer[:] = 7
    for derivative in (tape.gradient, tape.jacobian):
        with pytest.raises(
            RuntimeError, match=r"(?s)has been written to since.*test_debugging_tapes\.py.*lambda.*copy"
        ):
            derivative(y, w)


def test_an_index_that_is_written_to_is_noticed() -> None:
    index, v = np.array([0, 1]), tc.Variable([1.0, 2.0, 3.0])
    with tc.GradientTape(debug=True) as tape:
        y = tc.sum(v[index] ** 2) + tc.sum(tc.gather(v, index))
    index[:] = 2
    with pytest.raises(RuntimeError, match="dtype int64, that gather was recorded with"):
        tape.gradient(y, v)


@pytest.mark.parametrize(
    "compute",
    [lambda b, w: tc.asarray(b, copy=True) @ w, lambda b, w: (tc.asarray(b) * 2) @ w, lambda b, w: w + tc.sum(b)],
    ids=["a copy", "computed from it", "not needed"],
)
def test_an_array_may_be_written_to_where_the_derivative_does_not_read_it(compute: Any) -> None:
    found = []
    for change in (1, 7):
        buffer, w = np.ones((2, 3), np.float32), tc.Variable(np.ones((3, 1), np.float32))
        with tc.GradientTape(debug=True) as tape:
            y = tc.sum(compute(buffer, w))
        buffer[:] = change
        found.append(tape.gradient(y, w).tolist())
    assert found[0] == found[1]


def test_an_array_that_examples_share_is_looked_at_too() -> None:
    buffer, x = np.ones(3, np.float32), tc.Variable(np.ones((2, 3), np.float32))
    with tc.GradientTape(debug=True) as tape:
        y = tc.sum(tc.vmap(lambda row: row * buffer)(x))
    buffer[:] = 7
    with pytest.raises(RuntimeError, match="written to since"):
        tape.gradient(y, x)


def test_a_debugging_tape_inside_a_compiled_function_works_as_before() -> None:
    @tc.function
    def slope(x: Any, w: Any) -> Any:
        with tc.GradientTape(debug=True) as tape:
            tape.watch(w)
            y = tc.sum(x * w * w)
        return tape.gradient(y, w)

    for _ in range(3):
        assert slope(tc.asarray([1.0, 2.0]), tc.asarray([3.0, 4.0])).tolist() == [6.0, 16.0]


@pytest.mark.each_backend
def test_a_call_that_is_made_again_with_converted_operands_is_noted_once() -> None:
    x, n = tc.Variable([1.0, 2.0]), tc.arange(2)
    with tc.GradientTape(debug=True) as tape:
        y = tc.sum(x * n + n / 2)
    assert tape._journal is not None
    calls = [call.name for call in tape._journal.now.calls]
    assert [calls.count(name) for name in ("multiply", "divide", "add", "sum")] == [1, 1, 1, 1]
    assert {call.specs[0][1] for call in tape._journal.now.calls if call.name != "astype"} == {"float32"}
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), [0.0, 1.0])


def test_a_result_that_is_discarded_is_not_checked() -> None:
    # NumPy computes float16 with int64 in float64, which is discarded.
    small, n = tc.asarray([2.0], dtype=tc.float16), tc.asarray([0])
    with tc.GradientTape(check_numerics=True), pytest.raises(FloatingPointError) as caught:
        tc.divide(small, n)
    assert "float64" not in str(caught.value)
