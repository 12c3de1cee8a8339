"""The sizes from which on, or up to which, something pays: all of them, with their units.

They were measured on NumPy and two x86-64 machines of four cores, by benchmarks/run.py with the workload that is named.
None of them changes a result: the conformance suite sets them to their extremes, so that small samples take each path.
Read them as `thresholds.NAME`, so that it can.
"""

from __future__ import annotations

# -- passes

INLINE_MIN_ELEMENTS = 1 << 14  # elements of the largest array: of smaller ones a call of one kernel is as good
LOWER_LINES_MIN_ELEMENTS = 1 << 14  # elements: kernels along lines are lowered where their calls can be fused

FUSE_MIN_ELEMENTS = 1 << 14  # elements: smaller arrays stay in the second-level cache by themselves (`wide`)
FUSE_MIN_WORK = 1 << 18  # elements of all results together: for fewer, blocks cost more than they save (`mnist_mlp`)
FUSE_MIN_CALLS = 2  # calls
FUSE_MANY_OPERANDS = 4  # operands: with so many, an unrelated call begins a group of its own (updates of Adam)

IN_PLACE_MIN_ELEMENTS = 1 << 12  # elements: a smaller array is made faster than `out=` is passed

SPARE_MIN_ELEMENTS = 1 << 16  # elements: from here on memory comes from the system, page by page
SPARE_MAX_GROWTH = 1.02  # times as much memory as without spares: what its pieces take otherwise is more
GIVE_BACK_CALLS = 6  # calls after which freed memory is given back: by then all code is made, and all spares are there

HOIST_MIN_CALLS = 4  # calls: broadcasting once into memory takes as long as two of them (`rnn`)
HOIST_MAX_ELEMENTS = 1 << 12  # elements: in larger arrays rows are long, and broadcasting costs nothing
HOIST_MAX_CONSTANT_ELEMENTS = 1 << 14  # elements: a larger constant would take memory for little; fusion has those

BATCH_SLICES_MAX_ELEMENTS = 1 << 12  # elements: of larger arrays the computation takes the time, not the calls (`lstm`)
MERGE_SCATTERS_MAX_PLACES = 16  # places in one array: comparing them takes the square of it

SCALAR_ARRAYS_MIN_ELEMENTS = 2  # elements of the largest array: with NumPy's own scalars, Python's numbers are faster

DOT_MAX_ELEMENTS = 1 << 14  # elements: a sum of products of more is part of a fused block, and no dot product
SCALE_MIN, SCALE_MAX = 1e-30, 1e30  # a merged factor stays between them, far from the ends of float32

# -- code

OUTLINE_MIN_PROGRAM = 1 << 8  # instructions: of fewer, Python compiles the source in a few milliseconds as it is
OUTLINE_MIN_STRETCH = 32  # instructions: a call of a function takes as long as one or two of them (`lstm`)
OUTLINE_MAX_ELEMENTS = 1 << 12  # elements: an array that is an argument lives until the function returns

RECYCLE_NAMES_MIN_PROGRAM = 1 << 8  # instructions: from here on names are used again, which Python compiles faster
DELETE_MIN_ELEMENTS = 32  # elements: from here on `del` follows the last use, so that the next array is in the cache
DELETE_MIN_ELEMENTS_RECYCLED = 1 << 9  # elements: where names are used again, that frees the smaller arrays
DELETE_AT_ONCE_MIN_ELEMENTS = 1 << 12  # elements: freed at once, and not only at the end of a nested expression
SWAPPED_MIN_ELEMENTS = 1 << 14  # elements: 256 KiB of complex128, from which on NumPy elides temporaries, see source.py
NEST_MAX_WIDTH = 96  # characters of a line with a nested expression
EXPORT_INLINE_MAX_ELEMENTS = 64  # elements of a constant that is written into an exported file, with constants="npz"

# -- traces

MAX_TRACES = 256  # traces kept for one function by default, since each holds code and constants
MAX_FALLBACKS = 1000  # cache keys for which it is remembered that the function is not compiled
MAX_CALL_KINDS = 1000  # kinds of calls remembered inside tapes' blocks: a Python number that changes makes many
MAX_DERIVATIVES = 4  # patterns of cotangents that one joint trace is compiled for; further ones run the function again
KEEP_CONSTANT_MAX_ELEMENTS = (
    1 << 12
)  # elements: a larger result without traced inputs, as of zeros, is made in each run
RETRACES_WARN_AT = 5  # traces: one more is hardly meant by whoever wrote the call
