"""Module: an object that knows the Variables it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any
from weakref import ref

import tape_core as tc
from tape_core import Tensor, Variable
from tape_core.staging import current, guard
from tape_core.support import assign_together, counted, lenient, lenient_html, placement, wrap
from tape_core.typing import ArrayLike

from tape_nn.copies import LEAVES, Place
from tape_nn.functional import using
from tape_nn.generators import named_generators, state_tensor, states_in
from tape_nn.hints import hint_at_names, present
from tape_nn.module_tree import flatten_module, holds_leaves, leaves_in, named_state

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Self

    from tape_core.backends import Backend

    from tape_nn.checkpoints import Path
    from tape_nn.functional import BoundValues, Parameters
    from tape_nn.summary import Summary


def _misnamed(method: str) -> Callable[..., None]:
    """The `__call__` of a Module that is written as those of PyTorch or Keras are."""

    def __call__(self: Module, *args: object, **kwargs: object) -> None:
        kind = type(self).__name__
        raise TypeError(
            f"{kind} cannot be called, since it has a method {method!r} and no '__call__': here a Module is called by "
            f"`def __call__(self, x)`; rename {kind}.{method}"
        )

    return __call__


class Module:
    """Base class of everything with parameters.

    Subclass it, keep Variables as attributes and define `__call__`. Variables are found in
    attributes, in Modules held as attributes, and in lists, tuples and dicts of them, nested to any
    depth, in the order of definition. One that is held twice counts once. Nothing is registered:
    there is no `super().__init__()` to forget, and an attribute may be replaced at any time.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> class Line(nn.Module):
    ...     def __init__(self):
    ...         self.slope = tc.Variable(2.0)
    ...         self.offset = tc.Variable(1.0)
    ...     def __call__(self, x):
    ...         return self.slope * x + self.offset
    >>> line = Line()
    >>> line(3.0)
    Tensor(7.0, shape=(), dtype=float32, backend=numpy)
    >>> [name for name, _ in line.named_variables()]
    ['slope', 'offset']
    """

    # In the class, since a subclass need not call `super().__init__()`; `train` and `eval` set it in the object.
    _training: bool = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        calls = [base.__dict__["__call__"] for base in cls.__mro__ if "__call__" in base.__dict__]
        # Of this file are those that `_misnamed` made for a base class: one that is written comes before them.
        written = [call for call in calls if getattr(call, "__module__", None) != __name__]
        named = next((name for name in ("forward", "call") if name in cls.__dict__), None)
        if written and written[0] is not calls[0]:
            type.__setattr__(cls, "__call__", written[0])
        elif named is not None and not calls:
            type.__setattr__(cls, "__call__", _misnamed(named))

    @property
    def training(self) -> bool:
        """The mode, which :class:`BatchNorm`, :class:`Dropout` and others depend on.

        It is set by :meth:`train` and :meth:`eval`; the argument `training` of a call overrides it.
        """
        if current() is None:
            return bool(self._training)
        # In a trace the mode is a guard: with another mode the function is traced again. The reference is weak, since
        # the Module may hold the compiled function.
        # A functional copy is made in each call, with the mode as part of its structure.
        module, mode = ref(self), self._training
        return bool(guard(lambda: getattr(module(), "_training", mode)))

    @training.setter
    def training(self, mode: bool) -> None:
        self._training = mode

    def __dir__(self) -> list[str]:
        return present(self, super().__dir__())

    def named_variables(self) -> Iterator[tuple[str, Variable]]:
        """Yield (path, Variable) pairs: each Variable once, with the first path to it, such as `"layers.0.kernel"`.

        In a transformation, a Module has Tensors in place of its trainable Variables, and these are yielded.
        """
        return ((path, found) for path, found in _walk(self, "", set()) if not isinstance(found, Module))

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Yield (path, Module) pairs: this Module with the path `""`, and each one in it with the first path to it."""
        return ((path, found) for path, found in _walk(self, "", set()) if isinstance(found, Module))

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All Variables, each once."""
        return tuple(variable for _, variable in self.named_variables())

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """The Variables that training changes: those made with `trainable=True`, the default."""
        # The leaves of a functional copy stand for trainable Variables, whatever they are.
        return tuple(found for _, found in self.named_variables() if getattr(found, "trainable", True))

    def __tape_node__(self) -> Any:
        """Return the leaves, the structure and the names of the leaves; see `tape_core.engine.pytree`."""
        leaves, skeleton = flatten_module(self)
        return leaves, skeleton, skeleton.names

    def __tape_is_whole__(self) -> bool:
        """Return whether all leaves are Variables still; see `tape_core.engine.pytree`."""
        return not holds_leaves(self)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this Module and of those in it; return the Module."""
        # This sets an attribute while `_walk` is under way. It is safe: `_walk` yields a Module before it iterates over
        # its attributes, so that no dictionary grows during an iteration.
        for _, module in self.named_modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Self:
        """Set the evaluation mode: `train(False)`."""
        return self.train(False)

    def to(self, backend: str | Backend, device: str | None = None) -> Self:
        """Move all Variables to a backend and device, in place; return the Module. If one cannot be moved, none is.

        What optimizers and averages have made for the Variables moves with them, and compiled functions are traced
        again. Layers without Variables make them where their first input is.

        >>> import tape_nn as nn
        >>> model = nn.Dense(3)
        >>> model.build((None, 2))
        >>> model.to("numpy").kernel.backend.name
        'numpy'

        Args:
            backend: a backend's name, with a device if wanted, or object: `"torch"`, `"torch:cuda:0"`.
            device: a device of the backend; by default its own default device.

        Raises:
            BackendError: there is no such backend or device.
            RuntimeError: inside a compiled function.
            TypeError: the backend lacks the dtype of a Variable.
        """
        placement.move_variables("Module.to", self.variables, backend, device)
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """Return the values of all Variables by name, as Tensors that later training does not change.

        The state of each random generator that calls draw from, such as `rng` of :class:`Dropout`, is an entry too.

        >>> import tape_core as tc
        >>> import tape_nn as nn
        >>> a, b = nn.Dense(2), nn.Dense(2)
        >>> a.build((None, 3)), b.build((None, 3))
        (None, None)
        >>> b.load_state_dict(a.state_dict())
        >>> bool(tc.all(a.kernel == b.kernel))
        True

        Raises:
            ValueError: a layer has not made its Variables yet, or two have one name.
        """
        # No copies: an assignment to a Variable replaces its array, and never writes to it.
        # The Tensors of a functional copy are returned themselves, since a derivative may be on its way through them.
        found: Mapping[str, Tensor] = named_state(self, "state_dict")
        values = {
            name: wrap(value.array, value.backend) if isinstance(value, Variable) else value
            for name, value in found.items()
        }
        return values | {name: state_tensor(generator) for name, generator in named_generators(self).items()}

    def load_state_dict(self, state: Mapping[str, ArrayLike], strict: bool = True) -> None:
        """Assign to all Variables, by name. Everything is checked before anything is changed.

        Args:
            state: Tensors of any backend, or arrays; each Variable keeps its backend and device.
            strict: whether every Variable must be in `state`, and every name in `state` be known. The states of random
                generators may be missing, as in files of older versions: these generators go on as they are.

        Raises:
            ValueError: a name is missing or unexpected, or a shape or dtype is not the Variable's: all of it is listed.
                Also where a layer has not made its Variables yet.
        """
        variables, generators = named_state(self, "load_state_dict"), named_generators(self)
        _check_is_original(self, "load_state_dict", variables)
        states, problems = states_in(state, self)
        # All differences are collected, and raised as one error: a person mends them in one go.
        if strict:
            if missing := [repr(name) for name in variables if name not in state]:
                problems.append("missing: " + ", ".join(missing))
            if unexpected := [repr(name) for name in state if name not in variables and name not in generators]:
                problems.append("unexpected: " + ", ".join(unexpected))
        new = []
        for name, variable in variables.items():
            if name not in state:
                continue
            value = state[name]
            if not isinstance(value, Tensor):
                value = tc.asarray(value, copy=True)
            if value.shape != variable.shape:
                problems.append(f"{name!r} has shape {value.shape}; the variable has {variable.shape}")
            # No cast, unlike PyTorch's: weights that lose digits on loading would go unnoticed. (A dtype is one object:
            # `is` compares.)
            elif value.dtype is not variable.dtype:
                problems.append(f"{name!r} has dtype {value.dtype}; the variable has {variable.dtype}")
            else:
                new.append((variable, value))
        if problems:
            raise ValueError(
                f"load_state_dict: the state does not fit {Module.__repr__(self)}:\n  " + "\n  ".join(problems)
            )
        # Conversions may fail: all of them come before the first assignment.
        placed = [tc.asarray(value, backend=v.backend, device=v.device) for v, value in new]
        assign_together([variable for variable, _ in new], placed)
        for generator, own in states:
            generator.set_state(own)

    def using(self, params: Parameters) -> AbstractContextManager[BoundValues]:
        """Give Variables other values inside a `with` block: those of a transformation, of another dtype or backend.

        >>> import tape_core as tc
        >>> import tape_nn as nn
        >>> model = nn.Sequential([nn.Dense(2), nn.BatchNorm()])
        >>> model.build((None, 3))
        >>> def loss(params, x):
        ...     with model.using(params) as values:
        ...         y = model(x)
        ...     return tc.sum(y**2), dict(values)
        >>> x = tc.linspace(0.0, 1.0, 12).reshape(4, 3)
        >>> gradients, state = tc.grad(loss, has_aux=True)(model.state_dict(), x)
        >>> bool(tc.any(state["layers.1.moving_mean"] != model.layers[1].moving_mean))
        True

        In the block the named Variables read as the values, and what is assigned to them is assigned there: the Module
        is as before when the block is left, however it is left. Other threads see the Module as it is. Blocks nest,
        and the innermost that names a Variable decides. A tape that is entered in the block watches the Variables; one
        that was entered before watches the values, if it is told to.

        Args:
            params: a mapping by the names of :meth:`state_dict`, which need not have all of them; or a sequence of
                values in the order of :attr:`trainable_variables`; or a Module with such values as leaves.

        Yields:
            A mapping from the names to the values, which are those assigned last. No derivative flows through an
            assignment.

        Raises:
            ValueError: an unknown name, another number of values or another shape; or a layer has not made its
                Variables yet.
            TypeError: a value is no array, or of a dtype of another kind.
        """
        return using(self, params)

    def save_weights(self, path: Path, metadata: Mapping[str, str] | None = None) -> None:
        """Write :meth:`state_dict` to a safetensors file, see :func:`save_tensors`.

        >>> import tempfile, os
        >>> import tape_core as tc
        >>> import tape_nn as nn
        >>> model = nn.Sequential([nn.Dense(3), nn.BatchNorm()])
        >>> model.build((None, 2))
        >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
        >>> model.save_weights(path, {"epoch": "3"})
        >>> model.load_weights(path)
        {'epoch': '3'}
        """
        from tape_nn.checkpoints import save_tensors

        save_tensors(path, self.state_dict(), metadata)

    def load_weights(self, path: Path, strict: bool = True) -> dict[str, str]:
        """Read a file that :meth:`save_weights` wrote, on any backend, into the Variables; return the metadata.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged, or does not fit: see :meth:`load_state_dict`.
        """
        from tape_nn.checkpoints import load_tensors

        state, metadata = load_tensors(path, like=named_state(self, "load_weights"))
        self.load_state_dict(state, strict)
        return metadata

    def summary(self) -> Summary:
        """A table of the Modules that hold Variables, to be printed.

        >>> import tape_nn as nn
        >>> model = nn.Sequential([nn.Dense(3), nn.BatchNorm()])
        >>> model.build((None, 2))
        >>> print(model.summary())
        Name      Module     Variables                                                                  Parameters
        --------  ---------  -------------------------------------------------------------------------  ----------
        layers.0  Dense      kernel (2, 3), bias (3,)                                                            9
        layers.1  BatchNorm  gamma (3,), beta (3,), moving_mean (3,) fixed, moving_variance (3,) fixed          12
        21 parameters, 15 of them trainable
        """
        from tape_nn.summary import Summary

        return Summary(self)

    @lenient
    def __repr__(self) -> str:
        variables = self.variables
        parameters = sum(getattr(variable, "size", 0) for variable in variables)
        name = type(self).__name__
        if not variables and not getattr(self, "built", True):
            return f"<{name}: not built>"
        return f"<{name}: {counted(len(variables), 'variable')}, {counted(parameters, 'parameter')}>"

    @lenient_html
    def _repr_html_(self) -> str:
        """Return the display in a notebook: :meth:`summary`, where there is something to list."""
        variables = self.variables
        # The values of a functional copy are no Variables that a table could name.
        if all([isinstance(variable, Variable) for variable in variables]):
            from tape_nn.summary import Summary

            table = Summary(self)
            if table.rows:
                return f"<p>{escape(type(self).__name__)}</p>{table._repr_html_()}"
        return f"<pre>{escape(repr(self))}</pre>"


hint_at_names(Module, "Module")


def _check_is_original(module: Module, method: str, variables: Mapping[str, Tensor]) -> None:
    """Raise a TypeError for a functional copy, which has no Variables to assign to."""
    for name, found in variables.items():
        if not isinstance(found, Variable):
            raise TypeError(
                f"{method}: {name!r} of {type(module).__name__} is no Variable but a value, since this Module was made "
                "by a transformation; use the Module that it stems from"
            )


def _walk(value: object, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the Modules and the Variables in a value, depth first, each once; `seen` has the ids of those met.

    The leaves of a functional copy count as Variables.
    """
    if isinstance(value, Variable):
        if id(value) not in seen:
            seen.add(id(value))
            yield path, value
        return
    children: Iterable[tuple[object, object]]
    if isinstance(value, Module):
        if LEAVES in vars(value):
            yield from _walk_copy(value, path, seen, (), leaves_in(value))
            return
        children = vars(value).items()
    elif isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple):
        children = enumerate(value)
    else:
        return
    if id(value) in seen:  # shared, or a child that holds its parent
        return
    seen.add(id(value))
    if isinstance(value, Module):
        yield path, value
    for key, child in children:
        yield from _walk(child, f"{path}.{key}" if path else str(key), seen)


def _walk_copy(
    value: object, path: str, seen: set[int], place: Place, places: Mapping[Place, object]
) -> Iterator[tuple[str, Any]]:
    """Do the same for what is at a place of a functional copy; `places` has its leaves."""
    if (token := places.get(place)) is not None:
        if id(token) not in seen:  # tied leaves have one token
            seen.add(id(token))
            yield path, value
        return
    if place and not isinstance(value, dict | list | tuple):
        yield from _walk(value, path, seen)
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if not place:
        yield path, value
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if place else vars(value).items()  # type: ignore[arg-type]
    for key, child in items:
        if place or key != LEAVES:
            yield from _walk_copy(child, f"{path}.{key}" if path else str(key), seen, (*place, key), places)
