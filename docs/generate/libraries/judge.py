"""Judge a call of another library: whether it takes Tensors, and whether its derivative is right, by running it.

The library's own result on NumPy arrays is the value to compare with, and finite differences of it are the derivative.
Nothing here is specific to a library.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tape_core as tc

STEP = 1e-5
CLOSE = 1e-5
"""How far a derivative may be from that of finite differences, relative to 1 + their size."""

CUT = "no gradient comes back"
"""What Tape's warning says where a library takes the values of a Tensor that a tape records."""

LONGEST = 150

KINDS = {
    np.ndarray: "a NumPy array",
    np.float64: "a NumPy scalar",
    np.int64: "a NumPy scalar",
    np.bool_: "a NumPy scalar",
    float: "a Python number",
    int: "a Python number",
    bool: "a Python number",
}


@dataclass(frozen=True)
class Outcome:
    """What differentiating with respect to one argument gave."""

    kind: str  # "right", "constant", "warned", "refused", "raised", or a defect: "silent", "wrong"
    message: str = ""
    of_variables: str = ""  # the kind for a Variable, where it is another one than for a Tensor


@dataclass(frozen=True)
class Verdict:
    """What is known of a call."""

    call: str
    takes: bool
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    gives: str = ""  # what it gives, where that is no Tensor
    message: str = ""  # of the error, where it takes no Tensors
    defects: tuple[str, ...] = ()
    by_rule: str = ""  # why Tape declares that there is no derivative
    instead: str = ""  # the function of Tape that has the derivative, where it has none

    @property
    def kind(self) -> str:
        """`"refused"`, `"yes"`, `"part"`, `"constant"`, `"cut"`, `"by rule"` or `"raised"`."""
        if not self.takes:
            return "refused"
        if self.by_rule:
            return "by rule"
        kinds = {outcome.kind for outcome in self.outcomes.values()}
        if kinds <= {"constant"}:
            return "constant"
        if kinds <= {"right", "constant"}:
            return "yes"
        if "right" in kinds:
            return "part"
        return "raised" if "raised" in kinds else "cut"


def judge(
    call: str,
    namespace: dict[str, Any],
    samples: Mapping[str, Any],
    fixed: Iterable[str] = (),
    by_rule: str = "",
) -> Verdict:
    """Run a call, an expression of the names in `namespace` and `samples`, and say what comes of it.

    Each sample of a floating dtype that the expression names is differentiated with respect to, one at a time, except
    for those in `fixed`. `by_rule` says why there is no derivative, where Tape declares that.
    """
    code = compile(call, call, "eval")
    names = [name for name in named(call) if name in samples]
    arrays = {name: np.asarray(samples[name]) for name in names}

    def run(values: dict[str, Any]) -> Any:
        np.random.seed(0)
        return eval(code, {**namespace, **values})

    def plain(values: dict[str, Any]) -> list[Any]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return list(leaves(run({name: value.copy() for name, value in values.items()})))

    try:
        expected = plain(arrays)
    except Exception as error:  # noqa: BLE001 - a fault of the case, which is reported
        return Verdict(call, False, defects=(f"fails on NumPy arrays: {short(error)}",))
    if not expected:
        return Verdict(call, False, defects=("gives nothing to compare",))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = list(leaves(run({name: tensor(array) for name, array in arrays.items()})))
    except Exception as error:  # noqa: BLE001 - the verdict
        return Verdict(call, False, message=short(error))
    defects = [] if same(found, expected) else [f"gives {brief(found)}, not {brief(expected)}"]
    outcomes = {}
    for name in names:
        if arrays[name].dtype.kind == "f" and name not in fixed:
            try:
                slope = differences(plain, arrays, name)
            except Exception as error:  # noqa: BLE001 - a fault of the case, which is reported
                defects.append(f"{name}: fails where finite differences need it: {short(error)}")
                continue
            if not np.all(np.isfinite(slope)):
                defects.append(f"{name}: the finite differences are {slope}; choose other samples")
                continue
            outcome = differentiate(run, arrays, name, slope, variable=False)
            second = differentiate(run, arrays, name, slope, variable=True)
            if outcome.kind == "silent" and by_rule:
                return Verdict(call, True, by_rule=by_rule, defects=tuple(defects))
            if outcome.kind in ("silent", "wrong"):
                defects.append(f"{name}: {outcome.kind}, {outcome.message}")
            elif second != outcome and second.kind in ("silent", "wrong"):
                defects.append(f"{name}: {second.kind} for a Variable, {second.message}")
            elif second != outcome:
                outcome = replace(outcome, of_variables=second.kind)
            outcomes[name] = outcome
    return Verdict(call, True, outcomes, given(found, expected), defects=tuple(defects))


def differentiate(
    run: Callable[[dict[str, Any]], Any], arrays: dict[str, Any], name: str, slope: Any, *, variable: bool
) -> Outcome:
    """Differentiate with respect to one of the arrays, a Variable or a watched Tensor."""
    values = {other: tensor(array) for other, array in arrays.items()}
    given = tc.Variable(tensor(arrays[name])) if variable else values[name]
    constant = bool(np.all(np.abs(slope) < 1e-9))
    with warnings.catch_warnings(record=True) as told, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            with tc.GradientTape() as tape:
                if not variable:
                    tape.watch(given)
                target = weighted(list(leaves(run({**values, name: given}))))
        except Exception as error:  # noqa: BLE001 - the verdict
            return Outcome("raised", short(error))
        warned = any(CUT in str(warning.message) for warning in told)
        try:
            gradient = tape.gradient(target, given)
        except NotImplementedError as error:
            return Outcome("constant") if constant else Outcome("raised", short(error))
    if gradient is None and constant:
        return Outcome("constant")
    off = 0.0 if gradient is None else float(np.max(np.abs(gradient.numpy() - slope) / (1 + np.abs(slope))))
    if gradient is not None and off < CLOSE:
        return Outcome("right")
    if warned:
        return Outcome("warned")
    return Outcome("silent", "there is no gradient, and no warning") if gradient is None else Outcome("wrong", f"{off}")


def differences(plain: Callable[[dict[str, Any]], list[Any]], arrays: dict[str, Any], name: str) -> Any:
    """The derivative of the weighted sum of what a call gives, by finite differences on NumPy arrays."""
    x = arrays[name]
    slope = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * STEP
            ends.append(plain({**arrays, name: moved}))
        pairs = [(above, below) for above, below in zip(*ends, strict=True) if inexact(above)]
        parts = [weights(k, above) * (np.asarray(above) - np.asarray(below)) for k, (above, below) in enumerate(pairs)]
        slope[place] = sum(float(np.sum(np.real(part))) for part in parts) / (2 * STEP)
    return slope


def weighted(found: list[Any]) -> tc.Tensor:
    """The weighted sum of the Tensors among what a call gives; numbers and arrays have no gradient to give."""
    total = tensor(np.asarray(0.0))
    for k, leaf in enumerate([leaf for leaf in found if inexact(leaf)]):
        if isinstance(leaf, tc.Tensor):
            weight = weights(k, leaf)
            total = total + tc.sum(tensor(weight.real) * tc.real(leaf))
            if leaf.dtype.kind == "complex floating":
                total = total - tc.sum(tensor(weight.imag) * tc.imag(leaf))
    return total


def weights(k: int, leaf: Any) -> Any:
    """Complex weights for the k-th part of a result: the real part of the weighted sum has all of its derivatives."""
    random, shape = np.random.default_rng(k), np.shape(leaf)
    return random.uniform(0.5, 1.5, shape) + 1j * random.uniform(0.5, 1.5, shape)


def leaves(result: Any) -> Iterator[Any]:
    """The arrays and numbers that a result consists of."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, np.ndarray) and result.dtype == object:
        result = list(result.flat)
    if isinstance(result, list | tuple):
        for part in result:
            yield from leaves(part)
    elif isinstance(result, tc.Tensor | np.ndarray | np.generic | bool | int | float | complex):
        yield result
    elif hasattr(result, "__array__"):
        yield np.asarray(result)


def inexact(leaf: Any) -> bool:
    """Whether a part of a result is of a floating or complex dtype."""
    if isinstance(leaf, tc.Tensor):
        return "floating" in leaf.dtype.kind
    return np.asarray(leaf).dtype.kind in "fc"


def same(found: list[Any], expected: list[Any]) -> bool:
    """Whether a call gives on Tensors what it gives on arrays."""
    if len(found) != len(expected):
        return False
    for a, b in [(values(a), np.asarray(b)) for a, b in zip(found, expected, strict=True)]:
        close = 1e-5 if a.dtype.itemsize < b.dtype.itemsize else 1e-7
        if a.shape != b.shape or not np.allclose(a, b, rtol=close, atol=1e-9, equal_nan=True):
            return False
    return True


def given(found: list[Any], expected: list[Any]) -> str:
    """What a call gives that is no Tensor, or is of a lower precision than on arrays."""
    kinds = {KINDS.get(type(leaf), type(leaf).__name__) for leaf in found if not isinstance(leaf, tc.Tensor)}
    for leaf, other in zip(found, expected, strict=False):
        if isinstance(leaf, tc.Tensor) and inexact(leaf) and leaf.dtype.itemsize < np.asarray(other).dtype.itemsize:
            kinds.add(f"{leaf.dtype}, the default dtype")
    return " and ".join(sorted(kinds))


def values(leaf: Any) -> Any:
    return leaf.numpy() if isinstance(leaf, tc.Tensor) else np.asarray(leaf)


def tensor(array: Any) -> tc.Tensor:
    """A Tensor with values of its own."""
    return tc.asarray(array.copy(), backend=os.environ.get("TAPE_BACKEND", "numpy"))


def named(call: str) -> list[str]:
    """The names in an expression, in the order in which they come first; parameters of its lambdas are not meant."""
    tree = ast.parse(call, mode="eval")
    own = {argument.arg for node in ast.walk(tree) if isinstance(node, ast.Lambda) for argument in node.args.args}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in own]
    return list(dict.fromkeys(node.id for node in sorted(found, key=lambda node: (node.lineno, node.col_offset))))


def short(error: Exception) -> str:
    """The type of an error and its message, on one line."""
    text = re.sub(r" at 0x[0-9a-f]+", "", " ".join(str(error).split()))
    return f"{type(error).__qualname__}: {text}"


def brief(found: list[Any]) -> str:
    text = " ".join(repr(found).split())
    return text if len(text) < LONGEST else text[:LONGEST] + "…"
