"""Compiled methods, of which each instance has its own, and how decorated functions are copied and pickled.

An instance has its compiled functions in an attribute, and they do not keep it alive: they know it by a weak reference.
What `instance.method` gives does keep it alive, as a method does: it is another object with the same attributes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary, ref

_new = object.__new__
METHODS = "_compiled_methods"  # the attribute in which an instance has them


class Methods(dict[Any, Any]):
    """The compiled methods of one instance; copies and pickles of the instance make their own."""

    def __reduce__(self) -> Any:
        return Methods, ()

    @staticmethod
    def find(instance: Any, key: Any, make: Callable[[], Any], name: str = METHODS) -> Any:
        """What an instance has under a key in the attribute `name`; `make` makes it at first.

        Raises:
            TypeError: it has slots alone, or cannot be referenced weakly.
        """
        if isinstance(instance, type):  # of a class method; its attributes would be those of subclasses, too
            kept = _OF_CLASSES.setdefault(instance, {}).setdefault(name, Methods())
        else:
            kept = vars(instance).setdefault(name, Methods())
        # A shallow copy of an instance has the same dict, and may have the id of one that is gone.
        place = key, id(instance)
        entry = kept.get(place)
        if entry is not None and entry[0]() is instance:
            return entry[1]
        made = ref(instance), make()
        if entry is not None:
            kept[place] = made
            return made[1]
        # Of several threads that make one at once, all take the first.
        return kept.setdefault(place, made)[1]


_OF_CLASSES: WeakKeyDictionary[type, dict[str, Methods]] = WeakKeyDictionary()


class WeakMethod:
    """A method of an instance that does not keep the instance alive."""

    def __init__(self, function: Callable[..., Any], instance: Any) -> None:
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))
        self.__func__ = function
        self._instance = ref(instance)

    @property
    def __self__(self) -> Any:
        instance = self._instance()
        if instance is None:
            raise ReferenceError(f"{self.__func__!r} is called as a method of an object that is gone")
        return instance

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(MethodType(self.__func__, self.__self__))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    @staticmethod
    def of(method: Any, instance: Any) -> Any:
        """The same of a method, if it is one of this instance, and is not another callable."""
        return WeakMethod(method.__func__, instance) if getattr(method, "__self__", None) is instance else method


class Bound:
    """A mixin for what `instance.method` gives: what the instance has compiled, and the instance, kept alive.

    It has the dict of the other object, so that both are the same in everything.
    """

    _bound_to: tuple[Any, Any]  # the decorated function and the instance, in a slot
    _unbound_ref: Any  # a reference to what the instance has

    @classmethod
    def to(cls, decorated: Any, instance: Any, compiled: Any) -> Any:
        """One for a decorated function and an instance that has this."""
        made = _new(cls)
        made.__dict__ = compiled.__dict__
        made._bound_to = decorated, instance
        return made

    @property
    def __self__(self) -> Any:
        """The instance."""
        return self._bound_to[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.__dict__ is other.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)

    def __reduce__(self) -> Any:
        return _bound, self._bound_to


def unbound(value: Any) -> Any:
    """What an instance has, for what `instance.method` gives; any other value is itself."""
    return value._unbound_ref() if isinstance(value, Bound) else value


def _bound(decorated: Any, instance: Any) -> Any:
    return decorated.__get__(instance, type(instance))


def found_by_name(decorated: Any, python: Callable[..., Any]) -> str | None:
    """The name of a decorated function, if that leads to it."""
    name = getattr(python, "__qualname__", "")
    found: Any = sys.modules.get(getattr(python, "__module__", ""))
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is decorated else None
