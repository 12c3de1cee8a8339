"""Transformations of a program, one a file; `registry.py` has their names and order.

None changes a bit of a result but those of the stage `rounding`, which must be asked for.
"""

from __future__ import annotations

# Importing a pass registers it; in which order they run is declared beside their code.
from tape_compile.passes import (
    batch_slices,
    constant_folding,
    cse,
    dce,
    fusion,
    hoist_broadcasts,
    in_place,
    inline_kernels,
    lower_kernels,
    merge_scatters,
    prove_checks,
    reassociate,
    scalars_to_arrays,
    schedule_updates,
    simplify,
    simplify_views,
)
from tape_compile.passes.registry import (
    NOT_BEFORE_SPLIT,
    NOT_BY_NAME,
    NOT_EXPORTED,
    NOT_FOR_LIBRARY_COMPILERS,
    PASSES,
    Pass,
    Stage,
    Statistics,
    canonical,
    pass_,
    run,
)

# Tape's own passes are all known now; one that is registered later finds its place, or is refused, at once.
PASSES.sort()

__all__ = [
    "NOT_BEFORE_SPLIT",
    "NOT_BY_NAME",
    "NOT_EXPORTED",
    "NOT_FOR_LIBRARY_COMPILERS",
    "PASSES",
    "Pass",
    "Stage",
    "Statistics",
    "batch_slices",
    "canonical",
    "constant_folding",
    "cse",
    "dce",
    "fusion",
    "hoist_broadcasts",
    "in_place",
    "inline_kernels",
    "lower_kernels",
    "merge_scatters",
    "pass_",
    "prove_checks",
    "reassociate",
    "run",
    "scalars_to_arrays",
    "schedule_updates",
    "simplify",
    "simplify_views",
]
