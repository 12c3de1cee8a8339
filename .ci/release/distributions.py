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


FORMS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.citation-file-format": "CITATION.cff",
}
"""Files whose form others define, by the names that check-jsonschema has for the forms."""


def check_forms() -> None:
    """Check the files that GitHub reads."""
    for schema, pattern in FORMS.items():
        paths = [str(path) for path in sorted(ROOT.glob(pattern))]
        assert paths, pattern
        call(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *paths, quiet=True)
    call(tool("zizmor"), "--offline", "--quiet", ".github", quiet=True)


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
    set_version(folder, before)
    # tape-core says since which version it speaks the contract with plugins, in which this one is made, too.
    contracts = folder / "packages/tape-core/src/tape_core/backends/versions.py"
    text = contracts.read_text("utf-8").replace(f'since="{major}.{minor}"', f'since="{major}.{minor - 1}"')
    contracts.write_text(text, encoding="utf-8")
    return folder, before


def set_version(root: Path, new: str) -> list[Path]:
    """Give all packages of a checkout a version, and have them require each other at it; returns the changed files.

    A package needs what the others of its version have, and works with later ones until the next minor version.
    """
    old = version(root)
    major, minor = map(int, new.split(".")[:2])
    lowest = new if not new.endswith(".0") else f"{major}.{minor}"
    pattern = re.compile(r"(tape-[a-z]+(?:\[[\w,]+\])?)>=[\d.]+,<[\d.]+")
    # The packages say once more in Python what they require: they refuse another tape-core when they are imported.
    paths = [*root.glob("packages/*/pyproject.toml"), *root.glob("packages/*/src/*/__init__.py")]
    changed = []
    # Plugins to test with are for the version that is tested, and pages show what to write now.
    paths += [
        *root.glob("tests/plugins/*/pyproject.toml"),
        *root.glob("docs/write-a*.md"),
        root / "docs" / "plugins.md",
    ]
    for path in [*paths, root / VERSION_FILE, root / "CITATION.cff"]:
        if not path.exists():
            continue
        text = path.read_text("utf-8")
        result = pattern.sub(rf"\1>={lowest},<{major}.{minor + 1}", text)
        result = result.replace(f'__version__ = "{old}"', f'__version__ = "{new}"')
        result = result.replace(f"\nversion: {old}\n", f"\nversion: {new}\n")
        if result != text:
            path.write_text(result, encoding="utf-8")
            changed.append(path)
    return changed


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
