"""The page `docs/libraries.md`, of the verdicts on all calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import groupby

from cases import Section
from judge import Verdict

HEAD = """\
# Which functions of other libraries take Tensors

All that is said here is found by running. Each call gets Tensors in place of its arrays, and what it gives is compared
with what the library gives for NumPy arrays. Then it is differentiated on a tape with respect to each of its
floating-point arguments, once as a Tensor and once as a Variable, and the derivative is compared with finite
differences of the library's own function in float64. [](interoperability.md) tells how it works, and what to do
where it does not.

The Tensors are on the backend for NumPy. On those for PyTorch and JAX the same was found for NumPy, SciPy,
array-api-extra, einops, opt_einsum and xarray.

SciPy is imported with `SCIPY_ARRAY_API=1` in the environment, and scikit-learn has `array_api_dispatch=True`.

In the tables, "differentiable" is

- **yes**: the derivative is right with respect to all arguments that are named in the call, or **in `x`** with respect
  to these alone.
- **–**: there is none, since the result does not change with the values, as with counts and ranks.
- **no, warns**: the library computes on a copy of the values, and Tape warns: "no gradient comes back from what is
  computed with it".
- **no, raises**: there is an error in the tape's block, or when the gradient is asked for.
- **differentiable in `tape_core.scipy.…`**, or another place: the same function is there, made of Tape's ops; see
  [](interoperability.md#scipys-names).
- **no, by rule**: the library calls a function of which Tape declares that it has no derivative.

No call gives another value than for NumPy arrays, a wrong derivative, or none without a word: that would be a fault,
and this page would not be written.
"""

FOOT = """
`python docs/generate/libraries` writes this page. With `--check` it compares the page with what is found, for those
libraries that are installed in these versions.
"""

LONGEST = 140
ORDER = ("yes", "part", "constant", "cut", "by rule", "raised", "refused")
COLUMNS = {
    "differentiable": ("yes", "part"),
    "without a derivative": ("constant",),
    "taken, but no gradient": ("cut", "raised", "by rule"),
    "refused": ("refused",),
}
Row = tuple[str, str, str]
"""What the page says of a call: takes Tensors, differentiable, remark."""


def row(verdict: Verdict) -> Row:
    """The cells of a call."""
    remarks = []
    if verdict.kind == "refused":
        name = re.match(r"(?:\w+\.)*(\w+)\(", verdict.call)
        message = verdict.message
        if name:  # so that calls with the same message have one row
            message = re.sub(rf"(?<=ufunc )_?{name[1]}\b", "…", message)
        if verdict.call.startswith(("np.", "(np.")):
            message = re.sub(r"(?<=numpy\.)[\w.]+(?= has no counterpart)", "…", message)
        return "no", "no", with_counterpart(verdict, cell(message))
    if verdict.by_rule:
        return "yes", "no, by rule", cell(verdict.by_rule)
    right = [f"`{name}`" for name, outcome in verdict.outcomes.items() if outcome.kind == "right"]
    others = {name: outcome for name, outcome in verdict.outcomes.items() if outcome.kind in ("warned", "raised")}
    differentiable = {"yes": "yes", "part": f"in {', '.join(right)}", "constant": "–"}.get(verdict.kind, "")
    if verdict.kind in ("cut", "raised"):
        differentiable = "no, warns" if verdict.kind == "cut" else "no, raises"
    if verdict.gives:
        remarks.append(f"gives {verdict.gives}")
    for name, outcome in others.items():
        if outcome.kind == "raised":
            remarks.append(f"`{name}`: {cell(outcome.message)}")
        elif verdict.kind in ("part", "raised"):
            remarks.append(f"`{name}`: warns")
    for name, outcome in verdict.outcomes.items():
        if outcome.of_variables:
            told = {"right": "has a gradient", "warned": "warns"}.get(outcome.of_variables, "raises")
            remarks.append(f"`{name}` as a Variable: {told}")
    return "yes", differentiable, with_counterpart(verdict, "; ".join(remarks))


def with_counterpart(verdict: Verdict, remark: str) -> str:
    """A remark, after what to call for a derivative: the module, where the function has the same name there."""
    space, _, name = verdict.instead.rpartition(".")
    if space.startswith("tape_core.scipy.") and name in verdict.call:
        told = f"differentiable in `{space}`"
    elif verdict.instead:
        told = f"differentiable: `{verdict.instead}`"
    else:
        return remark
    return f"{told}; {remark}" if remark else told


def cell(text: str) -> str:
    """The beginning of a message as text of a table."""
    text = re.sub(r"(Multiple namespaces for array inputs): .*", r"\1", text)  # a set, in no order
    text = text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"
    return re.sub(r"([<>|*_`\[\]{}])", r"\\\1", text)


def page(judged: list[tuple[Section, list[Verdict]]]) -> str:
    """The whole page, as Markdown."""
    parts = [(part, list(group)) for part, group in groupby(judged, key=lambda pair: pair[0].part)]
    return "\n".join([HEAD, *counts(parts), *(line for part, group in parts for line in chapter(part, group)), FOOT])


def counts(parts: list[tuple[str, list[tuple[Section, list[Verdict]]]]]) -> Iterator[str]:
    """The table of how many calls there are of each kind."""
    yield f"| | version | calls | {' | '.join(COLUMNS)} | of both, with a counterpart |"
    yield "|---|---" + "|---:" * (2 + len(COLUMNS)) + "|"
    total = [0] * (2 + len(COLUMNS))
    for part, group in parts:
        kinds = [verdict.kind for _, verdicts in group for verdict in verdicts]
        numbers = [len(kinds), *(sum(kinds.count(kind) for kind in column) for column in COLUMNS.values())]
        numbers.append(sum(bool(verdict.instead) for _, verdicts in group for verdict in verdicts))
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        link = f"[{part}](#{anchor(part)})"
        yield f"| {link} | {version(group[0][0].packages[0])} | {' | '.join(map(str, numbers))} |"
    yield f"| all | | {' | '.join(map(str, total))} |"


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def chapter(part: str, group: list[tuple[Section, list[Verdict]]]) -> Iterator[str]:
    """The tables of a library, or of a part of one."""
    yield f"\n## {part}"
    setup = ""
    for section, verdicts in group:
        if section.title:
            yield f"\n### {section.title[0].upper()}{section.title[1:]}"
        if section.remark:
            yield f"\n{section.remark}"
        if section.setup != setup:
            setup = section.setup
            yield f"\n```py\n{setup}\n```"
        yield "\n| call | takes Tensors | differentiable | remark |\n|---|---|---|---|"
        yield from table(verdicts)


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """The rows of a section; calls of which the same is to be said share one."""
    rows: dict[Row, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: ORDER.index(verdict.kind)):
        rows.setdefault(row(verdict), []).append(verdict)
    for cells, alike in rows.items():
        calls = ", ".join(f"`{verdict.call}`" for verdict in alike)
        yield f"| {calls} | {' | '.join(cells)} |"


def said(text: str) -> dict[tuple[str, str], Row]:
    """What a page says of each call, by its part and the call."""
    found, part = {}, ""
    for line in text.splitlines():
        if line.startswith("## "):
            part = line.removeprefix("## ")
        elif line.startswith("| `") and len(cells := re.split(r"(?<!\\) \|(?: |$)", line.removeprefix("| "))) == 5:
            for call in re.findall(r"`(.+?)`", cells[0]):
                found[part, call] = (cells[1], cells[2], cells[3])
    return found


def versions(text: str) -> dict[str, str]:
    """The versions that a page names, by part."""
    return dict(re.findall(r"^\| \[(.+?)\]\(.*?\) \| (\S+) \|", text, re.MULTILINE))
