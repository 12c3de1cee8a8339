"""Convolution and its two gradients by XLA's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from tape_core.backends import Ints, Layout, Padding, Windows, check_conv, spatial_axes, transposed_windows, windows

from tape_jax import devices, manual


def _numbers(ndim: int, layout: Layout) -> jax.lax.ConvDimensionNumbers:
    """Return where examples, channels and the other axes are, in the input, the kernel and the output."""
    space = tuple(range(1, ndim - 1)) if layout == "channels_last" else tuple(range(2, ndim))
    if layout == "channels_last":
        whole, kernel = (0, ndim - 1, *space), (ndim - 1, ndim - 2, *range(ndim - 2))
    else:
        whole, kernel = tuple(range(ndim)), tuple(range(ndim))
    return jax.lax.ConvDimensionNumbers(whole, kernel, whole)


def _sizes(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    return tuple(shape[1:-1] if layout == "channels_last" else shape[2:])


def _kernel_sizes(w: jax.Array, layout: Layout) -> tuple[int, ...]:
    return tuple(w.shape[:-2] if layout == "channels_last" else w.shape[2:])


def _convolved(x: jax.Array, w: jax.Array, seen: Windows, groups: int, layout: Layout) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x,
        w,
        seen.stride,
        seen.pads,
        rhs_dilation=seen.dilation,
        dimension_numbers=_numbers(x.ndim, layout),
        feature_group_count=groups,
    )


def _as_one_dtype(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    dtype = jnp.promote_types(x.dtype, w.dtype)
    return x.astype(dtype), w.astype(dtype)


def conv(
    x: jax.Array,
    w: jax.Array,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Any:
    check_conv(x, w, groups, layout)
    seen = windows(_sizes(x.shape, layout), _kernel_sizes(w, layout), stride, padding, dilation, name="a kernel")
    x, w = _as_one_dtype(x, w)
    return _conv(x, w, seen=seen, groups=groups, layout=layout)


@partial(jax.jit, static_argnames=("seen", "groups", "layout"))
def _conv(x: jax.Array, w: jax.Array, seen: Windows, groups: int, layout: Layout) -> jax.Array:
    return _convolved(x, w, seen, groups, layout)


# The other two are derivatives of the convolution, which is linear in each argument: JAX transposes it to one call.


@partial(jax.jit, static_argnames=("seen", "groups", "layout", "shape"))
def _transposed_by_x(
    g: jax.Array, w: jax.Array, seen: Windows, groups: int, layout: Layout, shape: tuple[int, ...]
) -> Any:
    g, w = manual.alike(g, w)
    x = manual.template(shape, g)
    return jax.linear_transpose(lambda x: _convolved(x, w, seen, groups, layout), x)(g)[0]


@partial(jax.jit, static_argnames=("seen", "groups", "layout", "shape"))
def _transposed_by_w(
    g: jax.Array, x: jax.Array, seen: Windows, groups: int, layout: Layout, shape: tuple[int, ...]
) -> Any:
    g, x = manual.alike(g, x)
    w = manual.template(shape, g)
    return jax.linear_transpose(lambda w: _convolved(x, w, seen, groups, layout), w)(g)[0]


def conv_transpose(
    x: jax.Array,
    w: jax.Array,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Any:
    check_conv(x, w, groups, layout, transposed=True)
    counts, kernel = _sizes(x.shape, layout), _kernel_sizes(w, layout)
    seen = transposed_windows(counts, kernel, stride, padding, dilation, output_padding, name="a kernel")
    x, w = _as_one_dtype(x, w)
    if layout == "channels_last":
        shape = (x.shape[0], *seen.sizes, w.shape[-2] * groups)
    else:
        shape = (x.shape[0], w.shape[1] * groups, *seen.sizes)
    return _transposed_by_x(x, w, seen=seen, groups=groups, layout=layout, shape=shape)


def conv_weight_vjp(
    x: jax.Array,
    cotangent: jax.Array,
    size: tuple[int, ...],
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Any:
    spatial_axes(x, layout)
    seen = windows(_sizes(x.shape, layout), size, stride, padding, dilation, name="a kernel")
    x, cotangent = _as_one_dtype(x, cotangent)
    if layout == "channels_last":
        shape = (*seen.window, x.shape[-1] // groups, cotangent.shape[-1])
    else:
        shape = (cotangent.shape[1], x.shape[1] // groups, *seen.window)
    return _transposed_by_w(cotangent, x, seen=seen, groups=groups, layout=layout, shape=shape)


def _on_cpu(x: jax.Array) -> bool:
    place = devices.default() if isinstance(x, jax.core.Tracer) else next(iter(x.devices()))
    return bool(place.platform == "cpu")


def convolution_kernels(jitted: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the kernels by op name; `jitted` gives the default kernel under `jax.jit`.

    XLA on the CPU convolves groups of channels, as of depthwise convolutions, one by one: in 3 times the time of
    the default kernel, and transposed in 25 times.
    """

    def choosing(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(x: jax.Array, w: jax.Array, **parameters: Any) -> Any:
            grouped = parameters.get("groups", 1) != 1 and _on_cpu(x)
            return (jitted(name) if grouped else own)(x, w, **parameters)

        return kernel

    return {
        "conv": choosing("conv", conv),
        "conv_transpose": choosing("conv_transpose", conv_transpose),
        "conv_weight_vjp": conv_weight_vjp,
    }
