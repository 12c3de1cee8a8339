"""tf.nest: nested structures, dicts in the order of their sorted keys; None, strings and arrays are leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tape_core.base import pytree

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """The leaves of a structure.

    >>> import tape_tf as tf
    >>> tf.nest.flatten({"b": 2, "a": [1, (0, None)]})
    [1, 0, None, 2]
    """
    return pytree.flatten(structure)[0]


def is_nested(structure: Any) -> bool:
    """Whether it is a structure and not a leaf: a list, a tuple or a dict, also an empty one."""
    return isinstance(structure, list | tuple | Mapping)


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """`func` of each leaf, or of the leaves of several structures that correspond, in the structure of the first.

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
    leaves, form = pytree.flatten(structure[0])
    columns = [leaves, *[pytree.flatten(other)[0] for other in structure[1:]]]
    return pytree.unflatten(form, [func(*row) for row in zip(*columns, strict=True)])


def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """Leaves in a structure: what :func:`flatten` gave, put back.

    Raises:
        ValueError: there are more or fewer leaves than the structure has.
        TypeError: `flat_sequence` is no sequence.
    """
    if not isinstance(flat_sequence, list | tuple):
        raise TypeError(f"flat_sequence must be a list or a tuple, not {type(flat_sequence)}")
    leaves, form = pytree.flatten(structure)
    if len(leaves) != len(flat_sequence):
        raise ValueError(
            f"Could not pack sequence. Structure had {len(leaves)} atoms, but flat_sequence had {len(flat_sequence)} "
            f"items.  Structure: {structure}, flat_sequence: {flat_sequence}."
        )
    return pytree.unflatten(form, list(flat_sequence))


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Raise a ValueError unless two structures are the same."""
    (one, form), (other, other_form) = pytree.flatten(nest1), pytree.flatten(nest2)
    if len(one) != len(other) or (check_types and not pytree.same(form, other_form, len(one))):
        raise ValueError(
            f"The two structures don't have the same nested structure.\n\nFirst structure: {nest1}\n\n"
            f"Second structure: {nest2}"
        )
