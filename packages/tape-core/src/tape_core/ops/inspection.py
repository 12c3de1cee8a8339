"""Inspection of the namespace, as in the Array API standard."""

from __future__ import annotations

from typing import Any, TypedDict

from tape_core.backends import selection
from tape_core.base import dtypes
from tape_core.base.dtypes import DType
from tape_core.ops.data_types import isdtype

Capabilities = TypedDict(
    "Capabilities", {"boolean indexing": bool, "data-dependent shapes": bool, "max dimensions": int | None}
)

# Of a library that does not say: what the ops rely on.
_CAPABILITIES: Capabilities = {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}


class Info:
    """What :func:`__array_namespace_info__` gives: facts about the backend that is selected."""

    def capabilities(self) -> Capabilities:
        """Which optional parts of the standard are there."""
        info = getattr(selection.select().backend.namespace, "__array_namespace_info__", None)
        found: Capabilities = info().capabilities() if info else _CAPABILITIES.copy()
        return found

    def default_device(self) -> str:
        """Where arrays are made when no device is named."""
        chosen = selection.select()
        return chosen.device or chosen.backend.default_device

    def devices(self) -> tuple[str, ...]:
        """The devices of the selected backend."""
        return selection.select().backend.devices()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of arrays made of Python scalars."""
        return {
            "real floating": dtypes.default_for(float),
            "complex floating": dtypes.default_for(complex),
            "integral": dtypes.default_for(int),
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes of the standard that the selected backend has, of a kind as in :func:`isdtype`."""
        backend = selection.select(device=device).backend
        return {
            name: dtype
            for name, dtype in dtypes.DTYPES.items()
            if name not in ("float16", "bfloat16")
            and getattr(backend.namespace, name, None) is not None
            and (kind is None or isdtype(dtype, kind))
        }


def __array_namespace_info__() -> Info:
    """What the namespace can do, on the backend that is selected.

    >>> import tape_core as tc
    >>> tc.__array_namespace_info__().default_dtypes()["real floating"]
    float32
    """
    return Info()
