"""The extension surface: what an author of ops, rules or backends imports.

Everything else in Tape is private to it. A backend's hooks are in `tape_core.backends`.
"""

from tape_core.engine.op import (
    NONDIFF,
    REFUSED,
    TODO,
    Op,
    elementwise,
    fused,
    linear,
    op,
    refuses,
    registry,
    transpose,
    vjp,
)
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, with_complex
from tape_core.modes import batching

__all__ = [
    "NONDIFF",
    "REFUSED",
    "TODO",
    "Draw",
    "Op",
    "Refused",
    "Sample",
    "Spec",
    "batching",
    "elementwise",
    "fused",
    "linear",
    "op",
    "refuses",
    "registry",
    "transpose",
    "vjp",
    "with_complex",
]
