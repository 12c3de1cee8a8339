"""Variables in the trees of JAX's libraries: equinox modules, flax parameters, or any other pytree of arrays."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from tape_core import Tensor, Variable
from tape_core.support import wrap
from tape_core.typing import PyTree

from tape_jax.tasks import is_inexact, is_leaf, jax_backend

Tree = TypeVar("Tree")


def with_variables(tree: Tree) -> Tree:
    """Return a tree, such as an equinox module, with a Variable in place of each floating-point array.

    :func:`tape_jax.call` takes such a tree as an argument, or a module as its function, and tapes record what it
    computes of the Variables. Everything else in the tree stays what it is.

    >>> import jax.numpy as jnp
    >>> import tape_core as tc, tape_jax
    >>> model = tape_jax.with_variables({"w": jnp.ones(2), "steps": 3})
    >>> with tc.GradientTape() as tape:
    ...     y = tape_jax.call(lambda m: jnp.sum(m["w"] ** 2), model)
    >>> tape.gradient(y, model["w"]).tolist(), model["w"].name, model["steps"]
    ([2.0, 2.0], "['w']", 3)
    """
    backend = jax_backend()

    def made(path: tuple[Any, ...], leaf: object) -> Any:
        if isinstance(leaf, Variable):
            return leaf
        value = leaf if isinstance(leaf, Tensor) else wrap(leaf, backend) if isinstance(leaf, jax.Array) else None
        if value is None or not is_inexact(value._array):
            return leaf
        return Variable(value, name=jax.tree_util.keystr(path))

    return jax.tree_util.tree_map_with_path(made, tree, is_leaf=is_leaf)  # type: ignore[no-any-return]


def with_arrays(tree: Tree) -> Tree:
    """Return a tree with an array of JAX in place of each Variable and Tensor: what JAX's own functions take.

    >>> import jax.numpy as jnp
    >>> import tape_jax
    >>> tape_jax.with_arrays(tape_jax.with_variables([jnp.ones(2, "float32")]))
    [Array([1., 1.], dtype=float32)]
    """
    return jax.tree_util.tree_map(  # type: ignore[no-any-return]
        lambda leaf: leaf.array if isinstance(leaf, Tensor) else leaf, tree, is_leaf=is_leaf
    )


def variables(tree: PyTree) -> list[Variable]:
    """Return the Variables in a tree, such as :func:`with_variables` returns, each once, in the order of its leaves.

    >>> import jax.numpy as jnp
    >>> import tape_jax
    >>> [v.shape for v in tape_jax.variables(tape_jax.with_variables([jnp.ones(2), "relu", jnp.ones((3, 2))]))]
    [(2,), (3, 2)]
    """
    found = {id(leaf): leaf for leaf in jax.tree_util.tree_leaves(tree, is_leaf=is_leaf) if isinstance(leaf, Variable)}
    return list(found.values())
