"""The picture of the house: packages and folders, and which of them imports which, read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tape_core.debugging.drawing.drawing import Box, Drawing

ROOT = Path(__file__).parents[2]

ROOMS = {
    "tape_tf": "TensorFlow's names",
    "tape_autograd": "autograd's names",
    "tape_conformance": "the suite for backends",
    "tape_nn": "layers, optimizers, fit",
    "tape_torch": "PyTorch backend",
    "tape_jax": "JAX backend, XLA",
    "tape_numpy": "NumPy backend",
    "tape_compile": "tracer, passes, code",
    "interop": "NumPy's own functions",
    "public face": "import tape_core as tc",
    "debugging": "explain, numerics, draw",
    "sparsity": "sparse Jacobians",
    "meshes": "what divided arrays share",
    "transforms": "grad, custom, checkpoint, loops",
    "ops": "every op beside its rules",
    "modes": "forward mode, vmap, Jacobians",
    "engine": "Tensor, tape, rules, sweep",
    "backends": "the backend contract",
    "base": "dtypes, contexts, staging",
}
"""What is in the picture, and what its boxes say."""


FILES = {
    "typing": "base",
    "_version": "base",
    "staging": "base",
    "random": "engine",
    "distributions": "engine",
    "scipy": "public face",
}
"""Files and folders of tape_core that belong to another folder, though their names are public."""


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
    if first in FILES:
        return FILES[first]
    if (modules()[module].parent.name == first) or "." in rest:
        raise LookupError(f"the picture of the house does not know the folder {first!r}: name it in ROOMS")
    return "public face"


def imports(module: str) -> Iterator[tuple[str, bool]]:
    """The modules of ours that a module imports, but for types, and whether it does so inside a function."""
    yield from _imports(_tree(modules()[module]), False)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


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


@cache
def arrows() -> dict[tuple[str, str], int]:
    """Which room imports which, and how many times."""
    found: dict[tuple[str, str], int] = {}
    for module in modules():
        for other, inside in imports(module):
            if inside and other == "tape_core":
                continue  # the namespace is asked for, which is there by then
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


HEAD = """\
# The house

What is where. The picture has the packages and the folders of tape-core. An arrow leads from what imports to what is
imported; arrows that follow from others are left out (`ops/` imports `base/`, too). {direction}

![The packages and folders, and which imports which](_static/house.svg)

`python docs/generate` writes this page and its pictures from the source. The sentence for a file is the first line of
its docstring. [](design.md) says why the house is built so, [](toy-tape.md) builds a small one.
"""

DOWNWARDS = "They lead downwards only, so a room can be understood with those beneath it."

CALLS = """\

## One call, one gradient

What Python functions are called when a tape records the sine of a Tensor, as a profile hook sees it. `tc.sin(x)` is one
call: it runs the kernel and leaves a record.

![The calls that a tape's block makes](_static/calls-of-a-block.svg)

And what its gradient calls. `backward` is the code that Tape has generated for `sin`; the lambda is its rule.

![The calls that a gradient makes](_static/calls-of-a-gradient.svg)
"""

PACKAGES = (
    "tape_core",
    "tape_compile",
    "tape_numpy",
    "tape_torch",
    "tape_jax",
    "tape_nn",
    "tape_tf",
    "tape_autograd",
    "tape_conformance",
)


def page() -> str:
    """The page with every file of every package, and what each is."""
    up = [f"`{a}` imports `{b}`" for a, b in arrows() if (a, b) not in downhill([(a, b)])]
    direction = f"They lead downwards, except that {', '.join(up)}." if up else DOWNWARDS
    text = [HEAD.format(direction=direction)]
    for package in PACKAGES:
        root = modules()[package].parent
        text.append(f"\n## {package.replace('_', '-')}\n\n{_summary(modules()[package])}\n")
        folders: dict[Path, list[Path]] = {}
        for path in modules().values():
            if path.is_relative_to(root) and path != modules()[package]:
                folders.setdefault(path.parent, []).append(path)
        for folder, paths in sorted(folders.items()):
            if folder != root:
                text.append(f"\n### `{folder.relative_to(root).as_posix()}/`\n")
                text.append(f"\n{_summary(folder / '__init__.py')}\n" if folder / "__init__.py" in paths else "")
            files = [path for path in paths if path.name != "__init__.py" and path.name != "_version.py"]
            if files:
                rows = [f"| `{path.name}` | {_summary(path)} |" for path in files]
                text.append("\n".join(["", "| file | what it is |", "|---|---|", *rows, ""]))
    return "".join([*text, CALLS])


def _summary(path: Path) -> str:
    """The first line of a file's docstring, as Markdown."""
    line = (ast.get_docstring(_tree(path)) or "").partition("\n")[0]
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", line).replace("|", "\\|")


def svg() -> str:
    """The picture."""
    numbers = {name: k for k, name in enumerate(ROOMS)}
    found = arrows()
    boxes = []
    for name, text in ROOMS.items():
        title = name if name == "public face" or name.startswith("tape_") else f"{name}/"
        title = title.replace("tape_", "tape-")
        kind = "variable" if name.startswith("tape_") else "watched" if name == "engine" else "op"
        imported = ", ".join([b for a, b in found if a == name])
        boxes.append(Box(kind, title, [text], f"{title} imports {imported or 'nothing of Tape'}"))
    for a, b in sorted(reduced(downhill(found))):
        boxes[numbers[b]].inputs.append(numbers[a])
    return Drawing(boxes, "plain").svg + "\n"
