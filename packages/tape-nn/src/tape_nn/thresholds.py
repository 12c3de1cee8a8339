"""The limits, tolerances and sizes that this package chooses, with their units."""

from __future__ import annotations

from typing import Final

# -- losses

EPSILON: Final = 1e-7
"""The least probability, divisor or argument of a logarithm, as in Keras; probabilities stay as far from 1."""

SQUARED_LENGTH_EPSILON: Final = 1e-12
"""The least squared length of a vector in `cosine_similarity`, as in Keras: that of 0 is no division by 0."""

# -- functional copies

COPIES_BEFORE_WRITTEN: Final = 10
"""Times that copies with one skeleton are taken apart before functions in straight lines are written for it. To write
them takes as long as they save in a hundred calls."""

WRITTEN_PARTS: Final = 4000
"""The most attributes and elements of a Module for which they are written, in 15 µs each."""

# -- loss scaling

LARGEST_SCALE: Final = 2.0**127  # the largest power of two in float32
SMALLEST_SCALE: Final = 2.0**-14  # float16's smallest normal number; an overflow at this scale is in the loss itself

# -- initializers

TRUNCATED_AT: Final = 2.0  # standard deviations; truncated_normal cuts off samples beyond them, as in Keras

# -- schedules

PERIOD_TOLERANCE: Final = 1e-9
"""Periods; a step closer than this to the next period of a cosine is its first. The logarithm that numbers the periods
may round to just below a whole number; then the first step of a period would get the last rate of the one before."""

# -- fit

DEFAULT_BATCH_SIZE: Final = 32  # examples, as in Keras
SAMPLED_EXAMPLES: Final = 16  # examples; so many, and the last one, are compared between processes before a run
SMALLEST_WEIGHT: Final = 1e-30  # examples; the least by which a batch counts, where gradients are accumulated
REFRESH_INTERVAL: Final = 0.5  # seconds between updates of the numbers beside the progress bar
COUNT_LIMIT: Final = 1 << 62  # epochs, batches and steps in a checkpoint: more is damage, and would overflow int64

# -- files

DRAFT_ABANDONED_AFTER: Final = 3600  # seconds; an older draft is nobody's, where folders cannot be locked

# -- optimizers

SETTLE_MIN_BYTES: Final = 1 << 22  # of a Variable; its first update takes longer than giving freed memory back

# -- line search of L-BFGS

SUFFICIENT_DECREASE: Final = 1e-4  # of the decrease that the slope promises: c1 of the Wolfe conditions
CURVATURE: Final = 0.9  # of the first slope: c2 of the Wolfe conditions, as is usual for quasi-Newton directions
LINE_SEARCH_STEPS: Final = 25  # evaluations, as in PyTorch
LONGEST_EXTRAPOLATION: Final = 10.0  # times the last distance
SHARE_FROM_ENDS: Final = 0.1  # of an interval; a point nearer to its ends is not tried
SMALLEST_CURVATURE: Final = 1e-10  # of s @ y; pairs with less say nothing about the curvature, as in PyTorch
