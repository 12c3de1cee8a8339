"""The suite: all checks of a backend, and a runner that needs no pytest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

from tape_core.backends import Backend, compilers, select, use_backend
from tape_core.extend import TODO, registry
from tape_core.support import progress_of

from tape_conformance import check_versions

check_versions()

from tape_conformance.checking import Check, Skipped, Target, expect
from tape_conformance.distributions import Arrays, Distribution, distribution_of
from tape_conformance.expectations import Expectations
from tape_conformance.kinds import contract, semantics
from tape_conformance.kinds.distributed import distributed_checks
from tape_conformance.kinds.ops import op_checks
from tape_conformance.marks import Outcome
from tape_conformance.processes import Processes
from tape_conformance.report import Report, Result


def target_of(spec: str | Backend, compiled_by: Iterable[str] = ()) -> Target:
    """Return the backend that `spec` names, as `TAPE_BACKEND` would: `"torch"`, `"torch:cuda:0"`; or a Backend.

    `"torch:dtensor"` and `"torch:dtensor:4"` name arrays that two, or four, processes hold together.

    Args:
        spec: the backend.
        compiled_by: names of compilers; `"all"` stands for every installed one that is for this backend.

    Raises:
        BackendError: there is none of that name, or it cannot be used.
        CompilerError: there is no such compiler, or it cannot be used.
        ValueError: a compiler is not for this backend.
    """
    distribution = distribution_of(spec)
    selection = select(spec) if distribution is None else select(distribution.backend, "cpu")
    if distribution is not None and list(compiled_by):
        raise ValueError(f"on {spec!r} functions are compiled by Tape's own compiler alone")
    name = selection.backend.root.name
    names: list[str] = []
    for compiler in compiled_by:
        if compiler == "all":
            names += [k for k, plugin in compilers.installed().items() if not plugin.disabled and _is_for(k, name)]
        elif _is_for(compiler, name):
            names.append(compiler)
        else:
            raise ValueError(f"compiler {compiler!r} is for arrays of {', '.join(compilers.info(compiler).backends)}")
    # Every pass of Tape's own compiler is looked at in the checks named `compiled`.
    return Target(spec, selection, tuple(dict.fromkeys(k for k in names if k != "python")))


def _is_for(compiler: str, backend: str) -> bool:
    backends = compilers.info(compiler).backends
    return not backends or backend in backends


def checks(
    spec: str | Backend, only: Iterable[str] = ("*",), *, compiled_by: Iterable[str] = (), quick: bool = False
) -> list[Check]:
    """Return the checks of a backend whose ids match a pattern, in the order in which they run. Ids are unique.

    With `quick` those that find most mistakes in little time: the contract and tapes, but for what goes through all ops
    or all pairs of dtypes; of each op one value and one refused call; and the gradients for the same arguments of each
    op that the library or the plugin computes; and, for each compiler, of each op one call.
    """
    patterns = list(only)
    # Samples are drawn only for ops that a pattern may select; but `suite/complete` looks at all ids.
    chapters = [pattern.partition("/")[0] for pattern in patterns]
    everything = any(fnmatchcase("suite", chapter) for chapter in chapters)
    target = target_of(spec, compiled_by)
    if (distribution := distribution_of(spec)) is not None:
        return _in_processes(distribution, target, patterns, quick)
    found: list[Check] = []
    with use_backend(target.backend, target.selection.device):
        found += contract.GROUP.checks(target)
        found += semantics.GROUP.checks(target)
        # The backend is loaded by now, so that ops which its plugin adds are registered.
        for op in list(registry.values()):
            if everything or any(fnmatchcase(op.name, chapter) for chapter in chapters):
                found += op_checks(op, target)
    ids = [check.id for check in found]
    found += [
        Check("suite/complete", lambda: _expect_complete(ids), quick=True),
        Check("suite/expectations", lambda: _expect_not_stale(Expectations.of(target), ids), quick=True),
    ]
    found = [check for check in found if check.quick or not quick]
    chosen = [check for check in found if any(_selects(pattern, check.id) for pattern in patterns)]
    return [replace(check, function=_with_backend(target, check.function)) for check in chosen]


def _in_processes(distribution: Distribution, target: Target, patterns: list[str], quick: bool) -> list[Check]:
    """Return the checks of ops on distributed arrays, each of which several processes run."""
    chapters = [pattern.partition("/")[0] for pattern in patterns]
    group = Processes(distribution)
    layouts = distribution.kind_of_arrays().layouts(distribution.processes)
    with use_backend(target.backend, target.selection.device):
        found = list(
            distributed_checks(
                layouts[:1] if quick else layouts,
                _in_another_process,
                lambda name: any(fnmatchcase(name, chapter) for chapter in chapters),
            )
        )
    ids = [check.id for check in found]
    found = [replace(check, function=partial(group.run, check.id)) for check in found]
    found.append(Check("suite/expectations", lambda: _expect_not_stale(Expectations.of(target), ids), quick=True))
    return [check for check in found if any(_selects(pattern, check.id) for pattern in patterns)]


def _in_another_process() -> Arrays:
    raise RuntimeError("this process holds no part of an array")


def _selects(pattern: str, id: str) -> bool:
    return pattern in ("*", id) or fnmatchcase(id, pattern)


def _with_backend(target: Target, function: Callable[[], None]) -> Callable[[], None]:
    """Run a check with the backend selected."""

    def run() -> None:
        __tracebackhide__ = True
        # Libraries differ in their warnings about infinities and NaN; the checks compare values.
        with use_backend(target.backend, target.selection.device), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            function()

    return run


def _expect_complete(ids: list[str]) -> None:
    """Expect checks of every op, every rule and every group: a check that is missing cannot fail."""
    for name, op in registry.items():
        expect(f"{name}/samples" in ids, f"op {name!r} is not checked")
        for k in [k for k in op.compiled if op.rules[op.inputs[k]] is not TODO]:
            start = f"{name}/vjp/{op.inputs[k]}"
            expect(
                any(id.startswith(start) for id in ids), f"nothing checks the rule of op {name!r} for {op.inputs[k]!r}"
            )
    for group in (contract.GROUP, semantics.GROUP):
        expect(any(id.startswith(f"{group.prefix}/") for id in ids), f"no check of the group {group.prefix!r}")
    expect(len(set(ids)) == len(ids), "two checks have one id")


def _expect_not_stale(expectations: Expectations, ids: list[str]) -> None:
    """Expect every expectation to match a check."""
    stale = expectations.unmatched(ids)
    expect(not stale, f"{expectations.source} expects failures of checks that are not there: {', '.join(stale)}")


def check_backend(
    backend: str | Backend,
    *,
    only: str | Iterable[str] = "*",
    compiled_by: str | Iterable[str] = (),
    quick: bool = False,
    progress: bool = True,
) -> Report:
    """Run the suite without pytest.

    >>> report = check_backend("numpy", only="multiply/*")
    >>> report.ok
    True
    >>> [result.id for result in report.results][:2]
    ['multiply/samples', 'multiply/value/2x3,2x3']

    Args:
        backend: a name, as `TAPE_BACKEND` takes it, or a Backend.
        only: patterns of check ids, with `*` for anything.
        compiled_by: compilers whose code is compared with eager calls, by name; `"all"` for every installed one.
        quick: run those checks alone that find most mistakes in little time; see :func:`checks`.
        progress: whether to show how many checks are done, on a terminal or in a notebook, after two seconds.

    Raises:
        BackendError: there is no such backend, or it cannot be used.
        CompilerError: there is no such compiler, or it cannot be used.
        ValueError: no check is selected, or a compiler is not for this backend.
    """
    patterns = [only] if isinstance(only, str) else list(only)
    names = [compiled_by] if isinstance(compiled_by, str) else list(compiled_by)
    target = target_of(backend, names)
    expectations = Expectations.of(target)
    results: list[Result] = []
    with progress_of(f"checking {target.name}", unit="checks", logger="tape_conformance", shown=progress) as task:
        task.stage("collecting")
        chosen = checks(backend, patterns, compiled_by=names, quick=quick)
        if not chosen:
            raise ValueError(f"check_backend: only={only!r} selects no check")
        task.total, failed = len(chosen), 0
        for check in chosen:
            results.append(_run(check, expectations.reason(check.id)))
            failed += results[-1].outcome == "failed"
            task.detail = f"{failed} failed" if failed else ""
            task.advance()
    return Report(target.name, results)


def _run(check: Check, expected: str | None) -> Result:
    rule = ""
    try:
        check.function()
    except Skipped as skipped:
        return Result(check.id, "skipped", str(skipped))
    except Exception as error:  # noqa: BLE001 - whatever a backend raises is a finding
        outcome: Outcome = "failed" if expected is None else "expected"
        kind = "AssertionError" if isinstance(error, AssertionError) else type(error).__name__
        detail = f"{kind}: {error}" if expected is None else expected
        rule = getattr(error, "rule", "")
    else:
        outcome, detail = "passed", ""
        if expected is not None:
            outcome = "failed"
            detail = f"it passes, but is expected to fail: {expected}; remove the expectation"
    return Result(check.id, outcome, detail, rule, check.traits() if check.traits else {})
