"""Ops inside vmap, and under derivatives inside and outside of it: the same as one example after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.engine.indexed_slices import dense
from tape_core.extend import Op
from tape_core.sparsity.detection import Detector
from tape_core.sparsity.index_sets import identity

from tape_conformance import calculus
from tape_conformance.checking import Check, expect, expect_close, expect_equal
from tape_conformance.checks.compiled import check_compiled, check_compiled_derivatives
from tape_conformance.samples import NOTHING, Case, Drawn, Leaf, Replaced, here

# Another order of the same sums.
BATCHED = 1e-9
SCALES = (1.0, 0.9)
_SMALL = 16  # elements, each of which takes a row of a Jacobian


def _one_for_each_input(op: Op, samples: Drawn) -> dict[str, list[Leaf]]:
    """By the label of a small sample the inputs for which it is taken."""
    found: dict[str, list[Leaf]] = {}
    seen: set[tuple[str, bool]] = set()
    for case in samples.cases if op.differentiable else ():
        for leaf in case.leaves:
            key = op.inputs[0 if op.sequence else leaf.k], case.is_complex
            if 0 < leaf.value.size <= _SMALL and key not in seen:
                seen.add(key)
                found.setdefault(case.label, []).append(leaf)
    return found


def transform_checks(op: Op, samples: Drawn) -> Iterator[Check]:
    """The checks of one op."""
    chosen = _one_for_each_input(op, samples)
    for case in samples.cases:
        if _arrays(case):
            yield Check(f"{op.name}/batch/{case.label}", lambda case=case: check_batch(case))  # type: ignore[misc]
            yield Check(
                f"{op.name}/compiled/{case.label}",
                lambda case=case: check_compiled(case, _examples(case, _arrays(case))),  # type: ignore[misc]
            )
        for leaf in chosen.get(case.label, ()):
            yield Check(
                f"{op.name}/compiled-derivatives/{leaf.name}/{case.label}",
                lambda case=case, leaf=leaf: check_compiled_derivatives(case, leaf),  # type: ignore[misc]
            )
        if op.differentiable and case.leaves:
            yield Check(f"{op.name}/compose/{case.label}", lambda case=case: check_compose(case))  # type: ignore[misc]
            yield Check(f"{op.name}/sparsity/{case.label}", lambda case=case: check_sparsity(case))  # type: ignore[misc]


def check_batch(case: Case) -> None:
    """vmap over each input, and over all of them, gives what a loop gives."""
    arrays = _arrays(case)
    together = [arrays] if len(arrays) > 1 else []
    for chosen in [[k] for k in arrays] + together:
        examples = _examples(case, chosen)
        expected = [_seen(case, example) for example in examples]
        found = tc.vmap(lambda *xs, chosen=chosen: _seen(case, dict(zip(chosen, xs, strict=True))))(
            *_stacked(examples, chosen)
        )
        over = ", ".join(case.name_of(k) for k in chosen)
        for k, result in enumerate(found):
            one = expected[0][k]
            expect_equal(result.dtype, one.dtype, f"vmap over {over}: the dtype of result {k}")
            expect(result.backend is one.backend, f"vmap over {over}: result {k} is on {result.backend!r}")
            _expect_examples(result, [each[k] for each in expected], f"vmap over {over}: result {k}")


def check_compose(case: Case) -> None:
    """Derivatives of derivatives, inside vmap and outside of it, are those of each example; with checkpoint as well."""
    _expect_second_derivatives(case)
    chosen = [leaf.k for leaf in case.leaves]
    examples = _examples(case, chosen)
    weights = case.weights()
    slopes = [calculus.gradients(case, weights, example) for example in examples]
    stacked = _stacked(examples, chosen)
    _expect_gradients(case, "", weights, chosen, stacked, slopes)
    _expect_gradients(_checkpointed(case), "checkpoint: ", weights, chosen, stacked, slopes)
    _expect_tangents(case, chosen, examples, stacked)


def _expect_second_derivatives(case: Case) -> None:
    """Forward over reverse mode, of the op and of a checkpoint of it, give what reverse over reverse mode gives."""
    weights, along = case.weights(), case.directions(7)
    expected = calculus.curvature(case, weights, along)
    again = _checkpointed(case)
    leaves = {leaf.k: leaf.value for leaf in case.leaves}
    with tc.ForwardAccumulator(list(leaves.values()), [here(along[k]) for k in leaves]) as accumulator:
        slopes = calculus.gradients(again, weights, leaves)
    for k, tangent in accumulator.jvp(slopes, unconnected_gradients="zero").items():
        what = f"the JVP of the gradient of a checkpoint, for input {k}"
        expect_close(tangent.numpy(), expected[k].numpy(), what, BATCHED)


class _Checkpointed(Case):
    """A case whose op is called in a checkpoint."""

    def call(self, replaced: Replaced = NOTHING) -> tuple[Any, ...]:
        """The op's results."""
        call = super().call
        again = tc.checkpoint(lambda *xs: call(dict(zip(replaced, xs, strict=True))))
        found: tuple[Any, ...] = again(*replaced.values())
        return found


def _checkpointed(case: Case) -> Case:
    return _Checkpointed(**{f.name: getattr(case, f.name) for f in fields(case) if f.init})


def _expect_gradients(
    case: Case, label: str, weights: list[Any], chosen: list[int], stacked: list[Any], slopes: list[dict[int, Any]]
) -> None:
    """Gradients inside vmap and of vmap."""

    def gradient(*xs: Any) -> list[Any]:
        return [*calculus.gradients(case, weights, dict(zip(chosen, xs, strict=True))).values()]

    def call(*xs: Any) -> tuple[Any, ...]:
        return _seen(case, dict(zip(chosen, xs, strict=True)))

    _expect_each(tc.vmap(gradient)(*stacked), slopes, chosen, f"{label}the gradient inside vmap")
    with tc.GradientTape() as tape:
        tape.watch(stacked)
        outs = tc.vmap(call)(*stacked)
    pairs = [(out, w) for out, w in zip(outs, weights, strict=True) if w is not None]
    seeds = [tc.astype(here(np.stack([w] * len(slopes))), out.dtype) for out, w in pairs]
    found = tape.gradient([out for out, _ in pairs], stacked, output_gradients=seeds, unconnected_gradients="zero")
    _expect_each([dense(g) for g in found], slopes, chosen, f"{label}the gradient of vmap")


def _expect_tangents(case: Case, chosen: list[int], examples: list[dict[int, Any]], stacked: list[Any]) -> None:
    """Tangents inside vmap and of vmap."""

    def call(*xs: Any) -> tuple[Any, ...]:
        return _seen(case, dict(zip(chosen, xs, strict=True)))

    directions = case.directions(4)
    along = [here(np.stack([directions[k]] * len(examples))) for k in chosen]
    pushed = [_pushed(case, example, directions) for example in examples]

    def tangents(*both: Any) -> list[Any]:
        xs, ts = both[: len(chosen)], both[len(chosen) :]
        with tc.ForwardAccumulator(list(xs), list(ts)) as accumulator:
            outs = call(*xs)
        found: list[Any] = accumulator.jvp([o for o in outs if o.dtype.inexact], unconnected_gradients="zero")
        return found

    with tc.ForwardAccumulator(stacked, along) as accumulator:
        outs = tc.vmap(call)(*stacked)
    of_vmap = accumulator.jvp([o for o in outs if o.dtype.inexact], unconnected_gradients="zero")
    for what, given in (("inside", tc.vmap(tangents)(*stacked, *along)), ("of", of_vmap)):
        for k, tangent in enumerate(given):
            _expect_examples(tangent, [each[k] for each in pushed], f"the tangent {what} vmap, of result {k}")


def check_sparsity(case: Case) -> None:
    """The pattern of each Jacobian that is found has all entries that are not 0."""
    for leaf in case.leaves:
        x = leaf.value.__copy__()
        with Detector(math.prod(x.shape)) as detector:
            detector.know(x, identity(tuple(x.shape)))
            outs = _seen(case, {leaf.k: x})
        with tc.GradientTape(persistent=True) as tape:
            tape.watch(x)
            again = _seen(case, {leaf.k: x})
        for k, (out, same) in enumerate(zip(outs, again, strict=True)):
            if not out.dtype.inexact:
                continue
            pattern = detector.sets_of(out).matrix().toarray()
            jacobian = tape.jacobian(same, x, unconnected_gradients="zero").numpy()
            missing = (jacobian.reshape(pattern.shape) != 0) & ~pattern
            expect(not missing.any(), f"the pattern of result {k} by {leaf.name} lacks {missing.sum()} entries")


def _pushed(case: Case, example: Replaced, directions: Any) -> list[Any]:
    leaves = list(example.values())
    with tc.ForwardAccumulator(leaves, [here(directions[k]) for k in example]) as accumulator:
        outs = _seen(case, example)
    found: list[Any] = accumulator.jvp([o for o in outs if o.dtype.inexact], unconnected_gradients="zero")
    return found


def _arrays(case: Case) -> list[int]:
    return [k for k, v in enumerate(case.values) if isinstance(v, tc.Tensor)]


def _seen(case: Case, replaced: Replaced) -> tuple[Any, ...]:
    return case.observed(case.call(replaced))


def _examples(case: Case, chosen: list[int]) -> list[dict[int, Any]]:
    """The sample, and another that the op takes as well."""
    varied = {k: _varied(case.values[k]) for k in chosen}
    try:
        case.call(varied)
    except Exception:  # noqa: BLE001 - such as row pointers that are no longer in order
        varied = {k: v * SCALES[1] if v.dtype.inexact else v for k, v in ((k, case.values[k]) for k in chosen)}
    return [{k: case.values[k] for k in chosen}, varied]


def _varied(value: Any) -> Any:
    if value.dtype.inexact:
        return value * SCALES[1]
    # Other indices that are as valid.
    return tc.flip(value, axis=-1) if value.shape and value.dtype.kind != "bool" else value


def _stacked(examples: list[dict[int, Any]], chosen: list[int]) -> list[Any]:
    return [tc.stack([example[k] for example in examples]) for k in chosen]


def _expect_each(found: Any, expected: list[dict[int, Any]], chosen: list[int], what: str) -> None:
    for k, result in zip(chosen, found, strict=True):
        _expect_examples(result, [each[k] for each in expected], f"{what}, for input {k}")


def _expect_examples(found: Any, expected: list[Any], what: str) -> None:
    expect_close(found.numpy(), np.stack([each.numpy() for each in expected]), what, BATCHED)
