"""Checks of derivatives, for tests of functions, ops and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tape_core.base.dtypes import bfloat16, finfo
from tape_core.engine import pytree
from tape_core.engine.indexed_slices import dense
from tape_core.engine.tensor import Tensor
from tape_core.ops.creation import asarray
from tape_core.ops.manipulation import reshape
from tape_core.transforms.derivatives import jvp, vjp
from tape_core.typing import ArrayLike, PyTree

__all__ = ["assert_close", "check_grads", "check_jvp", "check_vjp", "numerical_jacobian", "sparsity_pattern"]

Function = Callable[..., Any]

# By the bytes of a real number: the step of central differences, and how far off they may be. The error of the formula
# is about step**2, that of rounding about eps / step; the best step is near the cube root of eps.
_STEPS = {8: 1e-5, 4: 2e-2, 2: 1e-1}
_TOLERANCES = {8: 1e-6, 4: 1e-2, 2: 1e-1}
_MAX_REPORTED = 5  # entries of a Jacobian that an error lists


def assert_close(
    found: ArrayLike, expected: ArrayLike, *, rtol: float | None = None, magnitude: ArrayLike | None = None
) -> None:
    """Check that two arrays are equal up to rounding, relative to the size of what was summed, not to the result.

    Libraries, and kernels for different processors, add in different orders. An element of a product that is nearly 0
    is then off by as much as a large one: by a share of the sum of the absolute values.

    >>> import tape_core as tc
    >>> a, b = tc.asarray([[1e8, 1.0, -1e8]]), tc.asarray([1.0, 0.5, 1.0])
    >>> tc.testing.assert_close(a @ b, [0.0], magnitude=abs(a) @ abs(b))

    Args:
        found, expected: Tensors, or anything that NumPy makes an array of. NaN is close to NaN, an infinity to itself.
        rtol: the share of the magnitude by which elements may differ; by default a bound on the rounding errors in the
            less precise of the two dtypes.
        magnitude: an array that broadcasts, or a number; by default the largest absolute value in `expected`.

    Raises:
        AssertionError: shapes or elements differ.
    """
    import numpy as np

    own, theirs = (x.numpy() if isinstance(x, Tensor) else np.asarray(x) for x in (found, expected))
    own, theirs = (x if x.dtype.kind in "fc" else x.astype(float) for x in (own, theirs))
    assert own.shape == theirs.shape, f"the shape is {own.shape}, expected {theirs.shape}"
    if rtol is None:
        eps = float(max(np.finfo(x.dtype).eps for x in (own, theirs)))
        if any([str(getattr(x, "dtype", "")) == "bfloat16" for x in (found, expected)]):
            eps = finfo(bfloat16).eps
        rtol = min(
            256 * eps, eps**0.5
        )  # some hundred roundings; the root for 16-bit dtypes, whose 256 * eps is over 0.2
    if magnitude is None:
        sizes = np.abs(theirs[np.isfinite(theirs)])
        magnitude = float(sizes.max()) if sizes.size else 0.0
    bound = rtol * np.abs(magnitude.numpy() if isinstance(magnitude, Tensor) else np.asarray(magnitude))
    with np.errstate(invalid="ignore"):
        close = (own == theirs) | (np.abs(own - theirs) <= bound) | (np.isnan(own) & np.isnan(theirs))
    if not close.all():
        worst = np.where(close, 0, np.nan_to_num(np.abs(own - theirs), nan=np.inf))
        place = np.unravel_index(int(worst.argmax()), worst.shape)
        at = f"at {[int(k) for k in place]} " if place else ""
        within = float(np.broadcast_to(bound, close.shape)[place])
        raise AssertionError(
            f"{int((~close).sum())} of {close.size} elements differ; {at}{own[place].item()!r}, "
            f"expected {theirs[place].item()!r} to within {within:.3g}"
        )


def check_grads(
    f: Function,
    args: Sequence[Any],
    order: int = 1,
    modes: Sequence[str] = ("fwd", "rev"),
    *,
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Check the derivatives of `f` at `args` against central differences.

    >>> import tape_core as tc
    >>> tc.testing.check_grads(lambda x: tc.sin(x) * x, (tc.asarray([0.5, 2.0], dtype="float64"),), order=2)

    Every entry of every Jacobian is compared, so keep the arguments small. Use float64: with float32 only gross
    mistakes show. A complex number counts as two real ones.

    Args:
        f: a function of pytrees of floating or complex Tensors that returns such a pytree.
        args: its arguments.
        order: the highest derivative to check; the derivatives themselves are checked as functions, along random
            directions.
        modes: `"fwd"` checks :func:`~tape_core.jvp`, `"rev"` checks :func:`~tape_core.vjp`.
        atol, rtol: two entries may differ by `atol + rtol * abs(expected)`; by default by the error of central
            differences in the dtype.
        eps: the step of the differences.
        names: what messages call the arguments; by default `args[0]`, `args[1]` and so on.

    Raises:
        AssertionError: entries differ; the message names them, the difference, and where it is.
        ValueError: a mode is unknown, or the order is less than 1, or there are more or fewer names than arguments.
    """
    if names is not None and len(names) != len(args):
        raise ValueError(f"check_grads: {len(args)} arguments, and {len(names)} names")
    if order < 1:
        raise ValueError(f"check_grads: order must be at least 1, got {order}")
    for mode in modes:
        if mode not in ("fwd", "rev"):
            raise ValueError(f"check_grads: modes are 'fwd' and 'rev', got {mode!r}")
    widths = [_width(part.leaf) for part in _parts(tuple(args), "args")]
    least = _TOLERANCES[min(widths, default=8)]
    tolerances = {"atol": least if atol is None else atol, "rtol": least if rtol is None else rtol, "eps": eps}
    _check(f, tuple(args), order, modes, tolerances, names or [f"args[{k}]" for k in range(len(args))], "")


def check_jvp(
    f: Function, args: Sequence[Any], *, names: Sequence[str] | None = None, **tolerances: float | None
) -> None:
    """Check the derivatives of `f` in forward mode; see :func:`check_grads`."""
    check_grads(f, args, 1, ("fwd",), names=names, **tolerances)


def check_vjp(
    f: Function, args: Sequence[Any], *, names: Sequence[str] | None = None, **tolerances: float | None
) -> None:
    """Check the derivatives of `f` in reverse mode; see :func:`check_grads`."""
    check_grads(f, args, 1, ("rev",), names=names, **tolerances)


def _check(
    f: Function,
    args: tuple[Any, ...],
    order: int,
    modes: Sequence[str],
    tolerances: dict[str, Any],
    names: Sequence[str],
    path: str,
) -> None:
    expected = numerical_jacobian(f, args, eps=tolerances["eps"])
    for mode in modes:
        found = _forward_jacobian(f, args) if mode == "fwd" else _reverse_jacobian(f, args)
        rows = list(_elements(_parts(f(*args), "result")))
        columns = [element for arg, name in zip(args, names, strict=True) for element in _elements(_parts(arg, name))]
        _compare(found, expected, (rows, columns), tolerances, f"{path}{_MODES[mode]}")
    if order == 1:
        return
    if "fwd" in modes:
        tangents, part = _directions(args, 1), f"{path}the JVP, and of it "
        _check(lambda *a: jvp(f, a, tangents)[1], args, order - 1, modes, tolerances, names, part)
    if "rev" in modes:
        value = f(*args)
        (cotangents,) = _directions((value,), 2)
        _check(
            lambda *a: [dense(g) for g in _leaves(vjp(f, *a)[1](cotangents))],
            args,
            order - 1,
            modes,
            tolerances,
            names,
            f"{path}the VJP, and of it ",
        )


_MODES = {"fwd": "forward mode", "rev": "reverse mode"}


# -- values as lists of real numbers


class _Part(NamedTuple):
    """A leaf of a structure, its name, and its range `start:stop` in the list of all real numbers of the structure."""

    name: str
    leaf: Tensor
    start: int
    stop: int
    is_complex: bool


def _parts(tree: PyTree, name: str) -> list[_Part]:
    leaves, structure = pytree.flatten(tree)
    parts, start = [], 0
    for k, leaf in enumerate(leaves):
        leaf = asarray(leaf)
        if not leaf.dtype.inexact:
            raise TypeError(f"check_grads: {name}{pytree.path(structure, k)} has dtype {leaf.dtype}, no derivative")
        is_complex = leaf.dtype.kind == "complex floating"
        stop = start + leaf.size * (1 + is_complex)
        parts.append(_Part(f"{name}{pytree.path(structure, k)}", leaf, start, stop, is_complex))
        start = stop
    return parts


def _leaves(tree: PyTree) -> list[Any]:
    return [dense(leaf) for leaf in pytree.flatten(tree)[0]]


def _numbers(leaves: Sequence[Any]) -> list[float]:
    """The elements of leaves as one list of real numbers, two for each complex number."""
    found: list[float] = []
    for leaf in leaves:
        tensor = asarray(dense(leaf))
        values = reshape(tensor, (-1,)).tolist() if tensor.size else []
        if tensor.dtype.kind == "complex floating":
            values = [part for z in values for part in (z.real, z.imag)]
        found += values
    return found


def _rebuild(parts: Sequence[_Part], numbers: Sequence[float], structure: object) -> Any:
    """The structure with its leaves made of `numbers`: the inverse of `_numbers`."""
    leaves = []
    for part in parts:
        own: list[Any] = list(numbers[part.start : part.stop])
        if part.is_complex:
            own = [complex(*own[k : k + 2]) for k in range(0, len(own), 2)]
        flat = asarray(own, dtype=part.leaf.dtype, device=part.leaf.device, backend=part.leaf.backend)
        leaves.append(reshape(flat, part.leaf.shape))
    return pytree.unflatten(structure, leaves)


def _unit(n: int, k: int) -> list[float]:
    return [1.0 if j == k else 0.0 for j in range(n)]


def _directions(args: PyTree, seed: int) -> Any:
    """A structure like `args` with random elements."""
    import random

    rng = random.Random(seed)
    parts = _parts(args, "")
    n = parts[-1].stop if parts else 0
    return _rebuild(parts, [rng.uniform(-1, 1) for _ in range(n)], pytree.flatten(args)[1])


# -- Jacobians: a list of rows, one for each number of the result, of columns, one for each of the arguments


def numerical_jacobian(f: Function, args: Sequence[Any], *, eps: float | None = None) -> list[list[float]]:
    """The Jacobian of `f` by central differences: a list of rows of real numbers, one row for each of the result's.

    >>> import tape_core as tc
    >>> rows = tc.testing.numerical_jacobian(lambda x: x * x, (tc.asarray([1.0, 3.0], dtype="float64"),))
    >>> [[round(entry, 6) for entry in row] for row in rows]
    [[2.0, 0.0], [0.0, 6.0]]
    """
    args = tuple(args)
    parts, structure = _parts(args, "args"), pytree.flatten(args)[1]
    numbers = _numbers([part.leaf for part in parts])
    columns = []
    for part in parts:
        step = _STEPS[_width(part.leaf)] if eps is None else eps
        for k in range(part.start, part.stop):  # one column for each number, from f at both sides of it
            ends = []
            for sign in (1, -1):
                moved = [x + sign * step * (j == k) for j, x in enumerate(numbers)]
                ends.append(_numbers(pytree.flatten(f(*_rebuild(parts, moved, structure)))[0]))
            columns.append([(above - below) / (2 * step) for above, below in zip(*ends, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


def _width(leaf: Tensor) -> int:
    """The bytes of one real number of the leaf's dtype."""
    name = leaf.dtype.name
    return {"float64": 8, "complex128": 8, "float32": 4, "complex64": 4}.get(name, 2)


def _forward_jacobian(f: Function, args: tuple[Any, ...]) -> list[list[float]]:
    parts, structure = _parts(args, "args"), pytree.flatten(args)[1]
    n = parts[-1].stop if parts else 0
    columns = [_numbers(_leaves(jvp(f, args, _rebuild(parts, _unit(n, k), structure))[1])) for k in range(n)]
    return [list(row) for row in zip(*columns, strict=True)]


def _reverse_jacobian(f: Function, args: tuple[Any, ...]) -> list[list[float]]:
    value, pull = vjp(f, *args)
    parts, structure = _parts(value, "result"), pytree.flatten(value)[1]
    n = parts[-1].stop if parts else 0
    # df = Re(conj(gradient) * dx): the real and imaginary parts of the gradient are the entries of the row.
    return [_numbers(_leaves(pull(_rebuild(parts, _unit(n, k), structure)))) for k in range(n)]


def _elements(parts: Sequence[_Part]) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each real number of a structure."""
    for part in parts:
        shape = part.leaf.shape
        numbers = iter(_numbers([part.leaf]))
        for k in range(part.leaf.size):
            index, rest = [], k
            for n in reversed(shape):
                index.append(rest % n)
                rest //= n
            name = f"{part.name}{list(reversed(index)) if shape else ''}"
            for label in (f"Re {name}", f"Im {name}") if part.is_complex else (name,):
                yield label, next(numbers)


def _compare(
    found: list[list[float]],
    expected: list[list[float]],
    elements: tuple[list[tuple[str, float]], list[tuple[str, float]]],
    tolerances: dict[str, Any],
    mode: str,
) -> None:
    rows, columns = elements
    atol, rtol = tolerances["atol"], tolerances["rtol"]
    wrong = []
    for j, (own, theirs) in enumerate(zip(found, expected, strict=True)):
        for k, (a, b) in enumerate(zip(own, theirs, strict=True)):
            if not abs(a - b) <= atol + rtol * abs(b):
                name, value = columns[k]
                entry = f"  d {rows[j][0]} / d {name}: {a:.9g}, by differences {b:.9g}, where {name} is {value:.6g}"
                wrong.append((abs(a - b), entry))
    if wrong:
        # The largest differences first; NaN before all.
        wrong.sort(key=lambda entry: -entry[0] if entry[0] == entry[0] else float("-inf"))
        more = [f"  and {len(wrong) - _MAX_REPORTED} more"] if len(wrong) > _MAX_REPORTED else []
        total = len(rows) * len(columns)
        lines = [
            f"{mode}: {len(wrong)} of {total} entries of the Jacobian differ",
            *[line for _, line in wrong[:_MAX_REPORTED]],
        ]
        raise AssertionError("\n".join([*lines, *more]))


def sparsity_pattern(f: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    """The entries of the Jacobian of `f` that may differ from 0: the pattern behind :func:`tape_core.sparse_jacobian`.

    Args:
        f: a function of one Tensor that returns one Tensor.
        x: where it is called; the pattern may depend on its values where `f` decides by them.

    Returns:
        A NumPy array of booleans, of shape `(f(x).size, x.size)`.

    Raises:
        ImportError: SciPy is not installed.

    >>> import tape_core as tc
    >>> sparsity_pattern(lambda x: x[:2] * x[2], tc.asarray([1.0, 2.0, 3.0])).astype(int).tolist()
    [[1, 0, 1], [0, 1, 1]]
    """
    from tape_core.sparsity.detection import detect

    _, sets = detect(f, x)
    return sets.matrix().toarray()
