"""Debugging of tapes: why a gradient is None, where a NaN came from, where float64 begins, which ops were recorded.

The methods of :class:`~tape_core.GradientTape` return and raise these: :meth:`~tape_core.GradientTape.explain`,
:meth:`~tape_core.GradientTape.draw`, :meth:`~tape_core.GradientTape.summary`,
:meth:`~tape_core.GradientTape.float64_origins` and `GradientTape(check_numerics=True)`. :func:`traceback_text` and
:func:`hide_frames` are for the tracebacks of errors.
"""

from tape_core.base.tracebacks import hide_frames, traceback_text
from tape_core.debugging.drawing.drawing import Box, Drawing
from tape_core.debugging.explain import Explanation, Step
from tape_core.debugging.notes import Place
from tape_core.debugging.numerics import NumericsError
from tape_core.debugging.precision import Float64Origin, Float64Origins
from tape_core.debugging.summary import Row, Summary

__all__ = [
    "Box",
    "Drawing",
    "Explanation",
    "Float64Origin",
    "Float64Origins",
    "NumericsError",
    "Place",
    "Row",
    "Step",
    "Summary",
    "hide_frames",
    "traceback_text",
]
