"""An optimizer of Variables that is made of a gradient transformation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tape_core as tc
from tape_core import IndexedSlices, Tensor, Variable
from tape_core.staging import host_number, outside, stateful
from tape_core.support import Commit, check_assignable, lenient, pytree, wrap
from tape_core.typing import ArrayLike, PyTree

from tape_nn.module import Module
from tape_nn.naming import copy_like, named_variables, unknown_names
from tape_nn.optimizers.pairs import check_gradient, check_pair, names_of, paired
from tape_nn.transforms import Transformation, apply_updates
from tape_nn.types import Gradient


class TransformOptimizer:
    """An optimizer of Variables that is made of a gradient transformation, such as :func:`tape_nn.chain` returns.

    Parameters, gradients and state are given to the transformation as dictionaries by the names of the Variables. All
    Variables are there in each update: one without a gradient has one of zeros.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model = nn.Dense(1, kernel_initializer="ones")
    >>> model.build((None, 2))
    >>> transformation = nn.chain(nn.transforms.clip(1.0), nn.transforms.sgd(0.5))
    >>> optimizer = nn.TransformOptimizer(transformation, model)
    >>> with tc.GradientTape() as tape:
    ...     loss = tc.sum(model(tc.asarray([[4.0, 0.5]])))
    >>> optimizer.apply_gradients(tape.gradient(loss, model), model)
    >>> model.kernel.tolist()
    [[0.5], [0.75]]

    It may be somebody else's: any object with `init(params)` and `update(gradients, state, params)`.

    Args:
        transformation: what computes the updates, which are added to the Variables.
        variables: a Module, or a mapping from names to Variables: all that will be updated. They may be made later, but
            before the first update.

    Raises:
        TypeError: `transformation` has no `init` and `update`, or `variables` is none of these.
    """

    iterations: Any = host_number()
    """The number of updates applied."""

    def __init__(self, transformation: Transformation, variables: Module | Mapping[str, Variable]) -> None:
        for name in ("init", "update"):
            if not callable(getattr(transformation, name, None)):
                raise TypeError(
                    f"TransformOptimizer: a gradient transformation has init and update, as nn.chain(...) has; got "
                    f"{transformation!r}"
                )
        named_variables(variables)  # raises if it is something else
        self.transformation = transformation
        self.variables = variables
        self.iterations = 0
        self._names: dict[int, str] = {}
        self._trained: dict[str, Variable] = {}
        self._slots: list[Any] = []  # the leaves of the state: Variables, and what is no Tensor
        self._structure: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy, or of what was pickled: its Variables have other ids."""
        vars(self).update(state)
        self._names = {id(variable): name for name, variable in self._trained.items()}

    @lenient
    def __repr__(self) -> str:
        return f"TransformOptimizer({self.transformation!r}, variables={len(named_variables(self.variables))})"

    @property
    def learning_rate(self) -> float:
        """Not there: the transformation has what it has.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(
            "a TransformOptimizer has no learning_rate: it is an argument of the transformation. Give a schedule there"
        )

    def build(self) -> None:
        """Make the state for the Variables now, and not at the first update."""
        found = named_variables(self.variables)
        self._trained = (
            {name: v for name, v in found if v.trainable} if isinstance(self.variables, Module) else dict(found)
        )
        self._names = {id(variable): name for name, variable in self._trained.items()}
        with outside():  # the state is made once, when a function is traced, and not in each call of it
            state = self.transformation.init({name: _free(v) for name, v in self._trained.items()})
            leaves, self._structure = pytree.flatten(state)
            self._slots = [
                Variable(_free(leaf), trainable=False, name="state") if isinstance(leaf, Tensor) else leaf
                for leaf in leaves
            ]

    def _holders(self) -> list[Any]:
        """All state that updates change besides the Variables that are updated; see `stateful`."""
        own = [slot for slot in self._slots if isinstance(slot, Variable)]
        return [*own, TransformOptimizer.iterations.of(self), *self._trained.values()]

    def scale_loss(self, loss: ArrayLike) -> ArrayLike:
        """Return the tensor to differentiate in place of the loss: here the loss itself; see :class:`LossScaler`."""
        return loss

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient, Variable]] | Module, variables: PyTree = None
    ) -> None:
        """Update the Variables once; see :meth:`Optimizer.apply_gradients`.

        Raises:
            ValueError: no Variable has a gradient, one is there twice or is none of `variables`, or a shape is wrong;
                or the transformation returns something of another structure. Nothing is changed.
            TypeError: an element is no pair of a gradient and a Variable.
        """
        if self._structure is None:
            self.build()
        self._apply(list(paired(grads_and_vars, variables)))

    @stateful(_holders)
    def _apply(self, pairs: list[tuple[Gradient, Variable]]) -> None:
        self._compute_update(pairs).make()

    def _slot_creation_lock(self, pairs: object) -> AbstractContextManager[object]:
        return nullcontext()  # all slots are made by `build`

    def _compute_update(self, grads_and_vars: Iterable[tuple[Gradient, Variable]]) -> Commit:
        """Compute one update of all Variables, without making it."""
        if self._structure is None:
            self.build()
        given: dict[str, Tensor] = {}
        for pair in grads_and_vars:
            gradient, variable = check_pair(pair)
            name = self._names.get(id(variable))
            if name is None:
                raise ValueError(
                    f"{names_of([variable])} is none of the Variables that this optimizer was made for, which are "
                    f"{', '.join(self._trained)}"
                )
            check_assignable(variable)
            if name in given:
                raise ValueError(f"{names_of([variable])} is there twice; add its gradients up")
            if gradient is not None:
                own = check_gradient(gradient, variable)
                if isinstance(own, IndexedSlices):
                    own = IndexedSlices(_free(own.values), _free(own.indices), own.dense_shape).densify()._array
                given[name] = wrap(own, variable.backend)
        if not given:
            raise ValueError("No gradients provided for any variable. Was the loss computed inside the tape's block?")
        # New Tensors of the same arrays, which no tape knows: an update is not recorded.
        params = {name: _free(v) for name, v in self._trained.items()}
        gradients = {name: given[name] if name in given else tc.zeros_like(p) for name, p in params.items()}
        state = pytree.unflatten(
            self._structure, [_free(slot) if isinstance(slot, Variable) else slot for slot in self._slots]
        )
        updates, state = self.transformation.update(gradients, state, params)
        new = apply_updates(params, updates)
        leaves, structure = pytree.flatten(state)
        if len(leaves) != len(self._slots) or not pytree.same(structure, self._structure, len(leaves)):
            raise ValueError("the update of the transformation returned a state of another structure than init")
        commit = Commit()
        for name, variable in self._trained.items():
            if new[name].shape != variable.shape:
                raise ValueError(
                    f"the update of {name!r} has shape {new[name].shape}; the variable has {variable.shape}"
                )
            commit.value(variable, new[name]._array)
        for slot, leaf in zip(self._slots, leaves, strict=True):
            if isinstance(slot, Variable):
                leaf = tc.asarray(leaf, dtype=slot.dtype)
                if leaf.shape != slot.shape:
                    raise ValueError(f"a part of the state had shape {slot.shape} and has {leaf.shape}")
                commit.value(slot, leaf._array)
        commit.value(TransformOptimizer.iterations.of(self), self.iterations + 1)
        return commit

    def state_dict(self, variables: Module | Mapping[str, Variable]) -> dict[str, Tensor]:
        """Return copies of the arrays in the state by their numbers, and the number of updates.

        Args:
            variables: as for the other optimizers; the names are those of the Variables it was made for.
        """
        if self._structure is None:
            self.build()
        state = {"iterations": tc.asarray(self.iterations, dtype=tc.int64)}
        for k, slot in enumerate(self._slots):
            if isinstance(slot, Variable):
                state[f"state/{k}"] = tc.asarray(slot, copy=True)
        return state

    def load_state_dict(self, state: Mapping[str, ArrayLike], variables: Module | Mapping[str, Variable]) -> None:
        """Continue from a state that :meth:`state_dict` gave, of the same transformation and Variables.

        Raises:
            ValueError: a name or a shape is another. Nothing is changed.
        """
        if self._structure is None:
            self.build()
        slots = {f"state/{k}": slot for k, slot in enumerate(self._slots) if isinstance(slot, Variable)}
        if unknown := [key for key in state if key not in {"iterations", *slots}]:
            raise ValueError(unknown_names("load_state_dict", unknown, slots))
        commit = Commit()
        for key, slot in slots.items():
            if key not in state:
                raise ValueError(f"load_state_dict: {key!r} is missing: is it the state of another transformation?")
            value = copy_like(state[key], slot)
            if value.shape != slot.shape:
                raise ValueError(f"load_state_dict: {key!r} has shape {value.shape}; expected {slot.shape}")
            commit.value(slot, value._array)
        commit.value(TransformOptimizer.iterations.of(self), int(state["iterations"]))
        commit.make()


def _free(tensor: Tensor) -> Tensor:
    """Return a Tensor of the same array that no tape knows."""
    return wrap(tensor._array, tensor.backend)
