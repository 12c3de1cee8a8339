"""One search: how many programs a fuzzer draws, from which seed, for how long, and what it has done at the end."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

MINUTES = "TAPE_FUZZ_MINUTES"
"""For how long each search goes on. Where it is not set, a search draws the same programs in every run."""

SEED = "TAPE_FUZZ_SEED"
"""Where the first programs come from, if a search is given minutes; by default from nowhere in particular."""

_ROUND = 100  # programs between two looks at the clock
_SHRINKING = 60.0  # seconds that are spent on making a failing program smaller

Record = Callable[[str, Any], None]


def search(
    check: Callable[[Any], None],
    programs: SearchStrategy[Any],
    number: int,
    record: Record,
    what: str,
    shard: int = 0,
) -> None:
    """Check programs until one fails: `number` of them, or as many as the minutes allow.

    The one that fails is made smaller for a minute.

    Args:
        check: raises where a program breaks a promise. What it raises should hold the program as code that runs.
        programs: draws one. Equal ones have the same `repr`.
        number: how many where no minutes are set.
        record: pytest's fixture `record_property`: the summary at the end of the run adds up what searches note there.
        what: the programs' name in the summary, such as "programs".
        shard: which of several searches this is, each of which draws others.
    """
    done = 0
    failures: dict[str, Exception] = {}
    until = math.inf

    def counted(program: Any) -> None:
        nonlocal done, until
        done += not failures
        name = repr(program)
        error = failures.get(name)
        if error is None and time.monotonic() < until:  # afterwards nothing else fails, so the smallest so far is it
            try:
                check(program)
            except Exception as found:  # noqa: BLE001 - whatever it is, it is a failure
                error = failures[name] = found
                found.__context__ = None  # hypothesis would take the same error at another line for another failure
                until = min(until, time.monotonic() + _SHRINKING)
        if error is not None:
            raise error

    try:
        minutes = os.environ.get(MINUTES)
        if minutes is None:
            _round(counted, programs, number, shard)
            return
        end = time.monotonic() + 60 * float(minutes)
        start = int(os.environ.get(SEED) or random.SystemRandom().randrange(1 << 30))
        record("fuzz_seed", start)
        start += shard << 30
        while time.monotonic() < end:
            _round(counted, programs, _ROUND, start)
            start += 1
    finally:
        record(f"fuzzed {what}", done)


def _round(check: Callable[[Any], None], programs: SearchStrategy[Any], number: int, start: int) -> None:
    phases = [Phase.generate, Phase.shrink]

    @seed(start)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(programs)
    def run(program: Any) -> None:
        check(program)

    run()
