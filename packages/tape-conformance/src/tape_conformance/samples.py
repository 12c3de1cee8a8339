"""A sample of an op on the backend that is checked: what it is called, how it is run and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tape_core as tc
from tape_core.backends.selection import select
from tape_core.extend import NONDIFF, TODO, Draw, Op, Refused, Sample

Replaced = Mapping[int, Any]
"""By the number of the input, or of the element where the input is a sequence, what stands in its place."""

NOTHING: Final[Replaced] = {}


@dataclass(frozen=True)
class Leaf:
    """An input of a sample that a gradient flows to."""

    k: int
    name: str
    value: Any


@dataclass(frozen=True)
class Case:
    """One sample of an op."""

    op: Op
    sample: Sample
    label: str
    leaves: tuple[Leaf, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", tuple(self._leaves()))

    @property
    def values(self) -> list[Any]:
        """What is given for the op's inputs."""
        args = self.sample.args
        return list(args[0]) if self.op.sequence else list(args[: len(self.op.inputs)])

    def _leaves(self) -> list[Leaf]:
        return [
            Leaf(k, self.name_of(k), value)
            for k, value in enumerate(self.values)
            if isinstance(value, tc.Tensor) and value.dtype.inexact and self.rule_of(k) not in (NONDIFF, TODO)
        ]

    def parameter(self, name: str) -> Any:
        """What is given for a parameter of the op; None by default, or if it has none of this name."""
        given = self.op.signature.bind(*self.sample.args, **self.sample.kwargs).arguments
        return given.get(name)

    def rule_of(self, k: int) -> Any:
        """The rule for input k."""
        return self.op.rules[self.op.inputs[0 if self.op.sequence else k]]

    def name_of(self, k: int) -> str:
        """What input k is called in an id."""
        return f"{self.op.inputs[0]}{k}" if self.op.sequence else self.op.inputs[k]

    @property
    def is_complex(self) -> bool:
        """Whether an input is complex."""
        return any(isinstance(v, tc.Tensor) and v.dtype.kind == "complex floating" for v in self.values)

    def call(self, replaced: Replaced = NOTHING) -> tuple[Any, ...]:
        """The op's results."""
        values = [replaced.get(k, v) for k, v in enumerate(self.values)]
        rest = self.sample.args[1:] if self.op.sequence else self.sample.args[len(values) :]
        given = [values] if self.op.sequence else values
        out = self.op.function(*given, *rest, **self.sample.kwargs)
        return tuple(out) if isinstance(out, tuple | list) else (out,)

    @property
    def by_keyword(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The sample's arguments, its parameters by name; None if they are anyway."""
        given = 1 if self.op.sequence else len(self.op.inputs)
        parameters = [p for p in self.op.signature.parameters.values() if p.name not in self.op.inputs]
        args, named = list(self.sample.args[:given]), {}
        for parameter, value in zip(parameters, self.sample.args[given:], strict=False):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                named[parameter.name] = value
        return (tuple(args), {**named, **self.sample.kwargs}) if named else None

    def observed(self, outs: tuple[Any, ...]) -> tuple[Any, ...]:
        """What is looked at of the results."""
        seen = self.sample.observed(tc, *outs)
        return tuple(seen) if isinstance(seen, tuple | list) else (seen,)

    def weights(self) -> list[Any]:
        """A NumPy array for each result observed, with which it counts in the loss; None for what has no derivative.

        The loss is the sum of the real parts of the results' products with the conjugates of the weights, so that the
        weights are its cotangents. It is summed by NumPy: ops that are checked must not be what checks them.
        """
        rng = np.random.default_rng(2)
        found: list[Any] = []
        for out in self.observed(self.call()):
            w = rng.uniform(-2, 2, out.shape)
            is_complex = out.dtype.kind == "complex floating"
            found.append(None if not out.dtype.inexact else w * (1 - 0.5j) if is_complex else w)
        return found

    def directions(self, seed: int) -> dict[int, Any]:
        """For each leaf a direction, a NumPy array, in which it may be changed."""
        rng = np.random.default_rng(seed)
        found = {}
        for leaf in self.leaves:
            direction = rng.standard_normal(leaf.value.shape)
            if leaf.value.dtype.kind == "complex floating":
                direction = direction + 1j * rng.standard_normal(leaf.value.shape)
            found[leaf.k] = np.asarray(self.sample.projected(direction))
        return found

    def moved(self, directions: Mapping[int, Any], step: float) -> dict[int, Any]:
        """The leaves, moved along directions."""
        return {
            leaf.k: here(leaf.value.numpy() + step * directions[leaf.k]) for leaf in self.leaves if leaf.k in directions
        }


@dataclass(frozen=True)
class Drawn:
    """The samples of an op as the backend can make them.

    Attributes:
        cases: those that the op takes.
        refused: those that it must refuse.
        error: what stopped the generator, if it did not come to its end.
    """

    cases: list[Case]
    refused: list[Case]
    error: Exception | None


def drawn(op: Op) -> Drawn:
    """Draw the samples of an op on the selected backend."""
    found: list[Sample] = []
    error = None
    try:
        if op.samples is not None:
            found.extend(op.samples(Draw(1)))
    except Exception as stopped:  # noqa: BLE001 - a finding, to be told by a check
        error = stopped
    taken = [s for s in found if not isinstance(s, Refused)]
    return Drawn(_labelled(op, taken), _labelled(op, [s for s in found if isinstance(s, Refused)]), error)


def _labelled(op: Op, samples: Sequence[Sample]) -> list[Case]:
    found: dict[str, Case] = {}
    for sample in samples:
        base = label = _label(op, sample)
        n = 1
        while label in found:
            n += 1
            label = f"{base}#{n}"
        found[label] = Case(op, sample, label)
    return list(found.values())


def _label(op: Op, sample: Sample) -> str:
    """What the sample shows, in a word, and its arguments."""
    values = list(sample.args[0]) if op.sequence else list(sample.args[: len(op.inputs)])
    shapes = [tuple(v.shape) for v in values if isinstance(v, tc.Tensor)]
    kinds = {v.dtype.kind for v in values if isinstance(v, tc.Tensor)}
    words = []
    if "complex floating" in kinds:
        words.append("complex")
    if any(0 in shape for shape in shapes):
        words.append("empty")
    elif op.elementwise and len(set(shapes)) > 1:
        words.append("broadcast")
    elif shapes and not any(shapes):
        words.append("0-d")
    parts = [_text(a) for a in sample.args] + [f"{k}={_text(v)}" for k, v in sample.kwargs.items()]
    return ":".join([*words, ",".join(parts)])


def here(array: Any) -> Any:
    """A NumPy array as a Tensor of the backend that is checked; alone it would belong to NumPy's."""
    chosen = select()
    return tc.asarray(array, backend=chosen.backend, device=chosen.device)


def _text(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return "x".join(map(str, value.shape)) or "()"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, slice):
        ends = ["" if end is None else str(end) for end in (value.start, value.stop, value.step)]
        return ":".join(ends[: 3 if ends[2] else 2])
    if value is Ellipsis:
        return "..."
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace(" ", "")
