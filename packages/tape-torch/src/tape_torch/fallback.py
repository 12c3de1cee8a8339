"""PyTorch's raw operators, and the ops' default kernels and rules for the arguments that those do not take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from tape_core.backends import COMPLEX_KERNELS, DEFAULT_KERNELS
from tape_core.extend import vjp
from tape_core.typing import Namespace

# Empty until the backend is made: kernels are defined before the namespace of which they are a part.
_namespaces: list[Any] = []


def set_namespace(xp: Namespace) -> None:
    """Set the namespace, the backend's kernels, that default kernels compute with."""
    _namespaces[:] = [xp]


def default_kernel(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the default kernel of an op."""
    return DEFAULT_KERNELS[name](_namespaces[0], *args, **kwargs)


# `resolve` tells the linker of exported files what a call with these arguments stands for (see
# `tape_compile.export.linker`).
default_kernel.resolve = lambda name: partial(DEFAULT_KERNELS[name], _namespaces[0])  # type: ignore[attr-defined]


def complex_kernel(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the kernel of an op for complex arguments, which is the default one if it declares none."""
    return _complex(name)(_namespaces[0], *args, **kwargs)


def _complex(name: str) -> Callable[..., Any]:
    return COMPLEX_KERNELS.get(name) or DEFAULT_KERNELS[name]


complex_kernel.resolve = lambda name: partial(_complex(name), _namespaces[0])  # type: ignore[attr-defined]


def declared_rule(op: str, name: str) -> Callable[..., Any]:
    """Return the rule that an op declares for an input, called with `xp`, the cotangent and what the rule names."""
    from tape_core.extend import registry  # ops are there when a rule runs

    rule = registry[op].rules[name]
    if isinstance(rule, vjp):
        return rule.fn
    assert callable(rule)  # an elementwise op declares the partial derivative alone
    slope: Callable[..., Any] = rule
    return lambda xp, g, *args, **kwargs: g * slope(xp, *args, **kwargs)


declared_rule.resolve = lambda op, name: declared_rule(op, name)  # type: ignore[attr-defined]


def aten(name: str) -> Callable[..., Any]:
    """Return an ATen operator, such as a fused backward pass, without the Python layer in front of it."""
    # `_op` is the function in C++; the overload's __call__ in Python comes before it, and takes some 0.4 us.
    overload = getattr(torch.ops.aten, name).default
    function: Callable[..., Any] = getattr(overload, "_op", overload)
    return function
