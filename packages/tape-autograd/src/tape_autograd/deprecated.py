"""`primitive` with autograd 1.1's ways of giving rules, which autograd still has and warns of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tape_core.support import warn_user
from tape_core.typing import PyTree

from tape_autograd import primitives
from tape_autograd.primitives import defvjp
from tape_autograd.vspaces import vspace
from tape_autograd.wrap_util import wraps

Function = Callable[..., Any]


@wraps(primitives.primitive)
def primitive(f_raw: Function) -> Function:
    f_wrapped = primitives.primitive(f_raw)
    f_wrapped.defvjp = _deprecated_defvjp(f_wrapped)  # type: ignore[attr-defined]
    f_wrapped.defvjp_is_zero = _deprecated_defvjp_is_zero(f_wrapped)  # type: ignore[attr-defined]
    f_wrapped.defgrad = _deprecated_defgrad(f_wrapped)  # type: ignore[attr-defined]
    return f_wrapped


def _warn(name: str) -> None:
    warn_user(f"the method {name} of a primitive is deprecated; use tape_autograd.extend.defvjp", DeprecationWarning)


def _deprecated_defvjp(fun: Function) -> Function:
    rules: dict[int, Function] = {}

    def defvjp_unstaged(vjpmaker: Function, argnum: int = 0) -> None:
        _warn("defvjp")

        def staged(ans: PyTree, *args: Any, **kwargs: Any) -> Function:
            return lambda g: vjpmaker(g, ans, vspace(args[argnum]), vspace(g), *args, **kwargs)

        rules[argnum] = staged
        defvjp(fun, *rules.values(), argnums=list(rules))

    return defvjp_unstaged


def _deprecated_defvjp_is_zero(fun: Function) -> Function:
    zero: set[int] = set()

    def defvjp_is_zero(argnums: Iterable[int] = (0,)) -> None:
        _warn("defvjp_is_zero")
        zero.update(argnums)
        defvjp(fun, *[None] * len(zero), argnums=sorted(zero))

    return defvjp_is_zero


def _deprecated_defgrad(fun: Function) -> Function:
    rules: dict[int, Function] = {}

    def defgrad(gradfun: Function, argnum: int = 0) -> None:
        _warn("defgrad")
        rules[argnum] = gradfun
        defvjp(fun, *rules.values(), argnums=list(rules))

    return defgrad
