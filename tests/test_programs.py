"""Whole programs (`benchmarks/programs`) agree with PyTorch, JAX or differences: on each backend, also compiled."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc

ROOT = Path(__file__).parents[1] / "benchmarks"
if not ROOT.is_dir():
    pytest.skip("the programs live in the repository", allow_module_level=True)
sys.path.insert(0, str(ROOT))  # as `benchmarks/programs.py` has it

from programs import NAMES, program, program_data  # noqa: E402

CALLS = 4  # the steps that train differ, and the second call of a compiled function is the first that is not traced
NEEDS = {"bilevel": "scipy", "minimal_surface": "scipy"}
CASES = [(name, style) for name in NAMES for style in program(name).STYLES]


def plain(f: Any) -> Any:
    return f


def on_host(value: Any) -> np.ndarray:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def results(step: Any, calls: int) -> list[np.ndarray]:
    return [on_host(value) for _ in range(calls) for value in step()]


def peers(name: str, style: str) -> dict[str, Any]:
    """The steps of the peers that are installed."""
    module, data = program(name), program_data(name, small=True)
    found: dict[str, Any] = {}
    if hasattr(module, "with_differences"):
        found["differences"] = module.with_differences(data)
    torch = getattr(module, "TORCH_OF_STYLE", {}).get(style, getattr(module, "with_torch", None))
    if torch and find_spec("torch"):
        found["PyTorch"] = torch(data)
    jax_step = getattr(module, "JAX_OF_STYLE", {}).get(style, getattr(module, "with_jax", None))
    if jax_step and find_spec("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)
        found["JAX"] = jax_step(data, plain)
    return found


def assert_agree(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float, peer: str) -> None:
    assert len(found) == len(wanted)
    for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == want.shape, (peer, k)
        assert got.dtype == want.dtype, (peer, k)
        assert np.abs(got - want).max() <= tolerance * (np.abs(want).max() + 1e-30), (peer, k, got, want)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the peers
@pytest.mark.each_backend
@pytest.mark.parametrize(("name", "style"), CASES, ids=[f"{name}-{style}" for name, style in CASES])
def test_agrees(name: str, style: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    module = program(name)
    eager = results(module.STYLES[style](program_data(name, small=True), plain), CALLS)
    compiled = results(module.STYLES[style](program_data(name, small=True), tc.function), CALLS)
    assert all(np.isfinite(x).all() for x in eager)
    if tc.get_backend().name == "numpy":
        for a, b in zip(eager, compiled, strict=True):
            assert np.array_equal(a, b)
    else:
        assert_agree(compiled, eager, module.TOLERANCE, "eager")
    for peer, step in peers(name, style).items():
        assert_agree(eager, results(step, CALLS), module.TOLERANCE, peer)
