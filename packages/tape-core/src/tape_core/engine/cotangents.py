"""Cotangents of inputs: bring them to the input's shape and dtype, and add them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.base.ambient import ACTIVE
from tape_core.base.contexts import setting
from tape_core.base.dtypes import float32
from tape_core.base.lookup import ops
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.levels import BatchedArray
from tape_core.engine.recording import recorders_around
from tape_core.engine.tensor import Tensor, wrap
from tape_core.typing import Cotangent, Namespace, RawDType, Slot

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.rules import Rule


def accumulate_each(
    xp: Namespace,
    cotangents: Sequence[Cotangent],
    slots: Sequence[Slot],
    specs: Sequence[tuple[Any, Any]],
    grads: list[Cotangent],
    rule: Rule,
) -> None:
    """Add the cotangents of an input that is a sequence of arrays to `grads`; None stands for no cotangent."""
    if len(cotangents) != len(slots):
        raise ValueError(f"{rule.where} returned {len(cotangents)} cotangents for {len(slots)} arrays")
    for d, i, spec in zip(cotangents, slots, specs, strict=True):
        if i is not None and d is not None:
            h = grads[i]
            if isinstance(d, IndexedSlices):
                grads[i] = d if h is None else d + h
                continue
            d = checked(xp, d, spec, rule)
            grads[i] = d if h is None else h + d


ELEMENTS, ALL = 1, 2
"""How far a mask of a tape reaches: a cotangent of 0 stays 0 through elementwise ops alone, or through all ops."""


def mask_nans(xp: Namespace, g: Cotangent, d: Cotangent, partial: Any = None) -> Any:
    """Return `d` with 0 in place of the NaN that a zero cotangent makes of an infinite or undefined derivative.

    Nothing else is replaced: elsewhere a zero cotangent may have a derivative of its own, which another tape records.

    Args:
        partial: the factor by which `d` is the product with `g`, if it is one.
    """
    if has_no_nan(d):
        return d
    found = xp.where(xp.logical_and(g == 0, xp.isnan(d)), 0, d)
    return _mask_tangents(found, g, partial, lambda g: g == 0) if type(found) is Tensor else found


def mask_nans_of_all(xp: Namespace, g: Cotangent, d: Cotangent) -> Any:
    """Return `d` with 0 in place of NaN if all of the cotangent is 0: the elements of `d` are not those of `g`."""
    if has_no_nan(d):
        return d
    found = xp.where(xp.logical_and(xp.isnan(d), xp.logical_not(xp.any(g != 0))), 0, d)
    return (
        _mask_tangents(found, g, None, lambda g: ops.logical_not(ops.any(g != 0))) if type(found) is Tensor else found
    )


def _mask_tangents(d: Tensor, g: Any, partial: Any, is_zero: Callable[[Any], Any]) -> Tensor:
    """Mask the tangents of a cotangent in the same way: its value is 0, and yet its tangent NaN, as of 0 * sqrt(x).

    The partial derivative may be the zero, too: where it is a cotangent of a sweep inside, behind a mask there.

    Args:
        d: a result of nobody else's, whose tangents are replaced.
    """
    for recorder in ACTIVE.get():
        if not recorder._forward or (t := _tangent_of(d, recorder._key)) is None:
            continue
        with setting(ACTIVE, recorders_around(recorder)):
            moved = _tangent_of(g, recorder._key)
            zero = is_zero(g) if moved is None else ops.logical_and(is_zero(g), is_zero(moved))
            change = None
            if moved is not None and type(partial) is Tensor:
                change = _tangent_of(partial, recorder._key)
                constant = partial == 0 if change is None else ops.logical_and(partial == 0, change == 0)
                zero = ops.logical_or(zero, constant)
            # Those around have a tangent of this tangent.
            masked = _mask_tangents(
                ops.where(ops.logical_and(zero, ops.isnan(t)), 0, t),
                g if moved is None else moved,
                partial if change is None else change,
                is_zero,
            )
            _replace_tangent(d, recorder._key, masked)
    return d


def _tangent_of(value: Any, key: int) -> Tensor | None:
    """Return the tangent of a value for an accumulator, which may be outside of the vmaps that the value is in."""
    if type(value) is not Tensor:
        return None
    if type(t := value._slots.get(key)) is Tensor:
        return t
    if type(array := value._array) is not BatchedArray or (t := _tangent_of(array.value, key)) is None:
        return None
    if t.backend.level < value.backend.level:
        return wrap(BatchedArray(t, array.backend, array.axis), value.backend)
    return t if array.axis is None else None  # a value that examples share may have a tangent for each


def _replace_tangent(value: Any, key: int, tangent: Tensor) -> None:
    """Put another tangent where `_tangent_of` finds one: on each level of vmap that an accumulator has seen."""
    if type(value._slots.get(key)) is Tensor:
        value._slots[key] = tangent
    if type(array := value._array) is BatchedArray:
        is_lowered = tangent.backend.level == value.backend.level and tangent._array.axis is array.axis
        if is_lowered or array.axis is None:
            _replace_tangent(array.value, key, tangent._array.value if is_lowered else tangent)


def has_no_nan(d: Cotangent) -> bool:
    """Return True if an array surely has no NaN, as far as that is cheap to see: not of traced or batched ones."""
    kind = type(d)
    if kind not in _PLAIN:
        _PLAIN[kind] = kind.__module__.partition(".")[0] in ("numpy", "torch")
    if not _PLAIN[kind] or not getattr(d, "is_cpu", True):  # the host would have to wait for it
        return False
    # A NaN spreads through a sum, which makes no array as `isnan` would.
    total = d.sum()
    return bool(total == total)  # infinities may add up to NaN, too: then look at each element


_PLAIN: dict[type, bool] = {}
"""Classes of arrays that were met: True if the values are at hand, as of NumPy; not of traced or batched ones."""


def widening(backend: Backend, xp: Namespace) -> Callable[[Any], Any]:
    """Return a function that converts arrays of a dtype that is narrow on the backend to float32, and nothing else."""
    narrow, single = backend.narrow, backend.raw_dtype(float32)

    def wide(value: Cotangent) -> Any:
        if type(value) is tuple:
            return tuple(map(wide, value))
        dtype = getattr(value._array if isinstance(value, Tensor) else value, "dtype", None)
        if dtype is None or type(value) is IndexedSlices or backend.dtype(dtype) not in narrow:
            return value
        return xp.astype(value, single)

    return wide


def project(xp: Namespace, d: Cotangent, spec: tuple[Any, Any]) -> Any:
    """Return a cotangent of an elementwise op's input, summed back over broadcasting, in the input's dtype."""
    shape, dtype = spec
    given = d.shape
    if given != shape:
        extra = len(given) - len(shape)
        if extra > 0 and given[extra:] == shape:  # the common case, a bias: only leading axes were added
            d = xp.sum(d, axis=0 if extra == 1 else tuple(range(extra)))
            return d if d.dtype is dtype else cast(xp, d, dtype)
        if extra < 0 or 0 in given:  # a rule may return less than the result's shape, such as a number
            d = xp.broadcast_to(d, broadcast_shape(tuple(given), tuple(shape)))
            given = d.shape
            extra = len(given) - len(shape)
        # Broadcasting has added the leading axes, and stretched those of length 1.
        axes = (*range(extra), *(extra + k for k, n in enumerate(shape) if n == 1 and given[extra + k] != 1))
        if axes:
            d = xp.sum(d, axis=axes)
        # The stretched axes were summed away and come back here with length 1; `sum` with keepdims would keep the
        # leading ones.
        if d.shape != shape:
            d = xp.reshape(d, shape)
    return d if d.dtype is dtype else cast(xp, d, dtype)


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which two shapes broadcast."""
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def unequal(shapes: Sequence[tuple[int, ...]]) -> str | None:
    """Return that shapes do not broadcast, if it is so."""
    for k in range(1, 1 + max(map(len, shapes), default=0)):
        if len({shape[-k] for shape in shapes if len(shape) >= k} - {1}) > 1:
            return f"the shapes {', '.join(map(str, shapes))} do not broadcast"
    return None


def cast(xp: Namespace, d: Cotangent, dtype: RawDType) -> Any:
    """Return `d` in another dtype; a real input has a real gradient, so an imaginary part is dropped."""
    if dtype is None or (d._array if isinstance(d, Tensor) else d).dtype == dtype:
        return d
    if xp.isdtype(d.dtype, "complex floating") and not xp.isdtype(dtype, "complex floating"):
        d = xp.real(d)
    return xp.astype(d, dtype)


def checked(xp: Namespace, d: Cotangent, spec: tuple[Any, Any], rule: Rule) -> Any:
    """Return a cotangent of an input in the input's dtype, after a check of the shape.

    Raises:
        ValueError: the rule made another shape: a mistake in the rule that summing would hide.
    """
    shape, dtype = spec
    if tuple(d.shape) != tuple(shape):
        raise ValueError(f"{rule.where} returned a cotangent of shape {tuple(d.shape)}; the input has {tuple(shape)}")
    return cast(xp, d, dtype)


def conj(value: Cotangent) -> Any:
    """Return the conjugate of a complex cotangent. Rules are plain transposes, gradients are conjugated (`rules`)."""
    if isinstance(value, IndexedSlices):
        return IndexedSlices(conj(value.values), value.indices, value.dense_shape)
    if value.dtype.kind != "complex floating":
        return value
    return ops.conj(value)
