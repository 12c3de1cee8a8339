"""Errors for names that Tape does not have: they say what the same thing is called here."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple

from tape_core.base.lookup import instead_of_scipy, tool
from tape_core.base.mistakes import most_like
from tape_core.base.user_code import warn_user
from tape_core.engine import elsewhere


class Hints(NamedTuple):
    """What is said of absent names of one namespace.

    Attributes:
        called: by name an expression to write in its place.
        said: by name a clause that says more.
        prefix: stands before the namespace's own names: `tc.linalg.`
        numpy: the attribute of the module `numpy` whose functions have these names, "" for itself; None if none has.
    """

    called: Mapping[str, str]
    said: Mapping[str, str]
    prefix: str
    numpy: str | None = None


_RANDOM: Final = {
    name: said.replace("rng.", "tc.default_rng(seed).")
    for name, said in elsewhere.GENERATOR.items()
    if name not in elsewhere.RANDOM_SAID
}  # JAX's and NumPy's functions are methods of generators here

HINTS: Final = {
    "tape_core": Hints(elsewhere.CORE, elsewhere.CORE_SAID, "tc.", ""),
    "tape_core.linalg": Hints(elsewhere.LINALG, {}, "tc.linalg.", "linalg"),
    "tape_core.fft": Hints(elsewhere.FFT, {}, "tc.fft.", "fft"),
    "tape_core.special": Hints(elsewhere.SPECIAL, {}, "tc.special."),
    "tape_core.stats": Hints({}, {}, "tc.stats."),
    "tape_core.scipy": Hints({}, elsewhere.SCIPY_SAID, "tc.scipy."),
    "tape_core.scipy.linalg": Hints(elsewhere.SCIPY_LINALG, {}, "tc.scipy.linalg."),
    "tape_core.scipy.integrate": Hints({}, {}, "tc.scipy.integrate."),
    "tape_core.scipy.interpolate": Hints({}, {}, "tc.scipy.interpolate."),
    "tape_core.scipy.ndimage": Hints({}, {}, "tc.scipy.ndimage."),
    "tape_core.scipy.signal": Hints({}, {}, "tc.scipy.signal."),
    "tape_core.random": Hints(_RANDOM, elsewhere.RANDOM_SAID, "tc.random."),
    "Generator": Hints(elsewhere.GENERATOR, {}, "rng."),
    "Tensor": Hints(elsewhere.TENSOR, elsewhere.TENSOR_SAID, "x."),
}
"""The namespaces whose absent names have hints."""

_MOVED = {
    ("tape_core", "dtypes"): ("tape_core.base.dtypes", "tape_core.support.dtypes"),
    ("tape_core", "pytree"): ("tape_core.engine.pytree", "tape_core.support.pytree"),
}
"""Modules that were attributes of a package by accident of being imported: where they are, and their public names."""


class MissingError(AttributeError):
    """An AttributeError whose text is made when it is shown: libraries ask for thousands of absent names."""

    def __init__(
        self, space: str, owner: str, absent: str, names: Callable[[], Iterable[str]], instead: str = ""
    ) -> None:
        super().__init__(space, absent, obj=None)  # so that Python adds no suggestion of its own
        self._space, self._owner, self._absent, self._names = space, owner, absent, names
        self._instead = instead

    def __str__(self) -> str:
        hint = f"; {self._instead}" if self._instead else _hint(self._space, self._absent, self._names)
        return f"{self._owner} has no attribute {self._absent!r}{hint}"

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


# Tracebacks show the error that users know.
MissingError.__module__, MissingError.__qualname__ = "builtins", "AttributeError"


def _hint(space: str, name: str, names: Callable[[], Iterable[str]]) -> str:
    hints = HINTS[space]
    if name.startswith("_"):
        return ""
    known = [one for one in names() if not one.startswith("_")]
    text = ""
    plain = name.rstrip("_") if space == "Tensor" else name  # `requires_grad_`, `backward_`
    if (said := hints.said.get(plain)) is not None:
        text = f"; {said}"
    elif (here := _here(space, name, known)) is not None:
        # A name stands for another; an expression shows how it is written.
        text = f"; it is {here} here" if here.replace(".", "").isidentifier() else f"; write {here}"
        text += "; tensors are not changed in place" * (space == "Tensor" and name.endswith("_"))
    # Not imported for a message: whoever means NumPy's function has imported it.
    if hints.numpy is not None and "numpy" in sys.modules:
        full = f"{hints.numpy}.{name}" if hints.numpy else name
        if tool("answers_numpy")(full):
            return f"{text} (numpy.{full} takes Tensors{', too' if text else ''})"
    if not text and (close := most_like(name, known, cutoff=0.75)) is not None:
        return f"; did you mean {hints.prefix}{close}?"
    return text


def _here(space: str, name: str, known: list[str]) -> str | None:
    """Return what to write in place of a name of a namespace, if that is known."""
    if (called := HINTS[space].called.get(name)) is not None:
        return called
    if space == "Tensor":
        return _as_function(name, known)
    if space == "Generator":
        return None
    generator = sys.modules["tape_core"].Generator
    if space in ("tape_core", "tape_core.random") and hasattr(generator, name) and not hasattr(object, name):
        return f"tc.default_rng(seed).{name}(...)"
    return _elsewhere(name)


def _elsewhere(name: str) -> str | None:
    """Return how a public name of another namespace is spelled: `tc.linalg.expm` for `tc.expm`."""
    for module in ("tape_core", "tape_core.linalg", "tape_core.special", "tape_core.fft"):
        if name in getattr(sys.modules[module], "__all__", ()):
            return HINTS[module].prefix + name
    return None


def _as_function(name: str, names: Iterable[str] = ()) -> str | None:
    """Return what to write in place of a method that Tensors do not have, `tc.sin(x)`; None if that is not known."""
    if name.endswith("_"):
        plain = name.rstrip("_")
        instead = f"x.{plain}(...)" if plain in names else _as_function(plain)
        return instead and f"x = {instead}"
    spelled = _elsewhere(name) or elsewhere.CORE.get(name)
    if spelled is None or not spelled.startswith("tc.") or "(" in spelled:
        return spelled
    found: Any = sys.modules["tape_core"]
    for part in spelled.split(".")[1:]:
        found = getattr(found, part)
    if not callable(found) or isinstance(found, type):
        return None
    needed = [p for p in inspect.signature(found).parameters.values() if p.default is p.empty]
    return f"{spelled}(x{', ...' * (len(needed) > 1)})"


class Absent:
    """A descriptor in the place of a method or attribute that Tensors do not have: to ask for it raises, with a hint.

    `__getattr__` would do for all names, but a class that has it is slower in every access to an attribute.
    """

    __slots__ = ("name",)

    names: ClassVar[set[str]] = set()
    """All names that there are descriptors for; see `without_absent`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names.add(name)

    def __get__(self, instance: object, owner: type) -> Any:
        raise self._error(owner)

    def _error(self, owner: type) -> MissingError:
        # Code of SciPy's asks for what NumPy's arrays have; one look at the caller, since libraries ask for many names.
        caller = sys._getframe(2)
        in_scipy = str(caller.f_globals.get("__name__", "")).startswith("scipy.")
        instead = instead_of_scipy(caller) if in_scipy else ""
        return MissingError("Tensor", f"{owner.__name__!r} object", self.name, lambda: dir(owner), instead)


class AbsentAndSet(Absent):
    """An `Absent` for what users of other libraries assign: `x.requires_grad = True`."""

    __slots__ = ()

    def __get__(self, instance: object, owner: type) -> Any:
        try:
            return instance.__dict__[self.name]  # of a class that is derived from Tensor, with an attribute of its own
        except (AttributeError, KeyError):
            raise self._error(owner) from None

    def __set__(self, instance: object, value: object) -> None:
        try:
            instance.__dict__[self.name] = value
        except AttributeError:
            raise self._error(type(instance)) from None


def without_absent(kind: type, names: Iterable[str]) -> list[str]:
    """Return the names without those of descriptors that say that there is no such attribute."""
    return [name for name in names if name not in Absent.names or not _is_absent(kind, name)]


def _is_absent(kind: type, name: str) -> bool:
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return isinstance(found, Absent)  # a Variable has some of them: `assign`


def attach_absent(kind: type, functions: Iterable[str]) -> None:
    """Give the class Tensor a descriptor for each name known to be absent: methods elsewhere, functions here."""
    known = {*elsewhere.TENSOR, *elsewhere.TENSOR_SAID, *elsewhere.CORE, *functions}
    for name in known.union([f"{name}_" for name in known]):
        if not hasattr(kind, name):
            setattr(kind, name, (AbsentAndSet if name in ("data", "grad", "requires_grad") else Absent)(name))


def absent_attribute(space: str, names: Callable[[], Iterable[str]]) -> Callable[[Any, str], Any]:
    """Return the `__getattr__` of a class: it raises an AttributeError that says what is here in place of a name."""

    def __getattr__(self: Any, name: str) -> Any:
        if hasattr(type(self), name):  # a property that has raised an AttributeError of its own: that one is told
            return object.__getattribute__(self, name)
        raise MissingError(space, f"{type(self).__name__!r} object", name, names)

    return __getattr__


def missing(module: str, names: Callable[[], list[str]], parts: Collection[str] = ()) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module, which raises an AttributeError that says which name is meant.

    Modules of the package that are among its `parts` are imported when they are first asked for.
    """

    def __getattr__(name: str) -> Any:
        if name in parts:
            return import_module(f"{module}.{name}")
        if (module, name) in _MOVED:
            found, public_name = _MOVED[module, name]
            warn_user(f"{module}.{name} is {public_name} now", DeprecationWarning)
            return import_module(found)
        raise MissingError(module, f"module {module!r}", name, names)

    return __getattr__
