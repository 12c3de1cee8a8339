"""`tf.keras.Input` and symbolic calls: which layer is called on what, and the shapes of the results.

A layer needs no rule for shapes. They are inferred by calling it on arrays of ones, twice, with different numbers in
place of each unknown length. A length of the result that differs between the two calls is unknown; the others are
known. For the layers of networks on images, where such calls take long, `layers/shape_rules.py` has rules.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tape_core as tc
from tape_core.support import setting

from tape_tf import dtypes
from tape_tf.conversion import wrap
from tape_tf.keras import limits
from tape_tf.keras.backend import floatx
from tape_tf.keras.naming import auto_name
from tape_tf.keras.structures import leaves, map_structure
from tape_tf.shapes import TensorShape
from tape_tf.string_tensor import wrap_strings
from tape_tf.typing import DTypeLike, IndexLike, PartialShape, PyTree, TensorLike

if TYPE_CHECKING:
    from tape_tf.keras.layers.base import Layer

# The lengths that stand for unknown ones in the two calls: of the axis of examples, and of the other axes. Those must
# be large enough for kernels, strides and pooling to leave something; few examples keep the calls cheap.
_PROBE_LENGTHS = ((2, 64), (3, 128))


SHAPE_RULES: dict[type, tuple[Callable[..., tuple[int | None, ...] | None], bool]] = {}
"""For layers of exactly a class: a function from the layer and the shapes of its inputs to the shape of its output, and
whether the layer takes a list."""


class KerasTensor:
    """A symbolic tensor: the input of a model, or the result of calling layers on it. It has a shape and no value.

    >>> import tape_tf as tf
    >>> x = tf.keras.Input(shape=(4,))
    >>> tf.keras.layers.Dense(2)(x).shape
    TensorShape([None, 2])

    Operators between symbolic tensors give symbolic tensors. Functions of `tf` need values: put them into a
    `tf.keras.layers.Lambda` or into a layer's `call`.
    """

    def __init__(self, shape: PartialShape, dtype: DTypeLike, name: str, node: Node | None = None) -> None:
        self.shape = TensorShape(shape)
        self.dtype = dtypes.as_dtype(dtype)
        self.name = name
        self.node = node
        self._mask_ndim: int | None = None  # the number of axes of the mask that its layer gives it

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def _probe_shape(self, number: int) -> tuple[int, ...]:
        """Return the shape with a number in place of each unknown length."""
        examples, others = _PROBE_LENGTHS[number]
        return tuple([n if n is not None else others if axis else examples for axis, n in enumerate(self.shape)])

    def check_size(self) -> None:
        """Raise a ValueError if a value of this shape is too large, while a model is made from a file."""
        limits.check_size(self._probe_shape(1))  # the larger one

    def _probe(self, number: int) -> Any:
        """Return a tensor of the shape, with ones, or zeros for dtypes that may be indices."""
        shape = self._probe_shape(number)
        if self.dtype is dtypes.string:
            # Texts of one word and of two, so that a layer that splits them has results of different lengths.
            return wrap_strings(np.full(shape, (b"a", b"a b")[number], object))
        # Ones, since a division by zeros or their logarithm would warn; the index 0 is in range of every table.
        make = tc.ones if self.dtype.is_floating else tc.zeros
        found: Any = wrap(make(shape, dtype=self.dtype.native))
        if self._mask_ndim is not None:
            found._keras_mask = wrap(tc.ones(shape[: self._mask_ndim], dtype=tc.bool))
        return found

    def __tf_tensor__(self, *args: Any) -> Any:
        raise ValueError(
            "A KerasTensor cannot be used as input to a TensorFlow function: it has no value yet. Use it in a "
            "layer, such as tf.keras.layers.Lambda(lambda x: ...), or in the call of a layer of your own"
        )

    __array__ = __tf_tensor__

    def __bool__(self) -> bool:
        raise TypeError("A symbolic KerasTensor cannot be used as a boolean.")

    def __iter__(self) -> Any:
        raise TypeError("Iterating over a symbolic KerasTensor is not supported.")

    # The operators, indexing and the mask are attached by `tape_tf.keras.layers.callables`, where their layer is.
    if TYPE_CHECKING:

        def __getitem__(self, key: IndexLike) -> Any: ...

        _keras_mask: Any

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self.shape}, dtype={self.dtype.name}, name={self.name}>"


# Compared by identity: a layer called twice on one input makes two nodes.
@dataclass(eq=False)
class Node:
    """A symbolic call: a layer, its arguments and its outputs."""

    layer: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any = None

    @property
    def parents(self) -> list[KerasTensor]:
        """The symbolic tensors among the arguments."""
        return [leaf for leaf in leaves((self.args, self.kwargs)) if isinstance(leaf, KerasTensor)]

    @property
    def inputs(self) -> Any:
        """The symbolic argument, or a list of them if there are several."""
        found = self.parents
        return found[0] if len(found) == 1 else found


def Input(
    shape: PartialShape | int | None = None,
    batch_size: int | None = None,
    dtype: DTypeLike = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
    batch_shape: PartialShape | None = None,
    name: str | None = None,
    tensor: TensorLike | None = None,
    optional: bool = False,
) -> KerasTensor:
    """The symbolic input of a model.

    Args:
        shape: the shape of an example, without the axis of examples; None for an unknown length.
        batch_size: the number of examples; unknown by default.
        dtype: by default Keras' float type.
        sparse, ragged, tensor: must be left out.
        batch_shape: the shape of a batch, in place of `shape` and `batch_size`.
        name: by default "input_layer".

    Raises:
        ValueError: there is no shape, or two; or the input is to be sparse or ragged, which is not supported.
    """
    if sparse or ragged or tensor is not None:
        raise ValueError("Input: there are no sparse or ragged tensors here, and no inputs made of tensors")
    if (shape is None) == (batch_shape is None):
        raise ValueError("Input: give shape, without the axis of examples, or batch_shape, with it")
    if batch_shape is None:
        batch_shape = (batch_size, *((shape,) if isinstance(shape, int) else shape or ()))
    return KerasTensor(batch_shape, floatx() if dtype is None else dtype, name or auto_name("input_layer"))


def contains_symbolic(structure: PyTree) -> bool:
    """True if there is a KerasTensor in a structure."""
    # Lists, not generators, inside any(): this runs in every call of a layer, and short lists are faster.
    if isinstance(structure, list | tuple):
        return any([contains_symbolic(part) for part in structure])
    if isinstance(structure, dict):
        return any([contains_symbolic(part) for part in structure.values()])
    return isinstance(structure, KerasTensor)


def _replace_with_probe(number: int, leaf: PyTree) -> Any:
    return leaf._probe(number) if isinstance(leaf, KerasTensor) else leaf


# True while layers are called on arrays of ones to find the shapes of their outputs: no state may come of that.
_PROBING: ContextVar[bool] = ContextVar("tape_tf.keras.probing", default=False)


def is_probing() -> bool:
    """True while layers are called only to find the shapes of their outputs."""
    return _PROBING.get()


def symbolic_call(layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a layer on KerasTensors: infer the shapes of the outputs, and return them as KerasTensors."""
    node = Node(layer, args, kwargs)
    # A rule gives shapes and no masks: what becomes of a mask is seen when the layer is called.
    masked = any([parent._mask_ndim is not None for parent in node.parents])
    if not masked and (known := _output_by_rule(layer, args, kwargs, node)) is not None:
        node.outputs = known
        layer._nodes.append(node)
        layer._output_shape = known.shape
        return known
    open_ended = any([None in parent.shape for parent in node.parents])
    found = []
    for number in (0, 1) if open_ended else (0,):
        probed = map_structure(partial(_replace_with_probe, number), [list(args), kwargs])
        probed[1].setdefault("training", False)  # so that no moving average learns from the probes
        with setting(_PROBING, True):
            outputs = layer(*probed[0], **probed[1])
        found.append([*leaves(outputs)])
        # A description from a file could name layers whose results fill the memory: see `limits`, which is off
        # otherwise.
        for value in found[-1]:
            limits.check_size(getattr(value, "shape", ()))
    made = []
    # `versions`: one output, as each of the calls gave it.
    for versions in zip(*found, strict=True):
        # `strict`: a layer whose result has another number of axes for another length cannot be a part of a model.
        columns = zip(*[version.shape for version in versions], strict=True)
        lengths = [column[0] if len(set(column)) == 1 else None for column in columns]
        made.append(KerasTensor(lengths, versions[0].dtype, auto_name("keras_tensor"), node))
        if (mask := getattr(versions[0], "_keras_mask", None)) is not None:
            made[-1]._mask_ndim = mask.ndim
    remaining = iter(made)
    node.outputs = map_structure(lambda _: next(remaining), outputs)
    layer._nodes.append(node)
    layer._output_shape = map_structure(lambda tensor: tensor.shape, node.outputs)
    return node.outputs


def _output_by_rule(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: Node) -> KerasTensor | None:
    """Return the output of a symbolic call whose shape a rule tells, having built the layer; None if none does."""
    rule, takes_list = SHAPE_RULES.get(type(layer), (None, False))
    if (
        rule is None
        or len(args) != 1
        or isinstance(args[0], list | tuple) != takes_list
        or kwargs.keys() - {"training", "mask"}
        or not layer._autocast
    ):
        return None
    tensors = list(args[0]) if takes_list else [args[0]]
    if not all([isinstance(tensor, KerasTensor) and tensor.dtype.is_floating for tensor in tensors]) or not tensors:
        return None
    shape = rule(layer, *[tuple(tensor.shape) for tensor in tensors])
    if shape is None:
        return None
    found = KerasTensor(shape, layer.compute_dtype, auto_name("keras_tensor"), node)
    if limits.active():  # a model from a file: what a call of its size would compute is checked all the same
        for number in (0, 1):
            for part in layer._intermediate_shapes(*[tensor._probe_shape(number) for tensor in tensors]):
                limits.check_size(part)
        found.check_size()
    layer._build_symbolically(args)
    return found


def topological_order(inputs: list[KerasTensor], outputs: list[KerasTensor]) -> list[Node]:
    """Return the symbolic calls that lead from inputs to outputs, each after those it depends on.

    The search is depth-first with a stack of its own, so that deep models do not reach Python's recursion limit.

    Raises:
        ValueError: an output depends on an Input that is not among the inputs.
    """
    known = {id(tensor) for tensor in inputs}
    done: dict[int, Node] = {}
    # A call is pushed twice: to visit what it depends on, and then, `ready`, to be added after that.
    waiting = [(tensor.node, False) for tensor in reversed(outputs) if id(tensor) not in known]
    while waiting:
        node, ready = waiting.pop()
        if node is None:
            raise ValueError(
                "`inputs` not connected to `outputs`: an output depends on an Input that is not among the inputs"
            )
        if id(node) in done:
            continue
        if ready:
            done[id(node)] = node
            continue
        waiting.append((node, True))
        waiting += [(p.node, False) for p in reversed(node.parents) if id(p) not in known]
    return list(done.values())


def layers_by_depth(inputs: list[KerasTensor], sources: list[Any], nodes: list[Node]) -> list[Any]:
    """Return the layers, those farthest from the outputs first, as Keras orders them.

    Args:
        sources: an InputLayer for each input.
    """
    # The depth of a call is the length of the longest path from it to an output. In reverse order all calls that use a
    # call come before it, so one pass suffices. Inputs, which no call makes, have a depth by their own identity.
    depth: dict[int, int] = {}
    for node in reversed(nodes):
        own = depth.setdefault(id(node), 0)
        for parent in node.parents:
            key = id(parent) if parent.node is None else id(parent.node)
            depth[key] = max(depth.get(key, 0), own + 1)
    source = {id(tensor): layer for tensor, layer in zip(inputs, sources, strict=True)}
    found: dict[int, tuple[int, Any]] = {}
    for node in nodes:
        for parent in node.parents:
            if id(parent) in source:
                found.setdefault(id(source[id(parent)]), (depth.get(id(parent), 0), source[id(parent)]))
        found.setdefault(id(node.layer), (depth[id(node)], node.layer))
    for layer in sources:  # inputs that nothing uses
        found.setdefault(id(layer), (0, layer))
    # `sorted` is stable: layers of one depth stay in the order of their calls.
    return [layer for _, layer in sorted(found.values(), key=lambda item: -item[0])]


def run_graph(nodes: list[Node], inputs: list[KerasTensor], values: list[Any], outputs: PyTree) -> Any:
    """Compute the values of the outputs by repeating the symbolic calls on values of the inputs."""
    found = {id(tensor): value for tensor, value in zip(inputs, values, strict=True)}

    def value(leaf: PyTree) -> Any:
        return found[id(leaf)] if isinstance(leaf, KerasTensor) else leaf

    for node in nodes:
        args, kwargs = map_structure(value, [list(node.args), node.kwargs])
        result = node.layer(*args, **kwargs)
        for tensor, part in zip(leaves(node.outputs), leaves(result), strict=True):
            found[id(tensor)] = part
    return map_structure(value, outputs)
