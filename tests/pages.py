"""The pages of the documentation as programs: what each says to install, and its code, which runs as a reader runs it.

python tests/pages.py PAGE ...    run the code of pages; needs nothing but what they say
"""

from __future__ import annotations

import doctest
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/notebooks/*.md", "packages/*/README.md")
    for path in sorted(ROOT.glob(pattern))
    if re.search(r"^```(python|\{code-cell\} ipython3)\n", path.read_text(encoding="utf-8"), re.MULTILINE)
]

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST
PARTS = re.compile(
    r"^```(?:python|\{code-cell\} ipython3)\n(?:---\n.*?^---\n)?(?P<block>.*?)^```$"
    r"|^<!-- the last column runs -->\n\n(?P<table>(?:\|[^\n]*\n)+)",
    re.DOTALL | re.MULTILINE,
)

TO_RUN = "To run the code of this page: "
_COMMAND = r"python -m pip install ((?!nox|-)[^`#&\n]+)"

ON_ANOTHER_LIBRARY = not os.environ.get("TAPE_BACKEND", "numpy").startswith("numpy")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w])")
CLOSE = {"rel_tol": 2e-4, "abs_tol": 1e-5}
"""What is printed shows NumPy's last digits; another library computes others."""


OF_NUMPY = (
    "tc.sum(np.ones((2, 3), dtype=np.float32), axis=0).array",  # an array of NumPy
    "walk.show()",  # code for NumPy
    "energy.show()",
)
"""How examples begin that run on each backend, and show what NumPy alone prints."""


def installed_by(page: str) -> list[str]:
    """What a page says to install for its code; [] if it does not.

    It says so in a sentence that begins with "To run the code of this page", or else in its first command for pip.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    match = re.search(rf"{TO_RUN}`{_COMMAND}", text) or re.search(rf"^{_COMMAND}", text, re.MULTILINE)
    return [requirement.strip("'\"") for requirement in match[1].split()] if match else []


class AnyBackend(doctest.OutputChecker):
    """Compare what a program prints on another backend with what it prints on NumPy.

    The name of the backend differs, and numbers by what rounding makes of them; all other text is the same.
    """

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        wanted, found = (re.sub(r"backend=\w+", "backend=", text) for text in (want, got))
        numbers = [NUMBER.findall(text) for text in (wanted, found)]
        if len(numbers[0]) != len(numbers[1]):
            # Numbers in a text that the page leaves out with "...".
            return super().check_output(wanted, found, optionflags)
        if not all(math.isclose(float(a), float(b), **CLOSE) for a, b in zip(*numbers, strict=True)):
            return False
        # Columns are as wide as the longest number, and brackets end where they do.
        texts = [re.sub(r"\s+", "", NUMBER.sub("0", text)) for text in (wanted, found)]
        return super().check_output(texts[0], texts[1], optionflags)


def runner() -> doctest.DocTestRunner:
    """What runs examples, and compares what they print."""
    checker = AnyBackend() if ON_ANOTHER_LIBRARY else None
    return doctest.DocTestRunner(checker=checker, optionflags=OPTIONS)


def leave_out_results(test: doctest.DocTest) -> None:
    """Have any result of examples of NumPy's own accepted on another backend."""
    for example in test.examples if ON_ANOTHER_LIBRARY else ():
        if example.source.startswith(OF_NUMPY) and example.exc_msg is None:
            example.want = f"{doctest.ELLIPSIS_MARKER}\n"


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Each block's code and the number of its first line, from 0.

    A table below the comment `<!-- the last column runs -->` has a block for each piece of code in its last column.
    """
    for match in PARTS.finditer(text):
        if match["block"] is not None:
            yield text.count("\n", 0, match.start("block")), match["block"]
            continue
        first = text.count("\n", 0, match.start("table"))
        for line, row in enumerate(match["table"].splitlines()[2:], first + 2):
            cell = re.split(r"(?<!\\)\|", row)[-2]
            for code in re.findall(r"`([^`]+)`", cell):
                yield line, code.replace("\\|", "|") + "\n"


def run(text: str, page: str) -> str:
    """Run the blocks of a page; returns what failed, in doctest's words: page, line, difference."""
    run_block, parser = runner().run, doctest.DocTestParser()
    namespace = {"__name__": "__main__"}
    report: list[str] = []
    for line, code in blocks(text):
        if ">>> " in code:
            test = parser.get_doctest(code, {}, page, page, line)
            leave_out_results(test)
            test.globs = namespace  # shared: get_doctest copies what it is given
            run_block(test, out=report.append, clear_globs=False)
            if report:
                break  # what follows may fail only because this did
        else:
            exec(compile("\n" * line + code, page, "exec"), namespace)
    return "".join(report)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # readers do not have what tests import
    sys.exit("".join(run((ROOT / page).read_text(encoding="utf-8"), page) for page in sys.argv[1:]) or 0)
