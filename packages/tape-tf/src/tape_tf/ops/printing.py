"""tf.print, with as many digits as TensorFlow prints."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from tape_core.staging import host_callback

from tape_tf import nest
from tape_tf.conversion import native, wrap
from tape_tf.names import exported
from tape_tf.string_tensor import StringTensor
from tape_tf.tensor import Value
from tape_tf.typing import NumPyArray, PyTree


@exported("print")
def print_(*inputs: Any, **kwargs: Any) -> None:
    """Write values to `output_stream`, by default `sys.stderr`; also in compiled functions, in each call.

    Args:
        *inputs: tensors, nested structures of them, and anything else.
        output_stream: something with `write`, or `"file://"` and a path, which is appended to.
        summarize: the number of elements shown at either end of each dimension; -1 for all. Default 3.
        sep, end: like those of Python's `print`.
    """
    stream, summarize = kwargs.pop("output_stream", None), kwargs.pop("summarize", 3)
    sep, end = kwargs.pop("sep", " "), kwargs.pop("end", "\n")
    kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {sorted(kwargs)}")
    # Read here: a host callback gets tensors, and no Variables.
    _print([_native_leaves(value) for value in inputs], (stream, summarize, sep, end))


def _native_leaves(value: PyTree) -> Any:
    def convert(leaf: Any) -> Any:
        return native(leaf) if isinstance(leaf, Value) and not isinstance(leaf, StringTensor) else leaf

    return nest.map_structure(convert, value)


@host_callback
def _print(values: PyTree, options: tuple[Any, int, str, str]) -> None:
    stream, summarize, sep, end = options
    text = sep.join([_format(value, summarize) for value in wrap(values)]) + end
    if isinstance(stream, str):
        # Opened in each call: a compiled function may print into it long after this one has returned.
        with open(stream.removeprefix("file://"), "a") as file:
            file.write(text)
    else:
        (stream or sys.stderr).write(text)


def _format(value: PyTree, summarize: int) -> str:
    if isinstance(value, Value):
        return _digits(value.numpy(), summarize)
    if isinstance(value, np.ndarray | bytes):
        return _digits(value, summarize)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_part(part, summarize)}" for key, part in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(_part(part, summarize) for part in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return str(value)


def shown(value: Value, summarize: int) -> str:
    """Return a tensor as `tf.print` shows it."""
    return _digits(value.numpy(), summarize)


def _part(value: PyTree, summarize: int) -> str:
    return repr(value) if isinstance(value, str) else _format(value, summarize)


def _digits(values: NumPyArray | bytes, summarize: int, indent: int = 1) -> str:
    if not np.ndim(values):
        # TensorFlow quotes strings among others, and shows one alone as it is.
        text = _number(values)
        return f'"{text}"' if isinstance(values, bytes) and indent > 1 else text
    assert isinstance(values, np.ndarray)
    shorten = summarize >= 0 and len(values) > 2 * summarize
    rows = [*values[:summarize], None, *values[len(values) - summarize :]] if shorten else list(values)
    parts = ["..." if row is None else _digits(row, summarize, indent + 1) for row in rows]
    # TensorFlow's layout: no commas, and one line break more for each dimension further out.
    gap = " " if np.ndim(values) == 1 else "\n" * (np.ndim(values) - 1) + " " * indent
    return "[" + gap.join(parts) + "]"


def _number(value: Any) -> str:
    """Format a number as TensorFlow does: with 6 digits (15 for float64) if they give the number back, else 9 (17)."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.bool_ | bool):
        # tf.print shows truth values as 0 and 1.
        return str(int(value))
    if isinstance(value, np.floating | float):
        few, many = (15, 17) if np.asarray(value).dtype == np.float64 else (6, 9)
        text = f"{float(value):.{few}g}"
        return text if type(value)(text) == value or value != value else f"{float(value):.{many}g}"
    return str(value)
