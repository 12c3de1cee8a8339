"""Sums of exponentials for XLA, by calls that their derivatives share.

The derivative of `logsumexp(x)` is `exp(x - logsumexp(x))`, and that of `log_softmax(x)` has `exp(log_softmax(x))`.
Exponentials are dear, and these are those of the sum times a number for each row, so XLA is told so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from tape_compile.extend import Argument, Instruction, Program, Ref, Rewriter, Rules, Spec

from tape_jax.xla.transfer import jax_dtype

RULES = Rules()


class _Sum(NamedTuple):
    """A sum of exponentials.

    Attributes:
        of: the number of the array. each: its exponentials, divided by that of `top`. top: the greatest of each row.
        total: the sum of `each`.
    """

    of: int
    each: Ref
    top: Ref
    total: Ref


class Exponentials(Rewriter):
    """A rewriter that knows of which sums of exponentials values are.

    Attributes:
        logsumexps, log_softmaxes: by the number of a result its sum.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.logsumexps: dict[int, _Sum] = {}
        self.log_softmaxes: dict[int, _Sum] = {}

    def op(self, name: str, *args: Argument, shape: tuple[int, ...], like: Spec, **kwargs: Argument) -> Ref:
        """Emit a call of an op of the array library, whose result has this shape."""
        assert self.backend is not None
        return self.call(name, getattr(self.backend.xp, name), *args, spec=like._replace(shape=shape), **kwargs)

    def sum_of(self, x: Ref, axes: tuple[int, ...], *, finite: bool) -> _Sum:
        """Emit the exponentials of an array, and their sum over axes, which stay with length 1.

        With `finite` they are divided by that of a finite number also where the greatest is infinite: infinity less
        itself is NaN.
        """
        spec = self.spec(x)
        row = tuple([1 if k in axes else n for k, n in enumerate(spec.shape)])
        top = self.op("max", x, axis=axes, keepdims=True, shape=row, like=spec)
        if finite:
            finfo: Any = jnp.finfo  # which has no types
            largest = float(finfo(jax_dtype(spec.kind, spec.dtype)).max)
            top = self.op("clip", top, -largest, largest, shape=row, like=spec)
        each = self.op("exp", self.op("subtract", x, top, shape=spec.shape, like=spec), shape=spec.shape, like=spec)
        return _Sum(x.id, each, top, self.op("sum", each, axis=axes, keepdims=True, shape=row, like=spec))

    def made(self, x: Argument, *names: str) -> Instruction | None:
        """Return the call that gives a value, if it has one of these names."""
        found = self.makers.get(x.id) if type(x) is Ref else None
        return found if found is not None and found.name in names else None


def _axes(r: Exponentials, x: Argument, axis: Any) -> tuple[int, ...] | None:
    """Return the axes of a reduction, counted from the front; None where it is not one of real numbers by XLA alone."""
    if type(x) is not Ref or r.backend is None:
        return None
    spec = r.spec(x)
    if spec.dtype is None or "float" not in spec.dtype_name or not spec.shape or spec.size <= 0:
        return None
    given = range(len(spec.shape)) if axis is None else axis if type(axis) in (tuple, list) else (axis,)
    return tuple(sorted([k % len(spec.shape) for k in given]))


@RULES.rewrite("logsumexp")
def logsumexp(r: Exponentials, x: Argument, *, axis: Any = None, keepdims: bool = False) -> bool:
    axes = _axes(r, x, axis)
    if not axes or type(x) is not Ref:
        return False
    found, spec, out = r.sum_of(x, axes, finite=True), r.spec(x), r.instruction.out
    row = r.spec(found.total).shape
    logarithm = r.op("log", found.total, shape=row, like=spec)
    r.logsumexps[out] = found
    xp: Any = r.backend and r.backend.xp
    if keepdims:
        return r.become("add", xp.add, logarithm, found.top)
    return r.become("reshape", xp.reshape, r.op("add", logarithm, found.top, shape=row, like=spec), r.out.shape)


@RULES.rewrite("log_softmax")
def log_softmax(r: Exponentials, x: Argument, *, axis: int = -1) -> bool:
    axes = _axes(r, x, axis)
    if not axes or type(x) is not Ref:
        return False
    found, spec = r.sum_of(x, axes, finite=False), r.spec(x)
    shifted = r.op("subtract", x, found.top, shape=spec.shape, like=spec)
    logarithm = r.op("log", found.total, shape=r.spec(found.total).shape, like=spec)
    r.log_softmaxes[r.instruction.out] = found
    xp: Any = r.backend and r.backend.xp
    return r.become("subtract", xp.subtract, shifted, logarithm)


@RULES.rewrite("exp")
def exponentials_again(r: Exponentials, x: Argument) -> bool:
    if type(x) is not Ref or r.backend is None:
        return False
    softmax = r.log_softmaxes.get(x.id)
    if softmax is not None:
        spec = r.spec(softmax.total)
        share = r.op("divide", 1.0, softmax.total, shape=spec.shape, like=spec)
        return r.become("multiply", r.backend.xp.multiply, softmax.each, share)
    difference = r.made(x, "subtract")
    if difference is None or len(difference.args) != 2 or type(difference.args[1]) is not Ref:
        return False
    of, less = difference.args
    found = _logsumexp_of(r, less)
    if found is None or type(of) is not Ref or of.id != found.of:
        return False
    spec = r.spec(found.top)
    if spec.size == r.spec(less).size == 1:
        less = r.op("reshape", less, spec.shape, shape=spec.shape, like=spec)
    elif spec.shape != r.spec(less).shape:
        return False
    share = r.op("exp", r.op("subtract", found.top, less, shape=spec.shape, like=spec), shape=spec.shape, like=spec)
    return r.become("multiply", r.backend.xp.multiply, found.each, share)


def _logsumexp_of(r: Exponentials, x: Argument) -> _Sum | None:
    """Return the sum of which a value is the logarithm, in another shape perhaps, and with 0 in place of -inf."""
    while (view := r.made(x, "reshape", "expand_dims")) is not None and type(x) is Ref and x.id not in r.logsumexps:
        x = view.args[0]
    chosen = r.made(x, "where")
    if chosen is not None and type(chosen.args[1]) in (int, float) and chosen.args[1] == 0:
        x = chosen.args[2]
    return r.logsumexps.get(x.id) if type(x) is Ref else None
