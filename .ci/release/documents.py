"""The code of each page, run in an environment that has only what the page says to install."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from distributions import ROOT
from environments import Index, new

sys.path.append(str(ROOT / "tests"))

import pages

LARGE = {"tape-torch": "torch", "tape-jax": "jax"}


def documents(folder: Path, index: Index, version: str, *, large: bool) -> None:
    """Run the pages, those that need the same in one environment."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for page in pages.PAGES:
        requirements = pages.installed_by(page)
        assert requirements, f"{page} does not say what to install for its code"
        groups[tuple(sorted(requirements))].append(page)
    failed = []
    for k, (requirements, group) in enumerate(groups.items()):
        libraries = [library for name, library in LARGE.items() if any(r.startswith(name) for r in requirements)]
        if libraries and not large:
            print(f"  left out, for they need {', '.join(libraries)}: {', '.join(group)}")
            continue
        environment = new(folder / f"pages-{k}", index, version, large=libraries)
        environment.install(*requirements)
        for page in group:
            # Each page in an interpreter of its own; warnings are errors, as in the tests.
            result = environment.attempt(["python", "-W", "error", str(ROOT / "tests" / "pages.py"), page])
            if result.returncode:
                failed.append(f"{page}, with {' '.join(requirements)}:\n{_end(result)}")
    if failed:
        sys.exit("\n\n".join(failed))


def _end(result: subprocess.CompletedProcess[str]) -> str:
    return "\n".join(result.stdout.splitlines()[-30:])
