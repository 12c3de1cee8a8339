"""Results of kernels that are taken again: what `checkpoint` with a policy keeps.

An op whose results a policy keeps gets a kernel that asks here first. It notes what it gives, in order, and when the
same function runs again gives that, in place of computing it. This is done on the arrays of the library itself: all
that stands above, tapes, accumulators and batches, sees the ops as ever.

In a compiled function the branches and bodies of cond, while_loop and scan are programs of their own, of which nothing
can be kept outside, or are laid out where something records, which need not be so in both runs: there they are computed
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import Token
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from tape_core.base.ambient import REPLAY
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine.rules import spec_of
from tape_core.staging import current

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Kernels, Op

Compute = Callable[[], Any]
F = TypeVar("F", bound=Callable[..., Any])


class Kept:
    """What the kernels of some ops on some backends gave in one run of a function."""

    __slots__ = ("backends", "calls", "names")

    def __init__(self, ops: list[Op], backends: set[Backend]) -> None:
        self.names = frozenset([op.name for op in ops])
        self.backends = frozenset(backends)
        self.calls: list[tuple[Any, Any]] = []
        for op in ops:
            for backend in backends:
                op.intercept(backend, _asking)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A context in which the kernels' results are noted."""
        with _as(_Noting(self)):
            yield

    @contextmanager
    def given(self) -> Iterator[None]:
        """A context in which they are given again, in the order in which they were noted.

        Raises:
            RuntimeError: the kernels are not called as they were.
        """
        giving = _Giving(self)
        with _as(giving):
            yield
        if giving.next != len(self.calls):
            raise different(f"it called {giving.next} ops whose results are kept, and {len(self.calls)} before")


class Session:
    """A run of a function whose kernels ask. It may be inside another, which is asked for what this one computes."""

    __slots__ = ("around", "kept", "next")

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.around: Session | None = REPLAY.get()
        self.next = 0

    def answer(self, call: tuple[str, Any], compute: Compute) -> Any:
        raise NotImplementedError


class _Noting(Session):
    def answer(self, call: tuple[str, Any], compute: Compute) -> Any:
        pair = compute()
        self.kept.calls.append((call, pair))
        return pair


class _Giving(Session):
    def answer(self, call: tuple[str, Any], compute: Compute) -> Any:
        if self.next >= len(self.kept.calls):
            raise different(f"it called {_shown(call)} once more")
        noted, pair = self.kept.calls[self.next]
        if noted != call:
            raise different(f"it called {_shown(call)}, where it had called {_shown(noted)}")
        self.next += 1
        return pair


def _concerned(session: Session | None, name: str, backend: Backend) -> Session | None:
    while session is not None and not (name in session.kept.names and backend in session.kept.backends):
        session = session.around
    return session


def _ask(session: Session | None, backend: Backend, call: tuple[str, Any], compute: Compute) -> Any:
    """A result, and what the kernel keeps for rules with it."""
    session = _concerned(session, call[0], backend)
    if session is None:
        return compute()
    around = session.around
    return session.answer(call, lambda: _ask(around, backend, call, compute))


@contextmanager
def _as(what: Session) -> Iterator[None]:
    with setting(REPLAY, what):
        yield


def paused() -> Any:
    """Compute everything from here on, until :func:`resumed` gets what this returns: for what was not there before."""
    return None if REPLAY.get() is None else REPLAY.set(None)


def resumed(token: Token[Session | None] | None) -> None:
    """Go on."""
    if token is not None:
        REPLAY.reset(token)


def is_at_work() -> bool:
    """Whether results are noted or given here."""
    return REPLAY.get() is not None


def computed_again(run: F) -> F:
    """A function that runs branches or steps of a loop, and in a compiled function keeps nothing of them."""

    @wraps(run)
    def runs(*args: Any) -> Any:
        if REPLAY.get() is None or current() is None:
            return run(*args)
        with setting(REPLAY, None):
            return run(*args)

    return runs  # type: ignore[return-value]


def _asking(op: Op, backend: Backend, kernels: Kernels) -> Kernels:
    """Return kernels that ask the session of their context, if there is one, before they compute."""
    kernel, keeping = kernels
    name = op.name

    def asking(*args: Any, **kwargs: Any) -> Any:
        session = REPLAY.get()
        if session is None or _concerned(session, name, backend) is None:
            return kernel(*args, **kwargs)
        return _ask(session, backend, (name, _specs(args)), lambda: both(*args, **kwargs))[0]

    def asking_keeping(*args: Any, **kwargs: Any) -> Any:
        session = REPLAY.get()
        if session is None:
            return keeping(*args, **kwargs)  # type: ignore[misc]  # it is bound where there is one
        return _ask(session, backend, (name, _specs(args)), lambda: both(*args, **kwargs))

    def both(*args: Any, **kwargs: Any) -> Any:
        return (kernel(*args, **kwargs), ()) if keeping is None else keeping(*args, **kwargs)

    return asking, None if keeping is None else asking_keeping


def _specs(args: Sequence[Any]) -> list[Any]:
    return [_specs(a) if type(a) in (list, tuple) else spec_of(a) if hasattr(a, "shape") else None for a in args]


def _shown(call: tuple[str, Any]) -> str:
    name, specs = call
    return f"{name} of {', '.join([str(tuple(spec[0])) for spec in specs if type(spec) is tuple]) or 'other inputs'}"


def different(how: str) -> RuntimeError:
    """The error for a function that, run again, does not do what it did."""
    return ReplayError(
        f"checkpoint: the function did something else when it was run again: {how}; it must do the same whenever it "
        f"is called"
    )


class ReplayError(RuntimeError):
    """A function, run again, does not do what it did."""
