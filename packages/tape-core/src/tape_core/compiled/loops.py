"""Loops of a fixed number of rounds: Python's own, whatever is around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core import pytree
from tape_core.compiled.control import as_leaf, check_same
from tape_core.ops.manipulation import stack
from tape_core.tensor import Tensor

Function = Callable[..., Any]


def scan(
    f: Function, init: Any, xs: Any = None, length: int | None = None, *, reverse: bool = False
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each `x` along axis 0 of `xs`: the last carry, and all `y` stacked along axis 0.

    It is a Python loop: tapes, accumulators, vmap and traces see each round.

    >>> import tape_core as tc
    >>> total, partial = tc.scan(lambda c, x: (c + x, c + x), tc.asarray(0.0), tc.asarray([1.0, 2.0, 3.0]))
    >>> total.item(), partial.tolist()
    (6.0, [1.0, 3.0, 6.0])

    Args:
        f: a function of the carry and an element that gives the next carry and a result: pytrees; None for no result.
        init: the first carry.
        xs: a pytree of Tensors of the same length along axis 0; None for none.
        length: how many rounds; needed only without `xs`.
        reverse: begin with the last element; `y` are in the order of `xs` all the same.

    Raises:
        ValueError: there is no length, or there are several; or no round, and so no results to stack.
    """
    leaves, structure = pytree.flatten(xs)
    tensors = [None if leaf is None else as_leaf(leaf) for leaf in leaves]
    lengths = {_length(t, f"scan: xs{pytree.path(structure, k)}") for k, t in enumerate(tensors) if t is not None}
    if length is not None:
        lengths.add(length)
    if len(lengths) != 1:
        raise ValueError(
            f"scan: xs have lengths {sorted(lengths)}; they must have one" if lengths else "scan: give xs, or a length"
        )
    (n,) = lengths
    results: list[Any] = [None] * n
    carry = init
    for k in reversed(range(n)) if reverse else range(n):
        x = pytree.unflatten(structure, [None if t is None else t[k] for t in tensors])
        carry, results[k] = f(carry, x)
    return carry, _stacked(results, "scan")


def map(f: Function, xs: Any) -> Any:
    """`f(x)` for each `x` along axis 0 of `xs`, one after the other, stacked along axis 0.

    :func:`vmap` computes the same at once, and takes the memory for it.

    >>> import tape_core as tc
    >>> tc.map(lambda x: x * x, tc.asarray([1.0, 2.0, 3.0])).tolist()
    [1.0, 4.0, 9.0]

    Args:
        f: a function of an element, a pytree, that gives a pytree of Tensors.
        xs: a pytree of Tensors of the same length along axis 0.

    Raises:
        ValueError: the lengths differ, or are 0.
    """
    return scan(lambda carry, x: (None, f(x)), None, xs)[1]


def _length(tensor: Tensor, where: str) -> int:
    if tensor.ndim == 0:
        raise ValueError(f"{where} has no dimensions, and so no elements to go through")
    return int(tensor.shape[0])


def _stacked(results: list[Any], name: str) -> Any:
    if not results:
        raise ValueError(f"{name}: there are no elements, and so no result that could tell what they would be")
    rows = [pytree.flatten(result) for result in results]
    first, structure = rows[0]
    for row, other in rows[1:]:
        check_same(first, structure, row, other, name)
    columns = zip(*[row for row, _ in rows], strict=True)
    stacked = [None if column[0] is None else stack([as_leaf(part) for part in column]) for column in columns]
    return pytree.unflatten(structure, stacked)
