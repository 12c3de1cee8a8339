"""New projects: `python -m tape_conformance new backend|compiler|op NAME` writes one that passes its tests.

The texts are in `templates/`: what all kinds share in `common/`, the rest by kind. In the path of a template `MODULE`
stands for the project's module and `dot-` for a dot; in its text `<<name>>` stands for a value.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, resources
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tape_core import __version__, extend
from tape_core.backends import CONTRACT_VERSION, backend_of_type, compilers, installed

Kind = Literal["backend", "compiler", "op"]
KINDS: tuple[Kind, ...] = ("backend", "compiler", "op")

OWN = ("autograd", "compile", "conformance", "core", "jax", "nn", "numpy", "tf", "torch")
"""Names after `tape-` that are packages of the Tape project, installed or not."""

STRICT = "array_api_strict"  # the standard and nothing else: the library of a new backend that names none
LONGEST = 30  # letters of a name: lines of templates hold it twice


class NewError(ValueError):
    """A project cannot be written as asked: what is wrong, and what to do, in a sentence each."""


@dataclass(frozen=True)
class Library:
    """The array library of a new backend.

    Attributes:
        namespace: the module with the functions of the Array API standard.
        array_class: the class of its arrays, as `module:qualname`.
        requirement: what pip installs it by.
        owner: the name of the backend that has these arrays already; "" if none does.
    """

    namespace: str
    array_class: str
    requirement: str
    owner: str = ""

    @property
    def top(self) -> str:
        """The package that users know: the one of its arrays."""
        return self.array_class.partition(":")[0].partition(".")[0]


def project(
    kind: Kind, name: str, *, library: str = STRICT, array_class: str = "", owner: str = "OWNER"
) -> dict[str, str]:
    """Return the files of a new project, their texts by their paths.

    >>> sorted(project("op", "swirl"))[-1]
    'tests/test_values.py'

    Args:
        kind: what the project is.
        name: of the backend, the compiler or the op; the project is `tape-NAME`.
        library: for a backend, the module with the functions of the Array API standard.
        array_class: for a backend, the class of its arrays as `module:qualname`; by default the class of an array that
            the library makes.
        owner: the account on GitHub, for the badge in the README.

    Raises:
        NewError: the name is none that can be, or is taken; or there is no such library.
    """
    _check_name(kind, name)
    values = _values(kind, name, owner)
    if kind == "backend":
        values |= _values_of(_library(library, array_class))
    found: dict[str, str] = {}
    root = resources.files("tape_conformance") / "templates"
    for folder in ("common", kind):
        for path, text in _templates(root / folder, ""):
            target = path.replace("MODULE", values["module"]).replace("dot-", ".").removesuffix(".in")
            found[target] = re.sub(r"<<(\w+)>>", lambda match: values[match[1]], text)
            if target.endswith(".toml"):  # parts that are empty leave no blank lines behind
                found[target] = re.sub(r"\n(\s*\n){2,}", "\n\n", found[target]).replace("[\n\n", "[\n")
            found[target] = found[target].strip("\n") + "\n" if found[target].strip() else ""
    return found


def write(files: dict[str, str], folder: Path) -> None:
    """Write files into a folder that is not there, or is empty but for `.git`.

    Raises:
        NewError: there is something in the folder, or it cannot be written to.
    """
    if folder.exists() and not folder.is_dir():
        raise NewError(f"{folder} is a file; name another folder by --out")
    if folder.is_dir() and any(path.name != ".git" for path in folder.iterdir()):
        raise NewError(f"the folder {folder} is not empty, and nothing in it is overwritten; name another one by --out")
    try:
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise NewError(
            f"{folder} cannot be written: {error.strerror or error}; name another folder by --out"
        ) from error


def note(library: str = STRICT, array_class: str = "") -> str:
    """Return what the author of a backend should know of others that are installed; "" if nothing.

    Raises:
        NewError: there is no such library.
    """
    found = _library(library, array_class)
    if not found.owner:
        return ""
    return (
        f"Arrays of {found.array_class} belong to the installed backend {found.owner!r}, and an array has one backend: "
        f"uninstall it where you test yours, or set TAPE_DISABLE_BACKENDS={found.owner}."
    )


# -- names


def _check_name(kind: Kind, name: str) -> None:
    normal = re.sub(r"[^a-z0-9]+", "_" if kind == "op" else "-", name.lower()).strip("-_")
    normal = re.sub(r"^tape[-_]", "", normal)
    allowed = r"[a-z][a-z0-9]*(_[a-z0-9]+)*" if kind == "op" else r"[a-z][a-z0-9]*([-_][a-z0-9]+)*"
    if not re.fullmatch(allowed, name) or len(name) > LONGEST or re.match("tape[-_]", name):
        what = "small letters, digits and _" if kind == "op" else "small letters, digits, - and _"
        cure = f": {normal!r}" if normal != name and re.fullmatch(allowed, normal) and len(normal) <= LONGEST else ""
        raise NewError(
            f"{name!r} cannot be the name of {_a(kind)}; write one of at most {LONGEST} {what}, which begins with a "
            f"letter, without 'tape-'{cure}"
        )
    if kind == "op" and keyword.iskeyword(name):
        raise NewError(f"{name!r} is a word of Python's own, so that no function has this name; write '{name}_op'")
    taken = ""
    if kind == "backend" and (plugin := installed().get(name)):
        taken = f"there is a backend {name!r}, of {plugin.distribution}"
    elif kind == "compiler" and (name in compilers.installed() or name in compilers.PACKAGES):
        found = compilers.installed().get(name)
        taken = f"there is a compiler {name!r}, of {found.distribution if found else compilers.PACKAGES[name]}"
    elif kind == "op" and (name in extend.registry or name in extend.__all__):
        taken = (
            f"there is an op {name!r} in Tape" if name in extend.registry else f"{name!r} is a name of tape_core.extend"
        )
    elif name.replace("_", "-") in OWN:
        taken = f"tape-{name} is a package of the Tape project"
    elif find_spec(module := _module(name)) is not None:
        taken = f"a module {module} is installed already"
    if taken:
        raise NewError(f"{taken}; choose another name")


def _a(kind: Kind) -> str:
    return f"{'an' if kind == 'op' else 'a'} {kind}"


def _module(name: str) -> str:
    return f"tape_{name.replace('-', '_')}"


# -- the array library


def _library(namespace: str, array_class: str) -> Library:
    """Return what a backend's project says of its array library, which is imported if its class is not named."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", namespace):
        raise NewError(f"--library is the name of a module such as mylib.array_api, not {namespace!r}")
    if array_class and not re.fullmatch(r"[\w.]+:[\w.]+", array_class):
        raise NewError(f"--array-class is a class as module:qualname, such as mylib:Array, not {array_class!r}")
    owner = ""
    if not array_class and namespace == STRICT and find_spec(namespace) is None:
        array_class = f"{STRICT}:Array"  # known, so that the default works where it is not installed yet
    if not array_class:
        array_class, owner = _class_of_arrays(namespace)
    top = array_class.partition(":")[0].partition(".")[0]
    return Library(namespace, array_class, _requirement(top), owner)


def _class_of_arrays(namespace: str) -> tuple[str, str]:
    """Return the class of a library's arrays, under the name by which users know it, and the backend that has it."""
    top = namespace.partition(".")[0]
    try:
        xp = import_module(namespace)
    except ImportError as error:
        raise NewError(
            f"the library {namespace!r} cannot be imported ({error}); install it, or name the class of its arrays by "
            f"--array-class {top}:Array"
        ) from error
    missing = [function for function in ("asarray", "empty", "sum") if not callable(getattr(xp, function, None))]
    if missing:
        raise NewError(
            f"{namespace!r} is no namespace of the Array API standard: it has no {missing[0]}; name the module with "
            f"these functions, or look whether array-api-compat has one for the library: array_api_compat.{namespace}"
        )
    array = xp.empty((0,))
    cls = type(array)
    claimed = backend_of_type(cls)
    owner = claimed.name if claimed else ""
    for module in dict.fromkeys([top, cls.__module__.partition(".")[0]]):
        for name in dict.fromkeys([cls.__qualname__, "Array", "Tensor", "ndarray"]):
            known = getattr(sys.modules.get(module), name, None)
            if isinstance(known, type) and isinstance(array, known):
                return f"{module}:{name}", owner
        if cls.__module__.startswith(f"{module}."):  # Tape finds it inside of the package
            return f"{module}:{cls.__qualname__}", owner
    return f"{cls.__module__}:{cls.__qualname__}", owner


def _requirement(top: str) -> str:
    """Return the package that brings a module, from its installed version on."""
    names = packages_distributions().get(top) if find_spec(top) is not None else None
    if not names:
        return top.replace("_", "-")
    found = re.match(r"\d+(\.\d+)?", version(names[0]))
    return names[0].replace("_", "-") + (f">={found[0]}" if found else "")


# -- what stands in the templates


def _range(of: str) -> str:
    """Return the versions that go with one: before 1.0 each minor version may break something, later each major one.

    >>> _range("0.3.1"), _range("1.4.0")
    ('>=0.3,<0.4', '>=1.4,<2')
    """
    major, minor = map(int, of.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}" if major == 0 else f">={major}.{minor},<{major + 1}"


def _values(kind: Kind, name: str, owner: str) -> dict[str, str]:
    module, own = _module(name), _range(__version__)
    numpy = f'    "tape-numpy{own}", # computes in the tests'
    values = {
        "name": name,
        "module": module,
        "distribution": module.replace("_", "-"),
        "class_name": "".join(part.capitalize() for part in re.split("[-_]", name)),
        "owner": owner,
        "contract": str(CONTRACT_VERSION),
        "range": own,
        "install_tape": _install_tape(kind),
        "entry_point": "",
        "mypy_overrides": "",
        "quick": "--tape-quick",
    }
    if kind == "backend":
        return values | {
            "test_dependencies": "",
            "entry_point": f'\n[project.entry-points."tape.backends"]\n{name} = "{module}"\n',
            "addopts": f'"--tape-backend={name}"',
        }
    if kind == "compiler":
        return values | {
            "description": f"{name}: a compiler for the functions of Tape",
            "dependencies": f'    "tape-core{own}", # the hooks\n    "tape-compile{own}", # programs and compilers',
            "test_dependencies": numpy,
            "entry_point": f'\n[project.entry-points."tape.compilers"]\n{name} = "{module}"\n',
            "addopts": f'"--tape-backend=numpy", "--tape-compiler={name}", "--tape-only=*/compiled-by-{name}/*"',
        }
    return values | {
        "description": f"{name}: an op for Tape, with its derivatives",
        "dependencies": f'    "tape-core{own}", # ops and rules',
        "test_dependencies": numpy,
        "addopts": f'"--tape-backend=numpy", "--tape-only={name}/*"',
        "mypy_overrides": (
            f'\n[[tool.mypy.overrides]]\nmodule = ["{module}.*"]\n'
            'disable_error_code = ["empty-body"] # an op is declared by its signature; the kernel has the body\n'
        ),
        "quick": "",
    }


def _values_of(library: Library) -> dict[str, str]:
    top = library.namespace.partition(".")[0]
    # With numpy its array-api-compat is a second package.
    packages = dict.fromkeys([library.requirement] if top == library.top else [library.requirement, _requirement(top)])
    lines = [f'    "tape-core{_range(__version__)}", # the contract of backends']
    lines += [f'    "{package}", # the arrays' for package in packages]
    expected = ""
    if library.top == STRICT:
        expected = (
            '\n[[expected]]\nid = "contract/backward/quiet"\n'
            'reason = "array-api-strict computes with NumPy, and lets its warnings through"\n'
        )
    return {
        "library_top": library.top,
        "import_library": library.namespace,
        "array_class": library.array_class,
        "install": " ".join(f'"{package}"' for package in packages),
        "description": f"The arrays of {library.top} as a backend of Tape",
        "dependencies": "\n".join(lines),
        "expectations": expected,
        "mypy_overrides": (
            f'\n[[tool.mypy.overrides]]\nmodule = ["{top}.*"] # it may carry no types\nignore_missing_imports = true\n'
        ),
    }


def _install_tape(kind: Kind) -> str:
    """Return the line that installs Tape from where it was installed here, if that is no index of packages."""
    try:
        local = '"dir_info"' in (distribution("tape-core").read_text("direct_url.json") or "")
    except PackageNotFoundError:
        local = True
    if not local:
        return ""
    packages = ["core", "compile", "conformance", *(["numpy"] if kind != "backend" else [])]
    folders = " ".join(f"packages/tape-{package}" for package in packages)
    return f"python -m pip install {folders}    # in a clone of Tape, if it is not to come from PyPI\n"


def _templates(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".in"):
            yield f"{path}{entry.name}", entry.read_text(encoding="utf-8")
