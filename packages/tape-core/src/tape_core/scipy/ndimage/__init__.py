"""`scipy.ndimage` for Tensors: filters of images, and images between their elements.

>>> import tape_core as tc
>>> from tape_core.scipy import ndimage
>>> where = tc.Variable([[0.5], [0.25]])
>>> with tc.GradientTape() as tape:
...     y = ndimage.map_coordinates(tc.asarray([[0.0, 1.0], [2.0, 3.0]]), where, order=1)
>>> tape.gradient(y, where).tolist()
[[2.0], [1.0]]
"""

import typing as _typing

from tape_core.engine.hints import missing as _missing
from tape_core.scipy.ndimage.filters import (
    convolve,
    convolve1d,
    correlate,
    correlate1d,
    gaussian_filter,
    gaussian_filter1d,
    gaussian_gradient_magnitude,
    gaussian_laplace,
    laplace,
    maximum_filter,
    minimum_filter,
    prewitt,
    sobel,
    uniform_filter,
    uniform_filter1d,
)
from tape_core.scipy.ndimage.splines import (
    affine_transform,
    map_coordinates,
    rotate,
    shift,
    spline_filter,
    zoom,
)

__all__ = [
    "affine_transform",
    "convolve",
    "convolve1d",
    "correlate",
    "correlate1d",
    "gaussian_filter",
    "gaussian_filter1d",
    "gaussian_gradient_magnitude",
    "gaussian_laplace",
    "laplace",
    "map_coordinates",
    "maximum_filter",
    "minimum_filter",
    "prewitt",
    "rotate",
    "shift",
    "sobel",
    "spline_filter",
    "uniform_filter",
    "uniform_filter1d",
    "zoom",
]


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
