"""Where float64 begins: `tape.float64_origins()`, and the same of the trace of a compiled function."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, TypeAlias

from tape_core.debugging.graph import view
from tape_core.debugging.notes import Place

if TYPE_CHECKING:
    from tape_core.engine.tape import GradientTape

NARROW = frozenset({"float16", "bfloat16", "float32", "complex64"})
WIDE = frozenset({"float64", "complex128"})

Typed: TypeAlias = tuple[Hashable, str]
"""A value of a call: what names it, and its dtype without the array library."""


@dataclass(frozen=True)
class Float64Origin:
    """An op whose result is wider than an operand of its.

    Attributes:
        op: the op's name.
        operands: the dtypes of its arrays. If one of them is wide, that array brought float64 in; if none is, the op
            was asked for it, as `astype` is.
        result: the dtype of the result, float64 or complex128.
        place: the user's line, with `file`, `line` and `function`; None if it is not known.
    """

    op: str
    operands: tuple[str, ...]
    result: str
    place: Place | None

    def __str__(self) -> str:
        what = f"{self.op}({', '.join(self.operands)}) -> {self.result}"
        return what if self.place is None else f"{what}\n{indent(str(self.place), '    ')}"


class Float64Origins(tuple[Float64Origin, ...]):
    """The ops where float64 begins, each line once, in the order in which they ran; it prints as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no op makes float64 of narrower floats"

    @classmethod
    def of(cls, calls: Iterable[tuple[str, Sequence[Typed], Sequence[Typed], Place | None]]) -> Float64Origins:
        """Return the origins among calls in their order: of each its name, arrays, results and line.

        What is computed with a result of an op that is among them is not among them again.
        """
        found: dict[Float64Origin, None] = {}
        known: set[Hashable] = set()  # the wide values that come from an origin
        for op, operands, results, place in calls:
            wide = {name: dtype for name, dtype in results if dtype in WIDE}
            if not wide:
                continue
            dtypes = tuple([dtype for _, dtype in operands])
            if known.isdisjoint([name for name, dtype in operands if dtype in WIDE]):
                if NARROW.isdisjoint(dtypes):
                    continue
                found[Float64Origin(op, dtypes, next(iter(wide.values())), place)] = None
            known.update(wide)
        return cls(found)


def float64_origins(tape: GradientTape) -> Float64Origins:
    """See :meth:`GradientTape.float64_origins`."""
    generation = view(tape).generation
    if generation is None:
        raise RuntimeError(
            "GradientTape.float64_origins: only a debugging tape notes the lines and dtypes of ops: make it with "
            "GradientTape(debug=True)"
        )

    def typed(numbers: Iterable[int | None]) -> Iterator[Typed]:
        return ((k, generation.specs[k][1]) for k in numbers if k is not None)

    # Inside vmap a kernel calls other ops, which are notes of the same call.
    return Float64Origins.of(
        (call.name, [*typed(call.inputs)], [*typed(call.outputs)], call.place)
        for call in generation.calls
        if call.op is not None and not call.nested
    )
