"""Environments as readers make them: a new one for each, with pip, that sees an index and no checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from distributions import NAMES, ROOT

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


@dataclass
class Index:
    """Where packages come from: an index of this machine for Tape's own, the usual one for all others.

    `large` are the folders of libraries that are unpacked once for all environments, by their names.
    """

    url: str
    folder: Path
    large: dict[str, Path] = field(default_factory=dict)

    def settings(self, version: str) -> dict[str, str]:
        """What pip reads from the environment: where to look, and which versions it may take."""
        constraints = self.folder / f"constraints-{version}.txt"
        if not constraints.exists():
            # A stranger's package of the same name and of a later version is not taken.
            own = "".join(f"{name}=={version}\n" for name in NAMES) if version else ""
            constraints.write_text((ROOT / "constraints.txt").read_text("utf-8") + own, encoding="utf-8")
        others = os.environ.get("PIP_EXTRA_INDEX_URL", "")
        return {
            "PIP_EXTRA_INDEX_URL": f"{self.url} {others}".strip(),
            "PIP_CONSTRAINT": str(constraints),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # To compile all of SciPy, of which little is imported, takes longer than to install it. (Yes, "no" means
            # that it is not compiled: https://pip.pypa.io/en/stable/topics/configuration/#boolean-options.)
            "PIP_NO_COMPILE": "no",
        }


@dataclass
class Environment:
    """A new environment, in which commands are run as they are typed."""

    folder: Path
    index: Index
    version: str
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> str:
        return str(self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    def run(self, command: str | list[str], *, fails: bool = False, expect: Iterable[str] = ()) -> str:
        """Run `python ...` or another command of the environment; what it prints has to contain what is expected.

        `fails` says that the command is expected to fail.
        """
        result = self.attempt(command)
        missing = [text for text in expect if not re.search(text, result.stdout)]
        if bool(result.returncode) != fails or missing:
            problem = f"says nothing like {missing}" if missing else f"ended with {result.returncode}"
            sys.exit(f"\n{result.stdout}\nin {self.folder}:\n{command}\n{problem}")
        return result.stdout

    def attempt(self, command: str | list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, and say how long it takes."""
        parts = command.split() if isinstance(command, str) else list(command)
        program = Path(self.python).parent / (
            parts[0] + (".exe" if os.name == "nt" else "")
        )  # or one named by its path
        hidden = ("TAPE_BACKEND", "TAPE_COMPILER", "PYTHONPATH")
        env = {name: value for name, value in os.environ.items() if name not in hidden}
        env |= {"PYTHONUTF8": "1", "OMP_NUM_THREADS": "1", **self.index.settings(self.version), **self.variables}
        start = perf_counter()
        # From a folder of its own: nothing is imported from the checkout.
        result = subprocess.run(
            [str(program), *parts[1:]],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            check=False,
        )
        shown = " ".join(part.replace(str(ROOT), ".") for part in parts)
        print(f"  {shown:<90.90} {perf_counter() - start:6.1f} s", flush=True)
        return result

    def install(self, *requirements: str, upgrade: bool = False) -> None:
        """Type `python -m pip install ...`; Tape's own packages have to come from the index of this machine."""
        report = self.folder / "report.json"
        self.variables["PIP_REPORT"] = str(report)
        options = ["--upgrade"] if upgrade else []
        self.run(["python", "-m", "pip", "install", "--quiet", *options, *requirements])
        del self.variables["PIP_REPORT"]
        for entry in json.loads(report.read_text("utf-8"))["install"]:
            name, url = entry["metadata"]["name"], entry["download_info"]["url"]
            allowed = (self.index.url, ROOT.as_uri())
            assert name not in NAMES or url.startswith(allowed), f"{name} comes from {url}"

    def installed(self) -> dict[str, str]:
        """The versions of Tape's packages that are installed."""
        listed = json.loads(self.run(["python", "-m", "pip", "list", "--format=json"]).splitlines()[0])
        return {entry["name"]: entry["version"] for entry in listed if entry["name"] in NAMES}


def new(
    folder: Path, index: Index, version: str, *, python: str = sys.executable, large: Iterable[str] = ()
) -> Environment:
    """Make an environment, with the libraries that are large and unpacked already."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", "--python", python, str(folder)], check=True)
    environment = Environment(folder, index, version)
    known = [name for name in large if name in index.large]
    if known:
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, check=True).stdout
        for name in known:
            (Path(packages.strip()) / f"{name}.pth").write_text(f"{index.large[name]}\n", encoding="utf-8")
    return environment


def interpreters() -> dict[str, str]:
    """The supported Pythons of this machine, beside the one that runs, by version."""
    running = "{}.{}".format(*sys.version_info)
    found = {}
    for version in SUPPORTED:
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
        for candidate in candidates:
            if version != running and candidate and _is(candidate, version):
                found[version] = candidate
                break
    return found


def _is(python: str, version: str) -> bool:
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return result.stdout.strip() == version
