"""The vocabularies of lookup layers in files of Keras: text files beside the description, put into the description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tape_tf.keras.naming import snake_case
from tape_tf.typing import Json

ASSETS = "assets/"
"""The beginning of the names of such members."""

_FILE = "vocabulary.txt"
_OF_STRINGS = ("StringLookup", "TextVectorization")
_LOOKUPS = (*_OF_STRINGS, "IntegerLookup")


def with_vocabularies(config: Json, members: Mapping[str, bytes]) -> Any:
    """Return the description of a model with the vocabularies that its file has as arguments of the layers.

    Raises:
        ValueError: a vocabulary belongs to a layer that is not found in the description: it would be lost.
    """
    remaining = {
        name.removeprefix(ASSETS).removesuffix(f"/{_FILE}"): data
        for name, data in members.items()
        if name.startswith(ASSETS) and name.endswith(f"/{_FILE}") and "/_lookup_layer/" not in name
    }
    found = _filled(config, "", remaining) if remaining else config
    if remaining:
        raise ValueError(
            f"the vocabulary of the layer at {next(iter(remaining))!r} is not read: in Keras give the layer its "
            "`vocabulary` as an argument before the model is saved, or call set_vocabulary after"
        )
    return found


def _filled(config: Json, path: str, remaining: dict[str, bytes]) -> Any:
    inner = config.get("config") if isinstance(config, dict) else None
    if not isinstance(inner, dict):
        return config
    if path in remaining and config.get("class_name") in _LOOKUPS:
        return {**config, "config": {**inner, "vocabulary": _tokens(remaining.pop(path), config["class_name"])}}
    layers = inner.get("layers")
    if not isinstance(layers, list):
        return config
    used: dict[str, int] = {}
    made = []
    for layer in layers:
        kind = layer.get("class_name") if isinstance(layer, dict) else None
        if isinstance(kind, str):
            # Keras' names of members of a list: by the class, numbered from the second one on.
            name = snake_case(kind)
            number = used[name] = used.get(name, -1) + 1
            layer = _filled(layer, f"{path}{'/' * bool(path)}layers/{name}{f'_{number}' * bool(number)}", remaining)
        made.append(layer)
    return {**config, "config": {**inner, "layers": made}}


def _tokens(data: bytes, kind: str) -> list[Any]:
    lines = data.decode("utf-8").split("\n")
    return lines if kind in _OF_STRINGS else [int(line) for line in lines]
