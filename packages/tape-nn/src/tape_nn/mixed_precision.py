"""Layers that compute in half precision, with Variables in single."""

from __future__ import annotations

from typing import Any, TypeVar

from tape_core.base.dtypes import as_dtype

from tape_nn.layers.base import Layer
from tape_nn.module import Module

M = TypeVar("M", bound=Module)


def mixed_precision(model: M, dtype: Any = "float16") -> M:
    """Have all layers in a model compute in `dtype`, while their Variables stay in float32; returns the model.

    A layer casts its input and its Variables, so that gradients come back in the Variables' dtype and small updates are
    not lost to rounding. Normalisation layers compute in the Variables' dtype and give out `dtype`; losses of
    :mod:`tape_nn.losses` are computed in float32. The setting is `compute_dtype` of each layer, and can be changed
    there: None is the layer's own, as a last layer with a softmax may want it.

    A Module of your own computes with the Variables that it holds itself as before: float32 with float16 is float32.

    Gradients in float16 are easily too small for its range: train with a :class:`LossScaler`. bfloat16 has the range of
    float32 and does without.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model = nn.mixed_precision(nn.Sequential([nn.Dense(8, activation="relu"), nn.Dense(2)]))
    >>> model(tc.ones((4, 3))).dtype, model[0].kernel.dtype
    (float16, float32)

    Args:
        model: a Module with layers of this package in it, built or not.
        dtype: "float16", "bfloat16" or another real floating-point dtype; None switches it off.

    Raises:
        TypeError: `dtype` is none of these, or the backend of a layer's Variables has none. Nothing is changed. A layer
            that has no Variables yet raises this at its first call.
        ValueError: there are no such layers in the model.
    """
    if not isinstance(model, Module):
        raise TypeError(f"mixed_precision: model must be a Module; got {model!r}")
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is not None and wanted.kind != "real floating":
        raise TypeError(f"mixed_precision: dtype must be real floating-point, such as 'float16'; got {wanted}")
    layers = [found for _, found in model.named_modules() if isinstance(found, Layer)]
    if not layers:
        raise ValueError(f"mixed_precision: there is no layer with Variables in {model!r}")
    if wanted is not None:
        for variable in model.variables:
            variable.backend.raw_dtype(wanted)
    for layer in layers:
        layer.compute_dtype = wanted
    return model
