"""Cases: samples of ops, with the labels that name them in ids of checks.

Samples are drawn with NumPy, whatever is checked, so that the checks of any library are listed at once; their arrays
become the library's when a case is first checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import tape_core as tc
from numpy.typing import NDArray
from tape_core.backends import select, use_backend
from tape_core.extend import NONDIFF, TODO, Draw, Op, Refused, Sample

from tape_conformance.checking import Check
from tape_conformance.plain import PLAIN, Here

Replaced: TypeAlias = Mapping[int, Any]
"""Tensors in place of some inputs: by the number of the input, or of the element of an input that is a sequence."""

AS_SAMPLED: Final[Replaced] = {}

_WORDS: Final = {
    "complex": "complex numbers",
    "empty": "empty arrays",
    "broadcast": "broadcasting",
    "0-d": "0-d arrays",
}
"""What is special about a sample, by the word in its label."""

Weights: TypeAlias = Sequence[NDArray[Any] | None]
"""The weight of each observed result in the loss; None for a result without a derivative."""

Directions: TypeAlias = Mapping[int, NDArray[Any]]
"""A direction for each leaf, by its number: the tangent of a JVP, or the line of a finite difference."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """An input of a sample that has a gradient: the `k`-th one, or the `k`-th element of an input sequence."""

    case: Case
    k: int
    name: str

    @property
    def value(self) -> tc.Tensor:
        """The input, on the backend under test."""
        value: tc.Tensor = self.case.values[self.k]
        return value

    @property
    def size(self) -> int:
        """The number of its elements."""
        size: int = self.case.drawn_values[self.k].size
        return size


@dataclass(frozen=True, eq=False)
class Case:
    """One sample of an op, with its label and its differentiable inputs.

    Attributes:
        op: the op.
        drawn: the sample as it was drawn, with arrays of plain NumPy.
        label: its name in ids.
        leaves: the differentiable inputs.
    """

    op: Op
    drawn: Sample
    label: str
    leaves: tuple[Leaf, ...] = field(init=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen.
        object.__setattr__(self, "leaves", tuple(self._leaves()))

    @cached_property
    def sample(self) -> Sample:
        """The sample with arrays of the backend under test. Checks are run by `check_of`, which makes it."""
        return _moved(self.drawn, 1 if self.op.sequence else len(self.op.inputs))

    @property
    def values(self) -> list[Any]:
        """The arguments for the op's inputs, or the elements of the one input that is a sequence."""
        return self._inputs(self.sample)

    @property
    def drawn_values(self) -> list[Any]:
        """The same as they were drawn."""
        return self._inputs(self.drawn)

    def _inputs(self, sample: Sample) -> list[Any]:
        return list(sample.args[0]) if self.op.sequence else list(sample.args[: len(self.op.inputs)])

    def _leaves(self) -> list[Leaf]:
        return [
            Leaf(self, k, self.name_of(k))
            for k, value in enumerate(self.drawn_values)
            if isinstance(value, tc.Tensor) and value.dtype.inexact and self.rule_of(k) not in (NONDIFF, TODO)
        ]

    def parameter(self, name: str) -> Any:
        """Return the argument for a parameter of the op; None if none is given, or the op has no such parameter."""
        given = self.op.signature.bind(*self.drawn.args, **self.drawn.kwargs).arguments
        return given.get(name)

    @property
    def traits(self) -> dict[str, str]:
        """The sample's parameters by name, as text, and what is special about its arrays: `{"width": "2.5"}`."""
        given = self.op.signature.bind(*self.drawn.args, **self.drawn.kwargs).arguments
        found = {name: _text(value) for name, value in given.items() if name not in self.op.inputs}
        words = {
            "complex": "complex numbers",
            "empty": "empty arrays",
            "broadcast": "broadcasting",
            "0-d": "0-d arrays",
        }
        return found | {text: "" for word, text in words.items() if word in self.label.split(":")}

    @property
    def description(self) -> str:
        """The sample in short: `(float64[3], width=2.5)`."""
        inputs = [_short(value) for value in self.drawn_values]
        if self.op.sequence:
            inputs = [f"[{', '.join(inputs)}]"]
        parameters = [f"{name}={text}" for name, text in self.traits.items() if text]
        return f"({', '.join([*inputs, *parameters])})"

    def rule_of(self, k: int) -> Any:
        """Return the derivative rule for input k."""
        return self.op.rules[self.op.inputs[0 if self.op.sequence else k]]

    def name_of(self, k: int) -> str:
        """Return the name of input k in ids: that of the parameter, with a number for an element of a sequence."""
        return f"{self.op.inputs[0]}{k}" if self.op.sequence else self.op.inputs[k]

    @property
    def is_complex(self) -> bool:
        """True if an input is complex."""
        return any(isinstance(v, tc.Tensor) and v.dtype.kind == "complex floating" for v in self.drawn_values)

    def call(self, replaced: Replaced = AS_SAMPLED) -> tuple[Any, ...]:
        """Call the op, with some inputs replaced; return a tuple of results."""
        values = [replaced.get(k, v) for k, v in enumerate(self.values)]
        rest = self.sample.args[1:] if self.op.sequence else self.sample.args[len(values) :]
        given = [values] if self.op.sequence else values
        out = self.op.function(*given, *rest, **self.sample.kwargs)
        return tuple(out) if isinstance(out, tuple | list) else (out,)

    @property
    def by_keyword(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The sample's arguments with parameters passed by name; None if the sample passes none by position."""
        return self._by_keyword(self.sample)

    @property
    def passes_by_position(self) -> bool:
        """True if there is a parameter that the sample passes by position and could pass by name."""
        return self._by_keyword(self.drawn) is not None

    def _by_keyword(self, sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        given = 1 if self.op.sequence else len(self.op.inputs)
        parameters = [p for p in self.op.signature.parameters.values() if p.name not in self.op.inputs]
        args, named = list(sample.args[:given]), {}
        for parameter, value in zip(parameters, sample.args[given:], strict=False):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                named[parameter.name] = value
        return (tuple(args), {**named, **sample.kwargs}) if named else None

    def observed(self, outs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the part of the results that is determined: all, or for an eigenvector its projector, say."""
        seen = self.sample.observed(tc, *outs)
        return tuple(seen) if isinstance(seen, tuple | list) else (seen,)

    def weights(self) -> list[NDArray[Any] | None]:
        """Return a weight for each observed result: a NumPy array, or None for a result without a derivative.

        The loss of a case is the real inner product of the results with the weights, so that the weights are its
        cotangents. NumPy computes it, since an op under test must not compute what it is tested with.
        """
        return self._weights

    @cached_property
    def _weights(self) -> list[NDArray[Any] | None]:
        # Always the same weights: each check of a case differentiates the same loss. Random ones, since with weights of
        # 1 the gradient of a softmax, for one, is 0.
        rng = np.random.default_rng(2)
        found: list[NDArray[Any] | None] = []
        for out in self.observed(self.call()):
            w = rng.uniform(-2, 2, out.shape)
            is_complex = out.dtype.kind == "complex floating"
            # With a real weight the imaginary part of a complex result would be in no derivative.
            found.append(None if not out.dtype.inexact else w * (1 - 0.5j) if is_complex else w)
        return found

    def directions(self, seed: int) -> dict[int, NDArray[Any]]:
        """Return a random direction for each leaf in which it may be changed: a symmetric one for some matrices."""
        rng = np.random.default_rng(seed)
        found = {}
        for leaf in self.leaves:
            direction = rng.standard_normal(leaf.value.shape)
            if leaf.value.dtype.kind == "complex floating":
                direction = direction + 1j * rng.standard_normal(leaf.value.shape)
            found[leaf.k] = np.asarray(self.sample.projected(direction))
        return found

    def perturbed(self, directions: Directions, step: float) -> dict[int, tc.Tensor]:
        """Return the leaves plus `step` times their directions."""
        return {
            leaf.k: on_backend(leaf.value.numpy() + step * directions[leaf.k])
            for leaf in self.leaves
            if leaf.k in directions
        }


@dataclass(frozen=True)
class Cases:
    """The samples of an op.

    Attributes:
        accepted: the cases that the op must compute.
        refused: the cases that it must refuse.
        error: the error that stopped the generator of the samples, if there was one.
    """

    accepted: list[Case]
    refused: list[Case]
    error: Exception | None


def draw_cases(op: Op) -> Cases:
    """Draw the samples of an op, with NumPy if that can be."""
    with use_backend(PLAIN):
        found, error = _draw(op)
    if error is not None or any(map(_keeps_an_array, found)):
        # They may call an op that only the backend under test has, or a function of its library.
        found, error = _draw(op)
    accepted = [s for s in found if not isinstance(s, Refused)]
    return Cases(_label_all(op, accepted), _label_all(op, [s for s in found if isinstance(s, Refused)]), error)


def _draw(op: Op) -> tuple[list[Sample], Exception | None]:
    """Return the samples of an op, and the error that stopped their generator."""
    # A generator that fails half-way has yielded some samples: these are checked, and `samples` reports the error.
    found: list[Sample] = []
    try:
        if op.samples is not None:
            found.extend(op.samples(Draw(1)))
    except Exception as stopped:  # noqa: BLE001 - a finding, to be told by a check
        return found, stopped
    return found, None


def _keeps_an_array(sample: Sample) -> bool:
    """Return whether what is observed is computed with a Tensor of the sample, which would stay on plain NumPy."""
    cells = getattr(sample.observed, "__closure__", None) or ()
    return any([isinstance(cell.cell_contents, tc.Tensor) for cell in cells])


def telling(cases: Sequence[Case]) -> Case | None:
    """Return the case that finds most mistakes: the first that broadcasts, else the first with real elements."""
    words = [(set(case.label.split(":")) & _WORDS.keys(), case) for case in cases]
    for wanted in ({"broadcast"}, set()):
        for found, case in words:
            if found == wanted:
                return case
    return cases[0] if cases else None


def check_of(id: str, function: Callable[..., None], *args: object, quick: bool = False) -> Check:
    """Return a check that calls a function of cases."""
    cases = [case for case in args if isinstance(case, Case)]

    def run() -> None:
        __tracebackhide__ = True  # pytest's word
        for case in cases:
            _ = case.sample  # made here, since the function may trace or map what it calls
        function(*args)

    return Check(id, run, (lambda: cases[0].traits) if cases else None, quick)


def _moved(sample: Sample, inputs: int) -> Sample:
    """Return a sample that was drawn with NumPy with the arrays of the selected backend, and its device."""
    chosen = select()
    known: dict[int, Any] = {}

    def move(value: Any, *, operand: bool) -> Any:
        if isinstance(value, tc.Tensor):
            if value.backend is PLAIN and id(value) not in known:
                known[id(value)] = on_backend(value.numpy())
            return known.get(id(value), value)
        if isinstance(value, list | tuple):
            return type(value)([move(v, operand=operand) for v in value])
        if isinstance(value, np.ndarray) and not operand:  # such as the key of an index: as kernels get it
            return on_backend(value)._array
        if isinstance(value, Here):
            return chosen.device or chosen.backend.default_device
        return value

    found = copy(sample)
    found.args = tuple([move(v, operand=k < inputs) for k, v in enumerate(sample.args)])
    found.kwargs = {name: move(v, operand=False) for name, v in sample.kwargs.items()}
    return found


def _label_all(op: Op, samples: Sequence[Sample]) -> list[Case]:
    """Make a case of each sample, with labels that differ."""
    found: dict[str, Case] = {}
    for sample in samples:
        base = label = _label(op, sample)
        n = 1
        # Samples of equal shapes are told apart by a number, in the order in which they are drawn: ids are the same in
        # each run, since `expectations.toml` names them.
        while label in found:
            n += 1
            label = f"{base}#{n}"
        found[label] = Case(op, sample, label)
    return list(found.values())


def _label(op: Op, sample: Sample) -> str:
    """Return what is special about the sample, in words, and its arguments: `broadcast:2x3,3`."""
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


def on_backend(array: NDArray[Any]) -> tc.Tensor:
    """Convert a NumPy array to a Tensor of the backend under test; `tc.asarray` alone would choose tape-numpy."""
    chosen = select()
    return tc.asarray(array, backend=chosen.backend, device=chosen.device)


def _short(value: object) -> str:
    if isinstance(value, tc.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    return _text(value)


def _text(value: object) -> str:
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
