"""Values of Variables that are arrays of JAX: from one call to the next they stay in one array, as in `packs.py`.

Nothing is written in place: arrays are made of what somebody reads, and another array of what somebody has assigned.
That is done by NumPy, for which nothing need be compiled: the arrays are on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding
from tape_core.support import deferred, picking
from tape_core.typing import Raw

from tape_jax import devices
from tape_jax.conversion import is_tracing
from tape_jax.thresholds import KEPT_MIN_ARRAYS, PACK_MAX_BYTES, PACKED_MAX_BYTES, READ_TOGETHER_AFTER
from tape_jax.xla.packs import Layout, Misfit, Pair, grouped
from tape_jax.xla.transfer import is_of_jax, nbytes
from tape_jax.xla.work import pays_to_pack

if TYPE_CHECKING:
    from tape_compile.extend import Spec

Shapes = tuple[tuple[int, ...], ...]
Found = tuple[Sequence[Any], Sequence[Any]]
Chosen = Callable[[Sequence[Raw]], Callable[..., Found]]


class Held(deferred.Held):
    """The values of a pack after a call; arrays are made of them when the first is asked for."""

    __slots__ = ("_arrays", "_pack", "whole")

    def __init__(self, pack: Pack, whole: Any) -> None:
        self.whole = whole
        self._pack = pack
        self._arrays: list[Raw | None] = []

    @property
    def shapes(self) -> Shapes:
        """Those of the values."""
        return self._pack.shapes

    @property
    def arrays(self) -> list[Raw]:
        """The values as arrays: the same ones each time."""
        return [self.array(number) for number in range(len(self.shapes))]

    def array(self, number: int) -> Raw:
        """Return one of the arrays, which is made when it is asked for first."""
        if not self._arrays:
            self._arrays = [None] * len(self.shapes)
        arrays = self._arrays
        found = arrays[number]
        if found is None:
            if is_tracing():
                with jax.ensure_compile_time_eval():  # there, too, it is an array
                    arrays[number] = found = self._pack.array(self.whole, number)
            else:
                for at, array in self._pack.arrays(self.whole, number):
                    if arrays[at] is None:  # what somebody has already stays what it is
                        arrays[at] = array
                found = arrays[number]
        return found

    def has(self, values: Iterable[Raw]) -> bool:
        """Return whether these arrays have been made of it."""
        arrays = self._arrays
        return bool(arrays) and all(map(is_, values, arrays))


class Pack(Layout):
    """Results, of one dtype, that are arguments of the next call, in one array.

    Args:
        pairs, specs: see :class:`Layout`.

    Attributes:
        dtype: of the array.
    """

    def __init__(self, pairs: Sequence[Pair], specs: Sequence[Spec]) -> None:
        super().__init__(pairs, specs)
        self._first = self.arguments[0]
        self.dtype = specs[0].dtype
        self._last: Held | None = None
        self._read = Reading(self.parts)

    def array(self, whole: jax.Array, number: int) -> Raw:
        """Return one of the arrays that are in one."""
        own, shape = self.slices[number], self.shapes[number]
        place = whole.sharding if whole.committed else None
        found = _copy_on(place)(np.asarray(whole)[own].reshape(shape))
        if found.dtype != self.dtype:  # JAX has been told to have no float64, meanwhile or in this thread
            found = jax.lax.slice(whole, [own.start], [own.stop]).reshape(shape)
        return found

    def arrays(self, whole: jax.Array, number: int) -> Iterable[tuple[int, Raw]]:
        """Return one of the arrays, with its number, and those that are always read with it."""
        together, program = self._read.together
        if number in together:
            found = program(whole)
            if found[0].dtype == self.dtype:
                return zip(together, found, strict=True)
        return [(number, self.array(whole, number))]

    def given(self, arguments: Sequence[Raw]) -> Any:
        """Return the array for a call: the last result if all is as it was, else one of the arguments."""
        held = arguments[self._first]
        if type(held) is Held:
            if held.shapes is self.shapes or held.shapes == self.shapes:
                return held.whole
            values = held.arrays
        else:
            values = [arguments[k] for k in self.arguments]
            last = self._last  # whoever has it, has its arrays
            if last is not None and last.has(values):
                return last.whole
        for value, shape in zip(values, self.shapes, strict=True):
            if value.shape != shape or value.dtype != self.dtype:
                raise Misfit
        places = [value.sharding for value in values if value.committed]
        if not all([type(place) is SingleDeviceSharding for place in places]):  # a mesh of one device: it has axes
            raise Misfit
        whole = np.concatenate([np.asarray(value).reshape(-1) for value in values])
        return jax.device_put(whole, places[0]) if places else whole

    def held(self, whole: Any) -> Held:
        """Return the values in an array that XLA has returned."""
        last = self._last
        if last is not None and last._arrays:
            self._read.note(last._arrays)
        self._last = held = Held(self, whole)
        return held


class Reading:
    """What is read of a pack after its calls: values that are read after each are made by one program of XLA.

    A step of one model that reads another's, which has a step of its own, does so: to make arrays one by one would take
    longer than both steps.

    Args:
        parts: makes all values of a pack; for XLA's code.

    Attributes:
        together: the numbers of values that are made when one of them is read, and a function that makes them.
    """

    def __init__(self, parts: Callable[[Any], list[Any]]) -> None:
        self.together: tuple[Sequence[int], Callable[[Any], list[Any]]] = ((), parts)  # one attribute, for threads
        self._parts = parts
        self._numbers: list[int] = []  # of the values that were read last
        self._times = 0  # how many times in a row

    def note(self, arrays: Sequence[Raw | None]) -> None:
        """Note which arrays were made after a call."""
        numbers = [number for number, array in enumerate(arrays) if array is not None]
        if numbers != self._numbers:
            self._numbers, self._times = numbers, 0
        self._times += 1
        if self._times == READ_TOGETHER_AFTER and len(numbers) > 1:
            parts = self._parts
            self.together = numbers, jax.jit(lambda whole: [parts(whole)[number] for number in numbers])


class Keeping:
    """A function of `jax.jit` between arrays of JAX, some of whose results stay in packs until the next call.

    Args:
        function: what to compile: it takes states of generators, large constants, and the arrays.
        chosen: returns the compiled function for arguments that are no packs.
        ins, outs: the counts of arguments and results.
        packs: of which at least one is there.

    Attributes:
        arguments: the places of those that are in packs.
        deferred: the places of the results of each pack.
    """

    def __init__(
        self, function: Callable[..., Found], chosen: Chosen, ins: int, outs: int, packs: Sequence[Pack]
    ) -> None:
        self._function = function
        self._chosen = chosen
        self._packs = packs
        self.deferred = [pack.results for pack in packs]
        self.arguments = {i for pack in packs for i in pack.arguments}
        self._others = [i for i in range(ins) if i not in self.arguments]
        self._pick_others = picking(self._others)
        packed = {o for pack in packs for o in pack.results}
        self._other_results = [o for o in range(outs) if o not in packed]
        # The results in order, out of the others, the packs, and None.
        places = {o: at for at, o in enumerate([*self._other_results, *[pack.results[0] for pack in packs]])}
        self._in_order = picking([places.get(o, len(places)) for o in range(outs)])
        self.jitted = jax.jit(self._packed)

    def _packed(self, states: Sequence[Raw], large: Sequence[Raw], others: Sequence[Raw], wholes: Sequence[Raw]) -> Any:
        given = dict(zip(self._others, others, strict=True))
        for pack, whole in zip(self._packs, wholes, strict=True):
            given.update(zip(pack.arguments, pack.parts(whole), strict=True))
        found, ends = self._function(states, large, *[given[i] for i in range(len(given))])
        made = [pack.whole(found) for pack in self._packs]
        return [found[o] for o in self._other_results], made, ends

    def trace(self, states: Sequence[Any], large: Sequence[Any], examples: Sequence[Any]) -> Any:
        """Lower the function, for arguments that are, or stand for, what is given to JAX; return what it is then."""
        like: Any = jax.ShapeDtypeStruct  # its constructor has no types
        wholes = [like((pack.size,), pack.dtype) for pack in self._packs]
        return self.jitted.trace(states, large, self._pick_others(tuple(examples)), wholes)

    def __call__(self, states: Sequence[Any], large: Sequence[Any], given: tuple[Raw, ...]) -> Found:
        """Return the results, with an object for those of each pack, and the states after it."""
        packs = self._packs
        try:
            wholes = [pack.given(given) for pack in packs]
        except Misfit:
            return self.unpacked(states, large, given)
        others, made, ends = self.jitted(states, large, self._pick_others(given), wholes)
        helds = [pack.held(whole) for pack, whole in zip(packs, made, strict=True)]
        return self._in_order((*others, *helds, None)), ends

    def unpacked(self, states: Sequence[Any], large: Sequence[Any], given: Sequence[Raw]) -> Found:
        """Return the results for arguments of other shapes, or on a mesh, one by one."""
        given = deferred.settled(given, [pack.arguments for pack in self._packs])
        found: Found = self._chosen(given)(states, large, *given)
        return found


def keeping(
    function: Callable[..., Found],
    chosen: Chosen,
    ins: Sequence[Spec],
    outs: Sequence[Spec],
    pairs: Sequence[Pair],
    deferrable: Collection[int],
    seconds: float,
) -> Keeping | None:
    """Return the function for arrays of JAX that keeps values from call to call; None where it would keep none.

    With several devices it keeps none, as arrays of one pack would be divided alike; nor on any but CPUs, for which it
    is measured.

    Args:
        function, chosen: see :class:`Keeping`.
        ins, outs: the specs of arguments and results.
        pairs: (result, argument): the result is the argument of the next call.
        deferrable: the results that may be deferred values.
        seconds: that a call takes at least.
    """

    def kind(pair: Pair) -> Hashable | None:
        out, spec = outs[pair[0]], ins[pair[1]]
        if pair[0] not in deferrable or not is_of_jax(spec) or -1 in spec.shape or not spec.size:
            return None
        is_same = (tuple(out.shape), out.dtype) == (tuple(spec.shape), spec.dtype)
        return spec.dtype if is_same and nbytes(spec) <= PACKED_MAX_BYTES else None

    found = grouped(pairs, ins, kind, lambda spec: PACK_MAX_BYTES, KEPT_MIN_ARRAYS)
    if not found or not pays_to_pack(sum(map(len, found)), seconds):
        return None
    if devices.several() or devices.default().platform != "cpu":
        return None
    packs = [Pack(several, [ins[i] for _, i in several]) for several in found]
    return Keeping(function, chosen, len(ins), len(outs), packs)


@cache
def _copy_on(place: Any) -> Any:
    """Return a function that makes an array of JAX of one of NumPy's, in a third of the time of `jnp.asarray`."""
    return jax.jit(_same) if place is None else jax.jit(_same, in_shardings=place)


def _same(array: Raw) -> Raw:
    return array
