"""Backends: what a plugin author implements, and how backends are found and selected."""

from tape_core.backends.array_api import ArrayAPIBackend
from tape_core.backends.checks import check_conv, check_convolve, check_csr, check_inexact, check_labels, check_top_k
from tape_core.backends.errors import (
    AxisError,
    BackendError,
    BackendLoadError,
    BackendNotFoundError,
    CompilerError,
    CompilerLoadError,
    CompilerNotFoundError,
)
from tape_core.backends.hookspecs import CONTRACT_VERSION, BackendInfo, CompilerInfo, hookimpl
from tape_core.backends.protocol import Backend
from tape_core.backends.windows import Windows, normal_axes, pool_windows, spatial_axes, transposed_windows, windows
from tape_core.base.dtypes import get_default_dtype

__all__ = [
    "CONTRACT_VERSION",
    "ArrayAPIBackend",
    "AxisError",
    "Backend",
    "BackendError",
    "BackendInfo",
    "BackendLoadError",
    "BackendNotFoundError",
    "CompilerError",
    "CompilerInfo",
    "CompilerLoadError",
    "CompilerNotFoundError",
    "Windows",
    "check_conv",
    "check_convolve",
    "check_csr",
    "check_inexact",
    "check_labels",
    "check_top_k",
    "get_default_dtype",
    "hookimpl",
    "normal_axes",
    "pool_windows",
    "spatial_axes",
    "transposed_windows",
    "windows",
]
