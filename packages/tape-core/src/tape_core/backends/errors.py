"""The errors of backends and compilers: each names the fault, the package that has it, and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from tape_core.base.installing import install_command

PACKAGES = {"numpy": "tape-numpy", "torch": "tape-torch", "jax": "tape-jax"}
"""The packages of the Tape project, for install hints: nothing is ever imported by these names."""


class PluginError(RuntimeError):
    """A plugin, a backend or a compiler, cannot be used as asked."""


class PluginLoadError(PluginError):
    """A plugin is installed but cannot be loaded; `__cause__` is what it raised, if any.

    Attributes:
        problem: what is wrong, in one line and without the plugin's name.
    """

    problem: str = ""

    @classmethod
    def of(cls, plugin: str, problem: str, *hints: str) -> Self:
        """Return the error for a plugin; its text has the problem and, a line each, hints what to do.

        >>> print(BackendLoadError.of("backend 'torch' (tape-torch 0.1.0)", "it is broken", "Mend it"))
        backend 'torch' (tape-torch 0.1.0) cannot be loaded: it is broken
          Mend it
        """
        problem = " ".join(problem.split())  # a cause of many lines is shown whole by its own traceback
        error = cls("\n  ".join([f"{plugin} cannot be loaded: {problem}", *hints]))
        error.problem = problem
        return error


class BackendError(PluginError):
    """A backend cannot be used as asked; the base of the other two.

    >>> issubclass(BackendNotFoundError, BackendError) and issubclass(BackendLoadError, BackendError)
    True
    """


class BackendNotFoundError(BackendError):
    """No installed package provides a backend of this name."""


class BackendLoadError(PluginLoadError, BackendError):
    """A backend is installed but cannot be loaded; `__cause__` is what its plugin raised, if any.

    Attributes:
        problem: what is wrong, in one line and without the plugin's name.
    """


class BackendMismatchError(TypeError):
    """An op has Tensors of two array libraries as operands.

    Attributes:
        places: the library's backend and the device of each of these Tensors.
    """

    places: tuple[tuple[Any, str], ...] = ()


class CompilerError(PluginError):
    """A compiler cannot be used as asked; the base of the other two."""


class CompilerNotFoundError(CompilerError, ValueError):
    """No installed package provides a compiler of this name."""


class CompilerLoadError(PluginLoadError, CompilerError):
    """A compiler is installed but cannot be loaded; `__cause__` is what its plugin raised, if any."""


class AxisError(ValueError, IndexError):
    """An array does not have this axis; a ValueError and an IndexError, as in NumPy."""


class BatchError(TypeError, ValueError):
    """An operation is impossible inside :func:`~tape_core.vmap`, where a Tensor stands for many examples at once."""


def listing(names: Iterable[str]) -> str:
    """Return names of backends as messages show them.

    >>> listing(["torch", "numpy"]), listing([])
    ('numpy, torch', 'none')
    """
    return ", ".join(sorted(names)) or "none"


# What users write for a backend, and the backends that have such devices, the likeliest first.
_DEVICES = {
    "cuda": ("torch",),
    "mps": ("torch",),
    "xpu": ("torch",),
    "gpu": ("jax",),
    "tpu": ("jax",),
    "cpu": ("numpy", "torch", "jax"),
}


def not_found(name: str, installed: Iterable[str], detail: str = "") -> BackendNotFoundError:
    """Return the error for a name that no installed package provides.

    Where the name looks misspelled the message does not suggest to pip-install the misspelling.

    >>> print(not_found("numpi", ["numpy"]))
    no backend named 'numpi' is installed
      Did you mean 'numpy'?
      Installed backends: numpy
    >>> print(not_found("cuda", ["numpy", "torch"]))
    no backend named 'cuda' is installed
      'cuda' is a kind of device: name the backend as well, as in 'torch:cuda'
      Installed backends: numpy, torch
    """
    from difflib import get_close_matches

    installed = list(installed)
    lines = [f"no backend named {name!r} is installed{detail}"]
    # Installing a package by a misspelled name could bring a stranger's: only names of the project are suggested.
    close = [] if name.lower() in _DEVICES else get_close_matches(name, [*installed, *PACKAGES], n=1)
    if name not in PACKAGES and close:
        lines.append(f"Did you mean {close[0]!r}?")
        if close[0] not in installed:
            lines.append(f"To install it: {install_command(PACKAGES[close[0]])}")
    elif name in PACKAGES:
        lines.append(f"To install it: {install_command(PACKAGES[name])}")
    elif (device := name.lower()) in _DEVICES:
        backend = next((b for b in _DEVICES[device] if b in installed), _DEVICES[device][0])
        lines.append(f"{name!r} is a kind of device: name the backend as well, as in '{backend}:{device}'")
    lines.append(f"Installed backends: {listing(installed)}")
    return BackendNotFoundError("\n  ".join(lines))


def load_error(plugin: str, problem: str, *hints: str) -> BackendLoadError:
    """Return the error for an installed backend that cannot be loaded; see :meth:`PluginLoadError.of`."""
    return BackendLoadError.of(plugin, problem, *hints)
