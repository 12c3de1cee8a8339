"""Masks in Keras' descriptions of functional models.

Keras writes a mask that a layer was given by the layers before it as an argument of the call, and what the mask is made
of as calls of its own. Here masks follow the symbolic tensors, so that such arguments are left out. One that the user
has passed is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OPERATIONS = "keras.src.ops."
_MAX_STEPS = 1 << 16


def history_of(tensor: dict[str, Any]) -> list[Any]:
    """Return from where a symbolic tensor is: the name of a layer, the number of its call, and that of the result."""
    inner = tensor.get("config")
    history = inner.get("keras_history") if isinstance(inner, dict) else None
    if not isinstance(history, list) or len(history) != 3 or not isinstance(history[0], str):
        raise ValueError("a symbolic tensor does not tell where it is from")
    if not all(type(number) is int for number in history[1:]):
        raise ValueError("a symbolic tensor does not tell where it is from")
    return history


def histories(node: object) -> Iterator[tuple[str, int, int]]:
    """Iterate over the symbolic tensors in the arguments of a call."""
    if isinstance(node, list):
        for part in node:
            yield from histories(part)
    elif isinstance(node, dict):
        if node.get("class_name") == "__keras_tensor__":
            name, call, place = history_of(node)
            yield name, call, place
        else:
            yield from histories(list(node.values()))


def without_masks(layers: list[dict[str, Any]], outputs: object) -> list[dict[str, Any]]:
    """Return the layers of a description without the masks that follow the tensors here, and what those are made of."""
    by_name = {layer["name"]: layer for layer in layers if isinstance(layer.get("name"), str)}
    sources = {history for layer in layers if _makes_masks(layer) for node in _nodes(layer) for history in _first(node)}
    if not sources:
        return layers

    def follows(mask: object) -> bool:
        """True if a mask is computed from the inputs of layers that make masks."""
        waiting, steps = list(histories(mask)), 0
        if not waiting:
            return False
        while waiting:
            history, steps = waiting.pop(), steps + 1
            if history in sources:
                continue
            layer = by_name.get(history[0], {})
            nodes = _nodes(layer)
            if not _is_operation(layer) or not 0 <= history[1] < len(nodes) or steps > _MAX_STEPS:
                return False
            waiting += histories(nodes[history[1]])
        return True

    def cleaned(node: object) -> object:
        kwargs = node.get("kwargs") if isinstance(node, dict) else None
        if not isinstance(kwargs, dict) or not isinstance(node, dict) or not follows(kwargs.get("mask")):
            return node
        return {**node, "kwargs": {key: value for key, value in kwargs.items() if key != "mask"}}

    kept = [{**layer, "inbound_nodes": [cleaned(node) for node in _nodes(layer)]} for layer in layers]
    # What the masks were made of is used by nothing any more; an operation may be used by another one alone.
    while True:
        used = {name for layer in kept for node in layer["inbound_nodes"] for name, _, _ in histories(node)}
        used |= set(_texts(outputs))
        left = [layer for layer in kept if not _is_operation(layer) or layer.get("name") in used]
        if len(left) == len(kept):
            return kept
        kept = left


def _nodes(layer: dict[str, Any]) -> list[Any]:
    nodes = layer.get("inbound_nodes")
    return nodes if isinstance(nodes, list) else []


def _first(node: object) -> list[tuple[str, int, int]]:
    args = node.get("args") if isinstance(node, dict) else None
    return list(histories(args[0])) if isinstance(args, list) and args else []


def _makes_masks(layer: dict[str, Any]) -> bool:
    inner = layer.get("config")
    return layer.get("class_name") == "Masking" or (
        layer.get("class_name") == "Embedding" and isinstance(inner, dict) and inner.get("mask_zero") is True
    )


def _is_operation(layer: dict[str, Any]) -> bool:
    module = layer.get("module")
    return isinstance(module, str) and module.startswith(_OPERATIONS)


def _texts(structure: object) -> Iterator[str]:
    """Iterate over the texts in a structure: the names of layers, among the outputs of a model."""
    if isinstance(structure, str):
        yield structure
    elif isinstance(structure, list | dict):
        for part in structure.values() if isinstance(structure, dict) else structure:
            yield from _texts(part)
