"""Write docs/libraries.md: which functions of other libraries take Tensors, and are differentiable.

python docs/generate/libraries                     run all calls and write the page; all libraries must be installed
python docs/generate/libraries --check             compare the page with what is found, for what is installed
python docs/generate/libraries --check --every 9   the same for each ninth call
python docs/generate/libraries scipy.signal        only show what is found for one library, or a part of one

The Tensors are on the backend that TAPE_BACKEND names, NumPy's by default; the page is of NumPy's.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["SCIPY_ARRAY_API"] = "1"  # SciPy reads it when it is imported

import numpy as np
import page
from cases import Section, sections
from judge import Verdict, judge
from tape_core.scipy.counterparts import counterpart

PAGE = Path(__file__).parents[2] / "libraries.md"


def judged(section: Section, every: int = 1) -> Iterator[Verdict]:
    """Judge the calls of a section, or on each so-many-th of them."""
    namespace: dict[str, Any] = {}
    exec(section.setup, namespace)
    samples = {name: np.asarray(sample) for name, sample in section.samples.items()}
    for call in section.lines[::every]:
        verdict = judge(call, namespace, samples, section.fixed.split(), section.by_rule.get(call, ""))
        if verdict.kind not in ("yes", "part", "constant") and section.part.startswith("scipy."):
            called = next((name for name in re.findall(r"[A-Za-z_][\w.]*(?=\()", call)), "")
            found = counterpart(f"{section.part.removeprefix('scipy.')}.{called}")
            verdict = replace(verdict, instead=found or "")
        yield verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="docs/generate/libraries", description="what other libraries do with Tensors")
    parser.add_argument("parts", nargs="*", help="show what is found for these")
    parser.add_argument("--check", action="store_true", help="compare the page with what is found")
    parser.add_argument("--every", type=int, default=1, help="take only each so-many-th call of a section")
    options = parser.parse_args()
    if options.parts:
        return show(options.parts, options.every)
    return check(options.every) if options.check else write()


def show(parts: list[str], every: int) -> int:
    wrong = 0
    for section in sections():
        if any(section.part.startswith(part) for part in parts) and section.installed:
            for verdict in judged(section, every):
                print(f"{verdict.call:<44} {' | '.join(page.row(verdict))}")
                for defect in verdict.defects:
                    print(f"    FAULT: {defect}")
                    wrong = 1
    return wrong


def check(every: int) -> int:
    text = PAGE.read_text(encoding="utf-8")
    said, versions, wrong, seen = page.said(text), page.versions(text), [], 0
    for section in sections():
        if not section.installed or version(section.packages[0]) != versions[section.part]:
            print(f"{section.part} {versions[section.part]} is not installed: not checked")
            continue
        for verdict in judged(section, every):
            found, seen = page.row(verdict), seen + 1
            wrong += [f"{section.part}, {verdict.call}: {defect}" for defect in verdict.defects]
            if said.get((section.part, verdict.call)) != found:
                wrong.append(f"{section.part}, {verdict.call}: {found}, not {said.get((section.part, verdict.call))}")
    print("\n".join([*wrong, f"{seen} calls checked"]))
    return 1 if wrong else 0


def write() -> int:
    everything = sections()
    if missing := sorted({name for section in everything if not section.installed for name in section.packages}):
        print(f"not all of these are installed: pip install {' '.join(missing)}")
        return 1
    verdicts = [(section, list(judged(section))) for section in everything]
    faults = [
        f"{section.part}, {verdict.call}: {defect}"
        for section, found in verdicts
        for verdict in found
        for defect in verdict.defects
    ]
    if faults:
        print("\n".join(faults))
        return 1
    PAGE.write_text(page.page(verdicts), encoding="utf-8")
    print(f"{PAGE.name} is written: {sum(len(found) for _, found in verdicts)} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
