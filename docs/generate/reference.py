"""The pages `docs/api.md` and `docs/api/*.md`: every public name, in the chapter where a reader looks for it.

A name of `tape_core`, `tape_nn` or `tape_compile.extend` is in the chapter of the module that it comes from, so a new
op is beside its neighbours without anybody listing it. The names of the other faces, such as `tape_core.backends`, are
in the chapter of the face. A name that belongs to no chapter is an error.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import house

FACES = (
    "tape_core",
    "tape_core.fft",
    "tape_core.linalg",
    "tape_core.special",
    "tape_core.stats",
    "tape_core.scipy.linalg",
    "tape_core.scipy.integrate",
    "tape_core.scipy.interpolate",
    "tape_core.scipy.ndimage",
    "tape_core.scipy.signal",
    "tape_core.random",
    "tape_core.testing",
    "tape_core.debugging",
    "tape_core.extend",
    "tape_core.typing",
    "tape_core.backends",
    "tape_core.staging",
    "tape_compile.extend",
    "tape_core.support",
    "tape_core.tracing",
    "tape_core.meshes",
    "tape_nn",
    "tape_nn.fitting",
    "tape_nn.losses",
    "tape_nn.metrics",
    "tape_nn.schedules",
    "tape_nn.initializers",
    "tape_nn.extend",
    "tape_conformance",
)
"""The modules that people import from. A thing that several of them have is documented under the name in the first."""

SORTED_BY_ORIGIN = {"tape_core", "tape_nn", "tape_compile.extend"}
"""The faces that have names of several chapters."""


def of_a_large_library(package: str) -> str:
    """The directives for the names of a package whose array library may be missing here: read from its source."""
    return "\n\n".join(_found_in_source(package))


def _found_in_source(module: str) -> Iterator[str]:
    tree = _source(module)
    origins = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for name in sorted(_names_in_source(tree), key=str.lower):
        source, original = origins.get(name, (module, name))
        if f"{source}.{original}" in house.modules():
            yield from _found_in_source(f"{source}.{original}")
            continue
        kinds = {
            node.name: type(node) for node in _source(source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        directive = {ast.ClassDef: "autoclass", ast.FunctionDef: "autofunction"}.get(kinds.get(original), "autodata")
        yield f".. {directive}:: {module}.{name}" + "\n   :members:" * (directive == "autoclass")


def _source(module: str) -> ast.Module:
    return ast.parse(house.modules()[module].read_text(encoding="utf-8"))


def _names_in_source(tree: ast.Module) -> list[str]:
    """Return `__all__`, or what is defined there without an underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if "__all__" in map(ast.unparse, targets):
                return list(ast.literal_eval(node.value))
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [name for name in defined if not name.startswith("_")]


class Chapter(NamedTuple):
    """A page of the reference."""

    title: str
    about: str
    sources: tuple[str, ...]
    """Modules and folders whose names belong here; of several that fit, the longest counts."""
    guide: str = ""
    """Where to read on, in Markdown."""
    more: str = ""
    """What follows the names, as reStructuredText."""

    @property
    def stem(self) -> str:
        """The name of the file, without its folder and ending."""
        return "-".join(self.title.lower().replace(",", "").replace(":", "").split())


PARTS = {
    "Arrays": (
        Chapter(
            "Creating arrays",
            "Make Tensors from values, ranges and other libraries' arrays; the constants of the standard.",
            sources=("tape_core.ops.creation", "tape_core"),
        ),
        Chapter(
            "Elementwise functions",
            "Arithmetic, powers, logarithms, trigonometry, rounding, comparisons, logic and bits.",
            sources=("tape_core.ops.elementwise", "tape_core.ops.logic"),
        ),
        Chapter(
            "Reductions, searching and sorting",
            "Sums, means and their like; cumulative ones; extremes, order, sets; integrals of samples.",
            sources=(
                "tape_core.ops.statistical",
                "tape_core.ops.searching",
                "tape_core.ops.sorting",
                "tape_core.ops.sets",
                "tape_core.ops.integration",
            ),
        ),
        Chapter(
            "Shapes",
            "Reshape, join, split, repeat, pad, broadcast.",
            sources=("tape_core.ops.manipulation", "tape_core.ops.padding"),
        ),
        Chapter(
            "Indexing",
            "Take, gather, scatter, segments and sliding windows; `x[...]` itself is an operator of Tensors.",
            sources=("tape_core.ops.index",),
        ),
        Chapter(
            "Linear algebra",
            "Products, norms, factorizations, equations, distances.",
            sources=("tape_core.ops.linalg", "tape_core.linalg"),
        ),
        Chapter(
            "Fourier transforms and signals",
            "The `fft` extension of the standard, and convolution of sequences.",
            sources=("tape_core.ops.fft", "tape_core.ops.signal", "tape_core.fft"),
        ),
        Chapter(
            "Functions of neural networks",
            "Activations, losses of logits, normalization, convolution, pooling, attention, dropout.",
            guide="Layers are in [](modules-and-layers.md).",
            sources=("tape_core.ops.nn",),
        ),
        Chapter(
            "Special functions",
            "Under the names and with the meaning that they have in `scipy.special`.",
            sources=("tape_core.ops.special", "tape_core.special"),
        ),
        Chapter(
            "Distributions",
            "Distributions with `logpdf`, `pdf` and `cdf` (of counts `logpmf`, `pmf`, `cdf`); `norm` has `logcdf` and "
            "`sf`, too. Their parameters are SciPy's.",
            sources=("tape_core.stats",),
        ),
        Chapter(
            "Names of SciPy",
            "Functions with SciPy's names and arguments, made of Tape's ops.",
            guide="[](../interoperability.md#scipys-names) says what there is.",
            sources=("tape_core.scipy",),
        ),
        Chapter(
            "Random numbers",
            "Generators, seeds and their states.",
            sources=("tape_core.random",),
        ),
        Chapter(
            "Dtypes, devices and backends",
            "Data types and what they promote to, the default one, and the backend on which arrays are made.",
            guide="[](../backends.md) is the guide.",
            sources=(
                "tape_core.base.dtypes",
                "tape_core.ops.data_types",
                "tape_core.ops.inspection",
                "tape_core.backends.selection",
                "tape_core._version",
            ),
        ),
    ),
    "Derivatives": (
        Chapter(
            "Tapes and variables",
            "Record what is computed, and ask for gradients, Jacobians and products with tangents.",
            guide="[](../tape.md) is the guide.",
            sources=("tape_core.engine", "tape_core.modes.forward"),
        ),
        Chapter(
            "Transformations",
            "Functions of functions: derivatives, vmap, custom rules, checkpoints, implicit and sparse ones.",
            guide="[](../derivatives.md) is the guide.",
            sources=("tape_core.transforms", "tape_core.modes.vmap", "tape_core.sparsity", "tape_core.engine.pytree"),
        ),
        Chapter(
            "Control flow",
            "Branches and loops by the values of Tensors, eager and in compiled functions.",
            sources=("tape_core.transforms.control_flow",),
        ),
        Chapter(
            "Compiled functions",
            "Trace a function once, and run its program from then on.",
            guide="[](../compiled.md) is the guide.",
            sources=("tape_core.compiled", "tape_compile.function"),
        ),
        Chapter(
            "Debugging and testing",
            "Why a gradient is None, where a NaN came from, whether a derivative is right.",
            guide="[](../explain.md) is the guide.",
            sources=("tape_core.debugging", "tape_core.testing"),
        ),
    ),
    "Training": (
        Chapter(
            "Modules and layers",
            "Module, the layers, and initial values of their weights.",
            guide="[](../training.md) is the guide to all of tape_nn.",
            sources=(
                "tape_nn.module",
                "tape_nn.functional",
                "tape_nn.module_tree",
                "tape_nn.layers",
                "tape_nn.initializers",
            ),
        ),
        Chapter(
            "Losses and metrics",
            "Functions of labels and predictions, and counts over many batches.",
            sources=("tape_nn.losses", "tape_nn.metrics"),
        ),
        Chapter(
            "Optimizers",
            "Optimizers, gradient transformations, schedules, clipping, averages of weights, mixed precision.",
            sources=(
                "tape_nn.optimizers",
                "tape_nn.transforms",
                "tape_nn.schedules",
                "tape_nn.clipping",
                "tape_nn.averaging",
                "tape_nn.mixed_precision",
            ),
        ),
        Chapter(
            "Fitting and checkpoints",
            "The training loop with its callbacks, and files of Tensors.",
            sources=("tape_nn.fitting", "tape_nn.checkpoints"),
            more=""".. autoclass:: tape_nn.summary.Summary

.. automodule:: tape_nn.parallel
   :members:""",
        ),
        Chapter(
            "TensorFlow names",
            "The classes behind the names of TensorFlow.",
            guide="What there is under which name is on the [page of names](../tensorflow-names.md).",
            sources=(),
            more="""\
.. autoclass:: tape_tf.tensor.Tensor
   :members:
   :inherited-members:

.. autoclass:: tape_tf.variable.Variable
   :members:

.. autoclass:: tape_tf.tape.GradientTape
   :members:

.. autofunction:: tape_tf.names.status""",
        ),
        Chapter(
            "autograd names",
            "The names of HIPS autograd: operators on functions, primitives and their rules, checks, helpers.",
            guide="[](../migrating-from-autograd.md) is the guide. `tape_autograd.numpy` has NumPy's functions.",
            sources=(),
            more="\n\n".join(
                f".. automodule:: tape_autograd.{module}\n   :members:"
                for module in (
                    *("differential_operators", "primitives", "vspaces", "boxes", "test_util", "misc.flatten"),
                    *("misc.optimizers", "misc.fixed_points", "scipy.signal", "alias"),
                )
            ),
        ),
    ),
    "Array libraries": (
        Chapter(
            "PyTorch",
            "PyTorch's functions, modules and optimizers on a tape, and Tape's functions in PyTorch.",
            guide="[](../torch.md) is the guide.",
            sources=(),
            more=of_a_large_library("tape_torch"),
        ),
        Chapter(
            "PyTorch in several processes",
            "Meshes, divided arrays, collectives, checkpoints of several processes, and what happens when one dies.",
            guide="[](../distributed.md) is the guide.",
            sources=(),
            more=of_a_large_library("tape_torch.distributed"),
        ),
        Chapter(
            "JAX",
            "JAX's functions on a tape.",
            guide="[](../jax.md) is the guide.",
            sources=(),
            more=of_a_large_library("tape_jax"),
        ),
        Chapter(
            "JAX on several devices",
            "Meshes of devices and divided arrays, under the names of those of PyTorch in several processes.",
            guide="[](../jax.md) is the guide, for both [](../distributed.md).",
            sources=(),
            more=of_a_large_library("tape_jax.distributed"),
        ),
    ),
    "Extending Tape": (
        Chapter(
            "Ops and rules",
            "What authors of ops and rules import.",
            guide="[](../write-an-op.md) makes one, [](../ops-and-rules.md) is the reference.",
            sources=("tape_core.extend", "tape_core.typing"),
        ),
        Chapter(
            "Extending: backends",
            "What authors of backends import.",
            guide="[](../write-a-backend.md) makes one.",
            sources=("tape_core.backends", "tape_conformance"),
            more="""\
The hooks of a plugin
---------------------

.. autofunction:: tape_core.backends.hookspecs.tape_backend_info

.. autofunction:: tape_core.backends.hookspecs.tape_load_backend

.. autofunction:: tape_core.backends.hookspecs.tape_register_rules

.. autofunction:: tape_core.backends.hookspecs.tape_compiler_info

.. autofunction:: tape_core.backends.hookspecs.tape_load_compiler""",
        ),
        Chapter(
            "Extending: compilers and passes",
            "What authors of compilers and passes import, and what code tells the compiler that may be tracing it.",
            guide="[](../write-a-compiler.md) makes one, [](../write-a-pass.md) the other.",
            sources=("tape_compile", "tape_core.staging"),
        ),
        Chapter(
            "Extending: foundations",
            "What packages that are built on Tape share with it. The packages of one version belong together: "
            "what is here may change with a minor version.",
            sources=("tape_core.support", "tape_core.tracing", "tape_core.meshes", "tape_nn.extend"),
        ),
    ),
}

CHAPTERS = [chapter for chapters in PARTS.values() for chapter in chapters]

WRITTEN_BY = "<!-- Written by `python docs/generate`. -->\n"

HEAD = f"""\
{WRITTEN_BY}
# API

Functions have the names and signatures of the [Array API
standard](https://data-apis.org/array-api/latest/API_specification/), where it has them; creation
functions take `backend=` besides. What several modules have is in one chapter, with all its names. The index and the
search find each.

The section of an op, and `help` of it, says which shapes and dtypes it takes and gives, found by calls on NumPy, and
its derivative rules: the partial derivative by an input, or what becomes of a cotangent g of the result, as
[](rules.md) spells them. A function without rules is made of others, and its derivative follows from theirs.
"""


class Entry(NamedTuple):
    """A public thing with the chapter it is in, and all names that it has."""

    chapter: Chapter
    value: object
    names: list[str]


def pages() -> dict[str, str]:
    """The text of each page by its path in `docs/`."""
    found = {"api.md": _overview()}
    for chapter in CHAPTERS:
        found[f"api/{chapter.stem}.md"] = _page(chapter)
    return found


def public_names(face: str) -> list[str]:
    """The names of a face: its `__all__`, or what is defined there without an underscore."""
    module = import_module(face)
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == face
    ]


@cache
def entries() -> list[Entry]:
    """All public things, in the order of the faces and of what they list."""
    found: list[Entry] = []
    known: dict[int, Entry] = {}
    for face in FACES:
        for name in public_names(face):
            value = getattr(import_module(face), name)
            full = f"{face}.{name}"
            if isinstance(value, ModuleType):
                continue  # a face of its own, or named by the page of its package
            # Only things that Tape has made are the same under two names: `newaxis` and another None are not.
            ours = getattr(value, "__module__", None) or ""
            if ours.startswith("tape_") and id(value) in known:
                known[id(value)].names.append(full)
                continue
            entry = known[id(value)] = Entry(_chapter(face, name), value, [full])
            found.append(entry)
    return found


def _chapter(face: str, name: str) -> Chapter:
    """The chapter of a name: the one with the longest source that the name's origin is in."""
    origin = _origins(face).get(name, face) if face in SORTED_BY_ORIGIN else face
    fitting = [
        (source, chapter)
        for chapter in CHAPTERS
        for source in chapter.sources
        if origin == source or (source != "tape_core" and origin.startswith(f"{source}."))
    ]
    if not fitting:
        raise LookupError(
            f"{face}.{name} is in no chapter of the reference: name {origin} in docs/generate/reference.py"
        )
    return max(fitting, key=lambda pair: len(pair[0]))[1]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(module)))


@cache
def _origins(face: str) -> dict[str, str]:
    """The module from which a face imports each name, read from its source."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(_tree(face))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _overview() -> str:
    """The page that lists the chapters."""
    text = HEAD
    for part, chapters in PARTS.items():
        text += f"\n## {part}\n\n"
        for chapter in chapters:
            text += f"- [{chapter.title}](api/{chapter.stem}.md): {chapter.about}\n"
    listed = "\n".join(f"api/{chapter.stem}" for chapter in CHAPTERS)
    return f"{text}\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _page(chapter: Chapter) -> str:
    """The page of a chapter: a table of its names, then each with its docstring."""
    text = f"{WRITTEN_BY}\n# {chapter.title}\n\n{f'{chapter.about} {chapter.guide}'.strip()}\n"
    mine = sorted((entry for entry in entries() if entry.chapter is chapter), key=lambda entry: _place(entry.names[0]))
    if table := [f"   ~{entry.names[0]}" for entry in mine if not _is_data(entry.value)]:
        text += _block("\n".join([".. autosummary::", "", *table])) + "\n## In full\n"
    if mine:
        text += _block("\n\n".join(_directive(entry) for entry in mine))
    if chapter.more:
        text += _block(chapter.more)
    return text


def _block(text: str) -> str:
    return f"\n```{{eval-rst}}\n{text}\n```\n"


def _place(name: str) -> tuple[int, str]:
    """The order on a page: by face, then by name without regard to case."""
    face, _, name = name.rpartition(".")
    return FACES.index(face), name.lower()


def _is_data(value: object) -> bool:
    """Constants, dtypes and aliases of types have no docstrings of their own."""
    return not (isinstance(value, type) or inspect.isroutine(value)) or value is Any


def _directive(entry: Entry) -> str:
    """The directive by which Sphinx writes the docstring of a public thing."""
    first, *others = entry.names
    value = entry.value
    if _is_data(value):
        lines = [f".. py:data:: {first}", *_remark(first, value)]
    elif isinstance(value, type):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        lines = [f".. {kind}:: {first}", "   :members:"]
        # The methods of a base class that has no page of its own.
        if any([base.__name__ == "Distributions" for base in value.__bases__]):
            lines.append("   :inherited-members:")
    else:
        lines = [f".. autofunction:: {first}"]
    if others:
        lines += ["", f"   Also {', '.join(f'`{other}`' for other in others)}."]
    return "\n".join(lines)


def _remark(full: str, value: object) -> list[str]:
    """The string below the assignment of a constant, in the module where it is made; Sphinx does not follow imports.

    Where there is none and the thing is the only one of its class, this is the docstring of the class.
    """
    face, _, name = full.rpartition(".")
    tree = _tree(_origins(face).get(name, face))
    for statement, below in pairwise(tree.body):
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else getattr(statement, "targets", [])
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(below, ast.Expr) and isinstance(text := getattr(below.value, "value", None), str):
            return _indented(text)
    kind = type(value)
    return _indented(kind.__doc__ or "") if kind.__module__ == face and kind.__name__.startswith("_") else []


def _indented(text: str) -> list[str]:
    return ["", *[f"   {line}".rstrip() for line in inspect.cleandoc(text).splitlines()]]
