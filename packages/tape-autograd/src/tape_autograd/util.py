"""Small helpers that autograd's users import: `subvals`, `subval`, `quick_grad_check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tape_core.support import warn_user

from tape_autograd.substitution import subval, subvals
from tape_autograd.test_util import check_grads

__all__ = ["quick_grad_check", "subval", "subvals"]


def quick_grad_check(
    fun: Callable[..., Any],
    arg0: object,
    extra_args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool = True,
    eps: float = 1e-4,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    rs: object = None,
) -> None:
    """Check a gradient; deprecated as in autograd: use `tape_autograd.test_util.check_grads`."""
    warn_user("quick_grad_check is deprecated; use tape_autograd.test_util.check_grads", DeprecationWarning)
    check_grads(lambda x: fun(x, *extra_args, **(kwargs or {})), modes=["rev"], order=1)(arg0)
