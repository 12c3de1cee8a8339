"""Rules that round differently: less work for results that are a few units in the last place apart."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import cached_property

from tape_compile import thresholds
from tape_compile.passes.cse import cse
from tape_compile.passes.registry import pass_
from tape_compile.program import Argument, Instruction, Program, Ref, Spec, is_literal_number
from tape_compile.rewrite import Rewriter, Rule, Rules

RULES = Rules()
rewrite = RULES.rewrite

Axis = int | tuple[int, ...] | None


# Before kernels are taken apart: its rules know `sum` and `logsumexp` as wholes.
@pass_(stage="rounding", after=["simplify_views"])
def reassociate(program: Program) -> Program:
    """Replace some calls on real floating-point arrays by cheaper ones.

    `eye * d @ w` and `w @ (eye * d)` scale rows and columns; `sum(x * y)` and `mean(x * y)` are dot products where
    that is not part of a run; numbers by which an array is multiplied and divided become one; `x / number` is a
    product; `x ** 3` and `x ** 4` are products; `g * y + g * y` doubles the smaller one; and `exp(x - logsumexp(x))`,
    the gradient, shares the exponentials of `logsumexp`.
    """
    return program if program.backend is None else _Rounding(cse(program)).run(RULES)


class _Rounding(Rewriter):
    """A rewriter for calls that give one real floating-point array.

    Attributes:
        exponentials: for a `logsumexp` its argument, the exponentials, and their sums with axes of length 1.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        assert program.backend is not None
        self.numpy = program.backend.numpy
        self.xp = program.backend.xp
        self.exponentials: dict[int, tuple[Ref, Ref, Ref]] = {}

    def select(self, instruction: Instruction, rules: Rules) -> Sequence[Rule]:
        candidates = rules.get(instruction.name, ())
        if candidates and type(instruction.out) is int:
            return candidates if self.specs[instruction.out].dtype_name in ("float32", "float64") else ()
        return ()

    @cached_property
    def shifted(self) -> set[Ref]:
        """The values `x` of an `exp(x - ...)`: of their `logsumexp` the exponentials may be shared."""
        calls = self.program.instructions
        differences = {i.out: i for i in calls if i.name == "subtract" and type(i.out) is int}
        arguments = [i.args[0] for i in calls if i.name == "exp"]
        return {differences[x.id].args[0] for x in arguments if type(x) is Ref and x.id in differences}

    def is_identity(self, x: Argument) -> bool:
        """Return whether an argument is a constant identity matrix."""
        constant = self.constants.get(x.id) if type(x) is Ref else None
        if type(x) is not Ref or constant is None or len(self.spec(x).shape) != 2 or len({*self.spec(x).shape}) != 1:
            return False
        rows = self.numpy(constant)
        return bool((rows.diagonal() == 1).all()) and int((rows != 0).sum()) == len(rows)

    def logsumexp(self, x: Ref) -> int | None:
        """Return the number of the `logsumexp` that a value is, also with other axes or another number for -inf."""
        k = x.id
        while k not in self.exponentials:
            call = self.makers.get(k)
            if call is None:
                return None
            inner: Argument = None
            if call.name == "where" and len(call.args) == 3:
                is_lowest, _, inner = call.args
                maker = self.maker(is_lowest, "equal")
                if maker is None or maker.args[1:] != (-math.inf,) or maker.args[0] != inner:
                    return None
            elif call.name == "reshape":
                inner = call.args[0]
            if type(inner) is not Ref:
                return None
            k = inner.id
        return k


def _diagonal(r: _Rounding, x: Argument) -> Ref | None:
    """Return the vector `d` for `eye * d`; None for another argument."""
    maker = r.maker(x, "multiply")
    if maker is None:
        return None
    for eye, d in (maker.args, maker.args[::-1]):
        if r.is_identity(eye) and type(d) is Ref and r.spec(d).shape == r.spec(eye).shape[:1]:
            return d
    return None


# The cotangents of a layer's Jacobian begin as `eye * slope`: scaling rows takes n ** 2 operations, the product n ** 3.
@rewrite("matmul")
def diagonal_product(r: _Rounding, a: Argument, b: Argument) -> bool:
    if type(a) is not Ref or type(b) is not Ref or len(r.spec(a).shape) != 2 or len(r.spec(b).shape) != 2:
        return False
    d = _diagonal(r, a)
    if d is not None:
        n, spec = r.spec(d).shape[0], r.spec(d)
        column = r.call("reshape", r.xp.reshape, d, (n, 1), spec=Spec(r.spec(a).kind, (n, 1), spec.dtype))
        return r.become("multiply", operator.mul, column, b)
    d = _diagonal(r, b)
    if d is not None:
        return r.become("multiply", operator.mul, a, d)
    return False


def _factors(r: _Rounding, x: Argument) -> tuple[Ref, Ref] | None:
    """Return the two arrays of one shape whose product a value is, if it is needed once and no fused block has it."""
    maker = r.maker(x, "multiply", "square", "pow")
    if type(x) is not Ref or maker is None or r.uses.get(x.id) != 1:
        return None
    if not r.spec(x).shape or not 0 < r.spec(x).size < thresholds.DOT_MAX_ELEMENTS:
        return None
    a, b = maker.args * (1 + (maker.name == "square"))
    if maker.name == "pow" and is_literal_number(b) and b == 2:
        b = a
    elif maker.name == "pow":
        return None
    if type(a) is not Ref or type(b) is not Ref or not r.spec(a) == r.spec(b) == r.spec(x):
        return None
    return a, b


def _dot(r: _Rounding, a: Ref, b: Ref) -> tuple[Ref, Ref]:
    """Return the arguments of a dot product of arrays, as vectors."""
    line = Spec(r.spec(a).kind, (r.spec(a).size,), r.spec(a).dtype)

    def flat(x: Ref) -> Ref:
        return x if r.spec(x).shape == line.shape else r.call("reshape", r.xp.reshape, x, line.shape, spec=line)

    first = flat(a)
    return first, first if a == b else flat(b)


# A dot product needs no array of the products, and BLAS computes it.
@rewrite("sum")
def sum_of_products(
    r: _Rounding, x: Argument, *, axis: Axis = None, dtype: object = None, keepdims: bool = False
) -> bool:
    found = None if axis is not None or dtype is not None or keepdims else _factors(r, x)
    if found is None:
        return False
    return r.become("matmul", operator.matmul, *_dot(r, *found))


@rewrite("mean")
def mean_of_products(r: _Rounding, x: Argument, *, axis: Axis = None, keepdims: bool = False) -> bool:
    found = None if axis is not None or keepdims else _factors(r, x)
    if type(x) is not Ref or found is None:
        return False
    total = r.call("matmul", operator.matmul, *_dot(r, *found), spec=r.out)
    return r.become("divide", operator.truediv, total, r.spec(x).size)


def _scale(r: _Rounding, x: Ref) -> tuple[Ref, float]:
    """Return the array and the number whose product a value is, through values that nothing else needs."""
    maker = r.maker(x, "multiply", "divide", "negative") if r.uses.get(x.id) == 1 else None
    if maker is None:
        return x, 1.0
    a, b = maker.args * (1 + (maker.name == "negative"))
    if maker.name == "multiply" and is_literal_number(a):
        a, b = b, a
    number = -1.0 if maker.name == "negative" else b if is_literal_number(b) else 0
    if type(a) is not Ref or not number or r.spec(a) != r.spec(x):
        return x, 1.0
    inner, factor = _scale(r, a)
    return inner, factor / number if maker.name == "divide" else factor * number


def _by_number(r: _Rounding, x: Ref, number: float, always: bool) -> bool:
    """Replace the call by a product with a number; with `always` even where it takes as many calls as before."""
    inner, factor = _scale(r, x)
    product = factor * number
    # Factors that overflow or underflow together stay apart.
    if not thresholds.SCALE_MIN <= abs(product) <= thresholds.SCALE_MAX or r.spec(x) != r.out:
        return False
    if inner is x and not always:
        return False
    return r.become("multiply", operator.mul, inner, product)


@rewrite("multiply")
def scaled(r: _Rounding, a: Argument, b: Argument) -> bool:
    if type(a) is Ref and is_literal_number(b):
        return _by_number(r, a, float(b), False)
    return type(b) is Ref and is_literal_number(a) and _by_number(r, b, float(a), False)


# Dividing takes several times as long as multiplying.
@rewrite("divide")
def divided_by_number(r: _Rounding, a: Argument, b: Argument) -> bool:
    return type(a) is Ref and is_literal_number(b) and b != 0 and _by_number(r, a, 1 / b, r.spec(a).shape != ())


# `y * y` has two equal cotangents, `g * y` each; `g` is often a number, as after a mean.
@rewrite("add")
def doubled(r: _Rounding, a: Argument, b: Argument) -> bool:
    maker = r.maker(a, "multiply") if a == b else None
    if type(a) is not Ref or maker is None or r.uses.get(a.id) != 2:
        return False
    factors = []
    for x in maker.args:
        spread = r.maker(x, "broadcast_to")
        factors.append(x if spread is None else spread.args[0])
    if type(factors[0]) is not Ref or type(factors[1]) is not Ref:
        return False
    small, large = sorted(factors, key=lambda x: r.spec(x).size)
    if r.spec(small).size == r.spec(large).size or r.spec(large) != r.out or r.spec(small).dtype != r.out.dtype:
        return False
    inner, factor = _scale(r, small) if r.uses.get(small.id) == 1 else (small, 1.0)
    twice = r.call("multiply", operator.mul, inner, 2 * factor, spec=r.spec(small))
    return r.become("multiply", operator.mul, twice, large)


# `pow` computes a logarithm and an exponential for other exponents than 2.
@rewrite("pow")
def small_power(r: _Rounding, x: Argument, exponent: Argument) -> bool:
    if type(x) is not Ref or not is_literal_number(exponent) or exponent not in (3, 4) or r.spec(x) != r.out:
        return False
    square = r.call("multiply", operator.mul, x, x, spec=r.spec(x))
    return r.become("multiply", operator.mul, square, x if exponent == 3 else square)


# Its gradient is a softmax, `exp(x - logsumexp(x))`: the same exponentials once more, but for a factor.
@rewrite("logsumexp")
def logsumexp_with_exponentials(r: _Rounding, x: Argument, *, axis: Axis = None, keepdims: bool = False) -> bool:
    if type(x) is not Ref or x not in r.shifted or not r.spec(x).shape:
        return False
    xp, whole = r.xp, r.spec(x)
    n = len(whole.shape)
    axes = range(n) if axis is None else [a % n for a in (axis if isinstance(axis, tuple) else (axis,))]
    line = Spec(whole.kind, tuple([1 if a in axes else length for a, length in enumerate(whole.shape)]), whole.dtype)
    mask = line._replace(dtype=xp.bool)
    # The kernel of `logsumexp`, written out: less the largest where that is finite, and -inf where all are.
    top = r.call("max", xp.max, x, axis=axis, keepdims=True, spec=line)
    finite = r.call("isfinite", xp.isfinite, top, spec=mask)
    top = r.call("where", xp.where, finite, top, 0, spec=line)
    exp = r.call("exp", xp.exp, r.call("subtract", operator.sub, x, top, spec=whole), spec=whole)
    total = r.call("sum", xp.sum, exp, axis=axis, keepdims=True, spec=line)
    nothing = r.call("equal", operator.eq, total, 0, spec=mask)
    total = r.call("where", xp.where, nothing, 1, total, spec=line)
    log = r.call("add", operator.add, r.call("log", xp.log, total, spec=line), top, spec=line)
    result = r.call("where", xp.where, nothing, -math.inf, log, spec=line)
    r.exponentials[r.instruction.out] = x, exp, total
    return r.become("reshape", xp.reshape, result, r.out.shape)


@rewrite("exp")
def softmax_of_logsumexp(r: _Rounding, x: Argument) -> bool:
    maker = r.maker(x, "subtract")
    if maker is None or type(maker.args[1]) is not Ref or (known_as := r.logsumexp(maker.args[1])) is None:
        return False
    known = r.exponentials[known_as]
    if known[0] != maker.args[0]:
        return False
    shape = r.spec(maker.args[1]).shape
    if shape != r.spec(known[2]).shape and (shape or r.spec(known[2]).size != 1):
        return False
    return r.become("divide", operator.truediv, known[1], known[2])
