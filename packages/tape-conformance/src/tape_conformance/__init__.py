"""The conformance suite: checks that a backend does everything Tape relies on, a third party's backend included.

    pytest --pyargs tape_conformance --tape-backend=NAME

or, without pytest, :func:`check_backend`. Most checks are generated from the samples that each op carries: its value
against a NumPy or SciPy reference, its derivatives against finite differences, vmap against a loop, compiled calls
against eager ones, and so on. `python -m tape_conformance new` writes a project for a backend, a compiler or an op.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tape_conformance.report import Report, Result
    from tape_conformance.suite import check_backend, checks

__all__ = ["Report", "Result", "check_backend", "checks"]

_HOMES = {"Report": "report", "Result": "report", "check_backend": "suite", "checks": "suite"}


def check_versions() -> None:
    """Refuse a tape-core for which this package is not made; see :func:`tape_core.backends.require_core`."""
    from tape_core.backends import require_core

    require_core("tape-conformance", "tape-core>=0.1,<0.2")


def __getattr__(name: str) -> object:
    # pytest imports this package in every run of any project: so Tape is imported when it is needed.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
