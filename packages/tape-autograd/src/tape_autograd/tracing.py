"""Functions of one argument, an array or a structure of arrays, run on a tape or with tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.support import dense, pytree
from tape_core.tracing import with_own_slots
from tape_core.typing import ArrayLike, PyTree

from tape_autograd.boxes import Box, boxed, unboxed, values_of

Function = Callable[..., Any]


def as_tensor(value: ArrayLike) -> tc.Tensor:
    """Return a value as a Tensor on Tape's NumPy backend: a new one, that a tape can watch apart from others.

    Raises:
        TypeError: there is no derivative with respect to such a value.
    """
    if type(value) is Box:
        return with_own_slots(value._tensor)
    if isinstance(value, tc.Tensor):
        return with_own_slots(value)
    if type(value) is float or type(value) is complex:
        return tc.asarray(np.asarray(value), backend="numpy")
    if isinstance(value, np.ndarray | np.generic):
        kind = value.dtype.kind
        # Derivatives at whole numbers are those at the same real numbers.
        if kind in "iu":
            value = value.astype(np.float64)
        if kind in "iufc" and value.dtype.itemsize <= (16 if kind == "c" else 8):
            return tc.asarray(np.asarray(value), backend="numpy")
        raise TypeError(
            f"there is no derivative with respect to an array of dtype {value.dtype}; use float64, float32, complex128 "
            f"or complex64"
        )
    advice = "; write it as a float, or leave it to another argument" if isinstance(value, int) else ""
    raise TypeError(
        f"Can't find vector space for value {value!r} of type {type(value)}: an argument that is differentiated is an "
        f"array, a float or a complex number, or a list, tuple or dict of them{advice}"
    )


class Traced:
    """One run of a function of a structure of arrays, with what its derivatives need.

    Attributes:
        sources, structure: the argument as new Tensors, and how it was nested.
        tensors: for each part of the argument whether it was a Tensor itself: its derivative is one, too.
        outs, out_structure: the result, flattened: boxes, and plain values of what does not depend on the argument.
        tape: the tape that has recorded the run.
    """

    __slots__ = ("out_structure", "outs", "sources", "structure", "tape", "tensors")

    def __init__(self, fun: Function, x: PyTree, *, persistent: bool) -> None:
        leaves, self.structure = pytree.flatten(x)
        self.sources = [as_tensor(leaf) for leaf in leaves]
        self.tensors = [isinstance(leaf, tc.Tensor) for leaf in leaves]
        self.tape = tc.GradientTape(persistent=persistent, watch_accessed_variables=False)
        with selected(self.sources), self.tape:
            self.tape.watch(self.sources)
            out = fun(pytree.unflatten(self.structure, [Box(t) for t in self.sources]))
        self.outs, self.out_structure = pytree.flatten(out)

    @property
    def value(self) -> Any:
        """The result, as code around the run knows it."""
        if any(self.tensors):
            return pytree.unflatten(self.out_structure, [unboxed(out) for out in self.outs])
        return pytree.unflatten(self.out_structure, [known_outside(out) for out in self.outs])

    def pull(self, cotangents: PyTree) -> Any:
        """Return the cotangent of the argument for that of the result; plain transposes, which conjugate nothing."""
        given, structure = pytree.flatten(cotangents)
        if len(given) != len(self.outs) or not pytree.same(structure, self.out_structure, len(given)):
            raise ValueError(
                "the vector must have the structure of the result; "
                + pytree.difference("it", structure, len(given), "the result", self.out_structure, len(self.outs))
            )
        return self.pull_leaves(given)

    def pull_leaves(self, given: list[Any]) -> Any:
        """Return the cotangent of the argument for those of the leaves of the result; for None nothing flows."""
        pairs = [
            (out._tensor, g) for out, g in zip(self.outs, given, strict=True) if type(out) is Box and g is not None
        ]
        targets = [t for t, _ in pairs]
        seeds = [_conjugate(like(g, t, "the vector")) for t, g in pairs]
        if not targets:
            return self.nested([tc.zeros_like(tc.stop_gradient(t)) for t in self.sources])
        with selected(self.sources):
            found = self.tape.gradient(targets, self.sources, output_gradients=seeds, unconnected_gradients="zero")
            return self.nested(found)

    def nested(self, found: Sequence[Any]) -> Any:
        """Return derivatives for the parts of the argument, as Tape's tape gives them, as autograd would."""
        plain = [_conjugate(dense(g)) for g in found]
        parts = [d if is_tensor else result_of(d) for d, is_tensor in zip(plain, self.tensors, strict=True)]
        return pytree.unflatten(self.structure, parts)


def make_vjp(fun: Function, x: PyTree) -> tuple[Callable[[PyTree], Any], Any]:
    """Return the function that multiplies vectors with the Jacobian of `fun` at `x`, and the value there."""
    run = Traced(fun, x, persistent=True)
    return run.pull, run.value


def make_jvp(fun: Function, x: PyTree) -> Callable[[PyTree], tuple[Any, Any]]:
    """Return the function that maps a tangent to the value of `fun` at `x` and its derivative along the tangent."""

    def jvp(v: PyTree) -> tuple[Any, Any]:
        leaves, structure = pytree.flatten(x)
        given, given_structure = pytree.flatten(v)
        if len(given) != len(leaves) or not pytree.same(given_structure, structure, len(given)):
            raise ValueError(
                "the tangent must have the structure of the argument; "
                + pytree.difference("it", given_structure, len(given), "the argument", structure, len(leaves))
            )
        primals = [as_tensor(leaf) for leaf in leaves]
        tangents = [like(t, p, "the tangent") for t, p in zip(given, primals, strict=True)]
        whole = any([isinstance(leaf, tc.Tensor) for leaf in leaves])
        with selected(primals), tc.ForwardAccumulator(primals, tangents) as accumulator:
            out = fun(pytree.unflatten(structure, [Box(p) for p in primals]))
        outs, out_structure = pytree.flatten(out)
        found: list[Any] = []
        for out in outs:
            if type(out) is Box:
                tangent = dense(accumulator.jvp(out._tensor, unconnected_gradients="zero"))
                found.append(tangent if whole else result_of(tangent))
            else:
                found.append(tc.zeros_like(out) if isinstance(out, tc.Tensor) else np.zeros_like(out))
        values = [unboxed(out) if whole else known_outside(out) for out in outs]
        return pytree.unflatten(out_structure, values), pytree.unflatten(out_structure, found)

    return jvp


def selected(tensors: Sequence[tc.Tensor]) -> AbstractContextManager[object]:
    """Return a context in which new arrays are on the backend of these Tensors, whichever is selected around it."""
    if not tensors or tensors[0].backend.root.name == tc.get_backend().name:
        return nullcontext()
    return tc.use_backend(tensors[0].backend.root.name)


def known_outside(value: PyTree) -> Any:
    """Return a result of a run as code around it knows it: a box if something there differentiates it."""
    return boxed(value._tensor) if type(value) is Box else value


def result_of(tensor: tc.Tensor) -> Any:
    """Return a derivative: a box where it is itself differentiated, else an array of its own, or a scalar."""
    found = boxed(tensor)
    return found.copy() if isinstance(found, np.ndarray) else found


def zeros(tensor: tc.Tensor) -> Any:
    """Return the zero of a Tensor's shape and dtype."""
    return np.zeros(tensor.shape, dtype=tensor.dtype.name)[()]


def like(value: ArrayLike, target: tc.Tensor, what: str) -> tc.Tensor:
    """Return a cotangent or tangent as a Tensor of the shape and dtype of its value.

    Raises:
        ValueError: it has another shape, and is no number.
        TypeError: it is complex and the value is real.
    """
    value = unboxed(value)
    if isinstance(value, tc.Tensor):
        tensor = value
    else:
        array = np.asarray(value)
        if array.dtype.kind == "c" and target.dtype.kind != "complex floating":
            raise TypeError(f"{what} is complex, its value is real: {target.dtype}")
        tensor = tc.asarray(array.astype(target.dtype.name), backend=target.backend.root)
    if tensor.shape != target.shape:
        if tensor.ndim:
            raise ValueError(f"{what} has shape {tensor.shape}, its value has shape {target.shape}")
        tensor = tc.broadcast_to(tensor, target.shape)
    if tensor.dtype is not target.dtype:
        if tensor.dtype.kind == "complex floating" and target.dtype.kind != "complex floating":
            raise TypeError(f"{what} is complex, its value is real: {target.dtype}")
        tensor = tc.astype(tensor, target.dtype)
    return tensor


def _conjugate(tensor: tc.Tensor) -> tc.Tensor:
    # autograd's gradients are plain transposes, Tape's are conjugated where a sweep begins and ends.
    return tc.conj(tensor) if tensor.dtype.kind == "complex floating" else tensor


def values(tree: PyTree) -> Any:
    """Return a structure with plain arrays in place of boxes."""
    leaves, structure = pytree.flatten(tree)
    return pytree.unflatten(structure, [values_of(x._tensor) if type(x) is Box else x for x in leaves])
