"""cond, while_loop, scan and map: eagerly, compiled, inside vmap, and under derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from tape_core.backends.traced import TracingError

X = [1.0, 2.0]


def same(a: Any, b: Any) -> bool:
    return bool(a.dtype is b.dtype) and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def assert_compiled_alike(f: Callable[..., Any], *arguments: Any) -> None:
    compiled = tc.function(f)
    for x in (*arguments, *arguments):
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert same(found, expected)
    assert compiled.traces == 1


def test_cond_runs_one_branch_and_decides_in_each_call() -> None:
    runs = []
    for pred in (True, tc.asarray(True), tc.asarray([2.0])):
        assert tc.cond(pred, lambda: runs.append(1) or "a", lambda: runs.append(2) or "b") == "a"
    assert runs == [1, 1, 1]
    w = tc.Variable(2.0)
    scale = tc.asarray(3.0)

    def f(x: Any) -> Any:
        doubled = x * 2
        big = tc.cond(tc.sum(x) > 0, lambda x: {"y": tc.sin(x) * w + doubled}, lambda x: {"y": x * scale}, x)["y"]
        return big, tc.cond(big[0] > 2, lambda: big, lambda: tc.cond(big[1] > 0, lambda: x, lambda: -big))

    x = tc.asarray(X)
    assert_compiled_alike(f, x, -x, x * 5)


def test_cond_under_derivatives_of_each_order() -> None:
    w = tc.Variable(2.0)

    def f(x: Any) -> Any:
        with tc.GradientTape() as outer:
            outer.watch(x)
            with tc.GradientTape() as tape:
                tape.watch(x)
                z = tc.cond(tc.sum(x) > 0, lambda x: tc.sin(x) * w * x, lambda x: x**3, x)
                y = tc.sum(z * z)
            gx, gw = tape.gradient(y, [x, w], unconnected_gradients="zero")
        with tc.ForwardAccumulator(x, tc.ones(2)) as accumulator:
            z = tc.cond(tc.sum(x) > 0, lambda x: tc.exp(x) * w, lambda x: tc.cos(x), x)
        return gx, gw, outer.gradient(gx, x), accumulator.jvp(z)

    x = tc.asarray(X)
    assert_compiled_alike(f, x, -x)
    assert_compiled_alike(lambda x: (tc.jacrev(lambda x: tc.cond(x[0] > 0, tc.sin, tc.cos, x))(x),), x, -x)


def test_cond_in_a_batch_chooses_for_each_example() -> None:
    def f(x: Any) -> Any:
        return tc.cond(x > 0, lambda: x * 2, lambda: -x)

    assert tc.vmap(f)(tc.asarray([1.0, -3.0])).tolist() == [2.0, 3.0]
    assert tc.vmap(tc.grad(f))(tc.asarray([1.0, -3.0])).tolist() == [2.0, -1.0]
    assert_compiled_alike(lambda x: (tc.vmap(f)(x),), tc.asarray([1.0, -3.0]), tc.asarray([-1.0, 3.0]))


def test_branches_assign_variables() -> None:
    v = tc.Variable(0.0)

    @tc.function
    def count(x: Any) -> Any:
        tc.cond(x > 0, lambda: v.assign_add(1.0) * 1.0, lambda: v * 1.0)
        return v.value

    assert [count(tc.asarray(x)).item() for x in (1.0, -1.0, 2.0, 3.0, -1.0)] == [1.0, 1.0, 2.0, 3.0, 3.0]
    assert v.item() == 3.0


def test_mistakes_with_cond() -> None:
    f = tc.function(lambda x: tc.cond(x > 0, lambda: x, lambda: tc.zeros(3)))
    with pytest.raises(TypeError, match=r"cond: result must be the same kind of Tensor.*float32\[\] and float32\[3\]"):
        f(tc.asarray(1.0))
    with pytest.raises(TypeError, match="same structure"):
        tc.function(lambda x: tc.cond(x > 0, lambda: x, lambda: (x, x)))(tc.asarray(1.0))
    with pytest.raises(ValueError, match="one element"):
        tc.cond(tc.ones(2), lambda: 1, lambda: 2)
    with pytest.raises(TracingError, match="random_bits is called in a branch"):
        tc.function(lambda x: tc.cond(x > 0, lambda: tc.dropout(x, 0.5), lambda: x))(tc.asarray(1.0))

    @tc.function
    def closure(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.cond(x > 0, lambda: x * x, lambda: x)
        return tape.gradient(y, x)

    with pytest.raises(TypeError, match="cond is given computes with a Tensor that a tape"):
        closure(tc.asarray(1.0))


def test_while_loop_counts_its_rounds_in_each_call() -> None:
    limit = tc.asarray(30.0)

    def f(x: Any) -> Any:
        return tc.while_loop(lambda s: (s[0] < limit) & (s[1] < 5), lambda s: (s[0] * x, s[1] + 1), (x, tc.asarray(0)))

    compiled = tc.function(f)
    for x, rounds in ((2.0, 4), (3.0, 3), (1.0, 5), (100.0, 0), (2.0, 4)):
        y, n = compiled(tc.asarray(x))
        assert n.item() == rounds
        assert same(y, f(tc.asarray(x))[0])
    assert compiled.traces == 1
    ys, ns = tc.vmap(f)(tc.asarray([2.0, 3.0, 1.0, 100.0]))
    assert ys.tolist() == [32.0, 81.0, 1.0, 100.0]
    assert ns.tolist() == [4, 3, 5, 0]
    assert tc.grad(lambda x: f(x)[0])(tc.asarray(2.0)).item() == 80.0
    assert tc.while_loop(lambda n: n < 3, lambda n: n + 1, 0).item() == 3


def test_what_a_while_loop_cannot_do_in_a_compiled_function_is_said() -> None:
    def f(x: Any) -> Any:
        return tc.while_loop(lambda y: y < 10, lambda y: y * x, x)

    with pytest.raises(TypeError, match="a tape in it watches what a while_loop computes with"):
        tc.function(tc.grad(f))(tc.asarray(2.0))
    w = tc.Variable(2.0)

    @tc.function
    def through_a_variable(x: Any) -> Any:
        with tc.GradientTape() as tape:
            y = tc.while_loop(lambda y: y < 10, lambda y: y * w, x)
        return tape.gradient(y, w)

    with pytest.raises(TracingError, match=r"tape_core\.scan"):
        through_a_variable(tc.asarray(1.0))

    @tc.function
    def assigning(x: Any) -> Any:
        return tc.while_loop(lambda y: y < 10, lambda y: y + w.assign_add(1.0), x)

    with pytest.raises(TracingError, match="assigns a Variable"):
        assigning(tc.asarray(1.0))
    assert w.item() == 2.0
    with pytest.raises(TypeError, match="must be the same kind of Tensor"):
        tc.while_loop(lambda y: True, lambda y: tc.ones(3), tc.asarray(1.0))


def test_scan_and_map() -> None:
    w = tc.Variable([0.5, 0.25])

    def rnn(xs: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(xs)
            last, every = tc.scan(lambda h, x: (tc.tanh(x * w + h), h * 2), tc.zeros(2), xs)
            y = tc.sum(last**2) + tc.sum(every)
        return (y, *tape.gradient(y, [xs, w]), tc.map(lambda x: {"s": tc.sum(x * w)}, xs)["s"])

    xs = tc.reshape(tc.linspace(-1, 1, 6), (3, 2))
    assert_compiled_alike(rnn, xs, xs * 2)
    total, partial = tc.scan(
        lambda c, x: (c + x["a"], c), tc.asarray(0.0), {"a": tc.asarray([1.0, 2.0, 3.0])}, reverse=True
    )
    assert total.item() == 6.0
    assert partial.tolist() == [5.0, 3.0, 0.0]
    assert tc.scan(lambda c, _: (c * 2, None), tc.asarray(1.0), length=5)[0].item() == 32.0
    assert same(tc.vmap(lambda xs: tc.map(tc.sin, xs))(xs), tc.sin(xs))
    for wrong in ((None,), ({"a": tc.ones(2), "b": tc.ones(3)},)):
        with pytest.raises(ValueError, match="scan: "):
            tc.scan(lambda c, x: (c, x), 0, *wrong)
    with pytest.raises(ValueError, match="no elements"):
        tc.map(tc.sin, tc.zeros((0, 2)))
    with pytest.raises(ValueError, match="no dimensions"):
        tc.map(tc.sin, tc.asarray(1.0))
