"""Warnings point at the user's line, whoever gives them."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.base.user_code import attribute_warnings

PACKAGES = Path(__file__).parents[4] / "packages"


@pytest.fixture(autouse=True)
def numpy_warns() -> Iterator[None]:
    """Whatever other tests have left of NumPy's settings, which an interrupt can."""
    with np.errstate(all="warn"):
        yield


def places(call: Callable[[], Any]) -> list[tuple[str, int, str]]:
    """Return the file, the line within `call`, and the text of each warning."""
    with warnings.catch_warnings(record=True) as log:
        warnings.resetwarnings()
        attribute_warnings()
        call()
    first = inspect.getsourcelines(call)[1]
    return [(Path(w.filename).name, w.lineno - first, str(w.message)) for w in log]


def test_a_warning_of_numpy_points_at_the_users_line() -> None:
    x = tc.asarray([0.0, 1.0], backend="numpy")

    def program() -> None:
        tc.log(x)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = 1 / x
        tape.gradient(y, x)
        tc.vmap(lambda x: tc.exp(x * 1000))(x)
        tc.mean(x[:0])
        tc.softmax(x - float("inf"))
        tc.astype(x * 1j, tc.float32)
        tc.function(lambda x: tc.sum(tc.log(x)))(x)
        np.log(x.numpy())

    here = Path(__file__).name
    assert [(line, text) for file, line, text in places(program) if file == here] == [
        (1, "divide by zero encountered in log"),
        (4, "divide by zero encountered in divide"),
        (6, "overflow encountered in exp"),
        (7, "Mean of empty slice"),
        (7, "invalid value encountered in divide"),
        (8, "invalid value encountered in subtract"),
        (9, "Casting complex values to real discards the imaginary part"),
        (10, "divide by zero encountered in log"),
        (11, "divide by zero encountered in log"),
    ]


def test_filters_of_the_users_see_their_own_module_and_line() -> None:
    x = tc.asarray([0.0], backend="numpy")
    with warnings.catch_warnings(record=True) as log:
        warnings.resetwarnings()
        attribute_warnings()
        for _ in range(3):
            tc.log(x)
        assert len(log) == 1, "once a line"
        tc.log(x)
        assert [w.category for w in log] == [RuntimeWarning] * 2
        warnings.filterwarnings("ignore", module=__name__)
        tc.log(x)
        assert len(log) == 2
        warnings.filterwarnings("error", module=__name__)
        with pytest.raises(RuntimeWarning, match="divide by zero encountered in log"):
            tc.log(x)


def test_warnings_of_the_users_own_code_are_left_alone() -> None:
    def program() -> None:
        np.log(np.zeros(1))
        warnings.warn("invalid value encountered in the mail", stacklevel=1)

    assert [(line, text) for _, line, text in places(program)] == [
        (1, "divide by zero encountered in log"),
        (2, "invalid value encountered in the mail"),
    ]


def test_every_warning_of_the_packages_is_given_at_the_users_line() -> None:
    found: list[str] = []
    for path in PACKAGES.glob("*/src/**/*.py"):
        tree = ast.parse(path.read_text())
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        found += [path.name for name in calls if name in ("warn", "warnings.warn")]
    assert found == ["user_code.py"]
