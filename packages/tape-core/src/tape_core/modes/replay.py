"""Replay: results of kernels that are kept in one run of a function and returned in the next, for `checkpoint`.

The kernels of ops that a policy names are intercepted. They keep their results, in order, and when the same function
runs again return them instead of computing. This happens on the arrays of the library itself, so that everything above,
tapes, accumulators and batches, sees the ops as ever.

In a compiled function the branches and bodies of cond, while_loop and scan are programs of their own, from which
nothing can be kept outside; or they are unrolled where something records, which may differ between the two runs. There
results are computed again.
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


class KeptResults:
    """The results of the kernels of some ops on some backends in one run of a function."""

    __slots__ = ("backends", "calls", "names")

    def __init__(self, ops: list[Op], backends: set[Backend]) -> None:
        self.names = frozenset([op.name for op in ops])
        self.backends = frozenset(backends)
        self.calls: list[tuple[Any, Any]] = []
        for op in ops:
            for backend in backends:
                op.intercept(backend, _replayable)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Enter a run in which the kernels' results are kept."""
        with _as(_Recording(self)):
            yield

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Enter a run in which the kernels return the kept results, in the same order.

        Raises:
            RuntimeError: the kernels are not called as in the first run.
        """
        giving = _Replaying(self)
        with _as(giving):
            yield
        if giving.next != len(self.calls):
            raise replay_error(f"it called {giving.next} ops whose results are kept, and {len(self.calls)} before")


class Session:
    """A run of a function whose kernels are intercepted. A run around it serves the results that this one computes."""

    __slots__ = ("around", "kept", "next")

    def __init__(self, kept: KeptResults) -> None:
        self.kept = kept
        self.around: Session | None = REPLAY.get()
        self.next = 0

    def result_of(self, call: tuple[str, Any], compute: Compute) -> Any:
        raise NotImplementedError


class _Recording(Session):
    def result_of(self, call: tuple[str, Any], compute: Compute) -> Any:
        pair = compute()
        self.kept.calls.append((call, pair))
        return pair


class _Replaying(Session):
    def result_of(self, call: tuple[str, Any], compute: Compute) -> Any:
        if self.next >= len(self.kept.calls):
            raise replay_error(f"it called {_shown(call)} once more")
        noted, pair = self.kept.calls[self.next]
        if noted != call:
            raise replay_error(f"it called {_shown(call)}, where it had called {_shown(noted)}")
        self.next += 1
        return pair


def _session_for(session: Session | None, name: str, backend: Backend) -> Session | None:
    while session is not None and not (name in session.kept.names and backend in session.kept.backends):
        session = session.around
    return session


def _compute_or_replay(session: Session | None, backend: Backend, call: tuple[str, Any], compute: Compute) -> Any:
    """Return a result and the residuals that the kernel leaves for rules."""
    session = _session_for(session, call[0], backend)
    if session is None:
        return compute()
    # A session around this one keeps its own results of what is computed here, so ask it in turn.
    around = session.around
    return session.result_of(call, lambda: _compute_or_replay(around, backend, call, compute))


@contextmanager
def _as(what: Session) -> Iterator[None]:
    with setting(REPLAY, what):
        yield


def pause() -> Any:
    """Compute everything from here on, until :func:`resume` is called with the token that this returns.

    Tangents, for one, are computed in the second run alone.
    """
    return None if REPLAY.get() is None else REPLAY.set(None)


def resume(token: Token[Session | None] | None) -> None:
    """Keep and return results again."""
    if token is not None:
        REPLAY.reset(token)


def is_replaying() -> bool:
    """Return whether results are kept or returned here."""
    return REPLAY.get() is not None


def recompute_in_traces(run: F) -> F:
    """Make a function that runs branches or steps of a loop keep no results of them in a trace."""

    @wraps(run)
    def runs(*args: Any) -> Any:
        if REPLAY.get() is None or current() is None:
            return run(*args)
        with setting(REPLAY, None):
            return run(*args)

    return runs  # type: ignore[return-value]


def _replayable(op: Op, backend: Backend, kernels: Kernels) -> Kernels:
    """Return kernels that keep their results, or return kept ones, in a session of their context."""
    kernel, residual_kernel = kernels
    name = op.name

    def asking(*args: Any, **kwargs: Any) -> Any:
        # Interceptors stay for good, so this is what an op pays where no checkpoint is at work.
        session = REPLAY.get()
        if session is None or _session_for(session, name, backend) is None:
            return kernel(*args, **kwargs)
        return _compute_or_replay(session, backend, (name, _specs(args)), lambda: both(*args, **kwargs))[0]

    def asking_with_residuals(*args: Any, **kwargs: Any) -> Any:
        session = REPLAY.get()
        if session is None:
            return residual_kernel(*args, **kwargs)  # type: ignore[misc]  # it is bound where there is one
        return _compute_or_replay(session, backend, (name, _specs(args)), lambda: both(*args, **kwargs))

    # Which of the two kernels an op calls depends on what is watched, and that differs between the two runs: so each
    # keeps the residuals with the result.
    def both(*args: Any, **kwargs: Any) -> Any:
        return (kernel(*args, **kwargs), ()) if residual_kernel is None else residual_kernel(*args, **kwargs)

    return asking, None if residual_kernel is None else asking_with_residuals


# Shapes and dtypes stand for the arguments: enough to notice another path, and no value is compared.
def _specs(args: Sequence[Any]) -> list[Any]:
    return [_specs(a) if type(a) in (list, tuple) else spec_of(a) if hasattr(a, "shape") else None for a in args]


def _shown(call: tuple[str, Any]) -> str:
    name, specs = call
    return f"{name} of {', '.join([str(tuple(spec[0])) for spec in specs if type(spec) is tuple]) or 'other inputs'}"


def replay_error(how: str) -> RuntimeError:
    """Return the error for a function that, run again, does not do what it did."""
    return ReplayError(
        f"checkpoint: the function did something else when it was run again: {how}; it must do the same whenever it "
        f"is called"
    )


class ReplayError(RuntimeError):
    """A function, run again, does not do what it did."""
