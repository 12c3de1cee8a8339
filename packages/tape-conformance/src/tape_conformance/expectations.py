"""Checks that a backend declares to fail: `expectations.toml` in its package, beside the plugin's module.

    [[expected]]
    id = "floor_divide/special"
    reason = "NumPy gives NaN for inf // 1, the standard inf"

What fails on arrays that several processes hold is in a file of its own: `expectations-dtensor.toml`.

An id may be a pattern with `*`. It must match at least one check, and every check that it matches must fail: so an
entry cannot outlive the fault that it declares.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from importlib.util import find_spec

from tape_core.backends import installed

from tape_conformance.checking import Target
from tape_conformance.distributions import distribution_of

FILE = "expectations.toml"


@dataclass(frozen=True)
class Expectations:
    """The expected failures of a backend.

    Attributes:
        source: the file they were read from, for messages.
        reasons: the reason of each by id or pattern, in the file's order.
    """

    source: str
    reasons: dict[str, str]

    @classmethod
    def of(cls, target: Target) -> Expectations:
        """Read the expectations of a plugin; a backend that is no plugin has none.

        Raises:
            ValueError: the file is malformed, see :meth:`parse`.
        """
        package = _package(target)
        if package is None:
            return cls("", {})
        distribution = distribution_of(target.spec)
        name = FILE if distribution is None else f"expectations-{distribution.kind}.toml"
        file = resources.files(package) / name
        source = f"{package}/{name}"
        return cls.parse(file.read_text(encoding="utf-8"), source) if file.is_file() else cls(source, {})

    @classmethod
    def parse(cls, text: str, source: str) -> Expectations:
        """Parse the text of a file.

        Raises:
            ValueError: it is not TOML, or an entry has no id or no reason, or an id stands twice.
        """
        try:
            entries = tomllib.loads(text).get("expected", [])
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{source}: {error}") from None
        reasons: dict[str, str] = {}
        for k, entry in enumerate(entries, start=1):
            if set(entry) != {"id", "reason"} or not all(isinstance(v, str) and v.strip() for v in entry.values()):
                raise ValueError(f"{source}: entry {k} must have an id and a reason, both text; it is {entry}")
            if entry["id"] in reasons:
                raise ValueError(f"{source}: the id {entry['id']!r} stands there twice")
            reasons[entry["id"]] = entry["reason"]
        return cls(source, reasons)

    def reason(self, id: str) -> str | None:
        """Return the reason why a check is expected to fail; None if it is expected to pass."""
        for pattern, reason in self.reasons.items():
            if _matches(id, pattern):
                return reason
        return None

    def unmatched(self, ids: Iterable[str]) -> list[str]:
        """Return the patterns that match none of the ids."""
        ids = list(ids)
        return [pattern for pattern in self.reasons if not any(_matches(id, pattern) for id in ids)]


def _matches(id: str, pattern: str) -> bool:
    # An id may hold brackets, which fnmatch would read as a set.
    return id == pattern or fnmatchcase(id, pattern.replace("[", "[[]"))


def _package(target: Target) -> str | None:
    """Return the package that the entry point of an installed backend names; None for a module or no plugin."""
    found = installed().get(target.plugin or "")
    if found is None:
        return None
    module = found.entry_points[0].module
    # Only a package can have files beside its module; find_spec does not import it.
    spec = find_spec(module)
    return module if spec is not None and spec.submodule_search_locations is not None else None
