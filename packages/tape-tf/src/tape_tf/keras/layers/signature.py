"""The signature of a layer's `call`."""

from __future__ import annotations

import inspect
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tape_tf.keras.layers.base import Layer


class CallSignature(NamedTuple):
    """The parameters of a layer's `call`, after self."""

    names: tuple[str, ...]
    training_position: int | None  # of the parameter `training`; None if there is none
    training_default: Any
    takes_kwargs: bool  # **kwargs
    mask_names: tuple[str, ...]  # the parameters that get masks: "mask", or "value_mask" for "value"
    needs_masks: bool  # one of them has no default, or belongs to an argument that is not the first


_KEYWORD_ONLY = sys.maxsize
"""The position of a keyword-only `training`: after all positional arguments."""


@cache
def signature_of(kind: type[Layer]) -> CallSignature:
    """Return the signature of `call` of a class of layers. Cached: inspecting it takes longer than many a call."""
    parameters = list(inspect.signature(kind.call).parameters.values())[1:]
    names = tuple([p.name for p in parameters])
    takes_kwargs = any([p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters])
    masks = tuple([name for name in names if name == "mask" or name.removesuffix("_mask") in (set(names) - {name})])
    needs = any([p.name in masks and (p.name != "mask" or p.default is inspect.Parameter.empty) for p in parameters])
    if "training" not in names:
        return CallSignature(names, None, None, takes_kwargs, masks, needs)
    k = names.index("training")
    # A `training` without default is False where neither the user nor a calling layer says otherwise.
    default = False if parameters[k].default is inspect.Parameter.empty else parameters[k].default
    keyword = parameters[k].kind is inspect.Parameter.KEYWORD_ONLY
    return CallSignature(names, _KEYWORD_ONLY if keyword else k, default, takes_kwargs, masks, needs)
