"""The registry of TensorFlow's names: publishing functions under them, and the errors for names that are absent.

Chapters of `tape_tf.ops` call `export` (or its decorators) while they are imported; `publish` then sets the attributes
of the modules. `import tape_tf` imports every chapter before it publishes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Literal, TypeVar

from tape_tf.absences import ABSENT

Status = Literal["supported", "different", "absent"]

_published: dict[str, Any] = {}  # "math.sin" -> the function
_spaces: set[str] = set()  # modules in which nothing is published, but whose missing names have hints
_differences: dict[str, str] = {}  # "math.sin" -> how it differs from TensorFlow's, for the page of names

T = TypeVar("T")

_MAX_GUESSES = 3  # names suggested in the error for an unknown name


def export(names: str, value: T, differs: str = "") -> T:
    """Publish a value under TensorFlow's names for it, such as `"math.sin sin"`, and return the value.

    Args:
        differs: how it differs from TensorFlow's, one clause.

    Raises:
        ValueError: another value has one of the names.
    """
    for name in names.split():
        # Two functions under one name would hide each other, by the order of imports.
        if name in _published and _published[name] is not value:
            raise ValueError(f"tf.{name} is published already, as {_published[name]!r}")
        _published[name] = value
        if differs:
            _differences[name] = differs
    return value


def export_space(name: str) -> None:
    """Publish a module in which everything is absent, such as `"estimator"`: each name says what there is instead."""
    _spaces.add(name)


def exported(names: str, differs: str = "") -> Callable[[T], T]:
    """Decorator form of :func:`export`."""
    return lambda value: export(names, value, differs)


def published() -> Mapping[str, Any]:
    """Return all exported values by name."""
    return _published


def publish() -> None:
    """Set every exported value as an attribute of its module: `"math.sin"` goes into `tape_tf.math`."""
    for name, value in _published.items():
        space, _, last = name.rpartition(".")
        setattr(_module(space), last, value)
    for space in _spaces:
        _module(space)


def _module(space: str) -> ModuleType:
    """Return the module `tape_tf.{space}`; one that has no file, such as `tape_tf.random.experimental`, is made."""
    if not space:
        return sys.modules["tape_tf"]
    name = f"tape_tf.{space}"
    module = sys.modules.get(name)
    if module is None:
        module = sys.modules[name] = ModuleType(name, f"tf.{space}")
        module.__getattr__ = absent(space)  # type: ignore[method-assign]
        above, _, last = space.rpartition(".")
        setattr(_module(above), last, module)
    return module


def status(name: str) -> tuple[Status, str]:
    """Return whether a TensorFlow name, such as `"math.sin"`, is supported here, and a note on it.

    >>> from tape_tf.names import status
    >>> status("math.sin")
    ('supported', '')
    >>> status("Session")[0]
    'absent'

    Returns:
        `"supported"`, `"different"` or `"absent"`, with how it differs or what to use instead.
    """
    value: object = sys.modules["tape_tf"]
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return "absent", instead(name)
    note = _differences.get(name) or getattr(value, "__dict__", {}).get("__tf_differs__", "")
    return ("different" if note else "supported"), note


def instead(name: str) -> str:
    """Return what to use instead of an absent name; an empty string if nothing is known."""
    of_tensorflow_1 = name.removeprefix("compat.v1.")
    is_there = of_tensorflow_1 in _published or f"tape_tf.{of_tensorflow_1}" in sys.modules
    if of_tensorflow_1 != name and name not in ABSENT and is_there:
        return f"of TensorFlow 2 there is tf.{of_tensorflow_1}"
    while name:  # the most specific entry wins: "keras.datasets.mnist", then "keras.datasets", then "keras"
        if note := ABSENT.get(name):
            return note
        name = name.rpartition(".")[0]
    return ""


def _listed_names(module: ModuleType, space: str) -> list[str]:
    """Return the names in a module's `__all__`, for modules like `tape_tf.nest` that do not call :func:`export`."""
    return [f"{space}.{name}" if space else name for name in getattr(module, "__all__", ())]


def absent(space: str) -> Callable[[str], Any]:
    """Return the module-level `__getattr__` of a namespace, which raises an AttributeError that suggests a name."""

    def __getattr__(name: str) -> Any:
        module = _module(space)
        full = f"{space}.{name}" if space else name
        if name.startswith("__"):  # Python asks modules for __path__ and the like
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        text = f"tape_tf has no tf.{full}"
        if note := instead(full):
            raise AttributeError(f"{text}: {note}", name=name, obj=module)
        # The same name in another namespace (tf.log is tf.math.log) is a better guess than a similar one in this.
        found = [other for other in _published if other.rpartition(".")[2] == name]
        # Keras has most functions a second time: they are named only where nothing else is.
        elsewhere = [other for other in found if not other.startswith("keras.ops.")] or found
        here = [other for other in (*_published, *_listed_names(module, space)) if other.rpartition(".")[0] == space]
        guesses = elsewhere[:_MAX_GUESSES] or get_close_matches(full, here, _MAX_GUESSES)
        if guesses:
            text += f"; did you mean {' or '.join(f'tf.{other}' for other in guesses)}?"
        else:
            where = f"tf.{space}" if space else "tf"
            text += f"; dir({where}) lists what there is, and functions of tape_core take tensors, too"
        raise AttributeError(text)

    return __getattr__
