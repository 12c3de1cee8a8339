"""PyTorch's optimizers for Tape's Variables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from tape_core import IndexedSlices, Tensor, Variable, asarray
from tape_core.staging import opaque
from tape_core.support import ACTIVE, Commit, check_assignable, warn_user, wrap
from tape_core.typing import ArrayLike


class Optimizer:
    """An optimizer of torch.optim with the interface of tape_nn's optimizers.

    PyTorch's own code computes the updates, so results are the same to the bit. Values that a tape has recorded are not
    overwritten.

    >>> import torch
    >>> import tape_core as tc, tape_torch
    >>> w = tc.Variable([1.0, 2.0], backend="torch")
    >>> optimizer = tape_torch.optim.Optimizer(torch.optim.SGD, lr=0.25)
    >>> with tc.GradientTape() as tape:
    ...     loss = tc.sum(w * w)
    >>> optimizer.apply_gradients([(tape.gradient(loss, w), w)])
    >>> w.tolist()
    [0.5, 1.0]

    Args:
        kind: a class of torch.optim, such as `torch.optim.AdamW`, or a function that takes parameters and returns an
            optimizer. Optimizers that call a closure, such as `LBFGS`, are refused.
        variables: the Variables to update; or groups of them, each a dictionary with `"params"` and options of its own,
            as torch.optim takes. If left out, each Variable joins with its first gradient.
        **options: the options of `kind`, such as `lr=1e-3`.

    Attributes:
        torch: the optimizer of PyTorch: for `torch.optim.lr_scheduler` and for its `param_groups`. Its parameters hold
            no values between updates.
        iterations: the number of updates applied.
    """

    def __init__(
        self,
        kind: Callable[..., torch.optim.Optimizer],
        variables: Iterable[Any] | None = None,
        /,
        **options: Any,
    ) -> None:
        # By the Variable's id; the entry holds the Variable, so the id stays its own.
        self._parameters: dict[int, tuple[Variable, torch.nn.Parameter]] = {}
        self._accepts_new = variables is None
        self._warned: set[int] = set()
        self.iterations = 0
        # torch.optim allows a group without parameters, but no empty list of parameters.
        groups = [{"params": []}] if variables is None else self._groups(list(variables))
        self.torch = kind(groups, **options)
        required = [p for p in inspect.signature(type(self.torch).step).parameters.values() if p.default is p.empty]
        if len(required) > 1:  # the first is self
            raise TypeError(
                f"Optimizer: {type(self.torch).__name__} calls the loss itself, several times an update, which "
                f"apply_gradients cannot do; use an optimizer that takes gradients"
            )

    def _groups(self, variables: list[Any]) -> list[dict[str, Any]]:
        if not variables:
            raise ValueError("Optimizer: variables is empty; leave it out, and each joins with its first gradient")
        if not any([isinstance(part, Mapping) for part in variables]):
            variables = [{"params": variables}]
        groups = []
        for k, group in enumerate(variables):
            if not isinstance(group, Mapping) or "params" not in group:
                raise TypeError(
                    f"Optimizer: variables[{k}] must be a dictionary with 'params', like the groups beside it; "
                    f"got {type(group).__name__!r}"
                )
            own = group["params"]
            own = [own] if isinstance(own, Variable) else list(own)
            groups.append({**group, "params": [self._parameter(variable) for variable in own]})
        return groups

    def _parameter(self, variable: object) -> torch.nn.Parameter:
        """Return the Parameter that stands for a Variable in PyTorch's optimizer."""
        if not isinstance(variable, Variable):
            raise TypeError(f"Optimizer: takes Variables; got one of type {type(variable).__name__!r}")
        known = self._parameters.get(id(variable))
        if known is not None:
            return known[1]
        if not variable.backend.name == "torch" and not isinstance(variable.array, torch.Tensor):
            raise TypeError(
                f"optimizers of PyTorch update Variables on 'torch'; {_names([variable])} is on "
                f"{variable.backend.name!r}: make it with tape_core.Variable(value, backend='torch')"
            )
        if not variable.dtype.inexact:
            raise TypeError(
                f"only floating-point variables can be optimized; {_names([variable])} has dtype {variable.dtype}"
            )
        parameter = torch.nn.Parameter(_placeholder(variable.array))
        self._parameters[id(variable)] = (variable, parameter)
        return parameter

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the first group; setting it sets it for all groups."""
        return self.torch.param_groups[0]["lr"]

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        for group in self.torch.param_groups:
            group["lr"] = value

    def scale_loss(self, loss: ArrayLike) -> Any:
        """Return the loss itself: only `nn.LossScaler` differentiates something else."""
        return loss

    @opaque
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Update Variables once.

        Args:
            grads_and_vars: (gradient, variable) pairs, as `zip(gradients, variables)` gives them. Where a gradient is
                None the Variable is skipped with a warning, once.

        Raises:
            ValueError: if no Variable has a gradient, a gradient's shape is not its Variable's, or a Variable is there
                twice or in none of the groups.
            TypeError: for an element that is no pair, or a Variable that is not a floating-point one on this backend.

        Everything is checked before anything is changed, and the Variables change all at once. PyTorch writes its own
        state in place: if its step is interrupted, a part of that is updated.
        """
        updates: dict[int, tuple[Any, Variable]] = {}
        missing: list[Variable] = []
        for pair in grads_and_vars:
            gradient, variable = _check_pair(pair)
            if gradient is None:
                missing.append(variable)
                continue
            if id(variable) in updates:
                raise ValueError(f"{_names([variable])} is there twice; add its gradients up")
            check_assignable(variable)
            if not self._accepts_new and id(variable) not in self._parameters:
                raise ValueError(f"{_names([variable])} is none of the variables that this Optimizer was made for")
            known = id(variable) in self._parameters
            parameter = self._parameter(variable)
            if not known:
                self.torch.param_groups[0]["params"].append(parameter)
            updates[id(variable)] = (_convert_gradient(gradient, variable), variable)
        if not updates:
            raise ValueError(
                "No gradients provided for any variable."
                + (f" All are None: {_names(missing)}." if missing else "")
                + " Was the loss computed from them, inside the tape's block?"
            )
        if new := [variable for variable in missing if id(variable) not in self._warned]:
            self._warned.update(map(id, new))
            warn_user(f"Gradients do not exist for variables {_names(new)}: they are not updated")
        self._step(list(updates.values()))

    def _step(self, updates: list[tuple[Any, Variable]]) -> None:
        # Anew in each call, since Variables join with their first gradient.
        groups = {id(p): group for group in self.torch.param_groups for p in group["params"]}
        moved: list[tuple[Variable, torch.nn.Parameter, torch.Tensor]] = []
        try:
            for gradient, variable in updates:
                parameter = self._parameters[id(variable)][1]
                # PyTorch writes in place, so it gets a copy: the old values are valid until all new ones are committed.
                array = variable._array.clone()
                parameter.data = array
                parameter.grad = self._gradient(gradient, variable, groups[id(parameter)])
                moved.append((variable, parameter, array))
                del array
            self.torch.step()
            # The Variables change all at once: an interrupt leaves each of them old, or each new.
            commit = Commit()
            for variable, _, array in moved:
                commit.value(variable, array, wrap(array, variable.backend) if ACTIVE.get() else None)
            commit.attribute(self, "iterations", self.iterations + 1)
            commit.make()
        finally:
            for _, parameter, array in moved:
                parameter.data = _placeholder(array)
                parameter.grad = None

    def _gradient(
        self, gradient: torch.Tensor | IndexedSlices, variable: Variable, group: Mapping[str, Any]
    ) -> torch.Tensor:
        if not isinstance(gradient, IndexedSlices):
            return gradient
        if not self._takes_sparse(group):
            return gradient.densify()._array  # type: ignore[no-any-return]
        rows, indices = gradient.values._array, gradient.indices._array
        return torch.sparse_coo_tensor(
            indices[None], rows.to(variable._array.dtype), gradient.dense_shape, check_invariants=False
        )

    def _takes_sparse(self, group: Mapping[str, Any]) -> bool:
        if isinstance(self.torch, torch.optim.SparseAdam):
            return True
        if isinstance(self.torch, torch.optim.SGD):
            return not (group["momentum"] or group["weight_decay"] or group["nesterov"])
        return isinstance(self.torch, torch.optim.Adagrad) and not group["weight_decay"]

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state in PyTorch's format; Variables are numbered in the order of their joining."""
        return self.torch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state. The optimizer must have as many Variables: give them when it is made.

        Raises:
            ValueError: the state has other groups.
        """
        numbers = [len(group["params"]) for group in state["param_groups"]]
        own = [len(group["params"]) for group in self.torch.param_groups]
        if numbers != own:
            raise ValueError(
                f"load_state_dict: the state is that of {numbers} variables by group, this optimizer has {own}; give "
                f"the variables when it is made: Optimizer(kind, variables, ...)"
            )
        self.torch.load_state_dict(state)


def _placeholder(array: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape of `array` in the memory of one element: only the Variable keeps the values."""
    return array.new_zeros(()).expand(array.shape)


def _check_pair(pair: object) -> tuple[Any, Variable]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(
            f"apply_gradients takes (gradient, variable) pairs, such as zip(gradients, variables); got an element of "
            f"type {type(pair).__name__!r}"
        )
    gradient, variable = pair
    if not isinstance(variable, Variable):
        raise TypeError(
            f"apply_gradients takes (gradient, variable) pairs; the second of this pair is no Variable but of type "
            f"{type(variable).__name__!r}" + (". Are the two swapped?" if isinstance(gradient, Variable) else "")
        )
    return gradient, variable


def _convert_gradient(gradient: ArrayLike, variable: Variable) -> Any:
    """Convert a gradient to a raw array of the Variable's dtype, or leave it IndexedSlices, and check its shape."""
    found: Any
    if not isinstance(gradient, Tensor | IndexedSlices):
        gradient = asarray(gradient, dtype=variable.dtype, backend=variable.backend, device=variable.device)
    values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
    if values.backend is not variable.backend:
        raise TypeError(
            f"the gradient of {_names([variable])} is on backend {values.backend.name!r}; the variable is on "
            f"{variable.backend.name!r}"
        )
    if isinstance(gradient, IndexedSlices):
        shape, found = gradient.dense_shape, gradient
    else:
        shape, found = gradient.shape, gradient._array
        if found.dtype is not variable.array.dtype:
            found = found.to(variable.array.dtype)
    if shape != variable.shape:
        raise ValueError(f"the gradient of {_names([variable])} has shape {shape}; the variable has {variable.shape}")
    return found


def _names(variables: list[Variable]) -> str:
    return ", ".join(repr(v.name) if v.name else f"<Variable of shape {v.shape}>" for v in variables)
