"""Errors say how to install what is missing: from an index, or from the clone in which Tape was installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tape_core.base.installing import install_command


def origin(path: Path, **more: object) -> str:
    return json.dumps({"url": path.as_uri(), **more})


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    packages = tmp_path / "packages"
    required = {"tape-core": "", "tape-backend": '"tape-core>=0.1", "tape-helper>=0.1", "numpy"', "tape-helper": ""}
    for name, lines in required.items():
        (packages / name).mkdir(parents=True)
        (packages / name / "pyproject.toml").write_text(f"[project]\ndependencies = [{lines}]\n")
    return packages


@pytest.mark.parametrize("more", [{"dir_info": {}}, {"dir_info": {"editable": True}}])
def test_in_a_clone_the_folder_is_named_and_those_that_it_needs(clone: Path, more: dict[str, object]) -> None:
    record = origin(clone / "tape-core", **more)
    # tape-core is installed, tape-helper is not.
    assert install_command("tape-backend", record) == f"pip install {clone / 'tape-helper'} {clone / 'tape-backend'}"
    assert install_command("tape-helper", record) == f"pip install {clone / 'tape-helper'}"


def test_a_folder_with_a_space_is_quoted(clone: Path) -> None:
    moved = clone.rename(clone.parent / "my packages")
    record = origin(moved / "tape-core", dir_info={})
    assert install_command("tape-helper", record) == f'pip install "{moved / "tape-helper"}"'


@pytest.mark.parametrize(
    "record",
    [
        "",
        '{"url": "https://example.org/tape_core-0.1.0-py3-none-any.whl", "archive_info": {}}',
        '{"url": "file:///dist/tape_core-0.1.0-py3-none-any.whl", "archive_info": {}}',
        '{"url": "file:///nowhere/packages/tape-core", "dir_info": {}}',
    ],
)
def test_elsewhere_the_name_is_named(record: str) -> None:
    assert install_command("tape-torch", record) == "pip install tape-torch"
