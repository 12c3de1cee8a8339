"""Checks of ops on arrays that several processes hold together; each process runs them all, in the same order.

What is expected is the same call on the arrays of one process, which other checks compare with references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import tape_core as tc
from numpy.typing import NDArray
from tape_core.extend import registry
from tape_core.staging import TracingError
from tape_core.support import dense

from tape_conformance.checking import Check, expect_close, expect_equal
from tape_conformance.distributions import Arrays
from tape_conformance.samples import Case, check_of, draw_cases, on_backend
from tape_conformance.tolerances import DISTRIBUTED_RTOL


def distributed_checks(
    layouts: Sequence[str], arrays: Callable[[], Arrays], selects: Callable[[str], bool] = lambda name: True
) -> Iterator[Check]:
    """Yield the checks of ops in all layouts: values, gradients and tangents, and in the first layout compiled.

    Args:
        layouts: their names.
        arrays: a function that returns what makes distributed arrays; it is called when a check is run.
        selects: whether an op of a name is checked.
    """
    for op in [op for op in list(registry.values()) if selects(op.name)]:
        for case in draw_cases(op).accepted:
            if not any(isinstance(v, tc.Tensor) for v in case.drawn_values):
                continue
            for layout in layouts:
                at = f"{layout}/{case.label}"
                kinds = {"value": check_value}
                if op.differentiable and case.leaves:
                    kinds |= {"vjp": check_vjp, "jvp": check_jvp}
                if layout == layouts[0]:
                    kinds["function"] = check_function
                for kind, function in kinds.items():
                    yield check_of(f"{op.name}/{kind}/{at}", _with(arrays, function), case, layout)


def _with(arrays: Callable[[], Arrays], function: Callable[[Case, Arrays, str], None]) -> Callable[[Case, str], None]:
    return lambda case, layout: function(case, arrays(), layout)


def check_value(case: Case, arrays: Arrays, layout: str) -> None:
    """Results are those of one process: shapes, dtypes and values."""
    expected = case.observed(case.call())
    found = case.observed(_laid(case, arrays, layout).call())
    _expect_same(arrays, found, expected, "result")


def check_vjp(case: Case, arrays: Arrays, layout: str) -> None:
    """Gradients are those of one process."""
    expected = _gradients(case, lambda k, w: on_backend(w))
    found = _gradients(_laid(case, arrays, layout), lambda k, w: _distributed(arrays, on_backend(w), layout, k + 1))
    for name, gradient in found.items():
        _expect_same(arrays, [gradient], [expected[name]], f"gradient for {name}")


def check_jvp(case: Case, arrays: Arrays, layout: str) -> None:
    """Tangents are those of one process."""
    along = case.directions(4)
    expected = _tangents(case, {k: on_backend(d) for k, d in along.items()})
    given = {k: _distributed(arrays, on_backend(d), layout, k + 1) for k, d in along.items()}
    found = _tangents(_laid(case, arrays, layout), given)
    _expect_same(arrays, found, expected, "tangent")


def check_function(case: Case, arrays: Arrays, layout: str) -> None:
    """A compiled function gives the values and gradients of one process, when it is traced and afterwards."""
    laid = _laid(case, arrays, layout)
    differentiable = case.op.differentiable and bool(case.leaves)
    seeds = [None if w is None else on_backend(w) for w in case.weights()]
    spread = [None if w is None else _distributed(arrays, w, layout, k + 1) for k, w in enumerate(seeds)]

    def all_of(at: Case, given: list[tc.Tensor | None]) -> Callable[..., list[Any]]:
        def run(*xs: tc.Tensor) -> list[Any]:
            replaced = {leaf.k: x for leaf, x in zip(case.leaves, xs, strict=True)}
            if not differentiable:
                return list(case.observed(at.call(replaced)))
            with tc.GradientTape() as tape:
                tape.watch(xs)
                outs = case.observed(at.call(replaced))
            targets = [(o, tc.astype(w, o.dtype)) for o, w in zip(outs, given, strict=True) if w is not None]
            slopes = tape.gradient(
                [o for o, _ in targets],
                list(xs),
                output_gradients=[w for _, w in targets],
                unconnected_gradients="zero",
            )
            return [*outs, *map(dense, slopes)]

        return run

    expected = all_of(case, seeds)(*[leaf.value for leaf in case.leaves])
    compiled = tc.function(all_of(laid, spread))
    for _ in range(4):  # an engine may note in one call what it leaves out in later ones
        try:
            found = compiled(*[laid.values[leaf.k] for leaf in case.leaves])
        except TracingError:
            return  # the check `compiled` on one process says whether that is right
        _expect_same(arrays, found, expected, "compiled result")


# -- one case with distributed arrays


def _laid(case: Case, arrays: Arrays, layout: str) -> Case:
    """Return a case with the arrays of the sample distributed; those in keys and other arguments too."""
    sample = case.sample
    inputs = 1 if case.op.sequence else len(case.op.inputs)

    def spread(value: Any, place: int) -> Any:
        if isinstance(value, tc.Tensor):
            return _distributed(arrays, value, layout, place)
        if isinstance(value, list | tuple):
            return type(value)([spread(v, place + k) for k, v in enumerate(value)])
        if _is_raw(value):
            return arrays.distribute(value, "whole", place)
        return value

    found = Case(case.op, case.drawn, case.label)
    laid = copy(sample)
    laid.args = tuple([spread(v, k if k < inputs else 0) for k, v in enumerate(sample.args)])
    laid.kwargs = {name: spread(v, 0) for name, v in sample.kwargs.items()}
    found.__dict__["sample"] = laid
    return found


def _is_raw(value: Any) -> bool:
    return isinstance(value, type(tc.get_backend().asarray(0.0)))


def _distributed(arrays: Arrays, value: tc.Tensor, layout: str, place: int) -> tc.Tensor:
    return tc.asarray(arrays.distribute(value.array, layout, place), backend=value.backend)


def _gradients(case: Case, seed: Callable[[int, NDArray[Any]], tc.Tensor]) -> dict[str, tc.Tensor]:
    values = [case.values[leaf.k] for leaf in case.leaves]
    weights = case.weights()
    with tc.GradientTape() as tape:
        tape.watch(values)
        outs = case.observed(case.call())
    pairs = [
        (o, tc.astype(seed(k, w), o.dtype)) for k, (o, w) in enumerate(zip(outs, weights, strict=True)) if w is not None
    ]
    targets, seeds = [o for o, _ in pairs], [w for _, w in pairs]
    found = tape.gradient(targets, values, output_gradients=seeds, unconnected_gradients="zero")
    return {leaf.name: dense(g) for leaf, g in zip(case.leaves, found, strict=True)}


def _tangents(case: Case, along: Mapping[int, tc.Tensor]) -> list[tc.Tensor | None]:
    with tc.ForwardAccumulator([case.values[k] for k in along], list(along.values())) as acc:
        outs = case.observed(case.call())
    return list(acc.jvp(list(outs)))


def _expect_same(arrays: Arrays, found: Any, expected: Any, what: str) -> None:
    for k, (f, e) in enumerate(zip(found, expected, strict=True)):
        expect_equal(f is None, e is None, f"whether {what} {k} is None")
        if e is None:
            continue
        expect_equal(f.dtype, e.dtype, f"the dtype of {what} {k}")
        expect_equal(f.shape, e.shape, f"the shape of {what} {k}")
        whole = f.backend.numpy(arrays.full(f.array))
        expect_close(whole, e.numpy(), f"{what} {k}", DISTRIBUTED_RTOL)
