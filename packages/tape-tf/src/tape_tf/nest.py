"""tf.nest: nested structures. Dicts are flattened by sorted keys; None, strings and arrays are leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tape_core.support import pytree

from tape_tf.typing import PyTree

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]


def flatten(structure: PyTree, expand_composites: bool = False) -> list[Any]:
    """Return the leaves of a structure, in order.

    >>> import tape_tf as tf
    >>> tf.nest.flatten({"b": 2, "a": [1, (0, None)]})
    [1, 0, None, 2]
    """
    return pytree.flatten_whole(structure)[0]


def is_nested(structure: object) -> bool:
    """Return whether a value is a list, a tuple or a dict (which may be empty), not a leaf."""
    return isinstance(structure, list | tuple | Mapping)


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Apply `func` to each leaf, or to the corresponding leaves of several structures; return the first's structure.

    >>> import tape_tf as tf
    >>> tf.nest.map_structure(lambda a, b: a + b, {"x": 1}, {"x": 2})
    {'x': 3}

    Raises:
        ValueError, TypeError: the structures differ.
    """
    kwargs.pop("check_types", None)
    kwargs.pop("expand_composites", None)
    if kwargs:
        raise ValueError(
            f"Only valid keyword arguments are `check_types` and `expand_composites`, not: {sorted(kwargs)}"
        )
    if not structure:
        raise ValueError("Must provide at least one structure")
    for other in structure[1:]:
        assert_same_structure(structure[0], other)
    leaves, form = pytree.flatten_whole(structure[0])
    columns = [leaves, *[pytree.flatten_whole(other)[0] for other in structure[1:]]]
    return pytree.unflatten(form, [func(*row) for row in zip(*columns, strict=True)])


def pack_sequence_as(structure: PyTree, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """Put leaves into a structure: the inverse of :func:`flatten`.

    Raises:
        ValueError: there are more or fewer leaves than the structure has.
        TypeError: `flat_sequence` is not a list or a tuple.
    """
    if not isinstance(flat_sequence, list | tuple):
        raise TypeError(f"flat_sequence must be a list or a tuple, not {type(flat_sequence)}")
    leaves, form = pytree.flatten_whole(structure)
    if len(leaves) != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence. Structure had {len(leaves)} atoms, but flat_sequence had {len(flat_sequence)} "
            f"items.  Structure: {structure}, flat_sequence: {flat_sequence}."
        )
    return pytree.unflatten(form, list(flat_sequence))


def assert_same_structure(
    nest1: PyTree, nest2: PyTree, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Raise a ValueError unless two structures are the same."""
    (one, form), (other, other_form) = pytree.flatten_whole(nest1), pytree.flatten_whole(nest2)
    if len(one) != len(other) or (check_types and not pytree.same(form, other_form, len(one))):
        raise ValueError(
            f"The two structures don't have the same nested structure.\n\nFirst structure: {nest1}\n\n"
            f"Second structure: {nest2}"
        )
