"""`scipy.signal` for Tensors: convolution, filters, spectra.

>>> import tape_core as tc
>>> from tape_core.scipy import signal
>>> signal.lfilter(tc.asarray([0.5, 0.5]), tc.asarray([1.0]), tc.asarray([1.0, 3.0, 5.0])).tolist()
[0.5, 2.0, 4.0]
"""

import typing as _typing

from tape_core.engine.hints import missing as _missing
from tape_core.scipy.signal.convolution import (
    convolve,
    convolve2d,
    correlate,
    correlate2d,
    fftconvolve,
    hilbert,
    oaconvolve,
    upfirdn,
)
from tape_core.scipy.signal.filters import (
    detrend,
    filtfilt,
    lfilter,
    lfilter_zi,
    savgol_filter,
    sosfilt,
    sosfilt_zi,
    sosfiltfilt,
)
from tape_core.scipy.signal.spectra import (
    coherence,
    csd,
    istft,
    periodogram,
    spectrogram,
    stft,
    welch,
)
from tape_core.scipy.signal.windows import (
    get_window,
)

__all__ = [
    "coherence",
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "filtfilt",
    "get_window",
    "hilbert",
    "istft",
    "lfilter",
    "lfilter_zi",
    "oaconvolve",
    "periodogram",
    "savgol_filter",
    "sosfilt",
    "sosfilt_zi",
    "sosfiltfilt",
    "spectrogram",
    "stft",
    "upfirdn",
    "welch",
]


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
