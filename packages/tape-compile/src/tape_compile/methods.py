"""Compiled methods: each instance has its own traces; and how decorated functions are copied and pickled.

An instance keeps its compiled functions in the attribute `METHODS`. They refer to it weakly, so they do not keep it
alive. `instance.method` returns another object (`Bound`) that shares their `__dict__` and does keep the instance alive,
as Python's own bound methods do.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary, ref

_new = object.__new__
METHODS = "_compiled_methods"  # the attribute of an instance with its compiled methods


class Methods(dict[Any, Any]):
    """The compiled methods of one instance; copies and pickles of the instance make their own."""

    def __reduce__(self) -> Any:
        return Methods, ()

    @staticmethod
    def find(instance: object, key: Hashable, make: Callable[[], Any], name: str = METHODS) -> Any:
        """Return the entry of an instance under a key in its attribute `name`; `make` makes it the first time.

        Raises:
            TypeError: the instance has `__slots__` alone, or cannot be referenced weakly.
        """
        if isinstance(instance, type):  # a class method; an attribute of the class would be inherited by subclasses
            kept = _METHODS_OF_CLASSES.setdefault(instance, {}).setdefault(name, Methods())
        else:
            kept = vars(instance).setdefault(name, Methods())
        # Shallow copies share one dict, so the key has the id; that may be reused, so the weak reference decides.
        place = key, id(instance)
        entry = kept.get(place)
        if entry is not None and entry[0]() is instance:
            return entry[1]
        made = ref(instance), make()
        if entry is not None:
            kept[place] = made
            return made[1]
        # `setdefault` is atomic: threads that make an entry at once all take the first.
        return kept.setdefault(place, made)[1]


_METHODS_OF_CLASSES: WeakKeyDictionary[type, dict[str, Methods]] = WeakKeyDictionary()


class WeakMethod:
    """A method of an instance that does not keep the instance alive."""

    def __init__(self, function: Callable[..., Any], instance: object) -> None:
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
    def of(method: Any, instance: object) -> Any:
        """Return a bound method of this instance as a `WeakMethod`; any other callable is returned itself."""
        return WeakMethod(method.__func__, instance) if getattr(method, "__self__", None) is instance else method


class Bound:
    """A mixin for the value of `instance.method`: the compiled function of the instance, which it keeps alive.

    It shares the `__dict__` of that function, so the two have all state in common.
    """

    _bound_to: tuple[Any, Any]  # the decorated function and the instance, in a slot
    _unbound_ref: Any  # a weak reference to the compiled function of the instance

    @classmethod
    def to(cls, decorated: object, instance: object, compiled: object) -> Any:
        """Bind the compiled function of an instance to it."""
        made = _new(cls)
        # One dict for both: a trace that one gets is there for the other, and an access of the method copies nothing.
        made.__dict__ = compiled.__dict__
        made._bound_to = decorated, instance
        return made

    @property
    def __self__(self) -> Any:
        """The instance."""
        return self._bound_to[1]

    def __eq__(self, other: object) -> bool:
        # Each access of `instance.method` makes another object; those of one instance are equal, as bound methods are.
        return isinstance(other, Bound) and self.__dict__ is other.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)

    def __reduce__(self) -> Any:
        return _bind_method, self._bound_to


def unbound(value: object) -> Any:
    """Return the compiled function behind `instance.method`, which the instance keeps; any other value itself."""
    return value._unbound_ref() if isinstance(value, Bound) else value


def _bind_method(decorated: Any, instance: object) -> Any:
    return decorated.__get__(instance, type(instance))


def importable_name(decorated: object, python: Callable[..., Any]) -> str | None:
    """Return the qualified name by which a pickle can refer to a decorated function; None if it leads elsewhere."""
    name = getattr(python, "__qualname__", "")
    found: Any = sys.modules.get(getattr(python, "__module__", ""))
    # A function defined inside another has "<locals>" in its name, which no module has as an attribute.
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is decorated else None
