"""A complete backend for any library that conforms to the Array API standard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tape_core.backends.protocol import Backend
from tape_core.base.ambient import LOADING


class ArrayAPIBackend(Backend):
    """The backend of a conforming library, from its namespace alone.

    >>> import array_api_strict
    >>> from tape_core.backends import ArrayAPIBackend
    >>> ArrayAPIBackend("strict", array_api_strict).array_types
    ('array_api_strict._array_object:Array',)

    Args:
        name: the backend's name, the same as its entry point's.
        namespace: the library's Array API namespace.
        array_types: its array classes as `"module:qualname"`; by default the class of `namespace.empty(0)`.
        kernels, rules, version: as in :class:`~tape_core.backends.Backend`.

    Raises:
        TypeError: `namespace` is none.
        ValueError: a kernel or rule has a name that looks like a misspelled one of an op. In a plugin this is checked
            after `tape_register_rules` has declared its ops.
    """

    def __init__(
        self,
        name: str,
        namespace: Any,
        *,
        array_types: Sequence[str] = (),
        kernels: Mapping[str, Callable[..., Any]] | None = None,
        rules: Mapping[str, Mapping[str, Any]] | None = None,
        version: str | None = None,
    ) -> None:
        if not callable(getattr(namespace, "asarray", None)):
            raise TypeError(
                f"ArrayAPIBackend({name!r}): namespace must be an Array API namespace such as array_api_compat.numpy; "
                f"{namespace!r} has no asarray"
            )
        if not array_types:
            # As text, like those of a plugin's info: types are compared by name, so that no library need be imported.
            array_type = type(namespace.empty((0,)))
            array_types = (f"{array_type.__module__}:{array_type.__qualname__}",)
        super().__init__(name, namespace, array_types=array_types, kernels=kernels, rules=rules, version=version)
        if not LOADING.get():
            from tape_core.backends.names import refuse_names

            refuse_names(self)
