"""The contract with a backend's array library: what no library says by itself, and what is no such thing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_compile.library import LibrarySupport, support_of
from tape_compile.program import Program


def array(n: int = 3) -> tc.Tensor:
    return tc.asarray(np.linspace(0, 1, n), backend="numpy")


def program() -> Program:
    compiled = tc.function(lambda x: tc.sin(x) * 2.0)
    compiled(array())
    found: Program = compiled._compiled.all[0].traced
    return found


def test_without_a_backend_of_all_arrays_there_is_no_support() -> None:
    assert support_of(Program([], [], {}, [], {})) is None


def test_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = program()
    monkeypatch.setattr(type(array().backend), "compiler_support", property(lambda self: object()))
    with pytest.raises(
        TypeError, match=r"backend 'numpy': compiler_support must be a .*LibrarySupport or None, got <ob"
    ):
        support_of(given)


@pytest.mark.parametrize("support", [None, LibrarySupport()], ids=["none", "defaults"])
def test_functions_run_without_what_a_library_may_say(support: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(array().backend), "compiler_support", property(lambda self: support))

    def f(x: tc.Tensor) -> Any:
        return tc.value_and_grad(lambda x: tc.sum(tc.softmax(tc.relu(x) * 2.0 + x[::-1]) ** 2))(x)

    x = array(1 << 15)
    compiled = tc.function(f)
    for _ in range(2):
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()
