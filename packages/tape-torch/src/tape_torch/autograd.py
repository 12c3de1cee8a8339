"""`as_torch`: a function of Tape's Tensors as a function of torch tensors that torch.autograd differentiates."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tape_core import GradientTape, Tensor
from tape_core.backends import backend_of_type
from tape_core.support import alias, dense, pytree, wrap

from tape_torch.inside import inside

# How far the values of a second run may be from the first: they may be rounded differently, by other kernels for
# other strides, but not by much. Random numbers differ by far more.
_SAME_RTOL, _SAME_ATOL = 1e-3, 1e-5


def as_torch(fn: Callable[..., Any], /) -> Callable[..., Any]:
    """Make a function of torch tensors from `fn`, a function of Tensors; torch.autograd differentiates it to any order.

    The result takes torch tensors, in any structure of tuples, lists and dictionaries, and returns torch tensors in the
    structure that `fn` returns. `fn` gets Tensors in their place, and computes with Tape's functions. Values that are
    not tensors are passed on.

    Gradients flow to the tensors among the arguments. It is an error to use a torch tensor that requires grad and is
    not among them. Variables that `fn` uses are constants here: train those with a tape.

    For second derivatives `fn` runs once more, and must give the same values: pass random numbers, such as a dropout
    mask, as arguments.

    >>> import torch
    >>> import tape_core as tc, tape_torch
    >>> norm = tape_torch.as_torch(lambda x: tc.sqrt(tc.sum(x * x)))
    >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> norm(x).backward()
    >>> x.grad
    tensor([0.6000, 0.8000])
    """
    if not callable(fn):
        raise TypeError(f"as_torch: takes a function of Tensors; got {fn!r}")

    @functools.wraps(fn)
    def function(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = pytree.flatten((args, kwargs))
        run = _Run(fn, leaves, structure)
        tensors = run.take()
        # Without a gradient to record no tape is needed, either.
        if torch.is_grad_enabled() and any([t.requires_grad for t in tensors]):
            outs = _TapeFunction.apply(run, *tensors)  # type: ignore[no-untyped-call]
        else:
            with torch.no_grad(), inside(None):
                outs = [o._array for o in run.compute([_tensor(t) for t in tensors])]
            outs = _unshared(outs, tensors)
        return run.result(outs)

    return function


class _Run:
    """One call of a function: the structures of its arguments and results, and the leaves that are not tensors."""

    def __init__(self, fn: Callable[..., Any], leaves: list[Any], structure: pytree.Structure) -> None:
        self.fn = fn
        self.leaves = leaves
        self.structure = structure
        self.label = f"as_torch({getattr(fn, '__name__', None) or type(fn).__name__})"
        self.places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaves[k] for k in self.places]
        if any([isinstance(leaf, Tensor) for leaf in leaves]):
            raise TypeError(f"{self.label}: takes torch tensors; for Tensors call the function that it was made of")

    def take(self) -> list[torch.Tensor]:
        """Return the arguments that are tensors, and drop them: torch.autograd alone decides how long they live."""
        for k in self.places:
            self.leaves[k] = None
        tensors, self.tensors = self.tensors, []
        return tensors

    def compute(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Call the function with Tensors; return the Tensors among its results."""
        leaves = list(self.leaves)
        for k, tensor in zip(self.places, tensors, strict=True):
            leaves[k] = alias(tensor)  # the function may change it in place
        args, kwargs = self.structure.unflatten(leaves)
        self.outs, self.out_structure = pytree.flatten(self.fn(*args, **kwargs))
        self.out_places = []
        for k, out in enumerate(self.outs):
            if isinstance(out, torch.Tensor):
                raise TypeError(
                    f"{self.label}: its result{pytree.path(self.out_structure, k)} is a torch tensor, which has no "
                    f"path; the function must return the Tensor"
                )
            out = dense(out)
            if isinstance(out, Tensor):
                if not isinstance(out._array, torch.Tensor):
                    raise TypeError(
                        f"{self.label}: its result{pytree.path(self.out_structure, k)} is on backend "
                        f"{out.backend.name!r}, not on 'torch'"
                    )
                self.outs[k] = out
                self.out_places.append(k)
        return [self.outs[k] for k in self.out_places]

    def result(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the function's results, with torch tensors in the place of Tensors."""
        outs, self.outs = self.outs, []
        for k, tensor in zip(self.out_places, tensors, strict=True):
            outs[k] = tensor
        return pytree.unflatten(self.out_structure, outs)


class _TapeFunction(torch.autograd.Function):
    """A call as a node of torch.autograd's graph, whose backward pass is a tape's gradient."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the function under a tape."""
        # The tape is persistent, since PyTorch may walk its graph twice (retain_graph). It lives in ctx, and PyTorch
        # frees that with the graph.
        xs = [_tensor(t) for t in tensors]
        sources = [k for k, t in enumerate(tensors) if t.requires_grad]
        with inside("as_torch"):
            tape = GradientTape(persistent=True, watch_accessed_variables=False)
            with tape:
                tape.watch([xs[k] for k in sources])
                outs = run.compute(xs)
        raw = tuple(_unshared([o._array for o in outs], tensors))
        ctx.tape, ctx.xs, ctx.outs, ctx.sources, ctx.run = tape, xs, outs, sources, run
        ctx.flowing = [o.dtype.inexact and tape._key in o._slots for o in outs]
        ctx.mark_non_differentiable(*[o for o, flows in zip(raw, ctx.flowing, strict=True) if not flows])
        ctx.set_materialize_grads(False)  # cotangents of results that nobody uses stay None, instead of zeros
        # torch.autograd then raises an error if one is written to before the backward pass.
        ctx.save_for_backward(*tensors, *raw)
        return raw

    @staticmethod
    def backward(ctx: Any, *gs: torch.Tensor | None) -> tuple[Any, ...]:
        """Return the tape's gradient; with `create_graph`, by a function that torch.autograd differentiates again."""
        saved = ctx.saved_tensors
        used = [k for k, g in enumerate(gs) if g is not None and ctx.flowing[k]]
        found: Sequence[Any] = [None] * len(ctx.sources)
        if used:
            seeds = [g for k in used if (g := gs[k]) is not None]
            if torch.is_grad_enabled():  # create_graph=True: torch.autograd records the backward pass
                pull = as_torch(_Pullback(ctx.run, ctx.sources, used, saved[len(ctx.xs) :]))
                found = pull(list(saved[: len(ctx.xs)]), seeds)
            else:
                targets, sources = [ctx.outs[k] for k in used], [ctx.xs[k] for k in ctx.sources]
                with inside("as_torch"):
                    found = _gradient(ctx.tape, targets, sources, [_tensor(g) for g in seeds])
                found = [None if d is None else d._array for d in found]
        gradients: list[Any] = [None] * len(ctx.xs)
        for k, d in zip(ctx.sources, found, strict=True):
            gradients[k] = d
        # One for each argument of `forward`: the first is `run`.
        return (None, *gradients)


class _Pullback:
    """The gradient as a function of inputs and cotangents; `as_torch` is applied to it for the next order."""

    def __init__(self, run: _Run, sources: list[int], used: list[int], outs: Sequence[torch.Tensor]) -> None:
        self.run = run
        self.sources = sources
        self.used = used  # the results that have a cotangent
        self.outs = [outs[k].detach() for k in used]
        self.__name__ = f"the gradient of {run.label}"

    def __call__(self, xs: list[Tensor], gs: list[Tensor]) -> list[Tensor | None]:
        sources = [xs[k] for k in self.sources]
        # A copy, since `compute` keeps the results' structure on the run, and that of the first call is still asked
        # for.
        run = copy.copy(self.run)
        with GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outs = run.compute(xs)
        targets = [outs[k] for k in self.used]
        for target, before in zip(targets, self.outs, strict=True):
            now = target._array
            if now.shape != before.shape or not torch.allclose(
                now, before, rtol=_SAME_RTOL, atol=_SAME_ATOL, equal_nan=True
            ):
                raise RuntimeError(
                    f"{run.label}: for a second derivative it ran once more, and gave other values: it must get random "
                    f"numbers, and whatever else changes, as arguments"
                )
        return _gradient(tape, targets, sources, gs)


def _gradient(
    tape: GradientTape, targets: Sequence[Tensor], sources: Sequence[Tensor], gs: Sequence[Tensor]
) -> list[Tensor | None]:
    found = tape.gradient(targets, sources, output_gradients=gs)
    return [dense(d) for d in found]


def _tensor(tensor: torch.Tensor) -> Tensor:
    backend = backend_of_type(torch.Tensor)
    assert backend is not None  # this package provides it
    return wrap(tensor.detach(), backend)


def _unshared(outs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return results that share no memory with the arguments or each other: PyTorch's users may write to them."""
    # Tape's ops may return a view, or the argument itself, since nothing in Tape writes to arrays.
    seen = {_storage_id(t) for t in inputs}
    found = []
    for out in outs:
        shared = _storage_id(out) in seen
        found.append(out.clone() if shared else out.detach())
        seen.add(_storage_id(out))
    return found


def _storage_id(tensor: torch.Tensor) -> int:
    # PyTorch makes a new Python object for a storage when it is asked for one; the address inside is the storage's own.
    memory: int = tensor.untyped_storage()._cdata
    return memory
