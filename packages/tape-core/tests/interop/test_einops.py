"""einops takes Tensors: what it makes of them is recorded, batched and compiled like any other op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import run_python

einops = pytest.importorskip("einops")

X = np.random.default_rng(0).normal(size=(2, 3, 4))


def _packed(x: Any) -> Any:
    packed, shapes = einops.pack([x, x[:, :, 0]], "a b *")
    wide, narrow = einops.unpack(packed * 2.0, shapes, "a b *")
    return wide * narrow[:, :, None]


CALLS = {
    "rearrange": lambda x: einops.rearrange(x, "a b c -> (c a) b"),
    "a list": lambda x: einops.rearrange([x, x * x], "k a b c -> a (k b) c"),
    "reduce by mean": lambda x: einops.reduce(x, "a b (c d) -> b d", "mean", d=2),
    "reduce by max": lambda x: einops.reduce(x, "a b c -> a 1 c", "max"),
    "reduce by prod": lambda x: einops.reduce(x, "a b c -> ", "prod"),
    "repeat": lambda x: einops.repeat(x, "a b c -> a (b r) c d", r=2, d=3),
    "einsum": lambda x: einops.einsum(x, x, "a b c, a b d -> c d"),
    "pack": _packed,
}


@pytest.mark.parametrize("name", CALLS)
def test_the_result_and_its_derivatives(name: str) -> None:
    call: Any = CALLS[name]
    x = tc.asarray(X)
    found = call(x)
    assert isinstance(found, tc.Tensor)
    np.testing.assert_allclose(found.numpy(), call(X), rtol=1e-12)
    tc.testing.check_grads(call, [x])
    batched = tc.vmap(call)(tc.asarray(np.stack([X, 2 * X])))
    np.testing.assert_allclose(batched.numpy(), np.stack([call(X), call(2 * X)]), rtol=1e-12)
    compiled = tc.function(tc.grad(lambda x: tc.sum(call(x) ** 2)))
    eager = tc.grad(lambda x: tc.sum(call(x) ** 2))(x)
    assert [np.array_equal(compiled(x).numpy(), eager.numpy()) for _ in range(2)] == [True, True]


def test_a_variable_is_watched() -> None:
    v = tc.Variable(X)
    with tc.GradientTape() as tape:
        y = tc.sum(einops.rearrange(v, "a b c -> c (a b)") ** 2)
    np.testing.assert_allclose(tape.gradient(y, v).numpy(), 2 * X, rtol=1e-12)


@pytest.mark.parametrize("imports", ["import einops, tape_core as tc", "import tape_core as tc; import einops"])
def test_either_may_be_imported_first(imports: str) -> None:
    program = f"{imports}; print(einops.rearrange(tc.ones((2, 3)), 'a b -> b a').shape)"
    assert run_python("-c", program) == "(3, 2)\n"


def test_nothing_is_imported_where_einops_is_not() -> None:
    program = "import sys, tape_core; print('einops' in sys.modules)"
    assert run_python("-c", program) == "False\n"
