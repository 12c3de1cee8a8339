"""What is sent of divided arrays is compared between the processes where a program is new, with what it is made of.

That what the processes send has one shape does not tell whether it is of the same Variables: where one of them calls
layers in another order, say, PyTorch adds the gradient of one weight to that of another. So while a function is
compiled, in the first eager step of a model, and in all steps where a mesh is checked, the processes tell each other
before each collective of a kernel what they are about to do, and of which Variables and arrays that comes, see
`tape_torch.mismatches`. What follows runs the program that was compared, at no cost.

Variables are told by the names by which all processes have distributed them. Of all else an array is told by its shape
and layout, and results by what they are computed of. What nothing is sent of may differ.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Final
from zlib import crc32

import torch.distributed as dist
from tape_core.staging import current
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tape_torch.divided import COMPILED_PARTS, describe, is_asked_for
from tape_torch.divided_names import all_named
from tape_torch.mismatches import (
    described,
    described_array,
    group_of,
    is_checked,
    is_collective,
    is_met,
    meet,
    not_again,
)
from tape_torch.peers import explained

_TOLD: Final = 64  # origins that are told one by one
_REPEATED: Final = 32
"""Collectives that are what they were before, after which a first step is over: of programs without a backward pass."""

_GRADIENT: Final = "laid_out_like"


class _Program:
    """A new program whose collectives are compared.

    Args:
        kind: how it runs, for messages.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._bits: dict[str, int] = {}
        self._of_variables: dict[int, tuple[weakref.ref[Any], str]] = {}  # by the ids of their arrays
        for variable, label in all_named():
            array: Any = variable._raw
            if type(array) is DTensor:
                self._of_variables[id(array)] = weakref.ref(array), label
        self._mode = _Sends(self)
        self._is_within = False
        self._name = ""
        self._arrays: list[Any] = []
        self.seen: set[tuple[str, ...]] = set()
        self.number = 0  # the checksum of all that was compared, in order
        self.told: list[str] = []  # the first of it, as text
        self.repeated = 0
        self.is_over = False

    def call(self, name: str, kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a kernel, and compare what it sends."""
        if self._is_within or not (arrays := list(arrays_in((*args, *kwargs.values())))):
            return kernel(*args, **kwargs)
        self._name, self._arrays, self._is_within = name, arrays, True
        origin = 0
        for x in arrays:
            origin |= self._origin(x)
        try:
            with self._mode:
                found = kernel(*args, **kwargs)
            # What a compiled function sends of a gradient it has sent before, without a word of whose it is.
            if name == _GRADIENT and self._kind and self._label(arrays[-1]) is not None:
                self.meet(f"tape.gradient of {described_array(arrays[0])}", dist.group.WORLD)
        finally:
            self._name, self._arrays, self._is_within = "", [], False
        for x in arrays_in((found,)):
            is_cast = all([x.dtype is not of.dtype for of in arrays])
            x._tape_origin = self._bits, origin | (self._bit(f"a value in {x.dtype}") if is_cast else 0)
        return found

    def sweep(self) -> AbstractContextManager[Any]:
        """Return the context around a backward sweep, whose rules call functions that are no kernels."""
        return self._mode

    def compare(self, func: Any, args: Any) -> None:
        """Compare a collective, of the kernel that is called, with those of the other processes.

        Raises:
            MismatchError: it is another one, or of something else.
        """
        if not self.is_over:  # a first step may end in the midst of a sweep
            group, of = group_of(args), _of_kernel(self._name)
            # Other groups send parts of other shapes, where an array is divided unevenly along another axis.
            everywhere = dist.get_world_size(group) == dist.get_world_size()
            alike = None if everywhere else f"{described(func, args, shapes=False)}{of}"
            self.meet(f"{described(func, args)}{of}", group, alike)

    def meet(self, call: str, group: Any, in_all_groups: str | None = None) -> None:
        """Compare a call, with what the arrays of the kernel are made of.

        Args:
            in_all_groups: what of the call is the same in all groups of processes, if not all of it.
        """
        told = (f"{call}{self._kind}", *self._told())
        if meet(list(told), group, waits_of):
            if in_all_groups is not None:
                told = (f"{in_all_groups}{self._kind}", *told[1:])
            self.number = crc32(repr(told).encode(), self.number)
            self.told += ["; ".join(told)] * (len(self.told) < _TOLD)
            self.repeated += told in self.seen
            self.seen.add(told)
            if current() is not None or self.repeated > _REPEATED:
                end_first_step()

    def _label(self, x: Any) -> str | None:
        known = self._of_variables.get(id(x))
        return known[1] if known is not None and known[0]() is x else None

    def _origin(self, x: Any) -> int:
        """Return what an array is made of, as bits."""
        label = self._label(x)
        if label is None:
            bits, origin = getattr(x, "_tape_origin", (None, 0))
            if bits is self._bits:
                return int(origin)
            label = f"{described_array(x)} with {describe(x)}"
        return self._bit(label)

    def _bit(self, label: str) -> int:
        return self._bits.setdefault(label, 1 << len(self._bits))

    def _told(self) -> list[str]:
        """Return what the arrays of the kernel are made of: first those that are Variables themselves."""
        labels = [self._label(x) for x in self._arrays]
        direct = [label for label in labels if label is not None]
        origin = 0
        for x in self._arrays:
            origin |= self._origin(x)
        others = sorted([label for label, bit in self._bits.items() if origin & bit and label not in direct])
        if self._name == _GRADIENT and labels[-1] is not None:
            direct = [f"the gradient of {labels[-1]}"]
        more = [f"the checksum {crc32(repr(others).encode()):08x} of them"] * (len(others) > _TOLD)
        return [*direct, *others[:_TOLD], *more]


class _Sends(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Has collectives compared before they are called, and calls all else as it is."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or each call of an op would go through PyTorch's compiler, to be told that it is not compiled

    def __init__(self, program: _Program) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._program = program

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented  # what it calls comes here
        if is_collective(func) and not is_met() and not any([hasattr(x, "fake_mode") for x in args]):
            self._program.compare(func, args)
            with not_again():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


_traced: Final[weakref.WeakKeyDictionary[Any, _Program | None]] = weakref.WeakKeyDictionary()

_latest: Final[list[_Program]] = []
"""The program that was traced last."""

_first: Final[list[_Program]] = []
"""The program of the first step of what was distributed last, while it goes on."""


def begin_first_step() -> None:
    """Compare what is sent from now on: there are Variables that have just been distributed."""
    _begin([_Program("")] if _has_peers() else [])


def end_first_step() -> None:
    """Compare no longer what eager steps send, as all has been sent once; a checked mesh begins anew."""
    _begin([_Program("")] if _first and is_checked() else [])


def meet_in_first_step(call: str, group: Any) -> None:
    """Compare a call that belongs to no kernel, where eager calls are compared.

    Raises:
        MismatchError: another process calls something else, or does not come.
    """
    if _first and current() is None:
        _first[0].meet(call, group)


def _begin(programs: list[_Program]) -> None:
    for program in _first:
        program.is_over = True
    _first[:] = programs


def compared(name: str, kernel: Callable[..., Any]) -> Any:
    """Return what is called in place of a kernel: what it sends is compared where a program is new."""

    @wraps(kernel)
    def called(*args: Any, **kwargs: Any) -> Any:
        program = _running()
        try:
            return kernel(*args, **kwargs) if program is None else program.call(name, kernel, args, kwargs)
        except RuntimeError as error:
            if (found := explained(error, _shown(name))) is not None:
                raise found from error
            raise

    return called


def compared_sweep() -> AbstractContextManager[Any] | None:
    """Return the context around an eager backward sweep of a new program, in which what it sends is compared."""
    return _first[0].sweep() if _first and current() is None else None


def _running() -> _Program | None:
    """Return the new program that runs; None if what runs is not to be compared."""
    stage = current()
    if stage is None:
        return _first[0] if _first else None
    try:
        return _traced[stage]
    except KeyError:
        found = _traced[stage] = _Program(_kind_of(stage)) if _has_peers() else None
        _latest[:] = [] if found is None else [found]
        return found


def traced_last() -> tuple[int, list[str]] | None:
    """Return a checksum of what the function sends that was traced last, and the first of it; None if nothing."""
    if not _latest or not _latest[0].told:
        return None
    number = _latest[0].number
    return number, [*_latest[0].told, f"the checksum {number:08x} of what it sends"]


def meet_all(told: list[str], cure: str) -> None:
    """Compare what this process is about to do with all others.

    Raises:
        MismatchError: they are about to do something else, or do not come.
    """
    if _has_peers():
        meet(told, dist.group.WORLD, waits_of, cure)


def waits_of(group: Any) -> Any:
    """Return how long operations of a group wait for other processes, or None."""
    from tape_torch.distributed import failures  # which needs the arrays of this package

    return failures.waits_of(group)


def _has_peers() -> bool:
    return dist.is_initialized() and dist.get_world_size() > 1


def _kind_of(stage: Any) -> str:
    """Return how a function is compiled: as it is by default, or otherwise."""
    passes = getattr(stage, "options", {})
    settings = [*[f"{name}={on}" for name, on in sorted(passes.items())]]
    if not is_asked_for(COMPILED_PARTS, otherwise=True):
        settings.append(f"{COMPILED_PARTS}=0")
    return f" in a compiled function{' with ' + ', '.join(settings) if settings else ''}"


def _shown(name: str) -> str:
    return "the gradient of a Variable" if name == _GRADIENT else name.removeprefix("distributed_")


def _of_kernel(name: str) -> str:
    return "" if name in ("", _GRADIENT) else f" in {name.removeprefix('distributed_')}"


def arrays_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the divided arrays among arguments, and in lists and tuples of these."""
    for value in values:
        kind = type(value)
        if kind is DTensor:
            yield value
        elif kind is list or kind is tuple:
            yield from arrays_in(value)
