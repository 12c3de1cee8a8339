"""Sizes at which one way becomes faster than another, each with the measurement it is from."""

from typing import Final

ALIGNMENT: Final = 64
"""Bytes: XLA on the CPU uses memory as it is that begins at a multiple of this, and copies other memory."""

ALIGNED_MIN_BYTES: Final = 1 << 16
"""Bytes: smaller memory XLA copies in less than the 2 µs that it takes to find aligned memory for a copy."""

JITTED_MAX_VARIANTS: Final = 256
"""Sets of numbers and options for which one kernel is compiled: beyond, a number may be another one in each call."""

MIN_INDICES_BY_NUMPY: Final = 64
"""Elements of an array of indices: of fewer, Python finds the extremes, of 3 in 0.4 µs where NumPy takes 4."""

PIECES_AT_ONCE: Final = 32
"""Arrays that one program of XLA takes apart or joins: the more of them, the longer XLA compiles for each. To take 512
arrays apart at once took 6.9 s, and 75 s for 1000, by 32 it takes 0.6 s; to join 4000 took 36 s, by 32 it takes 0.2."""

STAGED_FROM: Final = 1000
"""Arrays of NumPy's of one shape and dtype: for so many, the 8 µs that `jax.device_put` takes longer for each are about
the 6 ms of the program that `jnp.asarray` has XLA compile for the first."""

STAGED_MAX_KINDS: Final = 4096
"""Shapes and dtypes of which that is counted."""

MAX_SLICES_OF_WINDOWS: Final = 32
"""Slices that make the windows along an axis: of more XLA would be long compiling."""

DRAWN_AT_ONCE: Final = 1 << 18
"""Numbers of a draw that a part is filled from at once: 2 MB, beside which the time of a call is small."""

LANDING_MAX_BYTES: Final = 1 << 16
"""Bytes: an array up to this size is copied to memory that XLA knows, in 0.2 to 1.1 µs. JAX takes 1.3 to 2 µs to
make an array of its own of it, or 1.1 where its memory begins as XLA wants it."""

LANDING_UNALIGNED_MAX_BYTES: Final = 1 << 20
"""Bytes: an array up to this size whose memory does not begin as XLA wants it is copied to memory that XLA knows, too,
in 3 µs for 128 KB and 24 for 1 MB. JAX has another thread copy it, and compute what waits for that: 14 and 35 µs."""

LANDINGS_MAX_BYTES: Final = 1 << 22
"""Bytes of memory that a function keeps for such arrays; any others JAX copies."""

KEPT_MAX_BYTES: Final = 1 << 18
"""Bytes: values of Variables up to this size are known until the next call, even if they are replaced meanwhile."""

PACKED_SMALL_MAX_BYTES: Final = 1 << 12
"""Bytes of a small array, which is packed with small ones alone: their former values are what people keep."""

PACK_OF_SMALL_MAX_BYTES: Final = 1 << 14
"""Bytes of a pack of small values of Variables: as much stays in memory as long as somebody keeps a former value of
one."""

PACKED_MAX_BYTES: Final = 1 << 15
"""Bytes of an array in a pack: a step of elementwise calls on 40 arrays of 16 KB takes 0.5 times as long as on arrays
by themselves, on 8 of 32 KB 0.6 to 0.9 times; with 64 KB it takes from 0.9 times to longer."""

PACK_MAX_BYTES: Final = 1 << 18
"""Bytes of a pack of larger arrays: with 64 KB, a step on 40 arrays of 16 KB takes 1.2 to 1.4 times as long."""

PACK_MIN_ARRAYS: Final = 3
"""Arrays of a pack: each spares 1.4 µs of a call on NumPy, and the pack takes as long as one or two of them."""

PACKED_SECONDS: Final = 1e-6
"""Of a call, which an array in a pack spares: 1.4 µs on NumPy, 0.7 on JAX."""

PACKED_MIN_SHARE: Final = 0.01
"""Of the least time of a call that packs must spare: each array in one takes XLA 10 to 25 ms to compile. Steps of a
transformer, of 43 ms, which spare a two-hundredth, have none, and those of an autoencoder, of 1.7 ms, take 0.94 times
as long with 18 arrays in packs."""

ELEMENT_SECONDS: Final = 2e-11
"""Of an element that a call makes, at least, of those that XLA fuses: of the whole programs of the benchmarks, that is
a half to a twentieth of what they take."""

PRODUCT_SECONDS: Final = 1e-11
"""Of two numbers that are multiplied and added in a product of matrices, at least, in float32."""

KEPT_MIN_ARRAYS: Final = 3
"""Values of Variables, arrays of JAX, that stay in one array from call to call: with 3, a step of elementwise calls
takes 13.6 µs in place of 14.1, with 8 14.6 in place of 20.6, with 40 37 in place of 68; with one 13.8 not 10.8."""

READ_TOGETHER_AFTER: Final = 64
"""Calls after each of which the same of these values were read, one by one at 7 µs, before XLA compiles a program, in
some 20 ms, that makes arrays of all of them."""

COMPARED_MAX_BYTES: Final = 1 << 22
"""Bytes: to find two constants of this size equal takes 8 ms, less than XLA takes for one call of the second."""

TRANSPOSED_MIN_COLUMNS: Final = 64
"""Columns of a product in float64 before whose first factor is transposed: it takes 0.2 to 0.9 times as long; with 32
columns 0.8 to 1.1 times, with 8 1.3 times."""

TRANSPOSED_MIN_ROWS: Final = 4
"""Rows of the second factor: with 2, XLA multiplies without a library."""

TRANSPOSED_MIN_PRODUCTS: Final = 1 << 17
"""Numbers that are multiplied in a product of two matrices: below, 1 µs is saved at most."""

TRANSPOSED_MAX_BYTES: Final = 1 << 24
"""Bytes of what is transposed: 25 MB take as long to move as is saved, and as much memory."""

BATCH_MIN_COLUMNS: Final = 4
"""Columns of both factors of each product of a batch, of at least TRANSPOSED_MIN_ROWS rows, whose first one is
transposed: from here on it takes 0.4 to 1.0 times as long in float32, 0.6 to 1.0 times in float64. With one column it
takes as long, with 2 or 3 rows up to 2.5 times."""

BATCH_MAX_ROWS_OF_FLOAT32: Final = 32
"""Rows of these in float32: with 64, as in the attention of a transformer, it takes 0.6 to 1.05 times as long, with 100
1.1 times."""

UNMASKED_MIN_ELEMENTS: Final = 1024
"""A cotangent of at least so many elements, and no fewer than the result has, is looked at for zeros in a branch."""
