"""The migration guide's TensorFlow program is the one it runs on the façade, but for the import.

tests/test_docs.py runs the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "migrating-from-tensorflow.md"


def test_only_the_import_changes(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (original,) = re.findall(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    here = original.replace("import tensorflow as tf", "import tape_tf as tf")
    body, _, last = here.rstrip("\n").rpartition("\n")
    assert f"```python\n{body}\n```" in text
    shown, promised = last.split("  # ")
    assert f">>> {shown}\n{promised}\n" in text
    exec(compile(here, PAGE.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == f"{promised}\n"
