"""Functions that Tape writes: their source is shown in tracebacks and by debuggers."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable
from typing import Any


def generated(source: str, function: str, file: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function of this name that `source` defines, in terms of `names`.

    `file` is what tracebacks call it; its lines are known as long as the function is there.
    """
    exec(compile(source, file, "exec"), names)
    linecache.cache[file] = lines = (len(source), None, source.splitlines(keepends=True), file)
    found: Callable[..., Any] = names[function]
    weakref.finalize(found, _forget, file, lines).atexit = False
    return found


def _forget(file: str, lines: Any) -> None:
    if linecache.cache.get(file) is lines:  # another may have the name by now
        del linecache.cache[file]
