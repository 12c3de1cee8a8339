"""The tolerances of all checks, and the sizes of their inputs, in one place.

Every `_RTOL` is relative to the largest value compared, see `checking.expect_close`; samples are float64 unless the
name says otherwise. A tolerance follows from the way the expected number is computed; one that must be widened for a
backend is a finding, and belongs in the backend's `expectations.toml`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

VALUE_RTOL: Final = 1e-9
"""An op against its reference: another algorithm for the same number."""

SAME_RTOL: Final = 1e-12
"""A call against another one that runs the same kernels: with keywords, strided memory, large arrays."""

SINGLE_RTOL: Final = 1e-6
"""A float32 number after a few operations against the exact one: some ten times its spacing, 1.2e-7."""

FLOAT32_RTOL: Final = 2e-3
"""A float32 value against float64, with room for the condition number of the sample; gradients have five times that."""

FINITE_DIFFERENCE_STEP: Final = 1e-6
"""The step h of central differences, (f(x + h) - f(x - h)) / 2h. The rounding error of f, about 1e-16, becomes 1e-10 of
the value; the truncation error is h**2 / 6 = 2e-13 times the third derivative."""

FIRST_DERIVATIVE_RTOL: Final = 5e-6
"""A derivative against finite differences of values."""

SECOND_DERIVATIVE_RTOL: Final = 5e-5
"""A second derivative against finite differences of gradients."""

DOT_PRODUCT_RTOL: Final = 1e-8
"""<g, J t> by forward mode against <J* g, t> by reverse mode: both are exact but for rounding."""

BATCHED_RTOL: Final = 1e-9
"""vmap against a loop over the examples: the same sums, perhaps in another order."""

COMPILED_RTOL: Final = 1e-9
"""A compiler that rounds in its own ways, against an eager call: fused kernels, other sums, other special functions."""

REASSOCIATED_RTOL: Final = 1e-12
"""A compiled function with passes that round differently, against an eager call."""

DISTRIBUTED_RTOL: Final = 1e-9
"""Several processes against one: the same numbers, but sums in another order, and other kernels for other shapes."""

# -- inputs

LARGE_REPEATS: Final = 2000
"""Copies of a sample in the check `large`: 2x3 float64 elements become 96 kB, above the 64 KiB from which on a sweep
reuses the memory of cotangents."""

LARGE_ENOUGH_FOR_BLOCKS: Final = 100_000  # elements: backends evaluate partials of arrays of this size block by block

MAX_JACOBIAN_ELEMENTS: Final = 16  # elements of an input whose whole Jacobian and Hessian are compared

SECOND_EXAMPLE_SCALE: Final = 0.9  # times the sample: another point of the same domain, for vmap and later calls

SPECIAL_VALUES: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-300, 1e300, -1e300)

MODERATE: Final = 1e3  # special values below this are of moderate size
