"""Arrays that several processes hold together: what `--tape-backend=torch:dtensor:4` names, and what a plugin provides.

What makes such arrays is in the plugin's package, in its module `distributed.conformance`: `PROCESSES` is a dictionary
from a word, here `dtensor`, to a class that follows :class:`Arrays`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from tape_core.backends import BackendError, installed, select

DEFAULT_PROCESSES = 2


class Arrays(Protocol):
    """Distributed arrays of a library, as its plugin provides them.

    It is made in each process, with the number of the process, how many there are, a file by which they find each
    other, and the seconds after which a process that does not answer is an error.
    """

    def __init__(self, rank: int, size: int, store: str, timeout: float) -> None: ...

    @staticmethod
    def layouts(size: int) -> tuple[str, ...]:
        """Return names of the ways in which arrays are laid out on so many processes."""

    def distribute(self, array: Any, layout: str, place: int) -> Any:
        """Return a distributed array of the values; `place` is the number of the input."""

    def full(self, array: Any) -> Any:
        """Return the whole array on this process."""

    def is_distributed(self, array: Any) -> bool:
        """Return whether an array is a distributed one."""

    def close(self) -> None:
        """Leave the group of processes."""


@dataclass(frozen=True)
class Distribution:
    """What `torch:dtensor:4` means.

    Attributes:
        backend: the name of the backend, `torch`.
        kind: the word for how arrays are distributed, `dtensor`.
        processes: how many processes.
        module: the module whose `PROCESSES` has the word.
    """

    backend: str
    kind: str
    processes: int
    module: str

    def kind_of_arrays(self) -> type[Arrays]:
        """Return the class that makes distributed arrays."""
        found: type[Arrays] = import_module(self.module).PROCESSES[self.kind]
        return found

    @property
    def spec(self) -> str:
        """The text that names it."""
        return f"{self.backend}:{self.kind}:{self.processes}"


def distribution_of(spec: object) -> Distribution | None:
    """Return what a text such as `torch:dtensor:4` names; None if it names a backend and perhaps a device.

    Raises:
        BackendError: the number of processes is none.
    """
    if not isinstance(spec, str):
        return None
    name, _, rest = spec.partition(":")
    kind, _, number = rest.partition(":")
    found = installed().get(name)
    if not kind or found is None:
        return None
    # Not looked for where it is a device: the module brings ops of its own, which only several processes can call.
    if kind in {device.partition(":")[0] for device in select(name).backend.devices()}:
        return None
    module = f"{found.entry_points[0].module}.distributed.conformance"
    try:
        present = find_spec(module) is not None
    except ModuleNotFoundError:
        return None
    if not present or kind not in import_module(module).PROCESSES:
        return None
    if number and not (number.isdecimal() and int(number) > 0):
        raise BackendError(f"{spec!r}: how many processes must be a number, as in {name}:{kind}:4")
    return Distribution(name, kind, int(number or DEFAULT_PROCESSES), module)
