"""The columns and the marks of the support matrix."""

from __future__ import annotations

from typing import Literal

Outcome = Literal["passed", "failed", "expected", "skipped"]

KINDS = (
    "value",
    "float32",
    "vjp",
    "jvp",
    "second",
    "batch",
    "compose",
    "sparsity",
    "complex",
    "special",
    "layout",
    "large",
    "mutation",
    "memory",
    "keywords",
    "refused",
)
"""The columns of the matrix: the kinds of checks of an op. `complex` has all checks of samples with complex inputs."""

MARKS = {"passed": "✓", "failed": "✗", "expected": "~", "skipped": ""}

LEGEND = "✓ passes, ✗ fails, ~ fails as the backend says it does"
BATCHING_LEGEND = (
    "In the column batch, inside vmap: loop, one example after the other; composed, of the ops it is made of."
)
