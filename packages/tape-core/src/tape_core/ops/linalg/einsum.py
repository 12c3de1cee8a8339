"""Sums of products in Einstein's notation.

An expression is parsed and planned once for each combination of shapes (`parse`, `plan`). The plan multiplies operands
pair by pair, by `matmul` where it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from tape_core.base.thresholds import EINSUM_PLANS_CACHED
from tape_core.engine.op import op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

Shapes = tuple[tuple[int, ...], ...]

Step = Callable[[Namespace, list[Array]], None]
"""A step of a plan: it changes the list of operands that are still to be multiplied."""


class Parsed(NamedTuple):
    """An expression for operands of certain shapes, with a letter for each dimension, those of `...` included."""

    operands: tuple[str, ...]
    output: str
    sizes: dict[str, int]


# -- reading an expression


@lru_cache(maxsize=EINSUM_PLANS_CACHED)
def parse(expression: str, shapes: Shapes) -> Parsed:
    """Parse an expression: put letters in place of ellipses, and add the result if it is implied.

    Raises:
        ValueError: the expression is malformed, or does not fit the shapes.
    """
    text = expression.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if strange := sorted({c for c in text.replace("...", "") if c not in ascii_letters + ",->"}):
        raise ValueError(f"{expression!r}: {strange[0]!r} is no subscript; they are letters, and '...'")
    if "-" in left + output or ">" in left + output or "," in output:
        raise ValueError(f"{expression!r}: there may be one '->', with one term after it")
    if len(terms) != len(shapes):
        raise ValueError(f"{expression!r} is of {len(terms)} operands, {len(shapes)} were given")
    # The dimensions of `...` get letters that the expression does not use, aligned at the end since they broadcast.
    spare = [c for c in ascii_letters if c not in text]
    widths = []
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        named = len(term.replace("...", ""))
        dots = term.count("...")
        if dots > 1 or named > len(shape) or (dots == 0 and named < len(shape)):
            raise ValueError(
                f"{expression!r}: the subscripts {term!r} do not fit operand {k} of shape {shape}, which has "
                f"{len(shape)} dimensions"
            )
        widths.append(len(shape) - named)
    width = max(widths, default=0)  # the most dimensions that an ellipsis stands for
    if width > len(spare):
        raise ValueError(f"{expression!r}: more than {len(ascii_letters)} different subscripts")
    hidden = "".join(spare[:width])
    terms = [term.replace("...", hidden[width - w :]) for term, w in zip(terms, widths, strict=True)]
    if arrow:
        if output.count("...") > 1 or (width and "..." not in output):
            raise ValueError(f"{expression!r}: the dimensions of '...' must be in the result, once")
        output = output.replace("...", hidden)
    else:
        # NumPy's rule for a missing result: the dimensions of `...`, then the letters that occur once, in order.
        letters = "".join(terms)
        output = hidden + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in hidden))
    for c in output:
        if output.count(c) > 1:
            raise ValueError(f"{expression!r}: {c!r} is in the result more than once")
        if not any(c in term for term in terms):
            raise ValueError(f"{expression!r}: {c!r} is in the result and in no operand")
    return Parsed(tuple(terms), output, _sizes(expression, terms, shapes))


def _sizes(expression: str, terms: Sequence[str], shapes: Shapes) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        own: dict[str, int] = {}
        for c, length in zip(term, shape, strict=True):
            if own.setdefault(c, length) != length:
                raise ValueError(
                    f"{expression!r}: {c!r} is twice in operand {k} of shape {shape}, with lengths {own[c]} and "
                    f"{length}"
                )
        for c, length in own.items():
            if sizes.get(c, 1) == 1:  # a length of 1 broadcasts
                sizes[c] = length
            elif length not in (1, sizes[c]):
                raise ValueError(
                    f"{expression!r}: {_describe(c, expression)} has length {length} in operand {k} of shape {shape}, "
                    f"and {sizes[c]} in an operand before it"
                )
    return sizes


def _describe(c: str, expression: str) -> str:
    return repr(c) if c in expression else "a dimension of '...'"


# -- computing it


@lru_cache(maxsize=EINSUM_PLANS_CACHED)
def plan(expression: str, shapes: Shapes) -> tuple[Step, ...]:
    """The steps that turn a list of the operands into a list of the result alone."""
    parsed = parse(expression, shapes)
    steps: list[Step] = []
    terms = []
    for k, (term, shape) in enumerate(zip(parsed.operands, shapes, strict=True)):
        # A dimension of length 1 that broadcasts against others can be dropped from this operand.
        kept = "".join(c for c, n in zip(term, shape, strict=True) if n == parsed.sizes[c])
        if kept != term:
            steps.append(_reshape_step(k, tuple(parsed.sizes[c] for c in kept)))
        for c in kept:
            while kept.count(c) > 1:
                first, second = kept.index(c), kept.rindex(c)
                steps.append(_diagonal_step(k, first, second))
                kept = kept[:first] + kept[first + 1 : second] + kept[second + 1 :] + c
        terms.append(kept)
    for path in _path(terms, parsed):
        # opt_einsum's convention: the operands of a step leave the list, and its result goes to the end. Its steps may
        # have more than two operands; take them two by two.
        chosen = sorted(path, reverse=True)
        while len(chosen) > 1:
            j, i = chosen[0], chosen[1]
            # Subscripts that no other operand and not the result has are summed in this step.
            others = "".join(term for k, term in enumerate(terms) if k not in (i, j)) + parsed.output
            a, b = terms[i], terms[j]
            steps.append(_product_step(i, j, a, b, others, parsed.sizes))
            del terms[j], terms[i]
            terms.append(_product_term(a, b, others))
            chosen = sorted([len(terms) - 1, *chosen[2:]], reverse=True)
    (term,) = terms
    if summed := tuple(k for k, c in enumerate(term) if c not in parsed.output):
        steps.append(_sum_step(0, summed))
        term = "".join(c for c in term if c in parsed.output)
    if term != parsed.output:
        steps.append(_permute_step(0, tuple(term.index(c) for c in parsed.output)))
    return tuple(steps)


def _path(terms: Sequence[str], parsed: Parsed) -> list[tuple[int, ...]]:
    if len(terms) < 3:
        return [tuple(range(len(terms)))]
    from opt_einsum import contract_path

    shapes = [tuple(parsed.sizes[c] for c in term) for term in terms]
    path, _ = contract_path(f"{','.join(terms)}->{parsed.output}", *shapes, shapes=True)
    return [tuple(step) for step in path]


def _product_term(a: str, b: str, others: str) -> str:
    """The subscripts of a product that are still needed: first those of both operands, then those of one."""
    both = [c for c in a if c in b and c in others]
    return "".join(
        [*both, *(c for c in a if c in others and c not in b), *(c for c in b if c in others and c not in a)]
    )


def _product_step(i: int, j: int, a: str, b: str, others: str, sizes: dict[str, int]) -> Step:
    """The product of operands i and j, i < j, summed over the subscripts that are not in `others`.

    A subscript of the operands a and b is one of four kinds, by which dimensions are grouped for a stack of matrix
    products: in both and in the result (batch), in both and summed (inner), in one and in the result (free), or in one
    and summed (alone), which is summed first.
    """
    # Which axes to sum, permute and reshape is decided here, once; `step` has only the array work.
    alone_a = tuple(k for k, c in enumerate(a) if c not in b and c not in others)
    alone_b = tuple(k for k, c in enumerate(b) if c not in a and c not in others)
    a = "".join(c for c in a if c in b or c in others)
    b = "".join(c for c in b if c in a or c in others)
    both = [c for c in a if c in b and c in others]
    inner = [c for c in a if c in b and c not in others]
    free_a, free_b = [c for c in a if c not in b], [c for c in b if c not in a]
    order_a = tuple(a.index(c) for c in (*both, *free_a, *inner))
    order_b = tuple(b.index(c) for c in (*both, *inner, *free_b))
    out = tuple(sizes[c] for c in (*both, *free_a, *free_b))

    def length(letters: list[str]) -> int:
        return math.prod(sizes[c] for c in letters)

    batch = tuple(sizes[c] for c in both)
    # Without inner subscripts there is nothing to sum, and a stack of dot products is faster as an elementwise product.
    if not inner or (both and not free_a and not free_b):
        shape_a = (*batch, *(sizes[c] for c in free_a), *(1 for _ in free_b), *(sizes[c] for c in inner))
        order_b = tuple(b.index(c) for c in (*both, *free_b, *inner))
        shape_b = (*batch, *(1 for _ in free_a), *(sizes[c] for c in free_b), *(sizes[c] for c in inner))
        inside = tuple(range(len(out), len(out) + len(inner)))
        by_matrices = False
    else:
        shape_a, shape_b = (*batch, length(free_a), length(inner)), (*batch, length(inner), length(free_b))
        inside, by_matrices = (), True

    def step(xp: Namespace, values: list[Array]) -> None:
        y, x = values.pop(j), values.pop(i)
        if alone_a:
            x = xp.sum(x, axis=alone_a)
        if alone_b:
            y = xp.sum(y, axis=alone_b)
        x, y = _lay_out(xp, x, order_a, shape_a), _lay_out(xp, y, order_b, shape_b)
        z = xp.matmul(x, y) if by_matrices else x * y
        if inside:
            z = xp.sum(z, axis=inside)
        values.append(z if type(z) in SCALARS or tuple(z.shape) == out else xp.reshape(z, out))

    return step


def _lay_out(xp: Namespace, x: Array, order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    if type(x) in SCALARS:
        return x
    if order != tuple(range(len(order))):
        x = xp.permute_dims(x, order)
    return x if tuple(x.shape) == shape else xp.reshape(x, shape)


def _reshape_step(k: int, shape: tuple[int, ...]) -> Step:
    def step(xp: Namespace, values: list[Array]) -> None:
        values[k] = xp.reshape(values[k], shape)

    return step


def _permute_step(k: int, order: tuple[int, ...]) -> Step:
    def step(xp: Namespace, values: list[Array]) -> None:
        values[k] = xp.permute_dims(values[k], order)

    return step


def _sum_step(k: int, axis: tuple[int, ...]) -> Step:
    def step(xp: Namespace, values: list[Array]) -> None:
        values[k] = xp.sum(values[k], axis=axis)

    return step


def _diagonal_step(k: int, first: int, second: int) -> Step:
    """Replace two dimensions of operand k by their diagonal, which comes last."""

    def step(xp: Namespace, values: list[Array]) -> None:
        x = values[k]
        order = [axis for axis in range(len(x.shape)) if axis not in (first, second)]
        values[k] = xp.diagonal(xp.permute_dims(x, (*order, first, second)))

    return step


# -- the op


def _einsum_kernel(xp: Namespace, arrays: Sequence[Array], expression: str) -> Array:
    if not isinstance(expression, str):
        raise TypeError(f"the expression must be a string, got {expression!r}")
    values = list(arrays)
    steps = plan(expression, tuple([() if type(x) in SCALARS else tuple(x.shape) for x in values]))
    for step in steps:
        step(xp, values)
    return values[0]


def _einsum_vjp(
    xp: Namespace,
    g: Cotangent,
    arrays: Sequence[Array],
    arrays_spec: Sequence[Spec],
    arrays_watched: Sequence[bool],
    expression: str,
) -> list[Cotangent | None]:
    parsed = parse(expression, tuple([tuple(spec.shape) for spec in arrays_spec]))
    return [
        _cotangent(xp, g, k, arrays, tuple(arrays_spec[k].shape), parsed) if watched else None
        for k, watched in enumerate(arrays_watched)
    ]


def _cotangent(
    xp: Namespace, g: Cotangent, k: int, arrays: Sequence[Array], shape: tuple[int, ...], parsed: Parsed
) -> Cotangent:
    """The cotangent of operand k: an einsum of `g` and the other operands, since the product is linear in each.

    Subscripts that only operand k has were summed, so the result is repeated along them. Of a subscript that it has
    twice only the diagonal counts.
    """
    term, sizes = parsed.operands[k], parsed.sizes
    others = [other for j, other in enumerate(parsed.operands) if j != k]
    known = "".join([parsed.output, *others])
    # Of a repeated subscript the first occurrence is computed; dimensions that were broadcast from length 1 are summed.
    firsts = [k for k, c in enumerate(term) if c not in term[:k] and shape[k] == sizes[c]]
    target = "".join(term[k] for k in firsts if term[k] in known)
    others_arrays = [array for j, array in enumerate(arrays) if j != k]
    d = xp.einsum([g, *others_arrays], f"{','.join([parsed.output, *others])}->{target}")
    lengths = dict(zip(target, d.shape, strict=True))
    d = xp.reshape(d, tuple(lengths.get(c, 1) if k in firsts else 1 for k, c in enumerate(term)))
    spread = tuple(shape[k] if k in firsts else 1 for k in range(len(term)))
    d = d if tuple(d.shape) == spread else xp.broadcast_to(d, spread)
    for k, c in enumerate(term):
        if k not in firsts and shape[k] != 1:  # the subscript again: zeros off the diagonal
            numbers, n = xp.arange_beside(d, shape[k]), len(term)
            first = xp.reshape(numbers, _axis_shape(term.index(c), shape[k], n))
            d = xp.where(xp.reshape(numbers, _axis_shape(k, shape[k], n)) == first, d, 0)
    return d


def _axis_shape(axis: int, length: int, ndim: int) -> tuple[int, ...]:
    return tuple(length if k == axis else 1 for k in range(ndim))


def _einsum_samples(draw: Draw) -> Iterator[Sample]:
    for expression, *shapes in (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("ij,jk", (2, 3), (3, 4)),
        ("ba", (2, 3)),
        ("ii", (3, 3)),
        ("ii->i", (3, 3)),
        ("iji,jk->ki", (2, 3, 2), (3, 2)),
        ("iii->", (2, 2, 2)),
        ("iijj->ij", (2, 2, 3, 3)),
        ("ij->", (2, 3)),
        ("ij->j", (2, 3)),
        ("ij,k->k", (2, 3), (2,)),
        ("i,j", (2,), (3,)),
        ("i,i", (3,), (3,)),
        ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
        ("bi,bi->b", (2, 3), (2, 3)),
        ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2)),
        ("i...->...", (2, 3)),
        ("b...a", (2, 3, 2)),
        ("ij,ij->ij", (1, 3), (2, 3)),
        ("ij,jk", (2, 1), (3, 4)),
        ("i,i->", (1,), (3,)),
        ("...,...", (), (2, 3)),
        ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
        ("i,ij,j,jk->k", (2,), (2, 3), (3,), (3, 2)),
        ("ij,j->i", (0, 2), (2,)),
        ("ij,jk->ik", (2, 0), (0, 3)),
    ):
        yield Sample([draw(*shape) for shape in shapes], expression)
    yield Sample([draw.complex(2, 3), draw.complex(3, 2)], "ij,jk->ki")
    yield Sample([draw(2, 3), draw.complex(3, 3), draw(3)], "ij,jj,j->i")
    yield Sample([draw(2, 3), 2.0], "ij,->ji")
    yield Refused(
        ValueError, "'j' has length 2 in operand 1 of shape .2, 3., and 3 in", [draw(2, 3), draw(2, 3)], "ij,jk"
    )
    yield Refused(ValueError, "'ij->k': 'k' is in the result and in no operand", [draw(2, 3)], "ij->k")
    yield Refused(ValueError, "'i' is in the result more than once", [draw(2, 3)], "ij->ii")
    yield Refused(ValueError, "'ij,j': the subscripts 'j' do not fit operand 1", [draw(2, 3), draw(2, 3)], "ij,j")
    yield Refused(ValueError, "'i' is twice in operand 0 of shape .2, 3., with lengths 2 and 3", [draw(2, 3)], "ii")
    yield Refused(ValueError, "is of 2 operands, 1 were given", [draw(2, 3)], "ij,j")
    yield Refused(ValueError, "'1' is no subscript", [draw(2)], "1")
    yield Refused(ValueError, "the dimensions of '...' must be in the result", [draw(2, 3)], "...i->i")
    yield Refused(ValueError, "there may be one '->'", [draw(2)], "i->i->i")
    yield Refused(TypeError, "the expression must be a string", [draw(2)], 3)


if TYPE_CHECKING:  # a type checker should see only the function below, with the signature for users

    def _einsum(arrays: Sequence[ArrayLike], /, expression: str) -> Tensor: ...

else:

    @op(arrays=vjp(_einsum_vjp), sequence=True, kernel=_einsum_kernel, samples=_einsum_samples, multilinear=True)
    def einsum(arrays: Sequence[ArrayLike], /, expression: str) -> Tensor:
        """The op behind `tape_core.einsum`: the operands come first."""

    _einsum = einsum


@overload
def einsum(expression: str, /, *operands: ArrayLike) -> Tensor: ...
@overload
def einsum(operand: ArrayLike, subscripts: Sequence[object], /, *others: object) -> Tensor: ...
def einsum(expression: str | ArrayLike, /, *operands: ArrayLike | Sequence[object]) -> Tensor:
    """Sums of products, in Einstein's notation: `einsum("ij,jk->ik", a, b)` is the product of two matrices.

    It takes all that NumPy's function takes: subscripts that are repeated in one operand (diagonals) or are in one
    operand only (sums), `...` for dimensions that broadcast, implied results, lengths of 1 that broadcast, and the form
    `einsum(a, [0, 1], b, [1, 2], [0, 2])`. Three or more operands are multiplied in the order that opt_einsum finds.

    >>> import tape_core as tc
    >>> a, b = tc.asarray([[1.0, 2.0], [3.0, 4.0]]), tc.asarray([1.0, 10.0])
    >>> tc.einsum("ij,j->i", a, b).tolist(), tc.einsum("ii", a).item()
    ([21.0, 43.0], 5.0)

    Args:
        expression: a term of letters for each operand, separated by commas, and after `->` the term of the result. If
            that is missing, the result has the dimensions of `...` and the letters that occur once, in alphabetical
            order.
        operands: an array for each term; a Python scalar has the empty term.

    Raises:
        ValueError: the expression is malformed, or does not fit the shapes; the message names the operand.
    """
    if not isinstance(expression, str):
        expression, operands = _from_lists((expression, *operands))
    return _einsum(list(operands), expression)


def _from_lists(arguments: tuple[Any, ...]) -> tuple[str, tuple[ArrayLike, ...]]:
    """Turn the arguments of `einsum(a, [0, 1], b, [1, 2], [0, 2])` into an expression and its operands."""
    # Operands and lists of subscripts alternate; an odd last argument is the list of the result.
    pairs = len(arguments) // 2
    lists = [*arguments[1 : 2 * pairs : 2], *arguments[2 * pairs :]]
    terms = []
    for subscripts in lists:
        if not isinstance(subscripts, Sequence) or isinstance(subscripts, str):
            raise TypeError(
                f"einsum: the first argument must be a string of subscripts, or each operand be followed by a list of "
                f"them; got {subscripts!r}"
            )
        letters = []
        for number in subscripts:
            if number is not Ellipsis and not (isinstance(number, int) and 0 <= number < len(_NUMBERED)):
                raise ValueError(f"einsum: subscripts in lists are numbers below {len(_NUMBERED)}, got {number!r}")
            letters.append("..." if number is Ellipsis else _NUMBERED[number])
        terms.append("".join(letters))
    expression = ",".join(terms[:pairs]) + (f"->{terms[pairs]}" if len(terms) > pairs else "")
    return expression, arguments[: 2 * pairs : 2]


_NUMBERED = ascii_uppercase + ascii_lowercase  # the letters of subscripts 0, 1, ...; ascending, to sort implied results
