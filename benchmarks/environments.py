"""The environments of the peers: each library in one of its own, beside the one that runs this, which has Tape.

    python benchmarks/environments.py FOLDER    make those that are not there yet

What cannot be installed is said, and skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# NumPy is what worker.py needs.
REQUIREMENTS = {
    "autograd": ["autograd", "scipy", "numpy"],  # its logsumexp is that of SciPy
    "mygrad": ["mygrad", "numpy"],
    "jax": ["jax", "numpy"],
    "tensorflow": ["tensorflow-cpu; sys_platform == 'linux'", "tensorflow; sys_platform != 'linux'", "numpy"],
}


def python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pythons(folder: Path | None) -> dict[str, str]:
    """The Python of each environment. What FOLDER lacks is looked for where this runs."""
    found = {"tape": sys.executable}
    for name in REQUIREMENTS:
        python = python_of(folder / name) if folder else None
        found[name] = str(python) if python and python.exists() else sys.executable
    return found


def commands(environment: Path, requirements: list[str]) -> Iterator[list[list[str]]]:
    """How to make an environment: with uv where there is one, or with what Python brings."""
    python = str(python_of(environment))
    if uv := shutil.which("uv"):
        yield [
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment)],
            [uv, "pip", "install", "--quiet", "--python", python, *requirements],
        ]
    yield [
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
    ]


def make(folder: Path) -> None:
    """One environment for each library."""
    for name, requirements in REQUIREMENTS.items():
        done = folder / name / "complete"
        if done.exists():
            continue
        print(f"making the environment of {name}", flush=True)
        why = ""
        for way in commands(folder / name, requirements):
            try:
                for command in way:
                    subprocess.run(command, check=True, capture_output=True, text=True)
            except (OSError, subprocess.CalledProcessError) as error:
                lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
                why = lines[-1] if lines else str(error)
                continue
            done.touch()
            break
        else:
            shutil.rmtree(folder / name, ignore_errors=True)
            print(f"{name}: skipped, {why}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(Path(sys.argv[1]))
