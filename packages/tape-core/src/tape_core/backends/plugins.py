"""Finding and opening the plugins of one entry-point group: one broken plugin never breaks another.

Finding reads the metadata of installed packages and imports nothing. Opening imports the plugin's light module, which
describes the plugin; loading the backend or the compiler is left to `discovery` and `compilers`.

pluggy checks and calls the hooks. The loop over entry points is ours, because pluggy's stops at the first plugin that
fails, without naming it, and says nothing of a name that it does not know. Each plugin gets a plugin manager of its
own, so `check_pending` speaks of that plugin alone, and a failed registration leaves nothing behind.

Environment variables, read at first need:

- `TAPE_DISABLE_BACKENDS=a,b`, `TAPE_DISABLE_COMPILERS=a,b` (or `*`): these are treated as not usable.
- `TAPE_TRACE_PLUGINS=1`: each step is reported on stderr with the time it took.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from tape_core._version import __version__
from tape_core.backends.errors import PluginError, PluginLoadError, listing
from tape_core.backends.versions import (
    contract_refusal,
    contract_warning,
    installed_version,
    mismatch_hints,
    satisfies,
)
from tape_core.base.forking import Lock
from tape_core.base.user_code import warn_user

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# importlib.metadata and pluggy are imported where they are needed: they would take as long as all
# the rest of `import tape_core`.

Info = TypeVar("Info")


@dataclass(frozen=True)
class Installed:
    """A plugin as the metadata of installed packages state it.

    Attributes:
        kind: the word for it in messages, "backend" or "compiler".
        name: its name.
        entry_points: one, unless several packages claim the name, which is an error to ask for.
        disabled: whether the environment disables it.
    """

    kind: str
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
        return f"{self.kind} {self.name!r} ({self.distribution}, entry point {self.entry_points[0].value})"


def report(text: str) -> None:
    """Write a line to stderr where `TAPE_TRACE_PLUGINS` asks for it."""
    if os.environ.get("TAPE_TRACE_PLUGINS", "") not in {"", "0"}:
        sys.stderr.write(f"tape: {text}\n")


class Plugins(Generic[Info]):
    """The plugins of one entry-point group.

    Args:
        kind: the word for one in messages.
        group: the entry-point group.
        disable: the environment variable that names plugins not to use.
        hooks: the required hooks, the first of which returns the plugin's info; a compiler's is called with `name`.
        check: raises, by the function `refuse(problem, *hints)` that it is given, if something is wrong
            that only infos of this kind have.
        error, load_error: the classes of errors.
        not_found: makes the error for a name that nothing provides.
        entry_points: gives the entry points of the group; tests put others in their place.
        on_rescan: called when the metadata are about to be read once more, since a plugin may have been installed.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        disable: str,
        hooks: tuple[str, ...],
        check: Callable[[Info, Callable[..., NoReturn]], None],
        error: type[PluginError],
        load_error: type[PluginLoadError],
        not_found: Callable[[str, Iterable[str]], PluginError],
        entry_points: Callable[[], Iterable[EntryPoint]] | None = None,
        on_rescan: Callable[[], None] = lambda: None,
    ) -> None:
        self.kind = kind
        self.group = group
        self.disable = disable
        self.required = hooks
        self._check = check
        self._error = error
        self._load_error = load_error
        self._not_found = not_found
        self._entry_points = entry_points or self.entry_points
        self._on_rescan = on_rescan
        self.lock = Lock()  # loading a plugin may lead back here
        self._found: Mapping[str, Installed] | None = None
        self._opened: dict[str, tuple[Info, Any]] = {}  # the info of each, and its hooks
        self.failures: dict[str, PluginLoadError] = {}  # of opening, by name

    def entry_points(self) -> Iterator[EntryPoint]:
        """The entry points of the group."""
        from importlib.metadata import entry_points

        yield from entry_points(group=self.group)

    # -- what is installed

    def installed(self) -> Mapping[str, Installed]:
        """The installed plugins by name, disabled ones included; nothing is imported."""
        if (found := self._found) is not None:
            return found
        with self.lock.now:
            start = perf_counter()
            by_name: dict[str, dict[tuple[str, str], EntryPoint]] = {}
            for ep in self._entry_points():
                # The metadata of one package may be found in two folders: equal origins are one claim of the name.
                origin = (ep.dist.name if ep.dist else "", ep.value)
                by_name.setdefault(ep.name, {})[origin] = ep
            names = os.environ.get(self.disable, "").split(",")
            off = {name.strip() for name in names}
            self._found = found = MappingProxyType(
                {
                    name: Installed(self.kind, name, tuple(eps.values()), name in off or "*" in off)
                    for name, eps in sorted(by_name.items())
                }
            )
            report(f"found {self.kind}s {listing(found)} ({1e3 * (perf_counter() - start):.1f} ms)")
            return found

    def enabled(self) -> list[str]:
        """The names of the installed plugins that are not disabled."""
        return [name for name, plugin in self.installed().items() if not plugin.disabled]

    def is_installed(self, name: str) -> bool:
        """Return whether a package provides this plugin.

        Before it answers no, it reads the metadata again: in a notebook, the package may have been installed since.
        """
        if name in self.installed():
            return True
        from importlib import invalidate_caches

        with self.lock.now:
            invalidate_caches()
            self._on_rescan()
            self._found = None
            self.failures.clear()
            return name in self.installed()

    def find(self, name: str) -> Installed:
        """Return the one usable plugin of this name.

        Raises:
            PluginError: nothing provides it, or it is disabled.
            PluginLoadError: several packages claim the name.
        """
        if not self.is_installed(name):
            raise self._not_found(name, self.installed())
        plugin = self.installed()[name]
        if plugin.disabled:
            value = os.environ.get(self.disable, "")
            raise self._error(
                f"{self.kind} {name!r} is disabled by {self.disable}={value}\n"
                f"  Unset the variable, or take {name!r} out of it, and start again\n"
                f"  Enabled {self.kind}s: {listing(self.enabled())}"
            )
        if len(plugin.entry_points) > 1:
            raise self.load_error(
                f"{self.kind} {name!r}",
                f"several packages claim its name: {plugin.distribution}",
                "Uninstall all but one of them",
            )
        return plugin

    # -- the light module

    def load_error(self, plugin: str | Installed, problem: str, *hints: str) -> PluginLoadError:
        """Return the error for an installed plugin that cannot be loaded."""
        return self._load_error.of(str(plugin), problem, *hints)

    def info(self, name: str) -> Info:
        """Return a plugin's own description. Imports its light module alone."""
        return self._open(name)[0]

    def hooks(self, name: str) -> Any:
        """Return the hooks of a plugin, to be called by name; see `hookspecs`."""
        return self._open(name)[1]

    def _open(self, name: str) -> tuple[Info, Any]:
        with self.lock.now:
            # A failure is kept for messages alone: the next call tries again, since a user may mend it meanwhile.
            if name not in self._opened:
                try:
                    self._opened[name] = self._import(self.find(name))
                except PluginLoadError as error:
                    self.failures[name] = error
                    raise
                self.failures.pop(name, None)
            return self._opened[name]

    def _import(self, plugin: Installed) -> tuple[Info, Any]:
        """Import the light module, check its hooks, ask for its info."""
        from pluggy import PluginManager

        from tape_core.backends import hookspecs

        # First, since a package for another tape-core would fail at its import, with an error that explains nothing.
        self._check_requirement(plugin)
        ep = plugin.entry_points[0]
        with self.step(plugin, f"importing {ep.value}"):
            module = ep.load()

        manager = PluginManager("tape")
        manager.add_hookspecs(hookspecs)
        names = [name for name in vars(manager.hook) if name in hookspecs.HOOKS[self.kind]]
        with self.step(plugin, "checking its hooks", f"The hooks are {', '.join(names)}"):
            manager.register(module, plugin.name)  # wrong arguments
            manager.check_pending()  # misspelled names
        for hook in self.required:
            if not getattr(manager.hook, hook).get_hookimpls():
                marked = " marked with @hookimpl" if hasattr(module, hook) else ""
                raise self.load_error(plugin, f"{ep.value} has no {hook}{marked}")

        ask = self.required[0]
        arguments = {"name": plugin.name} if self.kind == "compiler" else {}
        with self.step(plugin, f"{ask}({'name' if arguments else ''})"):
            info = getattr(manager.hook, ask)(**arguments)

        def refuse(problem: str, *hints: str) -> NoReturn:
            raise self.load_error(plugin, problem, *hints)

        expected: Any = hookspecs.INFOS[self.kind]
        if not isinstance(info, expected):
            refuse(f"{ask}() returned {info!r}, not a {expected.__name__}")
        dist = ep.dist
        package, version = (dist.name, dist.version) if dist else ("", "")
        if refused := contract_refusal(self.kind, info.contract, package, version):
            refuse(*refused)
        if info.name != plugin.name:
            refuse(f"it calls itself {info.name!r}, but its entry point is named {plugin.name!r}")
        self._check(info, refuse)
        if warning := contract_warning(str(plugin), self.kind, info.contract, package):
            warn_user(warning, FutureWarning)
        return info, manager.hook

    def _check_requirement(self, plugin: Installed) -> None:
        """Refuse a plugin whose package requires another tape-core than the one that runs, or another tape-compile."""
        dist = plugin.entry_points[0].dist
        for line in (dist.requires if dist else None) or ():
            name = re.match(r"[\w.-]+", line)
            # A requirement with a marker holds for an extra or for some other platform.
            if not name or ";" in line:
                continue
            package = re.sub(r"[-_.]+", "-", name[0]).lower()
            # Backends are not asked for the version of tape-compile, which takes a search of all folders: it asks them.
            have = __version__ if package == "tape-core" else None
            if package == "tape-compile" and self.kind == "compiler":
                have = installed_version(package)
            if have is not None and not satisfies(have, line):
                problem = f"it requires {line}, and this is {package} {have}"
                raise self.load_error(plugin, problem, *mismatch_hints(line, dist.name if dist else ""))

    @contextmanager
    def step(self, plugin: Installed, what: str, *hints: str, missing: str = "") -> Iterator[None]:
        """Run a step in foreign code: it is reported, and an error in it becomes a PluginLoadError.

        `missing` is the command to install what a failed import needs.
        """
        start = perf_counter()
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        except PluginLoadError:
            raise
        except (Exception, SystemExit) as error:  # a plugin that gives up must not end the program
            problem = f"{what} raised {type(error).__name__}: {error}"
            if missing and isinstance(error, ImportError):
                hints = (*hints, f"To install what it needs: {missing}")
            raise self.load_error(plugin, problem, *hints) from error
        finally:
            report(f"{plugin.name}: {what}: {outcome} ({1e3 * (perf_counter() - start):.1f} ms)")

    def unusable(self) -> str:
        """Return the installed plugins that were passed over so far and why, one a line; for messages."""
        off = [f"{p} is disabled" for p in self.installed().values() if p.disabled]
        broken = [str(error).partition("\n")[0] for error in self.failures.values()]
        return "\n".join(off + broken)
