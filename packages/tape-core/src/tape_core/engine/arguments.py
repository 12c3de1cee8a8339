"""Checks of the arguments of a tape's methods."""

from __future__ import annotations

from typing import Any

from tape_core.base.lookup import ops
from tape_core.engine import pytree
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.levels import lift
from tape_core.engine.tensor import SCALARS, Tensor, read
from tape_core.typing import ArrayLike, PyTree


def check_tensors(method: str, argument: str, leaves: list[Any], structure: pytree.Structure) -> None:
    """Raise a TypeError that names the leaf that is no Tensor."""
    if structure is None or structure is list or structure is tuple or pytree.are_tensors(leaves):
        return  # the common structures are those of Tensors only
    k, leaf = next((k, leaf) for k, leaf in enumerate(leaves) if not isinstance(leaf, Tensor))
    if isinstance(leaf, IndexedSlices):
        hint = "; use its values" if argument == "sources" else "; use its densify()"
    elif leaf is None:
        hint = "; was it the gradient of something unconnected?"
    elif argument == "target" and type(leaf) in SCALARS:
        hint = (
            "; a number is no longer connected with what it was computed from: compute the target with functions of "
            "tape_core, and take the number, by item() or float(), afterwards"
        )
    elif argument == "sources" and type(leaf).__module__.partition(".")[0] == "torch":
        hint = "; those of a module of PyTorch are tape_torch.variables(module), which tape_torch.call watches"
    else:
        hint = "; use tape_core.asarray to make one, before the computation"
    raise TypeError(
        f"{method}: {argument}{pytree.path(structure, k)} must be a Tensor or Variable, got {leaf!r} of type "
        f"{type(leaf).__name__!r}{hint}"
    )


def check_unconnected(unconnected_gradients: str) -> None:
    """Raise a ValueError unless the value is one of the three that there are."""
    if unconnected_gradients not in ("none", "zero", "error"):
        raise ValueError(
            f"Unknown value for unconnected_gradients: {unconnected_gradients!r}; use 'none', 'zero' or 'error'"
        )


def cotangents_for(targets: list[Any], structure: pytree.Structure, output_gradients: PyTree) -> list[Any]:
    """Return one cotangent for each leaf of the target, after checks; None stands for ones."""
    if len(targets) == 1:
        given = [output_gradients]
        if isinstance(output_gradients, list | tuple) and len(output_gradients) == 1:
            only = output_gradients[0]
            shape = only.shape if isinstance(only, Tensor) else None
            # [g] for one target is g, unless the target has one element and g is its value.
            if only is None or (targets[0].shape != (1,) or shape == (1,)):
                given = [only]
        elif _is_several(output_gradients) and targets[0].shape[:1] != (len(output_gradients),):
            given = list(output_gradients)  # and not the rows of one
        elif isinstance(output_gradients, dict) or (
            structure not in (None, list, tuple) and not hasattr(output_gradients, "dtype")
        ):
            given = pytree.flatten(output_gradients)[0]
    else:
        given = pytree.flatten(output_gradients)[0]
    if len(given) != len(targets):
        raise ValueError(
            f"gradient: output_gradients has {len(given)} leaves, target has {len(targets)}; give one for each"
        )
    return [
        None if g is None else _cotangent(g, t, pytree.path(structure, k))
        for k, (g, t) in enumerate(zip(given, targets, strict=True))
    ]


def _is_several(given: object) -> bool:
    return isinstance(given, list | tuple) and any([part is None or hasattr(part, "dtype") for part in given])


def _cotangent(given: ArrayLike, target: Tensor, path: str) -> Tensor:
    if isinstance(given, Tensor) or hasattr(given, "dtype"):
        seed = read(given, f"gradient: output_gradients{path}", target)
    else:
        seed = ops.asarray(given, dtype=target.dtype, backend=target.backend)
    if seed.shape != target.shape:
        raise ValueError(
            f"gradient: output_gradients{path} has shape {seed.shape}, its target has shape {target.shape}; "
            f"they must be the same"
        )
    if seed.backend is not target.backend and seed.backend.library is target.backend.library:
        # Inside vmap one of them may be the same for all examples, in a trace a constant.
        seed = seed if seed.backend.height > target.backend.height else lift(seed, target.backend)
    elif seed.backend is not target.backend:
        raise TypeError(
            f"gradient: output_gradients{path} is on backend {seed.backend.name!r}, its target on "
            f"{target.backend.name!r}"
        )
    if seed.dtype is not target.dtype and target.dtype.inexact:
        loses = seed.dtype.kind == "complex floating" != target.dtype.kind
        if loses or (seed.dtype.inexact and seed.dtype.itemsize > target.dtype.itemsize):
            raise TypeError(
                f"gradient: output_gradients{path} has dtype {seed.dtype}, its target has dtype {target.dtype}; they "
                f"must be the same: convert it with tape_core.astype"
            )
        seed = ops.astype(seed, target.dtype)
    tensor: Tensor = seed
    return tensor
