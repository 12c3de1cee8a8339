"""Variables divided among devices, in place: those of a Module, and what optimizers and averages keep for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from tape_core import Variable, asarray
from tape_core.support import placement, pytree, wrap

from tape_jax.tasks import jax_backend

if TYPE_CHECKING:
    from tape_core import Tensor

Tree = TypeVar("Tree")

Layout = Sharding | Callable[[str, Variable], Sharding]


def distribute(variables: Tree, sharding: Layout) -> Tree:
    """Put Variables, of any backend, on the devices of a sharding, in place; return what was given.

    What optimizers and averages have made for a Variable moves with it, and what they make later is divided as it is.
    A Variable keeps its layout: each new value is put into it. If one cannot be moved, none is.

    >>> import jax, tape_core as tc, tape_jax
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))
    >>> w = tape_jax.distribute(tc.Variable([[1.0, 2.0]]), NamedSharding(mesh, P(None, None)))
    >>> w.backend.name, tuple(w.array.sharding.spec)
    ('jax', (None, None))

    Args:
        variables: a Variable, a Module, or a tree of them.
        sharding: that of all Variables, or a function of the name and the Variable that returns its own. The name is
            the path in a Module, such as `layers.0.kernel`.

    Raises:
        TypeError: something is no Variable, or a sharding is none.
        ValueError: a Variable cannot be divided so, or there is none.
        RuntimeError: inside a compiled function.
    """
    named = list(_named(variables))
    if not named:
        raise ValueError(
            "tape_jax.distribute: there are no Variables yet; a layer makes them in its first call, or by build()"
        )
    names = {id(variable): name for name, variable in named}
    found: dict[int, Sharding] = {}
    for name, variable in named:
        one: object = sharding(name, variable) if callable(sharding) else sharding
        if not isinstance(one, Sharding):
            cure = ": make it jax.sharding.NamedSharding(mesh, spec)" if isinstance(one, PartitionSpec) else ""
            raise TypeError(f"tape_jax.distribute: {name or 'a Variable'} is given {one!r}, which is no Sharding{cure}")
        found[id(variable)] = one
    backend = jax_backend()

    def moved(variable: Variable, leader: Variable | None) -> Tensor:
        first = variable if leader is None else leader
        place = found.get(id(variable)) or found[id(first)]
        if variable.shape != first.shape:  # a moment of an optimizer that has only the rows, say
            place = _undivided(place)
        value = asarray(wrap(variable._raw, variable._home), backend=backend)
        try:
            array = jax.device_put(value.array, place)
        except ValueError as error:
            label = names.get(id(variable)) or variable.name or "a Variable"
            raise ValueError(f"tape_jax.distribute: {label} of shape {variable.shape}: {error}") from None
        return asarray(array)

    placement.relocate("tape_jax.distribute", [variable for _, variable in named], backend, moved)
    return variables


def _undivided(place: Sharding) -> Sharding:
    return NamedSharding(place.mesh, PartitionSpec()) if isinstance(place, NamedSharding) else place  # type: ignore[no-untyped-call]


def _named(tree: object) -> Iterator[tuple[str, Variable]]:
    for leaf in pytree.flatten(tree)[0]:
        if not isinstance(leaf, Variable) and not hasattr(leaf, "named_variables"):
            raise TypeError(
                f"tape_jax.distribute: got {leaf!r} of type {type(leaf).__name__!r}, which is no Variable and no "
                "Module; jax.device_put, and tape_jax.distributed.distribute, are for arrays and Tensors"
            )
    yield from placement.named_variables(tree)
