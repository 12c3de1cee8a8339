"""NumPy's names, for arrays and for values that are being differentiated: `import tape_autograd.numpy as np`.

Functions call NumPy's own where no argument is differentiated, and Tape's operations where one is. Classes, dtypes and
constants are NumPy's. What is not here under its name in NumPy is taken from there as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as _np

from tape_autograd.numpy import composed as _composed
from tape_autograd.numpy import fft as fft
from tape_autograd.numpy import linalg as linalg
from tape_autograd.numpy import random as random
from tape_autograd.numpy.namespace import wrap as _wrap
from tape_autograd.numpy.namespace import wrapped_names as _wrapped_names

_HERE = {"fft", "linalg", "random"}
_NAMES = [name for name in dir(_np) if not name.startswith("_") and name not in _HERE]
_own = {
    "make_diagonal": _wrap(_composed.make_diagonal, "make_diagonal"),
    "r_": _composed.Rows(),
    "c_": _composed.Columns(),
    "where": _composed.where,
}
globals().update(_wrapped_names(_np, [name for name in _NAMES if name in _np.__all__ or name == "abs"]))
globals().update(_own)
# Names that NumPy 2 has given up, and autograd has.
globals().update({"row_stack": globals()["vstack"], "in1d": globals()["isin"], "trapz": globals()["trapezoid"]})
numpy_version = _np.__version__

__all__ = sorted({*_np.__all__, *_own, *_HERE, "numpy_version", "row_stack"})  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    try:
        return getattr(_np, name)
    except AttributeError:
        raise AttributeError(f"module 'tape_autograd.numpy' has no attribute {name!r}; neither has numpy") from None
