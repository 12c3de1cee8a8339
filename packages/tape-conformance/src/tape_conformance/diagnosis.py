"""What a failed check of a derivative says: whose number is wrong, for which sample, and at which element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.testing import check_grads

from tape_conformance.calculus import gradients
from tape_conformance.samples import Case, Leaf
from tape_conformance.tolerances import MAX_JACOBIAN_ELEMENTS


class WrongRule(AssertionError):
    """A rule does not give the derivative of the op's value.

    Attributes:
        rule: which one, as :func:`rule_of` says it.
    """

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


def rule_of(case: Case, leaf: Leaf) -> str:
    """Return which rule it is, and its file and line: `the rule of 'multiply' for 'x1' (elementwise.py:12)`."""
    op, backend = case.op, tc.get_backend()
    own = backend.rules.get(op.name)
    rules = op.compiled_for(backend, own) if own else op.compiled
    where = rules[0 if op.sequence else leaf.k].where
    text, bracket, place = where.partition(" (")
    return where if place[:1] in ("", "<") else f"{text}{bracket}{Path(place).name}"  # <stdin> is no path


def explain(
    found: float, expected: float, subject: str, case: Case, leaves: Sequence[Leaf], mode: str = "rev", order: int = 1
) -> str:
    """Return a message for a derivative that is not what differences are: with the elements that are wrong.

    Args:
        found: the derivative along a random direction, by the op's rules.
        expected: the same by differences.
        subject: what computes the derivative.
        case: the sample.
        leaves: the inputs by which is differentiated.
        mode: "rev" or "fwd".
        order: 2 for derivatives of the gradient.
    """
    head = (
        f"{subject} is wrong for {case.description}: along a random direction it gives {found:.9g}, "
        f"differences of {'values' if order == 1 else 'gradients'} give {expected:.9g}"
    )
    return "\n".join([head, *_wrong_elements(case, leaves, mode, order)])


def _wrong_elements(case: Case, leaves: Sequence[Leaf], mode: str, order: int) -> list[str]:
    """Return a line for each of the worst entries of the Jacobian; none if it is large, or cannot be had."""
    chosen = [leaf.k for leaf in leaves]
    weights = case.weights()
    sizes = sum(leaf.size for leaf in leaves), sum(w.size for w in weights if w is not None)
    mark = np.empty(0)
    # Where inputs may be changed in some directions alone, there is no derivative for one element.
    if max(sizes) > MAX_JACOBIAN_ELEMENTS**2 or math.prod(sizes) > MAX_JACOBIAN_ELEMENTS**2:
        return []
    if case.drawn.projected(mark) is not mark:
        return []

    def values(*xs: tc.Tensor) -> Any:
        outs = [out for out in case.observed(case.call(dict(zip(chosen, xs, strict=True)))) if out.dtype.inexact]
        return outs if outs[1:] else outs[0]

    def slopes(*xs: tc.Tensor) -> dict[str, tc.Tensor]:
        found = gradients(case, weights, dict(zip(chosen, xs, strict=True)))
        return {f"gradient for {case.name_of(k)}": g for k, g in found.items()}

    function: Callable[..., Any] = values if order == 1 else slopes
    try:
        check_grads(function, [leaf.value for leaf in leaves], 1, (mode,), names=[leaf.name for leaf in leaves])
    except AssertionError as error:
        return str(error).splitlines()[1:]
    except Exception:  # noqa: BLE001 - the direction has been told; more is not to be had
        return []
    return []
