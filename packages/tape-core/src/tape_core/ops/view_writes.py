"""Functions of other libraries that write to a part of an array to change the whole, as NumPy's views allow.

A part of a Tensor is a value of its own: what is written to it changes nothing else. So these functions would compute
something else than on NumPy arrays, without a word; they are found by comparison (`docs/generate/libraries`). That such
a function writes to a part cannot be told from its arrays alone: others write to parts that nobody reads as the whole.
"""

from __future__ import annotations

from types import FrameType

from tape_core.base.lookup import instead_of_scipy

_INSTEAD = {
    ("oaconvolve", "scipy"): "use scipy.signal.fftconvolve",
    ("_add_to_diagonal", "sklearn"): "use covariance_type='diag' or 'spherical'",
}
"""By function and package, what to do instead."""

_NAMES = frozenset(name for name, _ in _INSTEAD)


def check_write(caller: FrameType) -> None:
    """Raise a TypeError if the function that writes to a Tensor, the caller, is one of these."""
    name = caller.f_code.co_name
    if name not in _NAMES:
        return
    package = str(caller.f_globals.get("__name__")).partition(".")[0]
    if (name, package) in _INSTEAD:
        instead = instead_of_scipy(caller)
        first = f"{instead}; " if instead else ""
        raise TypeError(
            f"{first}{package} ({name}, line {caller.f_lineno}) writes to a part of an array, to change the whole; "
            f"a part of a Tensor is a value of its own: {_INSTEAD[name, package]}, or give it t.numpy() where no "
            f"gradient is needed"
        )
