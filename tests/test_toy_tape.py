"""The toy tape of the documentation is short, is what its page says, and gives Tape's own results."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tape_core as tc

DOCS = Path(__file__).parents[1] / "docs"
SOURCE = (DOCS / "toy_tape.py").read_text(encoding="utf-8")
PAGE = (DOCS / "toy-tape.md").read_text(encoding="utf-8")
CORE = DOCS.parent / "packages" / "tape-core" / "src" / "tape_core"


def toy() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(DOCS / "toy_tape.py")))


def lines_of(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.strip()]


def test_it_has_at_most_150_lines() -> None:
    assert len(SOURCE.splitlines()) <= 150


def test_the_page_shows_all_of_it() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    shown = [line for block in blocks if ">>> " not in block for line in lines_of(block)]
    assert shown == lines_of(SOURCE)[1:]  # without the docstring


def test_the_files_that_it_names_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE)) - {"docs/toy_tape.py"}
    assert len(named) > 10
    assert [name for name in named if not (CORE / name).exists()] == []


def grad(of: Any) -> Any:
    """`grad` of Tape or of the toy, which has none of its own."""
    if of is tc:
        return tc.grad

    def transform(f: Any) -> Any:
        def gradient(x: Any) -> Any:
            x = of.Tensor(x.array, dict(x.slots))
            with of.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)

        return gradient

    return transform


def mixture(xp: Any, x: Any) -> Any:
    return xp.sum(xp.sin(x) * xp.exp(x) + xp.tanh(x) * x - 2.0 * x * xp.cos(x))


def network(xp: Any, x: Any) -> Any:
    row = xp.reshape(x, shape=(1, 3))
    return xp.sum(xp.tanh(xp.matrix_transpose(row) @ row) * xp.broadcast_to(x, shape=(3, 3)))


PROGRAMS = {
    "gradient": lambda of, xp, x: grad(of)(lambda x: mixture(xp, x))(x[0]),
    "through matrices": lambda of, xp, x: grad(of)(lambda x: network(xp, x))(x[0]),
    "second order": lambda of, xp, x: grad(of)(lambda y: xp.sum(grad(of)(lambda x: mixture(xp, x))(y) * y))(x[0]),
    "third order": lambda of, xp, x: grad(of)(
        lambda z: xp.sum(grad(of)(lambda y: xp.sum(grad(of)(lambda x: network(xp, x))(y) * y))(z))
    )(x[0]),
    "an outer argument in an inner function": lambda of, xp, x: grad(of)(
        lambda y: xp.sum(y * grad(of)(lambda x: xp.sum(xp.sin(x) * y))(y))
    )(x[0]),
    "gradients of examples": lambda of, xp, x: of.vmap(grad(of)(lambda x: network(xp, x)))(x[1]),
    "second order of examples": lambda of, xp, x: of.vmap(
        grad(of)(lambda y: xp.sum(grad(of)(lambda x: mixture(xp, x))(y) * y))
    )(x[1]),
    "gradient through vmap": lambda of, xp, x: grad(of)(
        lambda w: xp.sum(of.vmap(lambda x: xp.sum(xp.tanh(w * x)) * xp.sum(w))(x[1]))
    )(x[0]),
    "vmap in vmap": lambda of, xp, x: of.vmap(lambda x1: of.vmap(lambda x2: xp.sum(xp.sin(x1 * x2) * x[0]))(x[1]))(
        x[1]
    ),
    "a result that examples share": lambda of, xp, x: of.vmap(lambda example: xp.sin(x[0]))(x[1]),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_it_gives_the_results_of_tape(program: Any) -> None:
    tiny = toy()
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=3), rng.normal(size=(5, 3))]
    expected = program(tc, tc, [tc.asarray(a) for a in arrays])
    got = program(tiny, tiny.OPS, [tiny.Tensor(a) for a in arrays])
    np.testing.assert_allclose(got.array, expected.numpy(), rtol=1e-10, atol=1e-12)


def test_what_is_not_connected_is_none() -> None:
    tiny = toy()
    x, other = tiny.Tensor([1.0]), tiny.Tensor([2.0])
    with tiny.GradientTape() as tape:
        tape.watch(x)
        y = tiny.OPS.sin(x)
    assert tape.gradient(y, other) is None
    assert tape.gradient(other, x) is None
    assert tape.gradient(y, x) is not None


def test_a_record_keeps_what_rules_of_watched_inputs_name() -> None:
    tiny = toy()
    x, w = tiny.Tensor([[1.0, 2.0]]), tiny.Tensor([[3.0], [4.0]])
    with tiny.GradientTape() as tape:
        tape.watch(w)
        x @ w
    (*_, kept, _) = tape.records[-1]
    assert list(kept) == ["x1"]
