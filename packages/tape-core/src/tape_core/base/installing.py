"""The commands by which errors say how to install a package of the Tape project that is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# What reads records of packages is imported by the errors that need it: `import tape_core` does not wait for it.


def install_command(package: str, origin: str | None = None) -> str:
    """Return the command that installs a package from where tape-core was installed: an index, or a clone.

    Who works with a clone may have no index that has Tape's packages, or one with others of this name.

    >>> install_command("tape-torch", origin='{"url": "https://index/tape_core.whl", "archive_info": {}}')
    'pip install tape-torch'

    Args:
        package: the name of a package of the Tape project.
        origin: the record of where tape-core comes from (PEP 610), "" for an index; by default that of the installed
            one.
    """
    folder = _clone(_origin() if origin is None else origin)
    if folder is None or not (folder / package / "pyproject.toml").is_file():
        return f"pip install {package}"
    paths = [str(folder / name) for name in _with_missing(package, folder)]
    return " ".join(["pip install", *(f'"{path}"' if " " in path else path for path in paths)])


def _origin() -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution("tape-core").read_text("direct_url.json") or ""
    except PackageNotFoundError:
        return ""


def _clone(origin: str) -> Path | None:
    """Return the folder with all packages of the clone that tape-core was installed from, if it was."""
    import json
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    record: dict[str, Any] = json.loads(origin or "{}")
    url = urlsplit(record.get("url", ""))
    return Path(url2pathname(url.path)).parent if url.scheme == "file" and "dir_info" in record else None


def _with_missing(package: str, folder: Path) -> list[str]:
    """Return the packages of a clone that one needs and that are not installed, before it: no index has them."""
    import tomllib

    names: list[str] = []
    for line in tomllib.loads((folder / package / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]:
        match = re.match(r"[\w-]+", line)
        if match and (folder / match[0] / "pyproject.toml").is_file() and not _is_installed(match[0]):
            names += _with_missing(match[0], folder)
    return list(dict.fromkeys([*names, package]))


def _is_installed(package: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
