"""Activations, softmax, losses and dropout by PyTorch's fused kernels: one forward, one backward.

PyTorch's kernels take real floating numbers. For other dtypes that the op takes, the default kernel computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tape_core.backends import check_labels, get_default_dtype, label_error, normal_axis
from tape_core.extend import fused
from tape_core.typing import Axis, Namespace, Residuals
from torch.nn import functional

from tape_torch import attention, convolution, normalization, pooling
from tape_torch.divided import is_divided
from tape_torch.fallback import aten, complex_kernel, declared_rule, default_kernel
from tape_torch.thresholds import CROSS_ENTROPY_KEEP_MAX_ELEMENTS

_gelu_backward = aten("gelu_backward")
_hardtanh_backward = aten("hardtanh_backward")
_leaky_relu_backward = aten("leaky_relu_backward")
_mish_backward = aten("mish_backward")
_nll_loss = aten("nll_loss_forward")
_nll_loss_backward = aten("nll_loss_backward")
_sigmoid_backward = aten("sigmoid_backward")
_silu_backward = aten("silu_backward")
_softplus_backward = aten("softplus_backward")
_tanh_backward = aten("tanh_backward")


def _floating(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that is PyTorch's `function` for real floating numbers, and the default kernel for others."""

    def kernel(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.is_floating_point():
            return function(x, *args, **kwargs)
        if x.is_complex():
            return complex_kernel(name, x, *args, **kwargs)
        return default_kernel(name, x, *args, **kwargs)

    return kernel


# -- activations

_SOFTPLUS_LINEAR = 50.0  # from here on log(1 + exp(x)) is x, in float64 too; PyTorch's own threshold is 20


def _gelu(x: torch.Tensor, *, approximate: bool = False) -> Any:
    return functional.gelu(x, approximate="tanh" if approximate else "none")


# PyTorch's kernels conjugate and Tape's rules do not: the rule of complex numbers is the op's own. These are functions
# of the module, and no closures, since exported files have their source.


def _sigmoid_vjp(xp: Namespace, g: torch.Tensor, out: torch.Tensor) -> Any:
    return declared_rule("sigmoid", "x")(xp, g, out) if out.is_complex() else _sigmoid_backward(g, out)


def _tanh_vjp(xp: Namespace, g: torch.Tensor, out: torch.Tensor) -> Any:
    return declared_rule("tanh", "x")(xp, g, out) if out.is_complex() else _tanh_backward(g, out)


def _softplus_vjp(xp: Namespace, g: torch.Tensor, x: torch.Tensor) -> Any:
    return declared_rule("softplus", "x")(xp, g, x) if x.is_complex() else _softplus_backward(g, x, 1, _SOFTPLUS_LINEAR)


def _log_sigmoid_vjp(xp: Namespace, g: torch.Tensor, x: torch.Tensor) -> Any:
    if x.is_complex():
        return declared_rule("log_sigmoid", "x")(xp, g, x)
    return _softplus_backward(g, -x, 1, _SOFTPLUS_LINEAR)  # its derivative at x is that of softplus at -x


def _silu_vjp(xp: Namespace, g: torch.Tensor, x: torch.Tensor) -> Any:
    return declared_rule("silu", "x")(xp, g, x) if x.is_complex() else _silu_backward(g, x)


def _mish_vjp(xp: Namespace, g: torch.Tensor, x: torch.Tensor) -> Any:
    return declared_rule("mish", "x")(xp, g, x) if x.is_complex() else _mish_backward(g, x)


def _gelu_vjp(xp: Namespace, g: torch.Tensor, x: torch.Tensor, approximate: bool) -> Any:
    if x.is_complex():
        return declared_rule("gelu", "x")(xp, g, x, approximate)
    return _gelu_backward(g, x, approximate="tanh" if approximate else "none")


_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": lambda x: functional.softplus(x, threshold=_SOFTPLUS_LINEAR),
    "silu": functional.silu,
    "gelu": _gelu,
    "leaky_relu": lambda x, slope=0.01: functional.leaky_relu(x, slope),
    "elu": lambda x, alpha=1.0: functional.elu(x, alpha),
    "selu": torch.selu,
    "relu6": functional.relu6,
    "hard_sigmoid": functional.hardsigmoid,
    "log_sigmoid": functional.logsigmoid,
    "mish": functional.mish,
}

# elu, selu and hard_silu are missing, since PyTorch's rules lose NaN or infinities, and hard_sigmoid, whose backward
# kernel has 1 / 6 in single precision. The rules of the ops are exact.
_ACTIVATION_RULES: dict[str, Callable[..., Any]] = {
    # Not by threshold_backward, as in PyTorch: that lets the cotangent through where the input is NaN.
    "relu": lambda xp, g, out: _leaky_relu_backward(g, out, 0.0, False),
    "sigmoid": _sigmoid_vjp,
    "tanh": _tanh_vjp,
    "softplus": _softplus_vjp,
    "silu": _silu_vjp,
    "gelu": _gelu_vjp,
    "leaky_relu": lambda xp, g, x, slope: _leaky_relu_backward(g, x, slope, False),
    "relu6": lambda xp, g, x: _hardtanh_backward(g, x, 0, 6),
    "log_sigmoid": _log_sigmoid_vjp,
    "mish": _mish_vjp,
}


# -- softmax and losses


def _softmax(x: torch.Tensor, *, axis: int = -1) -> Any:
    if x.is_floating_point() and x.ndim:
        return torch.softmax(x, axis)
    if x.is_complex():
        return complex_kernel("softmax", x, axis=axis)
    return default_kernel("softmax", x, axis=axis)


def _log_softmax(x: torch.Tensor, *, axis: int = -1) -> Any:
    if x.is_floating_point() and x.ndim:
        return torch.log_softmax(x, axis)
    if x.is_complex():
        return complex_kernel("log_softmax", x, axis=axis)
    return default_kernel("log_softmax", x, axis=axis)


def _logsumexp(x: torch.Tensor, *, axis: Axis = None, keepdims: bool = False) -> Any:
    if x.is_complex():
        return complex_kernel("logsumexp", x, axis=axis, keepdims=keepdims)
    if not x.is_floating_point() or not x.ndim or axis == ():
        return default_kernel("logsumexp", x, axis=axis, keepdims=keepdims)
    return torch.logsumexp(x, tuple(range(x.ndim)) if axis is None else axis, keepdims)


def _softmax_vjp(xp: Namespace, g: torch.Tensor, out: torch.Tensor, axis: int) -> Any:
    if out.is_complex():
        return declared_rule("softmax", "x")(xp, g, out, axis)
    return torch._softmax_backward_data(g, out, axis, out.dtype)


def _log_softmax_vjp(xp: Namespace, g: torch.Tensor, out: torch.Tensor, axis: int) -> Any:
    if out.is_complex():
        return declared_rule("log_softmax", "x")(xp, g, out, axis)
    return torch._log_softmax_backward_data(g, out, axis, out.dtype)


def _logsumexp_vjp(
    xp: Namespace, g: torch.Tensor, x: torch.Tensor, out: torch.Tensor, axis: Axis, keepdims: bool
) -> Any:
    if not keepdims:
        axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        shape = list(x.shape)
        for a in axes:
            shape[a] = 1
        g, out = g.reshape(shape), out.reshape(shape)
    # Where everything is -inf, so is out, and x - out would be NaN.
    return torch.sub(x, out.masked_fill(out == -torch.inf, 0)).exp_().mul_(g)


_NO_IGNORED_LABEL = -(1 << 62)  # PyTorch's ignore_index, a label without a loss: one that nobody has


def _cross_entropy_with_residuals(
    logits: torch.Tensor, labels: torch.Tensor, *, axis: int = -1
) -> tuple[Any, tuple[Any, ...]]:
    check_labels(logits, labels, axis, not (labels.is_floating_point() or labels.is_complex() or _is_bool(labels)))
    if logits.is_complex():
        return complex_kernel("cross_entropy", logits, labels, axis=axis), ()
    if not logits.is_floating_point() or is_divided(logits):  # PyTorch's gather and scatter of DTensors may be wrong
        return default_kernel("cross_entropy", logits, labels, axis=axis), ()
    log_probabilities = torch.log_softmax(logits, axis)
    n = logits.shape[axis]
    is_small = log_probabilities.numel() <= CROSS_ENTROPY_KEEP_MAX_ELEMENTS
    if is_small and log_probabilities.ndim == 2 and axis in (-1, 1) and labels.dtype is torch.int64:
        try:
            out, weight = _nll_loss(log_probabilities, labels, None, 0, _NO_IGNORED_LABEL)
        except IndexError as error:
            raise label_error(labels.min(), labels.max(), n) from error
        return out, (log_probabilities, weight)
    try:
        # On CUDA a label that is out of bounds is an assertion on the device; asking here would wait for it.
        out = log_probabilities.gather(axis, labels.long().unsqueeze(axis)).squeeze(axis).neg_()
    except RuntimeError as error:
        if labels.device.type != "cpu" or not labels.numel():
            raise
        raise label_error(labels.min(), labels.max(), n) from error
    if is_small:
        return out, (log_probabilities,)
    # Large: keep two numbers per example. log_softmax is the logits minus one number, which the rule finds from the
    # greatest logit and its log-probability; the logits themselves are kept anyway, for a sweep that is recorded.
    return out, (logits.amax(axis, True), log_probabilities.amax(axis, True))


def _is_bool(x: torch.Tensor) -> bool:
    return bool(x.dtype is torch.bool)


def _minus_one_hot(d: torch.Tensor, g: torch.Tensor, labels: torch.Tensor, axis: int) -> Any:
    """`(d - one_hot(labels)) * g`, in the memory of `d`."""
    g = g.unsqueeze(axis)
    return d.mul_(g).scatter_add_(axis, labels.long().unsqueeze(axis), -g)


def _cross_entropy_rule(
    xp: Namespace, g: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, residuals: Residuals, axis: int
) -> Any:
    if not residuals:
        return xp.cross_entropy_vjp(g, logits, labels, axis=axis)
    if len(residuals) == 2 and residuals[1].ndim == 0:
        d = _nll_loss_backward(g, residuals[0], labels, None, 0, _NO_IGNORED_LABEL, residuals[1])
        return torch._log_softmax_backward_data(d, residuals[0], 1, logits.dtype)
    weights = residuals[0].exp() if len(residuals) == 1 else torch.sub(logits, residuals[0]).add_(residuals[1]).exp_()
    return _minus_one_hot(weights, g, labels, axis)


def _cross_entropy_vjp(cotangent: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, *, axis: int = -1) -> Any:
    if not (logits.is_floating_point() and cotangent.dtype == logits.dtype) or is_divided(logits):
        of_any = complex_kernel if logits.is_complex() or cotangent.is_complex() else default_kernel
        return of_any("cross_entropy_vjp", cotangent, logits, labels, axis=axis)
    return _minus_one_hot(torch.softmax(logits, axis), cotangent, labels, axis)


def _one_hot(labels: torch.Tensor, num_classes: int, *, dtype: torch.dtype | None = None, axis: int = -1) -> Any:
    # Tape's default float dtype, not PyTorch's.
    if dtype is None:
        dtype = getattr(torch, get_default_dtype().name)
    classes = torch.arange(num_classes, device=labels.device)
    axis = normal_axis(axis, labels.ndim + 1, "a result")
    if not labels.is_floating_point():
        labels = labels.to(torch.int64)  # PyTorch compares most unsigned dtypes with none but themselves
    return (labels.unsqueeze(axis) == classes.reshape(-1, *(1,) * (labels.ndim - axis))).to(dtype)


# -- masks


def _drop(x: torch.Tensor, keep: torch.Tensor, *, rate: float) -> Any:
    if not (x.is_floating_point() and _is_bool(keep)):
        return default_kernel("drop", x, keep, rate=rate)
    # Not a product with the mask: dropped elements are 0, even if they are infinite or NaN.
    return torch.where(keep, x, 0).mul_(0.0 if rate == 1 else 1 / (1 - rate))


KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _floating(name, function) for name, function in _ACTIVATIONS.items()},
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "cross_entropy": lambda logits, labels, *, axis=-1: _cross_entropy_with_residuals(logits, labels, axis=axis)[0],
    "cross_entropy_with_residuals": _cross_entropy_with_residuals,
    "cross_entropy_vjp": _cross_entropy_vjp,
    "one_hot": _one_hot,
    "drop": _drop,
    **convolution.KERNELS,
    **pooling.KERNELS,
    **normalization.KERNELS,
    **attention.KERNELS,
}

RULES: dict[str, dict[str, Any]] = {
    **{name: {"x": fused(rule)} for name, rule in _ACTIVATION_RULES.items()},
    "softmax": {"x": fused(_softmax_vjp)},
    "log_softmax": {"x": fused(_log_softmax_vjp)},
    "logsumexp": {"x": fused(_logsumexp_vjp)},
    "cross_entropy": {"logits": fused(_cross_entropy_rule)},
    **convolution.RULES,
    **pooling.RULES,
    **normalization.RULES,
    **attention.RULES,
}
