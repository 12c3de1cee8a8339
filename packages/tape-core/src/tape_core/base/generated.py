"""Functions that Tape writes: their source is shown in tracebacks and by debuggers."""

from __future__ import annotations

import ast
import keyword
import linecache
import re
import unicodedata
import weakref
from collections.abc import Callable, Sequence
from typing import Any, overload


def generated(
    source: str | ast.Module, function: str, file: str, names: dict[str, Any], lines: Sequence[str] | None = None
) -> Callable[..., Any]:
    """Return the function of this name that `source` defines, in terms of `names`.

    `file` is its name in tracebacks; its lines are known as long as the function exists. A syntax tree requires
    `lines`.
    """
    names.setdefault("__name__", __name__)  # by which Tape's own frames are told from the user's
    exec(compile(source, file, "exec"), names)
    if lines is None:
        assert isinstance(source, str)
        lines = [f"{line}\n" for line in source.split("\n")]
    # Tracebacks, inspect and debuggers look up lines here. Without a time of change (None) linecache never compares the
    # entry with a file on the disk, so it stays. Python takes any sequence for the list of lines.
    linecache.cache[file] = (0, None, lines, file)  # type: ignore[assignment]
    found: Callable[..., Any] = names[function]
    weakref.finalize(found, _forget, file, lines).atexit = False
    return found


def _forget(file: str, lines: object) -> None:
    entry: Any = linecache.cache.get(file)
    if entry is not None and len(entry) > 2 and entry[2] is lines:  # another may have the name by now
        del linecache.cache[file]


class Lines(Sequence[str]):
    """The lines of a source that is written only when somebody looks at them, as a traceback does.

    Args:
        owner: the object that has the source, as an attribute of this name. When it is gone, there are no lines.
    """

    def __init__(self, owner: object, attribute: str) -> None:
        self._owner = weakref.ref(owner)
        self._attribute = attribute
        self._lines: list[str] | None = None

    def _found(self) -> list[str]:
        # A weak owner: the cache of lines must not keep a compiled function alive.
        if self._lines is None:
            owner = self._owner()
            if owner is None:
                return []
            self._lines = [f"{line}\n" for line in getattr(owner, self._attribute).split("\n")]
        return self._lines

    def __len__(self) -> int:
        return len(self._found())

    @overload
    def __getitem__(self, k: int) -> str: ...
    @overload
    def __getitem__(self, k: slice) -> list[str]: ...
    def __getitem__(self, k: int | slice) -> str | list[str]:
        return self._found()[k]


def identifier(wanted: str, default: str) -> str:
    """Return an identifier that is like the wanted name; `default` if nothing is left of it."""
    if wanted.isascii() and wanted.isidentifier() and not keyword.iskeyword(wanted):
        return wanted
    # Python normalizes identifiers in source to NFKC, but not the keys of a namespace: the two must be equal.
    name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", wanted))
    if not f"_{name}".isidentifier():
        name = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not name.strip("_"):
        return default
    if keyword.iskeyword(name):
        return f"{name}_"
    return name if name.isidentifier() else f"_{name}"


def one_line(text: str) -> str:
    """Return a text for a comment: characters that could end a line, or change its look, become escapes."""
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text])
