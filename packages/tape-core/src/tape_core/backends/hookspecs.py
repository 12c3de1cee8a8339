"""The hooks of plugins, backends and compilers, to be read by their authors.

A backend is an installed package with one entry point in the group `tape.backends`. The entry
point's name is the backend's name, and it points at a module with the hooks::

    # pyproject.toml
    [project]
    name = "tape-mylib"
    dependencies = ["tape-core>=0.1,<0.2", "mylib>=2"]

    [project.entry-points."tape.backends"]
    mylib = "tape_mylib"

    # tape_mylib/__init__.py: light, it must not import the array library
    from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl

    @hookimpl
    def tape_backend_info():
        return BackendInfo(
            name="mylib",
            contract=1,
            array_types=("mylib:Array",),
            install="pip install mylib",
        )

    @hookimpl
    def tape_load_backend():
        import mylib.array_api as xp

        return ArrayAPIBackend("mylib", xp, array_types=("mylib:Array",))

That is a complete backend. `python -m tape_core` shows whether Tape finds and loads it, and
`TAPE_TRACE_PLUGINS=1` shows each step of it on stderr.

`contract` is the number the plugin was written to. Written out, it lets a later Tape refuse the
plugin with a clear message; `CONTRACT_VERSION`, which always agrees, leaves that to the
requirement on tape-core. `docs/plugins.md` says when the number grows, and what happens then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

from tape_core.backends.versions import CONTRACT_VERSION

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Registry

hookspec = pluggy.HookspecMarker("tape")
hookimpl = pluggy.HookimplMarker("tape")
"""Marks a plugin's function as the implementation of the hook of the same name."""


@dataclass(frozen=True)
class BackendInfo:
    """A backend's own description, known without importing its array library.

    Args:
        name: the backend's name, the same as the entry point's.
        contract: the version of the contract that the plugin is written to, see `CONTRACT_VERSION`.
        array_types: the library's array classes as `"module:qualname"`; an array of such a class or
            of a subclass belongs to this backend. The module may be a package that contains the
            class's module, so `"mylib:Array"` is also `mylib.core.Array`.
        host_data: whether the library's arrays are data on the host rather than a place where a program computes: like
            Python's lists, they then go to the backend of the Tensors beside them, or else to the selected one. NumPy's
            are; arrays of other libraries stay where they are.
        capabilities: the library's abilities, in words such as `"cpu"`, `"cuda"`, `"float64"` and
            `"complex"`.
        install: the command that installs what the backend needs, shown when something is missing.

    >>> BackendInfo(name="mylib", contract=1, array_types=("mylib:Array",)).capabilities
    ()
    """

    name: str
    contract: int
    array_types: tuple[str, ...]
    capabilities: tuple[str, ...] = ()
    install: str = ""
    host_data: bool = False


@hookspec(firstresult=True)
def tape_backend_info() -> BackendInfo:  # type: ignore[empty-body]
    """Describe the backend. Required, and cheap: it must not import the array library.

    It is called when the backend is first asked for, and when an array of an unknown type is seen.
    """


@hookspec(firstresult=True)
def tape_load_backend() -> Backend:  # type: ignore[empty-body]
    """Import the array library and make the backend. Required.

    It is called once in a process, when the backend is first used. Let the library's ImportError
    pass: the user is shown it together with the `install` of `tape_backend_info`.
    """


@hookspec
def tape_register_rules(registry: Registry, backend: Backend) -> None:
    """Declare ops and replace derivative rules for the new backend (`registry.override`). Optional.

    It is called once, right after `tape_load_backend`, with the backend that this made. A plugin may leave out the
    parameters it does not need.
    """


# -- compilers


@dataclass(frozen=True)
class CompilerInfo:
    """A compiler's own description, known without importing what it compiles with.

    Args:
        name: the compiler's name, the same as the entry point's; `tape_core.function(compile=name)` selects it.
        contract: the version of the contract that the plugin is written to, see `CONTRACT_VERSION`.
        backends: the backends whose arrays it compiles for; empty for all.
        install: the command that installs what the compiler needs, shown when something is missing.
        summary: a line for `python -m tape_core`.

    >>> CompilerInfo(name="mine", contract=1, backends=("numpy",)).summary
    ''
    """

    name: str
    contract: int
    backends: tuple[str, ...] = ()
    install: str = ""
    summary: str = ""


@hookspec(firstresult=True)
def tape_compiler_info(name: str) -> CompilerInfo:  # type: ignore[empty-body]
    """Describe the compiler. Required, and cheap: it must not import what it compiles with.

    One module may provide several compilers, by as many entry points of the group `tape.compilers`: `name` is that of
    the one which is asked for. A plugin with one compiler may leave out the parameter.
    """


@hookspec(firstresult=True)
def tape_load_compiler(name: str) -> Any:
    """Return the compiler, a `tape_compile.Compiler`. Required.

    It is called once in a process, when the compiler is first used. Let ImportErrors pass: the user is shown them
    together with the `install` of `tape_compiler_info`.
    """


__all__ = ["CONTRACT_VERSION", "BackendInfo", "CompilerInfo", "hookimpl", "hookspec"]

HOOKS = {
    "backend": ("tape_backend_info", "tape_load_backend", "tape_register_rules"),
    "compiler": ("tape_compiler_info", "tape_load_compiler"),
}
"""The hooks of each kind of plugin."""
INFOS: dict[str, type[BackendInfo | CompilerInfo]] = {"backend": BackendInfo, "compiler": CompilerInfo}
"""The description that the first hook of each kind returns."""
