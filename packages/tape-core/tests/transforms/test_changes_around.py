"""Functions that run again, or are traced once, and Tensors from around them that are changed in place."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from tape_core.engine import changes

pytestmark = pytest.mark.each_backend


def number(value: float) -> Any:
    return tc.asarray(value, dtype=tc.float64)


def fixed_point(w: Any, x: Any) -> Any:
    return tc.fixed_point(lambda z, x: 0.1 * z * w + x, x, x)


def custom_root(w: Any, x: Any) -> Any:
    return tc.custom_root(lambda z, x: z - 0.1 * z * w - x, lambda x: x / (1 - 0.1 * w))(x)


def held(w: Any, x: Any) -> Any:
    weights = {"w": w}
    return tc.checkpoint(lambda x: x * weights["w"])(x)


READING: dict[str, Callable[[Any, Any], Any]] = {
    "an op": lambda w, x: x * w,
    "checkpoint": lambda w, x: tc.checkpoint(lambda x: x * w)(x),
    "cond": lambda w, x: tc.cond(x > 0, lambda x: x * w, lambda x: x, x),
    "while_loop": lambda w, x: tc.while_loop(lambda x: x < 10, lambda x: x * w, x),
    "scan": lambda w, x: tc.scan(lambda c, k: (c * w**0.1, None), x, None, length=140)[0],
    "in a container": held,
    "fixed_point": fixed_point,
    "custom_root": custom_root,
}


@pytest.mark.parametrize("name", READING)
def test_the_derivative_finds_tensors_as_they_were(name: str) -> None:
    expected = tc.grad(lambda x: READING[name](number(2.0), x))(number(3.0)).item()
    for compiled in (False, True):

        def slope(x: Any) -> Any:
            w = number(2.0)
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = READING[name](w, x)
                for _ in range(3):
                    w *= 4.0
            return tape.gradient(y, x), w

        found, w = tc.function(slope)(number(3.0)) if compiled else slope(number(3.0))
        assert found.item() == pytest.approx(expected, rel=1e-12)
        assert w.item() == 128.0, "it is again what it was before the derivative was computed"


def set_first(buffer: Any, x: Any) -> Any:
    buffer[0] = buffer[0] + x
    return tc.sum(buffer) * x


CHANGING: dict[str, Callable[[Any, Any], Any]] = {
    "checkpoint": lambda b, x: tc.checkpoint(lambda x: set_first(b, x))(x),
    "cond": lambda b, x: tc.cond(x > 0, lambda x: set_first(b, x), lambda x: x, x),
    "while_loop": lambda b, x: tc.while_loop(lambda x: x < 10, lambda x: set_first(b, x), x),
    "scan": lambda b, x: tc.scan(lambda c, k: (0.001 * set_first(b, c), None), x, None, length=140)[0],
}


@pytest.mark.parametrize("name", CHANGING)
def test_a_function_that_would_change_a_tensor_around_it_again_is_refused(name: str) -> None:
    buffer = tc.asarray([1.0, 2.0], dtype=tc.float64)
    for derivative in (tc.grad, tc.jacrev):
        with pytest.raises(RuntimeError, match=r"changes a Tensor of shape \(2,\) from around it, in .*, line \d+"):
            derivative(lambda x: CHANGING[name](buffer, x))(number(3.0))
        assert buffer.tolist() == [1.0, 2.0]
    value = CHANGING[name](buffer, number(3.0))
    assert buffer.tolist() != [1.0, 2.0], "without a derivative it runs once, as Python"
    assert value.dtype is tc.float64


@pytest.mark.parametrize("name", [name for name in CHANGING if name != "checkpoint"])
def test_a_branch_or_step_that_is_traced_once_changes_no_tensor_around_it(name: str) -> None:
    outside = tc.asarray([1.0, 2.0], dtype=tc.float64)

    def of_an_argument(x: Any) -> Any:
        buffer = tc.asarray([1.0, 2.0], dtype=tc.float64) * x
        return CHANGING[name](buffer, x), buffer

    for f in (of_an_argument, lambda x: CHANGING[name](outside, x)):
        with pytest.raises(tc.staging.TracingError, match=r"changes a Tensor of shape .* it is traced once"):
            tc.function(f)(number(3.0))
    assert outside.tolist() == [1.0, 2.0]
    with pytest.warns(UserWarning, match="runs as plain Python"):
        found = tc.function(of_an_argument, fallback=True)(number(3.0))
    for a, b in zip(found, of_an_argument(number(3.0)), strict=True):
        assert a.tolist() == b.tolist()


def own_buffer(x: Any) -> Any:
    buffer = tc.zeros(2, dtype=tc.float64)
    buffer[1] = x * x
    buffer += 1.0
    return buffer


def buffer_in_a_cycle(x: Any) -> Any:
    buffer = tc.zeros(2, dtype=tc.float64)

    def fill(k: int) -> None:
        buffer[k] = x * x
        if k:
            fill(k - 1)

    fill(1)
    return buffer + 1.0


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("f", [own_buffer, buffer_in_a_cycle])
def test_what_a_function_makes_itself_it_may_change(f: Callable[[Any], Any], compiled: bool) -> None:
    def every_way(x: Any) -> Any:
        total = tc.sum(tc.checkpoint(f)(x)) + tc.sum(tc.cond(x > 0, f, lambda x: tc.zeros(2, dtype=tc.float64), x))
        steps = tc.scan(lambda c, k: (0.1 * tc.sum(f(c)), f(c)), x, None, length=140)
        looped = tc.while_loop(lambda c: tc.sum(c) < 20, lambda c: f(c[1]), f(x))
        return total + tc.sum(steps[1]) + tc.sum(looped)

    for derivative in (tc.grad(every_way), lambda x: tc.jvp(every_way, (x,), (tc.ones_like(x),))[1]):
        step = 1e-6
        near = (every_way(number(1.5 + step)) - every_way(number(1.5 - step))).item() / (2 * step)
        g = tc.function(derivative) if compiled else derivative
        assert g(number(1.5)).item() == pytest.approx(near, rel=1e-6)


def test_tensors_that_are_gone_and_changes_that_nobody_asks_for_cost_no_memory() -> None:
    w = tc.zeros(3)
    with tc.GradientTape(persistent=True) as tape:
        x = number(1.0)
        tape.watch(x)
        y = tc.checkpoint(lambda x: x * x)(x)
        for _ in range(20):
            w += 1.0
            gone = tc.zeros(2)
            gone[0] = 1.0
        former = weakref.ref(w)
        del gone
    mine = [history for history in changes._histories.values() if history.tensor() is w]
    assert [len(history.changes) for history in mine] == [1], "the value that was there when the checkpoint ran"
    assert tape.gradient(y, x).item() == 2.0
    del w, mine
    gc.collect()
    assert former() is None


@pytest.mark.parametrize("compiled", [False, True])
def test_vmap_puts_no_value_of_examples_into_a_tensor_around_it(compiled: bool) -> None:
    total, examples = tc.zeros(3), tc.reshape(tc.arange(6.0), (2, 3))

    def put(x: Any) -> Any:
        total[0] = x[0]
        return x * 2

    def put_and_return(x: Any) -> Any:
        total.__imul__(x)
        return total

    def own(x: Any, scale: Any) -> Any:
        y = x * 1
        y[0] = x[1]
        y *= scale
        scale *= x  # an argument, of which the function has another Tensor
        return y + scale

    for f in (put, put_and_return):
        mapped = tc.vmap(f)
        with pytest.raises(TypeError, match=r"vmap: the function changes a Tensor of shape \(3,\) .* for each example"):
            (tc.function(mapped) if compiled else mapped)(examples)
        assert total.tolist() == [0.0, 0.0, 0.0]
    mapped = tc.vmap(own, in_axes=(0, None))
    scale = tc.asarray([1.0, 10.0, 100.0])
    found = (tc.function(mapped) if compiled else mapped)(examples, scale)
    assert found.tolist() == [[1.0, 20.0, 400.0], [7.0, 80.0, 1000.0]]
    assert scale.tolist() == [1.0, 10.0, 100.0]


def test_vmap_may_count_its_calls_in_a_tensor_around_it() -> None:
    calls = tc.zeros(())

    def f(x: Any) -> Any:
        calls.__iadd__(1)
        return x + calls

    assert tc.vmap(f)(tc.asarray([1.0, 2.0])).tolist() == [2.0, 3.0]
    assert calls.item() == 1.0
