"""Texts of arrays: of a large one on another device only the values that are shown are brought to the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.typing import Raw


def text(backend: Backend, array: Raw) -> str:
    """Return the values of an array as NumPy writes them."""
    import numpy as np  # whose way of writing it is

    options = np.get_printoptions()
    if math.prod(array.shape) <= options["threshold"] or is_on_host(backend, array):
        return str(backend.numpy(array))
    shown = backend.numpy(corners(backend, array, options["edgeitems"]))
    # Nothing is left out of so small an array but what was left out already.
    return np.array2string(shown, threshold=0)


def corners(backend: Backend, array: Raw, edge: int) -> Raw:
    """Return an array with the first and the last elements along each axis, and one between them if there are more."""
    for axis, n in enumerate(array.shape):
        if n > 2 * edge + 1:
            before = (slice(None),) * axis
            ends = [array[(*before, slice(0, edge + 1))], array[(*before, slice(n - edge, n))]]
            array = backend.namespace.concat(ends, axis=axis)
    return array


def is_on_host(backend: Backend, array: Raw) -> bool:
    """Return whether NumPy can have an array without a transfer."""
    return backend.device(array).startswith("cpu")


def extent(backend: Backend, array: Raw) -> tuple[float, float, float]:
    """Return the least, the mean and the greatest of the numbers of an array, computed where they are.

    Raises:
        ValueError: other processes have some of them.
    """
    array = backend.whole(array)
    if is_on_host(backend, array):
        import numpy as np

        values = backend.numpy(array)
        if values.dtype.itemsize < 4:
            values = values.astype("float32")
        with np.errstate(all="ignore"):  # a mean of both infinities
            return float(values.min()), float(values.mean(dtype="float64")), float(values.max())
    if backend.place(array):
        raise ValueError("the array is divided among devices, which would have to exchange values")
    xp: Any = backend.namespace
    if backend.dtype(array.dtype).itemsize < 4:
        array = xp.astype(array, xp.float32)
    return float(xp.min(array)), float(xp.mean(array)), float(xp.max(array))
