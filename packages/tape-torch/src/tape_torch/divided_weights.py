"""Weights of a divided model that are gathered together, eagerly, as FSDP gathers those of a module.

A process needs the whole of a weight to multiply its rows of a batch by it, in the forward pass and in the backward
pass. Small weights of a model that were needed so before are gathered by one collective for several, and are kept until
others have taken their place, a backward pass is over, or a Variable of theirs has a new value.

What is gathered, and kept, depends on the program and on layouts alone, which are the same in all processes.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import torch
from tape_core import Variable
from torch.distributed.tensor import DTensor, Replicate, Shard

from tape_torch.divided import is_here, own_part
from tape_torch.divided_names import name_of
from tape_torch.divided_specs import whole_as
from tape_torch.thresholds import GATHERED_KEPT_BYTES, GATHERED_TOGETHER_BYTES, SUMMED_ALONE_BYTES
from tape_torch.votes import note


class _Model:
    """The Variables of a model that was divided.

    Attributes:
        variables: in order.
        wanted: the numbers of those that have been needed whole.
    """

    def __init__(self, variables: Iterable[Variable]) -> None:
        self.variables = [weakref.ref(variable) for variable in variables]
        self.wanted: set[int] = set()


class _Kept(NamedTuple):
    """A weight that has been gathered.

    Attributes:
        part: this process's part: as long as it is held, nothing else has its memory.
        version: of the part then; what is written into it counts them up.
        whole: the array that each process has whole.
    """

    part: torch.Tensor
    version: int
    whole: Any


_models: list[_Model] = []
_model_of: dict[int, tuple[weakref.ref[Variable], _Model]] = {}
"""By the id of a Variable the model that it was divided with last."""

_kept: list[dict[int, _Kept]] = []
"""By the address of a part the weight: a dictionary for each collective, the last one at the end."""


def divided_together(variables: Iterable[Variable]) -> None:
    """Note Variables of one model, in the order in which it computes with them, more or less."""
    model = _Model(variables)
    _models[:] = [known for known in _models if any([variable() is not None for variable in known.variables])]
    _models.append(model)
    for key in [key for key, (variable, _) in _model_of.items() if variable() is None]:
        del _model_of[key]
    for variable in model.variables:
        if (found := variable()) is not None:
            _model_of[id(found)] = variable, model


def forget(array: Any) -> None:
    """Let go of whole weights if a divided array, the former value of a Variable, is one of them."""
    if _kept and type(array) is DTensor:
        address = own_part(array).data_ptr()
        if any([address in weights for weights in _kept]):
            _kept.clear()


def forget_all() -> None:
    """Let go of all whole weights."""
    _kept.clear()


def whole_of(x: Any) -> Any:
    """Return the copy in each process of a weight, or of its transpose, gathered together with others.

    None for other arrays, and for a weight that has not been needed before: it is gathered by itself.
    """
    if not _models or (axis := _divided_along(x)) is None:
        return None
    part = own_part(x)
    if type(part) is not torch.Tensor or part.is_inference():  # without values, say
        return None
    address = part.data_ptr()
    for weights in _kept:
        # The version is that of the part itself: a transpose that PyTorch makes of a DTensor has one of its own.
        if (known := weights.get(address)) is not None and known.part._version == known.version:
            return _as_given(known, x, part)
    found = _variable_of(address, part)
    if found is None:
        return None
    model, k = found
    if k not in model.wanted:
        model.wanted.add(k)
        return None
    known = _gathered(model, k, axis).get(address)
    return None if known is None else _as_given(known, x, part)


def whole_weight(x: Any) -> Any:
    """Return a weight of which each process has all, gathered together with others if it is known to be needed."""
    if is_here(x):
        return x
    found = whole_of(x)
    return x.redistribute(placements=[Replicate()] * x.device_mesh.ndim) if found is None else found


def _divided_along(x: Any) -> int | None:
    """Return the axis of the mesh that alone divides a small array, into equal parts; None if it is another array."""
    return _axis_of(x._spec) if type(x) is DTensor else None


@lru_cache(maxsize=1024)
def _axis_of(spec: Any) -> int | None:
    dtype, shape = spec.tensor_meta.dtype, spec.shape
    if not dtype.is_floating_point or not 0 < math.prod(shape) * dtype.itemsize < SUMMED_ALONE_BYTES:
        return None
    divided = [k for k, p in enumerate(spec.placements) if type(p) is not Replicate]
    if len(divided) != 1:
        return None
    place = spec.placements[divided[0]]
    if type(place) is not Shard or shape[place.dim] % spec.mesh.size(divided[0]):
        return None
    return divided[0]


def _variable_of(address: int, part: torch.Tensor) -> tuple[_Model, int] | None:
    """Return the model that has a Variable with this part, or with its transpose, and the number of the Variable."""
    for model in _models:
        for k, reference in enumerate(model.variables):
            variable = reference()
            if variable is None or type(variable) is not Variable or _model_of[id(variable)][1] is not model:
                continue
            array = variable._raw
            if _divided_along(array) is None:
                continue
            own = own_part(array)
            if own.data_ptr() == address and own.numel() == part.numel():
                return model, k
    return None


def _as_given(known: _Kept, x: Any, part: torch.Tensor) -> Any:
    own, whole = known.part, known.whole
    if part.shape == own.shape and part.stride() == own.stride() and x.shape == whole.shape:
        return whole
    if part.ndim == 2 and part.shape == own.shape[::-1] and part.stride() == own.stride()[::-1]:
        return whole.mT if x.shape == whole.shape[::-1] else None
    return None


def _gathered(model: _Model, k: int, axis: int) -> dict[int, _Kept]:
    """Gather a Variable and those beside it, and return them by the addresses of their parts."""
    first: Any = model.variables[k]()
    like = first._raw
    mesh, dtype = like.device_mesh, like.dtype
    count = mesh.size(axis)
    # Always the same Variables are together, whichever is asked for: a backward pass begins with the last one.
    groups: list[list[Any]] = [[]]
    names: list[list[str]] = [[]]
    total = 0
    asked, named = groups[0], names[0]
    for n in sorted(model.wanted):
        variable = model.variables[n]()
        array = None if variable is None else variable._raw
        if array is None or _divided_along(array) != axis or array.device_mesh != mesh or array.dtype is not dtype:
            continue
        nbytes = array.numel() * array.element_size()
        if groups[-1] and (total + nbytes > GATHERED_KEPT_BYTES or (total + nbytes) // count > GATHERED_TOGETHER_BYTES):
            groups.append([])
            names.append([])
            total = 0
        groups[-1].append(array)
        names[-1].append(name_of(variable) or "")
        total += nbytes
        if n == k:
            asked, named = groups[-1], names[-1]
    arrays = asked
    room = GATHERED_KEPT_BYTES - sum([x.numel() * x.element_size() for x in arrays])
    while _kept and sum([w.whole.numel() * w.whole.element_size() for ws in _kept for w in ws.values()]) > room:
        del _kept[0]
    parts = [own_part(x) for x in arrays]
    flat = torch.cat([part.reshape(-1) for part in parts])
    name = mesh.get_group(axis).group_name
    text = f"the gather of {', '.join(named)}"
    note(name, crc32(text.encode()), text)
    functions = torch.ops._c10d_functional
    everything = functions.wait_tensor(functions.all_gather_into_tensor(flat, count, name)).view(count, -1)
    weights = {}
    pieces_of = torch.split(everything, [part.numel() for part in parts], dim=1)
    for x, part, columns in zip(arrays, parts, pieces_of, strict=True):
        dim = x.placements[axis].dim
        pieces = columns.view(count, *part.shape)  # of each process
        whole = pieces.movedim(0, dim).reshape(x.shape).contiguous()
        weights[part.data_ptr()] = _Kept(part, part._version, whole_as(whole, x))
    _kept[:] = [known for known in _kept if not known.keys() & weights.keys()]  # written into since
    _kept.append(weights)
    return weights


def beside(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of an elementwise op; what each row gets, such as a bias, is whole if it must be."""
    arrays = [x for x in args if type(x) is DTensor]
    if len(arrays) < 2 or not _models:
        return args
    largest = max(arrays, key=lambda x: x.ndim)
    found = tuple([_beside(x, largest) if type(x) is DTensor and x.ndim < largest.ndim else x for x in args])
    return args if all([x is y for x, y in zip(found, args, strict=True)]) else found


def _beside(x: Any, largest: Any) -> Any:
    missing = largest.ndim - x.ndim
    if x.device_mesh != largest.device_mesh:
        return x
    for p, q in zip(x.placements, largest.placements, strict=True):
        if type(p) is Shard and type(q) is Shard and p.dim + missing != q.dim:
            whole = whole_of(x)
            return x if whole is None else whole
    return x
