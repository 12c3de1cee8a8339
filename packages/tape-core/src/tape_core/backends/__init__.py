"""Backends: the contract that a plugin implements, and how backends are found and selected."""

from tape_core.backends import compilers
from tape_core.backends.array_api import ArrayAPIBackend
from tape_core.backends.axes import line_axis, normal_axis
from tape_core.backends.checks import (
    check_conv,
    check_convolve,
    check_csr,
    check_inexact,
    check_labels,
    check_top_k,
    label_error,
)
from tape_core.backends.discovery import backend_of_type, info, installed, is_host_array
from tape_core.backends.errors import (
    AxisError,
    BackendError,
    BackendLoadError,
    BackendMismatchError,
    BackendNotFoundError,
    CompilerError,
    CompilerLoadError,
    CompilerNotFoundError,
)
from tape_core.backends.flows import Flows
from tape_core.backends.given_rules import Rule
from tape_core.backends.hookspecs import BackendInfo, CompilerInfo, hookimpl
from tape_core.backends.kernels import (
    COMPARISONS,
    COMPLEX_KERNELS,
    DEFAULT_KERNELS,
    OPERATORS,
    REFUSED,
    SIGNS,
    WHOLE,
    Kernels,
)
from tape_core.backends.names import unknown_names
from tape_core.backends.protocol import Backend
from tape_core.backends.random_kernels import RandomKernels
from tape_core.backends.selection import Selection, select, use_backend
from tape_core.backends.versions import CONTRACT_VERSION, require_core
from tape_core.backends.windows import (
    Axes,
    Ints,
    Layout,
    Padding,
    Windows,
    ints,
    normal_axes,
    pool_windows,
    spatial_axes,
    transposed_windows,
    windows,
)
from tape_core.base.dtypes import get_default_dtype
from tape_core.base.installing import install_command

__all__ = [
    "COMPARISONS",
    "COMPLEX_KERNELS",
    "CONTRACT_VERSION",
    "DEFAULT_KERNELS",
    "OPERATORS",
    "REFUSED",
    "SIGNS",
    "WHOLE",
    "ArrayAPIBackend",
    "Axes",
    "AxisError",
    "Backend",
    "BackendError",
    "BackendInfo",
    "BackendLoadError",
    "BackendMismatchError",
    "BackendNotFoundError",
    "CompilerError",
    "CompilerInfo",
    "CompilerLoadError",
    "CompilerNotFoundError",
    "Flows",
    "Ints",
    "Kernels",
    "Layout",
    "Padding",
    "RandomKernels",
    "Rule",
    "Selection",
    "Windows",
    "backend_of_type",
    "check_conv",
    "check_convolve",
    "check_csr",
    "check_inexact",
    "check_labels",
    "check_top_k",
    "compilers",
    "get_default_dtype",
    "hookimpl",
    "info",
    "install_command",
    "installed",
    "ints",
    "is_host_array",
    "label_error",
    "line_axis",
    "normal_axes",
    "normal_axis",
    "pool_windows",
    "require_core",
    "select",
    "spatial_axes",
    "transposed_windows",
    "unknown_names",
    "use_backend",
    "windows",
]
