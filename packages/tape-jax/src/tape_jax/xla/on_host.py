"""Functions of XLA between arrays of NumPy and PyTorch: computed in the thread that calls, by a client of their own.

JAX hands a program to a thread of XLA's and returns; who wants NumPy's arrays waits for that thread, some 8 µs a call.
A second client of XLA, for such programs alone, computes before it returns. JAX's own arrays never get into it.

What a call would do again and again is done once:

- An array that XLA has made, and that is the value of a Variable since, is given as the array of JAX that it was.
- Small ones are given, and returned, in one array (`packs.py`).
- A small array of the user's is copied to memory that XLA has been told of before, its landing place, which takes a
  third of the time in which JAX makes an array of it. Nothing is taken to be as it was in the last call.
- So is a larger one that JAX would have to copy, which it does in another thread, for which this one would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from tape_core.support import deferred
from tape_core.typing import Raw

from tape_jax.conversion import aligned_memory
from tape_jax.thresholds import (
    ALIGNMENT,
    KEPT_MAX_BYTES,
    LANDING_MAX_BYTES,
    LANDING_UNALIGNED_MAX_BYTES,
    LANDINGS_MAX_BYTES,
)
from tape_jax.xla.packs import Misfit, packs
from tape_jax.xla.transfer import into, is_swapped, jax_dtype, nbytes, out_of, owner

if TYPE_CHECKING:
    from tape_compile.extend import Spec

Found = tuple[Sequence[Any], Sequence[Any]]
Function = Callable[..., Found]


@cache
def own_device() -> Any:
    """Return the device of the client; None where this version of JAX has no way to make one."""
    try:
        from jaxlib import xla_client

        client: Any = xla_client.make_cpu_client(asynchronous=False, num_devices=1)
        return client.devices()[0]
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None


def is_for(spec: Spec) -> bool:
    """Return whether a value is a Python number, or an array of NumPy or PyTorch."""
    if spec.dtype is None:
        return True
    backend = owner(spec.kind)
    return backend is not None and backend.root.name in ("numpy", "torch")


class OnHost:
    """A function of `jax.jit` for arrays of NumPy and PyTorch, which returns such arrays.

    Args:
        function: what to compile: it takes states of generators, large constants, and the arrays.
        ins, outs: the specs of arguments and results.
        kept: pairs (result, argument): the result is the argument of the next call, unless it is assigned meanwhile.
        deferrable: the results that may be deferred values.
        seconds: that a call takes at least.

    Attributes:
        deferred: those that are, in groups.
    """

    def __init__(
        self,
        function: Function,
        ins: list[Spec],
        outs: list[Spec],
        kept: list[tuple[int, int]],
        deferrable: Collection[int],
        seconds: float,
    ) -> None:
        self._function = function
        device = own_device()
        self._device = device
        self._sharding: Any = None if device is None else jax.sharding.SingleDeviceSharding(device)
        self._into = [into(spec) for spec in ins]
        self._out_of = [out_of(spec) for spec in outs]
        self._packs = packs(ins, outs, kept, self._into, self._out_of, device, deferrable, seconds)
        self.deferred = [pack.results for pack in self._packs if pack.defers]
        packed = {i for pack in self._packs for i in pack.arguments}
        self._singles = [i for i in range(len(ins)) if i not in packed]  # arguments by themselves
        packed = {o for pack in self._packs for o in pack.results}
        self._single_results = [o for o in range(len(outs)) if o not in packed]
        self._one_by_one = jax.jit(function)  # for arguments that fit no pack
        code = self._packed if self._packs else function
        self.jitted = jax.jit(code) if device is None else jax.jit(code, in_shardings=self._sharding)
        sizes = {i: _nbytes(spec) for i, spec in enumerate(ins) if spec.dtype is not None}
        # Larger arguments, which have landing places only for arrays that JAX would have to copy.
        self._large = {i: ins[i] for i, n in sizes.items() if LANDING_MAX_BYTES < n <= LANDING_UNALIGNED_MAX_BYTES}
        self._large_places: dict[int, Any] = {}
        self._room = LANDINGS_MAX_BYTES
        self._kept = [
            (o, i, hasattr(ins[i].kind, "data_ptr"))
            for o, i in kept
            if o in self._single_results
            # A result in another order of bytes is a copy, which its owner may write to.
            and ins[i].dtype is not None
            and _nbytes(ins[i]) <= KEPT_MAX_BYTES
            and not is_swapped(outs[o])
        ]
        self._is_simple = not self._packs and not self._kept
        may_be_known = {i for _, i, _ in self._kept}
        # Of each argument by itself: what converts it, and its landing place, if it is small.
        small = {i for i, n in sizes.items() if n <= LANDING_MAX_BYTES}
        self._ways = [
            (i, self._into[i], self._landing(ins[i]) if i in small else None, i in may_be_known, i in self._large)
            for i in self._singles
        ]
        # Of each argument the object that is known, the array of JAX with its elements, its shape and its address.
        self._known: list[tuple[Any, ...]] = [(None, None, None, None)] * len(ins)
        self._at = {o: at for at, o in enumerate(self._single_results)}
        self._lock = Lock()  # of the landing places; it is tried and never waited for

    def put(self, constant: Any) -> Any:
        """Return a constant as an array that the function takes in each call."""
        return jax.numpy.asarray(constant) if self._device is None else jax.device_put(constant, self._device)

    def trace(self, states: Sequence[Any], large: Sequence[Any], examples: Sequence[Any]) -> None:
        """Lower the function, for arguments that are, or stand for, what is given to JAX.

        Raises:
            Exception: as the function does.
        """
        like: Any = jax.ShapeDtypeStruct  # its constructor has no types
        wholes = [like((pack.size,), pack.dtype) for pack in self._packs]
        self.jitted.trace(states, large, *[examples[i] for i in self._singles], *wholes)

    def _packed(self, states: Sequence[Any], large: Sequence[Any], *given: Any) -> Found:
        """Return the results of the function by themselves, then those that are packed; the arguments are so, too."""
        arrays: dict[int, Any] = dict(zip(self._singles, given, strict=False))
        for pack, whole in zip(self._packs, given[len(self._singles) :], strict=True):
            arrays.update(zip(pack.arguments, pack.parts(whole), strict=True))
        found, ends = self._function(states, large, *[arrays[i] for i in range(len(arrays))])
        return [*[found[o] for o in self._single_results], *[pack.whole(found) for pack in self._packs]], ends

    def __call__(self, states: Sequence[Any], large: Sequence[Any], given: Sequence[Raw]) -> Found:
        """Return the results and the states after it."""
        lock = self._lock
        is_mine = lock.acquire(False)
        try:
            # Else another thread, or a callback inside, is in a call, and the landing places are in use.
            arrays = self._landed(given) if is_mine else self._plain(given)
            if self._packs:
                try:
                    arrays += [pack.given(given, is_mine) for pack in self._packs]
                except Misfit:
                    return self._unpacked(states, large, given)
            try:
                found, ends = self.jitted(states, large, *arrays)
            except ValueError:
                if self._device is None:
                    raise
                found, ends = self._on_a_mesh(states, large, arrays)
            return self._returned(found, ends)
        finally:
            if is_mine:
                lock.release()

    def _on_a_mesh(self, states: Sequence[Any], large: Sequence[Any], arrays: list[Any]) -> Found:
        """Call the function where a mesh of devices is set, and JAX wants all arrays there: they are as any others."""
        plain = jax.tree.map(lambda value: np.asarray(value) if isinstance(value, jax.Array) else value, arrays)
        code = self._packed if self._packs else self._function
        found: Found = jax.jit(code)(states, [np.asarray(value) for value in large], *plain)
        return found

    def _unpacked(self, states: Sequence[Any], large: Sequence[Any], given: Sequence[Raw]) -> Found:
        """Return the results for arguments of other shapes, one by one."""
        given = deferred.settled(given, [pack.arguments for pack in self._packs])
        arrays = [value if f is None else f(value) for f, value in zip(self._into, given, strict=True)]
        found, ends = self._one_by_one(states, [np.asarray(value) for value in large], *arrays)
        return [x if f is None else f(x) for f, x in zip(self._out_of, found, strict=True)], ends

    def _plain(self, given: Sequence[Raw]) -> list[Any]:
        return [given[i] if (f := self._into[i]) is None else f(given[i]) for i in self._singles]

    def _landed(self, given: Sequence[Raw]) -> list[Any]:
        """Return arguments for the function: known arrays, and landing places with the others' elements."""
        arrays: list[Any] = []
        for i, convert, place, may_be_known, is_large in self._ways:
            value = given[i]
            if may_be_known:
                known = self._known[i]
                # Its elements are those of the array of JAX, but its axes may have been changed in place, or of a
                # tensor of PyTorch all its memory.
                if known[0] is value and value.shape == known[2]:
                    address = known[3]
                    if address is None or (value.data_ptr() == address and value.is_contiguous()):
                        arrays.append(known[1])
                        continue
            if convert is not None:
                value = convert(value)
            if is_large and (value.ctypes.data % ALIGNMENT or not value.flags.c_contiguous):
                place = self._place_of_large(i)
            if place is not None:
                memory, array = place
                if value.shape == memory.shape and value.dtype is memory.dtype:
                    memory[...] = value
                    value = array
            arrays.append(value)
        return arrays

    def _place_of_large(self, i: int) -> Any:
        """Return the landing place of a larger argument; None where it has none."""
        if i not in self._large_places:
            self._large_places[i] = None  # one of the first call, such as the first value of a Variable, may be alone
        elif self._large_places[i] is None and (size := _nbytes(self._large[i])) <= self._room:
            self._room -= size
            self._large_places[i] = self._landing(self._large[i])
        return self._large_places[i]

    def _returned(self, found: Sequence[Any], ends: Sequence[Any]) -> Found:
        if self._is_simple:
            return [x if f is None else f(x) for f, x in zip(self._out_of, found, strict=True)], ends
        made: list[Any] = [None] * len(self._out_of)
        for o, array in zip(self._single_results, found, strict=False):
            convert = self._out_of[o]
            made[o] = array if convert is None else convert(array)
        for pack, array in zip(self._packs, found[len(self._single_results) :], strict=True):
            pack.returned(array, made)
        for o, i, is_tensor in self._kept:
            value = made[o]
            self._known[i] = value, found[self._at[o]], value.shape, value.data_ptr() if is_tensor else None
        return made, ends

    def _landing(self, spec: Spec) -> Any:
        """Return memory for an argument and the array of JAX whose memory it is; None where there is none."""
        if self._device is None:
            return None
        memory = aligned_memory(spec.shape, np.dtype(jax_dtype(spec.kind, spec.dtype)))
        memory[...] = 0
        array = jax.device_put(memory, self._device)
        # The client computes in this thread, so nobody reads the memory after the call.
        return (memory, array) if array.unsafe_buffer_pointer() == memory.ctypes.data else None


def _nbytes(spec: Spec) -> int:
    return LANDING_MAX_BYTES + KEPT_MAX_BYTES if -1 in spec.shape else nbytes(spec)
