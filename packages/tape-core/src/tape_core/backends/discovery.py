"""Finding and loading backends, the plugins of the entry-point group `tape.backends`.

The module `plugins` finds and opens them. Loading a backend imports its array library.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Number
from typing import TYPE_CHECKING, NoReturn

from tape_core.backends.errors import BackendError, BackendLoadError, listing, not_found
from tape_core.backends.names import refuse_names
from tape_core.backends.plugins import Installed, Plugins
from tape_core.backends.protocol import Backend
from tape_core.base import lookup
from tape_core.base.ambient import LOADING
from tape_core.base.contexts import setting

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

    from tape_core.backends.hookspecs import BackendInfo

GROUP = "tape.backends"


def _entry_points() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points

    yield from entry_points(group=GROUP)


def _check_info(info: BackendInfo, refuse: Callable[..., NoReturn]) -> None:
    types: object = info.array_types  # whatever a plugin's author wrote
    if isinstance(types, str) or not isinstance(types, Iterable) or not (types := list(types)):
        refuse(f"array_types must be a tuple of 'module:qualname' strings, not {info.array_types!r}")
    if not isinstance(info.host_data, bool):
        refuse(f"host_data must be True or False, not {info.host_data!r}")
    if bad := [t for t in types if not isinstance(t, str) or not re.fullmatch(r"[\w.]+:[\w.]+", t)]:
        refuse(f"array_types has {bad[0]!r}, which is not 'module:qualname'")


def _plugins(on_rescan: Callable[[], None]) -> Plugins[BackendInfo]:
    return Plugins(
        kind="backend",
        group=GROUP,
        disable="TAPE_DISABLE_BACKENDS",
        hooks=("tape_backend_info", "tape_load_backend"),
        check=_check_info,
        error=BackendError,
        load_error=BackendLoadError,
        not_found=not_found,
        entry_points=lambda: _entry_points(),  # by its name, so that tests can put another in its place
        on_rescan=on_rescan,
    )


@dataclass
class _State:
    """The plugins found and the backends loaded; tests put a fresh one in its place."""

    plugins: Plugins[BackendInfo] = field(init=False)
    backends: dict[str, Backend] = field(default_factory=dict)
    unfinished: dict[str, Backend] = field(default_factory=dict)  # loaded, but not yet its rules
    rule_failures: dict[str, BackendLoadError] = field(default_factory=dict)
    by_type: dict[type, Backend | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plugins = _plugins(self.by_type.clear)


_state = _State()


def _reset() -> None:
    """Forget everything found and loaded. For tests."""
    global _state
    _state = _State()


def installed() -> Mapping[str, Installed]:
    """Return the installed backends by name, disabled ones included; nothing is imported."""
    return _state.plugins.installed()


def enabled() -> list[str]:
    """Return the names of the installed backends that are not disabled."""
    return _state.plugins.enabled()


def is_installed(name: str) -> bool:
    """Return whether a package provides this backend; see `Plugins.is_installed`."""
    return _state.plugins.is_installed(name)


def info(name: str) -> BackendInfo:
    """Return a backend's own description. Imports its light module, not its array library."""
    return _state.plugins.info(name)


def unusable() -> str:
    """Return the installed backends that were passed over so far and why, one a line; for messages."""
    return _state.plugins.unusable()


# -- the backend


def load(name: str) -> Backend:
    """Return the backend of this name; the first time, its array library is imported.

    Raises:
        BackendNotFoundError: no installed package provides it.
        BackendLoadError: its plugin is broken, or what it needs is missing.
        BackendError: it is disabled.
    """
    try:
        return _state.backends[name]
    except KeyError:
        pass
    with _state.plugins.lock.now:
        for loaded in (_state.backends, _state.unfinished):
            if name in loaded:
                return loaded[name]
        about = info(name)
        plugins = _state.plugins
        plugin, hooks = plugins.find(name), plugins.hooks(name)
        # Half of its rules may be declared, and declaring them twice is an error of its own: it is not tried again.
        if name in _state.rule_failures:
            failure = _state.rule_failures[name]
            raise plugins.load_error(plugin, failure.problem) from failure.__cause__

        with plugins.step(plugin, "tape_load_backend()", missing=about.install), setting(LOADING, True):
            # While LOADING is set, ArrayAPIBackend does not check names: the plugin's own ops are not declared yet.
            backend = hooks.tape_load_backend()
        if not isinstance(backend, Backend):
            problem = f"tape_load_backend() returned {backend!r}, not a Backend"
            raise plugins.load_error(plugin, problem)
        if backend.name != name:
            problem = f"its backend is named {backend.name!r}, not {name!r}"
            raise plugins.load_error(plugin, problem)
        backend.host_data = about.host_data

        # Its rules may ask for it, in this thread; others wait for the lock, and never see it without its rules.
        _state.unfinished[name] = backend
        try:
            if hooks.tape_register_rules.get_hookimpls():
                with plugins.step(plugin, "tape_register_rules()"):
                    hooks.tape_register_rules(registry=lookup.registry, backend=backend)
            with plugins.step(plugin, "looking at the names of its kernels and rules"):
                refuse_names(backend)
        except BackendLoadError as error:
            _state.rule_failures[name] = error
            raise
        finally:
            del _state.unfinished[name]
        _state.backends[name] = backend
        return backend


# -- whose array is this?


def backend_of_type(tp: type) -> Backend | None:
    """Return the backend that owns raw arrays of this type, or None.

    Only the light modules are asked, and only the owner's array library is imported, which must
    have been imported already for the array to exist.

    >>> backend_of_type(list) is None
    True

    Raises:
        BackendError: two backends claim the type, and neither is named after its library.
        BackendLoadError: the owner cannot be loaded.
    """
    try:
        return _state.by_type[tp]
    except KeyError:
        pass
    with _state.plugins.lock.now:
        owner = _owner(tp)
        backend = _state.by_type[tp] = None if owner is None else load(owner)
        return backend


# NumPy's arrays are how Python's libraries hand each other data: also where no backend for NumPy is installed.
HOST_TYPES = ("numpy:ndarray", "numpy:generic")


def is_host_data(value: object) -> bool:
    """Return whether a value is a raw array of a library whose arrays are host data, such as NumPy's.

    >>> import numpy as np
    >>> is_host_data(np.ones(3)), is_host_data([1.0])
    (True, False)
    """
    owner = backend_of_type(type(value))
    if owner is None:
        return any(_names(name, cls) for cls in type(value).__mro__ for name in HOST_TYPES)
    return owner.host_data


def is_host_array(value: object) -> bool:
    """Return whether an argument of another library's function is an array of NumPy: data, as in Tape's own functions.

    NumPy's numbers are numbers.

    >>> import numpy as np
    >>> is_host_array(np.ones(3)), is_host_array(np.float32(1.0))
    (True, False)
    """
    return is_host_data(value) and not isinstance(value, Number)


def _owner(tp: type) -> str | None:
    infos = []
    for name in enabled():
        if name not in _state.plugins.failures:
            # A broken plugin must not stop the search for another's array; `failures` keeps the error for messages.
            with suppress(BackendLoadError):
                infos.append(info(name))
    # The nearest base class that is claimed decides: a subclass of an array may have a backend of its own.
    for cls in tp.__mro__:
        claims = [b.name for b in infos if any(_names(t, cls) for t in b.array_types)]
        if len(claims) > 1:
            # Installing another backend for NumPy's arrays must not change what numpy does.
            library: str = cls.__module__.partition(".")[0]
            if library not in claims:
                raise BackendError(
                    f"arrays of type {cls.__module__}.{cls.__qualname__} are claimed by several "
                    f"backends: {listing(claims)}\n"
                    f"  Disable one: TAPE_DISABLE_BACKENDS={claims[-1]}"
                )
            return library
        if claims:
            return claims[0]
    return None


def _names(array_type: str, cls: type) -> bool:
    """Return whether `module:qualname` is a class: the name of its definition, or where the module has it for users."""
    module, _, qualname = array_type.partition(":")
    if cls.__qualname__ == qualname and f"{cls.__module__}.".startswith(f"{module}."):
        return True
    # `jax:Array` is defined elsewhere, under another name. Nothing is imported: the library of an array is there.
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is cls
