"""Functions whose derivative the user gives: custom_gradient takes a VJP, custom_jvp a JVP."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

from tape_core.base.ambient import MASKED, OPEN_AXES
from tape_core.base.contexts import setting
from tape_core.base.mistakes import check_callable
from tape_core.engine import layouts, pytree
from tape_core.engine.backward import gradients
from tape_core.engine.cotangents import conj
from tape_core.engine.cuts import Cuts, own_derivative
from tape_core.engine.indexed_slices import IndexedSlices, dense
from tape_core.engine.levels import Axis, BatchedArray, lift, move_to_level
from tape_core.engine.tape import GradientTape
from tape_core.engine.tensor import Tensor, alias, twin_slots, wrap
from tape_core.engine.variable import Variable
from tape_core.modes.function_op import Axes, Pull, below, lower_cotangent, raise_derivative
from tape_core.ops.creation import zeros_like
from tape_core.ops.data_types import laid_out_like, off_tapes
from tape_core.ops.manipulation import stack
from tape_core.transforms.calls import Arguments, Results, forbid_captures, like_value, name_of, reading
from tape_core.transforms.closures import Closure, share_slots
from tape_core.typing import Cotangent

Function = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")


def custom_gradient(f: Callable[P, tuple[R, Any]]) -> Callable[P, R]:
    """Return a function whose gradient the user gives: `f(*args)` returns `(result, grad)`.

    >>> import tape_core as tc
    >>> @tc.custom_gradient
    ... def log1pexp(x):
    ...     e = tc.exp(x)
    ...     return tc.log(1 + e), lambda upstream: upstream * (1 - 1 / (1 + e))
    >>> x = tc.asarray(50.0)
    >>> with tc.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = log1pexp(x)
    >>> tape.gradient(y, x).item()
    1.0

    `grad(*upstream)` gets one cotangent for each Tensor of the result, zeros where nothing flows, and returns one
    gradient for each positional argument, in their structure: a Tensor or None. Where `f` reads trainable Variables
    that are not among its arguments, `grad` must take `variables=None` too, and return `(gradients, [one per
    variable])`.
    As in TensorFlow, gradients are those of :meth:`GradientTape.gradient`: for a holomorphic function conj(f'(z)) times
    the upstream gradient. Second derivatives differentiate `grad`, and forward mode uses its transpose. A Jacobian
    calls `grad` once, for all rows; where it takes values out of Tensors, to compute with NumPy, once for each row.
    Nobody knows which elements of a gradient belong to which cotangent: where `tape_core.where` leaves elements of the
    result out, their cotangent is 0, and what `grad` makes of it stays, such as a NaN of 0 / 0. A rule that is infinite
    or undefined somewhere says `where(upstream == 0, 0.0, ...)` itself.
    The cotangent of a result that is only gathered from is dense, unless `grad.takes_slices` is true: then it is
    :class:`IndexedSlices`.

    Args:
        f: a function of pytrees, or a method: its object is not differentiated. Keyword arguments are passed on and
            not differentiated.

    Raises:
        TypeError: in the call: `f` reads Variables and `grad` does not take `variables`; or its result is not a pair.
        ValueError: in the backward pass: `grad` returned a wrong number of gradients, or one of a wrong shape.
    """
    check_callable("custom_gradient", "f", f)
    name = name_of(f)

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        owner, args = _split_owner(f, args)
        arguments = Arguments(args)
        with reading() as readers, own_derivative():
            pair: Any = f(*owner, *arguments.given, **kwargs)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"custom_gradient: {name} must return a pair (result, grad), of which grad is a function")
        result, grad = pair
        # A Variable that is an argument has its gradient as one.
        given = {id(leaf) for leaf in arguments.leaves}
        variables = [v for v in readers.found if v.trainable and id(v) not in given]
        if variables and not _takes_variables(grad):
            raise TypeError(
                f"custom_gradient: {name} reads the variables {[v.name or v.shape for v in variables]}, so its grad "
                f"must take the keyword argument 'variables' and return (gradients, [one per variable])"
            )
        results = Results(result, name)
        inputs = [*arguments.differentiable, *[v._read() for v in variables]]
        labels = [*arguments.names(), *[f"variable {v.name or k}" for k, v in enumerate(variables)]]

        def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
            upstream = _upstream_gradients(results, gs)
            with own_derivative(), setting(MASKED, 0):
                answer = grad(*upstream, variables=variables) if variables else grad(*upstream)
            if variables:
                by_argument, by_variable = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, ())
                if len(by_variable) != len(variables):
                    raise ValueError("Must return gradient for each variable from @custom_gradient grad_fn.")
            else:
                by_argument, by_variable = answer, ()
            found = pytree.flatten(by_argument)[0]
            expected = len(arguments.leaves)
            if owner and len(found) == expected + 1:
                found = found[1:]  # the user gave one for the object, too
            if len(found) != expected:
                raise ValueError(
                    f"custom_gradient function expected to return {expected} gradients, but returned {len(found)} "
                    f"instead."
                )
            chosen = [found[k] for k in arguments.places] + list(by_variable)
            found = []
            for d, t, label in zip(chosen, inputs, labels, strict=True):
                kept = pull.takes_slices and isinstance(d, IndexedSlices) and d.shape == t.shape and d.dtype is t.dtype  # type: ignore[attr-defined]
                if d is not None and not kept:
                    d = like_value(dense(d), t, f"custom_gradient: the grad of {name} for {label}", "the value")
                    d = laid_out_like(d, t) if layouts.in_use else d
                # Users give gradients, which are conjugated; the sweep computes with plain transposes.
                found.append(None if d is None else conj(d))
            return found

        pull.takes_slices = getattr(grad, "takes_slices", False)  # type: ignore[attr-defined]
        return results.record(f"custom_gradient({name})", inputs, _split_batches(pull, OPEN_AXES.get()))

    return wrapped


def _split_batches(pull: Pull, around: Axes) -> Pull:
    """Return a rule that also takes batches of cotangents, example by example if the rule itself cannot.

    A Jacobian asks for all its rows at once, by vmap. That raises where the rule computes with NumPy, for instance;
    then each row is computed on its own.

    Args:
        pull: a function of cotangents.
        around: the hidden axes of the vmaps that the function itself is in. Its residuals have these axes too, so they
            are never split.
    """

    def pulled(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> Sequence[Any]:
        try:
            return pull(gs, watched, outs)
        except TypeError as error:  # BatchError is a TypeError, and so is what other libraries raise for a Tensor
            gs = [dense(g) for g in gs]
            batched = [g for g in gs if g is not None and type(g._array) is BatchedArray]
            # The level of the vmap that was opened last, of which the cotangents are examples.
            top = max([g.backend for g in batched], key=lambda backend: backend.level, default=None)
            axis = next((g._array.axis for g in batched if g.backend is top and g._array.axis is not None), None)
            if axis is None or axis in around or axis.size == 0:
                raise
            # Python deletes the name `error` at the end of this block.
            failed = error

        def example(g: Cotangent, k: int) -> Cotangent:
            if g is None or g.backend is not top:
                return g
            return g._array.value if g._array.axis is None else g._array.value[k]

        try:
            rows = [pulled([example(g, k) for g in gs], watched, outs) for k in range(axis.size)]
        except Exception as error:
            raise error from failed
        return [_join_examples([dense(row) for row in column], top, axis) for column in zip(*rows, strict=True)]

    pulled.takes_slices = getattr(pull, "takes_slices", False)  # type: ignore[attr-defined]

    return pulled


def custom_jvp(f: Function) -> Function:
    """Return a function whose derivative a rule gives: `rule(primals, tangents)` returns `(result, tangent)`.

    >>> import tape_core as tc
    >>> @tc.custom_jvp
    ... def log1pexp(x):
    ...     return tc.log(1 + tc.exp(x))
    >>> @log1pexp.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), tc.sigmoid(x) * t
    >>> tc.jvp(log1pexp, (0.0,), (2.0,))[1].item(), tc.grad(log1pexp)(0.0).item()
    (1.0, 0.5)

    It is the same as in JAX. The rule must be linear in the tangents: forward mode uses it, reverse mode its transpose,
    and higher orders differentiate it. It is not told which arguments are differentiated: every argument that can have
    a tangent has one, zeros where it is constant.

    `primals` and `tangents` are tuples with an entry for each positional argument, of the argument's structure. A
    Python float or complex, which is a constant, has the tangent 0, and any other leaf that is not a floating or
    complex array has the tangent None. The rule's tangent has the structure of the result; None in it means zero.
    Keyword arguments are passed on to both and not differentiated.

    Args:
        f: a function of pytrees. Everything that is to be differentiated must be an argument.

    Returns:
        The function; its attribute `defjvp(rule)` sets the rule and returns it.

    Raises:
        TypeError: in the call: there is no rule, or `f` reads a trainable Variable or a watched Tensor that is not an
            argument. When it is differentiated: the rule does not return a pair.
        ValueError: when it is differentiated: the tangent differs from the result in structure or shape.
    """
    check_callable("custom_jvp", "f", f)
    name = name_of(f)
    rules: list[Function] = []

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not rules:
            raise TypeError(f"custom_jvp: {name} has no rule; give it one with @{name}.defjvp")
        rule = rules[0]
        owner, args = _split_owner(f, args)
        arguments = Arguments(args)
        inputs = arguments.differentiable
        with forbid_captures(f"custom_jvp: {name}") as readers:
            result = f(*owner, *arguments.replaced([off_tapes(t) for t in inputs]), **kwargs)
        if read_too := [v for v in readers.found if v.trainable]:
            raise TypeError(
                f"custom_jvp: {name} reads the variables {[v.name or v.shape for v in read_too]}, for which its rule "
                f"has no tangents; make them arguments"
            )
        results = Results(result, name)

        def pushed(primals: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor]:
            pair = rule(arguments.replaced(primals), arguments.with_tangents(tangents), **kwargs)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(f"custom_jvp: the rule of {name} must return a pair (result, tangent)")
            return results.matching(pair[1], f"custom_jvp: the tangent from the rule of {name}")

        def push(ts: list[Any], outs: list[Tensor]) -> list[Tensor]:
            return pushed(inputs, [_zeros(x) if t is None else t for t, x in zip(ts, inputs, strict=True)])

        def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
            # The rule is linear in the tangents, so its transpose is the same at any point.
            zeros, masked = [_zeros(x) for x in inputs], MASKED.get()
            return linear_transpose(lambda ts: pushed(inputs, ts), zeros, gs, watched, masked=masked)

        return results.record(f"custom_jvp({name})", inputs, pull, push)

    def defjvp(rule: Function) -> Function:
        check_callable("defjvp", "rule", rule)
        rules[:] = [rule]
        return rule

    wrapped.defjvp = defjvp  # type: ignore[attr-defined]
    return wrapped


def linear_transpose(
    f: Callable[[list[Tensor]], Sequence[Tensor]],
    at: Sequence[Tensor],
    gs: Sequence[Any],
    watched: Sequence[bool],
    around: Closure | None = None,
    inner: Axes = (),
    masked: int = 0,
) -> list[Any]:
    """Apply the transpose of the derivative of `f` at `at` to cotangents; for a linear `f` that is its own transpose.

    Args:
        f: a function from a list of Tensors to a list of Tensors.
        at: its argument, the point.
        gs: a cotangent for each of its results, None where nothing flows.
        watched: for each input, True if its cotangent is wanted; the others are None.
        around: the closure of `f`; the cotangents of its Tensors come after those of the arguments.
        inner: the hidden axes below which the derivative is asked for, see :func:`axes_inside`.
        masked: how far the masks reach that the cotangents have come through.
    """
    fresh = [with_own_slots(move_to_level(t)) for t in at]
    found_around = [move_to_level(t) for t in around.tensors] if around else []
    # The derivative may be asked for outside vmaps that the function is in: then the tape watches the values that the
    # vmaps split, with all examples.
    known = [below(t, inner) for t in [*fresh, *found_around]]
    wanted = [t for t, w in zip(known, watched, strict=True) if w]
    tape = GradientTape(watch_accessed_variables=False)
    tape._cuts = Cuts()
    tape.watch(wanted)
    with setting(MASKED, 0), share_slots(around.shared_with(at, fresh) if around else (), tape._key):
        with tape:
            outs = f(list(map(alias, fresh)))
        used = [lower_cotangent(out, g, inner) for out, g in zip(outs, gs, strict=True) if g is not None]
        if masked:
            tape._masked, tape._starts_masked = max(tape._masked, masked), masked
        # The tape conjugates, a transpose does not.
        found = gradients(tape, [out for out, _ in used], wanted, [conj(g) for _, g in used], release=True)
    for cuts in around.cuts if around else ():
        cuts.merge(tape._cuts)
    if tape._cuts.differentiated:  # a derivative that is constant has the derivative 0, and is connected
        found = [_zeros(x) if d is None else d for d, x in zip(found, wanted, strict=True)]
    each = iter([None if d is None else conj(dense(d)) for d in found])
    return [
        raise_derivative(next(each), t, inner) if w else None
        for t, w in zip([*fresh, *found_around], watched, strict=True)
    ]


def with_own_slots(tensor: Tensor) -> Tensor:
    """Return a copy that a new tape can watch apart from the original; older tapes know it as the original."""
    array = tensor._array
    if type(array) is BatchedArray:
        # Tapes outside the vmap know the value of all examples, which needs slots of its own as well.
        array = BatchedArray(with_own_slots(array.value), array.backend, array.axis)
    return wrap(array, tensor.backend, twin_slots(tensor))


def _join_examples(rows: Sequence[Cotangent], backend: Any, axis: Axis) -> Tensor | None:
    """Stack the cotangents of the examples along a hidden axis; None where all of them are None."""
    like = next((row for row in rows if row is not None), None)
    if like is None:
        return None
    whole = stack([_zeros(like) if row is None else row for row in rows])
    return wrap(BatchedArray(lift(whole, backend.base), backend, axis), backend)


# -- arguments and results


def _split_owner(f: Function, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split the arguments of a method call into the object or class, which has no derivative, and the others.

    A decorator sees a plain function; whether its first argument is `self` shows in the class of that argument.
    """
    if not args or type(args[0]) is Tensor:
        return (), args
    first, original = args[0], inspect.unwrap(f)
    for kind in (first if isinstance(first, type) else type(first)).__mro__:
        if kind in (Tensor, Variable):  # they have no such methods, and many others
            continue
        for method in kind.__dict__.values():  # under whatever name it is there
            if isinstance(method, property):
                method = method.fget
            elif isinstance(method, classmethod):
                method = method.__func__
            if isinstance(method, FunctionType) and inspect.unwrap(method) is original:
                return args[:1], args[1:]
    return (), args


def _zeros(x: Tensor) -> Tensor:
    return zeros_like(wrap(x._array, x.backend))


def _upstream_gradients(results: Results, gs: Sequence[Any]) -> list[Any]:
    """Return the gradient, a conjugated cotangent, for each Tensor of the result; zeros where nothing flows."""
    by_place = dict(zip(results.flowing, gs, strict=True))
    found = []
    for k, out in enumerate(results.leaves):
        if out is None:
            continue
        g = by_place.get(k)
        found.append(_zeros(out) if g is None else conj(g))
    return found


def _takes_variables(grad: Function) -> bool:
    parameters = inspect.signature(grad).parameters.values()
    return any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)
