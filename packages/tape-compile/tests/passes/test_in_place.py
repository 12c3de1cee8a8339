"""In-place updates: a result takes the memory of an operand that nothing needs afterwards."""

from __future__ import annotations

import numpy as np
import tape_core as tc

LARGE = 1 << 16  # elements: small arrays are made faster than `out=` is passed


def test_a_chain_reuses_the_memory_of_its_own_results() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.relu(tc.tanh(x @ x) * 2.0 + 1.0)

    x = tc.asarray(np.linspace(0, 1, LARGE).reshape(256, -1), backend="numpy")
    compiled = tc.function(passes={"fusion": False})(f)
    before = x.numpy()
    for _ in range(2):
        assert compiled(x).numpy().tobytes() == f(x).numpy().tobytes()
    assert x.numpy().tobytes() == before.tobytes()  # the argument is the caller's
    assert compiled.text().count("out=") >= 1
    plain = tc.function(passes={"fusion": False, "in_place": False})(f)
    plain(x)
    assert "out=" not in plain.text()


def test_a_value_that_is_needed_later_is_not_overwritten() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        y = tc.sin(x)
        return tc.exp(y) * y

    x = tc.asarray(np.linspace(0, 1, LARGE), backend="numpy")
    compiled = tc.function(passes={"fusion": False})(f)
    for _ in range(2):
        assert compiled(x).numpy().tobytes() == f(x).numpy().tobytes()
