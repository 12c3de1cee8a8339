"""The name `autograd` for this package, so that libraries that import autograd run on Tape: `install()`."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_OWN, _ALIAS = "tape_autograd", "autograd"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `autograd` and its submodules in `tape_autograd`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        head, _, rest = name.partition(".")
        if head != _ALIAS or importlib.util.find_spec(f"{_OWN}.{rest}" if rest else _OWN) is None:
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.replace(_ALIAS, _OWN, 1))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but give the module its own spec back: it has been run under its own name."""
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name, module.__spec__)

    def __init__(self) -> None:
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}


def install() -> None:
    """Let `import autograd` give `tape_autograd` in this process, also in libraries that are imported later.

    After it `import autograd.numpy as np` and `from autograd import grad` work as with autograd installed.

    Raises:
        RuntimeError: autograd itself has been imported before.
    """
    if any([type(finder) is _Alias for finder in sys.meta_path]):
        return
    if _ALIAS in sys.modules:
        raise RuntimeError("alias.install: autograd itself has been imported; call it before anything imports autograd")
    sys.meta_path.insert(0, _Alias())
