"""Windows for spectra, by name: numbers, of which nothing is differentiated."""

from __future__ import annotations

import math
from typing import Any

import tape_core as tc
from tape_core.scipy.arguments import real_constant
from tape_core.typing import ArrayLike

_COSINES = {
    "boxcar": (1.0,),
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.50, 0.08),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
}
"""Weights of cosines: of 0, 1, 2 and more periods in the window."""
_OTHERS = {"bartlett": 0, "triang": 0, "cosine": 0, "tukey": 1, "kaiser": 1, "gaussian": 1, "general_hamming": 1}
"""Other windows, and how many parameters they have."""


def _bessel(x: float) -> float:
    """The modified Bessel function of order 0."""
    term, total, k = 1.0, 1.0, 1
    while term > 1e-17 * total:
        term *= (x / (2 * k)) ** 2
        total, k = total + term, k + 1
    return total


def _element(name: str, parameter: float, k: int, n: int) -> float:
    """The element number k of a symmetric window of n > 1 elements."""
    middle = (n - 1) / 2
    far = abs(k - middle)
    if name == "general_hamming" or name in _COSINES:
        weights = (parameter, 1 - parameter) if name == "general_hamming" else _COSINES[name]
        return math.fsum((1 - j % 2 * 2) * w * math.cos(2 * math.pi * j * k / (n - 1)) for j, w in enumerate(weights))
    if name == "bartlett":
        return 1 - far / middle
    if name == "triang":
        return 1 - far / ((n + 1) / 2 if n % 2 else n / 2)
    if name == "cosine":
        return math.sin(math.pi / n * (k + 0.5))
    if name == "gaussian":
        return math.exp(-0.5 * (far / parameter) ** 2)
    if name == "kaiser":
        return _bessel(parameter * math.sqrt(max(0.0, 1 - (far / middle) ** 2))) / _bessel(parameter)
    if parameter <= 0:  # tukey
        return 1.0
    width = min(parameter, 1.0) * (n - 1) / 2
    inside = min(k, n - 1 - k)
    return 1.0 if inside >= width else 0.5 * (1 - math.cos(math.pi * inside / width))


def get_window(window: str | float | tuple[Any, ...], Nx: int, fftbins: bool = True) -> tc.Tensor:
    """A window by name, for :func:`welch` and others.

    >>> get_window("hann", 4).tolist()
    [0.0, 0.5, 1.0, 0.5]

    Args:
        window: "boxcar", "hann", "hamming", "blackman", "nuttall", "blackmanharris", "flattop", "bartlett", "triang" or
            "cosine"; ("tukey", alpha), ("kaiser", beta), ("gaussian", std) or ("general_hamming", alpha); or a number,
            the beta of a Kaiser window. The endings "_periodic" and "_symmetric" of names count before `fftbins`.
        Nx: the number of elements.
        fftbins: whether the window is periodic, as Fourier transforms want it, in place of symmetric.

    Raises:
        NotImplementedError: there is no such window here.
        ValueError: a parameter is missing or too much.
    """
    return tc.asarray(elements(window, Nx, fftbins))


def elements(window: Any, n: int, periodic: bool = True) -> list[float]:
    """The elements of :func:`get_window`."""
    if isinstance(window, int | float):
        window = ("kaiser", float(window))
    name, *parameters = window if isinstance(window, tuple) else (window,)
    for ending, kind in (("_periodic", True), ("_symmetric", False)):
        if isinstance(name, str) and name.endswith(ending):
            name, periodic = name.removesuffix(ending), kind
    name = {"hanning": "hann", "rectangular": "boxcar", "ones": "boxcar", "triangle": "triang"}.get(name, name)
    if name not in _COSINES and name not in _OTHERS:
        raise NotImplementedError(
            f"scipy.signal: window={window!r} has no counterpart for Tensors; give the window as an array, such as "
            f"scipy.signal.get_window({window!r}, n)"
        )
    if name == "tukey" and not parameters:
        parameters = [0.5]
    if len(parameters) != _OTHERS.get(name, 0):
        raise ValueError(f"scipy.signal: the window {name!r} takes {_OTHERS.get(name, 0)} parameters; got {window!r}")
    if n == 1:
        return [1.0]
    whole = n + 1 if periodic else n
    return [_element(name, float(parameters[0]) if parameters else 0.0, k, whole) for k in range(n)]


def as_window(function: str, window: ArrayLike | str | tuple[Any, ...], n: int, beside: tc.Tensor) -> tc.Tensor:
    """A window of a length, from its name or its elements.

    Raises:
        ValueError: it is an array of another shape.
    """
    if isinstance(window, str | tuple | int | float):
        return real_constant(beside, elements(window, n))
    found = (
        window
        if isinstance(window, tc.Tensor)
        else tc.asarray(window, backend=beside.backend.root, device=beside.device)
    )
    if found.shape != (n,):
        raise ValueError(
            f"{function}: window must have one element for each of the {n} of a segment; got {found.shape}"
        )
    return found
