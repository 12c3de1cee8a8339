"""The table that `Model.summary` prints, in Keras' format."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tape_tf.typing import PyTree

if TYPE_CHECKING:
    from tape_tf.keras.layers.base import Layer
    from tape_tf.keras.models import Model

# Widths in characters, and the right edges of columns as shares of the width, as in Keras.
_WIDTH, _EDGES = 88, (0.45, 0.80, 1.0)
_WIDTH_TRAINABLE, _EDGES_TRAINABLE = 100, (0.405, 0.72, 0.90, 1.0)


def summary_table(
    model: Model,
    line_length: int | None,
    print_fn: Callable[[str], Any] | None,
    expand_nested: bool,
    show_trainable: bool,
) -> None:
    """Print the table; the arguments are those of :meth:`Model.summary`."""
    head = ["Layer (type)", "Output Shape", "Param #"] + (["Trainable"] if show_trainable else [])
    width, positions = (_WIDTH_TRAINABLE, _EDGES_TRAINABLE) if show_trainable else (_WIDTH, _EDGES)
    width = line_length or min(width, shutil.get_terminal_size().columns - 4)
    edges = [0, *(int(position * width) for position in positions)]
    widths = [b - a for a, b in pairwise(edges)]
    rows = [
        row if show_trainable else row[:3]
        for layer in _listed_layers(model)
        for row in _layer_rows(layer, "", expand_nested)
    ]
    lines = [f'Model: "{model.name}"', *_table_lines(head, rows, widths), *_total_lines(model)]
    text = "\n".join(lines)
    if print_fn is None:
        sys.stdout.write(text + "\n")
    else:
        print_fn(text)


def _listed_layers(model: Model) -> list[Any]:
    """The layers to list: of a functional model also the operators between symbolic tensors."""
    return model.layers if model._graph is None else model._layers


def _layer_rows(layer: Layer, before: str, expand_nested: bool) -> Iterator[list[str]]:
    """Iterate over the cells of a layer's row, and the rows of the layers in it, indented by `before`."""
    shape = layer._output_shape
    weights = f"{layer.count_params():,}" if layer.built else "0 (unbuilt)"
    trained = ("Y" if layer.trainable else "N") if layer.variables else "-"
    # The layer of an operator is shown as the Keras function of its name: "Add" for `add_3`.
    kind = layer.name.rstrip("_0123456789").title() if type(layer).__name__ == "Operation" else type(layer).__name__
    yield [f"{before}{layer.name} ({kind})", "?" if shape is None else _format_shape(shape), weights, trained]
    if expand_nested:
        for inner in getattr(layer, "layers", []):
            yield from _layer_rows(inner, f"   {before}└ " if not before else f"   {before}", expand_nested)


def _format_shape(shape: PyTree) -> str:
    """Format a shape, or the shapes in a structure."""
    if isinstance(shape, list | dict):
        parts = shape.values() if isinstance(shape, dict) else shape
        return ", ".join([_format_shape(part) for part in parts])
    return (
        str(tuple(shape))
        if not shape or not isinstance(shape[0], tuple)
        else ", ".join([_format_shape(s) for s in shape])
    )


def _table_lines(head: list[str], rows: list[list[str]], widths: list[int]) -> Iterator[str]:
    """Iterate over the lines of a table with borders."""
    # A space on either side and one border belong to each column; the first column has two borders.
    widths = [max(width - (4 if k == 1 else 3), 3) for k, width in enumerate(widths)]

    def line(left: str, middle: str, right: str, dash: str) -> str:
        return left + middle.join([dash * (width + 2) for width in widths]) + right

    def cells(row: list[str], bar: str) -> Iterator[str]:
        wrapped = [
            textwrap.wrap(cell, width, drop_whitespace=True) or [""] for cell, width in zip(row, widths, strict=True)
        ]
        for k in range(max(map(len, wrapped))):
            parts = [text[k] if k < len(text) else "" for text in wrapped]
            aligned = [
                part.rjust(width) if n == 2 else part.center(width) if n == 3 else part.ljust(width)
                for n, (part, width) in enumerate(zip(parts, widths, strict=True))
            ]
            yield f"{bar} " + f" {bar} ".join(aligned) + f" {bar}"

    yield line("┏", "┳", "┓", "━")
    yield from cells(head, "┃")
    yield line("┡", "╇", "┩", "━")
    for k, row in enumerate(rows):
        if k:
            yield line("├", "┼", "┤", "─")
        yield from cells(row, "│")
    yield line("└", "┴", "┘", "─")


def _total_lines(model: Model) -> Iterator[str]:
    trained, fixed = model.trainable_variables, model.non_trainable_variables
    # The optimizer's slots exist from the first update on.
    learned = [] if model.optimizer is None or not model.optimizer.built else model.optimizer.variables
    yield f" Total params: {_format_count([*trained, *fixed, *learned])}"
    yield f" Trainable params: {_format_count(trained)}"
    yield f" Non-trainable params: {_format_count(fixed)}"
    if learned:
        yield f" Optimizer params: {_format_count(learned)}"


def _format_count(variables: list[Any]) -> str:
    """The number of elements of variables, and their size in memory."""
    numbers = sum(v.native.size for v in variables)
    size = float(sum(v.native.size * v.native.dtype.itemsize for v in variables))
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            break
        size /= 1024
    return f"{numbers:,} ({np.round(size, 2):.2f} {unit})"
