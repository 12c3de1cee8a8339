"""Figures of the house: `python tests/house.py` prints lines, cycles, private imports, the share of `Any`, comments."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

FLOORS = (
    "typing _version",
    "base",
    "staging",
    "backends",
    "engine random distributions",
    "modes",
    "ops",
    "transforms",
    "debugging sparsity interop meshes",
    "compiled extend fft linalg scipy special stats support testing tracing tape_core __main__",
)
"""The rooms of tape-core from the ground up: a module imports from its own floor and from those below."""

DECLARED = {
    "tape_core": [
        "backends",
        "debugging",
        "extend",
        "fft",
        "linalg",
        "meshes",
        "random",
        "scipy",
        "special",
        "staging",
        "stats",
        "support",
        "testing",
        "tracing",
        "typing",
    ],
    "tape_compile": ["extend"],
    "tape_nn": ["extend"],
}
"""The modules that other packages may import, beside the package itself."""

DOORS = {("tape_core.compiled", "tape_compile.function"), ("tape_jax.optimizers", "tape_nn")}
"""Imports that go uphill, one by one: of packages that need not be installed, for `tape_core.function`, and for the
optimizer that `tape_jax.optimizer` makes."""


def _generator() -> Any:
    """The module that draws the picture of the house: it reads the same imports."""
    spec = importlib.util.spec_from_file_location("generate_house", ROOT / "docs" / "generate" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_house = _generator()
modules = _house.modules
"""The files of all packages by the names of their modules."""

PACKAGES: tuple[str, ...] = _house.PACKAGES
"""A package imports only those before it in this order, and of these only what they declare."""


def imports() -> Iterator[tuple[str, str]]:
    """Each module with each other one that it imports, also inside functions; imports for types do not count."""
    for module in modules():
        for other, _ in _house.imports(module):
            if other != module:
                yield module, other


def package(module: str) -> str:
    """The package of a module."""
    return module.partition(".")[0]


def room(module: str) -> str:
    """The folder or file of a package that a module is in; the package's own name for its `__init__`."""
    return f"{module}.".split(".")[1] or module


def uphill() -> list[str]:
    """Imports inside tape-core from a lower floor to a higher one, and of packages that come later."""
    floor = {name: k for k, names in enumerate(FLOORS) for name in names.split()}
    found = []
    for module, other in imports():
        a, b = package(module), package(other)
        if a != b:
            up = PACKAGES.index(a) < PACKAGES.index(b) and (module, other) not in DOORS
        else:
            # `import tape_core` inside tape-core is for its public names, which are there by the time of the call.
            up = a == "tape_core" and other != a and floor[room(module)] < floor[room(other)]
        if up:
            found.append(f"{module} imports {other}")
    return found


def private_imports() -> list[str]:
    """Imports of another package's modules that it does not declare."""
    return [
        f"{module} imports {other}"
        for module, other in imports()
        if package(module) != package(other)
        and other != package(other)
        and room(other) not in DECLARED.get(package(other), [])
        and (module, other) not in DOORS
    ]


def cycles() -> list[list[str]]:
    """Sets of modules that import each other in a circle, by Tarjan's algorithm."""
    ahead: dict[str, set[str]] = {module: set() for module in modules()}
    for module, other in imports():
        # A package imports its modules, and they its public names: that is no circle of files.
        if other not in PACKAGES and module not in PACKAGES and (module, other) not in DOORS:
            ahead[module].add(other)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in ahead[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    sys.setrecursionlimit(10_000)
    for module in ahead:
        if module not in index:
            visit(module)
    return found


def share_of_any() -> dict[str, float]:
    """For each package, the share of annotated parameters whose annotation is `Any` alone."""
    anys: Counter[str] = Counter()
    all_: Counter[str] = Counter()
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    if argument.annotation is not None:
                        all_[package(module)] += 1
                        anys[package(module)] += ast.unparse(argument.annotation) == "Any"
    return {name: anys[name] / all_[name] for name in PACKAGES}


def comments() -> dict[str, float]:
    """For each package, lines that are a comment per 100 lines."""
    found: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for module, path in modules().items():
        text = path.read_text(encoding="utf-8").splitlines()
        lines[package(module)] += len(text)
        found[package(module)] += sum(bool(re.match(r"\s*#", line)) for line in text)
    return {name: 100 * found[name] / lines[name] for name in PACKAGES}


def lines() -> dict[str, int]:
    """Lines by package and folder."""
    found: Counter[str] = Counter()
    for module, path in modules().items():
        parts = module.split(".")
        folder = path.parent.name != parts[0] and path.name != "__init__.py"
        found["/".join(parts[: 2 if folder or (len(parts) > 1 and path.name == "__init__.py") else 1])] += len(
            path.read_text(encoding="utf-8").splitlines()
        )
    return dict(sorted(found.items()))


def main() -> None:
    """Print all figures."""
    say = sys.stdout.write
    for name, count in lines().items():
        say(f"{count:7,d}  {name}\n")
    anys, remarks = share_of_any(), comments()
    for name in PACKAGES:
        say(f"{name}: {anys[name]:.0%} of annotated parameters are Any, {remarks[name]:.1f} comments per 100 lines\n")
    for what, found in (("cycle", cycles()), ("import uphill", uphill()), ("private import", private_imports())):
        say(f"{len(found)} of kind {what}\n")
        for one in found:
            say(f"    {one}\n")


if __name__ == "__main__":
    main()
