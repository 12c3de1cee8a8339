"""Mixed precision: layers that compute in half precision, with Variables in float32."""

from __future__ import annotations

from typing import TypeVar

from tape_core.support import as_dtype
from tape_core.typing import DTypeLike

from tape_nn.layers.base import Layer
from tape_nn.module import Module

M = TypeVar("M", bound=Module)


def mixed_precision(model: M, dtype: DTypeLike = "float16") -> M:
    """Have all layers in a model compute in `dtype`, while their Variables stay in float32; return the model.

    A layer casts its input and its Variables. The gradient of the cast brings gradients back to the Variables' dtype,
    so that small updates are not lost to rounding. Normalisation layers compute in the Variables' dtype and cast their
    output to `dtype`; losses of :mod:`tape_nn.losses` are computed in float32. The setting is `compute_dtype` of each
    layer, and can be changed there: None turns it off, as a last layer with a softmax may want it.

    The Variables that a Module of your own holds itself are not cast: float32 with float16 is float32.

    Gradients in float16 easily underflow to 0: train with a :class:`LossScaler`. bfloat16 has the range of float32 and
    needs none.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model = nn.mixed_precision(nn.Sequential([nn.Dense(8, activation="relu"), nn.Dense(2)]))
    >>> model(tc.ones((4, 3))).dtype, model[0].kernel.dtype
    (float16, float32)

    Args:
        model: a Module with layers of this package in it, built or not.
        dtype: "float16", "bfloat16" or another real floating-point dtype; None switches it off.

    Raises:
        TypeError: `dtype` is none of these, or the backend of a layer's Variables does not have it. Nothing is
            changed. A layer that has no Variables yet raises this at its first call.
        ValueError: there are no such layers in the model.
    """
    if not isinstance(model, Module):
        raise TypeError(f"mixed_precision: model must be a Module; got {model!r}")
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is not None and wanted.kind != "real floating":
        raise TypeError(f"mixed_precision: dtype must be real floating-point, such as 'float16'; got {wanted}")
    # Layers only: a Module's own Variables are used by code that knows nothing of `compute_dtype`.
    layers = [found for _, found in model.named_modules() if isinstance(found, Layer)]
    if not layers:
        raise ValueError(f"mixed_precision: there is no layer with Variables in {Module.__repr__(model)}")
    if wanted is not None:
        for variable in model.variables:
            variable.backend.raw_dtype(wanted)  # raises before anything is changed
    for layer in layers:
        layer.compute_dtype = wanted
    return model
