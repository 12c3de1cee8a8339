"""`scipy.interpolate` for Tensors: splines and other piecewise polynomials, and values on grids.

>>> import tape_core as tc
>>> from tape_core.scipy import interpolate
>>> y = tc.Variable([0.0, 1.0, 4.0, 9.0])
>>> with tc.GradientTape() as tape:
...     z = interpolate.CubicSpline(tc.asarray([0.0, 1.0, 2.0, 3.0]), y)(1.5)
>>> tape.gradient(z, y).round(4).tolist()
[-0.0625, 0.5625, 0.5625, -0.0625]
"""

import typing as _typing

from tape_core.engine.hints import missing as _missing
from tape_core.scipy.interpolate.grids import (
    BSpline,
    RegularGridInterpolator,
    interp1d,
    interpn,
)
from tape_core.scipy.interpolate.piecewise import (
    Akima1DInterpolator,
    CubicHermiteSpline,
    CubicSpline,
    PchipInterpolator,
    PPoly,
)

__all__ = [
    "Akima1DInterpolator",
    "BSpline",
    "CubicHermiteSpline",
    "CubicSpline",
    "PPoly",
    "PchipInterpolator",
    "RegularGridInterpolator",
    "interp1d",
    "interpn",
]


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
