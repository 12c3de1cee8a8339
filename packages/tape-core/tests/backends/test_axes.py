"""Axes and their errors are those of Tape on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import DEFAULT_KERNELS, ArrayAPIBackend, AxisError

pytestmark = pytest.mark.each_backend

CALLS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda x, axis: tc.sum(x, axis=axis),
    "mean": lambda x, axis: tc.mean(x, axis=axis, keepdims=True),
    "var": lambda x, axis: tc.var(x, axis=axis),
    "max": lambda x, axis: tc.max(x, axis=(axis,)),
    "prod": lambda x, axis: tc.prod(x, axis=axis),
    "all": lambda x, axis: tc.all(x > 0, axis=axis),
    "argmax": lambda x, axis: tc.argmax(x, axis=axis),
    "vector_norm": lambda x, axis: tc.linalg.vector_norm(x, axis=axis),
    "cumulative_sum": lambda x, axis: tc.cumulative_sum(x, axis=axis),
    "sort": lambda x, axis: tc.sort(x, axis=axis),
    "argsort": lambda x, axis: tc.argsort(x, axis=axis),
    "top_k": lambda x, axis: tc.top_k(x, 1, axis=axis)[0],
    "flip": lambda x, axis: tc.flip(x, axis=axis),
    "roll": lambda x, axis: tc.roll(x, 1, axis=axis),
    "repeat": lambda x, axis: tc.repeat(x, 2, axis=axis),
    "take": lambda x, axis: tc.take(x, tc.asarray([1, 0]), axis=axis),
    "concat": lambda x, axis: tc.concat([x, x], axis=axis),
    "unstack": lambda x, axis: tc.unstack(x, axis=axis)[0],
    "squeeze": lambda x, axis: tc.squeeze(tc.sum(x, axis=axis, keepdims=True), axis=axis),
    "permute_dims": lambda x, axis: tc.permute_dims(x, (axis, *[k for k in range(3) if k != axis % 3])),
    "softmax": lambda x, axis: tc.softmax(x, axis=axis),
    "logsumexp": lambda x, axis: tc.logsumexp(x, axis=axis),
    "logcumsumexp": lambda x, axis: tc.logcumsumexp(x, axis=axis),
    "fft": lambda x, axis: tc.fft.fft(x, axis=axis),
    "rfft": lambda x, axis: tc.fft.rfft(x, axis=axis),
    "fftshift": lambda x, axis: tc.fft.fftshift(x, axes=axis),
    "vecdot": lambda x, axis: tc.vecdot(x, x, axis=axis),
    "trapezoid": lambda x, axis: tc.trapezoid(x, axis=axis),
    "take_along_axis": lambda x, axis: tc.take_along_axis(x, tc.argsort(x, axis=0), axis=axis),
}
IN_RESULT: dict[str, Callable[[Any, int], Any]] = {
    "stack": lambda x, axis: tc.stack([x, x], axis=axis),
    "expand_dims": lambda x, axis: tc.expand_dims(x, axis=axis),
    "one_hot": lambda x, axis: tc.one_hot(tc.argsort(x, axis=0), 3, axis=axis),
}


def array() -> Any:
    return tc.asarray(np.random.default_rng(0).normal(size=(2, 3, 3)))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("bad", [3, -4])
def test_an_axis_that_is_not_there(name, bad):
    wrong = (lambda x, axis: tc.permute_dims(x, (0, 1, axis))) if name == "permute_dims" else CALLS[name]
    message = f"axis {bad} is out of bounds for an array of 3 dimensions"
    for call in (wrong, tc.function(lambda x, axis: wrong(x, axis))):
        with pytest.raises(AxisError, match=message):
            call(array(), bad)
    with pytest.raises(AxisError, match=f"axis {bad} is out of bounds for an array of 3 dimensions"):
        tc.vmap(lambda x: wrong(x, bad))(tc.stack([array()] * 2))


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("permute_dims", "take_along_axis")])
@pytest.mark.parametrize("axis", [0, -1])
def test_an_array_of_no_dimensions_has_no_axis(name, axis):
    message = f"axis {axis} is out of bounds for an array of 0 dimensions"
    for call in (CALLS[name], tc.function(lambda x, axis: CALLS[name](x, axis))):
        with pytest.raises(ValueError, match=message):
            call(tc.asarray(1.5), axis)
    with pytest.raises(ValueError, match=message):
        tc.vmap(lambda x: CALLS[name](x, axis))(tc.ones(2))


def test_an_array_of_no_dimensions_has_all_its_axes_and_none():
    x = tc.asarray(1.5)
    assert [float(f(x)) for f in (tc.sum, tc.max, tc.mean)] == [1.5] * 3
    assert float(tc.sum(x, axis=())) == float(tc.permute_dims(x, ())) == 1.5
    with pytest.raises(AxisError, match="axis -1 is out of bounds for an array of 0 dimensions"):
        tc.softmax(x)  # whose axis is -1


@pytest.mark.parametrize("name", IN_RESULT)
@pytest.mark.parametrize("bad", [4, -5])
def test_an_axis_that_is_not_in_the_result(name, bad):
    for call in (IN_RESULT[name], tc.function(lambda x, axis: IN_RESULT[name](x, axis))):
        with pytest.raises(AxisError, match=f"axis {bad} is out of bounds for a result of 4 dimensions"):
            call(array(), bad)
    with pytest.raises(AxisError, match=f"axis {bad} is out of bounds"):
        tc.vmap(lambda x: IN_RESULT[name](x, bad))(tc.stack([array()] * 2))


MISFITS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "where": lambda a, b: tc.where(a > 0, a, b),
    "matmul": lambda a, b: a @ b,
    "concat": lambda a, b: tc.concat([a, b]),
    "concat along an axis": lambda a, b: tc.concat([a, b[None]], axis=1),
    "stack": lambda a, b: tc.stack([a, b]),
    "reshape": lambda a, b: tc.reshape(a, (4,)),
    "reshape with -1": lambda a, b: tc.reshape(a, (4, -1)),
    "broadcast_to": lambda a, b: tc.broadcast_to(a, (3, 3)),
    "permute_dims": lambda a, b: tc.permute_dims(a, (0, 0)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_shapes_that_do_not_go_together_are_a_value_error(name):
    a, b = tc.ones((2, 3)), tc.ones((4,))
    for call in (MISFITS[name], tc.function(MISFITS[name])):
        with pytest.raises(ValueError, match=rf"{name.partition(' ')[0]}\(.*float32\[2, 3\]"):
            call(a, b)
    with pytest.raises(ValueError, match=r"2, 3"):
        tc.vmap(MISFITS[name])(a[None], b[None])


@pytest.mark.parametrize("axis", [-1, 0])
def test_a_kernel_for_the_gradient_of_cross_entropy_gets_the_axis_of_the_logits(axis):
    default, seen = DEFAULT_KERNELS["cross_entropy_vjp"], []

    def own(cotangent, logits, labels, *, axis):
        seen.append(axis)
        return default(backend.xp, cotangent, logits, labels, axis=axis)

    backend = ArrayAPIBackend("own", array_api_strict, kernels={"cross_entropy_vjp": own})
    logits, labels = np.random.default_rng(0).normal(size=(3, 3)), np.asarray([2, 0, 1])
    with tc.use_backend(backend):
        x = tc.asarray(logits)
        with tc.GradientTape() as tape:
            tape.watch(x)
            loss = tc.sum(tc.cross_entropy(x, tc.asarray(labels), axis=axis) ** 2)
        found = tape.gradient(loss, x).numpy()
    assert seen == [axis % 2]
    e = np.exp(logits)
    p = e / e.sum(axis=axis, keepdims=True)
    hot = np.eye(3)[labels] if axis == -1 else np.eye(3)[labels].T
    losses = -np.log((p * hot).sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(found, 2 * losses * (p - hot))


def test_errors_of_axes_are_not_those_of_a_backend_that_translates_errors(monkeypatch):
    monkeypatch.setattr(type(tc.get_backend()), "user_error", lambda self, error: (KeyError, "translated"))
    with pytest.raises(AxisError, match=r"sum\(x: float64\[2, 3, 3\], axis=3\): axis 3 is out of bounds"):
        tc.sum(array(), axis=3)


def test_a_word_of_checks_that_is_misspelled_is_refused():
    backend = ArrayAPIBackend("strict", array_api_strict)
    backend.checks = {"axes", "indices"}
    with pytest.raises(ValueError, match=r"backend 'strict': checks may have .*, not 'axis'; did you mean 'axes'\?"):
        backend.checks = {"axis"}
    with pytest.raises(TypeError, match="a set of words"):
        backend.checks = "axes"
    assert backend.checks == {"axes", "indices"}
