"""The picture of the house: packages and folders, and which of them imports which, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tape_core.debugging.drawing.drawing import Box, Drawing

ROOT = Path(__file__).parents[2]

ROOMS = {
    "tape_tf": "TensorFlow's names",
    "tape_conformance": "the suite for backends",
    "tape_nn": "layers, optimizers, fit",
    "tape_torch": "PyTorch backend",
    "tape_numpy": "NumPy backend",
    "tape_compile": "tracer, passes, code",
    "public face": "import tape_core as tc",
    "debugging": "explain, numerics, draw",
    "sparsity": "sparse Jacobians",
    "transforms": "grad, custom, checkpoint, loops",
    "interop": "NumPy's own functions",
    "ops": "every op beside its rules",
    "modes": "forward mode, vmap, Jacobians",
    "random": "random numbers",
    "engine": "Tensor, tape, rules, sweep",
    "backends": "the backend contract",
    "base": "dtypes, pytrees, errors",
}
"""What is in the picture, and what its boxes say."""


@cache
def modules() -> dict[str, Path]:
    """The files of all packages by the names of their modules."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for source in sorted(ROOT.glob("packages/*/src"))
        for path in sorted(source.rglob("*.py"))
    }


def room(module: str) -> str:
    """Where a module is: a package, or a folder or file of tape_core."""
    package, _, rest = module.partition(".")
    if package != "tape_core":
        return package
    first = rest.partition(".")[0]
    if first in ROOMS:
        return first
    if (modules()[module].parent.name == first) or "." in rest:
        raise LookupError(f"the picture of the house does not know the folder {first!r}: name it in ROOMS")
    return "base" if first in ("typing", "_version") else "public face"


def imports(module: str) -> Iterator[tuple[str, bool]]:
    """The modules of ours that a module imports, but for types, and whether it does so inside a function."""
    yield from _imports(ast.parse(modules()[module].read_text(encoding="utf-8")), False)


def _imports(tree: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((name.name, inside) for name in node.names if name.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                found = full if full in modules() else node.module
                if found in modules():
                    yield found, inside
        else:
            yield from _imports(node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def arrows() -> dict[tuple[str, str], int]:
    """Which room imports which, and how many times."""
    found: dict[tuple[str, str], int] = {}
    for module in modules():
        for other, _ in imports(module):
            a, b = room(module), room(other)
            if a != b:
                found[a, b] = found.get((a, b), 0) + 1
    return dict(sorted(found.items(), key=lambda item: [list(ROOMS).index(name) for name in item[0]]))


def downhill(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows from higher rooms to lower ones, in the order of `ROOMS`."""
    order = list(ROOMS)
    return [(a, b) for a, b in found if order.index(a) < order.index(b)]


def reduced(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows without those that follow from others: from a room to what a room that it imports imports."""
    below: dict[str, set[str]] = {name: set() for name in ROOMS}
    for a, b in sorted(found, key=lambda arrow: -list(ROOMS).index(arrow[0])):
        below[a] |= {b} | below[b]
    direct = {name: {b for a, b in found if a == name} for name in ROOMS}
    return [(a, b) for a, b in found if not any(b in below[c] for c in direct[a] - {b})]


def svg() -> str:
    """The picture."""
    numbers = {name: k for k, name in enumerate(ROOMS)}
    found = arrows()
    boxes = []
    for name, text in ROOMS.items():
        title = name if name == "public face" or name.startswith("tape_") else f"{name}/"
        title = "random.py" if name == "random" else title.replace("tape_", "tape-")
        kind = "variable" if name.startswith("tape_") else "watched" if name == "engine" else "op"
        imported = ", ".join([b for a, b in found if a == name])
        boxes.append(Box(kind, title, [text], f"{title} imports {imported or 'nothing of Tape'}"))
    for a, b in sorted(reduced(downhill(found))):
        boxes[numbers[b]].inputs.append(numbers[a])
    return Drawing(boxes, "plain").svg + "\n"
