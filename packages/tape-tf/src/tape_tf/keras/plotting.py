"""`tf.keras.utils.plot_model`: a picture of a model's layers, by what draws the graphs of tapes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tape_core.debugging import Box, Drawing

from tape_tf.keras.layers.core import InputLayer
from tape_tf.keras.models import Model, Sequential
from tape_tf.keras.structures import leaves
from tape_tf.names import exported
from tape_tf.typing import PathLike, PyTree

_DIFFERS = "writes SVG without Graphviz; the picture runs from top to bottom"
_LIMIT_S = 60  # for Graphviz


class _Shown(NamedTuple):
    """What a box tells of its layer."""

    shapes: bool
    dtype: bool
    names: bool
    nested: bool
    activations: bool
    trainable: bool


class _Plot:
    """The boxes of a model, each with the numbers of those before it."""

    def __init__(self, shown: _Shown) -> None:
        self.boxes: list[Box] = []
        self._shown = shown

    def add(self, layer: Any, kind: str, inputs: list[int], before: PyTree, after: PyTree) -> int:
        """Add the box of a layer with these shapes of its inputs and outputs, and return its number."""
        shown, label = self._shown, type(layer).__name__
        lines = []
        activation = getattr(layer, "activation", None)
        if shown.activations and activation is not None:
            lines.append(f"activation: {getattr(activation, '__name__', activation)}")
        if shown.shapes:
            lines += [f"input: {_shape(before)}", f"output: {_shape(after)}"]
        if shown.dtype:
            lines.append(f"dtype: {layer.dtype}")
        if shown.trainable and kind == "op":
            lines.append("trainable" if layer.trainable else "not trainable")
        title = f"{layer.name} ({label})" if shown.names else label
        self.boxes.append(Box(kind, title, lines, f"{layer.name} ({label})", sorted(set(inputs))))
        return len(self.boxes) - 1

    def layer(self, layer: Any, inputs: list[int], before: PyTree, after: PyTree) -> list[int]:
        """Add a layer that is called on what these boxes give, and return the boxes of its outputs."""
        if isinstance(layer, Model) and self._shown.nested and _is_drawable(layer):
            return self.inside(layer, inputs)
        return [self.add(layer, "group" if isinstance(layer, Model) else "op", inputs, before, after)]

    def inside(self, model: Model, given: list[int] | None) -> list[int]:
        """Add the layers of a model, and return the boxes of its outputs.

        Args:
            given: the boxes of its inputs; None to add some.
        """
        if model._graph is None:
            return self._sequential(model, given)
        sources = list(leaves(model._inputs))
        if given is None:
            first = [layer for layer in model._layers if isinstance(layer, InputLayer)]
            by_name = {layer.name: layer for layer in first}
            given = [self.add(by_name[t.name], "watched", [], t.shape, t.shape) for t in sources]
        elif len(given) != len(sources):
            given = [given[0]] * len(sources)
        made = {id(tensor): number for tensor, number in zip(sources, given, strict=True)}
        for node in model._graph:
            parents = node.parents
            shapes = [tensor.shape for tensor in parents]
            before = shapes[0] if len(shapes) == 1 else shapes
            outputs = list(leaves(node.outputs))
            after = outputs[0].shape if len(outputs) == 1 else [tensor.shape for tensor in outputs]
            found = self.layer(node.layer, [made[id(tensor)] for tensor in parents], before, after)
            for k, tensor in enumerate(outputs):
                made[id(tensor)] = found[min(k, len(found) - 1)]
        return [made[id(tensor)] for tensor in leaves(model._outputs)]

    def _sequential(self, model: Model, given: list[int] | None) -> list[int]:
        last, before = given or [], None
        if model._inputs is not None:
            before = model._inputs.shape
            if given is None:
                symbol = model._inputs
                first = InputLayer(batch_shape=symbol.shape, dtype=symbol.dtype, name=symbol.name)
                last = [self.add(first, "watched", [], before, before)]
        for layer in model.layers:
            last, before = self.layer(layer, last, before, layer._output_shape), layer._output_shape
        return last


def _is_drawable(model: Model) -> bool:
    return model._graph is not None or isinstance(model, Sequential)


def _shape(shapes: PyTree) -> str:
    if isinstance(shapes, list):
        return ", ".join(map(_shape, shapes))
    if isinstance(shapes, dict):
        return ", ".join(f"{key}: {_shape(part)}" for key, part in shapes.items())
    return "?" if shapes is None else str(tuple(shapes))


@exported("keras.utils.model_to_dot", "a drawing, whose `dot` is Graphviz's text and `svg` the picture")
def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> Drawing:
    """Return the picture of a model's layers, and of what they are called on.

    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.Input((4,), name="in"), tf.keras.layers.Dense(2, name="out")])
    >>> tf.keras.utils.model_to_dot(model)
    <Drawing of 2 nodes; .svg, .dot, .save(path)>

    Args:
        model: a Sequential or functional model; of a model with a `call` of its own there is one box.
        show_shapes, show_dtype, show_layer_names, show_layer_activations, show_trainable: what a box tells.
        expand_nested: draw the layers of the models inside.
        rankdir, dpi, subgraph, splines: have no effect: the picture runs from top to bottom, and is no bitmap.

    Raises:
        ValueError: the model has no weights yet.
        TypeError: it is no model.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model_to_dot takes a tf.keras.Model; got {type(model).__name__!r}")
    if not model.built:
        raise ValueError(
            "This model has not yet been built. Build the model first by calling `build()` or by calling the model on "
            "a batch of data."
        )
    shown = _Shown(show_shapes, show_dtype, show_layer_names, expand_nested, show_layer_activations, show_trainable)
    plot = _Plot(shown)
    if _is_drawable(model):
        plot.inside(model, None)
    else:
        plot.add(model, "group", [], None, model._output_shape)
    return Drawing(plot.boxes, None)


@exported("keras.utils.plot_model", _DIFFERS)
def plot_model(
    model: Any,
    to_file: PathLike | None = "model.svg",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> Drawing:
    """Write a picture of a model's layers to a file, and return it; notebooks show it.

    Args:
        to_file: a name that ends in `.svg`, or in `.dot` or `.gv` for Graphviz's text; None to write nothing. Other
            formats, such as `.png`, are made by Graphviz's program `dot`.
        model and the others: as for :func:`model_to_dot`.

    Raises:
        ValueError: the model has no weights yet.
        RuntimeError: the format needs Graphviz, which is not installed or failed.
    """
    drawing = model_to_dot(
        model,
        show_shapes=show_shapes,
        show_dtype=show_dtype,
        show_layer_names=show_layer_names,
        expand_nested=expand_nested,
        show_layer_activations=show_layer_activations,
        show_trainable=show_trainable,
    )
    if to_file is None:
        return drawing
    target = Path(to_file)
    if target.suffix in (".svg", ".dot", ".gv"):
        return drawing.save(target)
    program = shutil.which("dot")
    if program is None or not target.suffix:
        raise RuntimeError(
            f"plot_model: {target.name!r} needs Graphviz's program 'dot' on the PATH (https://graphviz.org); a name "
            "that ends in .svg does without"
        )
    kind = target.suffix.removeprefix(".")
    try:
        command = [program, f"-T{kind}", f"-Gdpi={int(dpi)}", "-o", str(target)]
        subprocess.run(command, input=drawing.dot.encode(), capture_output=True, timeout=_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"plot_model: Graphviz's program {program} failed to write {target}: {error}") from error
    return drawing
