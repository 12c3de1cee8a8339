"""A process that runs checks together with others.

    python -m tape_conformance.worker BACKEND KIND SIZE MODULE RANK STORE LIMIT

Each line of stdin is the id of a check; each line of stdout is its outcome, in JSON.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import warnings
from functools import cache

from tape_core.backends import use_backend

from tape_conformance.checking import Check, Skipped
from tape_conformance.distributions import Arrays, Distribution
from tape_conformance.kinds.distributed import distributed_checks


def main(backend: str, kind: str, size: str, module: str, rank: str, store: str, limit: str) -> None:
    """Join the group, and run checks until stdin ends."""
    distribution = Distribution(backend, kind, int(size), module)
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with use_backend(distribution.backend, "cpu"):
        arrays: Arrays = distribution.kind_of_arrays()(int(rank), distribution.processes, store, float(limit))
        layouts = arrays.layouts(distribution.processes)

        @cache
        def checks_of(op: str) -> dict[str, Check]:
            found = distributed_checks(layouts, lambda: arrays, lambda name: name == op)
            return {check.id: check for check in found}

        print(json.dumps({}), file=answers, flush=True)
        for line in sys.stdin:
            # Beyond its time, it says where it was, to be told by who waits for it.
            faulthandler.dump_traceback_later(float(limit), file=sys.stderr)
            outcome = _outcome(checks_of(line.partition("/")[0])[line.rstrip("\n")])
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(outcome), file=answers, flush=True)


def _outcome(check: Check) -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is computed on whole arrays, and of infinities
        try:
            check.function()
        except Skipped as skipped:
            return {"skipped": str(skipped)}
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is a finding
            return {"error": str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"}
    return {}


if __name__ == "__main__":
    main(*sys.argv[1:])
