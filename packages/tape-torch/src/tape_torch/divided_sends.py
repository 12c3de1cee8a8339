"""What kernels of divided arrays send is noted, with what it is made of: see `tape_torch.votes`.

Which kernel sends something PyTorch decides, from layouts. That something was sent is told by the numbers by which
groups of processes count their collectives. It is noted by the name of the op, and of its arrays by the names of the
Variables in whose memory they are, or else by shapes and layouts. Terms of a sum that is still to be taken know what
they are the product of: they may be sent by an op that has no Variable. What sends nothing may differ.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from tape_torch.divided import describe
from tape_torch.divided_names import all_named, changes
from tape_torch.divided_origins import arrays_in
from tape_torch.mismatches import described_array
from tape_torch.votes import note

_LONGEST: Final = 400  # characters of what is told of one kernel
_KNOWN_MOST: Final = 4096  # calls


def followed(name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a kernel makes, and note what it has sent.

    Args:
        name: of the kernel.
        call: is called with the arguments.
    """
    groups = _groups_of((*args, *kwargs.values()) if kwargs else args)
    if not groups:
        return call(*args, **kwargs)
    before = [count() for _, count in groups]
    found = call(*args, **kwargs)
    for (group, count), sent in zip(groups, before, strict=True):
        if (sends := count() - sent) > 0:
            note(group, *_told(name, *_with_names((*args, *kwargs.values()))), sends)
    return with_terms(name, found, args) if type(found) is DTensor and _is_sum(found._spec) else found


def with_terms(name: str, found: Any, args: tuple[Any, ...]) -> Any:
    """Return what a kernel has made, which knows what it is the product of, if that is not told by shapes alone.

    Args:
        found: terms of a sum that is still to be taken.
    """
    if _has_names():
        arrays, names = _with_names(args)
        if any(names):
            found._tape_terms = _told(name, arrays, names)[1]
    return found


def _with_names(values: Iterable[Any]) -> tuple[list[Any], list[str | None]]:
    """Return the divided arrays among arguments, and what each is the product of, or the Variable that it is of."""
    arrays, has_names = list(arrays_in(values)), _has_names()
    return arrays, [_terms_of(x) or (_name_of(x) if has_names else None) for x in arrays]


def _told(name: str, arrays: Sequence[Any], names: Sequence[str | None]) -> tuple[int, str]:
    """Return what a kernel has been called with, in the words of users, and a checksum of it."""
    # By the identities of descriptions, which are kept: to hash them takes longer.
    key = (name, *[id(x._spec) if known is None else known for x, known in zip(arrays, names, strict=True)])
    found = _texts.get(key)
    if found is None:
        shown = [known or f"{described_array(x)} with {describe(x)}" for x, known in zip(arrays, names, strict=True)]
        text = f"{name.removeprefix('distributed_')} of {', '.join(shown)}"
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}... (checksum {crc32(text.encode()):08x})"
        if len(_texts) >= _KNOWN_MOST:
            _texts.clear()
        found = _texts[key] = crc32(text.encode()), text, [x._spec for x in arrays]
    return found[:2]


_texts: Final[dict[tuple[Any, ...], tuple[int, str, list[Any]]]] = {}


def _terms_of(x: Any) -> str | None:
    return getattr(x, "_tape_terms", None)


@lru_cache(maxsize=_KNOWN_MOST)
def _is_sum(spec: Any) -> bool:
    return any([p.is_partial() for p in spec.placements])


# -- groups of processes


_Groups = tuple[tuple[str, Callable[[], int]], ...]
"""The names of groups, and what returns how many collectives each has begun."""

_groups: Final[dict[int, tuple[DeviceMesh, _Groups]]] = {}


def _groups_of(values: Iterable[Any]) -> _Groups:
    """Return the groups of the mesh of the first divided array; none if there is none."""
    for value in values:
        kind = type(value)
        if kind is DTensor or kind is DeviceMesh:
            mesh = value.device_mesh if kind is DTensor else value
            known = _groups.get(id(mesh))
            return known[1] if known is not None and known[0] is mesh else _new_groups(mesh)
        if (kind is list or kind is tuple) and (found := _groups_of(value)):
            return found
    return ()


def _new_groups(mesh: DeviceMesh) -> _Groups:
    found = []
    for group in mesh.get_all_groups() if mesh.get_coordinate() is not None else ():
        count: Any = group._get_sequence_number_for_group  # type: ignore[attr-defined]
        with suppress(RuntimeError):  # it is none of processes
            count()
            if group.size() > 1:
                found.append((group.group_name, count))
    _groups[id(mesh)] = mesh, tuple(found)
    return tuple(found)


# -- names


_names: Final[dict[int, tuple[weakref.ref[Any], str]]] = {}
"""By the address of a part the Variable, and its name: of those of which processes have parts."""

_named: Final[list[tuple[weakref.ref[Any], str]]] = []
"""These Variables, and their names."""

_are_old: Final[list[Any]] = [True, None]
"""Whether Variables have new values since their addresses were noted, and which Variables there were."""


def names_change() -> None:
    """Say that Variables have new values."""
    _are_old[0] = True


def _has_names() -> bool:
    if _are_old[1] != changes[0]:
        _are_old[:] = [True, changes[0]]
        _named[:] = [
            (weakref.ref(variable), name) for variable, name in all_named() if _is_in_equal_parts(variable._raw)
        ]
    return bool(_named)


def _is_in_equal_parts(array: Any) -> bool:
    """Return whether each process has a part of an array that is as large, and not empty.

    The address of an empty part is no Variable's own: one process would take it for another Variable.
    """
    if type(array) is not DTensor:
        return False
    placements: tuple[Any, ...] = array._spec.placements
    lengths, is_divided = list(array.shape), False
    for placement, n in zip(placements, array.device_mesh.shape, strict=True):
        if placement.is_shard():
            lengths[placement.dim], rest = divmod(lengths[placement.dim], n)
            if rest:
                return False
            is_divided = True
    return is_divided and all(lengths)


def _name_of(x: Any) -> str | None:
    """Return the name of the Variable of which an array is the value, or a transpose of it; None if there is none."""
    address = x._local_tensor.data_ptr()
    known = _names.get(address)
    if known is None or not _is_at(known[0](), address):
        if not _are_old[0]:
            return None
        _are_old[0] = False
        _names.clear()
        for own in _named:
            array: Any = None if (variable := own[0]()) is None else variable._raw
            if type(array) is DTensor:
                _names[array._local_tensor.data_ptr()] = own
        known = _names.get(address)
    return None if known is None else known[1]


def _is_at(variable: Any, address: int) -> bool:
    array = None if variable is None else variable._raw
    return type(array) is DTensor and array._local_tensor.data_ptr() == address
