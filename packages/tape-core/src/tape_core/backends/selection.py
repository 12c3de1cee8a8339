"""Selection of the backend and device of new arrays.

The first of these decides: an explicit argument, the innermost `use_backend`, `set_backend`, the environment variable
`TAPE_BACKEND` (read at first need), numpy if it is installed, the only backend installed. There is no falling back from
one to the next: a backend that is asked for and cannot be used is an error.

Ops on existing arrays do not ask here: they run on the backend of their operands.
"""

from __future__ import annotations

import os
import re
from contextlib import ContextDecorator
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tape_core.backends import discovery
from tape_core.backends.errors import BackendError, listing, load_error, not_found
from tape_core.backends.protocol import Backend
from tape_core.base.ambient import SELECTIONS
from tape_core.base.contexts import Leaving
from tape_core.base.installing import install_command


class Selection(NamedTuple):
    """A backend, the device to use with it (None: the backend's default), and why it was chosen."""

    backend: Backend
    device: str | None
    reason: str


_process: Selection | None = None  # set_backend
_default: Selection | None = None  # from TAPE_BACKEND or what is installed, once found
_specs: dict[str, tuple[Backend, str | None]] = {}  # the backend and device of each text that was asked for


def _reset() -> None:
    """Forget every choice and everything loaded. For tests."""
    global _process, _default
    SELECTIONS.set(())
    _process = _default = None
    _specs.clear()
    discovery._reset()


def select(backend: str | Backend | None = None, device: Any = None) -> Selection:
    """Return the backend and device for a new array.

    Args:
        backend: a name (`"torch"`), a name with a device (`"torch:cuda:0"`), a Backend, or for
            development `"module:attribute"`, a Backend or a function that returns one. None is
            the selected backend.
        device: a device of the backend. None is the one selected with the backend, else the
            backend's default.

    >>> select("numpy").reason
    "backend='numpy'"

    Raises:
        BackendError: there is no such backend or device, or it cannot be used.
    """
    if backend is not None:
        return _resolve(backend, device, "backend")
    contexts = SELECTIONS.get()
    selected = contexts[-1] if contexts else _process or _default or _find_default()
    if device is None:
        return selected
    return Selection(selected.backend, _device(selected.backend, str(device)), selected.reason)


def get_backend() -> Backend:
    """Return the selected backend, on which new arrays are made.

    >>> with use_backend("numpy"):
    ...     get_backend().name
    'numpy'
    """
    return select().backend


def set_backend(backend: str | Backend | None, device: Any = None) -> None:
    """Select a backend for the whole process; None undoes it.

    Args:
        backend, device: as in :func:`use_backend`.

    >>> set_backend("numpy")
    >>> get_backend().name
    'numpy'
    >>> set_backend(None)
    """
    global _process
    _process = None if backend is None else _resolve(backend, device, "set_backend")


class use_backend(ContextDecorator):
    """Select a backend for a block of code, in this thread or asyncio task; also a decorator.

    The innermost block decides. Unknown names raise here, not at first use.

    Args:
        backend: a name (`"torch"`), a name with a device (`"torch:cuda:0"`), a Backend, or for
            development `"module:attribute"`.
        device: a device of the backend; None is the backend's default.

    >>> with use_backend("numpy") as backend:
    ...     backend.name
    'numpy'
    """

    def __init__(self, backend: str | Backend, device: Any = None) -> None:
        self._selection = _resolve(backend, device, "use_backend")
        self._guard: Any = None

    def __enter__(self) -> Backend:
        SELECTIONS.set((*SELECTIONS.get(), self._selection))
        return self._selection.backend

    def _leave(self, *exc_info: object) -> None:
        # Remove this block and not simply the top: generators may leave their blocks out of order.
        contexts = SELECTIONS.get()
        for k in reversed(range(len(contexts))):
            if contexts[k] is self._selection:
                SELECTIONS.set(contexts[:k] + contexts[k + 1 :])
                break
        self._guard = None

    def _entered(self) -> bool:
        return any([selection is self._selection for selection in SELECTIONS.get()])

    if TYPE_CHECKING:

        def __exit__(self, *exc_info: object) -> None: ...

    else:
        __exit__ = Leaving(_leave, _leave, _entered)


# -- resolving names


def _resolve(backend: str | Backend, device: Any, origin: str) -> Selection:
    """Return a selection that was made explicitly, by the argument or function named `origin`."""
    if isinstance(backend, Backend):
        found, within = backend, None
    elif isinstance(backend, str):
        try:
            found, within = _specs[backend]
        except KeyError:
            found, within = _specs[backend] = _parse(backend)
    else:
        raise TypeError(f"backend must be a name or a Backend, not {backend!r}")
    if device is not None:
        device = _device(found, str(device))
        if within is not None and within != device:
            raise BackendError(f"{backend!r} names a device, and device={device!r} is another one")
    return Selection(found, device or within, _reason(backend, device, origin))


def _reason(backend: str | Backend, device: str | None, origin: str) -> str:
    shown = repr(backend if isinstance(backend, str) else backend.name)
    if origin == "backend":
        return f"backend={shown}"
    return f"{origin}({shown}{f', device={device!r}' if device else ''})"


def _parse(spec: str) -> tuple[Backend, str | None]:
    """Return the backend and device of `name`, `name:device` or `module:attribute`."""
    # An installed backend goes first: torch:cuda is a device of that backend, and no attribute of the module torch.
    name, colon, rest = spec.partition(":")
    if not colon or discovery.is_installed(name):
        backend = discovery.load(name)
        return backend, _device(backend, rest) if colon else None
    if re.fullmatch(r"[^\W\d]\w*(\.\w+)*:[^\W\d]\w*(\.\w+)*", spec):
        return _from_module(spec, name, rest), None
    raise not_found(name, discovery.installed(), f" (asked for as {spec!r})")


def _from_module(spec: str, module: str, attribute: str) -> Backend:
    """Return a backend from a module, which has it or a function that makes it: without a package, for development."""
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        # The module itself may be missing, or one that it imports: the latter is its own fault, and is shown as such.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise load_error(f"backend {spec!r}", f"importing {module} raised {error!r}") from error
        detail = f", nor is there a module {error.name!r} (asked for as {spec!r})"
        raise not_found(module, discovery.installed(), detail) from error
    except Exception as error:
        raise load_error(f"backend {spec!r}", f"importing {module} raised {error!r}") from error
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
        if not isinstance(found, Backend) and callable(found):
            found = found()
    except Exception as error:
        raise load_error(f"backend {spec!r}", f"{attribute} raised {error!r}") from error
    if not isinstance(found, Backend):
        # For a name whose package is missing but whose library is not: torch:cuda.
        detail = f", and {spec!r} read as module:attribute is {found!r}, not a Backend"
        raise not_found(module, discovery.installed(), detail)
    return found


@lru_cache(maxsize=64)
def _device(backend: Backend, device: str) -> str:
    """Return the device if the backend has it; `cuda` stays `cuda`, which may be another one at another time."""
    backend.find_device(device)
    return device


def _find_default() -> Selection:
    """Select by the environment, or else by what is installed; the answer holds for the whole process."""
    global _default
    spec = os.environ.get("TAPE_BACKEND", "").strip()
    if spec:
        try:
            _default = Selection(*_parse(spec), f"TAPE_BACKEND={spec}")
        except BackendError as error:
            error.args = (f"{error}\n  It was asked for by TAPE_BACKEND={spec}",)
            raise
    else:
        name, reason = _preferred()
        _default = Selection(discovery.load(name), None, reason)
    return _default


def _preferred() -> tuple[str, str]:
    names, all_names = discovery.enabled(), discovery.installed()
    if "numpy" in names:
        return "numpy", "numpy is installed"
    if len(names) == 1:
        return names[0], f"the only backend {'installed' if len(all_names) == 1 else 'enabled'}"
    if names:
        raise BackendError(
            f"several backends are installed and none is selected: {listing(names)}\n"
            f"  Select one: TAPE_BACKEND={names[0]} in the environment, set_backend({names[0]!r}), "
            f"or with use_backend({names[0]!r}): ..."
        )
    if all_names:
        value = os.environ.get("TAPE_DISABLE_BACKENDS", "")
        raise BackendError(
            f"every installed backend ({listing(all_names)}) is disabled by TAPE_DISABLE_BACKENDS={value}"
        )
    raise BackendError(f"no backend is installed\n  To install one: {install_command('tape-numpy')}")
