"""Values of Variables in one array: each array that goes into XLA's code and comes out of it costs 1 to 2 µs.

A program that trains has many: each parameter, and what an optimizer keeps of it. Those of a pack share memory, and
whoever keeps the former value of one keeps all of it. So a pack is not large, small arrays have smaller ones of their
own, and single numbers, which are what is kept in histories, are in none.

The values that a call returns are deferred where the caller takes such: arrays are made of them when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core.support import deferred
from tape_core.typing import Raw

from tape_jax.conversion import NATIVE, aligned_memory
from tape_jax.thresholds import (
    PACK_MAX_BYTES,
    PACK_MIN_ARRAYS,
    PACK_OF_SMALL_MAX_BYTES,
    PACKED_MAX_BYTES,
    PACKED_SMALL_MAX_BYTES,
)
from tape_jax.xla.transfer import is_swapped, jax_dtype, nbytes
from tape_jax.xla.work import pays_to_pack

if TYPE_CHECKING:
    from tape_compile.extend import Spec

_shape_of = attrgetter("shape")


Pair = tuple[int, int]
"""The places of a value as a result, and as an argument of the next call."""


class Layout:
    """Where values lie in one array: those that a function returns, and takes in the next call.

    Args:
        pairs, specs: of the values.

    Attributes:
        results, arguments: the places of each.
        shapes, size: of the values, and of the array.
    """

    def __init__(self, pairs: Sequence[Pair], specs: Sequence[Spec]) -> None:
        self.results = [o for o, _ in pairs]
        self.arguments = [i for _, i in pairs]
        self.shapes = tuple([tuple(spec.shape) for spec in specs])
        ends = [0, *accumulate(map(math.prod, self.shapes))]
        self.size = ends[-1]
        self.slices = [slice(*pair) for pair in pairwise(ends)]
        # A slice is one-dimensional as it is: only the others need another shape.
        self._reshaped = [(at, shape) for at, shape in enumerate(self.shapes) if len(shape) != 1]

    def parts(self, whole: Any) -> list[Any]:
        """Return the arrays that are in one; also for XLA's code."""
        found = list(map(whole.__getitem__, self.slices))
        for at, shape in self._reshaped:
            found[at] = found[at].reshape(shape)
        return found

    def whole(self, found: Sequence[Any]) -> Any:
        """Return one array of those that are among all results; for XLA's code."""
        return jnp.concatenate([jnp.ravel(found[k]) for k in self.results])


def grouped(
    pairs: Sequence[Pair],
    specs: Sequence[Spec],
    kind: Callable[[Pair], Hashable | None],
    limit: Callable[[Spec], int],
    least: int,
) -> list[list[Pair]]:
    """Return pairs whose values may lie in one array.

    Args:
        specs: those of the arguments.
        kind: of a pair: those of one kind may lie together, and those of None in no array.
        limit: the bytes of the array that such a value may lie in.
        least: values that an array is worth while for.
    """
    groups: dict[Hashable, list[list[Pair]]] = {}
    sizes: dict[Hashable, int] = {}
    for pair in pairs:
        if (what := kind(pair)) is None:
            continue
        spec = specs[pair[1]]
        size = nbytes(spec)
        if what not in groups or sizes[what] + size > limit(spec):
            groups.setdefault(what, []).append([])
            sizes[what] = 0
        groups[what][-1].append(pair)
        sizes[what] += size
    return [group for several in groups.values() for group in several if len(group) >= least]


class Pack(Layout):
    """Results, of one dtype and one library, that are arguments of the next call, in one array.

    Args:
        pairs, specs: see :class:`Layout`.
        defers: whether results are deferred values.
        into, out_of: what makes a NumPy array of a value, and a value of a NumPy array; None for nothing.
        device: of XLA, for the memory that other values are copied to; None where there is none.

    Attributes:
        defers: as given.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        specs: Sequence[Spec],
        defers: bool,
        into: Callable[[Any], Any] | None,
        out_of: Callable[[Any], Any] | None,
        device: Any,
    ) -> None:
        super().__init__(pairs, specs)
        self.defers = defers
        self.dtype = np.dtype(jax_dtype(specs[0].kind, specs[0].dtype))
        self._into = into
        self._out_of = out_of
        self._tensor: Any = specs[0].kind if hasattr(specs[0].kind, "data_ptr") else None
        # The last result as XLA has returned it, and as the caller has it; one object, as other threads may replace it.
        self._last: tuple[Any, Held | None] = None, None
        self._landing: tuple[list[Any], Any] | None = None
        if device is not None:
            memory = aligned_memory((self.size,), self.dtype)
            memory[...] = 0
            array = jax.device_put(memory, device)
            if array.unsafe_buffer_pointer() == memory.ctypes.data:
                self._landing = self.parts(memory), array

    def given(self, arguments: Sequence[Raw], is_mine: bool) -> Any:
        """Return the array for a call: the last result if all is as it was, else one with a copy of each argument.

        Args:
            arguments: all of the call.
            is_mine: whether the memory that XLA knows may be written to.

        Raises:
            Misfit: an argument has another shape or dtype than it had.
        """
        array, last = self._last
        held = arguments[self.arguments[0]]
        if type(held) is Held:
            if held is last and held.is_whole():
                return array
            values = held.arrays
        else:
            values = [arguments[k] for k in self.arguments]
            if last is not None and last.is_made and all(map(is_, values, last.arrays)) and last.is_whole():
                return array
        if is_mine and self._landing is not None:
            slots, array = self._landing
        else:
            array = np.empty(self.size, self.dtype)
            slots = self.parts(array)
        if self._into is not None:
            values = list(map(self._into, values))
        for value, slot in zip(values, slots, strict=True):
            if value.shape != slot.shape or value.dtype != slot.dtype:
                raise Misfit
            slot[...] = value
        return array

    def returned(self, array: Any, made: list[Any]) -> None:
        """Put the values in an array that XLA has returned into the list of a call's results."""
        held = Held(self, array)
        if self.defers:
            made[self.results[0]] = held
        else:
            for k, value in zip(self.results, held.arrays, strict=True):
                made[k] = value
        self._last = array, held

    def arrays(self, whole: Any) -> list[Raw]:
        """Return the values in an array of NumPy, as arrays of their library."""
        found = self.parts(whole)
        return found if self._out_of is None else list(map(self._out_of, found))

    def addresses(self, values: list[Raw]) -> list[int]:
        """Return where tensors of PyTorch have their memory, which may be replaced."""
        return [] if self._tensor is None else list(map(self._tensor.data_ptr, values))

    def are_whole(self, values: list[Raw], addresses: list[int]) -> bool:
        """Return whether values are laid out as they were: axes, or the memory, may have been changed in place."""
        if tuple(map(_shape_of, values)) != self.shapes:
            return False
        tensor = self._tensor
        if tensor is None:
            return True
        return list(map(tensor.data_ptr, values)) == addresses and all(map(tensor.is_contiguous, values))


class Held(deferred.Held):
    """The values of a pack after a call; arrays are made of them when the first is asked for."""

    __slots__ = ("_addresses", "_arrays", "_pack", "_whole")

    def __init__(self, pack: Pack, whole: Any) -> None:
        self._pack = pack
        self._whole = whole
        self._arrays: list[Raw] | None = None
        self._addresses: list[int] = []

    @property
    def arrays(self) -> list[Raw]:
        """The values as arrays: the same ones each time."""
        arrays = self._arrays
        if arrays is None:
            arrays = self._pack.arrays(np.asarray(self._whole))
            self._addresses = self._pack.addresses(arrays)
            self._arrays = arrays
        return arrays

    @property
    def is_made(self) -> bool:
        """Whether there are arrays."""
        return self._arrays is not None

    def is_whole(self) -> bool:
        """Return whether the values are those in the array of JAX: nobody has the arrays, or they are as they were."""
        arrays = self._arrays
        return arrays is None or self._pack.are_whole(arrays, self._addresses)


class Misfit(Exception):
    """A value is not what the pack is for."""


def packs(
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    kept: Sequence[tuple[int, int]],
    into: Sequence[Any],
    out_of: Sequence[Any],
    device: Any,
    deferrable: Collection[int],
    seconds: float,
) -> list[Pack]:
    """Return the packs of a function between arrays of NumPy or PyTorch.

    Args:
        ins, outs: the specs of arguments and results.
        kept: pairs (result, argument): the result is the argument of the next call.
        into, out_of: of each argument and result what makes a NumPy array of it, or it of such an array.
        device: see :class:`Pack`.
        deferrable: the results that may be deferred values.
        seconds: that a call takes at least.
    """

    def kind(pair: Pair) -> Hashable | None:
        o, i = pair
        spec = ins[i]
        if not _fits(spec) or (outs[o].kind, tuple(outs[o].shape), outs[o].dtype) != (
            spec.kind, tuple(spec.shape), spec.dtype
        ):  # fmt: skip
            return None
        return o in deferrable, spec.kind, spec.dtype, _is_small(spec)

    def limit(spec: Spec) -> int:
        return PACK_OF_SMALL_MAX_BYTES if _is_small(spec) else PACK_MAX_BYTES

    groups = grouped(kept, ins, kind, limit, PACK_MIN_ARRAYS)
    if not pays_to_pack(sum(map(len, groups)), seconds):
        return []
    return [
        Pack(pairs, [ins[i] for _, i in pairs], pairs[0][0] in deferrable, into[pairs[0][1]],
             _of_view(out_of[pairs[0][0]], ins[pairs[0][1]]), device)
        for pairs in groups
    ]  # fmt: skip


def _is_small(spec: Spec) -> bool:
    return nbytes(spec) <= PACKED_SMALL_MAX_BYTES


def _of_view(out_of: Any, spec: Spec) -> Any:
    return out_of if hasattr(spec.kind, "data_ptr") else None


def _fits(spec: Spec) -> bool:
    if spec.dtype is None or -1 in spec.shape or spec.size < 2 or is_swapped(spec):
        return False
    is_array = spec.kind is np.ndarray or hasattr(spec.kind, "data_ptr")
    return is_array and np.dtype(jax_dtype(spec.kind, spec.dtype)) in NATIVE and nbytes(spec) <= PACKED_MAX_BYTES
