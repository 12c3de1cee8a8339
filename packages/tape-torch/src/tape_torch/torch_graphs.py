"""Graphs of torch.autograd that the functions of `torch_call` leave, and walks backward over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tape_core.backends import Backend, backend_of_type
from tape_core.extend import registry

Arrays = list[Any]
"""Torch tensors; as results of a pullback also None, where nothing flows."""


def torch_backend() -> Backend:
    """Return the backend of this package."""
    backend = backend_of_type(torch.Tensor)
    assert backend is not None  # this package provides it
    return backend


class Graph:
    """A graph of torch.autograd: its outputs, its leaves, and the nodes whose backward function is replaced.

    Attributes:
        leaves: a tensor for each input.
        outs: the results with a derivative.
        reached: for each leaf, True if a result depends on it.
        unknown: other tensors that require grad, and on which a result depends.
    """

    __slots__ = ("leaves", "outs", "reached", "replaced_nodes", "unknown")

    def __init__(self, leaves: Sequence[torch.Tensor], outs: Sequence[torch.Tensor | None]) -> None:
        self.leaves = tuple(leaves)
        self.outs = tuple([o if o is not None and o.requires_grad else None for o in outs])
        self.replaced_nodes: list[Any] = []
        found = _reachable_leaves([o for o in self.outs if o is not None], self.replaced_nodes)
        self.reached = tuple([found.pop(id(leaf), None) is not None for leaf in self.leaves])
        self.unknown = list(found.values())

    def cotangents(
        self, gs: Sequence[torch.Tensor | None], watched: Sequence[bool], *, create_graph: bool, batched: bool
    ) -> Arrays:
        """Return the cotangents of the watched leaves; None for others, and where nothing flows.

        They are plain transposes, as all of Tape's rules, so the complex ones of torch.autograd are conjugated.

        Args:
            gs: the cotangents of the results; None where nothing flows.
            watched: for each leaf, True if its cotangent is wanted.
            create_graph: True if the cotangents are differentiated.
            batched: True if the cotangents have one more dimension in front, that of several sweeps at once.
        """
        used = [
            (o, conj(cast_like(g, o))) for o, g in zip(self.outs, gs, strict=True) if g is not None and o is not None
        ]
        wanted = [w and r for w, r in zip(watched, self.reached, strict=True)]
        if not used or not any(wanted):
            return [None] * len(wanted)
        hooks = [node.register_hook(_logcumsumexp_backward(node)) for node in self.replaced_nodes]
        try:
            found = torch.autograd.grad(
                [o for o, _ in used],
                [leaf for leaf, w in zip(self.leaves, wanted, strict=True) if w],
                [g for _, g in used],
                retain_graph=True,  # a persistent tape may ask again; the graph is freed with the tape's record
                create_graph=create_graph,
                allow_unused=True,
                is_grads_batched=batched,
            )
        finally:
            for hook in hooks:  # one left behind would make a reference cycle
                hook.remove()
        each = iter(found)
        return [conj(next(each)) if w else None for w in wanted]


def carrier(graph: Graph) -> torch.Tensor:
    """Return a tensor without elements that carries a graph, as `.graph`, from one instruction to another."""
    # An attribute and no subclass: PyTorch's tracers replace new tensors by their own kind, which takes attributes.
    made: Any = torch.empty(0)
    made.graph = graph
    return made  # type: ignore[no-any-return]


def _reachable_leaves(outs: Sequence[torch.Tensor], replaced_nodes: list[Any] | None = None) -> dict[int, torch.Tensor]:
    """Return the leaves that a graph leads back to, by id; append nodes with a faulty rule to `replaced_nodes`."""
    # A walk over the nodes, without recursion. AccumulateGrad is the node that ends in a leaf.
    leaves = {id(o): o for o in outs if o.requires_grad and o.grad_fn is None}
    todo: list[Any] = [o.grad_fn for o in outs if o.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        name = type(node).__name__
        if name == "AccumulateGrad":
            leaves[id(node.variable)] = node.variable
        elif name == "LogcumsumexpBackward0" and replaced_nodes is not None:
            replaced_nodes.append(node)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return leaves


def _logcumsumexp_rule(g: torch.Tensor, x: torch.Tensor, out: torch.Tensor, dim: int) -> Any:
    rule: Any = registry["logcumsumexp"].rules["x"]
    return rule.fn(torch_backend().xp, g, x, out, dim, False)


def _has_faulty_rule(x: torch.Tensor) -> bool:
    return x.ndim > 0 and x.dtype in (torch.float32, torch.float64)


def _logcumsumexp_backward(node: Any) -> Any:
    """Return a hook that replaces PyTorch's rule of logcumsumexp by Tape's.

    PyTorch's rule takes logarithms of the cotangents. Its numbers are right, but its derivative with respect to a
    cotangent of 0 is 0, and NaN after it, so second derivatives are wrong.
    """

    def backward(found: tuple[torch.Tensor, ...], gs: tuple[torch.Tensor, ...]) -> Any:
        x, dim = node._saved_self, node._saved_dim
        if not _has_faulty_rule(x):
            return found
        dim -= (dim >= 1 << 63) << 64  # PyTorch shows a negative one as an unsigned integer
        return (_logcumsumexp_rule(gs[0], x, node._saved_result, dim),)

    return backward


class _LogCumSumExp(torch.autograd.Function):
    """`torch.logcumsumexp` with Tape's rule, for torch.func, which shows no nodes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.logcumsumexp(x, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.dim = inputs[1]
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, out = ctx.saved_tensors
        return _logcumsumexp_rule(g, x, out, ctx.dim), None


class WithOwnRules(torch.overrides.TorchFunctionMode):
    """A mode in which functions of PyTorch with a faulty rule are replaced; see `_logcumsumexp_backward`."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.logcumsumexp, torch.Tensor.logcumsumexp):
            given = dict(zip(("input", "dim"), args, strict=False)) | (kwargs or {})
            x, dim = given.pop("input", given.pop("self", None)), given.pop("dim", None)
            if type(dim) is int and not given and _has_faulty_rule(x):
                return _LogCumSumExp.apply(x, dim)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def as_leaf(array: torch.Tensor) -> torch.Tensor:
    """Return a leaf of torch.autograd with the values, and the memory, of an array."""
    if array.is_inference():  # torch.autograd records nothing of inference tensors
        with torch.inference_mode(False):
            array = array.clone()
    else:
        array = array.detach()
    return array.requires_grad_() if array.is_floating_point() or array.is_complex() else array


def conj(g: torch.Tensor | None) -> Any:
    """Conjugate a complex cotangent: Tape's rules are plain transposes, PyTorch's are conjugated."""
    return torch.conj_physical(g) if g is not None and g.is_complex() else g


def cast_like(g: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    if g.dtype is out.dtype:
        return g
    return (g.real if g.is_complex() and not out.is_complex() else g).to(out.dtype)
