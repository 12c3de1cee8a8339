"""Which of SciPy's functions have a differentiable counterpart: for warnings, errors and the page of libraries.

The functions of `tape_core.scipy` are found by their names; `ELSEWHERE` has those that are called otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import FrameType
from typing import Final

from tape_core.scipy import __all__ as PARTS

ELSEWHERE: Final = {
    "linalg.lu_factor": "tape_core.linalg.lu_factor",
    "linalg.lu_solve": "tape_core.linalg.lu_solve",
    "optimize.root": "tape_core.custom_root",
    "optimize.root_scalar": "tape_core.custom_root",
    "optimize.fsolve": "tape_core.custom_root",
    "optimize.brentq": "tape_core.custom_root",
    "optimize.bisect": "tape_core.custom_root",
    "optimize.fixed_point": "tape_core.fixed_point",
    "spatial.distance_matrix": "tape_core.cdist",
    "spatial.distance.cdist": "tape_core.cdist",
}
"""By SciPy's name, without `scipy.`, the function of Tape."""


def counterpart(name: str) -> str | None:
    """Return the function of Tape that is SciPy's of a name, or None.

    >>> counterpart("linalg.expm"), counterpart("linalg.lu_factor"), counterpart("linalg.schur")
    ('tape_core.scipy.linalg.expm', 'tape_core.linalg.lu_factor', None)
    """
    part, _, function = name.rpartition(".")
    if part in PARTS and function in import_module(f"tape_core.scipy.{part}").__all__:
        return f"tape_core.scipy.{name}"
    return ELSEWHERE.get(name)


def instead(frame: FrameType | None) -> str:
    """Return what to write in place of the function of SciPy's that a frame is in; nothing if there is none."""
    name = _called(frame)
    found = None if name is None else counterpart(name)
    if name is None or found is None:
        return ""
    return (
        f"{found}, which has a derivative, is the same as scipy.{name}"
        if found.endswith(name)
        else (f"{found} is what has a derivative in place of scipy.{name}")
    )


def _called(frame: FrameType | None) -> str | None:
    """The public function of SciPy's that the user, or another library, has called, and that led to a frame."""
    found = None
    for module, first in _frames(frame):
        parts = module.split(".")
        for depth in (3, 2):  # scipy.spatial.distance, scipy.linalg
            space = ".".join(parts[:depth])
            if len(parts) >= depth and "._" not in space and first in getattr(sys.modules.get(space), "__all__", ()):
                found = f"{space.removeprefix('scipy.')}.{first}"
                break
    return found


def _frames(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """The modules and functions, or classes, of the innermost frames of SciPy's that follow each other."""
    inside = False
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package == "scipy":
            inside = True
            yield from _names_of(frame)
        elif inside and package != "numpy" and not package.startswith("tape_"):
            return
        frame = frame.f_back


def _names_of(frame: FrameType) -> Iterator[tuple[str, str]]:
    """The module and the function, or class, of a frame; for a decorator's wrapper, those of what it wraps, too."""
    code, known = frame.f_code, frame.f_locals
    own = known.get("self")
    yield str(frame.f_globals["__name__"]), code.co_qualname.partition(".")[0] if own is None else type(own).__name__
    for name in code.co_freevars:
        wrapped = known.get(name)
        module = str(getattr(wrapped, "__module__", ""))
        if callable(wrapped) and module.startswith("scipy."):
            yield module, str(getattr(wrapped, "__name__", ""))
