"""Programs in tf.keras against the numbers that Keras gives for them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


HERE = Path(__file__).parents[1] / "expected"
EXPECTED = json.loads((HERE / "keras.json").read_text())

_spec = importlib.util.spec_from_file_location("make_keras", HERE / "make_keras.py")
assert _spec is not None
assert _spec.loader is not None
programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)


def compare(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected), where  # the order of the logs, too
        for key, value in expected.items():
            compare(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list) and any(isinstance(part, list | dict | str) or part is None for part in expected):
        assert len(found) == len(expected), where
        for k, value in enumerate(expected):
            compare(found[k], value, f"{where}[{k}]")
    elif isinstance(expected, str) or expected is None:
        assert found == expected, where
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=where)


def test_all_programs_have_their_numbers() -> None:
    assert list(programs.PROGRAMS) == list(EXPECTED)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_it_gives_what_keras_gives(name: str) -> None:
    compare(programs.plain(programs.PROGRAMS[name](tf)), EXPECTED[name], name)
