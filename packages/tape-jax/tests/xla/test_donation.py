"""Arguments that are donated to programs of XLA: their memory serves results, unless somebody else has it."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
from tape_core.support import COUNTS_REFERENCES
from tape_jax.xla import segment


@tc.function(compile="xla", donate="params")
def update(params: dict[str, tc.Tensor], x: tc.Tensor) -> dict[str, tc.Tensor]:
    gradients = tc.grad(lambda p: tc.sum((x @ p["w"] + p["b"]) ** 2))(params)
    return {name: value - 0.01 * gradients[name] for name, value in params.items()}


def parameters() -> dict[str, tc.Tensor]:
    return {"w": tc.asarray(np.full((64, 64), 0.5), backend="jax"), "b": tc.zeros(64, backend="jax") + 1.0}


def memory(tensor: tc.Tensor) -> int:
    place: int = tensor.array.unsafe_buffer_pointer()
    return place


@pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
def test_a_result_has_the_memory_of_what_was_donated() -> None:
    x = tc.ones((3, 64), backend="jax")
    params, expected = update(parameters(), x), update.python(parameters(), x)
    for _ in range(3):
        place = memory(params["w"])
        params, expected = update(params, x), update.python(expected, x)
        assert memory(params["w"]) == place
        np.testing.assert_allclose(params["w"].numpy(), expected["w"].numpy(), rtol=1e-4)
    assert x.numpy().sum() == 192  # it was not donated


def test_what_somebody_else_has_is_not_overwritten() -> None:
    x = tc.ones((3, 64), backend="jax")
    params = update(parameters(), x)
    for keep in (
        lambda p: p["w"].array,  # the array
        lambda p: tc.asarray(p["w"].array),  # another Tensor
        lambda p: p["w"].numpy(),  # a view of its memory
        lambda p: p["w"] * 1.0,  # a copy
    ):
        kept = keep(params)
        before = np.array(kept)
        params = update(params, x)
        np.testing.assert_array_equal(np.asarray(kept), before)


def test_a_tape_has_what_it_recorded() -> None:
    x, v = tc.ones((3, 64), backend="jax"), tc.Variable(tc.asarray(2.0, backend="jax"))
    params = update(parameters(), x)
    expected = float(tc.sum(params["w"]))
    with tc.GradientTape() as tape:
        product = tc.sum(v * params["w"])
    update(params, x)
    gradient = tape.gradient(product, v)
    assert gradient is not None
    np.testing.assert_allclose(float(gradient), expected, rtol=1e-5)


def test_nothing_is_overwritten_where_references_do_not_tell_who_else_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "COUNTS_REFERENCES", False)  # as from Python 3.14 on
    step = tc.function(update.python, compile="xla", donate="params")
    x = tc.ones((3, 64), backend="jax")
    params = step(parameters(), x)
    for _ in range(2):
        place = memory(params["w"])
        params = step(params, x)
        assert memory(params["w"]) != place
