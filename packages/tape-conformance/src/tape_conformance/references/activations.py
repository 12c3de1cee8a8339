"""References of activations and losses, from their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from tape_conformance.references import Array, Axis, DType


def sigmoid(x: Array) -> Any:
    """Return the logistic function, by its definition where SciPy has it for real numbers only."""
    return 1 / (1 + np.exp(-x)) if np.iscomplexobj(x) else special.expit(x)


def softplus(x: Array) -> Any:
    """Return log(1 + exp(x)), by its definition where NumPy has it for real numbers only."""
    return np.log(1 + np.exp(x)) if np.iscomplexobj(x) else np.logaddexp(x, 0)


def _gelu(x: Array, *, approximate: bool = False) -> Any:
    # The approximation of Hendrycks and Gimpel (arXiv:1606.08415) has a hyperbolic tangent: x * (1 + tanh(u / 2)) / 2.
    # And expit(u) is (1 + tanh(u / 2)) / 2.
    if approximate:
        return x * sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return x * special.ndtr(x)


def _cross_entropy(logits: Array, labels: Array, *, axis: int = -1) -> Any:
    lines = (
        np.moveaxis(special.log_softmax(logits, axis=axis), axis, -1) if logits.size else np.moveaxis(logits, axis, -1)
    )
    out = np.empty(labels.shape)
    for place in np.ndindex(*labels.shape):
        out[place] = -lines[place][labels[place]]
    return out


def _cross_entropy_vjp(cotangent: Array, logits: Array, labels: Array, *, axis: int = -1) -> Any:
    d = np.moveaxis(special.softmax(logits, axis=axis), axis, -1).copy()
    for place in np.ndindex(*labels.shape):
        d[place][labels[place]] -= 1
        d[place] *= cotangent[place]
    return np.moveaxis(d, -1, axis)


def _one_hot(labels: Array, num_classes: int, *, dtype: DType = None, axis: int = -1) -> Any:
    return np.moveaxis(np.eye(num_classes, dtype=dtype)[labels], -1, axis)


def _logsumexp(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Any:
    return special.logsumexp(x, axis=axis, keepdims=keepdims)


def _unless_empty(function: Callable[..., Any]) -> Callable[..., Any]:
    """SciPy's function of (x, axis), which refuses empty arrays."""
    return lambda x, *, axis=-1: function(x, axis=axis) if x.size else x


REFERENCES: dict[str, Callable[..., Any]] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_vjp": _cross_entropy_vjp,
    "gelu": _gelu,
    "log_softmax": _unless_empty(special.log_softmax),
    "logsumexp": _logsumexp,
    "one_hot": _one_hot,
    "relu": lambda x: np.where(np.isnan(x), x, np.clip(x, 0, None)),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "softmax": _unless_empty(special.softmax),
    "softplus": softplus,
}
