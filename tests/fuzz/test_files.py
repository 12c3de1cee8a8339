"""Files that are damaged or hostile: they are refused with the documented error, or make no difference."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tape_fuzz import files
from tape_fuzz.search import search


@pytest.mark.parametrize("kind", sorted(files.KINDS))
def test_a_mutated_file_is_refused_or_equal_and_nothing_is_executed(
    kind: str, record_property: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files.check(files.Program(kind, ()))  # whatever is imported or compiled once
    files.check(files.Program(kind, (("cut", 40, 0),)))
    files.check(files.Program(kind, (("describe", 0, "{"),)))
    number = 75 if kind == "run.safetensors" else 250
    search(files.check, files.programs(kind), number, record_property, "files")
    assert os.listdir(tmp_path) == []


def test_the_guard_sees_what_it_is_for(tmp_path: Path) -> None:
    """A fuzzer whose guard is blind finds nothing."""
    (tmp_path / "inside").mkdir()
    with files.guarded(str(tmp_path / "inside")) as seen:
        exec("1")
        (tmp_path / "outside").write_text("x")
        (tmp_path / "inside" / "x").write_text("x")
        os.remove(tmp_path / "outside")
        os.system("true")
    assert [entry.partition("(")[0] for entry in seen] == ["compile", "exec", "open", "os.remove", "os.system"]
