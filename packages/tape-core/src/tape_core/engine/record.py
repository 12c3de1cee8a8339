"""The layout of a record, which is one call of an op as a tape notes it, and the functions that read one.

A record is a flat tuple, since a tape makes one for each op that runs:

====================================  ===========================================================================
place                                 field
====================================  ===========================================================================
`PLAN` (0)                            the plan, which knows the rules; see :class:`PlanLike`
`SPECS` (1)                           for each input a pair (shape, dtype), or None where the rules need none
`slot_at(k)` (2 + 3 k)                where the recorder keeps input k, None where it is not watched
`array_at(k)` (3 + 3 k)               its raw array, None where no rule names it
`slots_at(k)` (4 + 3 k)               all slots of that array, None where no rule names it
`out_at(n)` (2 + 3 n)                 the raw result, or a list of several; None where no rule names it
`out_slots_at(n)`                     the slots of the result, or a list of those of several
`params_at(n)`, `kwargs_at(n)`        the positional and the keyword parameters; absent for an op of two inputs
last                                  the residuals of a kernel declared with `residual_kernel=`; absent for all others
====================================  ===========================================================================

The op of a sequence of arrays has n = 1: its three fields for the input are tuples with an entry for each array, and
its only spec is a tuple of pairs. Each of several results has a slot of its own, whose record is `(Part, None, slot of
the op)`: it hands its cotangent to the op's record, which comes later in the sweep.

The call paths (`call_paths`) write records out, and generated plans (`plan`) address them by the integers that the
functions below give: both are hot. Everything else reads a record by the accessors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from tape_core.typing import Array, Cotangent, Namespace, Raw, Record, Slot, Slots

PLAN: Final = 0
SPECS: Final = 1
_FIRST_INPUT: Final = 2
_WIDTH: Final = 3  # fields of an input: slot, array, slots of the array


# -- places, for what writes code that reads records


def slot_at(k: int) -> int:
    """Return the place of the slot of input k."""
    return _FIRST_INPUT + _WIDTH * k


def array_at(k: int) -> int:
    """Return the place of the array of input k."""
    return _FIRST_INPUT + _WIDTH * k + 1


def slots_at(k: int) -> int:
    """Return the place of all slots of the array of input k."""
    return _FIRST_INPUT + _WIDTH * k + 2


def out_at(n: int) -> int:
    """Return the place of the result of an op of n inputs."""
    return _FIRST_INPUT + _WIDTH * n


def out_slots_at(n: int) -> int:
    """Return the place of the slots of the result."""
    return out_at(n) + 1


def params_at(n: int) -> int:
    """Return the place of the positional parameters."""
    return out_at(n) + 2


def kwargs_at(n: int) -> int:
    """Return the place of the keyword parameters."""
    return out_at(n) + 3


def residuals_at(n: int, has_parameters: bool) -> int:
    """Return the place of the residuals."""
    return out_at(n) + (4 if has_parameters else 2)


# -- accessors


def slot(rec: Record, k: int) -> Slot:
    """Return the slot of input k, None where it is not watched; of a sequence of arrays a tuple of them."""
    return rec[_FIRST_INPUT + _WIDTH * k]


def array(rec: Record, k: int) -> Raw:
    """Return the array of input k, None where the record does not keep it; of a sequence a tuple of arrays."""
    return rec[_FIRST_INPUT + _WIDTH * k + 1]


def slots(rec: Record, k: int) -> Any:
    """Return all slots of the array of input k, a `Slots`; of a sequence a tuple of them."""
    return rec[_FIRST_INPUT + _WIDTH * k + 2]


def out(rec: Record) -> Raw:
    """Return the result, or a list or tuple of several; None where the record does not keep it."""
    return rec[_FIRST_INPUT + _WIDTH * rec[PLAN].n]


def out_slots(rec: Record) -> Any:
    """Return the slots of the result, a `Slots`, or a list of those of several."""
    return rec[_FIRST_INPUT + _WIDTH * rec[PLAN].n + 1]


def params(rec: Record) -> tuple[Any, ...]:
    """Return the positional parameters of the call."""
    at = params_at(rec[PLAN].n)
    # After the slots of the result come two fields of parameters, or none; a single one more is that of residuals.
    found: tuple[Any, ...] = rec[at] if len(rec) > at + 1 else ()
    return found


def kwargs(rec: Record) -> dict[str, Any]:
    """Return the keyword parameters of the call."""
    at = kwargs_at(rec[PLAN].n)
    found: dict[str, Any] = rec[at] if len(rec) > at else {}
    return found


def residuals(rec: Record) -> tuple[Raw, ...]:
    """Return the residuals that the kernel left for the rules."""
    has_residuals = (len(rec) - params_at(rec[PLAN].n)) % 2 == 1  # parameters are two fields, residuals one
    found: tuple[Raw, ...] = rec[-1] if has_residuals else ()
    return found


def input_slots(rec: Record) -> tuple[Any, ...]:
    """Return for each input its slot, None where it is not watched; of a sequence of arrays a tuple."""
    return rec[_FIRST_INPUT : _FIRST_INPUT + _WIDTH * rec[PLAN].n : _WIDTH]


def each_slot(rec: Record) -> Iterator[Slot]:
    """Yield the slots of the inputs that are watched, those of a sequence one by one."""
    for at in input_slots(rec):
        if type(at) is tuple:
            yield from [i for i in at if i is not None]
        elif at is not None:
            yield at


def inputs(rec: Record) -> list[tuple[Slot, Raw, Slots]]:
    """Return for each array of the inputs its slot, the array and all its slots."""
    if rec[PLAN].op.sequence:
        return list(zip(slot(rec, 0), array(rec, 0), slots(rec, 0), strict=True))
    return [(slot(rec, k), array(rec, k), slots(rec, k)) for k in range(rec[PLAN].n)]


def with_plan(rec: Record, plan: PlanLike) -> Record:
    """Return the record with another plan."""
    return (plan, *rec[1:])


def with_slots(rec: Record, replaced: Mapping[int, Slot]) -> Record:
    """Return the record with other slots for some of its inputs."""
    fields = list(rec)
    for k, found in replaced.items():
        fields[_FIRST_INPUT + _WIDTH * k] = found
    return tuple(fields)


class Lift(Protocol):
    """Makes of an array in a record, and its slots, what rules compute with: the array itself, or a Tensor of it."""

    def __call__(self, array: Raw, slots: Slots | Sequence[Slots], /) -> Array: ...


class PlanLike(Protocol):
    """The first field of a record: it runs the record backwards.

    `Plan` is that of an op, `Part` that of one of several results, `NotedPlan` that of a debugging tape, and compiled
    functions have one of their own. A sweep calls one of the three `backward` methods, which add the cotangents of the
    inputs to `grads` at their slots, and have the signatures below. A plan may also have `leading(rec)` and `within`,
    for results of a call that depend on other results of it: see `backward._calls_with_results`.
    """

    @property
    def n(self) -> int:
        """The number of inputs that the layout of the record counts."""

    @property
    def recorded(self) -> PlanLike:
        """The plan for a sweep that is itself recorded."""

    def toward(self, rec: Record, wanted: bytearray, /) -> PlanLike:
        """Return the plan without the rules for inputs into which no wanted slot flows."""

    @property
    def backward(self) -> Any:
        """`(g, rec, grads, xp)`: on raw arrays, with nothing masked, and sparse cotangents at leaves alone."""

    @property
    def backward_reusing(self) -> Any:
        """`(g, rec, grads, xp, backend)`: the same for large arrays; it overwrites memory that nobody else holds."""

    def backward_careful(
        self, g: Cotangent, rec: Record, grads: list[Cotangent], xp: Namespace, lift: Lift, masked: int, wide: Any, /
    ) -> None:
        """Run backward in all other sweeps, such as those on Tensors."""
