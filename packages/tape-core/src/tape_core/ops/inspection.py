"""The inspection functions of the Array API standard: what the namespace and the selected backend can do."""

from __future__ import annotations

from typing import TypedDict

from tape_core.backends import selection
from tape_core.base import dtypes
from tape_core.base.dtypes import DType
from tape_core.ops.data_types import isdtype
from tape_core.typing import DTypeKind

Capabilities = TypedDict(
    "Capabilities", {"boolean indexing": bool, "data-dependent shapes": bool, "max dimensions": int | None}
)

# What the ops rely on, for a library that has no inspection functions of its own.
_DEFAULT_CAPABILITIES: Capabilities = {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}


class Info:
    """Facts about the selected backend, from :func:`__array_namespace_info__`."""

    def capabilities(self) -> Capabilities:
        """The optional parts of the standard, and whether the backend has them."""
        info = getattr(selection.select().backend.namespace, "__array_namespace_info__", None)
        found: Capabilities = info().capabilities() if info else _DEFAULT_CAPABILITIES.copy()
        return found

    def default_device(self) -> str:
        """The device on which arrays are made when none is named."""
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

    def dtypes(self, *, device: str | None = None, kind: DTypeKind = None) -> dict[str, DType]:
        """The dtypes of the standard that the selected backend has; `kind` selects among them, see :func:`isdtype`."""
        backend = selection.select(device=device).backend
        return {
            name: dtype
            for name, dtype in dtypes.DTYPES.items()
            if name not in ("float16", "bfloat16")
            and getattr(backend.namespace, name, None) is not None
            and (kind is None or isdtype(dtype, kind))
        }


def __array_namespace_info__() -> Info:
    """Describe what the namespace can do on the selected backend.

    >>> import tape_core as tc
    >>> tc.__array_namespace_info__().default_dtypes()["real floating"]
    float32
    """
    return Info()
