"""Plain NumPy as a backend, with no kernel of tape-numpy: samples are drawn on it, and expected values are its own."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from tape_core.backends import ArrayAPIBackend
from tape_core.backends.random_kernels import Key, RandomKernels, numpy_words

from tape_conformance.references import standard


class Here(str):
    """The device of a plain array: in a sample it stands for the device on which the sample is checked."""


class _Random(RandomKernels):
    """The same numbers from NumPy's own Philox, since thousands are drawn before the first check."""

    def words(self, key: Key, counter: int, n: int, device: str | None = None) -> Any:
        return numpy_words(key, counter, n).view(np.int64)


class _Plain(ArrayAPIBackend):
    def device(self, array: Any) -> str:
        return Here(super().device(array))


# NumPy's functions follow the standard, except that these cannot sort in descending order.
_KERNELS = {name: standard.REFERENCES[name] for name in ("sort", "argsort")}
PLAIN: Final = _Plain("reference", np, array_types=("numpy:ndarray", "numpy:generic"), kernels=_KERNELS)
PLAIN.random = _Random(PLAIN)
