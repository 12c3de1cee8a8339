"""Calls of other libraries, as data: a section for each library or part of one, with a call on each line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

MODULES = (
    "numpy_functions",
    "scipy_special",
    "scipy_stats",
    "scipy_arrays",
    "scipy_functions",
    "array_api",
    "learning",
    "tables",
)


@dataclass(frozen=True)
class Section:
    """Calls that are judged together.

    `part` is the library or a part of it, `setup` the Python code that the calls need, and `samples` the arrays that
    they name. `calls` has one expression on each line. `fixed` names samples that are not differentiated with respect
    to, `title` tells apart sections of one part, and `packages` are the distributions that must be installed. `by_rule`
    has those calls that have no derivative since Tape declares so, with the reason.
    """

    part: str
    setup: str
    samples: Mapping[str, Any]
    calls: str
    title: str = ""
    fixed: str = ""
    packages: tuple[str, ...] = ()
    by_rule: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""

    @property
    def lines(self) -> list[str]:
        return [line for line in self.calls.splitlines() if line.strip()]

    @property
    def installed(self) -> bool:
        """Whether the libraries are there."""
        modules = [{"scikit-learn": "sklearn"}.get(package, package.replace("-", "_")) for package in self.packages]
        return all(find_spec(module) is not None for module in modules)


def SciPy(
    part: str, setup: str, samples: Mapping[str, Any], calls: str, title: str = "", fixed: str = "", **more: Any
) -> Section:
    """A section of SciPy's."""
    return Section(part, setup, samples, calls, title, fixed, ("scipy",), **more)


def sections() -> list[Section]:
    """All sections, in the order of the page."""
    return [section for module in MODULES for section in import_module(f"cases.{module}").SECTIONS]
