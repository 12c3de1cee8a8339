"""Finding and loading compilers, the plugins of the entry-point group `tape.compilers`.

A compiler makes a faster function of the program that `tape_core.function` has traced. Core knows compilers by name and
description alone; programs, and the interface of a compiler, are in tape-compile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from tape_core.backends.errors import CompilerError, CompilerLoadError, CompilerNotFoundError, listing
from tape_core.backends.plugins import Installed, Plugins
from tape_core.base.installing import install_command

if TYPE_CHECKING:
    from tape_core.backends.hookspecs import CompilerInfo

GROUP = "tape.compilers"
PACKAGES = {"python": "tape-compile", "torch": "tape-torch", "cudagraph": "tape-torch", "xla": "tape-jax"}
"""The packages of the Tape project that bring compilers, for install hints: nothing is imported by these names."""


def _not_found(name: str, installed: Iterable[str]) -> CompilerNotFoundError:
    names = list(installed)
    lines = [f"no compiler named {name!r} is installed"]
    if name in PACKAGES:
        lines.append(f"To install it: {install_command(PACKAGES[name])}")
    elif close := get_close_matches(name, [*names, *PACKAGES], n=1):
        lines.append(f"Did you mean {close[0]!r}?")
    lines.append(f"Installed compilers: {listing(names)}")
    return CompilerNotFoundError("\n  ".join(lines))


def _check_info(info: CompilerInfo, refuse: Callable[..., NoReturn]) -> None:
    backends: object = info.backends  # whatever a plugin's author wrote
    if isinstance(backends, str) or not isinstance(backends, Iterable) or not all(isinstance(n, str) for n in backends):
        refuse(f"backends must be a tuple of names of backends, not {backends!r}")


def _make_plugins() -> Plugins[CompilerInfo]:
    return Plugins(
        kind="compiler",
        group=GROUP,
        disable="TAPE_DISABLE_COMPILERS",
        hooks=("tape_compiler_info", "tape_load_compiler"),
        check=_check_info,
        error=CompilerError,
        load_error=CompilerLoadError,
        not_found=_not_found,
    )


_plugins = _make_plugins()
_loaded: dict[str, Any] = {}


def _reset() -> None:
    """Forget everything found and loaded. For tests."""
    global _plugins
    _plugins = _make_plugins()
    _loaded.clear()


def installed() -> Mapping[str, Installed]:
    """Return the installed compilers by name, disabled ones included; nothing is imported."""
    return _plugins.installed()


def info(name: str) -> CompilerInfo:
    """Return a compiler's own description. Imports its light module, not the libraries it compiles with.

    Raises:
        CompilerNotFoundError: no installed package provides it.
        CompilerLoadError: its plugin is broken.
        CompilerError: it is disabled.
    """
    return _plugins.info(name)


def load(name: str) -> Any:
    """Return the compiler of this name, a `tape_compile.Compiler`; the first time, its libraries are imported.

    Raises:
        CompilerNotFoundError: no installed package provides it.
        CompilerLoadError: its plugin is broken, or what it needs is missing.
        CompilerError: it is disabled.
    """
    if name in _loaded:
        return _loaded[name]
    with _plugins.lock.now:
        if name not in _loaded:
            about, plugin = info(name), _plugins.find(name)
            # ImportErrors of the compiler's libraries are shown together with the command that installs them.
            with _plugins.step(plugin, "tape_load_compiler(name)", missing=about.install):
                compiler = _plugins.hooks(name).tape_load_compiler(name=name)
            if not callable(getattr(compiler, "compile", None)):
                raise _plugins.load_error(plugin, f"tape_load_compiler() returned {compiler!r}, which has no compile()")
            _loaded[name] = compiler
        return _loaded[name]


def default() -> str | None:
    """Return the name of the compiler that `TAPE_COMPILER` selects for functions that name none, or None.

    Raises:
        CompilerNotFoundError: it is not installed.
    """
    name = os.environ.get("TAPE_COMPILER", "").strip()
    if not name:
        return None
    try:
        _plugins.find(name)
    except CompilerError as error:
        error.args = (f"{error}\n  It was asked for by TAPE_COMPILER={name}",)
        raise
    return name
