"""The sdists and wheels of all packages: built, checked, and offered on an index of this machine."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
NAMES = [path.name for path in PACKAGES]
VERSION_FILE = Path("packages/tape-core/src/tape_core/_version.py")

# What pyroma misses are a home page and an address of the authors, which the project does not have yet. They are two of
# its ten points; with them, ask for 10.
PYROMA = "8"


def version(root: Path = ROOT) -> str:
    """The version of all packages of a checkout."""
    match = re.search(r'__version__ = "(.+)"', (root / VERSION_FILE).read_text("utf-8"))
    assert match is not None
    return match[1]


def project(package: Path) -> dict[str, object]:
    """The table `project` of a package's pyproject.toml."""
    table: dict[str, object] = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def call(*command: str | Path, cwd: Path = ROOT, quiet: bool = False) -> None:
    """Run a command; where it fails, with what it printed."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        check=False,
        text=True,
        encoding="utf-8",
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if result.returncode:
        sys.exit(f"{result.stdout or ''}\n{' '.join(map(str, command))} failed")


def build(target: Path, *, root: Path = ROOT, names: list[str] | None = None, wheels_only: bool = False) -> None:
    """Build the packages of a checkout. Each wheel is built from the sdist, so that both are tried."""
    for name in names or NAMES:
        only = ["--wheel"] if wheels_only else []
        package = root / "packages" / name
        call(sys.executable, "-m", "build", "--no-isolation", *only, "-o", target, package, cwd=root, quiet=True)


def check(dist: Path) -> None:
    """Check metadata and contents of what was built."""
    files = sorted(str(path) for path in dist.iterdir())
    wheels = [path for path in files if path.endswith(".whl")]
    assert len(files) == 2 * len(NAMES) == 2 * len(wheels), f"not an sdist and a wheel of each package: {files}"
    call(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files, quiet=True)
    call(tool("check-wheel-contents"), *wheels, quiet=True)
    for package in PACKAGES:
        call(tool("pyroma"), "-n", PYROMA, package, quiet=True)
    for path in files:
        _contents(Path(path))


def tool(name: str) -> str:
    """The program of a package that is installed beside this Python."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or name


def _contents(path: Path) -> None:
    """Check that all of a package's files are in a distribution, and nothing of the checkout beside it."""
    name = path.name.split("-")[0]
    source = ROOT / "packages" / name.replace("_", "-") / "src"
    tracked = {file.relative_to(source).as_posix() for file in _sources(source)}
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            found = {entry for entry in wheel.namelist() if ".dist-info/" not in entry}
    else:
        with tarfile.open(path) as sdist:
            inside = {entry.name.partition("/")[2] for entry in sdist.getmembers() if entry.isfile()}
        found = {entry.removeprefix("src/") for entry in inside if entry.startswith("src/")}
        assert {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"} <= inside, f"{path.name} lacks one of them"
    assert found == tracked, f"{path.name} and the checkout differ in {sorted(found ^ tracked)}"


def _sources(source: Path) -> Iterator[Path]:
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield path


def earlier(folder: Path) -> tuple[Path, str]:
    """Make a checkout of the version before, whose packages require each other as released ones of that version do.

    Its code is today's: what pip and imports say of versions is tried, not what earlier code did.
    """
    now = version()
    major, minor = map(int, now.split(".")[:2])
    assert minor, f"say what was before {now}"
    before = f"{major}.{minor - 1}.9"
    for package in PACKAGES:
        copy = folder / "packages" / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        # The packages say once more in Python what they require: they refuse another tape-core. And tape-core says
        # since when it has spoken a contract with plugins.
        for path in (
            copy / "pyproject.toml",
            *copy.glob("src/*/__init__.py"),
            *copy.glob("src/*/backends/versions.py"),
        ):
            text = path.read_text("utf-8").replace(f'since="{major}.{minor}"', f'since="{major}.{minor - 1}"')
            text = re.sub(
                rf"(tape-[a-z]+(?:\[[\w,]+\])?)>={major}\.{minor}[\d.]*,<{major}\.{minor + 1}",
                rf"\1>={major}.{minor - 1},<{major}.{minor}",
                text,
            )
            path.write_text(text, encoding="utf-8")
    (folder / VERSION_FILE).write_text(f'"""The version before."""\n\n__version__ = "{before}"\n', encoding="utf-8")
    return folder, before


def write_index(target: Path, *dists: Path) -> None:
    """Write a simple index (PEP 503) of what was built: a page for each package, its files beside it."""
    for dist in dists:
        for path in sorted(dist.iterdir()):
            name = re.sub(r"[-_.]+", "-", path.name.split("-")[0])
            (target / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / name)
    for folder in target.iterdir():
        pythons = html.escape(str(project(ROOT / "packages" / folder.name)["requires-python"]))
        links = "".join(
            f'<a href="{path.name}" data-requires-python="{pythons}">{path.name}</a><br>\n'
            for path in sorted(folder.iterdir())
        )
        (folder / "index.html").write_text(f"<!DOCTYPE html><title>{folder.name}</title>\n{links}", encoding="utf-8")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve an index on a free port of this machine; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def reproducible() -> None:
    """Have the same sources build the same bytes: the time in the archives is that of the last commit."""
    git = ["git", "log", "-1", "--format=%ct"]
    result = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        os.environ.setdefault("SOURCE_DATE_EPOCH", result.stdout.strip())
