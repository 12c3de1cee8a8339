"""Checks of ops inside vmap, alone and composed with derivatives and checkpoints, and of sparsity patterns.

The expected result of vmap is that of a loop over the examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.extend import Op
from tape_core.support import dense
from tape_core.testing import sparsity_pattern

from tape_conformance import calculus
from tape_conformance.checking import Check, expect, expect_close, expect_equal
from tape_conformance.kinds.compiled import check_compiled, check_compiled_derivatives
from tape_conformance.samples import AS_SAMPLED, Case, Cases, Directions, Leaf, Replaced, Weights, check_of, on_backend
from tape_conformance.tolerances import BATCHED_RTOL, MAX_JACOBIAN_ELEMENTS, SECOND_EXAMPLE_SCALE


def _leaves_for_jacobians(op: Op, samples: Cases) -> dict[str, list[Leaf]]:
    """Choose one small sample for each input, real and complex; return the leaves by the label of their sample."""
    found: dict[str, list[Leaf]] = {}
    seen: set[tuple[str, bool]] = set()
    for case in samples.accepted if op.differentiable else ():
        for leaf in case.leaves:
            key = op.inputs[0 if op.sequence else leaf.k], case.is_complex
            if 0 < leaf.size <= MAX_JACOBIAN_ELEMENTS and key not in seen:
                seen.add(key)
                found.setdefault(case.label, []).append(leaf)
    return found


def transform_checks(op: Op, samples: Cases) -> Iterator[Check]:
    """Yield the checks of one op."""
    chosen = _leaves_for_jacobians(op, samples)
    for case in samples.accepted:
        if _arrays(case):
            yield check_of(f"{op.name}/batch/{case.label}", check_batch, case)
            yield check_of(f"{op.name}/compiled/{case.label}", _check_compiled, case)
        for leaf in chosen.get(case.label, ()):
            yield check_of(
                f"{op.name}/compiled-derivatives/{leaf.name}/{case.label}", check_compiled_derivatives, case, leaf
            )
        if op.differentiable and case.leaves:
            yield check_of(f"{op.name}/compose/{case.label}", check_compose, case)
            yield check_of(f"{op.name}/sparsity/{case.label}", check_sparsity, case)


def _check_compiled(case: Case) -> None:
    check_compiled(case, _examples(case, _arrays(case)))


def check_batch(case: Case) -> None:
    """vmap over each input, and over all of them together, gives what a loop gives."""
    arrays = _arrays(case)
    together = [arrays] if len(arrays) > 1 else []
    # Over one input alone the others are shared by all examples, which batch rules handle in another way.
    for chosen in [[k] for k in arrays] + together:
        examples = _examples(case, chosen)
        expected = [_observe(case, example) for example in examples]
        found = tc.vmap(lambda *xs, chosen=chosen: _observe(case, dict(zip(chosen, xs, strict=True))))(
            *_stack(examples, chosen)
        )
        over = ", ".join(case.name_of(k) for k in chosen)
        for k, result in enumerate(found):
            one = expected[0][k]
            expect_equal(result.dtype, one.dtype, f"vmap over {over}: the dtype of result {k}")
            expect(result.backend is one.backend, f"vmap over {over}: result {k} is on {result.backend!r}")
            _expect_examples(result, [each[k] for each in expected], f"vmap over {over}: result {k}")


def check_compose(case: Case) -> None:
    """Gradients and tangents inside vmap and of vmap, and second derivatives, agree; also with a checkpoint."""
    _expect_second_derivatives(case)
    chosen = [leaf.k for leaf in case.leaves]
    examples = _examples(case, chosen)
    weights = case.weights()
    slopes = [calculus.gradients(case, weights, example) for example in examples]
    stacked = _stack(examples, chosen)
    _expect_gradients(case, "", weights, chosen, stacked, slopes)
    # A checkpoint runs the op again in the backward pass, inside whatever transformation is around.
    _expect_gradients(_in_checkpoint(case), "checkpoint: ", weights, chosen, stacked, slopes)
    _expect_tangents(case, chosen, examples, stacked)


def _expect_second_derivatives(case: Case) -> None:
    """Forward over reverse mode, of a checkpoint of the op, gives what reverse over reverse mode gives."""
    weights, along = case.weights(), case.directions(7)
    expected = calculus.hessian_vector_products(case, weights, along)
    checkpointed = _in_checkpoint(case)
    leaves = {leaf.k: leaf.value for leaf in case.leaves}
    with tc.ForwardAccumulator(list(leaves.values()), [on_backend(along[k]) for k in leaves]) as accumulator:
        # The tape inside, the accumulator around it: tangents flow through the sweep, in which the checkpoint runs the
        # op again.
        slopes = calculus.gradients(checkpointed, weights, leaves)
    for k, tangent in accumulator.jvp(slopes, unconnected_gradients="zero").items():
        what = f"the JVP of the gradient of a checkpoint, for input {k}"
        expect_close(tangent.numpy(), expected[k].numpy(), what, BATCHED_RTOL)


class _CheckpointCase(Case):
    """A case whose op is called in a checkpoint."""

    def call(self, replaced: Replaced = AS_SAMPLED) -> tuple[Any, ...]:
        # super() without arguments looks at the first argument of its own function, so not in the lambda.
        call = super().call
        checkpointed = tc.checkpoint(lambda *xs: call(dict(zip(replaced, xs, strict=True))))
        found: tuple[Any, ...] = checkpointed(*replaced.values())
        return found


def _in_checkpoint(case: Case) -> Case:
    found = _CheckpointCase(case.op, case.drawn, case.label)
    found.__dict__["sample"] = case.sample  # the same arrays, not others of the same values
    return found


def _expect_gradients(
    case: Case,
    label: str,
    weights: Weights,
    chosen: list[int],
    stacked: list[tc.Tensor],
    slopes: list[dict[int, tc.Tensor]],
) -> None:
    """Expect the gradient inside vmap, and the gradient of vmap, to be those of each example."""

    def gradient(*xs: tc.Tensor) -> list[tc.Tensor]:
        return [*calculus.gradients(case, weights, dict(zip(chosen, xs, strict=True))).values()]

    def call(*xs: tc.Tensor) -> tuple[tc.Tensor, ...]:
        return _observe(case, dict(zip(chosen, xs, strict=True)))

    # The tape inside of vmap records one example; below, the tape outside records what vmap calls.
    _expect_each(tc.vmap(gradient)(*stacked), slopes, chosen, f"{label}the gradient inside vmap")
    with tc.GradientTape() as tape:
        tape.watch(stacked)
        outs = tc.vmap(call)(*stacked)
    pairs = [(out, w) for out, w in zip(outs, weights, strict=True) if w is not None]
    seeds = [tc.astype(on_backend(np.stack([w] * len(slopes))), out.dtype) for out, w in pairs]
    found = tape.gradient([out for out, _ in pairs], stacked, output_gradients=seeds, unconnected_gradients="zero")
    _expect_each([dense(g) for g in found], slopes, chosen, f"{label}the gradient of vmap")


def _expect_tangents(
    case: Case, chosen: list[int], examples: list[dict[int, tc.Tensor]], stacked: list[tc.Tensor]
) -> None:
    """Expect the tangents inside vmap, and the tangents of vmap, to be those of each example."""

    def call(*xs: tc.Tensor) -> tuple[tc.Tensor, ...]:
        return _observe(case, dict(zip(chosen, xs, strict=True)))

    directions = case.directions(4)
    along = [on_backend(np.stack([directions[k]] * len(examples))) for k in chosen]
    expected = [_tangents(case, example, directions) for example in examples]

    def tangents(*both: tc.Tensor) -> list[tc.Tensor]:
        xs, ts = both[: len(chosen)], both[len(chosen) :]
        with tc.ForwardAccumulator(list(xs), list(ts)) as accumulator:
            outs = call(*xs)
        found: list[tc.Tensor] = accumulator.jvp([o for o in outs if o.dtype.inexact], unconnected_gradients="zero")
        return found

    with tc.ForwardAccumulator(stacked, along) as accumulator:
        outs = tc.vmap(call)(*stacked)
    of_vmap = accumulator.jvp([o for o in outs if o.dtype.inexact], unconnected_gradients="zero")
    for what, given in (("inside", tc.vmap(tangents)(*stacked, *along)), ("of", of_vmap)):
        for k, tangent in enumerate(given):
            _expect_examples(tangent, [each[k] for each in expected], f"the tangent {what} vmap, of result {k}")


def check_sparsity(case: Case) -> None:
    """The sparsity pattern that is detected for each Jacobian has all entries that are not 0."""
    for leaf in case.leaves:
        x = leaf.value.__copy__()  # a Tensor of its own: the detector finds values by identity
        with tc.GradientTape(persistent=True) as tape:
            tape.watch(x)
            again = _observe(case, {leaf.k: x})
        for k, same in enumerate(again):
            # Integer results have no Jacobian.
            if not same.dtype.inexact:
                continue
            # The pattern may have more entries than the Jacobian at this point, but none may be missing.
            pattern = sparsity_pattern(lambda x, k=k, leaf=leaf: _observe(case, {leaf.k: x})[k], x)  # type: ignore[misc]
            jacobian = tape.jacobian(same, x, unconnected_gradients="zero").numpy()
            jacobian = np.abs(jacobian.reshape(pattern.shape))
            # Sums that cancel leave a rounding error where the derivative is 0.
            rounding = 100 * np.finfo(jacobian.dtype).eps * np.max(jacobian, initial=0.0)
            missing = (jacobian > rounding) & ~pattern
            expect(not missing.any(), f"the pattern of result {k} by {leaf.name} lacks {missing.sum()} entries")


def _tangents(case: Case, example: Replaced, directions: Directions) -> list[tc.Tensor]:
    leaves = list(example.values())
    with tc.ForwardAccumulator(leaves, [on_backend(directions[k]) for k in example]) as accumulator:
        outs = _observe(case, example)
    found: list[tc.Tensor] = accumulator.jvp([o for o in outs if o.dtype.inexact], unconnected_gradients="zero")
    return found


def _arrays(case: Case) -> list[int]:
    """Return the numbers of the inputs that are arrays."""
    return [k for k, v in enumerate(case.drawn_values) if isinstance(v, tc.Tensor)]


def _observe(case: Case, replaced: Replaced) -> tuple[tc.Tensor, ...]:
    return case.observed(case.call(replaced))


def _examples(case: Case, chosen: list[int]) -> list[dict[int, tc.Tensor]]:
    """Return two examples for vmap: the sample, and a variation that the op accepts as well."""
    varied = {k: _vary(case.values[k]) for k in chosen}
    try:
        case.call(varied)
    except Exception:  # noqa: BLE001 - reversed integers may be invalid, such as row pointers
        varied = {k: _vary(v) if v.dtype.inexact else v for k, v in ((k, case.values[k]) for k in chosen)}
    return [{k: case.values[k] for k in chosen}, varied]


def _vary(value: tc.Tensor) -> tc.Tensor:
    """Scale numbers, and reverse integers: indices stay within bounds."""
    if value.dtype.inexact:
        return value * SECOND_EXAMPLE_SCALE
    return tc.flip(value, axis=-1) if value.shape and value.dtype.kind != "bool" else value


def _stack(examples: list[dict[int, tc.Tensor]], chosen: list[int]) -> list[tc.Tensor]:
    return [tc.stack([example[k] for example in examples]) for k in chosen]


def _expect_each(
    found: Iterable[tc.Tensor], expected: list[dict[int, tc.Tensor]], chosen: list[int], what: str
) -> None:
    for k, result in zip(chosen, found, strict=True):
        _expect_examples(result, [each[k] for each in expected], f"{what}, for input {k}")


def _expect_examples(found: tc.Tensor, expected: list[tc.Tensor], what: str) -> None:
    """Expect a result of vmap to be the results of the examples, stacked."""
    expect_close(found.numpy(), np.stack([each.numpy() for each in expected]), what, BATCHED_RTOL)
