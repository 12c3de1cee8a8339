"""Functions with derivatives of their own: custom_gradient by a VJP, custom_jvp by a JVP."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

from tape_core.base.ambient import OPEN_AXES
from tape_core.base.mistakes import check_callable
from tape_core.engine import pytree
from tape_core.engine.backward import gradients
from tape_core.engine.cotangents import conj
from tape_core.engine.cuts import Cuts, own_derivative
from tape_core.engine.indexed_slices import IndexedSlices, dense
from tape_core.engine.levels import BatchedArray, lifted, placed
from tape_core.engine.tape import GradientTape
from tape_core.engine.tensor import Tensor, twin_slots, wrap
from tape_core.engine.variable import Variable
from tape_core.modes.function_op import Axes, Pull, below, lower_cotangent, raise_derivative
from tape_core.ops.creation import zeros_like
from tape_core.ops.data_types import stop_gradient
from tape_core.ops.manipulation import stack
from tape_core.transforms.calls import Arguments, Results, guarded, like_value, name_of, reading
from tape_core.transforms.closures import Closure, known_where_shared

Function = Callable[..., Any]


def custom_gradient(f: Function) -> Function:
    """A function with the gradient that it says itself: `f(*args)` returns `(result, grad)`.

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
    As in TensorFlow, gradients are those of :meth:`GradientTape.gradient`: of a holomorphic function conj(f'(z)) times
    the upstream gradient. What `grad` computes is differentiated for second derivatives, and it is what forward mode
    goes by. A Jacobian calls it once, for all rows; where `grad` takes values out of Tensors, to compute with NumPy,
    once for each row. The cotangent of a result that is only gathered from is dense; where `grad.takes_slices` is true,
    it is :class:`IndexedSlices`.

    Args:
        f: a function of pytrees, or a method of a class, of which the object is no argument to differentiate. Keyword
            arguments are passed on and not differentiated.

    Raises:
        TypeError: in the call: `f` reads Variables, and `grad` does not take `variables`; its result is no pair.
        ValueError: in the backward pass: `grad` returned another number of gradients, or one of another shape.
    """
    check_callable("custom_gradient", "f", f)
    name = name_of(f)

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        owner, args = _owner(f, args)
        arguments = Arguments(args)
        with reading() as readers, own_derivative():
            pair = f(*owner, *arguments.given, **kwargs)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"custom_gradient: {name} must return a pair (result, grad), of which grad is a function")
        result, grad = pair
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
            upstream = _upstream(results, gs)
            with own_derivative():
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
                found = found[1:]  # one for the object was given, too
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
                found.append(None if d is None else conj(d))
            return found

        pull.takes_slices = getattr(grad, "takes_slices", False)  # type: ignore[attr-defined]
        return results.recorded(f"custom_gradient({name})", inputs, _by_examples(pull, OPEN_AXES.get()))

    return wrapped


def _by_examples(pull: Pull, around: Axes) -> Pull:
    """A function of cotangents that also takes batches of them where it computes with libraries that know none.

    A Jacobian asks for all its rows at once. Where that fails, because NumPy computes with the cotangents say, each
    is computed on its own.

    Args:
        pull: a function of cotangents.
        around: the hidden axes of the vmaps that the function itself is in: what it keeps has those, and they stay.
    """

    def pulled(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> Sequence[Any]:
        try:
            return pull(gs, watched, outs)
        except TypeError as error:  # BatchError is one, and so is what other libraries raise
            gs = [dense(g) for g in gs]
            batched = [g for g in gs if g is not None and type(g._array) is BatchedArray]
            top = max([g.backend for g in batched], key=lambda backend: backend.level, default=None)
            axis = next((g._array.axis for g in batched if g.backend is top and g._array.axis is not None), None)
            if axis is None or axis in around or axis.size == 0:
                raise
            failed = error

        def example(g: Any, k: int) -> Any:
            if g is None or g.backend is not top:
                return g
            return g._array.value if g._array.axis is None else g._array.value[k]

        try:
            rows = [pulled([example(g, k) for g in gs], watched, outs) for k in range(axis.size)]
        except Exception as error:
            raise error from failed
        return [_examples([dense(row) for row in column], top, axis) for column in zip(*rows, strict=True)]

    pulled.takes_slices = getattr(pull, "takes_slices", False)  # type: ignore[attr-defined]

    return pulled


def custom_jvp(f: Function) -> Function:
    """A function with the derivative that a rule says: `rule(primals, tangents)` gives `(result, tangent)`.

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

    It is JAX's. The rule must be linear in the tangents: forward mode goes by it, reverse mode by its transpose, and
    the derivatives of what it computes are those of higher order. It is not told which are wanted: a tangent is
    there for every argument that has one, zeros where nothing is to be differentiated.

    `primals` and `tangents` are tuples with an entry for each positional argument, of the argument's structure. A
    Python float or complex, which is a constant, has the tangent 0, and any other leaf that is no floating or complex
    array the tangent None. What the rule gives has the structure of the result; a tangent of None is zero.
    Keyword arguments are passed on to both and not differentiated.

    Args:
        f: a function of pytrees. It must get by argument all that is to be differentiated.

    Returns:
        The function, whose method `defjvp(rule)` sets the rule and returns it.

    Raises:
        TypeError: in the call: there is no rule; `f` reads a trainable Variable, or a Tensor that is watched, that is
            none of its arguments. When it is differentiated: the rule returns no pair.
        ValueError: when it is differentiated: the tangent has another structure or shape than the result.
    """
    check_callable("custom_jvp", "f", f)
    name = name_of(f)
    rules: list[Function] = []

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not rules:
            raise TypeError(f"custom_jvp: {name} has no rule; give it one with @{name}.defjvp")
        rule = rules[0]
        owner, args = _owner(f, args)
        arguments = Arguments(args)
        inputs = arguments.differentiable
        with guarded(f"custom_jvp: {name}") as readers:
            result = f(*owner, *arguments.replaced([stop_gradient(t) for t in inputs]), **kwargs)
        if read_too := [v for v in readers.found if v.trainable]:
            raise TypeError(
                f"custom_jvp: {name} reads the variables {[v.name or v.shape for v in read_too]}, for which its rule "
                f"has no tangents; make them arguments"
            )
        results = Results(result, name)

        def pushed(primals: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor]:
            pair = rule(arguments.replaced(primals), arguments.others_none(tangents), **kwargs)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TypeError(f"custom_jvp: the rule of {name} must return a pair (result, tangent)")
            return results.matching(pair[1], f"custom_jvp: the tangent from the rule of {name}")

        def push(ts: list[Any], outs: list[Tensor]) -> list[Tensor]:
            return pushed(inputs, [_zeros(x) if t is None else t for t, x in zip(ts, inputs, strict=True)])

        def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
            return linear_transpose(lambda ts: pushed(inputs, ts), [_zeros(x) for x in inputs], gs, watched)

        return results.recorded(f"custom_jvp({name})", inputs, pull, push)

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
) -> list[Any]:
    """The transpose of the derivative of `f` at `at`, which is that of a linear `f`, applied to cotangents `gs`.

    Args:
        f: a function from a list of Tensors to one.
        at: its argument.
        gs: a cotangent for each of its results, None where nothing flows.
        watched: which of the cotangents of its arguments are wanted; the others are None.
        around: what `f` finds around it; the cotangents of its Tensors come after those of the arguments.
        inner: below which hidden axes the derivative is asked for, see :func:`axes_inside`.
    """
    fresh, found_around = [apart(placed(t)) for t in at], [placed(t) for t in around.tensors] if around else []
    # Where the derivative is asked for below vmaps that the function is in, the tape knows values as they are there.
    known = [below(t, inner) for t in [*fresh, *found_around]]
    wanted = [t for t, w in zip(known, watched, strict=True) if w]
    tape = GradientTape(watch_accessed_variables=False)
    tape._cuts = Cuts()
    tape.watch(wanted)
    with known_where_shared(around.shared if around else (), tape._key):
        with tape:
            outs = f(fresh)
        used = [lower_cotangent(out, g, inner) for out, g in zip(outs, gs, strict=True) if g is not None]
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


def apart(tensor: Tensor) -> Tensor:
    """A copy that a tape can watch on its own; tapes that know the Tensor know the copy."""
    array = tensor._array
    if type(array) is BatchedArray:
        array = BatchedArray(apart(array.value), array.backend, array.axis)
    return wrap(array, tensor.backend, twin_slots(tensor))


def _examples(rows: Sequence[Any], backend: Any, axis: Any) -> Tensor | None:
    """Cotangents, one for each example of a hidden axis, as one; None where all of them are."""
    like = next((row for row in rows if row is not None), None)
    if like is None:
        return None
    whole = stack([_zeros(like) if row is None else row for row in rows])
    return wrap(BatchedArray(lifted(whole, backend.base), backend, axis), backend)


# -- arguments and results


def _owner(f: Function, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The object or class whose method is called, and the other arguments: it has no derivative."""
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


def _upstream(results: Results, gs: Sequence[Any]) -> list[Any]:
    """A cotangent for each Tensor of the result, as gradients: conjugated."""
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
