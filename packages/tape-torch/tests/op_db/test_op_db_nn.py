"""Ops of neural networks against PyTorch, on its own samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
import torch
from tape_core.extend import registry


def skip_if(condition: Any) -> None:
    """Skip a sample that Tape's op cannot express."""
    if condition:
        pytest.skip("not expressible")


def reduced(loss: Any, reduction: str) -> Any:
    return {"none": lambda: loss, "mean": lambda: tc.mean(loss), "sum": lambda: tc.sum(loss)}[reduction]()


def cross_entropy(logits: Any, labels: Any, reduction: str = "mean", **kwargs: Any) -> Any:
    skip_if(kwargs or "integer" not in labels.dtype.kind or (reduction == "mean" and not labels.size))
    skip_if(labels.size and int(tc.min(labels)) < 0)
    return reduced(tc.cross_entropy(logits, labels, axis=min(1, logits.ndim - 1)), reduction)


def conv(transposed: bool) -> Callable[..., Any]:
    def adapter(x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, *rest: Any, **kwargs: Any) -> Any:
        names = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
        kwargs |= dict(zip(names, rest, strict=False)) | {"stride": stride, "padding": padding}
        skip_if(x.ndim != w.ndim)
        skip_if(kwargs["padding"] == "same" and any((n - 1) * d % 2 for n, d in _dilated(w, kwargs)))
        skip_if(_too_much(kwargs.get("output_padding", 0), kwargs["stride"]))
        function = tc.conv_transpose if transposed else tc.conv
        out = function(x, w, layout="channels_first", **kwargs)
        return out if b is None else out + tc.reshape(b, (-1,) + (1,) * (x.ndim - 2))

    return adapter


def _too_much(padding: Any, stride: Any) -> bool:
    pairs = [[v] * 3 if isinstance(v, int) else v for v in (padding, stride)]
    return any(p >= s for p, s in zip(*pairs, strict=False))


def _dilated(w: Any, kwargs: dict[str, Any]) -> Any:
    lengths, dilation = w.shape[2:], kwargs.get("dilation", 1)
    return zip(lengths, dilation if isinstance(dilation, tuple | list) else [dilation] * len(lengths), strict=False)


def pool(function: Callable[..., Any], dimensions: int) -> Callable[..., Any]:
    def adapter(x: Any, *args: Any, **kwargs: Any) -> Any:
        names = ["kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"]
        if function is tc.avg_pool:
            names = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"]
        given = dict(zip(names, args, strict=False)) | kwargs
        window, stride = given.pop("kernel_size"), given.pop("stride", None) or None
        options: dict[str, Any] = {}
        if function is tc.avg_pool:
            options["count_include_pad"] = given.pop("count_include_pad", True)
        padding = given.pop("padding", 0)
        skip_if(given.pop("ceil_mode", False) or given.pop("return_indices", False) or given.pop("dilation", 1) != 1)
        skip_if(given.pop("divisor_override", None) is not None or given or x.ndim != dimensions + 2)
        single = [
            tuple(v) * (dimensions if len(v) == 1 else 1) if isinstance(v, tuple | list) else v
            for v in (window, stride, padding)
        ]
        return function(x, single[0], stride=single[1], padding=single[2], layout="channels_first", **options)

    return adapter


def pad(mode: str) -> Callable[..., Any]:
    def adapter(x: Any, widths: Any, *rest: Any, **kwargs: Any) -> Any:
        value = kwargs.get("value", rest[-1] if rest and not isinstance(rest[-1], str) else None)
        skip_if(any(w < 0 for w in widths))
        pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + list(zip(widths[-2::-2], widths[::-2], strict=True))
        return tc.pad(x, tuple(pairs), mode, **({"constant_values": value or 0} if mode == "constant" else {}))

    return adapter


def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    skip_if(not x.ndim or not size)
    return tc.sliding_windows(x, size, axis=dimension, stride=step)


def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    skip_if(0 in x.shape)
    return tc.layer_norm(x, weight, bias, axis=tuple(range(-len(shape), 0)), epsilon=eps)


def native_layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    axis = tuple(range(x.ndim - len(shape), x.ndim))
    out, mean, variance = registry["normalize"].function(x, weight, bias, axis=axis, epsilon=eps)
    kept = x.shape[: x.ndim - len(shape)] + (1,) * len(shape)
    return out, tc.reshape(mean, kept), tc.reshape(1 / tc.sqrt(variance + eps), kept)


def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    epsilon = torch.finfo(torch.float64).eps if eps is None else eps
    return tc.rms_norm(x, weight, axis=tuple(range(-len(shape), 0)), epsilon=epsilon)


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return tc.group_norm(x, weight, bias, groups=groups, epsilon=eps, layout="channels_first")


def batch_norm(
    x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, training: Any = False, **kwargs: Any
) -> Any:
    skip_if(x.ndim < 2)
    known = (None, None) if training else (mean, variance)
    epsilon = kwargs.get("eps", 1e-5)
    return tc.batch_norm(x, weight, bias, *known, epsilon=epsilon, layout="channels_first").output


def instance_norm(
    x: Any, mean: Any = None, variance: Any = None, weight: Any = None, bias: Any = None, **k: Any
) -> Any:
    skip_if(k.get("use_input_stats") is False)
    return tc.instance_norm(x, weight, bias, epsilon=k.get("eps", 1e-5), layout="channels_first")


def attention(q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, **kwargs: Any) -> Any:
    skip_if(dropout_p or kwargs.pop("enable_gqa", False))
    return tc.scaled_dot_product_attention(q, k, v, attn_mask, **kwargs)


def over_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a softmax, which PyTorch computes in another dtype if asked to."""

    def adapter(x: Any, dim: int, dtype: Any = None, **_: Any) -> Any:
        skip_if(0 in x.shape)
        # Both libraries warn of an imaginary part that is dropped.
        skip_if(dtype is not None and not dtype.is_complex and x.dtype == tc.complex128)
        x = x if dtype is None else tc.astype(x, str(dtype).removeprefix("torch."))
        return function(x, axis=dim) if x.ndim else function(x[None], axis=0)[0]

    return adapter


def one_hot(labels: Any, num_classes: int = -1) -> Any:
    skip_if(num_classes == -1 and not labels.size)
    return tc.one_hot(labels, int(tc.max(labels)) + 1 if num_classes == -1 else num_classes, dtype="int64")


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return tc.where(x * beta > threshold, x, tc.softplus(x * beta) / beta)


REAL: dict[str, Any] = {"dtypes": (torch.float64,)}


def drop(x: Any, mask: Any, scale: float) -> Any:
    skip_if(scale < 1)
    return registry["drop"].function(x, mask, rate=1 - 1 / scale)


def table(call: Any) -> dict[str, dict[str, Any]]:
    """Return, for each function of Tape, its counterparts in PyTorch's table and the calls that adapt it to them."""
    f = "nn.functional."
    return {
        "relu": {f + "relu": call(tc.relu)},
        "sigmoid": {"sigmoid": (call(tc.sigmoid), REAL)},
        "softplus": {f + "softplus": softplus},
        "silu": {f + "silu": call(tc.silu)},
        "gelu": {f + "gelu": lambda x, approximate="none": tc.gelu(x, approximate=approximate == "tanh")},
        "softmax": {"softmax": over_axis(tc.softmax), "softmax/with_dtype": over_axis(tc.softmax)},
        "log_softmax": {"log_softmax": over_axis(tc.log_softmax), "log_softmax/with_dtype": over_axis(tc.log_softmax)},
        "logsumexp": {"logsumexp": (call(tc.logsumexp), REAL)},
        "cross_entropy": {f + "cross_entropy": cross_entropy},
        "one_hot": {f + "one_hot": one_hot},
        "leaky_relu": {f + "leaky_relu": call(tc.leaky_relu, "x slope")},
        "elu": {f + "elu": call(tc.elu)},
        "selu": {f + "selu": call(tc.selu)},
        "relu6": {f + "relu6": call(tc.relu6)},
        # PyTorch multiplies by 1/6 in single precision.
        "hard_sigmoid": {f + "hardsigmoid": (call(tc.hard_sigmoid), {"tolerance": 1e-7})},
        "hard_silu": {f + "hardswish": call(tc.hard_silu)},
        "log_sigmoid": {f + "logsigmoid": call(tc.log_sigmoid)},
        "mish": {f + "mish": call(tc.mish)},
        "glu": {f + "glu": call(tc.glu)},
        "attend": {f + "scaled_dot_product_attention": attention},
        "scaled_dot_product_attention": {f + "scaled_dot_product_attention": attention},
        "conv": {f + f"conv{n}d": conv(False) for n in (1, 2, 3)},
        "conv_transpose": {f + f"conv_transpose{n}d": conv(True) for n in (1, 2, 3)},
        "drop": {"native_dropout_backward": drop},
        "normalize": {"native_layer_norm": native_layer_norm},
        "layer_norm": {f + "layer_norm": layer_norm},
        "rms_norm": {f + "rms_norm": (rms_norm, REAL)},
        "group_norm": {f + "group_norm": group_norm},
        "batch_norm": {f + "batch_norm": batch_norm},
        "instance_norm": {f + "instance_norm": instance_norm},
        "pad": {
            f + "pad/constant": pad("constant"),
            f + "pad/reflect": pad("reflect"),
            f + "pad/replicate": pad("edge"),
            f + "pad/circular": pad("wrap"),
            "constant_pad_nd": pad("constant"),
        },
        "max_pool": {f + f"max_pool{n}d": pool(tc.max_pool, n) for n in (1, 2, 3)},
        "avg_pool": {f + f"avg_pool{n}d": pool(tc.avg_pool, n) for n in (1, 2, 3)},
        "sliding_windows": {"unfold": unfold},
    }


WITHOUT = {
    "cross_entropy_vjp": "a part of the rules of cross_entropy",
    "conv_weight_vjp": "a part of the rules of conv",
    "max_pool_vjp": "a part of the rules of max_pool",
    "max_pool_jvp": "a part of the rules of max_pool",
    "add_windows": "fold, which is not in PyTorch's table",
    "dropout": "random",
}


@pytest.mark.usefixtures("_on_torch")
def test_agrees_with_pytorch(reference: Any, theirs: str, adapter: Any, options: dict[str, Any]) -> None:
    assert reference.compare(theirs, adapter, **options), "no sample was compared"


def test_all_of_ours_are_compared_or_have_no_counterpart(functions: set[str]) -> None:
    assert not functions - set(table(lambda *args, **kwargs: None)) - set(WITHOUT), "say what they are in PyTorch"
    assert not set(WITHOUT) - functions, "there are no such ops"
