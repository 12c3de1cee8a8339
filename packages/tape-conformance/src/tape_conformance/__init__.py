"""The conformance suite: checks that a backend does everything Tape relies on, a third party's backend included.

    pytest --pyargs tape_conformance --tape-backend=NAME

or, without pytest, :func:`check_backend`. Most checks are generated from the samples that each op carries: its value
against a NumPy or SciPy reference, its derivatives against finite differences, vmap against a loop, compiled calls
against eager ones, and so on. `python -m tape_conformance new` writes a project for a backend, a compiler or an op.
"""

from tape_core.backends import require_core as _require_core

_require_core("tape-conformance", "tape-core>=0.1,<0.2")

from tape_conformance.report import Report, Result
from tape_conformance.suite import check_backend, checks

__all__ = ["Report", "Result", "check_backend", "checks"]
