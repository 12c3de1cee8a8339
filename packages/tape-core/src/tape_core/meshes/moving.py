"""Values that are brought onto a mesh: Variables in place, with what follows them, and arrays as new Tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from tape_core.engine import placement, pytree
from tape_core.engine.tensor import Tensor, wrap
from tape_core.engine.variable import Variable
from tape_core.typing import PyTree

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

T = TypeVar("T", bound=PyTree)

Divide: TypeAlias = Callable[[Any, Any, str], Tensor]
"""Returns a value in a layout; the label is for messages."""

Compare: TypeAlias = Callable[[dict[str, str]], None]
"""Called with what is to be divided, by name, before anything is: where processes have other things, it raises."""


def divide_tree(tree: T, layout: object, target: Backend, divide: Divide, compare: Compare = lambda told: None) -> T:
    """Return a tree of which Variables have moved in place, and of whose arrays and Tensors there are new ones.

    What optimizers and averages have made for a Variable moves along. If a Variable cannot be moved, none is.

    Args:
        layout: one of the engine's, or a function of the name and the Variable that returns one.
        target: the backend of the new values.
        divide: called with each value, its layout and what it is.
        compare: called before with the names, shapes, dtypes and layouts of all.

    Raises:
        TypeError: a function of Variables is given for arrays, or whatever `divide` raises.
        ValueError: there are no Variables in a Module.
        RuntimeError: a Variable is moved inside a compiled function.
    """
    named = list(placement.named_variables(tree))
    if not named and hasattr(tree, "named_variables"):
        raise ValueError("distribute: there are no Variables yet; a layer makes them in its first call, or by build()")
    if named:
        _move(named, layout, target, divide, compare)
    if isinstance(tree, Variable) or hasattr(tree, "named_variables"):
        return tree
    if callable(layout) and not named:
        raise TypeError("distribute: a function of names and Variables is for Variables; give arrays a layout")
    leaves, structure = pytree.flatten_whole(tree)  # whose Modules stay the objects that they are
    labels = [pytree.path(structure, k) or "an array" for k in range(len(leaves))]
    kept = [isinstance(leaf, Variable) or hasattr(leaf, "named_variables") for leaf in leaves]
    compare({label: _told(leaf, layout) for label, leaf, keeps in zip(labels, leaves, kept, strict=True) if not keeps})
    found = [
        leaf if keeps else divide(leaf, layout, label) for label, leaf, keeps in zip(labels, leaves, kept, strict=True)
    ]
    return cast("T", pytree.unflatten(structure, found))


def _told(value: Any, layout: object) -> str:
    return f"{tuple(getattr(value, 'shape', ()))} {getattr(value, 'dtype', type(value).__name__)} in {layout!r}"


def _move(
    named: Sequence[tuple[str, Variable]], layout: object, target: Backend, divide: Divide, compare: Compare
) -> None:
    names = {id(variable): name for name, variable in named}
    chosen = {id(variable): layout(name, variable) if callable(layout) else layout for name, variable in named}
    compare({name or "the Variable": _told(variable, chosen[id(variable)]) for name, variable in named})

    def moved(variable: Variable, leader: Variable | None) -> Tensor:
        first = variable if leader is None else leader
        wanted = chosen[id(variable) if id(variable) in chosen else id(first)]
        if variable.shape != first.shape:  # a moment of an optimizer that has only the rows, say
            wanted = ()
        label = names.get(id(variable)) or variable.name or "a Variable"
        return divide(wrap(variable._raw, variable._home), wanted, label)

    placement.relocate("distribute", [variable for _, variable in named], target, moved)


def map_leaves(function: Callable[[Any], Any], tree: T) -> T:
    """Return a tree of what a function returns for each leaf."""
    leaves, structure = pytree.flatten(tree)
    return cast("T", pytree.unflatten(structure, [function(leaf) for leaf in leaves]))


def whole(tensor: Tensor) -> Tensor:
    """Return a Tensor with all its values in each process, all of which call this; what is not divided as it is."""
    library = tensor.backend.library
    if library.distributed is None or library.divided_like(tensor, tensor.shape) is None:
        return tensor
    found: Tensor = import_module(library.distributed).full(tensor)
    return found


def about(part: Tensor) -> str:
    """Return what processes tell each other of the parts that are to be one array."""
    return f"shape {part.shape} and {part.dtype}"


def check_parts_alike(label: str, told: Sequence[str]) -> None:
    """Compare what the processes have told :func:`about` their parts.

    Raises:
        ValueError: they differ.
    """
    for rank, one in enumerate(told):
        if one != told[0]:
            raise ValueError(
                f"distribute: the parts of {label} differ: rank 0 gives {told[0]}, rank {rank} gives {one}. All are to "
                f"have one shape and dtype: pad the shorter ones, or leave out what some processes have more"
            )
