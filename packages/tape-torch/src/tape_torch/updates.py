"""Formulas of optimizers' updates of which PyTorch computes several operations in one pass; see `Backend.formulas`.

With `out=` a result is written there, which may be the memory of an argument, or of a view of it. A scale is a number,
or an array of one, where a compiler has made it such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch


def lerp(x: Any, y: Any, weight: float, *, out: torch.Tensor | None = None) -> Any:
    """Return `x + (y - x) * weight`."""
    return torch.lerp(x, y, weight, out=out)


def lerp_square(x: Any, y: Any, weight: float, *, out: torch.Tensor | None = None) -> Any:
    """Return `x + (y * y - x) * weight`."""
    square = torch.mul(y, y, out=None if _share(out, x) else out)
    return torch.lerp(x, square, weight, out=out)


def accumulate(x: Any, decay: float, y: Any, scale: Any, *, out: torch.Tensor | None = None) -> Any:
    """Return `x * decay + y * scale`."""
    decayed = torch.mul(x, decay, out=None if _share(out, y) else out)
    if type(scale) is not float and isinstance(scale, torch.Tensor):
        return torch.add(decayed, y * scale, out=out)
    return torch.add(decayed, y, alpha=scale, out=out)


def subtract_scaled(w: Any, x: Any, scale: Any, *, out: torch.Tensor | None = None) -> Any:
    """Return `w - x * scale`."""
    if type(scale) is not float and isinstance(scale, torch.Tensor):
        return torch.sub(w, x * scale, out=out)
    return torch.sub(w, x, alpha=scale, out=out)


def subtract_root_quotient(
    w: Any, a: Any, b: Any, epsilon: float, scale: Any, *, out: torch.Tensor | None = None
) -> Any:
    """Return `w - a / (sqrt(b) + epsilon) * scale`."""
    root = torch.sqrt(b, out=None if _share(out, w) or _share(out, a) else out).add_(epsilon)
    if type(scale) is not float and isinstance(scale, torch.Tensor):
        return torch.add(w, (a * -scale).div_(root), out=out)
    return torch.addcdiv(w, a, root, value=-scale, out=out)


def _share(out: torch.Tensor | None, x: torch.Tensor) -> bool:
    """Return whether a result is written into memory that an argument has, too; also of tensors without values."""
    return out is not None and out.untyped_storage()._cdata == x.untyped_storage()._cdata


FORMULAS: Final[dict[str, Callable[..., Any]]] = {
    formula.__name__: formula for formula in (lerp, lerp_square, accumulate, subtract_scaled, subtract_root_quotient)
}
"""By the names that `Backend.formulas` lists."""
