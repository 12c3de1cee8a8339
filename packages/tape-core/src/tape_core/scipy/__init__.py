"""Functions under SciPy's names and with its arguments, on Tensors: `tape_core.scipy.linalg` and others.

They do not call SciPy. They are made of Tape's ops, so they have derivatives of any order, run inside `vmap` and
compiled functions and on every backend.

>>> import tape_core as tc
>>> c = tc.Variable([2.0, 1.0])
>>> with tc.GradientTape() as tape:
...     y = tc.linalg.det(tc.scipy.linalg.toeplitz(c))
>>> tape.gradient(y, c).round(4).tolist()
[4.0, -2.0]
"""

from __future__ import annotations

import typing as _typing

from tape_core.engine.hints import missing as _missing

__all__ = ["integrate", "interpolate", "linalg", "ndimage", "signal"]

if _typing.TYPE_CHECKING:
    from tape_core.scipy import integrate as integrate
    from tape_core.scipy import interpolate as interpolate
    from tape_core.scipy import linalg as linalg
    from tape_core.scipy import ndimage as ndimage
    from tape_core.scipy import signal as signal
else:  # a part is imported when it is first asked for: most programs use none of them
    __getattr__ = _missing(__name__, lambda: __all__, parts=__all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
