"""Gradient transformations: optimizers as pure functions of gradients and state, to be chained, as optax has them.

A transformation has two functions. `init(params)` makes the state, and `update(gradients, state, params)` returns the
updates, which :func:`apply_updates` adds to the parameters, and the new state. All of these are pytrees: dictionaries,
lists, dataclasses, Modules. So an optimizer works inside `vmap`, `scan` and `tape_core.function`, and derivatives go
through its steps:

>>> import tape_core as tc
>>> import tape_nn as nn
>>> from tape_nn import transforms
>>> optimizer = nn.chain(transforms.clip_by_global_norm(1.0), transforms.sgd(0.5, momentum=0.9))
>>> def train(params, state, steps):
...     for _ in range(steps):
...         gradients = tc.grad(lambda p: tc.sum((p["w"] - 3.0) ** 2))(params)
...         updates, state = optimizer.update(gradients, state, params)
...         params = transforms.apply_updates(params, updates)
...     return params, state
>>> params = {"w": tc.asarray([0.0])}
>>> params, state = train(params, optimizer.init(params), 3)
>>> [round(x, 3) for x in params["w"].tolist()]
[2.805]

Names, arguments and numbers are optax's. Every object with these two functions is a transformation, whoever wrote it.
:class:`tape_nn.TransformOptimizer` makes an optimizer of Variables of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import tape_core as tc
from tape_core import IndexedSlices, Tensor
from tape_core.support import pytree, real
from tape_core.typing import PyTree

from tape_nn.clipping import check_positive, clip_factor, norm

Rate: TypeAlias = float | Tensor | Callable[[Any], Any]
"""A factor, or a schedule: a function of the number of updates so far, an int64 Tensor."""

Mask: TypeAlias = PyTree
"""A tree of truth values like the parameters, or a function of the parameters that returns one."""


class Transformation(Protocol):
    """What :func:`chain` and :class:`tape_nn.TransformOptimizer` take."""

    @property
    def init(self) -> Callable[..., PyTree]: ...
    @property
    def update(self) -> Callable[..., tuple[PyTree, PyTree]]: ...


class GradientTransformation(NamedTuple):
    """A pair of functions: `init(params)` returns a state, `update(gradients, state, params=None)` updates and a state.

    >>> from tape_nn import transforms
    >>> halve = transforms.GradientTransformation(lambda params: (), lambda g, state, params=None: (g / 2, state))
    >>> halve.update(3.0, halve.init(None))
    (1.5, ())
    """

    init: Callable[..., PyTree]
    update: Callable[..., tuple[PyTree, PyTree]]


class CountState(NamedTuple):
    """The number of updates so far."""

    count: Tensor  # type: ignore[assignment]  # a tuple has a method of that name


class TraceState(NamedTuple):
    """The decaying sum of gradients."""

    trace: PyTree


class AdamState(NamedTuple):
    """The number of updates, and the running means of gradients and of their squares."""

    count: Tensor  # type: ignore[assignment]  # a tuple has a method of that name
    mu: PyTree
    nu: PyTree


class RmsState(NamedTuple):
    """The running mean of squared gradients."""

    nu: PyTree


def chain(*transformations: Transformation) -> GradientTransformation:
    """Return a transformation that applies several, one after the other. Its state is the tuple of their states.

    >>> import tape_nn as nn
    >>> both = nn.chain(nn.transforms.scale(2.0), nn.transforms.scale(-0.25))
    >>> both.update([8.0], both.init([1.0]))
    ([-4.0], ((), ()))

    Raises:
        TypeError: an argument has no `init` and `update`.
        ValueError: a state of another chain is given to `update`.
    """
    for one in transformations:
        if not callable(getattr(one, "init", None)) or not callable(getattr(one, "update", None)):
            raise TypeError(
                f"chain takes gradient transformations, which have init and update; got {one!r}. An optimizer of "
                "Variables, such as nn.Adam, has another form in nn.transforms: nn.transforms.adam"
            )

    def init(params: PyTree) -> PyTree:
        return tuple([one.init(params) for one in transformations])

    def update(gradients: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        if len(state) != len(transformations):
            raise ValueError(f"chain of {len(transformations)} transformations: the state is of {len(state)}")
        states = []
        for one, own in zip(transformations, state, strict=True):
            gradients, new = one.update(gradients, own, params)
            states.append(new)
        return gradients, tuple(states)

    return GradientTransformation(init, update)


def apply_updates(params: PyTree, updates: PyTree) -> PyTree:
    """Return `params + updates`, in the dtype of the parameters; a parameter whose update is None stays.

    >>> import tape_core as tc
    >>> from tape_nn.transforms import apply_updates
    >>> new = apply_updates({"a": tc.asarray(1.0), "b": tc.asarray(2.0)}, {"a": tc.asarray(0.5), "b": None})
    >>> new["a"].item(), new["b"].item()
    (1.5, 2.0)
    """

    def add(p: Any, u: Any) -> Any:
        if u is None:
            return p
        new = p + u
        return tc.astype(new, p.dtype) if isinstance(new, Tensor) and isinstance(p, Tensor) else new

    return tc.tree_map(add, params, updates)


def identity() -> GradientTransformation:
    """Return the transformation that leaves gradients as they are."""
    return _stateless(lambda gradients, params: gradients)


def scale(factor: float) -> GradientTransformation:
    """Return a transformation that multiplies by a number."""
    return _stateless(lambda gradients, params: _map(lambda g: g * factor, gradients))


def scale_by_schedule(schedule: Callable[[Any], Any]) -> GradientTransformation:
    """Return a transformation that multiplies by a function of the number of updates so far.

    Args:
        schedule: one of :mod:`tape_nn.schedules`, or a function of an int64 Tensor, in ops of Tape.
    """

    def update(gradients: PyTree, state: CountState, params: PyTree = None) -> tuple[PyTree, PyTree]:
        factor = schedule(state.count)
        return _map(lambda g: g * _like(factor, g), gradients), CountState(state.count + 1)

    return GradientTransformation(lambda params: CountState(_zero_count(params)), update)


def scale_by_learning_rate(learning_rate: Rate, *, flip_sign: bool = True) -> GradientTransformation:
    """Return a transformation that multiplies by a learning rate, or a schedule, and by -1: its updates go downhill."""
    sign = -1.0 if flip_sign else 1.0
    if callable(learning_rate) and not isinstance(learning_rate, Tensor):
        schedule = learning_rate
        return scale_by_schedule(lambda count: sign * schedule(count))
    rate = learning_rate
    # A Tensor may be one that a derivative is taken by: learning the learning rate.
    return _stateless(lambda gradients, params: _map(lambda g: g * (sign * _like(rate, g)), gradients))


def clip(max_delta: float) -> GradientTransformation:
    """Return a transformation that clips the elements of gradients to `-max_delta` ... `max_delta`."""
    limit = check_positive("clip: max_delta", max_delta)
    return _stateless(lambda gradients, params: _map(lambda g: tc.clip(g, -limit, limit), gradients))


def clip_by_global_norm(max_norm: float) -> GradientTransformation:
    """Return a transformation that scales all gradients by one factor, so that their norm together is at most this."""
    limit = check_positive("clip_by_global_norm: max_norm", max_norm)

    def update(gradients: PyTree, params: PyTree) -> PyTree:
        found = [_dense(g) for g in pytree.flatten(gradients)[0] if g is not None]
        if not found:
            return gradients
        factor = clip_factor(tc, norm(tc, found), limit)
        return _map(lambda g: g * _like(factor, g), gradients)

    return _stateless(update)


def add_decayed_weights(weight_decay: float, mask: Mask = None) -> GradientTransformation:
    """Return a transformation that adds `weight_decay * params`, where the mask has True.

    >>> from tape_nn import transforms
    >>> decay = transforms.add_decayed_weights(0.5, mask={"w": True, "b": False})
    >>> decay.update({"w": 1.0, "b": 1.0}, (), {"w": 4.0, "b": 4.0})
    ({'w': 3.0, 'b': 1.0}, ())
    """
    decay = real("add_decayed_weights", "weight_decay", weight_decay)

    def update(gradients: PyTree, params: PyTree) -> PyTree:
        if params is None:
            raise ValueError("add_decayed_weights needs the parameters: update(gradients, state, params)")
        chosen = mask(params) if callable(mask) else mask
        if chosen is None:
            return _map(lambda g, p: g + decay * p, gradients, params)
        return _map(lambda g, p, m: g + decay * p if m else g, gradients, params, chosen)

    return _stateless(update)


def trace(decay: float, *, nesterov: bool = False) -> GradientTransformation:
    """Return a transformation with momentum: `t = g + decay * t`; with `nesterov` it gives `g + decay * t`."""

    def update(gradients: PyTree, state: TraceState, params: PyTree = None) -> tuple[PyTree, PyTree]:
        new = _kept(lambda g, t: g + decay * t, gradients, state.trace)
        if nesterov:
            return _map(lambda g, t: g + decay * t, gradients, new), TraceState(new)
        return _map(lambda g, t: t, gradients, new), TraceState(new)

    return GradientTransformation(lambda params: TraceState(_zeros(params)), update)


def scale_by_adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0
) -> GradientTransformation:
    """Return Adam's rescaling: `m / (sqrt(v + eps_root) + eps)`, with the corrected running means of `g` and `g * g`.

    Where a derivative goes through the steps and a gradient may be 0, `eps_root` should be above 0, since the root's
    derivative is infinite there.
    """

    def update(gradients: PyTree, state: AdamState, params: PyTree = None) -> tuple[PyTree, PyTree]:
        count = state.count + 1
        mu = _kept(lambda g, m: b1 * m + (1 - b1) * g, gradients, state.mu)
        nu = _kept(lambda g, v: b2 * v + (1 - b2) * _squared(g), gradients, state.nu)

        def step(g: Any, m: Any, v: Any) -> Any:
            corrected = m / (1 - b1 ** tc.astype(count, m.dtype))
            scale = tc.sqrt(v / (1 - b2 ** tc.astype(count, v.dtype)) + eps_root) + eps
            return corrected / scale

        return _map(step, gradients, mu, nu), AdamState(count, mu, nu)

    return GradientTransformation(
        lambda params: AdamState(_zero_count(params), _zeros(params), _zeros(params, is_real=True)), update
    )


def scale_by_rms(decay: float = 0.9, eps: float = 1e-8) -> GradientTransformation:
    """Return RMSprop's rescaling: `g / sqrt(v + eps)`, with the running mean `v` of `g * g`."""

    def update(gradients: PyTree, state: RmsState, params: PyTree = None) -> tuple[PyTree, PyTree]:
        nu = _kept(lambda g, v: decay * v + (1 - decay) * _squared(g), gradients, state.nu)
        return _map(lambda g, v: g / tc.sqrt(v + eps), gradients, nu), RmsState(nu)

    return GradientTransformation(lambda params: RmsState(_zeros(params, is_real=True)), update)


def sgd(learning_rate: Rate, momentum: float | None = None, nesterov: bool = False) -> GradientTransformation:
    """Return stochastic gradient descent, with momentum if it is given."""
    step = scale_by_learning_rate(learning_rate)
    return step if momentum is None else chain(trace(momentum, nesterov=nesterov), step)


def adam(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0
) -> GradientTransformation:
    """Return Adam (Kingma and Ba, 2014) as a transformation.

    >>> import tape_core as tc
    >>> from tape_nn import transforms
    >>> optimizer = transforms.adam(0.5)
    >>> params = [tc.asarray(1.0)]
    >>> updates, state = optimizer.update([tc.asarray(-20.0)], optimizer.init(params), params)
    >>> round(updates[0].item(), 4)
    0.5
    """
    return chain(scale_by_adam(b1, b2, eps, eps_root), scale_by_learning_rate(learning_rate))


def adamw(
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 1e-4,
    mask: Mask = None,
) -> GradientTransformation:
    """Return Adam with decoupled weight decay (Loshchilov and Hutter, 2017) as a transformation."""
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_adam(b1, b2, eps, eps_root), decay, scale_by_learning_rate(learning_rate))


def _stateless(update: Callable[[PyTree, PyTree], PyTree]) -> GradientTransformation:
    return GradientTransformation(lambda params: (), lambda g, state, params=None: (update(g, params), state))


def _dense(gradient: Any) -> Any:
    return gradient.densify() if isinstance(gradient, IndexedSlices) else gradient


def _map(f: Callable[..., Any], gradients: PyTree, *others: PyTree) -> PyTree:
    """Return `f` of each gradient and what the other trees have there; None, no gradient, stays None."""
    return tc.tree_map(lambda g, *rest: None if g is None else f(_dense(g), *rest), gradients, *others)


def _kept(f: Callable[..., Any], gradients: PyTree, state: PyTree) -> PyTree:
    """Return `f` of each gradient and the state there; without a gradient the state stays."""
    return tc.tree_map(lambda g, old: old if g is None else f(_dense(g), old), gradients, state)


def _squared(g: Any) -> Any:
    if isinstance(g, Tensor) and g.dtype.kind == "complex floating":
        g = tc.abs(g)
    return g * g


def _like(factor: Any, g: Any) -> Any:
    """Return a factor in the dtype of a gradient, which it must not widen."""
    if isinstance(factor, Tensor) and isinstance(g, Tensor) and factor.dtype is not g.dtype:
        return tc.astype(factor, g.dtype)
    return factor


def _zeros(params: PyTree, *, is_real: bool = False) -> PyTree:
    def zero(p: Any) -> Any:
        p = tc.asarray(p)
        return tc.zeros_like(tc.real(p) if is_real and p.dtype.kind == "complex floating" else p)

    return tc.tree_map(zero, params)


def _zero_count(params: PyTree) -> Tensor:
    leaves = [leaf for leaf in pytree.flatten(params)[0] if isinstance(leaf, Tensor)]
    if not leaves:
        return tc.asarray(0, dtype=tc.int64)
    return tc.asarray(0, dtype=tc.int64, backend=leaves[0].backend, device=leaves[0].device)
