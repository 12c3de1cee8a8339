"""The environments of the peers: each library in one of its own, beside the one that runs this, which has Tape.

    python benchmarks/environments.py FOLDER    make those that are not there yet

What cannot be installed is said, and skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# NumPy is what worker.py needs.
REQUIREMENTS = {
    "autograd": ["autograd", "numpy"],
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


def make(folder: Path) -> None:
    """One environment for each library."""
    for name, requirements in REQUIREMENTS.items():
        environment = folder / name
        if (environment / "complete").exists():
            continue
        python = str(python_of(environment))
        if uv := shutil.which("uv"):
            commands = [[uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment)]]
            commands += [[uv, "pip", "install", "--quiet", "--python", python, *requirements]]
        else:
            commands = [[sys.executable, "-m", "venv", "--clear", str(environment)]]
            commands += [[python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]]
        print(f"making the environment of {name}", flush=True)
        try:
            for command in commands:
                subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            print(f"{name}: skipped, {said.strip().splitlines()[-1]}", flush=True)
            continue
        (environment / "complete").touch()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(Path(sys.argv[1]))
