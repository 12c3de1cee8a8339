"""Versions that go together: of the contract of plugins, and of Tape's own packages.

`docs/plugins.md` has the policy in words. A plugin says for which version of the contract it was written; a release of
tape-core speaks the newest version, and those before it that `CONTRACTS` has no end for, or a later one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tape_core._version import __version__


@dataclass(frozen=True)
class Contract:
    """One version of the contract.

    Attributes:
        since: the first release of tape-core that speaks it.
        until: the first that does not any more, announced when the next version of the contract comes; "" before.
        changes: what an author changes to come to the next version, in a sentence.
    """

    since: str
    until: str = ""
    changes: str = ""


CONTRACTS: dict[int, Contract] = {1: Contract(since="0.1")}
"""All versions of the contract that there ever were; the last one is `CONTRACT_VERSION`.

To add version 2 in release 0.4: `1: Contract("0.1", until="0.6", changes="..."), 2: Contract("0.4")`, and keep the code
that version 1 needs until 0.6. What must pass between is in `docs/plugins.md`.
"""

CONTRACT_VERSION = 1
"""The version of all that a plugin relies on: the hooks, `Backend`, compilers, and how ops and rules are written.

It grows by one when a plugin that was written to the old version could break; see `docs/plugins.md`.
"""


def spoken() -> list[int]:
    """Return the versions of the contract that this tape-core speaks.

    >>> spoken()
    [1]
    """
    return [number for number, contract in CONTRACTS.items() if satisfies(__version__, _releases(contract))]


def _releases(contract: Contract) -> str:
    return f">={contract.since}" + (f",<{contract.until}" if contract.until else "")


def contract_refusal(kind: str, contract: object, package: str, version: str) -> tuple[str, ...]:
    """Return why a plugin of this version of the contract is refused, and what to do; () if it is not.

    Args:
        kind: "backend" or "compiler".
        contract: what the plugin says.
        package, version: of the plugin; "" if they are not known.
    """
    known = spoken()
    if type(contract) is int and contract in known:
        return ()
    if type(contract) is not int or contract < 1:
        return (
            f"contract is {contract!r}, which is no version of the {kind} contract",
            f"Its author writes contract={CONTRACT_VERSION}, a number, if it is made and tested for that version",
        )
    versions = f"version {known[0]}" if len(known) == 1 else f"versions {', '.join(map(str, known))}"
    problem = (
        f"it is written to version {contract} of the {kind} contract, and tape-core {__version__} speaks {versions}"
    )
    name = package or "the plugin"
    if contract not in CONTRACTS:  # of the future
        hints = ["Install a newer tape-core: pip install --upgrade tape-core"]
        if package:
            hints.append(f'or an older {name}: pip install "{package}<{version}"')
        return (problem, *hints)
    hints = [f"Install a newer {name}" + (f": pip install --upgrade {package}" if package else "")]
    hints.append(
        f'or a tape-core that speaks version {contract}: pip install "tape-core{_releases(CONTRACTS[contract])}"'
    )
    return (problem, *hints)


def contract_warning(plugin: str, kind: str, contract: int, package: str) -> str:
    """Return what to tell the user of a plugin that is written to an older version of the contract; "" if it is not."""
    if contract == max(CONTRACTS):
        return ""
    old = CONTRACTS[contract]
    end = f"tape-core {old.until} will refuse it" if old.until else "a later tape-core will refuse it"
    return (
        f"{plugin} is written to version {contract} of the {kind} contract, the newest is {max(CONTRACTS)}: "
        f"{end}. Install a newer {package or 'plugin'}"
        + (f": pip install --upgrade {package}" if package else "")
        + (f". For its author: {old.changes}" if old.changes else "")
    )


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None if it is not installed.

    >>> installed_version("no-package-of-this-name") is None
    True
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def mismatch_hints(requirement: str, package: str) -> tuple[str, ...]:
    """Return what to do about a package whose requirement another one does not meet.

    >>> mismatch_hints("tape-core>=0.2,<0.3", "tape-mine")[0]
    'Upgrade both: pip install --upgrade tape-core tape-mine'
    """
    name = re.match(r"[\w.-]+", requirement)
    needed = name[0].lower().replace("_", "-") if name else requirement
    hints = [f"Upgrade both: pip install --upgrade {needed} {package}".rstrip()]
    if package:
        hints.append(f'or install what it requires: pip install "{requirement}"')
    return tuple(hints)


def require_core(package: str, requirement: str) -> None:
    """Refuse a package, when it is imported, with a tape-core for which it is not made.

    Tape's own packages call it first of all. A package with ops may do the same: it has no entry point, at which Tape
    would look.

    pip installs versions that do not go together if it is asked to, and only warns; what came of it was an ImportError
    of some name, or a call with arguments that the other side does not know.

    >>> require_core("tape-nn", "tape-core>=0.1")
    >>> require_core("tape-nn", "tape-core>=77,<78")
    Traceback (most recent call last):
        ...
    ImportError: tape-nn ... requires tape-core>=77,<78, and this is tape-core ...
      Upgrade both: pip install --upgrade tape-core tape-nn
      or install what it requires: pip install "tape-core>=77,<78"

    Args:
        package: the name of the package.
        requirement: its requirement, as its pyproject.toml has it.

    Raises:
        ImportError: this tape-core does not meet it.
    """
    if not satisfies(__version__, requirement):
        named = f"{package} {installed_version(package) or ''}".rstrip()
        problem = f"{named} requires {requirement}, and this is tape-core {__version__}"
        raise ImportError("\n  ".join([problem, *mismatch_hints(requirement, package)]))


_CLAUSE = re.compile(r"(===?|!=|~=|<=|>=|<|>)\s*([\w.*+!-]+)")


def _release(version: str) -> list[int]:
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in match[0].split(".")] if match else []


def satisfies(version: str, requirement: str) -> bool:
    """Return whether a requirement such as `tape-core>=0.1,<0.2` admits a version.

    Only release numbers are compared. `packaging` knows all of PEP 440, but it is not always installed, and a plugin
    must not be refused on one machine and taken on another.

    >>> [satisfies("0.10.1", c) for c in (">=0.2,<0.11", "==0.10.*", "~=0.9.4", "<0.10")]
    [True, True, False, False]
    """
    for operator, text in _CLAUSE.findall(requirement):
        wanted = _release(text)
        prefix = text.endswith(".*")
        # Padded with zeros to one width, 0.1 is 0.1.0; cut to the width of `0.10.*`, any 0.10 is equal to it.
        width = len(wanted) if prefix else max(len(wanted), len(_release(version)))
        have = (_release(version) + [0] * width)[:width]
        want = wanted + [0] * (width - len(wanted))
        if not {
            "<": have < want,
            "<=": have <= want,
            ">": have > want,
            ">=": have >= want,
            "!=": have != want,
            "~=": have >= want and have[: len(wanted) - 1] == wanted[:-1],
        }.get(operator, have == want):
            return False
    return True
