"""Backends: what a plugin author implements, and how backends are found and selected."""

from tape_core.backends.array_api import ArrayAPIBackend
from tape_core.backends.errors import BackendError, BackendLoadError, BackendNotFoundError
from tape_core.backends.hookspecs import CONTRACT_VERSION, BackendInfo, hookimpl
from tape_core.backends.protocol import Backend

__all__ = [
    "CONTRACT_VERSION",
    "ArrayAPIBackend",
    "Backend",
    "BackendError",
    "BackendInfo",
    "BackendLoadError",
    "BackendNotFoundError",
    "hookimpl",
]
