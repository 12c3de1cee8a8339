"""Elementwise ops of divided arrays, computed in each process on its own part of them.

Where arrays lie alike, nothing is to be sent, and the part of a result is the kernel's result of the parts. How that
result is divided, PyTorch says once: in the first call of a kernel with arrays that lie so. Later ones are a lookup and
the kernel, without PyTorch's way from a DTensor to its part and back. The kernel meets plain tensors there, and takes
the short ways that it has for them.

Whether a call is a later one each process decides by itself: either way it sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.utils._pytree import tree_map_only

from tape_torch.divided import is_watched, own_part, part_of
from tape_torch.divided_specs import divided_as, with_spec

Key = tuple[Any, ...]

NUMBERS: Final = frozenset({bool, int, float, complex})
_NONE: Final[dict[str, Any]] = {}
_KNOWN_MOST: Final = 4096
"""Kinds of calls that are known: when there are more, as where numbers are others in each call, all are forgotten."""


class _Known(NamedTuple):
    """What the first call of a kind has made.

    Attributes:
        spec: how the result is divided.
        shape, dtype: of this process's part.
        is_whole: whether nothing is left to be added up.
        is_left: whether it is terms of a sum that a backward sweep leaves for the end.
    """

    spec: Any
    shape: torch.Size
    dtype: torch.dtype
    is_whole: bool
    is_left: bool


_known: dict[Key, _Known] = {}

seen: dict[Key, bool] = {}
"""The kinds of calls of other ops that there have been, and whether they were noted; see `divided_calls`."""


def key_of(kernel: Callable[..., Any], args: tuple[Any, ...]) -> Key | None:
    """Return what the layout of a kernel's result depends on; None for calls that are not to be known.

    These are the layouts, shapes and dtypes of arrays, and the types of numbers.
    """
    key: list[Any] = [kernel]
    for x in args:
        kind = type(x)
        if kind is DTensor:
            if x.requires_grad:  # PyTorch's autograd sees what is computed of it
                return None
            add_layout(x, key)
        elif kind in NUMBERS:
            key.append(kind)
        else:
            return None
    return tuple(key)


def add_layout(x: Any, key: list[Any]) -> None:
    """Put how an array lies into a key, and on which mesh: one of a former process group may be like that of now."""
    spec = x._spec
    key.append(spec)
    key.append(id(spec.mesh))  # which the description keeps


def on_known_parts(
    key: Key | None, kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] = _NONE
) -> tuple[Any, bool] | None:
    """Return the result of a kernel if there was a call of this kind before, and whether nothing is to be added up.

    None if there was no such call.
    """
    found = _known.get(key) if key is not None else None
    if found is None or is_watched():
        return None
    part = kernel(*[own_part(x) if type(x) is DTensor else x for x in args], **kwargs)
    if type(part) is not torch.Tensor or part.dtype is not found.dtype or part.shape != found.shape:
        return None  # a setting that is none of the arguments, such as autocast
    return with_spec(part, found.spec), found.is_whole


class Quick(NamedTuple):
    """What calls of a kernel with arrays of just these descriptions make.

    Attributes:
        known: what the first call of the kind has made.
        specs: the descriptions, which are held: as long as they are, no others have their identities.
    """

    known: _Known
    specs: list[Any]


def quick_of(key: Key | None, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Quick] | None:
    """Return how a call that is known is found by the identities of descriptions, and what is kept for it.

    Descriptions that are equal are one object, nearly always: to compare identities takes less time than to hash them.
    """
    found = _known.get(key) if key is not None else None
    if found is None:
        return None
    specs = [x._spec for x in args if type(x) is DTensor]
    return tuple([id(x._spec) if type(x) is DTensor else type(x) for x in args]), Quick(found, specs)


def note(key: Key | None, args: tuple[Any, ...], found: Any) -> None:
    """Note the result of an elementwise op, if nothing had to be sent for it, and nothing was left to be added up."""
    if key is not None and key not in _known and type(found) is DTensor and not is_watched():
        remember(
            key, args, found, lambda: all([type(x) is not DTensor or _lies_like(x._spec, found._spec) for x in args])
        )


def remember(key: Key, args: tuple[Any, ...], found: Any, holds: Callable[[], bool]) -> None:
    """Have later calls of a kind be the kernel's, of parts, and give results that are divided as this one.

    Args:
        holds: whether the part of the result is what the kernel makes of the parts.
    """
    part, spec = found._local_tensor, found._spec
    if type(part) is not torch.Tensor or part.dtype is not spec.tensor_meta.dtype or not holds():
        return
    mesh = next(x._spec.mesh for x in args if type(x) is DTensor)
    if spec.mesh is not mesh:  # PyTorch knows calls by meshes that are alike
        own = DTensorSpec(mesh, spec.placements, tensor_meta=spec.tensor_meta)
        if own != spec:
            return
        spec = own
    if len(_known) >= _KNOWN_MOST:
        _known.clear()
        seen.clear()  # so that they are noted anew
    is_whole = not any([p.is_partial() for p in spec.placements])
    _known[key] = _Known(spec, part.shape, part.dtype, is_whole, not is_whole and is_left(spec))


def is_left(spec: Any) -> bool:
    """Return whether a backward sweep leaves an array as it is: it may be terms of a sum, but not of one number.

    Where a sweep ends, the sum is taken in the layout of the source. Of a mean that is still to be taken PyTorch
    computes further in the layout of the mean: large for a large array beside it. Rows of a table that is divided by
    rows are sums of another class, which only their own shape can be taken of.
    """
    terms = [p for p in spec.placements if p.is_partial()]
    return all([type(p) is Partial and p.is_partial("sum") and bool(spec.shape) for p in terms])


def _lies_like(own: Any, of: Any) -> bool:
    """Return whether each process has the part of an operand that its part of the result is computed of.

    Args:
        own, of: PyTorch's descriptions of the operand, and of the result, to which the operand is broadcast.
    """
    if own.mesh != of.mesh or not _is_plain(own) or not _is_plain(of):
        return False
    return _as_in(of.placements, of.shape, own.shape) == list(own.placements)


@lru_cache(maxsize=1024)
def _is_plain(spec: Any) -> bool:
    """Return whether an array is divided by parts one after the other, first along the first axis of the mesh."""
    if any([type(p) not in (Shard, Replicate) for p in spec.placements]):
        return False
    # In any order if it is divided along one axis of the mesh.
    dims = [p.dim for p in spec.placements if type(p) is Shard]
    return len(dims) == len(set(dims))


def _as_in(placements: Any, shape: Any, own: Any) -> list[Placement]:
    """Return the placements of an operand, of which each process has what it needs for its part of the result.

    Args:
        placements, shape: of the result.
        own: the shape of the operand.
    """
    missing = len(shape) - len(own)
    found: list[Placement] = []
    for p in placements:
        axis = p.dim - missing if isinstance(p, Shard) else -1
        found.append(Shard(axis) if axis >= 0 and own[axis] == shape[axis + missing] else Replicate())
    return found


def on_parts(kernel: Callable[..., Any], mesh: DeviceMesh, arrays: list[DTensor], args: Any, kwargs: Any) -> Any:
    """Call the kernel of an elementwise op on this process's parts of its arguments, all divided in the same way.

    Args:
        arrays: those among the arguments, which are laid out alike first.
    """
    shape = torch.broadcast_shapes(*[x.shape for x in arrays])  # type: ignore[no-untyped-call]
    placements = [_common(arrays, shape, k) for k in range(mesh.ndim)]

    def part(x: DTensor) -> torch.Tensor:
        return part_of(x.redistribute(mesh, _as_in(placements, shape, x.shape)))

    args, kwargs = tree_map_only(DTensor, part, (args, kwargs))
    stride = torch.empty(shape, device="meta").stride()

    def joined(x: torch.Tensor) -> DTensor:
        return DTensor.from_local(x, mesh, placements, run_check=False, shape=shape, stride=stride)

    return tree_map_only(torch.Tensor, joined, kernel(*args, **kwargs))


def _common(arrays: list[DTensor], shape: torch.Size, k: int) -> Placement:
    """Return the placement of a result along a dimension of the mesh: that of the first operand that is divided."""
    for x in arrays:
        placement = x.placements[k]
        if isinstance(placement, Shard):
            axis = placement.dim + len(shape) - x.ndim
            if x.shape[placement.dim] == shape[axis]:
                return Shard(axis)
    return Replicate()


def scaled(
    g: Any,
    partial: Callable[..., Any],
    arguments: tuple[Any, ...],
    scale: Callable[[Any, Callable[..., Any], tuple[Any, ...], bool], Any],
) -> Any:
    """Return `g * partial(...)`, of the parts if all arrays are divided alike; None if they are not.

    Args:
        partial: the derivative of an elementwise op.
        scale: computes it of plain tensors; the last argument is whether in the memory of the first.
    """
    if type(g) is not DTensor or is_watched():
        return None
    if g.requires_grad:
        return None
    model, part = g, own_part(g)
    like = next((x for x in arguments if type(x) is DTensor), g)
    if not any(part.stride()) and all([p.is_replicate() for p in g.placements]) and like.shape == g.shape:
        # One number in all places, as the cotangent of what goes into a sum: each process takes as many as it needs.
        model, part = like, part.as_strided(own_part(like).shape, part.stride())
    spec = model._spec
    if not _is_plain(spec):
        return None
    parts = []
    for x in arguments:
        if type(x) is DTensor:
            own = x._spec
            if x.requires_grad or (own is not spec and not (own.shape == spec.shape and _lies_like(own, spec))):
                return None
            x = own_part(x)
        elif isinstance(x, torch.Tensor):
            return None
        parts.append(x)
    found = scale(part, partial, tuple(parts), False)
    if type(found) is not torch.Tensor or found.shape != part.shape:
        return None
    # A cotangent may be one number in all places of an array, as that of a sum is; what comes of it lies as arrays do.
    for own, x in ((part, model), *zip(parts, arguments, strict=True)):
        if type(x) is DTensor and own.stride() == found.stride() and own.dtype is found.dtype:
            return with_spec(found, x._spec)
    return divided_as(found, model) if found.is_contiguous() else None
