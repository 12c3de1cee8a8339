"""Rewrites that round differently: less work for results that are a few units in the last place apart.

Each is a function that is given a call, writes others to `steps` instead, and says whether it has.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tape_compile.passes.cse import same_calls
from tape_compile.passes.fusion import LARGE
from tape_compile.passes.lower_kernels import Steps
from tape_compile.program import Instruction, Program, Ref, Spec

_NUMBERS = (int, float)
_POWERS = (3, 4)


def reassociate(program: Program) -> Program:
    """The program with cheaper calls for some of real floating-point arrays.

    `eye * d @ w` and `w @ (eye * d)` scale rows and columns; `sum(x * y)` and `mean(x * y)` are dot products where
    that is not part of a run; numbers by which an array is multiplied and divided become one; `x / number` is a
    product; `x ** 3` and `x ** 4` are products; `g * y + g * y` doubles the smaller one; and `exp(x - logsumexp(x))`,
    the gradient, shares the exponentials of `logsumexp`.
    """
    if program.backend is None:
        return program
    program = same_calls(program)
    rewriting = _Rewriting(program)
    kept: list[Instruction] = []
    for instruction in program.instructions:
        rule = None if instruction.effect or type(instruction.out) is not int else _RULES.get(instruction.name)
        steps = rewriting.steps
        if rule is not None and _fits(rule, instruction) and _is_real(steps.specs[instruction.out]):
            steps.instruction, steps.made = instruction, []
            if rule(rewriting, *instruction.args, **instruction.kwargs):
                kept += steps.made
                rewriting.note(steps.made)
                continue
        kept.append(instruction)
        rewriting.note([instruction])
    steps = rewriting.steps
    return Program(kept, program.inputs, steps.constants, program.outputs, steps.specs, program.backend)


def _fits(rule: Callable[..., bool], instruction: Instruction) -> bool:
    """Whether a call has the arguments that its rule knows."""
    known = getattr(rule, "__kwdefaults__", None) or {}
    return len(instruction.args) == rule.__code__.co_argcount - 1 and instruction.kwargs.keys() <= known.keys()


class _Rewriting:
    """What the rules know.

    Attributes:
        steps: for what they write.
        xp: the kernels.
        uses: how often each value is needed.
        shifted: what something is subtracted from for an exponential.
        exponentials: for a `logsumexp` its argument, the exponentials, and their sums with axes of length 1.
        stands_for: for values that are the result of a `logsumexp` with other axes or without -inf, that one.
    """

    def __init__(self, program: Program) -> None:
        assert program.backend is not None
        self.steps = Steps(program)
        self.backend = program.backend
        self.xp = program.backend.xp
        self.uses: dict[int, int] = dict.fromkeys(program.outputs, 1)
        for instruction in program.instructions:
            for k in instruction.inputs:
                self.uses[k] = self.uses.get(k, 0) + 1
        self.exponentials: dict[int, tuple[Ref, Ref, Ref]] = {}
        self.stands_for: dict[int, int] = {}
        makers = {i.out: i for i in program.instructions if i.name == "subtract" and type(i.out) is int}
        arguments = [i.args[0] for i in program.instructions if i.name == "exp"]
        self.shifted = {makers[x.id].args[0] for x in arguments if type(x) is Ref and x.id in makers}

    def note(self, made: list[Instruction]) -> None:
        """Instructions that are in the program from now on."""
        for instruction in made:
            for k in instruction.outputs:
                self.steps.makers[k] = instruction
            inner = _logsumexp_again(self, instruction)
            if inner is not None:
                self.stands_for[instruction.out] = inner

    def spec(self, x: Ref) -> Spec:
        return self.steps.specs[x.id]

    def maker(self, x: Any, *names: str) -> Instruction | None:
        """What gives a value, if it is a call of such a name without further options."""
        found = self.steps.makers.get(x.id) if type(x) is Ref else None
        return found if found is not None and found.name in names and not found.kwargs else None

    def is_identity(self, x: Any) -> bool:
        """Whether an argument is a constant identity matrix."""
        constant = self.steps.constants.get(x.id) if type(x) is Ref else None
        if constant is None or len(self.spec(x).shape) != 2 or len({*self.spec(x).shape}) != 1:
            return False
        rows = self.backend.numpy(constant)
        return bool((rows.diagonal() == 1).all()) and int((rows != 0).sum()) == len(rows)


def _is_real(spec: Spec) -> bool:
    return str(spec.dtype).rpartition(".")[2] in ("float32", "float64")


def _diagonal(r: _Rewriting, x: Any) -> Ref | None:
    """The vector of which an argument is the diagonal matrix."""
    maker = r.maker(x, "multiply")
    if maker is None:
        return None
    for eye, d in (maker.args, maker.args[::-1]):
        if r.is_identity(eye) and type(d) is Ref and r.spec(d).shape == r.spec(eye).shape[:1]:
            return d
    return None


def _matmul(r: _Rewriting, a: Any, b: Any) -> bool:
    if type(a) is not Ref or type(b) is not Ref or len(r.spec(a).shape) != 2 or len(r.spec(b).shape) != 2:
        return False
    d = _diagonal(r, a)
    if d is not None:
        n, spec = r.spec(d).shape[0], r.spec(d)
        column = r.steps.call("reshape", r.xp.reshape, d, (n, 1), spec=Spec(r.spec(a).kind, (n, 1), spec.dtype))
        r.steps.last("multiply", operator.mul, column, b)
        return True
    d = _diagonal(r, b)
    if d is not None:
        r.steps.last("multiply", operator.mul, a, d)
        return True
    return False


def _factors(r: _Rewriting, x: Any) -> tuple[Ref, Ref] | None:
    """Two arrays of one shape of which a value, needed once, is the product."""
    maker = r.maker(x, "multiply", "square", "pow")
    if maker is None or r.uses.get(x.id) != 1 or not 0 < r.spec(x).size < LARGE or not r.spec(x).shape:
        return None
    a, b = maker.args * (1 + (maker.name == "square"))
    if maker.name == "pow" and type(b) in _NUMBERS and b == 2:
        b = a
    elif maker.name == "pow":
        return None
    if type(a) is not Ref or type(b) is not Ref or not r.spec(a) == r.spec(b) == r.spec(x):
        return None
    return a, b


def _dot(r: _Rewriting, a: Ref, b: Ref, out: Spec) -> tuple[Any, ...]:
    """The arguments of a dot product of arrays."""
    line = Spec(r.spec(a).kind, (r.spec(a).size,), r.spec(a).dtype)

    def flat(x: Ref) -> Ref:
        return x if r.spec(x).shape == line.shape else r.steps.call("reshape", r.xp.reshape, x, line.shape, spec=line)

    first = flat(a)
    return first, first if a == b else flat(b)


def _sum(r: _Rewriting, x: Any, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> bool:
    found = None if axis is not None or dtype is not None or keepdims else _factors(r, x)
    if found is None:
        return False
    r.steps.last("matmul", operator.matmul, *_dot(r, *found, r.steps.specs[r.steps.instruction.out]))
    return True


def _mean(r: _Rewriting, x: Any, *, axis: Any = None, keepdims: bool = False) -> bool:
    found = None if axis is not None or keepdims else _factors(r, x)
    if found is None:
        return False
    out = r.steps.specs[r.steps.instruction.out]
    total = r.steps.call("matmul", operator.matmul, *_dot(r, *found, out), spec=out)
    r.steps.last("divide", operator.truediv, total, r.spec(x).size)
    return True


def _scale(r: _Rewriting, x: Any) -> tuple[Any, float]:
    """An array and a number of which a value is the product, and of nothing that is needed elsewhere."""
    maker = r.maker(x, "multiply", "divide", "negative") if r.uses.get(x.id) == 1 else None
    if maker is None:
        return x, 1.0
    a, b = maker.args * (1 + (maker.name == "negative"))
    if maker.name == "multiply" and type(a) in _NUMBERS:
        a, b = b, a
    number = -1.0 if maker.name == "negative" else b if type(b) in _NUMBERS else 0
    if type(a) is not Ref or not number or r.spec(a) != r.spec(x):
        return x, 1.0
    inner, factor = _scale(r, a)
    return inner, factor / number if maker.name == "divide" else factor * number


def _by_number(r: _Rewriting, x: Ref, number: float, again: bool) -> bool:
    """A product with a number; with `again` it is one even if nothing becomes simpler by it."""
    inner, factor = _scale(r, x)
    product = factor * number
    if not math.isfinite(product) or abs(product) < 1e-30 or abs(product) > 1e30 or r.spec(x) != _own(r):
        return False
    if inner is x and not again:
        return False
    r.steps.last("multiply", operator.mul, inner, product)
    return True


def _own(r: _Rewriting) -> Spec:
    return r.steps.specs[r.steps.instruction.out]


def _multiply(r: _Rewriting, a: Any, b: Any) -> bool:
    if type(a) is Ref and type(b) in _NUMBERS:
        return _by_number(r, a, float(b), False)
    return type(b) is Ref and type(a) in _NUMBERS and _by_number(r, b, float(a), False)


def _divide(r: _Rewriting, a: Any, b: Any) -> bool:
    return type(a) is Ref and type(b) in _NUMBERS and b != 0 and _by_number(r, a, 1 / b, r.spec(a).shape != ())


def _add(r: _Rewriting, a: Any, b: Any) -> bool:
    maker = r.maker(a, "multiply") if a == b else None
    if maker is None or r.uses.get(a.id) != 2:
        return False
    factors = []
    for x in maker.args:
        spread = r.maker(x, "broadcast_to")
        factors.append(x if spread is None else spread.args[0])
    if type(factors[0]) is not Ref or type(factors[1]) is not Ref:
        return False
    small, large = sorted(factors, key=lambda x: r.spec(x).size)
    if r.spec(small).size == r.spec(large).size or r.spec(large) != _own(r) or r.spec(small).dtype != _own(r).dtype:
        return False
    inner, factor = _scale(r, small) if r.uses.get(small.id) == 1 else (small, 1.0)
    twice = r.steps.call("multiply", operator.mul, inner, 2 * factor, spec=r.spec(small))
    r.steps.last("multiply", operator.mul, twice, large)
    return True


def _pow(r: _Rewriting, x: Any, exponent: Any) -> bool:
    if type(x) is not Ref or type(exponent) not in _NUMBERS or exponent not in _POWERS or r.spec(x) != _own(r):
        return False
    square = r.steps.call("multiply", operator.mul, x, x, spec=r.spec(x))
    r.steps.last("multiply", operator.mul, square, x if exponent == 3 else square)
    return True


def _logsumexp(r: _Rewriting, x: Any, *, axis: Any = None, keepdims: bool = False) -> bool:
    if type(x) is not Ref or x not in r.shifted or not r.spec(x).shape:
        return False
    steps, xp, out, whole = r.steps, r.xp, _own(r), r.spec(x)
    n = len(whole.shape)
    axes = range(n) if axis is None else [a % n for a in (axis if type(axis) is tuple else (axis,))]
    line = Spec(whole.kind, tuple([1 if a in axes else length for a, length in enumerate(whole.shape)]), whole.dtype)
    top = steps.call("max", xp.max, x, axis=axis, keepdims=True, spec=line)
    mask = line._replace(dtype=xp.bool)
    finite = steps.call("isfinite", xp.isfinite, top, spec=mask)
    top = steps.call("where", xp.where, finite, top, 0, spec=line)
    exp = steps.call("exp", xp.exp, steps.call("subtract", operator.sub, x, top, spec=whole), spec=whole)
    total = steps.call("sum", xp.sum, exp, axis=axis, keepdims=True, spec=line)
    nothing = steps.call("equal", operator.eq, total, 0, spec=mask)
    total = steps.call("where", xp.where, nothing, 1, total, spec=line)
    log = steps.call("add", operator.add, steps.call("log", xp.log, total, spec=line), top, spec=line)
    number = steps.instruction.out
    self_ = steps.call("where", xp.where, nothing, -math.inf, log, spec=line)
    steps.last("reshape", xp.reshape, self_, out.shape)
    r.exponentials[number] = x, exp, total
    r.stands_for[number] = number
    return True


def _logsumexp_again(r: _Rewriting, instruction: Instruction) -> int | None:
    """The `logsumexp` that a call gives with other axes, or with another number for -inf."""
    if instruction.name == "where" and len(instruction.args) == 3:
        is_lowest, _, x = instruction.args
        maker = r.maker(is_lowest, "equal")
        if maker is None or maker.args[1:] != (-math.inf,) or maker.args[0] != x:
            return None
    elif instruction.name == "reshape":
        x = instruction.args[0]
    else:
        return None
    return r.stands_for.get(x.id) if type(x) is Ref else None


def _exp(r: _Rewriting, x: Any) -> bool:
    maker = r.maker(x, "subtract")
    if maker is None or type(maker.args[1]) is not Ref:
        return False
    known = r.exponentials.get(r.stands_for.get(maker.args[1].id, -1))
    if known is None or known[0] != maker.args[0]:
        return False
    shape = r.spec(maker.args[1]).shape
    if shape != r.spec(known[2]).shape and (shape or r.spec(known[2]).size != 1):
        return False
    r.steps.last("divide", operator.truediv, known[1], known[2])
    return True


_RULES: dict[str, Callable[..., bool]] = {
    "matmul": _matmul,
    "sum": _sum,
    "mean": _mean,
    "multiply": _multiply,
    "divide": _divide,
    "add": _add,
    "pow": _pow,
    "logsumexp": _logsumexp,
    "exp": _exp,
}
