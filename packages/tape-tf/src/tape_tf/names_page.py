"""The documentation page `tensorflow-names.md`: for each TensorFlow name, whether it is supported."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from importlib.resources import files
from types import ModuleType

from tape_tf.names import Status, status

INTRODUCTION = """\
# TensorFlow's names

What `import tape_tf as tf` has of TensorFlow's public names. *Supported* does what it does in TensorFlow, for the
arguments it takes; *different* says how it is not the same; *absent* names raise an `AttributeError` that says what
there is instead. [Migrating from TensorFlow](migrating-from-tensorflow.md) has programs side by side.

This page is written by `python -m tape_tf`, from the code and from the list of names that TensorFlow itself gives.

| | names | supported | different | absent |
| --- | --- | --- | --- | --- |
"""


@cache
def tensorflow_names() -> dict[str, list[str]]:
    """Return TensorFlow's public names, by module: `{"tf.math": ["abs", ...], ...}`.

    >>> from tape_tf.names_page import tensorflow_names
    >>> "sin" in tensorflow_names()["tf.math"]
    True
    """
    found: dict[str, list[str]] = {}
    for line in (files("tape_tf") / "tensorflow_names.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            names = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            names += line.split()
    return found


def page() -> str:
    """Return the page, in Markdown."""
    table, sections = [], []
    for space, names in tensorflow_names().items():
        known = {name: entry(f"{space}.{name}") for name in names}
        counts = [sum(kind == wanted for kind, _ in known.values()) for wanted in ("supported", "different", "absent")]
        table.append(f"| {linked(space)} | {len(names)} | {' | '.join(map(str, counts))} |\n")
        sections.append(f"\n## `{space}`\n" + "".join(section(known)))
    return INTRODUCTION + "".join(table) + "".join(sections)


def entry(name: str) -> tuple[Status, str]:
    """Return the :func:`status` of `"tf.math.sin"`; a module counts as different unless it has all of its names."""
    kind, note = status(name.removeprefix("tf."))
    if kind == "supported" and isinstance(module := resolve(name), ModuleType):
        same = module.__name__.replace("tape_tf", "tf")  # tf.losses is tf.keras.losses
        inside = tensorflow_names().get(same)
        if inside is None:
            return "different", "a part of it"
        if any(status(f"{same}.{part}".removeprefix("tf."))[0] == "absent" for part in inside):
            return "different", f"a part of it: {linked(same)}"
    return kind, note


def resolve(name: str) -> object:
    """Return the value of `"tf.math.sin"`."""
    return reduce(getattr, name.split(".")[1:], sys.modules["tape_tf"])


def linked(space: str) -> str:
    # MyST makes the anchor from the heading: lower case, without dots.
    return f"[`{space}`](#{space.replace('.', '')})"


def section(known: Mapping[str, tuple[Status, str]]) -> Iterator[str]:
    """Yield the Markdown of one module's section: a list of supported names, then a table per other status."""
    supported = [name for name, (kind, _) in known.items() if kind == "supported"]
    if supported:
        yield f"\n**Supported:** {listed(supported)}\n"
    for wanted, how in ("different", "How"), ("absent", "Instead"):
        notes: dict[str, list[str]] = {}
        for name, (kind, note) in known.items():
            if kind == wanted:
                notes.setdefault(note, []).append(name)
        if silent := notes.pop("", []):
            yield f"\n**{wanted.capitalize()}:** {listed(silent)}\n"
        if notes:
            yield f"\n| {wanted.capitalize()} | {how} |\n| --- | --- |\n"
            for note, names in notes.items():
                text = note.replace("|", "\\|")
                yield f"| {listed(names)} | {text} |\n"


def listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
