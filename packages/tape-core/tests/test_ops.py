"""Every op, from the samples it carries: derivatives, second order, memory, refused inputs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.extend import NONDIFF, Draw, Op, Refused, Sample, registry

OPS = list(registry.values())
DIFFERENTIABLE = [op for op in OPS if op.differentiable]


def samples(op: Op) -> list[Sample]:
    assert op.samples is not None, f"op {op.name} carries no samples"
    return [s for s in op.samples(Draw(1)) if not isinstance(s, Refused)]


def refused(op: Op) -> list[Refused]:
    assert op.samples is not None
    return [s for s in op.samples(Draw(1)) if isinstance(s, Refused)]


def leaves(op: Op, sample: Sample) -> list[Any]:
    """The differentiable Tensors of a sample."""
    values = list(sample.args[0]) if op.sequence else list(sample.args[: len(op.inputs)])
    names = op.inputs * len(values) if op.sequence else op.inputs
    return [
        v
        for name, v in zip(names, values, strict=False)
        if isinstance(v, tc.Tensor) and v.dtype.inexact and op.rules[name] is not NONDIFF
    ]


def call_with(op: Op, sample: Sample, replaced: dict[int, Any]) -> Any:
    def swap(value: Any) -> Any:
        if isinstance(value, list):
            return [swap(v) for v in value]
        return replaced.get(id(value), value)

    out = op.function(*(swap(a) for a in sample.args), **{k: swap(v) for k, v in sample.kwargs.items()})
    seen = sample.observed(tc, *out) if isinstance(out, tuple) else sample.observed(tc, out)
    return seen if isinstance(seen, tuple) else (seen,)


def scalar_of(op: Op, sample: Sample, weights: list[Any]) -> Callable[[dict[int, Any]], Any]:
    """The op as a real scalar: the real part of its results, weighted and summed."""

    def f(replaced: dict[int, Any]) -> Any:
        total: Any = 0.0
        for out, w in zip(call_with(op, sample, replaced), weights, strict=True):
            total = total + tc.sum(tc.real(out * w))
        return total

    return f


def weights_of(op: Op, sample: Sample) -> list[Any]:
    draw = Draw(2)
    weights = []
    for out in call_with(op, sample, {}):
        w = draw(*out.shape)
        weights.append(w * (1 - 0.5j) if out.dtype.kind == "complex floating" else w)
    return weights


def gradients(f: Any, xs: list[Any], persistent: bool = False) -> list[Any]:
    with tc.GradientTape() as tape:
        tape.watch(xs)
        y = f({})
    found = tape.gradient(y, xs, unconnected_gradients="zero")
    return [g.densify() if isinstance(g, tc.IndexedSlices) else g for g in found]


def moved(x: Any, direction: Any, step: complex) -> Any:
    return tc.asarray(x.numpy() + step * direction)


def directional(f: Any, x: Any, direction: Any, h: float = 1e-6) -> float:
    """The derivative of a real f along a direction, by central differences in float64."""
    return (f({id(x): moved(x, direction, h)}) - f({id(x): moved(x, direction, -h)})).item() / (2 * h)


def check(f: Any, xs: list[Any], rtol: float, label: str, project: Any) -> None:
    rng = np.random.default_rng(3)
    for x, g in zip(xs, gradients(f, xs), strict=True):
        assert g.shape == x.shape, label
        assert g.dtype == x.dtype, label
        direction = rng.standard_normal(x.shape)
        if x.dtype.kind == "complex floating":
            direction = direction + 1j * rng.standard_normal(x.shape)
        direction = project(direction)
        # For a real loss the gradient of a complex x is dL/dRe + i dL/dIm.
        expected = directional(f, x, direction)
        found = float(np.sum(np.real(np.conj(g.numpy()) * direction)))
        assert found == pytest.approx(expected, rel=rtol, abs=rtol), label


def cases(ops: list[Op]) -> list[Any]:
    return [pytest.param(op, s, id=f"{op.name}-{k}") for op in ops for k, s in enumerate(samples(op))]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_carries_samples_a_docstring_and_a_rule_or_reason_per_input(op: Op) -> None:
    assert samples(op)
    assert op.function.__doc__
    for name in op.inputs:
        assert name in op.rules
    if not op.differentiable:
        assert op.reason, "an op that stops the gradient says why"


@pytest.mark.parametrize(("op", "sample"), cases(DIFFERENTIABLE))
def test_vjp_agrees_with_finite_differences(op: Op, sample: Sample) -> None:
    f = scalar_of(op, sample, weights_of(op, sample))
    check(f, leaves(op, sample), 2e-6, op.name, sample.projected)


@pytest.mark.parametrize(("op", "sample"), cases(DIFFERENTIABLE))
def test_second_order_agrees_with_finite_differences(op: Op, sample: Sample) -> None:
    xs = leaves(op, sample)
    inner = scalar_of(op, sample, weights_of(op, sample))
    draw = Draw(4)
    directions = [draw(*x.shape) for x in xs]

    def slope(replaced: dict[int, Any]) -> Any:
        """The gradient along fixed directions: a scalar whose own gradient is a Hessian-vector product."""
        at = [replaced.get(id(x), x) for x in xs]
        with tc.GradientTape() as tape:
            tape.watch(at)
            y = inner({id(x): a for x, a in zip(xs, at, strict=True)})
        found = tape.gradient(y, at, unconnected_gradients="zero")
        total: Any = 0.0
        for g, d in zip(found, directions, strict=True):
            total = total + tc.sum(tc.real(g * d))
        return total

    check(slope, xs, 2e-5, op.name, sample.projected)


@pytest.mark.parametrize(("op", "sample"), cases(DIFFERENTIABLE))
def test_float32_in_float32_gradient_out(op: Op, sample: Sample) -> None:
    xs = leaves(op, sample)
    if any(x.dtype.kind == "complex floating" for x in xs):
        pytest.skip("a complex sample")
    small = {id(x): tc.astype(x, "float32") for x in xs}
    with tc.GradientTape() as tape:
        tape.watch(list(small.values()))
        outs = call_with(op, sample, small)
    found = tape.gradient(outs, list(small.values()), unconnected_gradients="zero")
    assert [g.dtype for g in found] == [tc.float32] * len(xs)


@pytest.mark.parametrize(
    ("op", "sample"),
    [pytest.param(op, s, id=f"{op.name}-{k}") for op in OPS for k, s in enumerate(refused(op))],
)
def test_refused_inputs_raise_in_the_users_terms(op: Op, sample: Refused) -> None:
    with pytest.raises(sample.error, match=sample.match):
        op.function(*sample.args, **sample.kwargs)


@pytest.mark.parametrize(("op", "sample"), cases(DIFFERENTIABLE))
def test_a_record_keeps_alive_only_what_its_rules_name(op: Op, sample: Sample) -> None:
    """The memory contract, by weak references to the arrays."""
    fresh = {id(x): tc.asarray(x.array.copy()) for x in leaves(op, sample) if x.shape}
    if not fresh or op.sequence:
        pytest.skip("nothing to observe")
    watched = list(fresh.values())
    with tc.GradientTape() as tape:
        tape.watch(watched)
        outs = call_with(op, sample, fresh)
    slot_names = [name for name in op.inputs if op.rules[name] is not NONDIFF]
    values = [fresh.get(id(v), v) for v in sample.args]
    running = [k for k in op.compiled if k < len(values) and any(values[k] is w for w in watched)]
    named = {op.inputs[k] for r in running for k in op.compiled[r].keeps}
    alive = {}
    for name, value in zip(op.inputs, values, strict=False):
        if name in slot_names and any(value is w for w in watched):
            alive[name] = weakref.ref(value._array)
    has_view = any(np.shares_memory(o.array, w.array) for o in outs for w in watched)
    del outs, watched, fresh, values, value
    gc.collect()
    if has_view:
        return
    for name, reference in alive.items():
        assert (reference() is not None) == (name in named), f"{op.name}: {name}"
    del tape
