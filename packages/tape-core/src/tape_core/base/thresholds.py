"""The sizes from which on, or up to which, a faster way pays, with units: those of the tape and of the kernels of ops.

None of them changes a result but for the order of sums. Backends have kernels, and thresholds, of their own.
"""

from __future__ import annotations

from typing import Final

# -- the tape (engine/backward.py)

REUSE_ABOVE: Final = 1 << 16  # bytes; below, a new array costs less than finding out who holds the old one

# -- memory (base/heap.py)

GIVE_BACK_MIN_BYTES: Final = 1 << 25  # bytes that were freed: for less the heap is not worth the milliseconds

# -- linear algebra (ops/linalg)

EINSUM_PLANS_CACHED: Final = 1024  # expressions with the shapes of their operands
TRIANGULAR_LEAF_UNKNOWNS: Final = 32  # unknowns; systems of no more are not halved further, but given to `solve`
CHOLESKY_RULE_LEAF_ROWS: Final = 200  # rows; smaller matrices are not halved: the calls would cost more than they save

# -- convolution (ops/nn/convolution.py)

WINDOWS_CHUNK_ELEMENTS: Final = 1 << 22  # elements of windows that are laid out at a time; bounds the memory for copies
WINDOWS_COLUMNS_BELOW: Final = 16  # elements of a row of a window; shorter rows are slow to copy, so columns are copied

# -- arrays that are made in parts (meshes/draws.py)

SHORT_ROW_NUMBERS: Final = 1 << 13  # numbers; of a shorter row that is divided, all are drawn, with those of others

# -- displays

LARGE_DISPLAY_ELEMENTS: Final = 1000  # elements; a display of more leaves some out, as NumPy's do, and has a summary
