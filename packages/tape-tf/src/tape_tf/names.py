"""Which of TensorFlow's names there are, and what is said of those that are not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Literal, TypeVar

from tape_tf.absences import ABSENT

Status = Literal["supported", "different", "absent"]

_published: dict[str, Any] = {}
_differences: dict[str, str] = {}

T = TypeVar("T")


def export(names: str, value: Any, differs: str = "") -> Any:
    """Publish a value under TensorFlow's names for it, such as `"math.sin sin"`; returns the value.

    Args:
        differs: what it does otherwise than TensorFlow's, one clause.
    """
    for name in names.split():
        if name in _published and _published[name] is not value:
            raise ValueError(f"tf.{name} is published already, as {_published[name]!r}")
        _published[name] = value
        if differs:
            _differences[name] = differs
    return value


def exported(names: str, differs: str = "") -> Callable[[T], T]:
    """Decorator: :func:`export`."""
    return lambda value: export(names, value, differs)


def published() -> Mapping[str, Any]:
    """What was exported, by its names."""
    return _published


def publish() -> None:
    """Put what was exported where it belongs: `"math.sin"` into the module `tape_tf.math`."""
    for name, value in _published.items():
        space, _, last = name.rpartition(".")
        setattr(_module(space), last, value)


def _module(space: str) -> Any:
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
    """Whether there is a name of TensorFlow's, such as `"math.sin"`, and what is to be said of it.

    >>> from tape_tf.names import status
    >>> status("math.sin")
    ('supported', '')
    >>> status("strings")[0]
    'absent'

    Returns:
        `"supported"`, `"different"` or `"absent"`, with how it differs or what there is instead.
    """
    value = sys.modules["tape_tf"]
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return "absent", instead(name)
    note = _differences.get(name) or getattr(value, "__dict__", {}).get("__tf_differs__", "")
    return ("different" if note else "supported"), note


def instead(name: str) -> str:
    """What there is instead of a name that is absent; empty where nothing is known."""
    while name:
        if note := ABSENT.get(name):
            return note
        name = name.rpartition(".")[0]
    return ""


def _public(module: Any, space: str) -> list[str]:
    """What a module says is public, for those that publish nothing here."""
    return [f"{space}.{name}" if space else name for name in getattr(module, "__all__", ())]


def absent(space: str) -> Callable[[str], Any]:
    """The `__getattr__` of a namespace: what is said of a name that is not there."""

    def __getattr__(name: str) -> Any:
        module = _module(space)
        full = f"{space}.{name}" if space else name
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        text = f"tape_tf has no tf.{full}"
        if note := instead(full):
            raise AttributeError(f"{text}: {note}", name=name, obj=module)
        elsewhere = [other for other in _published if other.rpartition(".")[2] == name]
        there = [other for other in (*_published, *_public(module, space)) if other.rpartition(".")[0] == space]
        meant = elsewhere[:3] or get_close_matches(full, there, 3)
        if meant:
            text += f"; did you mean {' or '.join(f'tf.{other}' for other in meant)}?"
        else:
            where = f"tf.{space}" if space else "tf"
            text += f"; dir({where}) lists what there is, and functions of tape_core take tensors, too"
        raise AttributeError(text)

    return __getattr__
