"""Context variables: all of Tape's are in one module, which says what each is for."""

from __future__ import annotations

import re
from contextvars import ContextVar
from pathlib import Path

import tape_core
from tape_core.base import ambient

SOURCE = Path(tape_core.__file__).parent


def test_no_other_module_makes_a_context_variable() -> None:
    made = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.name != "ambient.py" and re.search(r"^[^>\n]*=\s*ContextVar\(", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert made == []


def test_each_context_variable_has_a_row_in_the_table() -> None:
    names = {name for name, value in vars(ambient).items() if isinstance(value, ContextVar)}
    table = (ambient.__doc__ or "").partition("Other state")[0]
    assert set(re.findall(r"^`([A-Z_]+)`", table, re.MULTILINE)) == names
