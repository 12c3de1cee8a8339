"""Fourier transforms, as in the `fft` extension of the Array API standard; differentiable."""

import typing as _typing

from tape_core.engine.hints import missing as _missing
from tape_core.ops.fft import (
    fft,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfftn,
    rfft,
    rfftfreq,
    rfftn,
)

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
