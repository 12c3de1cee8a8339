"""Forward mode, one op at a time: the tangent of an op's result from the tangents of its inputs.

No op declares a JVP. That of a linear op is the op itself, that of an elementwise op follows from its partial
derivatives, and any other is the transpose of its VJP: the VJP is linear in the cotangent, so its own gradient with
respect to the cotangent is the JVP (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backward import lifting
from tape_core.hotpath import with_raw_dtype
from tape_core.rules import NONDIFF, ONE, PARTIAL, UNWRITTEN, VJP
from tape_core.tensor import Tensor

if TYPE_CHECKING:
    from tape_core.op import Op


def push_forward(
    op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], tangents: Mapping[int, Tensor]
) -> tuple[Any, Any]:
    """Call an op, and find the tangent of its result.

    Args:
        op: the op.
        args, kwargs: its arguments.
        tangents: by the number of the input, or of the element where the input is a sequence; each of the input's shape
            and dtype.

    Returns:
        The result and its tangent; for several results a tuple of each, None for those that have no derivative. What is
        computed here is recorded like anything else.
    """
    args, kwargs = op.normalise(tuple(args), dict(kwargs))
    n = len(op.inputs)
    values = list(args[0]) if op.sequence else list(args[:n])
    params = args[n:]

    def call(values: Sequence[Any]) -> Any:
        return op.function(list(values), *params, **kwargs) if op.sequence else op.function(*values, *params, **kwargs)

    if op.form == "linear":
        return call(values), call([_tangent(op, k, value, tangents) for k, value in enumerate(values)])
    if op.elementwise:
        out = call(values)
        if not _needs_transpose(op, values, out):
            return out, _elementwise_tangent(op, values, params, kwargs, out, tangents)
    return _transposed(call, values, tangents)


def _tangent(op: Op, k: int, value: Any, tangents: Mapping[int, Tensor]) -> Any:
    """What stands at input k of a linear op in place of its value."""
    if k in tangents:
        return tangents[k]
    name = op.inputs[0 if op.sequence else k]
    if op.rules[name] is NONDIFF:
        return value
    from tape_core.ops.creation import zeros_like

    return zeros_like(value) if isinstance(value, Tensor) else 0.0


def _needs_transpose(op: Op, values: Sequence[Any], out: Tensor) -> bool:
    """Whether a rule may not be its own transpose: the op is not linear over the complex numbers, as `real`."""
    kinds = {rule.kind for rule in op.compiled.values()}
    if UNWRITTEN in kinds:
        return True
    if not any(isinstance(v, Tensor) and v.dtype.kind == "complex floating" for v in values):
        return False
    return VJP in kinds or out.dtype.kind != "complex floating"


def _elementwise_tangent(
    op: Op, values: Sequence[Any], params: Any, kwargs: dict[str, Any], out: Tensor, tangents: Mapping[int, Tensor]
) -> Any:
    from tape_core.ops.creation import zeros_like
    from tape_core.ops.data_types import astype
    from tape_core.ops.manipulation import broadcast_to

    values = op.operands(tuple(values))
    backend = out.backend
    arrays = [v._array if isinstance(v, Tensor) else v for v in values]
    slots = [v._slots if isinstance(v, Tensor) else None for v in values]
    _, plans = op.bindings[backend]
    plan = plans[sum(1 << k for k in tangents)]
    total: Any = None
    if plan is not None:
        plan = plan.recorded  # what is computed here is recorded
        if op.takes_dtype:
            params = with_raw_dtype(op, backend, params, kwargs)
        rec = plan.record(plan, arrays, slots, [None] * len(arrays), out._array, out._slots, params, kwargs)
        xp, lift = lifting(backend)
        for rule, lifted in zip(plan.rules, plan.lifted, strict=True):
            t: Any = tangents[rule.k]
            if rule.kind == VJP:
                # A diagonal map is its own transpose; it expects what has the result's shape.
                t = rule.fn(xp, broadcast_to(t, out.shape), *lifted(rec, lift))
            elif rule.kind == PARTIAL:
                t = rule.fn(xp, *lifted(rec, lift)) * t
            elif rule.kind != ONE:
                t = t * rule.fn
            total = t if total is None else total + t
    if total is None:
        return zeros_like(out) if out.dtype.inexact else None
    if total.dtype is not out.dtype:
        total = astype(total, out.dtype)
    return total if total.shape == out.shape else broadcast_to(total, out.shape)


def _transposed(call: Any, values: list[Any], tangents: Mapping[int, Tensor]) -> tuple[Any, Any]:
    from tape_core.ops.creation import zeros_like
    from tape_core.ops.elementwise import positive
    from tape_core.tape import GradientTape

    # A tape may know the very Tensors given; the inner one must not mistake one for two.
    moving = {k: positive(values[k]) for k in tangents}
    with GradientTape(watch_accessed_variables=False) as outer:
        with GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(list(moving.values()))
            out = call([moving.get(k, value) for k, value in enumerate(values)])
        outs = list(out) if isinstance(out, tuple | list) else [out]
        flowing = [o for o in outs if o.dtype.inexact]
        seeds = [zeros_like(o) for o in flowing]
        outer.watch(seeds)
        cotangents = inner.gradient(flowing, list(moving.values()), output_gradients=seeds)
        cotangents = [c.densify() if hasattr(c, "densify") else c for c in cotangents]
    reached = [(c, tangents[k]) for c, k in zip(cotangents, moving, strict=True) if c is not None]
    found = (
        outer.gradient([c for c, _ in reached], seeds, output_gradients=[t for _, t in reached])
        if reached
        else [None] * len(seeds)
    )
    each = iter([zeros_like(seed) if t is None else t for t, seed in zip(found, seeds, strict=True)])
    by_result = tuple([next(each) if o.dtype.inexact else None for o in outs])
    return out, by_result if isinstance(out, tuple | list) else by_result[0]
