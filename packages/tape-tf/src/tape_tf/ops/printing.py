"""tf.print, with TensorFlow's digits."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from tape_core.staging import host_callback

from tape_tf import nest
from tape_tf.conversion import native, wrap
from tape_tf.names import exported
from tape_tf.tensor import Value
from tape_tf.typing import NumPyArray, PyTree


@exported("print")
def print_(*inputs: Any, **kwargs: Any) -> None:
    """Write values to `output_stream`, by default `sys.stderr`: of each dimension the first and the last `summarize`.

    Args:
        inputs: tensors, and anything else, also nested.
        output_stream: something with `write`, or `"file://"` and a path, which is appended to.
        summarize: how many elements; -1 for all. Default 3.
        sep, end: as those of Python's `print`.
    """
    stream, summarize = kwargs.pop("output_stream", None), kwargs.pop("summarize", 3)
    sep, end = kwargs.pop("sep", " "), kwargs.pop("end", "\n")
    kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {sorted(kwargs)}")
    _print([_beneath(value) for value in inputs], (stream, summarize, sep, end))


def _beneath(value: PyTree) -> Any:
    return nest.map_structure(lambda leaf: native(leaf) if isinstance(leaf, Value) else leaf, value)


@host_callback
def _print(values: PyTree, options: tuple[Any, int, str, str]) -> None:
    stream, summarize, sep, end = options
    text = sep.join([_shown(value, summarize) for value in wrap(values)]) + end
    if isinstance(stream, str):
        with open(stream.removeprefix("file://"), "a") as file:
            file.write(text)
    else:
        (stream or sys.stderr).write(text)


def _shown(value: PyTree, summarize: int) -> str:
    if isinstance(value, Value):
        return _digits(value.numpy(), summarize)
    if isinstance(value, np.ndarray):
        return _digits(value, summarize)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_part(part, summarize)}" for key, part in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(_part(part, summarize) for part in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return str(value)


def _part(value: PyTree, summarize: int) -> str:
    return repr(value) if isinstance(value, str) else _shown(value, summarize)


def _digits(values: NumPyArray, summarize: int, indent: int = 1) -> str:
    if not np.ndim(values):
        return _number(values)
    few = summarize >= 0 and len(values) > 2 * summarize
    rows = [*values[:summarize], None, *values[len(values) - summarize :]] if few else list(values)
    parts = ["..." if row is None else _digits(row, summarize, indent + 1) for row in rows]
    gap = " " if np.ndim(values) == 1 else "\n" * (np.ndim(values) - 1) + " " * indent
    return "[" + gap.join(parts) + "]"


def _number(value: Any) -> str:
    """As TensorFlow writes one: the fewest digits of two choices that give the number back."""
    if isinstance(value, np.bool_ | bool):
        return str(int(value))
    if isinstance(value, np.floating | float):
        few, many = (15, 17) if np.asarray(value).dtype == np.float64 else (6, 9)
        text = f"{float(value):.{few}g}"
        return text if type(value)(text) == value or value != value else f"{float(value):.{many}g}"
    return str(value)
