"""Programs in tf.keras against the numbers that Keras gives for them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


HERE = Path(__file__).parents[1] / "expected"
FILES = {
    "make_keras": "keras.json",
    "make_keras_images": "keras_images.json",
    "make_keras_sequences": "keras_sequences.json",
}


def loaded(name: str) -> Any:
    """Return the module of programs with this name, under which the others import it."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = {name: loaded(name) for name in FILES}
EXPECTED = {name: json.loads((HERE / file).read_text()) for name, file in FILES.items()}
CASES = [(name, program) for name, module in MODULES.items() for program in module.PROGRAMS]


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


@pytest.mark.parametrize("name", FILES)
def test_all_programs_have_their_numbers(name: str) -> None:
    assert list(MODULES[name].PROGRAMS) == list(EXPECTED[name])


@pytest.mark.parametrize(("file", "name"), CASES, ids=[name for _, name in CASES])
def test_it_gives_what_keras_gives(file: str, name: str) -> None:
    compare(MODULES["make_keras"].plain(MODULES[file].PROGRAMS[name](tf)), EXPECTED[file][name], name)
