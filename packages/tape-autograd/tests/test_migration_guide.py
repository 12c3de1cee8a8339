"""The migration guide: only imports change, and both columns of its table compute the same.

tests/test_docs.py runs the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
import tape_autograd
import tape_autograd.numpy as np
import tape_core as tc
from tape_autograd.misc import flatten

PAGE = Path(__file__).parents[3] / "docs" / "migrating-from-autograd.md"
ROWS = re.findall(r"^\| `(.+)` \| `(tc\..+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_only_imports_change(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    original = re.findall(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0]
    here = re.sub(r"^(import|from) autograd", r"\1 tape_autograd", original, flags=re.MULTILINE)
    body, _, last = here.rstrip("\n").rpartition("\n")
    assert f"```python\n{body}\n```" in text
    shown, promised = last.split("  # ")
    assert f">>> {shown}\n{promised}\n" in text
    exec(compile(here, PAGE.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == f"{promised}\n"


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize(("left", "right"), ROWS, ids=[left for left, _ in ROWS])
def test_both_columns_compute_the_same(left: str, right: str) -> None:
    names = {
        **{name: getattr(tape_autograd, name) for name in tape_autograd.__all__},
        "f": lambda x: np.sum(np.tanh(x) ** 2),
        "g": lambda x, t: np.sum(x * np.exp(t)),
        "v": lambda x: np.sin(x) * x[0],
        "x": numpy.array([0.5, -0.25, 1.5]) if "diag" not in left and "gammaln" not in left else numpy.arange(1.0, 4.0),
        "t": numpy.array([1.0, 0.0, -2.0]),
        "w": numpy.array([0.5, 2.0, -1.0]),
        "np": np,
        "tc": tc,
        "flatten": flatten,
    }
    if "special" in left or "stats" in left:
        pytest.importorskip("scipy")
        from tape_autograd.scipy import special, stats

        names |= {"special": special, "stats": stats}
    one, two = (tc.tree_leaves(eval(text, names)) for text in (left, right))
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        numpy.testing.assert_allclose(numpy.asarray(a), numpy.asarray(b), atol=1e-12)
