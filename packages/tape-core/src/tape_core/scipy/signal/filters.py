"""Digital filters, `detrend` and the filter of Savitzky and Golay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import tape_core as tc
from tape_core.scipy.arguments import choose, constant, floats, refuse
from tape_core.typing import ArrayLike

# -- trends


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: Literal["linear", "constant"] = "linear",
    bp: ArrayLike | int | Sequence[int] = 0,
    overwrite_data: bool = False,
) -> tc.Tensor:
    """The signal without its mean, or without the lines that fit its pieces best.

    >>> detrend(tc.asarray([1.0, 2.0, 3.0])).tolist(), detrend(tc.asarray([1.0, 3.0]), type="constant").tolist()
    ([0.0, 0.0, 0.0], [-1.0, 1.0])

    Args:
        type: "linear" or "constant".
        bp: where pieces begin; for each one its own line is taken away.
        overwrite_data: without effect.

    Raises:
        ValueError: `type` is neither, or a breakpoint is beyond the end.
    """
    name = "scipy.signal.detrend"
    (data,) = floats(name, data=data)
    choose(name, "type", type, ("linear", "l", "constant", "c"))
    if type in ("constant", "c"):
        centred: tc.Tensor = data - tc.mean(data, axis=axis, keepdims=True)
        return centred
    n = data.shape[axis]
    given: Any = bp.tolist() if hasattr(bp, "tolist") else bp
    points = sorted({0, n, *(given if isinstance(given, list | tuple) else [given])})
    if points[-1] > n:
        raise ValueError(f"{name}: bp must be at most the length of the data, {n}; got {points[-1]}")
    data = tc.moveaxis(data, axis, -1)
    pieces = []
    for start, stop in pairwise(points):
        piece, m = data[..., start:stop], stop - start
        line = constant(
            tc.real(data) if data.dtype.kind == "complex floating" else data, [k - (m - 1) / 2 for k in range(m)]
        )
        piece = piece - tc.mean(piece, axis=-1, keepdims=True)
        if m > 1:
            piece = piece - line * (tc.sum(piece * line, axis=-1, keepdims=True) / (m * (m * m - 1) / 12))
        pieces.append(piece)
    return tc.moveaxis(tc.concat(pieces, axis=-1), -1, axis)


# -- Savitzky and Golay


def _fit(m: int, order: int, deriv: int, delta: float, places: Sequence[float]) -> list[list[float]]:
    """Weights of m values, for each place those of a derivative of the polynomial that fits the values best."""
    middle, half = (m - 1) / 2, max((m - 1) / 2, 1.0)
    xs = [(k - middle) / half for k in range(m)]
    # Polynomials that are orthonormal on the points, each by its coefficients and its values.
    basis: list[tuple[list[float], list[float]]] = []
    for power in range(order + 1):
        coefficients = [0.0] * power + [1.0] + [0.0] * (order - power)
        values = [x**power for x in xs]
        for _ in range(2):  # twice is enough
            for known, at in basis:
                part = math.fsum([u * v for u, v in zip(values, at, strict=True)])
                values = [u - part * v for u, v in zip(values, at, strict=True)]
                coefficients = [u - part * v for u, v in zip(coefficients, known, strict=True)]
        size = math.sqrt(math.fsum([v * v for v in values]))
        basis.append(([c / size for c in coefficients], [v / size for v in values]))
    rows = []
    for place in places:
        x = (place - middle) / half
        row = [0.0] * m
        for coefficients, values in basis:
            slope = (
                sum(c * math.perm(k, deriv) * x ** (k - deriv) for k, c in enumerate(coefficients) if k >= deriv)
                / (half * delta) ** deriv
            )
            row = [r + slope * v for r, v in zip(row, values, strict=True)]
        rows.append(row)
    return rows


def savgol_filter(
    x: ArrayLike,
    window_length: int,
    polyorder: int,
    deriv: int = 0,
    delta: float = 1.0,
    axis: int = -1,
    mode: str = "interp",
    cval: float = 0.0,
) -> tc.Tensor:
    """The filter of Savitzky and Golay: at each point the polynomial that fits the window around it best.

    >>> savgol_filter(tc.asarray([0.0, 1.0, 4.0, 9.0, 16.0]), 3, 2, deriv=1).round(4).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0]

    Args:
        window_length: the number of values in the window.
        polyorder: the degree of the polynomial, less than that.
        deriv: which derivative of it is returned.
        delta: the spacing of the values.
        mode: what is done at the ends: "interp" takes the polynomial of the last window; "mirror", "nearest",
            "wrap" and "constant", with `cval`, add values.

    Raises:
        ValueError: an argument is out of its range.
    """
    name = "scipy.signal.savgol_filter"
    (x,) = floats(name, x=x)
    choose(name, "mode", mode, ("mirror", "constant", "nearest", "interp", "wrap"))
    n = x.shape[axis]
    if polyorder >= window_length:
        raise ValueError(f"{name}: polyorder must be less than window_length, {window_length}; got {polyorder}")
    if mode == "interp" and window_length > n:
        raise ValueError(f"{name}: with mode='interp', window_length must be at most {n}; got {window_length}")
    x = tc.moveaxis(x, axis, -1)
    half = window_length // 2
    even = window_length % 2 == 0
    middle = half - 0.5 if even else half  # of an even window: between the point and the one after it
    weights = constant(x, _fit(window_length, polyorder, deriv, delta, [middle])[0])
    if mode == "interp":
        inner = tc.sliding_windows(x, window_length, axis=-1) @ weights
        early = _fit(window_length, polyorder, deriv, delta, range(half))
        late = _fit(window_length, polyorder, deriv, delta, range(window_length - half, window_length))
        first = x[..., :window_length] @ constant(x, early).mT if half else x[..., :0]
        last = x[..., n - window_length :] @ constant(x, late).mT if half else x[..., :0]
        whole = tc.concat([first, inner[..., even : even + n - 2 * half], last], axis=-1)
        return tc.moveaxis(whole, -1, axis)
    kinds: dict[str, Any] = {"mirror": "reflect", "constant": "constant", "nearest": "edge", "wrap": "wrap"}
    before, after = half - even, half
    widths = (*[(0, 0)] * (x.ndim - 1), (before, after))
    padded = (
        tc.pad(x, widths, kinds[mode], constant_values=cval) if mode == "constant" else tc.pad(x, widths, kinds[mode])
    )
    return tc.moveaxis(tc.sliding_windows(padded, window_length, axis=-1) @ weights, -1, axis)


# -- recursive filters


def lfilter(b: ArrayLike, a: ArrayLike, x: ArrayLike, axis: int = -1, zi: ArrayLike | None = None) -> Any:
    """The output of a digital filter with the numerator `b` and the denominator `a`; one step for each value.

    >>> lfilter(tc.asarray([1.0]), tc.asarray([1.0, -0.5]), tc.asarray([1.0, 0.0, 0.0])).tolist()
    [1.0, 0.5, 0.25]

    Args:
        b, a: vectors.
        x: the signal, along `axis`.
        zi: the state before, whose length along `axis` is that of the longer one of `b` and `a`, minus 1.

    Returns:
        The output; with `zi` also the state after it.

    Raises:
        ValueError: the shapes do not fit.
    """
    name = "scipy.signal.lfilter"
    b, a, x = floats(name, b=b, a=a, x=x)
    if b.ndim != 1 or a.ndim != 1 or 0 in (b.shape[0], a.shape[0]) or x.ndim == 0:
        raise ValueError(f"{name}: b and a must be vectors, and x have an axis; got {b.shape}, {a.shape} and {x.shape}")
    k = max(b.shape[0], a.shape[0])
    x = tc.moveaxis(x, axis, -1)
    if zi is None:
        start = tc.broadcast_to(x[..., :1] * 0, (*x.shape[:-1], k - 1)) if x.shape[-1] else None
    else:
        (start,) = floats(name, zi=zi)
        start = tc.moveaxis(start, axis, -1)
        start = tc.broadcast_to(start, (*x.shape[:-1], k - 1))
    if start is None:
        return tc.moveaxis(x, -1, axis)
    y, end = _run(b, a, x, start)
    y = tc.moveaxis(y, -1, axis)
    return y if zi is None else (y, tc.moveaxis(end, -1, axis))


def _run(b: tc.Tensor, a: tc.Tensor, x: tc.Tensor, state: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
    """Filter along the last axis, in the transposed direct form II: the state is what the past adds to the future."""
    k = max(b.shape[0], a.shape[0])
    b, a = (tc.pad(c / a[0], (0, k - c.shape[0])) for c in (b, a))
    dtype = tc.result_type(b, a, x, state)
    b, a, x, state = (tc.astype(one, dtype, copy=False) for one in (b, a, x, state))
    if k == 1:
        return b[0] * x, state

    def step(state: tc.Tensor, value: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        out = b[0] * value + state[..., 0]
        later = tc.concat([state[..., 1:], tc.zeros_like(state[..., :1])], axis=-1)
        return later + b[1:] * value[..., None] - a[1:] * out[..., None], out

    state, outs = tc.scan(step, state, tc.moveaxis(x, -1, 0))
    return tc.moveaxis(outs, 0, -1), state


def lfilter_zi(b: ArrayLike, a: ArrayLike) -> tc.Tensor:
    """The state of :func:`lfilter` that a constant signal of ones leads to.

    >>> lfilter_zi(tc.asarray([1.0]), tc.asarray([1.0, -0.5])).tolist()
    [1.0]

    Raises:
        ValueError: `b` or `a` is no vector, or the filter does not come to rest.
    """
    name = "scipy.signal.lfilter_zi"
    b, a = floats(name, b=b, a=a)
    if b.ndim != 1 or a.ndim != 1 or 0 in (b.shape[0], a.shape[0]):
        raise ValueError(f"{name}: b and a must be vectors; got shapes {b.shape} and {a.shape}")
    k = max(b.shape[0], a.shape[0])
    b, a = (tc.pad(c / a[0], (0, k - c.shape[0])) for c in (b, a))
    # At rest the state z has z[i] = z[i + 1] + b[i + 1] - a[i + 1] y, with the constant output y = sum(b) / sum(a).
    rest = b[1:] - a[1:] * (tc.sum(b) / tc.sum(a))
    return tc.flip(tc.cumulative_sum(tc.flip(rest)))


def sosfilt(sos: ArrayLike, x: ArrayLike, axis: int = -1, zi: ArrayLike | None = None) -> Any:
    """The output of filters of second order, one after the other.

    >>> sosfilt(tc.asarray([[1.0, 0.0, 0.0, 1.0, -0.5, 0.0]]), tc.asarray([1.0, 0.0, 0.0])).tolist()
    [1.0, 0.5, 0.25]

    Args:
        sos: shape (sections, 6): three coefficients of the numerator and three of the denominator, which begin with 1.
        x: the signal, along `axis`.
        zi: the states before, shape (sections, ..., 2, ...), with 2 along `axis`.

    Returns:
        The output; with `zi` also the states after it.

    Raises:
        ValueError: the shapes do not fit.
    """
    name = "scipy.signal.sosfilt"
    sos, x = floats(name, sos=sos, x=x)
    _check_sections(name, sos)
    states = None if zi is None else floats(name, zi=zi)[0]
    ends = []
    for k in range(sos.shape[0]):
        if states is None:
            x = lfilter(sos[k, :3], sos[k, 3:], x, axis)
        else:
            x, end = lfilter(sos[k, :3], sos[k, 3:], x, axis, states[k])
            ends.append(end)
    return x if states is None else (x, tc.stack(ends))


def _check_sections(name: str, sos: tc.Tensor) -> None:
    if sos.ndim != 2 or sos.shape[1] != 6:
        raise ValueError(f"{name}: sos must have shape (sections, 6), got {sos.shape}")


def sosfilt_zi(sos: ArrayLike) -> tc.Tensor:
    """The states of :func:`sosfilt` that a constant signal of ones leads to.

    >>> sosfilt_zi(tc.asarray([[1.0, 0.0, 0.0, 1.0, -0.5, 0.0]])).tolist()
    [[1.0, 0.0]]
    """
    (sos,) = floats("scipy.signal.sosfilt_zi", sos=sos)
    _check_sections("scipy.signal.sosfilt_zi", sos)
    level: Any = 1.0
    found = []
    for k in range(sos.shape[0]):
        found.append(level * lfilter_zi(sos[k, :3], sos[k, 3:]))
        level = level * (tc.sum(sos[k, :3]) / tc.sum(sos[k, 3:]))
    return tc.stack(found)


def _there_and_back(
    name: str,
    x: tc.Tensor,
    axis: int,
    padtype: str | None,
    padlen: int,
    run: Callable[[tc.Tensor], tc.Tensor],
) -> tc.Tensor:
    choose(name, "padtype", padtype, ("odd", "even", "constant", None))
    x = tc.moveaxis(x, axis, -1)
    n = x.shape[-1]
    edge = 0 if padtype is None else padlen
    if n <= edge:
        raise ValueError(f"{name}: the signal must be longer than padlen, {edge}; it has {n} values")
    widths = (*[(0, 0)] * (x.ndim - 1), (edge, edge))
    if edge and padtype == "odd":
        whole = tc.pad(x, widths, "reflect")
        x = tc.concat([2 * x[..., :1] - whole[..., :edge], x, 2 * x[..., -1:] - whole[..., n + edge :]], axis=-1)
    elif edge:
        x = tc.pad(x, widths, "reflect" if padtype == "even" else "edge")
    there = run(x)
    back = tc.flip(run(tc.flip(there, axis=-1)), axis=-1)
    return tc.moveaxis(back[..., edge : edge + n], -1, axis)


def filtfilt(
    b: ArrayLike,
    a: ArrayLike,
    x: ArrayLike,
    axis: int = -1,
    padtype: str | None = "odd",
    padlen: int | None = None,
    method: str = "pad",
    irlen: int | None = None,
) -> tc.Tensor:
    """Filter a signal forward and backward, which shifts no phases.

    >>> x = filtfilt(tc.asarray([0.5, 0.5]), tc.asarray([1.0]), tc.asarray([1.0] * 8))
    >>> x.tolist() == [1.0] * 8
    True

    Args:
        b, a, x, axis: as for :func:`lfilter`.
        padtype: what is put before and after the signal: "odd", "even", "constant" or None.
        padlen: how many values; by default 3 times the length of the longer one of `b` and `a`.

    Raises:
        ValueError: the shapes do not fit, or the signal is too short.
        NotImplementedError: `method` is not "pad", or `irlen` is given.
    """
    name = "scipy.signal.filtfilt"
    b, a, x = floats(name, b=b, a=a, x=x)
    refuse(name, method=(method, ("pad",)), irlen=(irlen, (None,)))
    rest = lfilter_zi(b, a)
    edge = 3 * max(b.shape[0], a.shape[0]) if padlen is None else padlen

    def run(x: tc.Tensor) -> tc.Tensor:
        return _run(b, a, x, rest * x[..., :1])[0]

    return _there_and_back(name, x, axis, padtype, edge, run)


def sosfiltfilt(
    sos: ArrayLike, x: ArrayLike, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None
) -> tc.Tensor:
    """Filter a signal forward and backward by sections; see :func:`sosfilt` and :func:`filtfilt`.

    >>> x = sosfiltfilt(tc.asarray([[0.5, 0.5, 0.0, 1.0, 0.0, 0.0]]), tc.asarray([1.0] * 16))
    >>> x.tolist() == [1.0] * 16
    True

    Args:
        padlen: by default SciPy's, which depends on which coefficients of `sos` are 0; so give it where these are not
            known, as in a compiled function of `sos`.
    """
    name = "scipy.signal.sosfiltfilt"
    given = sos
    sos, x = floats(name, sos=sos, x=x)
    _check_sections(name, sos)
    if padlen is None:
        taps = 2 * sos.shape[0] + 1
        rows: Any = sos.tolist() if isinstance(given, tc.Tensor) else [list(row) for row in given]
        taps -= min(sum(bool(row[2] == 0) for row in rows), sum(bool(row[5] == 0) for row in rows))
        padlen = 3 * taps
    rest = sosfilt_zi(sos)

    def run(x: tc.Tensor) -> tc.Tensor:
        first = x[..., :1]
        for k in range(sos.shape[0]):
            x, _ = _run(sos[k, :3], sos[k, 3:], x, rest[k] * first)
        return x

    return _there_and_back(name, x, axis, padtype, padlen, run)
