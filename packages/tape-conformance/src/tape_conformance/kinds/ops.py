"""Checks of every op, generated from the samples it carries: values, derivatives, memory, refusals."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import tape_core as tc
from tape_core.extend import Op, Refused
from tape_core.support import wrap

from tape_conformance import calculus, reference
from tape_conformance.checking import Check, Skipped, Target, expect, expect_close, expect_equal, is_close
from tape_conformance.diagnosis import WrongRule, explain, rule_of
from tape_conformance.kinds.compiled import check_compiled_by
from tape_conformance.kinds.complex_numbers import complex_checks
from tape_conformance.kinds.dtypes import dtype_checks
from tape_conformance.kinds.transforms import transform_checks
from tape_conformance.samples import Case, Cases, Leaf, Replaced, check_of, draw_cases, on_backend, telling
from tape_conformance.tolerances import (
    DOT_PRODUCT_RTOL,
    FIRST_DERIVATIVE_RTOL,
    FLOAT32_RTOL,
    LARGE_REPEATS,
    MODERATE,
    SAME_RTOL,
    SECOND_DERIVATIVE_RTOL,
    SPECIAL_VALUES,
    VALUE_RTOL,
)


def op_checks(op: Op, target: Target) -> Iterator[Check]:
    """Yield all checks of one op."""
    samples = draw_cases(op)
    found = samples.accepted
    # The value and the gradients of one sample, and what is refused, find most mistakes. The gradients of what Tape
    # composes of ops are Tape's own.
    first = telling(found)
    by_library = _is_by_library(op, target)
    yield Check(f"{op.name}/samples", lambda: check_samples(op, samples), quick=True)
    for case in found:
        at = case.label
        yield check_of(f"{op.name}/value/{at}", check_value, case, quick=case is first)
        yield check_of(f"{op.name}/mutation/{at}", check_mutation, case)
        if case.passes_by_position:
            yield check_of(f"{op.name}/keywords/{at}", check_keywords, case)
        if case.leaves:
            yield check_of(f"{op.name}/layout/{at}", check_layout, case)
            yield check_of(f"{op.name}/float32/{at}", check_float32, case)
        if op.differentiable and case.leaves:
            for leaf in case.leaves:
                yield check_of(
                    f"{op.name}/vjp/{leaf.name}/{at}", check_vjp, case, leaf, target, quick=by_library and case is first
                )
            yield check_of(f"{op.name}/jvp/{at}", check_jvp, case)
            yield check_of(f"{op.name}/second/{at}", check_second, case)
            # The elements of a sequence are one input, kept as a whole or not at all.
            if not op.sequence:
                yield check_of(f"{op.name}/memory/{at}", check_memory, case)
        for name in target.compilers:
            yield check_of(f"{op.name}/compiled-by-{name}/{at}", check_compiled_by, name, case, quick=case is first)
    yield from transform_checks(op, samples)
    yield from dtype_checks(op, samples, target)
    yield from complex_checks(op, samples, target)
    if op.elementwise and found:
        yield check_of(f"{op.name}/special", check_special, op, found[0])
        if op.differentiable and (uniform := _case_of_one_shape(found)):
            yield check_of(f"{op.name}/large", check_large, uniform)
    for case in samples.refused:
        yield check_of(f"{op.name}/refused/{case.label}", check_refused, case, quick=case is samples.refused[0])


def _is_by_library(op: Op, target: Target) -> bool:
    """Return whether an op is the library's or its plugin's: it computes the value, or has rules of its own."""
    backend = target.backend
    has_own = op.name in backend.kernels or op.name in backend.rules
    return op.kernel is None or has_own or not op.function.__module__.startswith("tape_core.")


def check_samples(op: Op, samples: Cases) -> None:
    """The samples give every input with a rule a float array, so that no rule goes unchecked."""
    if samples.error is not None:
        raise AssertionError(f"the samples of op {op.name!r} cannot be drawn: {samples.error}") from samples.error
    found = samples.accepted
    expect(bool(found), f"op {op.name!r} carries no samples: declare it with samples=")
    expect(bool(op.function.__doc__), f"op {op.name!r} has no docstring")
    if not op.differentiable:
        expect(bool(op.reason), f"op {op.name!r} stops the gradient and does not say why: declare it with reason=")
    reached = {case.op.inputs[0 if op.sequence else leaf.k] for case in found for leaf in case.leaves}
    for k in op.compiled:
        unwritten = found[0].rule_of(k) is tc.extend.TODO
        expect(
            unwritten or op.inputs[k] in reached,
            f"no sample of op {op.name!r} gives a float array for {op.inputs[k]!r}",
        )


def check_value(case: Case) -> None:
    """The value is that of the NumPy reference in float64."""
    outs = case.call()
    for k, (found, expected) in enumerate(zip(case.observed(outs), reference.results(case), strict=True)):
        expect_close(found.numpy(), expected, f"result {k}", VALUE_RTOL)


def check_keywords(case: Case) -> None:
    """Parameters may be passed by name: the backend's kernel has the names of the standard."""
    assert case.by_keyword is not None
    args, kwargs = case.by_keyword
    out = case.op.function(*args, **kwargs)
    outs = tuple(out) if isinstance(out, tuple | list) else (out,)
    for k, (found, expected) in enumerate(zip(case.observed(outs), case.observed(case.call()), strict=True)):
        expect_close(found.numpy(), expected.numpy(), f"result {k}", SAME_RTOL)


def check_vjp(case: Case, leaf: Leaf, target: Target) -> None:
    """The gradient for one input agrees with finite differences, and has the input's shape, dtype and device."""
    weights = case.weights()
    gradient = calculus.gradients(case, weights)[leaf.k]
    expect_equal(gradient.shape, leaf.value.shape, "the gradient's shape")
    expect_equal(gradient.dtype, leaf.value.dtype, "the gradient's dtype")
    expect_equal(gradient.device, leaf.value.device, "the gradient's device")
    expect(gradient.backend is target.backend, f"the gradient is on backend {gradient.backend.name!r}")
    along = {leaf.k: case.directions(3)[leaf.k]}
    # Along one random direction, for two calls whatever the number of elements: an error of the gradient is orthogonal
    # to it with probability 0.
    expected = calculus.finite_difference(lambda at: calculus.loss(case, weights, at), case, along)
    found = calculus.inner_product(gradient.numpy(), along[leaf.k])
    if not is_close(found, expected, FIRST_DERIVATIVE_RTOL):
        rule = rule_of(case, leaf)
        raise WrongRule(explain(found, expected, rule, case, [leaf]), rule)


def check_jvp(case: Case) -> None:
    """The tangent agrees with finite differences, and with the VJP: <g, J t> = <J* g, t>."""
    weights, along = case.weights(), case.directions(4)
    outs, tangents = calculus.jvp(case, along)
    found = 0.0
    for out, tangent, g in zip(outs, tangents, calculus.cotangents(case, weights, outs), strict=True):
        if tangent is not None:
            expect_equal(tangent.shape, out.shape, "the tangent's shape")
            expect_equal(tangent.dtype, out.dtype, "the tangent's dtype")
            assert g is not None  # a result with a tangent is inexact, and so has a cotangent
            found += calculus.inner_product(g.numpy(), tangent.numpy())
    expected = calculus.finite_difference(lambda at: calculus.loss(case, weights, at), case, along)
    if not is_close(found, expected, FIRST_DERIVATIVE_RTOL):
        raise AssertionError(explain(found, expected, f"forward mode of {case.op.name!r}", case, case.leaves, "fwd"))
    gradients = calculus.gradients(case, weights)
    # Both sides are computed by the op's rules and not by differences, so this holds to rounding: it finds errors that
    # a finite difference is too coarse for.
    backward = sum(calculus.inner_product(gradients[k].numpy(), direction) for k, direction in along.items())
    expect_close(found, backward, "the dot-product test, <g, J t> against <J* g, t>,", DOT_PRODUCT_RTOL)


def check_second(case: Case) -> None:
    """A Hessian-vector product agrees with finite differences of the gradient."""
    weights, slopes = case.weights(), case.directions(5)

    def slope(at: Replaced) -> float:
        gradients = calculus.gradients(case, weights, at)
        return sum(calculus.inner_product(slopes[k], g.numpy()) for k, g in gradients.items())

    found = calculus.hessian_vector_products(case, weights, slopes)
    directions = case.directions(6)
    for leaf in case.leaves:
        along = directions[leaf.k]
        expected = calculus.finite_difference(slope, case, {leaf.k: along})
        own = calculus.inner_product(found[leaf.k].numpy(), along)
        if not is_close(own, expected, SECOND_DERIVATIVE_RTOL):
            subject = f"the derivative, for {leaf.name!r}, of gradients of {case.op.name!r}"
            raise AssertionError(explain(own, expected, subject, case, [leaf], "rev", 2))


def check_float32(case: Case) -> None:
    """float32 inputs give float32 results and gradients, close to the float64 ones; likewise complex64."""
    narrow = {"float64": "float32", "complex128": "complex64"}
    small = {
        k: tc.astype(v, narrow[v.dtype.name])
        for k, v in enumerate(case.values)
        if isinstance(v, tc.Tensor) and v.dtype.inexact
    }
    # Compare with float64 at the rounded inputs, so that the rounding of the inputs is no difference.
    wide = {k: tc.astype(value, case.values[k].dtype) for k, value in small.items()}
    if case.parameter("dtype") is not None:
        raise Skipped("the dtype of the result is not that of the inputs")
    expected, found = case.call(wide), case.call(small)
    for out, reference_out in zip(found, expected, strict=True):
        name = reference_out.dtype.name
        expect_equal(out.dtype.name, narrow.get(name, name), "the dtype of a result")
    for out, reference_out in zip(case.observed(found), case.observed(expected), strict=True):
        expect_close(out.numpy(), reference_out.numpy(), "a float32 result", FLOAT32_RTOL)
    if not case.op.differentiable:
        return
    weights = case.weights()
    exact = calculus.gradients(case, weights, wide)
    for k, gradient in calculus.gradients(case, weights, small).items():
        expect_equal(gradient.dtype, small[k].dtype, f"the dtype of the gradient for {case.name_of(k)}")
        expect_close(gradient.numpy(), exact[k].numpy(), "the float32 gradient", 5 * FLOAT32_RTOL)


def check_layout(case: Case) -> None:
    """Strided and read-only arrays give the same results and gradients."""
    if _is_immutable(case.leaves[0].value):
        raise Skipped("the library's arrays cannot be written to: they have no layout that a kernel could mistake")
    changes: dict[str, Callable[[tc.Tensor], tc.Tensor]] = {"strided": _strided, "read-only": _read_only}
    weights = case.weights()
    expected = [o.numpy() for o in case.call()]
    plain = calculus.gradients(case, weights) if case.op.differentiable else {}
    for what, change in changes.items():
        laid = {leaf.k: change(leaf.value) for leaf in case.leaves}
        for out, value in zip(case.call(laid), expected, strict=True):
            expect_close(out.numpy(), value, f"a result of {what} arrays", SAME_RTOL)
        if case.op.differentiable:
            for k, gradient in calculus.gradients(case, weights, laid).items():
                expect_close(gradient.numpy(), plain[k].numpy(), f"the gradient of {what} arrays", SAME_RTOL)


def check_mutation(case: Case) -> None:
    """Neither the op nor its backward pass writes to its inputs, its results or the cotangents."""
    if any([_is_immutable(v) for v in case.values if isinstance(v, tc.Tensor)][:1]):
        raise Skipped("the library's arrays cannot be written to")
    arrays = [v for v in case.values if isinstance(v, tc.Tensor)]
    before = [a.numpy() for a in arrays]
    watched = [leaf.value for leaf in case.leaves]
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(watched)
        outs = case.call()
    results = [o.numpy() for o in outs]
    seeds = [g for g in calculus.cotangents(case, case.weights(), outs) if g is not None]
    given = [g.numpy() for g in seeds]
    if watched and seeds:
        for _ in range(2):  # the second sweep reads what the first may have spoilt
            tape.gradient([o for o in outs if o.dtype.inexact], watched, output_gradients=seeds)
    for what, then, now in (("an input", before, arrays), ("a result", results, outs), ("a cotangent", given, seeds)):
        for old, new in zip(then, now, strict=True):
            expect(np.array_equal(old, new.numpy(), equal_nan=old.dtype.kind in "fc"), f"{what} was written to")


def check_memory(case: Case) -> None:
    """A record keeps alive the inputs that its rules name as parameters, and no others."""
    # Copies that only this function refers to; a sample's own arrays live as long as the sample. Those of shape () may
    # be scalars, which cannot be referenced weakly.
    fresh = {leaf.k: on_backend(leaf.value.numpy() + 0) for leaf in case.leaves if leaf.value.shape}
    if not fresh:
        raise Skipped("no array to observe")
    rules = {k: case.op.compiled[k] for k in fresh}
    # Such a rule may name other values than the op's own, whose names are looked at here.
    own = tc.get_backend().rules.get(case.op.name)
    if own:
        raise Skipped("the backend has rules of its own for this op")
    with tc.GradientTape() as tape:
        tape.watch(list(fresh.values()))
        outs = case.call(fresh)
    named = {k for rule in rules.values() for k in rule.keeps}
    alive = {}
    for k, value in fresh.items():
        try:
            alive[k] = weakref.ref(value._array)
        except TypeError:
            raise Skipped("the library's arrays cannot be referenced weakly") from None
    # A view keeps the array alive whose memory it is, whatever a record does.
    views = any(_share_memory(out, value) for out in outs for value in fresh.values())
    del outs, fresh, value
    if views:
        raise Skipped("the result is a view of the input")
    if any([reference_to() is not None for k, reference_to in alive.items() if k not in named]):
        gc.collect()  # not always: to walk the heap takes longer than everything else here
    for k, reference_to in alive.items():
        kept = reference_to() is not None
        state = "is kept alive, though no rule names it" if kept else "is gone, though a rule names it"
        expect(kept == (k in named), f"the input {case.name_of(k)!r} {state}")
    del tape


def check_special(op: Op, case: Case) -> None:
    """At infinities, NaN, zeros and extreme numbers, values and gradients are the reference's."""
    grid = np.asarray(SPECIAL_VALUES)
    at = [k for k, v in enumerate(case.values) if isinstance(v, tc.Tensor) and v.dtype.kind == "real floating"]
    if not at or case.is_complex:
        raise Skipped("no real floating-point input")
    # Every combination of special values: 12 of them, or 144 pairs.
    grids = dict(zip(at, np.meshgrid(*[grid] * len(at), indexing="ij"), strict=True))
    others = {
        k: np.ones(grids[at[0]].shape, v.numpy().dtype)
        for k, v in enumerate(case.values)
        if isinstance(v, tc.Tensor) and k not in at
    }
    given = {k: on_backend(v.copy()) for k, v in {**grids, **others}.items()}
    with np.errstate(all="ignore"):
        outs = case.call(given)
        expected = reference.results(case, {**grids, **others})
    expect_close(outs[0].numpy(), expected[0], "a special value", VALUE_RTOL, atol=0)
    if not op.differentiable:
        return
    leaves = {k: given[k] for k in at if case.rule_of(k) not in (tc.extend.NONDIFF, tc.extend.TODO)}
    # Finite differences tell nothing at infinities, so the expected gradient is that of the op's rules on plain NumPy:
    # what is checked is the backend, its kernels in the rules and its sweep.
    found = _gradients_for_ones(case, given, leaves)
    own = reference.gradients(case, {**grids, **others}, list(leaves))
    # atol=0 is right for 1e-300, but too strict where a derivative near 0 is a difference of moderate numbers.
    moderate = np.all([np.abs(values) < MODERATE for values in grids.values()], axis=0)
    for k, gradient in zip(leaves, found, strict=True):
        values = gradient.numpy()
        values = np.where(moderate & (np.abs(values - own[k]) < SAME_RTOL), own[k], values)
        expect_close(values, own[k], f"what flows back to {case.name_of(k)} at special values", VALUE_RTOL, atol=0)


def _gradients_for_ones(case: Case, given: Replaced, leaves: Replaced) -> list[tc.Tensor]:
    """Return the gradients of some inputs for a cotangent of ones."""
    with tc.GradientTape() as tape:
        tape.watch(list(leaves.values()))
        with np.errstate(all="ignore"):
            outs = case.call(given)
    found: list[tc.Tensor] = tape.gradient(outs, list(leaves.values()), unconnected_gradients="zero")
    return found


def check_large(case: Case) -> None:
    """Arrays so large that the sweep reuses memory have the same gradient as small ones, and are not written to."""
    large = {
        k: tc.tile(v, (LARGE_REPEATS,) + (1,) * (v.ndim - 1))
        for k, v in enumerate(case.values)
        if isinstance(v, tc.Tensor) and v.shape
    }
    before = {k: v.numpy() for k, v in large.items()}
    sources = [large[leaf.k] for leaf in case.leaves]
    weights = case.weights()
    (weight,) = weights
    assert weight is not None  # the op is differentiable and elementwise: it has one result
    seed = on_backend(np.tile(weight, (LARGE_REPEATS,) + (1,) * (weight.ndim - 1)))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        (out,) = case.call(large)
        y = tc.negative(tc.negative(out))
    small = calculus.gradients(case, weights)
    # From y, the cotangent of the op belongs to the sweep alone, which may overwrite it; from out, it is our seed. Both
    # are asked for twice, since the second sweep reads what the first may have spoilt.
    for target in (y, y, out, out):
        found = tape.gradient(target, sources, output_gradients=seed, unconnected_gradients="zero")
        for leaf, gradient in zip(case.leaves, found, strict=True):
            expected = np.tile(small[leaf.k].numpy(), (LARGE_REPEATS,) + (1,) * (gradient.ndim - 1))
            expect_close(gradient.numpy(), expected, f"the gradient of a large {leaf.name}", SAME_RTOL)
    expect_close(seed.numpy()[: weight.shape[0]], weight, "the cotangent that was given", 0)
    for k, old in before.items():
        expect(np.array_equal(old, large[k].numpy()), f"the input {case.name_of(k)!r} was written to")


def check_refused(case: Case) -> None:
    """A call with arguments that the op refuses raises the declared error, with the declared message."""
    sample = case.sample
    assert isinstance(sample, Refused)
    try:
        case.op.function(*sample.args, **sample.kwargs)
    except sample.error as error:
        expect(
            re.search(sample.match, str(error)) is not None, f"the message {str(error)!r} does not say {sample.match!r}"
        )
    except Exception as error:
        raise AssertionError(f"it raised {error!r}, expected {sample.error.__name__}") from error
    else:
        raise AssertionError(f"it did not raise {sample.error.__name__}")


def _case_of_one_shape(found: list[Case]) -> Case | None:
    """Return the first case all of whose arrays have one shape that is neither () nor empty."""
    for case in found:
        shapes = {v.shape for v in case.drawn_values if isinstance(v, tc.Tensor)}
        if len(shapes) == 1 and (shape := shapes.pop()) and 0 not in shape:
            return case
    return None


def _is_immutable(x: tc.Tensor) -> bool:
    """Return whether arrays of the library of a Tensor cannot be written to."""
    array = x.backend.asarray(np.zeros(2))
    try:
        array[0] = 1.0
    except TypeError:
        return True
    return False


def _strided(x: tc.Tensor) -> tc.Tensor:
    """Copy a Tensor to memory in which its elements lie two apart."""
    xp = x.backend.namespace
    raw = x.backend.asarray(x.array, copy=True)
    return wrap(xp.stack([raw, raw], axis=x.ndim)[..., 0], x.backend)


def _read_only(x: tc.Tensor) -> tc.Tensor:
    """Copy a Tensor to read-only memory, if the library has such."""
    raw = x.backend.asarray(x.array, copy=True)
    # Only NumPy arrays have such a flag; others are just copied.
    if isinstance(raw, np.ndarray):
        raw.flags.writeable = False
    return wrap(raw, x.backend)


def _share_memory(a: tc.Tensor, b: tc.Tensor) -> bool:
    raw = [t.backend.numpy(t.array) for t in (a, b)]
    return bool(np.shares_memory(*raw))
