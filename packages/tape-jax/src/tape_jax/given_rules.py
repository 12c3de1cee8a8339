"""Derivatives that users give, by `custom_gradient` and the like, for JAX where it differentiates Tape's results.

JAX differentiates what is computed. So where it is tracing, the results of a function with a rule of its own leave by
the primitive :data:`GIVEN`, as a function of the inputs alone. The rule may read any traced value around it: it is
traced at once, and these values become residuals, which JAX differentiates for higher orders. The tangent of the
results is another primitive, :data:`TANGENTS`, which has both directions of the rule: forward mode takes its tangents,
and reverse mode, which transposes it, its cotangents. What the rule does not give is the transpose of what it gives.

`jax.custom_jvp` would do in place of the first one, but for loops: a derivative of a derivative of `jax.lax.scan` does
without its rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
from jax.interpreters import ad as _ad
from jax.interpreters import batching, mlir
from tape_core.backends import Rule
from tape_core.support import ACTIVE, setting
from tape_core.tracing import STAGE

from tape_jax.tasks import NEEDS_VALUES

Arrays = Sequence[Any]
Linear = Callable[[Arrays, Arrays], list[Any]]
"""A function of residuals, and of tangents or cotangents, in which it is linear."""

ad: Any = _ad  # partly untyped

MAX_ORDER = 4
"""The order of derivatives that JAX is given: a rule may call its own function, whose rule is traced with it."""

_order: ContextVar[int] = ContextVar("tape_jax_order", default=0)


def ruled(inputs: Arrays, outs: Arrays, rule: Rule) -> Arrays:
    """Return results of a function whose derivative the user gives as JAX is to differentiate them."""
    values = [jax.lax.stop_gradient(o) if isinstance(o, jax.core.Tracer) else o for o in outs]
    if not any([isinstance(x, jax.core.Tracer) for x in inputs]):
        return values
    residuals: list[Any] = []
    try:
        with setting(ACTIVE, ()), setting(STAGE, None), setting(_order, _order.get() + 1):
            directions, residuals = _traced(inputs, outs, rule)
    except Exception as error:  # noqa: BLE001 - where JAX differentiates it is raised, and elsewhere nobody asks for it
        directions = Directions(_raises(_as_said(error, rule)), len(inputs), len(outs))
    return bind_given(residuals, inputs, values, directions)


def bind_given(residuals: Arrays, inputs: Arrays, values: Arrays, directions: Directions) -> Arrays:
    """Return values as the results of inputs, with these derivatives."""
    found: Arrays = GIVEN.bind(*residuals, *inputs, *values, directions=directions)
    return found


def _raises(error: Exception) -> Callable[..., list[Any]]:
    def run(*values: Any) -> list[Any]:
        raise error

    return run


def _traced(inputs: Arrays, outs: Arrays, rule: Rule) -> tuple[Directions, list[Any]]:
    """Return the directions of a rule, and the values that it reads."""
    if _order.get() > MAX_ORDER:
        raise NotImplementedError(
            f"{rule.name}: its rule calls the function itself, or another one with a rule, and so on; JAX has "
            f"derivatives of such a function up to order {MAX_ORDER}: take some with Tape, as tape_core.grad does"
        )
    n, m = len(inputs), len(outs)
    if rule.pushes:
        traced = jax.make_jaxpr(lambda outs, ts: _like(rule.tangents(ts, tuple(outs)), outs))(list(outs), list(inputs))
        flows = (True,) * n
    else:
        gives: list[bool] = []

        def cotangents(outs: Arrays, gs: Arrays) -> list[Any]:
            found = rule.cotangents(tuple(gs), tuple(outs), [True] * n)
            gives[:] = [d is not None for d in found]
            return _like([d for d in found if d is not None], [x for x, g in zip(inputs, gives, strict=True) if g])

        traced = jax.make_jaxpr(cotangents)(list(outs), list(outs))
        flows = tuple(gives)
    jaxpr, known = traced.jaxpr, len(traced.consts)

    def run(*values: Any) -> list[Any]:
        closed = jax.extend.core.ClosedJaxpr(jaxpr, values[:known])
        return list(jax.extend.core.jaxpr_as_fun(closed)(*values[known:]))

    return Directions(run, n, m, flows, jaxpr.effects, pushes=rule.pushes), list(traced.consts)


def _like(derivatives: Arrays, values: Arrays) -> list[Any]:
    """Return derivatives in the dtypes of their values, which JAX insists on."""
    return [jax.lax.convert_element_type(d, x.dtype) for d, x in zip(derivatives, values, strict=True)]


def _as_said(error: Exception, rule: Rule) -> Exception:
    """Return what a user is told who lets JAX differentiate a function whose rule cannot be traced."""
    if not isinstance(error, UNREAD):
        return error
    said = TypeError(
        f"{rule.name}: JAX differentiates it, and cannot trace the rule, which needs the values of arrays: compute "
        f"with functions of Tape alone in the rule, or take the derivative with Tape and outside of JAX's "
        f"transformations, as tape_core.grad does"
    )
    said.__cause__ = error
    return said


UNREAD = (
    *NEEDS_VALUES,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What JAX raises where Python or NumPy asks for the value of an array that it traces."""


@dataclass(frozen=True, eq=False)  # JAX compares parameters of primitives, and each call has its own
class Directions:
    """Both directions of a rule, as functions of residuals, inputs, results, and tangents or cotangents.

    Attributes:
        run: the direction that was traced, a function of residuals, results, and tangents or cotangents.
        n, m: how many inputs and results there are.
        flows: for each input, whether the rule gives a cotangent of it.
        effects: what the rule does beside, such as to print.
        pushes: whether `run` maps tangents; else it maps cotangents.
    """

    run: Callable[..., list[Any]]
    n: int
    m: int
    flows: Sequence[bool] = ()
    effects: Any = frozenset()
    pushes: bool = True

    def split(self, values: Arrays) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Return the residuals, the inputs, the results and the tangents among the arguments of the primitive."""
        known, ts = _parts(values, self.n)
        known, outs = _parts(known, self.m)
        residuals, inputs = _parts(known, self.n if self.pushes else 0)
        return residuals, inputs, outs, ts

    def push(self, residuals: Arrays, inputs: Arrays, outs: Arrays, ts: Arrays) -> list[Any]:
        """Return the tangents of the results."""
        if self.pushes:
            return self.run(*residuals, *outs, *ts)
        # Cotangents are linear in those of the results, so their derivative is the same anywhere; Tape takes it at 0.
        _, transpose = jax.vjp(lambda *gs: self.run(*residuals, *outs, *gs), *map(jnp.zeros_like, outs))
        return list(transpose([t for t, flows in zip(ts, self.flows, strict=True) if flows]))

    def pull(self, residuals: Arrays, inputs: Arrays, outs: Arrays, gs: Arrays) -> list[Any]:
        """Return the cotangents of the inputs, for which the rule gives some."""
        if not self.pushes:
            return self.run(*residuals, *outs, *gs)
        _, transpose = jax.vjp(lambda *ts: self.run(*residuals, *outs, *ts), *map(jnp.zeros_like, inputs))
        return list(transpose(list(gs)))

    def batched(self, dims: Sequence[int | None], axis: Any) -> Directions:
        """Return the same for all examples of a vmap, which are along these dimensions of the residuals."""
        axes = (*dims, *[0] * self.m, *[0] * (self.n if self.pushes else self.m))
        run = jax.vmap(self.run, axes, axis_size=axis.size, axis_name=axis.name, spmd_axis_name=axis.spmd_name)
        return replace(self, run=run)


def _parts(values: Arrays, n: int) -> tuple[list[Any], list[Any]]:
    """Split off the last `n` values."""
    return list(values[: len(values) - n]), list(values[len(values) - n :])


def _with_examples(values: Arrays, dims: Sequence[int | None], size: int, n: int) -> tuple[list[Any], list[int | None]]:
    """Return arguments of a primitive with the examples of a vmap along dimension 0, in the last `n` of them always.

    These are inputs, results and their tangents: so the transpose has no sums over examples.
    """
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(values, dims, strict=True)]
    rest = len(values) - n
    whole = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None and k >= rest else x
        for k, (x, d) in enumerate(zip(moved, dims, strict=True))
    ]
    return whole, [None if d is None and k < rest else 0 for k, d in enumerate(dims)]


# -- the results: of residuals, inputs and results


GIVEN: Any = jax.extend.core.Primitive("given_rule")
GIVEN.multiple_results = True


def _values(*values: Any, directions: Directions) -> list[Any]:
    return _parts(values, directions.m)[1]


def _jvp_of_given(values: Arrays, tangents: Arrays, *, directions: Directions) -> Any:
    found = GIVEN.bind(*values, directions=directions)
    known, inputs = _parts(_parts(values, directions.m)[0], directions.n)
    ts = _parts(_parts(tangents, directions.m)[0], directions.n)[1]
    if all([type(t) is ad.Zero for t in ts]):
        return found, [ad.Zero(jax.typeof(o).to_tangent_aval()) for o in found]
    known += inputs if directions.pushes else []  # else nobody needs them for the cotangents: they need not be kept
    return found, TANGENTS.bind(*known, *found, *map(ad.instantiate_zeros, ts), directions=directions)


def _batch_given(axis: Any, values: Arrays, dims: Sequence[int | None], *, directions: Directions) -> Any:
    if all([d is None for d in dims]):
        return GIVEN.bind(*values, directions=directions), [None] * directions.m
    whole, dims = _with_examples(values, dims, axis.size, directions.n + directions.m)
    known = dims[: len(dims) - directions.n - directions.m]
    return GIVEN.bind(*whole, directions=directions.batched(known, axis)), [0] * directions.m


GIVEN.def_impl(_values)
GIVEN.def_abstract_eval(_values)
ad.primitive_jvps[GIVEN] = _jvp_of_given
batching.fancy_primitive_batchers[GIVEN] = _batch_given
mlir.register_lowering(GIVEN, mlir.lower_fun(_values, multiple_results=True))


# -- the tangents of the results: of residuals, of the inputs where the rule maps tangents, of results and tangents


TANGENTS: Any = jax.extend.core.Primitive("tangents_by_rule")
TANGENTS.multiple_results = True


def _run(*values: Any, directions: Directions) -> list[Any]:
    return directions.push(*directions.split(values))


def _abstract(*avals: Any, directions: Directions) -> Any:
    return directions.split(avals)[2], directions.effects


def _jvp(values: Arrays, tangents: Arrays, *, directions: Directions) -> Any:
    n = len(values) - directions.n
    found = TANGENTS.bind(*values, directions=directions)
    moved = [ad.Zero(jax.typeof(o).to_tangent_aval()) for o in found]
    if any([type(t) is not ad.Zero for t in tangents[n:]]):
        ts = map(ad.instantiate_zeros, tangents[n:])
        moved = TANGENTS.bind(*values[:n], *ts, directions=directions)
    if places := [k for k, t in enumerate(tangents[:n]) if type(t) is not ad.Zero]:

        def of_residuals(*moving: Any) -> list[Any]:
            each = list(values)
            for k, value in zip(places, moving, strict=True):
                each[k] = value
            return _run(*each, directions=directions)

        _, more = jax.jvp(of_residuals, [values[k] for k in places], [tangents[k] for k in places])
        moved = [ad.add_tangents(a, b) for a, b in zip(moved, more, strict=True)]
    return found, moved


def _transpose(gs: Arrays, *values: Any, directions: Directions) -> list[Any]:
    residuals, inputs, outs, ts = directions.split(values)
    gs = list(map(ad.instantiate_zeros, gs))
    found = iter(directions.pull(residuals, inputs, outs, gs))
    cotangents = [next(found) if flows else None for flows in directions.flows]
    wanted = [d if ad.is_undefined_primal(t) else None for d, t in zip(cotangents, ts, strict=True)]
    return [None] * (len(values) - directions.n) + wanted


def _batch(axis: Any, values: Arrays, dims: Sequence[int | None], *, directions: Directions) -> Any:
    if all([d is None for d in dims]):
        return TANGENTS.bind(*values, directions=directions), [None] * directions.m
    last = directions.n + directions.m + (directions.n if directions.pushes else 0)
    whole, dims = _with_examples(values, dims, axis.size, last)
    directions = directions.batched(dims[: len(dims) - last], axis)
    return TANGENTS.bind(*whole, directions=directions), [0] * directions.m


TANGENTS.def_impl(_run)
TANGENTS.def_effectful_abstract_eval(_abstract)
ad.primitive_jvps[TANGENTS] = _jvp
ad.primitive_transposes[TANGENTS] = _transpose
batching.fancy_primitive_batchers[TANGENTS] = _batch
mlir.register_lowering(TANGENTS, mlir.lower_fun(_run, multiple_results=True))
