"""The page of TensorFlow's names agrees with the code."""

from __future__ import annotations

import subprocess
import sys
from functools import cache, reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tape_tf as tf
from tape_tf.absences import ABSENT
from tape_tf.names import status
from tape_tf.names_page import page, tensorflow_names

page = cache(page)
PAGE = Path(__file__).parents[3] / "docs" / "tensorflow-names.md"


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tape_tf > docs/tensorflow-names.md"


def test_the_page_can_be_written() -> None:
    written = subprocess.run([sys.executable, "-m", "tape_tf"], capture_output=True, encoding="utf-8", check=True)
    assert written.stdout == page()


@pytest.mark.parametrize("space", tensorflow_names())
def test_each_name_is_on_the_page_once(space: str) -> None:
    names = tensorflow_names()[space]
    assert len(names) == len(set(names))
    start = page().index(f"\n## `{space}`\n")
    section = page()[start:].split("\n## ")[1]
    # Between bars or commas: what a note names is no entry.
    entries = [
        part.strip(" `")
        for line in section.splitlines()
        if line.startswith(("**", "| `"))
        for part in (line.split(" | ")[0].strip("| ") if line[0] == "|" else line.split("** ")[1]).split(",")
    ]
    assert sorted(entries) == sorted(names)


def test_names_that_are_said_to_be_there_are_there() -> None:
    for space, names in tensorflow_names().items():
        for name in names:
            kind, note = status(f"{space}.{name}".removeprefix("tf."))
            value: Any = reduce(getattr, space.split(".")[1:], tf)
            if kind == "absent":
                with pytest.raises(AttributeError, match=f"{space}.{name}"):
                    getattr(value, name)
            else:
                assert hasattr(value, name)
            assert kind != "different" or note


def test_what_is_said_to_be_absent_is_absent() -> None:
    """Modules that exist, such as tf.train, may have a note, for the names that they lack."""
    stale = []
    for name in ABSENT:
        value: Any = reduce(lambda space, part: getattr(space, part, None), name.split("."), tf)
        if value is not None and not isinstance(value, ModuleType):
            stale.append(name)
    assert not stale, "remove them from absences.py: they are there now"
