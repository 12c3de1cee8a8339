"""Simplifications of a program for XLA, to which each call is code to compile, and arrays have no memory layout.

Functions keep triangles of triangles, by masks that each made for itself, and sweeps look for NaN where a mask may have
hidden it. So equal constants become one, masks that hide nothing go, and calls whose results nobody uses go as well:
inside XLA's code no values are checked, so that they do nothing. All calls stay those of the array library: Python may
run the program, too.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from hashlib import blake2b
from typing import Any

import numpy as np
from tape_compile.extend import Argument, Program, Ref, Rules, Spec, passes
from tape_core.typing import Raw

from tape_jax.thresholds import COMPARED_MAX_BYTES
from tape_jax.xla import exponentials
from tape_jax.xla.lowering import function_by_name, on_host
from tape_jax.xla.transfer import into, is_of_jax

RULES = Rules(exponentials.RULES)


def simplified(program: Program) -> Program:
    """Return a program for XLA that computes the same by fewer calls."""
    found = Simplifier(_with_merged_constants(program)).run(RULES)
    return without_unused(passes.PASSES["cse"].transform(found))


def _with_merged_constants(program: Program) -> Program:
    """Return the program with one constant in place of several with the same bits."""
    by_spec: dict[Spec, list[int]] = {}
    for k in program.constants:
        by_spec.setdefault(program.specs[k], []).append(k)
    replaced: dict[int, int] = {}
    for spec, numbers in by_spec.items():
        first: dict[Hashable, int] = {}
        for k in numbers if len(numbers) > 1 else ():
            value = host_value(program.constants[k], spec)
            if value is not None:
                known = first.setdefault(blake2b(np.ascontiguousarray(value).tobytes()).digest(), k)
                if known != k:
                    replaced[k] = known
    if not replaced:
        return program
    # A result that is a constant stays an array of its own.
    return program.replace([instruction.substitute(replaced) for instruction in program.instructions])


def host_value(value: Raw, spec: Spec) -> Any:
    """Return a constant as an array of NumPy; None where it is large, or nowhere that the host can read at once."""
    if spec.dtype is None or spec.size * getattr(value, "itemsize", 1) > COMPARED_MAX_BYTES:
        return None
    convert = into(spec)
    return on_host(value if convert is None else convert(value))


def without_unused(program: Program) -> Program:
    """Return the program without calls for XLA that no result depends on; calls that the host checks stay."""
    needed = set(program.outputs)
    kept = []
    for instruction in reversed(program.instructions):
        outputs = instruction.outputs
        fn: Any = instruction.fn
        if (
            instruction.effect
            or not needed.isdisjoint(outputs)
            or hasattr(fn, "parts")  # a branch or a loop, in which the host may check values
            or getattr(fn, "refuses", False)
            or any([program.specs[k].dtype is None for k in outputs])
            or function_by_name(instruction.name, fn) is None
        ):
            needed.update(instruction.inputs)
            kept.append(instruction)
    kept.reverse()
    return program if len(kept) == len(program.instructions) else program.replace(kept)


class Simplifier(exponentials.Exponentials):
    """A rewriter that knows the values of masks that are constants."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._masks: dict[int, Any] = {}

    def mask(self, x: Argument) -> Any:
        """Return the truth values of a constant; None for anything else."""
        if type(x) is not Ref or x.id not in self.constants or self.spec(x).dtype_name != "bool":
            return None
        if x.id not in self._masks:
            self._masks[x.id] = host_value(self.constants[x.id], self.spec(x))
        return self._masks[x.id]

    def is_false(self, x: Argument) -> bool:
        """Return whether a condition is surely False everywhere."""
        mask = self.mask(x)
        if mask is not None:
            return not mask.any()
        both = self.maker(x, "logical_and", "bitwise_and")
        return both is not None and any([self.is_false(part) for part in both.args])

    def replace_by(self, x: Argument) -> bool:
        """Let a value stand for the call's result, if it is the same kind of array; whether it is."""
        if type(x) is not Ref or not is_alike(self.spec(x), self.out):
            return False
        self._replaced[self.instruction.out] = x.id
        return True


def is_alike(a: Spec, b: Spec) -> bool:
    """Return whether arrays have one shape, dtype and class; what stands for JAX's arrays in a trace is of theirs."""
    return a.shape == b.shape and a.dtype == b.dtype and (a.kind is b.kind or (is_of_jax(a) and is_of_jax(b)))


@RULES.rewrite("where")
def chosen_by_constant(r: Simplifier, condition: Argument, yes: Argument, no: Argument) -> bool:
    if r.is_false(condition):
        return r.replace_by(no)
    mask = r.mask(condition)
    if mask is None:
        return False
    return (mask.all() and r.replace_by(yes)) or _masked_twice(r, condition, mask, yes, no)


def _masked_twice(r: Simplifier, condition: Argument, mask: Any, yes: Argument, no: Argument) -> bool:
    """Simplify zeros where there may be zeros already: a triangle of a triangle."""
    inner = r.maker(yes, "where")
    if inner is None or type(no) is not int or type(inner.args[2]) is not int or inner.args[2] != no:
        return False
    known = r.mask(inner.args[0])
    if known is None or known.shape != mask.shape:
        return False
    if not (known & ~mask).any():
        return r.replace_by(yes)
    of = inner.args[1]
    if (mask & ~known).any() or type(of) is not Ref or not is_alike(r.spec(of), r.out):
        return False
    return r.become("where", r.instruction.fn, condition, of, no)


# Tangents of differences are sums with a product by -1, of which XLA would not see that they are the same differences.
@RULES.rewrite("multiply", of_constant=True)
def times_minus_one(r: Simplifier, x: Argument, y: Argument) -> bool:
    if type(x) is not Ref:
        x, y = y, x
    return _is_minus_one(y) and _is_number_like(r, x) and r.become("negative", operator.neg, x)


@RULES.rewrite("add")
def plus_negative(r: Simplifier, x: Argument, y: Argument) -> bool:
    for one, other in ((x, y), (y, x)):
        made = r.maker(other, "negative")
        if made is not None and _is_alike_dtype(r, one):
            return r.become("subtract", operator.sub, one, made.args[0])
    return False


def _is_minus_one(x: Argument) -> bool:
    return type(x) in (int, float) and x == -1


def _is_number_like(r: Simplifier, x: Argument) -> bool:
    """Return whether a value is real, of the dtype and shape of the result: a product by -1 is then its negative."""
    return type(x) is Ref and r.spec(x).dtype_name.startswith(("float", "int")) and is_alike(r.spec(x), r.out)


def _is_alike_dtype(r: Simplifier, x: Argument) -> bool:
    """Return whether a value is real and of the dtype of the result."""
    return type(x) is Ref and r.spec(x).dtype == r.out.dtype and r.out.dtype_name.startswith(("float", "int"))


# Derivatives of products whose first factor is transposed are such. XLA would exchange the factors, one of which it may
# have been told to have in memory: see `products.py`.
@RULES.rewrite("mT", "matrix_transpose", "T")
def transposed_product(r: Simplifier, x: Argument) -> bool:
    product = r.maker(x, "matmul")
    if product is None or type(x) is not Ref or r.uses.get(x.id) != 1 or len(product.args) != 2:
        return False
    first, second = product.args
    inner = r.maker(first, "mT", "matrix_transpose", "T")
    if inner is None or type(first) is not Ref or type(second) is not Ref:
        return False
    ranks = {len(r.spec(one).shape) for one in (x, first, second)}
    if ranks != {2} and (min(ranks) < 2 or "T" in (inner.name, r.instruction.name)):
        return False
    spec = r.spec(second)
    turned = r.call(inner.name, inner.fn, second, spec=spec._replace(shape=(*spec.shape[:-2], *spec.shape[:-3:-1])))
    return r.become("matmul", product.fn, turned, inner.args[0])
