"""Ops of divided arrays of which PyTorch computes with parts what the kernel does, called on the parts at once.

For each op on DTensors PyTorch asks how it is divided, and what is to be sent. Often nothing is, and it calls of the
parts what the kernel would call of them: as for rows of a batch times a weight that each process has, or their sum.
Whether it is so depends on how the arrays lie, on their shapes and dtypes, and on the other arguments. So in the second
call of a kind, what PyTorch calls is noted, and compared with what the kernel calls of the parts alone. Where these are
the same, from the third call on the kernel is called on the parts, and the result is divided as PyTorch said.

No rule of how ops are divided is written here. A process whose calls are the same may have peers whose calls are not,
a last one with a shorter part, say: what is computed is the same, and nothing is sent in either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tape_torch.divided import is_watched, own_part
from tape_torch.divided_parts import Key, add_layout, remember, seen
from tape_torch.divided_specs import with_spec

_VALUES: Final = frozenset({bool, int, float, complex, str, type(None), torch.dtype, type(...)})
_AS_THEY_ARE: Final = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})
_SEEN_MOST: Final = 4096


def key_with_values(kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
    """Return what PyTorch's way depends on; None for calls that are not to be noted."""
    key: list[Any] = [kernel]
    for x in (*args, *kwargs.items()) if kwargs else args:
        if type(x) is DTensor:
            if x.requires_grad:  # PyTorch's autograd sees what is computed of it
                return None
            add_layout(x, key)
        elif not _add_value(x, key):
            return None
    return tuple(key)


def _add_value(x: Any, key: list[Any]) -> bool:
    """Put a value, and what it is, into a key; return False for one that has no place there."""
    kind = type(x)
    if kind in _VALUES:
        key.append(kind)
        key.append(x)
        return True
    if kind is slice:
        x = (x.start, x.stop, x.step)
    elif kind is not tuple and kind is not list and kind is not torch.Size:
        return False
    key.append(kind)
    key.append(len(x))
    return all([_add_value(part, key) for part in x])


def noted(
    key: Key | None, way: Callable[..., Any], kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call `way`, which computes with DTensors; in the second call of a kind, note whether the kernel does of parts."""
    if key is None or seen.get(key) or (key in seen and is_watched()):
        return way(*args, **kwargs)
    if key not in seen:
        if len(seen) >= _SEEN_MOST:
            seen.clear()
        seen[key] = False
        return way(*args, **kwargs)
    seen[key] = True
    args = tuple([with_spec(own_part(x), x._spec) if type(x) is DTensor else x for x in args])
    parts = [x._local_tensor if type(x) is DTensor else x for x in args]
    with _Calls(parts) as theirs:
        found = way(*args, **kwargs)
    if type(found) is DTensor and theirs.can_be_compared and found.device_mesh.get_coordinate() is not None:
        part = found._local_tensor
        if type(part) is torch.Tensor:
            remember(key, args, found, lambda: _is_same(part, theirs, kernel, parts, kwargs))
    return found


def _is_same(
    part: torch.Tensor, theirs: _Calls, kernel: Callable[..., Any], parts: list[Any], kwargs: dict[str, Any]
) -> bool:
    with _Calls(parts) as ours:
        try:
            own = kernel(*parts, **kwargs)
        except Exception:  # noqa: BLE001 - of parts it is another op
            return False
    return (
        type(own) is torch.Tensor
        and ours.can_be_compared
        and ours.calls == theirs.calls
        and ours.numbers.get(id(own)) == theirs.numbers.get(id(part))
        and own.shape == part.shape
        and own.dtype is part.dtype
        and own.stride() == part.stride()
    )


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what is called of plain tensors.

    Attributes:
        calls: of each its function, its arguments with numbers in place of tensors, and how these are nested.
        numbers: the number of each tensor, by its identity.
        can_be_compared: whether nothing was called that looks at values, draws, sends or writes, or gets a tensor of
            unknown origin.
    """

    def __init__(self, given: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.can_be_compared = True
        self._kept: list[Any] = []
        self._next = 0
        for x in given:
            if isinstance(x, torch.Tensor):
                self._give(x)

    def _give(self, tensor: torch.Tensor, number: int | None = None) -> None:
        if number is None:
            number, self._next = self._next, self._next + 1
        self.numbers[id(tensor)] = number
        self._kept.append(tensor)  # `numbers` has its identity

    def _named(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return type(x), x
        number = self.numbers.get(id(x))
        if number is None:
            self.can_be_compared = False
        return torch.Tensor, number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note a call of parts; one of DTensors comes here again as calls of parts."""
        kwargs = kwargs or {}
        if any([kind is DTensor for kind in types]):
            return NotImplemented
        found = func(*args, **kwargs)
        if func.namespace in ("prim", "profiler"):
            return found
        if func in _AS_THEY_ARE:
            number = self.numbers.get(id(args[0]))
            if number is None:
                self.can_be_compared = False
            self._give(found, number)
            return found
        tags = getattr(func, "tags", ())
        if (
            func.namespace != "aten"
            or func._schema.is_mutable
            or torch.Tag.nondeterministic_seeded in tags
            or torch.Tag.data_dependent_output in tags
            or torch.Tag.dynamic_output_shape in tags
        ):
            self.can_be_compared = False
        leaves, nested = tree_flatten((args, kwargs))
        self.calls.append((func, [self._named(x) for x in leaves], nested))
        for x in tree_flatten(found)[0]:
            if isinstance(x, torch.Tensor):
                self._give(x)
            elif x is not None:
                self.can_be_compared = False
        return found
