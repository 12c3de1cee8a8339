"""The report of a run: results by id, and the support matrix of ops and kinds of checks, as Markdown and HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tape_core.extend import registry
from tape_core.support import way_of

from tape_conformance.marks import BATCHING_LEGEND, KINDS, LEGEND, MARKS, Outcome

_GROUPS = ("contract", "tape", "suite")  # first parts of ids that are no op


@dataclass(frozen=True)
class Result:
    """The outcome of one check.

    Attributes:
        id: the check.
        outcome: what came of it.
        detail: a message or a reason.
        rule: the derivative rule that is wrong, if that is what failed.
        traits: what is special about the sample; see `samples.Case.traits`.
    """

    id: str
    outcome: Outcome
    detail: str
    rule: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Report:
    """The results of a run on one backend. A notebook shows the support matrix, `print` what failed."""

    backend: str
    results: Sequence[Result]

    @property
    def ok(self) -> bool:
        """True if no check failed unexpectedly."""
        return not self.failed

    @property
    def failed(self) -> list[Result]:
        """The results of checks that failed unexpectedly, or passed though they were expected to fail."""
        return [result for result in self.results if result.outcome == "failed"]

    def __str__(self) -> str:
        lines = [f"{self.backend}: {self.counts()}", *self.headlines()]
        lines += [f"  {result.id}: {result.detail}".replace("\n", "\n  ") for result in self.failed]
        return "\n".join(lines)

    def headlines(self) -> list[str]:
        """Return a sentence for each derivative rule that is wrong: on how many samples, and what these share."""
        checked: dict[tuple[str, str], list[Result]] = {}
        for result in self.results:
            op, _, rest = result.id.partition("/")
            kind, _, rest = rest.partition("/")
            if kind == "vjp":
                checked.setdefault((op, rest.partition("/")[0]), []).append(result)
        # By rule: one may be for several inputs, the elements of a sequence.
        found: dict[tuple[str, str], list[Result]] = {}
        for (op, _), results in checked.items():
            for rule in dict.fromkeys(result.rule for result in results if result.rule and result.outcome == "failed"):
                found.setdefault((op, rule), []).extend(results)
        return [self._headline(op, rule, results) for (op, rule), results in found.items()]

    def _headline(self, op: str, rule: str, results: list[Result]) -> str:
        wrong = [set(result.traits.items()) for result in results if result.rule == rule and result.outcome == "failed"]
        right = [set(result.traits.items()) for result in results if result.outcome == "passed"]
        shared = sorted(set.intersection(*wrong) - set().union(*right))
        what = f"{rule} is wrong on {len(wrong)} of {len(results)} samples"
        if right and shared:
            what += f", those with {' and '.join(f'{name}={text}' if text else name for name, text in shared)}"
        if any([result.id.startswith(f"{op}/value/") for result in self.failed]):
            what += "; but values of the op are wrong, too, so look at these first"
        return what

    def counts(self) -> str:
        """Return how many checks passed, failed, failed as expected and were skipped."""
        counts = Counter(result.outcome for result in self.results)
        words: dict[Outcome, str] = {"expected": "fail as expected"}
        outcomes: tuple[Outcome, ...] = ("passed", "failed", "expected", "skipped")
        return ", ".join(f"{counts[o]} {words.get(o, o)}" for o in outcomes if counts[o])

    def matrix(self) -> dict[str, dict[str, str]]:
        """Return a mark by op and kind of check: ✓ all pass, ✗ one fails, ~ one fails as expected; "" if none ran."""
        found: dict[str, dict[str, list[Outcome]]] = {}
        for result in self.results:
            op, _, rest = result.id.partition("/")
            if op in _GROUPS:
                continue
            kind, _, label = rest.partition("/")
            row = found.setdefault(op, {})
            row.setdefault(kind, []).append(result.outcome)
            if "complex:" in label:
                row.setdefault("complex", []).append(result.outcome)
        return {
            op: {kind: _mark(outcomes) + (_batching(op) if kind == "batch" else "") for kind, outcomes in row.items()}
            for op, row in sorted(found.items())
        }

    def groups(self) -> dict[str, str]:
        """Return the mark of each check that is not of an op, by id."""
        return {result.id: MARKS[result.outcome] for result in self.results if result.id.partition("/")[0] in _GROUPS}

    def notes(self) -> list[tuple[str, str]]:
        """Return the ids of the checks that failed, expected or not, with their messages or reasons."""
        return [(r.id, r.detail) for r in self.results if r.outcome in ("failed", "expected")]

    def to_markdown(self) -> str:
        """Return the support matrix as Markdown."""
        lines = [f"# Support matrix: {self.backend}", "", f"{self.counts()}.", ""]
        lines += [
            f"{LEGEND}; empty: there is nothing to check.",
            BATCHING_LEGEND,
            "",
        ]
        lines += [f"| op | {' | '.join(KINDS)} |", f"|---|{'|'.join(':-:' for _ in KINDS)}|"]
        lines += [
            f"| `{op}` | {' | '.join(row.get(kind, '') for kind in KINDS)} |" for op, row in self.matrix().items()
        ]
        lines += ["", "| backend and tape | |", "|---|:-:|"]
        lines += [f"| `{id}` | {mark} |" for id, mark in self.groups().items()]
        if notes := self.notes():
            lines += ["", "| check | why |", "|---|---|"]
            # chr(92) is a backslash, which f-strings refuse inside braces before Python 3.12.
            lines += [f"| `{id}` | {' '.join(detail.split()).replace('|', chr(92) + '|')} |" for id, detail in notes]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """Return the support matrix as a self-contained HTML page."""
        from tape_conformance.rendering import page

        return page(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the counts, what failed, and the support matrix."""
        from tape_conformance.rendering import fragment

        return fragment(self)

    def __repr__(self) -> str:
        """Return what a prompt shows: the counts, what failed, and the support matrix as far as it fits."""
        from tape_conformance.rendering import text

        return text(self)

    def write(self, file: str | Path) -> list[Path]:
        """Write the matrix as `file` with the endings .md and .html; return the paths."""
        base = Path(file)
        base.parent.mkdir(parents=True, exist_ok=True)
        written = []
        for suffix, text in ((".md", self.to_markdown()), (".html", self.to_html())):
            path = base.with_suffix(suffix)
            path.write_text(text, encoding="utf-8")
            written.append(path)
        return written


def _mark(outcomes: Iterable[Outcome]) -> str:
    """Return the mark of the worst of several outcomes."""
    # Of checks that were all skipped the cell is empty.
    present = set(outcomes)
    return next((MARKS[o] for o in ("failed", "expected", "passed") if o in present), "")


def _batching(op: str) -> str:
    """Return how vmap handles an op that has no batch rule: " loop" or " composed"."""
    way = way_of(registry[op]) if op in registry else "rule"
    return "" if way == "rule" else f" {way}"
