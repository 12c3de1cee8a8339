"""Primitives: functions of plain arrays whose derivatives the user gives, by `defvjp` and `defjvp`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import count
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.support import pytree, record_as_one
from tape_core.typing import PyTree

from tape_autograd.boxes import Box, boxed, getval, holds_box
from tape_autograd.substitution import subval
from tape_autograd.tracing import like, make_vjp, zeros
from tape_autograd.wrap_util import get_name

Function = Callable[..., Any]

primitive_vjps: dict[Function, Function] = {}
"""For each primitive `rule(argnums, ans, args, kwargs)`, which returns the function of the cotangent."""
primitive_jvps: dict[Function, Function] = {}
"""For each primitive `rule(argnums, tangents, ans, args, kwargs)`, which returns the tangent."""


def primitive(f_raw: Function) -> Function:
    """Return a function that gets plain arrays, whatever is inside; its derivative is given by `defvjp` or `defjvp`.

    >>> import numpy
    >>> from tape_autograd import grad
    >>> from tape_autograd.extend import primitive, defvjp
    >>> @primitive
    ... def logsumexp(x):
    ...     largest = numpy.max(x)
    ...     return largest + numpy.log(numpy.sum(numpy.exp(x - largest)))
    >>> defvjp(logsumexp, lambda ans, x: lambda g: g * numpy.exp(x - ans))
    >>> print(grad(logsumexp)(numpy.array([0.0, 0.0])))
    [0.5 0.5]

    Arguments and results may be lists, tuples and dicts of arrays. One rule is enough for both modes; where there are
    both, reverse mode uses the one of `defvjp`, forward mode that of `defjvp`. For second derivatives a rule must
    compute with functions that can be differentiated, those of `tape_autograd.numpy`.

    Raises:
        NotImplementedError: in the call, if an argument is being differentiated and there is no rule.
        TypeError: in the call: a keyword argument is being differentiated, or a value that is no argument at all.
    """

    @wraps(f_raw)
    def f_wrapped(*args: Any, **kwargs: Any) -> Any:
        if not holds_box(args) and not holds_box(kwargs):
            return f_raw(*args, **kwargs)
        return call_with_rules(f_wrapped, f_raw, args, kwargs)

    f_wrapped.fun = f_raw  # type: ignore[attr-defined]
    return f_wrapped


def notrace_primitive(f_raw: Function) -> Function:
    """Return a function that gets plain arrays and gives a constant: no derivative flows through it."""

    @wraps(f_raw)
    def f_wrapped(*args: Any, **kwargs: Any) -> Any:
        return f_raw(*map(getval, args), **kwargs)

    return f_wrapped


def has_rules(function: Function) -> bool:
    """Return whether a rule was given for a function."""
    return function in primitive_vjps or function in primitive_jvps


class _Call:
    """One call of a primitive: its arguments and its result, and where the values are that have derivatives."""

    def __init__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.kwargs = function, kwargs
        self.flat = [pytree.flatten(arg) for arg in args]
        self.places = [
            (n, k) for n, (leaves, _) in enumerate(self.flat) for k, leaf in enumerate(leaves) if type(leaf) is Box
        ]
        self.inputs: list[tc.Tensor] = [self.flat[n][0][k]._tensor for n, k in self.places]

    def args(self) -> tuple[Any, ...]:
        """Return the arguments as a rule gets them: plain unless the rule itself is being differentiated."""
        return tuple(
            [
                pytree.unflatten(structure, [boxed(x._tensor) if type(x) is Box else x for x in leaves])
                for leaves, structure in self.flat
            ]
        )

    def argnums(self, wanted: Sequence[bool]) -> tuple[int, ...]:
        """Return the arguments that have one of the wanted inputs inside."""
        return tuple(sorted({n for (n, _), w in zip(self.places, wanted, strict=True) if w}))

    def tangent(self, n: int, found: Sequence[tc.Tensor | None]) -> Any:
        """Return the tangent of an argument: zeros for those of its values that have none."""
        leaves, structure = self.flat[n]
        parts = [np.zeros_like(x) if type(x) is not Box else None for x in leaves]
        for (m, k), t, x in zip(self.places, found, self.inputs, strict=True):
            if m == n:
                parts[k] = zeros(x) if t is None else boxed(t)
        return pytree.unflatten(structure, parts)


def call_with_rules(function: Function, raw: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function on plain values, and record the result with the rules that were given for it."""
    name = get_name(function)
    if holds_box(kwargs):
        raise TypeError(
            f"{name}: a keyword argument is being differentiated; a primitive has derivatives with respect to "
            f"positional arguments only"
        )
    call = _Call(function, args, kwargs)
    vjp_rule, jvp_rule = primitive_vjps.get(function), primitive_jvps.get(function)
    if vjp_rule is None and jvp_rule is None:
        raise NotImplementedError(
            f"VJP of {name} wrt argnums {call.argnums([True] * len(call.inputs))} not defined: give it one by "
            f"defvjp({name}, ...)"
        )
    result = raw(*_plain(args), **kwargs)
    leaves, structure = pytree.flatten(result)
    if holds_box(leaves):
        raise TypeError(
            f"{name} computes with a value that is being differentiated and is not among its arguments; make it one"
        )
    flowing = [k for k, leaf in enumerate(leaves) if _is_inexact(leaf)]
    if not flowing or not call.inputs:
        return result
    outs = [tc.asarray(np.asarray(leaves[k])) for k in flowing]

    def answer(values: Sequence[Any]) -> Any:
        parts = list(leaves)
        for k, value in zip(flowing, values, strict=True):
            parts[k] = value
        return pytree.unflatten(structure, parts)

    def tangents_of(ts: Sequence[tc.Tensor | None], known: Sequence[tc.Tensor]) -> list[Any]:
        assert jvp_rule is not None
        argnums = call.argnums([t is not None for t in ts])
        gs = [call.tangent(n, ts) for n in argnums]
        found = jvp_rule(argnums, gs, answer(list(map(boxed, known))), call.args(), kwargs)
        given, given_structure = pytree.flatten(found)
        if len(given) != len(leaves) or not pytree.same(given_structure, structure, len(given)):
            raise ValueError(f"the JVP of {name} must return a tangent of the structure of the result")
        return [given[k] for k in flowing]

    def push(ts: list[Any], known: list[tc.Tensor]) -> list[tc.Tensor]:
        found = tangents_of(ts, known)
        return [
            like(t, out, f"the tangent that the JVP of {name} returned") for t, out in zip(found, outs, strict=True)
        ]

    def pull(gs: list[Any], watched: list[bool], known: list[tc.Tensor]) -> list[Any]:
        cotangents = [zeros(out) if g is None else boxed(g) for g, out in zip(gs, outs, strict=True)]
        if vjp_rule is None:
            return _transposed(call, tangents_of, cotangents, watched, known)
        argnums = call.argnums(watched)
        rule = vjp_rule(argnums, answer(list(map(boxed, known))), call.args(), kwargs)
        whole = list(leaves)  # parts that have no derivative stay what they are
        for k, g in zip(flowing, cotangents, strict=True):
            whole[k] = g
        found = dict(zip(argnums, rule(pytree.unflatten(structure, whole)), strict=True))
        flat = {n: None if g is None else pytree.flatten(g)[0] for n, g in found.items()}
        answers: list[Any] = []
        for (n, k), w, x in zip(call.places, watched, call.inputs, strict=True):
            part = flat.get(n)
            answers.append(_checked(part[k], x, name, n) if w and part is not None else None)
        return answers

    return answer(list(map(boxed, record_as_one(call.inputs, outs, pull, push if jvp_rule else None, name))))


def _plain(args: PyTree) -> Any:
    leaves, structure = pytree.flatten(args)
    return pytree.unflatten(structure, [getval(leaf) for leaf in leaves])


def _is_inexact(leaf: object) -> bool:
    return isinstance(leaf, float | complex) or (isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "fc")


def _checked(g: Any, x: tc.Tensor, name: str, n: int) -> tc.Tensor | None:
    """Return what a rule gave for an input, in its shape and dtype."""
    if g is None:
        return None
    if x.dtype.kind != "complex floating" and np.iscomplexobj(getattr(g, "_tensor", g)):
        g = boxed(tc.real(g._tensor)) if type(g) is Box else np.real(g)
    return like(g, x, f"what the VJP of {name} returned for argument {n}")


def _transposed(
    call: _Call, tangents_of: Function, cotangents: list[Any], watched: Sequence[bool], known: list[tc.Tensor]
) -> list[Any]:
    """Return the cotangents by the transpose of the tangents' rule, which is linear."""
    wanted = [k for k, w in enumerate(watched) if w]

    def pushed(ts: list[Any]) -> list[Any]:
        given: list[Any] = [None] * len(call.inputs)
        for k, t in zip(wanted, ts, strict=True):
            given[k] = t._tensor if type(t) is Box else t
        found: list[Any] = tangents_of(given, known)
        return found

    pulled, _ = make_vjp(pushed, [zeros(call.inputs[k]) for k in wanted])
    answers: list[Any] = [None] * len(call.inputs)
    for k, g in zip(wanted, pulled(cotangents), strict=True):
        answers[k] = like(g, call.inputs[k], "the transposed tangent")
    return answers


# -- giving rules


def defvjp_argnums(fun: Function, vjpmaker: Function) -> None:
    """Give one rule for all arguments: `vjpmaker(argnums, ans, args, kwargs)` returns a function of `g`."""
    primitive_vjps[fun] = vjpmaker


def defvjp_argnum(fun: Function, vjpmaker: Function) -> None:
    """Give one rule for each argument: `vjpmaker(argnum, ans, args, kwargs)` returns a function of `g`."""

    def vjp_argnums(argnums: Sequence[int], *args: Any) -> Function:
        vjps = [vjpmaker(argnum, *args) for argnum in argnums]
        return lambda g: [vjp(g) for vjp in vjps]

    defvjp_argnums(fun, vjp_argnums)


def defvjp(fun: Function, *vjpmakers: Function | None, argnums: Iterable[int] | None = None) -> None:
    """Give the rules for the arguments in turn: each is `vjpmaker(ans, *args, **kwargs)`, which returns `vjp(g)`.

    Args:
        fun: a primitive, or a function of `tape_autograd.numpy`.
        vjpmakers: for None the derivative is zero.
        argnums: the arguments they are for, if not the first ones.
    """
    rules = dict(zip(count() if argnums is None else argnums, vjpmakers, strict=False))

    def vjp_argnums(wanted: Sequence[int], ans: PyTree, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
        missing = [n for n in wanted if n not in rules]
        if missing:
            raise NotImplementedError(f"VJP of {get_name(fun)} wrt argnum {missing[0]} not defined")
        makers = [rules[n] for n in wanted]
        vjps = [None if make is None else make(ans, *args, **kwargs) for make in makers]
        return lambda g: [None if vjp is None else vjp(g) for vjp in vjps]

    defvjp_argnums(fun, vjp_argnums)


def defjvp_argnums(fun: Function, jvpmaker: Function) -> None:
    """Give one rule for all arguments: `jvpmaker(argnums, gs, ans, args, kwargs)` returns the tangent."""
    primitive_jvps[fun] = jvpmaker


def defjvp_argnum(fun: Function, jvpmaker: Function) -> None:
    """Give one rule for each argument: `jvpmaker(argnum, g, ans, args, kwargs)` returns its part of the tangent."""

    def jvp_argnums(argnums: Sequence[int], gs: Sequence[Any], *args: Any) -> Any:
        return _sum([jvpmaker(argnum, g, *args) for argnum, g in zip(argnums, gs, strict=True)])

    defjvp_argnums(fun, jvp_argnums)


def defjvp(fun: Function, *jvpfuns: Function | str | None, argnums: Iterable[int] | None = None) -> None:
    """Give the rules for the arguments in turn: each is `jvpfun(g, ans, *args, **kwargs)`, and returns a tangent.

    Args:
        fun: a primitive, or a function of `tape_autograd.numpy`.
        jvpfuns: `"same"` for an argument in which the function is linear, None where the derivative is zero.
        argnums: the arguments they are for, if not the first ones.
    """
    rules = dict(zip(count() if argnums is None else argnums, jvpfuns, strict=False))

    def jvp_argnum(n: int, g: PyTree, ans: PyTree, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if n not in rules:
            raise NotImplementedError(f"JVP of {get_name(fun)} wrt argnum {n} not defined")
        rule = rules[n]
        if rule is None:
            return _zeros_like(ans)
        if isinstance(rule, str):
            if rule != "same":
                raise ValueError(f"defjvp: a rule is a function, None or 'same', got {rule!r}")
            return fun(*subval(args, n, g), **kwargs)
        return rule(g, ans, *args, **kwargs)

    defjvp_argnum(fun, jvp_argnum)


def def_linear(fun: Function) -> None:
    """Say that a function is linear in each of its arguments: that is its JVP."""
    defjvp_argnum(fun, lambda argnum, g, ans, args, kwargs: fun(*subval(args, argnum, g), **kwargs))


def _sum(parts: list[Any]) -> Any:
    total, structure = pytree.flatten(parts[0])
    for part in parts[1:]:
        total = [a + b for a, b in zip(total, pytree.flatten(part)[0], strict=True)]
    return pytree.unflatten(structure, total)


def _zeros_like(tree: PyTree) -> Any:
    leaves, structure = pytree.flatten(tree)
    return pytree.unflatten(structure, [np.zeros_like(getval(leaf)) for leaf in leaves])
