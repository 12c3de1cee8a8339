"""Do something when another library is imported: now, if it has been, or later. Nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_waiting: dict[str, Callable[[ModuleType], None]] = {}


class _Finder(MetaPathFinder):
    """An import hook that waits for the modules in `_waiting`."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        then = _waiting.pop(name, None)
        if then is None:
            return None
        if not _waiting:  # every later import is spared this call
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec


class _Loader(Loader):
    """A loader that runs the module's own loader, and then the function."""

    def __init__(self, own: Any, then: Callable[[ModuleType], None]) -> None:
        self._own = own
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._own.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        # The module shows its own loader, which reads its source and its resources.
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        self._then(module)


_finder = _Finder()


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call a function with the module of this name as soon as it has been imported."""
    module = sys.modules.get(name)
    # A module that is being imported is there without its contents.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        then(module)
        return
    _waiting[name] = then
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
