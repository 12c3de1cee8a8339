"""Every op by name on Tensors: the `xp` a derivative rule receives when another tape records the sweep."""

from __future__ import annotations

from typing import Any

from tape_core.engine.op import registry


class Ops:
    """Resolves a name once: an op, else a function of the public namespace."""

    def __getattr__(self, name: str) -> Any:
        if name in registry:
            found: Any = registry[name].function
        else:
            import tape_core

            found = getattr(tape_core, name)
        setattr(self, name, found)
        return found


ops = Ops()
