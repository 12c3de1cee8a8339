"""Whether a backend of Tape does what Tape relies on: one suite for every backend, a third party's included.

    pytest --pyargs tape_conformance --tape-backend=NAME

or, without pytest, :func:`check_backend`.
"""

from tape_conformance.report import Report, Result
from tape_conformance.suite import check_backend, checks

__all__ = ["Report", "Result", "check_backend", "checks"]
