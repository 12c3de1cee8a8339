"""Every op by name on Tensors: the `xp` a derivative rule receives when another tape records the sweep."""

from __future__ import annotations

from typing import Any

from tape_core.engine.op import registry


class Ops:
    """A namespace of all ops, and of the other functions of `tape_core`; each name is looked up once."""

    def __getattr__(self, name: str) -> Any:
        if name in registry:
            found: Any = registry[name].function
        else:
            import tape_core

            found = getattr(tape_core, name)
        setattr(self, name, found)
        return found


ops = Ops()
