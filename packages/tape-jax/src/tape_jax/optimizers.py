"""optax's gradient transformations as optimizers of Tape's Variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from tape_core import Tensor, Variable, asarray
from tape_core.backends import install_command
from tape_core.typing import Array, PyTree

from tape_jax.functional import call
from tape_jax.parameters import variables as variables_of
from tape_jax.tasks import Structure, is_leaf, jax_backend

if TYPE_CHECKING:
    from tape_nn import TransformOptimizer
    from tape_nn.transforms import Transformation


def optimizer(transformation: Transformation, variables: PyTree, /) -> TransformOptimizer:
    """Return an optimizer of Variables that is made of a transformation of optax, such as `optax.adamw(1e-3)`.

    It is a `tape_nn.TransformOptimizer`: its state is kept in Variables, so that it is a part of compiled steps, and is
    saved and loaded with a run of `nn.fit`. optax gets parameters and gradients as dictionaries by the names of the
    Variables. Variables may be on any backend: where it is another one, each update converts.

    >>> import optax
    >>> import tape_core as tc, tape_jax
    >>> w = tc.Variable([1.0, 2.0], name="w", backend="jax")
    >>> sgd = tape_jax.optimizer(optax.chain(optax.clip(1.0), optax.sgd(0.5)), {"w": w})
    >>> with tc.GradientTape() as tape:
    ...     loss = tc.sum(w * w)
    >>> sgd.apply_gradients([(tape.gradient(loss, w), w)])
    >>> w.tolist()
    [0.5, 1.5]

    Args:
        transformation: a chain of optax's, or another object with `init(params)` and `update(gradients, state,
            params)`. One that asks for more, such as the value of the loss, is refused by its own error.
        variables: all Variables that will be updated: a Module of tape-nn, a mapping from names to Variables, or a tree
            with Variables as :func:`tape_jax.with_variables` makes.

    Raises:
        ImportError: tape-nn is not installed.
        TypeError: `transformation` has no `init` and `update`, or there is no Variable in `variables`.
    """
    try:
        import tape_nn
    except ImportError as error:
        raise ImportError(f"tape_jax.optimizer needs tape-nn; install it with: {install_command('tape-nn')}") from error
    for name in ("init", "update"):
        if not callable(getattr(transformation, name, None)):
            raise TypeError(
                f"optimizer: a transformation of optax has init and update, as optax.adam(1e-3) has; got "
                f"{transformation!r}"
            )
    if not isinstance(variables, tape_nn.Module):
        variables = _named(variables)
    return tape_nn.TransformOptimizer(_OnTensors(transformation), variables)


def _named(tree: PyTree) -> dict[str, Variable]:
    if isinstance(tree, Mapping) and tree and all([isinstance(v, Variable) for v in tree.values()]):
        return dict(tree)
    found = variables_of(tree)
    if not found:
        raise TypeError(
            f"optimizer: takes a Module of tape-nn, a mapping from names to Variables, or a tree with Variables, as "
            f"tape_jax.with_variables(module) returns; there is no Variable in this {type(tree).__name__}"
        )
    named: dict[str, Variable] = {}
    for k, variable in enumerate(found):
        name = variable.name or str(k)
        named[name if name not in named else f"{name}.{k}"] = variable
    return named


class _OnTensors:
    """A transformation of arrays of JAX as one of Tensors; its state is a list of Tensors.

    Attributes:
        inner: the transformation.
    """

    def __init__(self, inner: Transformation) -> None:
        self.inner = inner
        self._state: _State | None = None

        def update(gradients: PyTree, arrays: Sequence[Array], params: PyTree) -> Any:
            assert self._state is not None  # `init` comes first
            updates, state = inner.update(gradients, self._state.of(arrays), params)
            return updates, _State(state).arrays_of(state)

        self._update = jax.jit(update)

    def __repr__(self) -> str:
        return f"optax {type(self.inner).__name__}"

    def init(self, params: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the state before the first update."""

        def init(params: PyTree) -> Any:
            state = self.inner.init(params)
            self._state = _State(state)
            return self._state.arrays_of(state)

        return _like(call(init, _on_jax(params)), params)  # type: ignore[no-any-return]

    def update(
        self, gradients: Mapping[str, Tensor], state: Sequence[Tensor], params: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return what is to be added to the parameters, and the next state."""
        found = call(self._update, _on_jax(gradients), _on_jax(list(state)), _on_jax(params))
        return _like(found, params)  # type: ignore[no-any-return]


class _State:
    """How a state of a transformation is made of its arrays, among which keys of random numbers are as their data."""

    def __init__(self, state: PyTree) -> None:
        structure: Structure
        leaves, structure = jax.tree_util.tree_flatten(state)
        self._structure = structure
        self._keys = {k: jax.random.key_impl(leaf) for k, leaf in enumerate(leaves) if _is_key(leaf)}
        # Numbers may change, so they are arrays; anything else stays what it is.
        self._others = {k: leaf for k, leaf in enumerate(leaves) if not isinstance(leaf, _NUMERIC)}

    def arrays_of(self, state: PyTree) -> list[Array]:
        """Return the arrays of a state."""
        leaves = [leaf for leaf in jax.tree_util.tree_leaves(state) if isinstance(leaf, _NUMERIC)]
        return [jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf) for leaf in leaves]

    def of(self, arrays: Sequence[Array]) -> PyTree:
        """Return the state with other arrays."""
        each = iter(arrays)
        n: int = self._structure.num_leaves
        leaves = [self._others[k] if k in self._others else next(each) for k in range(n)]
        for k, implementation in self._keys.items():
            leaves[k] = jax.random.wrap_key_data(leaves[k], impl=implementation)
        return jax.tree_util.tree_unflatten(self._structure, leaves)


_NUMERIC = (jax.Array, int, float, complex)


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _on_jax(tree: PyTree) -> PyTree:
    """Return Tensors on other backends as Tensors of JAX."""
    backend = jax_backend()
    return _mapped(lambda t: t if t.backend.library is backend else asarray(t, backend=backend), tree)


def _like(tree: PyTree, params: Mapping[str, Tensor]) -> PyTree:
    """Return Tensors of JAX on the backend and the device of the parameters."""
    first = next(iter(params.values()))
    if first.backend.library is jax_backend():
        return tree
    return _mapped(lambda t: asarray(t, backend=first.backend.root, device=first.device), tree)


def _mapped(function: Callable[[Tensor], Tensor], tree: PyTree) -> PyTree:
    return jax.tree_util.tree_map(function, tree, is_leaf=is_leaf)
