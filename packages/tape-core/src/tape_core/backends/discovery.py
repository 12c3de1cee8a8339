"""Finding and loading backend plugins: one broken plugin never breaks another.

Finding reads the metadata of installed packages and imports nothing. Loading has two steps: the
plugin's light module, which says what it is, and its backend, which imports the array library.
pluggy checks and calls the hooks; the loop over entry points is ours, because pluggy's stops at
the first plugin that fails, without naming it, and says nothing of a name that it does not know.
Each plugin gets a plugin manager of its own, so `check_pending` speaks of that plugin alone and a
failed registration leaves nothing behind.

Environment variables, read at first need:

- `TAPE_DISABLE_BACKENDS=a,b` (or `*`): these are treated as not usable.
- `TAPE_TRACE_PLUGINS=1`: each step is reported on stderr with the time it took.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tape_core._version import __version__
from tape_core.backends.errors import (
    BackendError,
    BackendLoadError,
    listing,
    load_error,
    not_found,
)
from tape_core.backends.protocol import LOADING, Backend
from tape_core.base.contexts import setting
from tape_core.base.forking import Lock

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tape_core.backends.hookspecs import BackendInfo

# importlib.metadata and pluggy are imported where they are needed: they would take as long as all
# the rest of `import tape_core`.


@dataclass(frozen=True)
class Installed:
    """A backend as the metadata of installed packages state it.

    Attributes:
        name: the backend's name.
        entry_points: one, unless several packages claim the name, which is an error to ask for.
        disabled: whether `TAPE_DISABLE_BACKENDS` names it.
    """

    name: str
    entry_points: tuple[EntryPoint, ...]
    disabled: bool

    @property
    def distribution(self) -> str:
        """The name and version of the package, or of each package that claims the name."""
        return " and ".join(
            f"{ep.dist.name} {ep.dist.version}" if ep.dist else "unknown package" for ep in self.entry_points
        )

    def __str__(self) -> str:
        return f"backend {self.name!r} ({self.distribution}, entry point {self.entry_points[0].value})"


@dataclass
class _State:
    """Everything found and loaded; tests put a fresh one in its place."""

    found: Mapping[str, Installed] | None = None
    infos: dict[str, tuple[BackendInfo, Any]] = field(default_factory=dict)  # with the hooks
    backends: dict[str, Backend] = field(default_factory=dict)
    unfinished: dict[str, Backend] = field(default_factory=dict)  # loaded, but not yet its rules
    failures: dict[str, BackendLoadError] = field(default_factory=dict)  # of the light module
    rule_failures: dict[str, BackendLoadError] = field(default_factory=dict)
    by_type: dict[type, Backend | None] = field(default_factory=dict)


_state = _State()
_lock = Lock()  # loading a plugin may lead back here: its rules may make arrays


def _reset() -> None:
    """Forget everything found and loaded. For tests."""
    global _state
    _state = _State()


def _trace(text: str) -> None:
    if os.environ.get("TAPE_TRACE_PLUGINS", "") not in {"", "0"}:
        sys.stderr.write(f"tape: {text}\n")


# -- what is installed


def _entry_points() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points

    from tape_core.backends.hookspecs import GROUP

    yield from entry_points(group=GROUP)


def installed() -> Mapping[str, Installed]:
    """The installed backends by name, disabled ones included; nothing is imported."""
    if (found := _state.found) is not None:
        return found
    with _lock.now:
        start = perf_counter()
        by_name: dict[str, dict[tuple[str, str], EntryPoint]] = {}
        for ep in _entry_points():
            origin = (ep.dist.name if ep.dist else "", ep.value)
            by_name.setdefault(ep.name, {})[origin] = ep
        names = os.environ.get("TAPE_DISABLE_BACKENDS", "").split(",")
        off = {name.strip() for name in names}
        _state.found = found = MappingProxyType(
            {
                name: Installed(name, tuple(eps.values()), name in off or "*" in off)
                for name, eps in sorted(by_name.items())
            }
        )
        _trace(f"found {listing(found)} ({1e3 * (perf_counter() - start):.1f} ms)")
        return found


def enabled() -> list[str]:
    """The names of the installed backends that are not disabled."""
    return [name for name, plugin in installed().items() if not plugin.disabled]


def is_installed(name: str) -> bool:
    """Whether a package provides this backend; looks again before it says no, for notebooks."""
    if name in installed():
        return True
    from importlib import invalidate_caches

    with _lock.now:
        invalidate_caches()
        _state.found = None
        _state.failures.clear()
        _state.by_type.clear()
        return name in installed()


def _find(name: str) -> Installed:
    """The one usable entry point of this name.

    Raises:
        BackendNotFoundError: nothing provides it.
        BackendError: it is disabled.
        BackendLoadError: several packages claim the name.
    """
    if not is_installed(name):
        raise not_found(name, installed())
    plugin = installed()[name]
    if plugin.disabled:
        value = os.environ.get("TAPE_DISABLE_BACKENDS", "")
        raise BackendError(
            f"backend {name!r} is disabled by TAPE_DISABLE_BACKENDS={value}\n"
            f"  Unset the variable, or take {name!r} out of it, and start again\n"
            f"  Enabled backends: {listing(enabled())}"
        )
    if len(plugin.entry_points) > 1:
        raise load_error(
            f"backend {name!r}",
            f"several packages claim its name: {plugin.distribution}",
            "Uninstall all but one of them",
        )
    return plugin


# -- the light module


_CLAUSE = re.compile(r"(===?|!=|~=|<=|>=|<|>)\s*([\w.*+!-]+)")


def _release(version: str) -> list[int]:
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in match[0].split(".")] if match else []


def _satisfies(version: str, requirement: str) -> bool:
    """Whether a requirement such as `tape-core>=0.1,<0.2` admits a version.

    By release numbers alone: `packaging` knows all of PEP 440, but it is not always installed, and
    what is refused must not depend on that.

    >>> [_satisfies("0.10.1", c) for c in (">=0.2,<0.11", "==0.10.*", "~=0.9.4", "<0.10")]
    [True, True, False, False]
    """
    for operator, text in _CLAUSE.findall(requirement):
        wanted = _release(text)
        prefix = text.endswith(".*")
        width = len(wanted) if prefix else max(len(wanted), len(_release(version)))
        have = (_release(version) + [0] * width)[:width]
        want = wanted + [0] * (width - len(wanted))
        if not {
            "<": have < want,
            "<=": have <= want,
            ">": have > want,
            ">=": have >= want,
            "!=": have != want,
            "~=": have >= want and have[: len(wanted) - 1] == wanted[:-1],
        }.get(operator, have == want):
            return False
    return True


def _upgrade(plugin: Installed) -> str:
    dist = plugin.entry_points[0].dist
    return f"Upgrade both: pip install --upgrade tape-core {dist.name if dist else ''}".rstrip()


def _check_requirement(plugin: Installed) -> None:
    """Refuse a plugin whose package requires another tape-core than the one that runs."""
    dist = plugin.entry_points[0].dist
    for line in (dist.requires if dist else None) or ():
        name = re.match(r"[\w.-]+", line)
        # A requirement with a marker holds for an extra or for some other platform.
        if not name or re.sub(r"[-_.]+", "-", name[0]).lower() != "tape-core" or ";" in line:
            continue
        if not _satisfies(__version__, line):
            problem = f"it requires {line}, and this is tape-core {__version__}"
            raise load_error(str(plugin), problem, _upgrade(plugin))


@contextmanager
def _step(plugin: Installed, what: str, *hints: str, missing: str = "") -> Iterator[None]:
    """A step in foreign code: traced, and whatever it raises becomes a BackendLoadError.

    `missing` is the hint for an import that fails.
    """
    start = perf_counter()
    outcome = "failed"
    try:
        yield
        outcome = "ok"
    except BackendLoadError:
        raise
    except (Exception, SystemExit) as error:  # a plugin that gives up must not end the program
        problem = f"{what} raised {type(error).__name__}: {error}"
        if missing and isinstance(error, ImportError):
            hints = (*hints, f"To install what it needs: {missing}")
        raise load_error(str(plugin), problem, *hints) from error
    finally:
        _trace(f"{plugin.name}: {what}: {outcome} ({1e3 * (perf_counter() - start):.1f} ms)")


def info(name: str) -> BackendInfo:
    """What a backend says of itself. Imports its light module, not its array library."""
    with _lock.now:
        if name not in _state.infos:
            try:
                _state.infos[name] = _open(_find(name))
            except BackendLoadError as error:
                _state.failures[name] = error
                raise
            _state.failures.pop(name, None)
        return _state.infos[name][0]


def _open(plugin: Installed) -> tuple[BackendInfo, Any]:
    """Import the light module, check its hooks, ask for its info."""
    from pluggy import PluginManager

    from tape_core.backends import hookspecs

    _check_requirement(plugin)
    ep = plugin.entry_points[0]
    with _step(plugin, f"importing {ep.value}"):
        module = ep.load()

    manager = PluginManager("tape")
    manager.add_hookspecs(hookspecs)
    with _step(plugin, "checking its hooks", f"The hooks are {', '.join(vars(manager.hook))}"):
        manager.register(module, plugin.name)  # wrong arguments
        manager.check_pending()  # misspelled names
    for hook in ("tape_backend_info", "tape_load_backend"):
        if not getattr(manager.hook, hook).get_hookimpls():
            marked = " marked with @hookimpl" if hasattr(module, hook) else ""
            raise load_error(str(plugin), f"{ep.value} has no {hook}{marked}")

    with _step(plugin, "tape_backend_info()"):
        info = manager.hook.tape_backend_info()
    _check_info(plugin, info)
    return info, manager.hook


def _check_info(plugin: Installed, info: Any) -> None:
    from tape_core.backends.hookspecs import CONTRACT_VERSION, BackendInfo

    hints: tuple[str, ...] = ()
    types = getattr(info, "array_types", ())
    if not isinstance(info, BackendInfo):
        problem = f"tape_backend_info() returned {info!r}, not a BackendInfo"
    elif info.contract != CONTRACT_VERSION:
        problem = (
            f"it is written to version {info.contract!r} of the backend contract, and tape-core "
            f"{__version__} speaks version {CONTRACT_VERSION}"
        )
        hints = (_upgrade(plugin),)
    elif info.name != plugin.name:
        problem = f"it calls itself {info.name!r}, but its entry point is named {plugin.name!r}"
    elif isinstance(types, str) or not types:
        problem = f"array_types must be a tuple of 'module:qualname' strings, not {types!r}"
    elif bad := [t for t in types if not re.fullmatch(r"[\w.]+:[\w.]+", t)]:
        problem = f"array_types has {bad[0]!r}, which is not 'module:qualname'"
    else:
        return
    raise load_error(str(plugin), problem, *hints)


# -- the backend


def load(name: str) -> Backend:
    """The backend of this name; the first time, its array library is imported.

    Raises:
        BackendNotFoundError: no installed package provides it.
        BackendLoadError: its plugin is broken, or what it needs is missing.
        BackendError: it is disabled.
    """
    try:
        return _state.backends[name]
    except KeyError:
        pass
    with _lock.now:
        for loaded in (_state.backends, _state.unfinished):
            if name in loaded:
                return loaded[name]
        about = info(name)
        plugin, hooks = _find(name), _state.infos[name][1]
        if name in _state.rule_failures:  # half of its rules may be in: not to be tried again
            failure = _state.rule_failures[name]
            raise load_error(str(plugin), failure.problem) from failure.__cause__

        with _step(plugin, "tape_load_backend()", missing=about.install), setting(LOADING, True):
            backend = hooks.tape_load_backend()
        if not isinstance(backend, Backend):
            problem = f"tape_load_backend() returned {backend!r}, not a Backend"
            raise load_error(str(plugin), problem)
        if backend.name != name:
            problem = f"its backend is named {backend.name!r}, not {name!r}"
            raise load_error(str(plugin), problem)

        from tape_core.engine.op import refuse_names, registry

        _state.unfinished[name] = backend  # its rules may use it, other threads must wait
        try:
            if hooks.tape_register_rules.get_hookimpls():
                with _step(plugin, "tape_register_rules()"):
                    hooks.tape_register_rules(registry=registry, backend=backend)
            with _step(plugin, "looking at the names of its kernels and rules"):
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
    """The backend that owns raw arrays of this type, or None.

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
    with _lock.now:
        owner = _owner(tp)
        backend = _state.by_type[tp] = None if owner is None else load(owner)
        return backend


def _owner(tp: type) -> str | None:
    infos = []
    for name in enabled():
        if name not in _state.failures:
            with suppress(BackendLoadError):  # it is kept in failures
                infos.append(info(name))
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
    module, _, qualname = array_type.partition(":")
    return cls.__qualname__ == qualname and f"{cls.__module__}.".startswith(f"{module}.")


def unusable() -> str:
    """The installed backends that were passed over so far and why, one a line; for messages."""
    off = [f"{p} is disabled" for p in installed().values() if p.disabled]
    broken = [str(error).partition("\n")[0] for error in _state.failures.values()]
    return "\n".join(off + broken)
