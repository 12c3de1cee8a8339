"""checkpoint: recompute a function in the backward pass instead of keeping its residuals (rematerialization)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from tape_core import random
from tape_core.backends.selection import get_backend
from tape_core.base.ambient import ACTIVE, MASKED
from tape_core.base.mistakes import check_callable, meant
from tape_core.engine.cuts import cuts_of
from tape_core.engine.op import Op, registry
from tape_core.engine.tensor import Tensor
from tape_core.modes.function_op import axes_inside
from tape_core.modes.replay import KeptResults, replay_error
from tape_core.ops.data_types import off_tapes
from tape_core.staging import current
from tape_core.transforms.calls import Arguments, Results, name_of, substitute, with_tensors
from tape_core.transforms.closures import capture_closure, note_uses
from tape_core.transforms.custom import linear_transpose

P = ParamSpec("P")
R = TypeVar("R")
Policy = Collection[str] | Callable[[str], bool]


def checkpoint(f: Callable[P, R], *, policy: Policy | None = None) -> Callable[P, R]:
    """Return `f` with its intermediate results recomputed in the backward pass instead of kept: rematerialization.

    >>> import tape_core as tc
    >>> layer = tc.checkpoint(lambda x, w: tc.tanh(tc.sin(x @ w)))
    >>> tc.grad(lambda w: tc.sum(layer(tc.ones((2, 3)), w)))(tc.zeros((3, 2))).tolist()
    [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]

    Only the arguments are kept. It takes less memory, and the backward pass at most one more run of `f`. Trainable
    Variables that `f` reads and Tensors that it captures have their gradients, and the second run uses the values that
    the first one read. It also draws the same random numbers, where they come from the generator of
    :func:`tape_core.set_seed`; from a generator that is an argument `f` must not draw.

    A policy names the ops whose results are kept and not computed again.

    >>> layer = tc.checkpoint(lambda x, w: tc.tanh(tc.sin(x @ w)), policy=["matmul"])

    Args:
        f: a function of pytrees, which does the same whenever it is called; raw arrays in them are Tensors to it, as in
            compiled functions. Keyword arguments are not differentiated.
        policy: the names of ops, such as `["matmul", "conv"]`, or a function of an op's name that returns True if its
            results are kept; by default none are. Inside vmap some ops are composed of others (see the support
            matrix), and the policy is asked about those. In a compiled function branches and loops are computed
            again as a whole.

    Raises:
        ValueError: `policy` names an op that does not exist.
        RuntimeError: in the backward pass: `f` called other ops when it ran again.
    """
    check_callable("checkpoint", "f", f)
    kept_ops = _ops_of(policy)
    name = name_of(f)

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(tuple([with_tensors(argument) for argument in args]))
        kwargs = {name: with_tensors(argument) for name, argument in kwargs.items()}
        if all(recorder._forward for recorder in ACTIVE.get()):
            return f(*arguments.given, **kwargs)  # forward mode keeps no residuals: there is nothing to save
        # The second run begins with this state, and draws the same numbers.
        bits = random.get_state()
        kept = KeptResults(kept_ops(), _roots(arguments.tensors)) if policy is not None else None
        stage = current()
        with (
            capture_closure(name, assigns=True) as closure,
            kept.recording() if kept else nullcontext(),
            nullcontext() if stage is None else stage.recomputed(),
        ):
            out = f(*arguments.replaced([off_tapes(t) for t in arguments.differentiable]), **kwargs)
            results = Results(out, name)
            del out
            results.leaves = closure.settled(results.leaves)
            # A result may be a captured Tensor itself, with which no op has computed.
            note_uses([leaf for leaf in results.leaves if leaf is not None])
        variables = closure.variables
        inputs = [*arguments.differentiable, *[v._read() for v in variables]]
        closure.cuts = cuts_of([*inputs, *closure.tensors])
        n = len(arguments.places)

        def recompute(values: list[Tensor]) -> list[Tensor]:
            with (
                random.replayed(bits),
                substitute(variables, values[n:]),
                closure.moment.restored(),
                kept.replaying() if kept else nullcontext(),
            ):
                out = f(*arguments.replaced(values[:n]), **kwargs)
            # All that can be compared here is how the results look: if they differ, the function does not repeat
            # itself.
            try:
                return results.matching(out, "its result")
            except (TypeError, ValueError) as error:
                raise replay_error(str(error)) from None

        def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
            return linear_transpose(recompute, inputs, gs, watched, closure, axes_inside(), MASKED.get())

        return results.record(f"checkpoint({name})", [*inputs, *closure.tensors], pull)

    return wrapped


def _ops_of(policy: Policy | None) -> Callable[[], list[Op]]:
    """Return a function that gives the ops whose results a policy keeps; late, since ops may still be declared."""
    if policy is None:
        return list
    if callable(policy):
        # It is the user's function: it is asked once for each name.
        keeps = lru_cache(maxsize=None)(policy)
        return lambda: [op for name, op in registry.items() if keeps(name)]
    if isinstance(policy, str):
        raise ValueError(f"checkpoint: policy must be a collection of names of ops, got the str {policy!r}")
    names = list(policy)
    for name in names:
        if name not in registry:
            raise ValueError(f"checkpoint: policy names {name!r}, and there is no such op{meant(name, registry)}")
    return lambda: [registry[name] for name in names]


def _roots(tensors: list[Any]) -> set[Any]:
    """Return the backends on which a call computes, without those that wrap them."""
    # A function without arrays among its arguments makes its own, on the selected backend.
    return {t.backend.root for t in tensors if t is not None} or {get_backend()}
