"""tf.Module: an object that finds the Variables in its attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import tape_core as tc
import tape_nn as nn
from tape_core.support import pytree

from tape_tf.variable import NAME_SCOPE, Variable


class Module:
    """Base class of models and layers: objects with Variables in their attributes.

    Variables are found in attributes, by sorted name, in Modules held as attributes, and in lists, tuples and dicts of
    them, nested to any depth. Nothing is registered: `super().__init__()` is needed for the name only.

    >>> import tape_tf as tf
    >>> class Line(tf.Module):
    ...     def __init__(self, name=None):
    ...         super().__init__(name=name)
    ...         self.w = tf.Variable(2.0)
    ...         self.b = tf.Variable(1.0, trainable=False)
    ...     def __call__(self, x):
    ...         return self.w * x + self.b
    >>> line = Line()
    >>> len(line.trainable_variables), len(line.variables), line.name
    (1, 2, 'line')
    """

    def __init__(self, name: str | None = None) -> None:
        # TensorFlow's rule and message: the name becomes a part of the names of Variables.
        if name is not None and not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"{name!r} is not a valid module name. Module names must be valid Python identifiers.")
        self._name = name

    def __setattr__(self, name: str, value: object) -> None:
        # Attributes are not registered: this is only for checkpoints that were restored before all Variables existed.
        object.__setattr__(self, name, value)
        waiting = self.__dict__.get("_deferred")
        if waiting is not None:  # a checkpoint restored before this Variable existed has a value for it
            waiting.on_new_objects()

    @property
    def name(self) -> str:
        """The name given, or the class's in snake case."""
        given: str | None = getattr(self, "_name", None)
        return given or re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(self).__name__).lower()

    @property
    def name_scope(self) -> NameScope:
        """A context that puts the module's name in front of the names of new Variables."""
        return NameScope(self.name)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All Variables in the module and its submodules, each once."""
        return tuple(leaf for leaf in _walk(self, {id(self)}) if isinstance(leaf, Variable))

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """The Variables whose `trainable` is True."""
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Variable, ...]:
        """The Variables whose `trainable` is False."""
        return tuple(variable for variable in self.variables if not variable.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The Modules in it, at any depth, each once."""
        return tuple(leaf for leaf in _walk(self, {id(self)}) if isinstance(leaf, Module | nn.Module))

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: run a method in :attr:`name_scope`."""

        @wraps(method)
        def scoped(self: Module, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return scoped


class NameScope:
    """A context that puts a prefix in front of the names of new Variables: `with tf.name_scope("layer"): ...`.

    >>> import tape_tf as tf
    >>> with tf.name_scope("layer"):
    ...     w = tf.Variable(1.0, name="w")
    >>> w.name
    'layer/w:0'
    """

    def __init__(self, name: str) -> None:
        self._name = str(name)
        # A stack, since one scope object may be entered again inside itself.
        self._tokens: list[Any] = []

    @property
    def name(self) -> str:
        """The whole prefix, with those of the scopes around it."""
        return f"{NAME_SCOPE.get()}{self._name}/"

    def __enter__(self) -> str:
        prefix = self.name
        self._tokens.append(NAME_SCOPE.set(prefix))
        return prefix

    def __exit__(self, *exc_info: object) -> None:
        NAME_SCOPE.reset(self._tokens.pop())


def _walk(module: object, seen: set[int]) -> Iterator[Any]:
    """Yield the Variables and Modules in a module, each once, breadth first: its own, then those of its submodules."""
    # Ids of the core's objects tell them apart: a Variable of the façade and the core's own are one.
    inner = []
    # By sorted name, as tf.Module does: the order of `variables` is part of its contract.
    for _, value in sorted(vars(module).items()):
        for leaf in pytree.flatten_whole(value)[0]:
            found = Variable.of(leaf) if isinstance(leaf, tc.Variable) else leaf
            if not isinstance(found, Variable | Module | nn.Module):
                continue
            name = id(found.native) if isinstance(found, Variable) else id(found)
            if name not in seen:
                seen.add(name)
                yield found
                if not isinstance(found, Variable):
                    inner.append(found)
    for found in inner:
        if isinstance(found, Module) and type(found).variables is Module.variables:
            yield from _walk(found, seen)
        else:  # a Keras layer lists its weights in Keras's order, not by attribute name
            for variable in found.variables:
                variable = Variable.of(variable) if isinstance(variable, tc.Variable) else variable
                if id(variable.native) not in seen:
                    seen.add(id(variable.native))
                    yield variable
