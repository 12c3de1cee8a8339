"""How long the arithmetic of a program takes at least: what is spared of a call may be nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tape_jax.thresholds import ELEMENT_SECONDS, PACKED_MIN_SHARE, PACKED_SECONDS, PRODUCT_SECONDS

if TYPE_CHECKING:
    from tape_compile.extend import Instruction, Spec


def least_seconds(instructions: Sequence[Instruction], specs: Mapping[int, Spec]) -> float:
    """Return a time below that of a call on one core. Branches and loops count as the copying of their results."""
    elements = products = 0
    for instruction in instructions:
        made = sum([_size(specs[k]) for k in instruction.outputs])
        elements += made
        if instruction.name == "matmul" and instruction.inputs:
            shape = specs[instruction.inputs[0]].shape
            products += made * max(shape[-1], 0) if shape else 0
    return elements * ELEMENT_SECONDS + products * PRODUCT_SECONDS


def pays_to_pack(arrays: int, seconds: float) -> bool:
    """Return whether a call that takes so long is noticeably faster with so many arrays in packs.

    XLA compiles the code of each array in a pack by itself, as its place there is another one, where those of one shape
    have the same code: a step of a transformer with 132 of them is compiled in 2.2 s in place of 5.5.
    """
    return arrays * PACKED_SECONDS >= seconds * PACKED_MIN_SHARE


def _size(spec: Spec) -> int:
    return 0 if spec.dtype is None or -1 in spec.shape else spec.size
