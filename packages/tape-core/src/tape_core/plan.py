"""Plan: what the backward pass does with a record of one op, for one set of watched inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tape_core.indexed_slices import IndexedSlices
from tape_core.rules import (
    CONSTANT,
    ONE,
    PARTIAL,
    PARTIAL_N,
    UNWRITTEN,
    VJP_1,
    VJP_N,
    Rule,
    slot_at,
)

if TYPE_CHECKING:
    from tape_core.op import Op

Lift = Callable[[Any, Any], Any]
Owns = Callable[[Any, int], bool]


class Plan:
    """The rules that run for a record, and what the record must keep for them."""

    __slots__ = ("backward", "keep1", "keep2", "keep_out", "keeps", "n", "op", "rules")

    def __init__(self, op: Op, rules: list[Rule]) -> None:
        self.op = op
        self.rules = rules
        self.n = 1 if op.sequence else len(op.inputs)
        self.keeps = frozenset[int]().union(*(rule.keeps for rule in rules))
        self.keep1 = 0 in self.keeps
        self.keep2 = 1 in self.keeps
        self.keep_out = any(rule.keeps_out for rule in rules)
        self.backward = self._elementwise() if op.elementwise else self._exact()

    # -- the fast backward pass: raw arrays, nothing masked or sparse on the tape
    #
    # `owns` is there for large arrays: a cotangent nobody else holds is overwritten in place of a new one made.
    # Two references are known of: the sweep's and this frame's, or the list's and this frame's.

    def _elementwise(self) -> Callable[..., None]:
        steps = [(rule.k, slot_at(rule.k), rule.kind, rule.fn, rule.position, rule) for rule in self.rules]
        last = steps[-1][0]

        def backward(g: Any, rec: tuple[Any, ...], grads: list[Any], xp: Any, owns: Owns | None) -> None:
            specs = rec[1]
            for k, at, kind, fn, position, rule in steps:
                if kind == PARTIAL:
                    if owns is not None and k == last and owns(g, 2):
                        g *= fn(xp, rec[position])
                        d = g
                    else:
                        d = g * fn(xp, rec[position])
                elif kind == ONE:
                    d = g
                elif kind == VJP_1:
                    d = fn(xp, g, rec[position])
                elif kind == CONSTANT:
                    d = g * fn
                elif kind == PARTIAL_N:
                    d = g * fn(xp, *[get(rec, None) for get in rule.getters])
                elif kind == UNWRITTEN:
                    raise unwritten(rule)
                else:
                    d = fn(xp, g, *[get(rec, None) for get in rule.getters])
                if specs is not None and (spec := specs[k]) is not None:
                    d = project(xp, d, spec)
                i = rec[at]
                h = grads[i]
                if h is None:
                    grads[i] = d
                elif owns is not None and owns(h, 2):
                    h += d
                else:
                    grads[i] = h + d

        return backward

    def _exact(self) -> Callable[..., None]:
        steps = [(rule.k, slot_at(rule.k), rule.kind, rule.fn, rule.getters, rule) for rule in self.rules]
        sequence = self.op.sequence

        def backward(g: Any, rec: tuple[Any, ...], grads: list[Any], xp: Any, owns: Owns | None) -> None:
            specs = rec[1]
            if type(g) is Parts:
                g = g.complete(xp)
            for k, at, kind, fn, getters, rule in steps:
                if kind == UNWRITTEN:
                    raise unwritten(rule)
                d = fn(xp, g, *[get(rec, None) for get in getters])
                if sequence:
                    accumulate_each(xp, d, rec[at], specs[0], grads, rule)
                    continue
                shape, dtype = specs[k]
                if d.shape != shape or d.dtype != dtype:
                    d = checked(xp, d, (shape, dtype), rule)
                i = rec[at]
                h = grads[i]
                if h is None:
                    grads[i] = d
                elif owns is not None and owns(h, 2):
                    h += d
                else:
                    grads[i] = h + d

        return backward

    # -- the careful one: arrays or Tensors, and whatever the tape has met

    def backward_careful(
        self, g: Any, rec: tuple[Any, ...], grads: list[Any], xp: Any, lift: Lift | None, masked: bool
    ) -> None:
        """As `backward`, for masked and sparse cotangents; with `lift` on Tensors, so that it is recorded."""
        if isinstance(g, IndexedSlices):
            g = g.densify()
        elif isinstance(g, Parts):
            g = g.complete(xp)
        specs = rec[1]
        for rule in self.rules:
            if rule.kind == UNWRITTEN:
                raise unwritten(rule)
            args = [get(rec, lift) for get in rule.getters]
            if rule.kind in (PARTIAL, PARTIAL_N):
                d = g * rule.fn(xp, *args)
                if masked:
                    d = unpoisoned(xp, g, d)
            elif rule.kind == ONE:
                d = g
            elif rule.kind == CONSTANT:
                d = g * rule.fn
            else:
                d = rule.fn(xp, g, *args)
            at = slot_at(rule.k)
            if self.op.sequence:
                accumulate_each(xp, d, rec[at], specs[0], grads, rule)
                continue
            if self.op.elementwise:
                if masked and rule.kind in (VJP_1, VJP_N):
                    d = unpoisoned(xp, g, d)
                if specs is not None and specs[rule.k] is not None:
                    d = project(xp, d, specs[rule.k])
            elif not isinstance(d, IndexedSlices):
                d = checked(xp, d, specs[rule.k], rule)
                if masked and type(g) is not tuple and xp.any(xp.isnan(d)) and not xp.any(g != 0):
                    d = xp.where(xp.isnan(d), 0, d)
            i = rec[at]
            h = grads[i]
            grads[i] = d if h is None else h + d


class Part:
    """Stands where a plan does, in the record of one of several results: hands its cotangent to the op's record."""

    __slots__ = ("k", "specs")
    n = 1

    def __init__(self, k: int, specs: tuple[tuple[Any, Any], ...]) -> None:
        self.k = k
        self.specs = specs

    def backward(self, g: Any, rec: tuple[Any, ...], grads: list[Any], xp: Any, owns: Owns | None) -> None:
        """Collect the cotangent; the op's record comes later in the sweep."""
        base = rec[2]
        if grads[base] is None:
            grads[base] = Parts(self.specs)
        grads[base].cotangents[self.k] = g

    def backward_careful(
        self, g: Any, rec: tuple[Any, ...], grads: list[Any], xp: Any, lift: Lift | None, masked: bool
    ) -> None:
        """As `backward`."""
        self.backward(g, rec, grads, xp, None)


class Parts:
    """The cotangents of an op's several results, as far as they have come."""

    __slots__ = ("cotangents", "specs")

    def __init__(self, specs: tuple[tuple[Any, Any], ...]) -> None:
        self.specs = specs
        self.cotangents: list[Any] = [None] * len(specs)

    def complete(self, xp: Any) -> tuple[Any, ...]:
        """All of them, zeros for results that nothing used."""
        one = next(g for g in self.cotangents if g is not None)
        return tuple(
            xp.zeros_beside(one, shape, dtype=dtype) if g is None else g
            for g, (shape, dtype) in zip(self.cotangents, self.specs, strict=True)
        )


def accumulate_each(xp: Any, cotangents: Any, slots: Any, specs: Any, grads: list[Any], rule: Rule) -> None:
    """Add the cotangents of an input that is a sequence of arrays."""
    if len(cotangents) != len(slots):
        raise ValueError(f"{rule.where} returned {len(cotangents)} cotangents for {len(slots)} arrays")
    for d, i, spec in zip(cotangents, slots, specs, strict=True):
        if i is not None:
            d = checked(xp, d, spec, rule)
            h = grads[i]
            grads[i] = d if h is None else h + d


def unpoisoned(xp: Any, g: Any, d: Any) -> Any:
    """`d` with 0 in place of the NaN that a zero cotangent makes of an infinite or undefined derivative.

    Only there: elsewhere a zero cotangent may have a derivative of its own, which another tape records.
    """
    return xp.where(xp.logical_and(g == 0, xp.isnan(d)), 0, d)


def project(xp: Any, d: Any, spec: tuple[Any, Any]) -> Any:
    """The cotangent of an elementwise op's input: summed back over broadcasting, in the input's dtype."""
    shape, dtype = spec
    given = d.shape
    if given != shape:
        extra = len(given) - len(shape)
        if extra > 0 and given[extra:] == shape:
            return cast(xp, xp.sum(d, axis=0 if extra == 1 else tuple(range(extra))), dtype)
        if extra < 0 or 0 in given:
            d = xp.broadcast_to(d, broadcast_shape(tuple(given), tuple(shape)))
            given = d.shape
            extra = len(given) - len(shape)
        axes = (*range(extra), *(extra + k for k, n in enumerate(shape) if n == 1 and given[extra + k] != 1))
        if axes:
            d = xp.sum(d, axis=axes)
        if d.shape != shape:
            d = xp.reshape(d, shape)
    return cast(xp, d, dtype)


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape two broadcastable shapes broadcast to."""
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def cast(xp: Any, d: Any, dtype: Any) -> Any:
    """`d` in another dtype: a real input has a real gradient."""
    if dtype is None or getattr(d, "_array", d).dtype == dtype:
        return d
    if xp.isdtype(d.dtype, "complex floating") and not xp.isdtype(dtype, "complex floating"):
        d = xp.real(d)
    return xp.astype(d, dtype)


def checked(xp: Any, d: Any, spec: tuple[Any, Any], rule: Rule) -> Any:
    """A cotangent of exactly the input's shape and dtype.

    Raises:
        ValueError: the rule made another shape: a mistake in the rule that summing would hide.
    """
    shape, dtype = spec
    if tuple(d.shape) != tuple(shape):
        raise ValueError(f"{rule.where} returned a cotangent of shape {tuple(d.shape)}; the input has {tuple(shape)}")
    return cast(xp, d, dtype)


def unwritten(rule: Rule) -> NotImplementedError:
    """The error for an input declared TODO."""
    return NotImplementedError(
        f"{rule.where} is not written yet: a gradient exists, so it is not None. Give the op a rule with "
        f"tape_core.extend.registry.override, or cut the path with tape_core.stop_gradient"
    )
