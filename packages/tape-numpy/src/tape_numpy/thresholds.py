"""The sizes from which on, or up to which, a faster way pays: all of this package's, with their units.

They were measured with NumPy 2 on x86-64. None of them changes a result, except where a sum is formed by BLAS in place
of NumPy's pairwise summation: there the last bits differ.
"""

from __future__ import annotations

from typing import Final

# -- the backward pass (backend.py)

PARTIAL_BLOCK: Final = 1 << 15  # elements: a block and its temporaries, some of 256 KiB, stay in the second-level cache
UPDATE_BLOCK: Final = 1 << 17  # elements: an optimizer's update calls a dozen functions for each block

# -- results that are kept and compared (backend.py)

STRIDED_COPY_MAX_RATIO: Final = 4  # times an array's memory that a copy with the same strides may take
COMPARE_BYTES_MAX_ELEMENTS: Final = 1 << 12  # elements: comparing the bytes is faster than two calls of functions

# -- sums (kernels.py)

BLAS_SUM_MIN_ELEMENTS: Final = 1 << 11  # elements: for fewer, NumPy's own sums are as fast as products with ones
BLAS_SUM_MAX_LINE: Final = 128  # elements: longer lines are left to pairwise summation, which rounds less
LINE_SUMS_BLOCK: Final = 8192  # elements: so few that OpenBLAS takes one thread
CACHED_ONES_MAX_LENGTH: Final = 4096  # elements: longer vectors of ones are made anew

# -- other kernels

FILL_MAX_ELEMENTS: Final = 4096  # elements: filling a new array is faster than np.broadcast_to's Python code
TRANSPOSE_MAX_CLASSES: Final = 32  # classes: reductions along such short lines are slow; cross-entropy is transposed
PARTITION_MIN_LENGTH: Final = 64  # elements: top_k sorts a shorter line as a whole
PARTITION_MIN_RATIO: Final = 4  # times k that a line is longer: partitioning lines of 1,000 takes half the time then
SCATTER_BLOCK: Final = 1 << 15  # elements: flat indices made at a time, which stay in the cache
SPECIAL_BLOCK: Final = 1 << 13  # elements: special functions make dozens of temporaries of this size

# -- linear algebra (linalg.py)

SUBSTITUTE_MAX_UNKNOWNS: Final = 48  # unknowns: larger triangular systems are halved, for the sake of matrix products
GETRS_MAX_COLUMNS: Final = 16  # right-hand sides: LAPACK's getrs is as fast as substitution by halves
STACK_LOOP_MIN_UNKNOWNS: Final = 24  # unknowns: for smaller stacked systems a loop costs more than NumPy's solve

# -- blocks of compiled functions (compiler_support/tiles.py), by the workloads `wide` and `mnist_mlp` of benchmarks/

BLOCK_MIN_ELEMENTS: Final = 1 << 12  # elements of a block: in shorter ones the calls take the time
BLOCK_MAX_ELEMENTS: Final = 1 << 17  # elements of a block: in longer ones the calls take no smaller part of the time
BLOCK_MULTIPLE: Final = 1 << 10  # elements: blocks that the cache bounds are a multiple of this
BLOCK_CACHES: Final = 5  # second-level caches that a block's arrays fill: a call needs two or three of the arrays
L2_BYTES: Final = 1 << 20  # bytes of the second-level cache, where the system does not tell
JOIN_MAX_LENGTH: Final = 64  # elements: broadcast lines up to this length are taken together, as NumPy is slow on them
JOINED_LINES_MAX_LENGTH: Final = 512  # elements of lines that are taken together
