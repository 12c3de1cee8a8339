"""Functions of XLA between arrays of NumPy and PyTorch: computed in the thread that calls, by a client of their own.

JAX hands a program to a thread of XLA's and returns; who wants NumPy's arrays waits for that thread, some 8 µs a call.
A second client of XLA, for such programs alone, computes before it returns. JAX's own arrays never get into it.

What a call would do again and again is done once:

- An array that XLA has made, and that is the value of a Variable since, is given as the array of JAX that it was.
- A small array of the user's is copied to memory that XLA has been told of before, its landing place, which takes a
  third of the time in which JAX makes an array of it. Nothing is taken to be as it was in the last call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from tape_core.typing import Raw

from tape_jax.conversion import aligned_memory
from tape_jax.thresholds import KEPT_MAX_BYTES, LANDING_MAX_BYTES
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
    """

    def __init__(self, function: Function, ins: list[Spec], outs: list[Spec], kept: list[tuple[int, int]]) -> None:
        self._function = function
        device = own_device()
        self._device = device
        self._sharding: Any = None if device is None else jax.sharding.SingleDeviceSharding(device)
        self.jitted = jax.jit(function) if device is None else jax.jit(function, in_shardings=self._sharding)
        self._into = [into(spec) for spec in ins]
        self._out_of = [out_of(spec) for spec in outs]
        self._places = [self._landing(spec) for spec in ins]
        self._kept = [
            (o, i, hasattr(ins[i].kind, "data_ptr"))
            for o, i in kept
            # A result in another order of bytes is a copy, which its owner may write to.
            if ins[i].dtype is not None and _nbytes(ins[i]) <= KEPT_MAX_BYTES and not is_swapped(outs[o])
        ]
        # Of each argument the object that is known, the array of JAX with its elements, its shape and its address.
        self._known: list[tuple[Any, ...]] = [(None, None, None, None)] * len(ins)
        self._lock = Lock()  # of the landing places; it is tried and never waited for

    def put(self, constant: Any) -> Any:
        """Return a constant as an array that the function takes in each call."""
        return jax.numpy.asarray(constant) if self._device is None else jax.device_put(constant, self._device)

    def trace(self, *given: Any) -> None:
        """Lower the function.

        Raises:
            Exception: as the function does.
        """
        self.jitted.trace(*given)

    def __call__(self, states: Sequence[Any], large: Sequence[Any], given: Sequence[Raw]) -> Found:
        """Return the results and the states after it."""
        if not self._lock.acquire(blocking=False):  # another thread, or a callback inside, is in a call
            return self._returned(*self._run(states, large, self._plain(given)))
        try:
            found, ends = self._run(states, large, self._landed(given))
            return self._returned(found, ends)
        finally:
            self._lock.release()

    def _run(self, states: Sequence[Any], large: Sequence[Any], arrays: list[Any]) -> Found:
        try:
            return self.jitted(states, large, *arrays)  # type: ignore[no-any-return]
        except ValueError:
            if self._device is None:
                raise
            # Where a mesh of devices is set JAX wants all arrays there: these are given to JAX as any others.
            plain = jax.tree.map(lambda value: np.asarray(value) if isinstance(value, jax.Array) else value, arrays)
            found: Found = jax.jit(self._function)(states, [np.asarray(value) for value in large], *plain)
            return found

    def _plain(self, given: Sequence[Raw]) -> list[Any]:
        return [value if f is None else f(value) for f, value in zip(self._into, given, strict=True)]

    def _landed(self, given: Sequence[Raw]) -> list[Any]:
        """Return arguments for the function: known arrays, and landing places with the others' elements."""
        arrays: list[Any] = []
        for value, convert, known, place in zip(given, self._into, self._known, self._places, strict=True):
            # Its elements are those of the array of JAX, but its axes may have been changed in place, or of a tensor of
            # PyTorch all its memory.
            if known[0] is value and value.shape == known[2]:
                address = known[3]
                if address is None or (value.data_ptr() == address and value.is_contiguous()):
                    arrays.append(known[1])
                    continue
            if convert is not None:
                value = convert(value)
            if place is not None and value.shape == place[0].shape and value.dtype is place[0].dtype:
                place[0][...] = value
                value = place[1]
            arrays.append(value)
        return arrays

    def _returned(self, found: Sequence[Any], ends: Sequence[Any]) -> Found:
        made = [
            array if convert is None else convert(array) for array, convert in zip(found, self._out_of, strict=True)
        ]
        for o, i, is_tensor in self._kept:
            value = made[o]
            self._known[i] = value, found[o], value.shape, value.data_ptr() if is_tensor else None
        return made, ends

    def _landing(self, spec: Spec) -> Any:
        """Return memory for an argument and the array of JAX whose memory it is; None where there is none."""
        if self._device is None or spec.dtype is None or _nbytes(spec) > LANDING_MAX_BYTES:
            return None
        memory = aligned_memory(spec.shape, np.dtype(jax_dtype(spec.kind, spec.dtype)))
        memory[...] = 0
        array = jax.device_put(memory, self._device)
        # The client computes in this thread, so nobody reads the memory after the call.
        return (memory, array) if array.unsafe_buffer_pointer() == memory.ctypes.data else None


def _nbytes(spec: Spec) -> int:
    return LANDING_MAX_BYTES + KEPT_MAX_BYTES if -1 in spec.shape else nbytes(spec)
