"""Random numbers inside programs of XLA."""

from __future__ import annotations

from support import run_python

PROGRAM = """
import tape_core as tc
shuffle = tc.function(lambda: tc.random.global_rng().permutation(5), compile="xla")
assert sorted(shuffle().tolist()) == sorted(shuffle().tolist()) == [0, 1, 2, 3, 4]
"""


def test_a_permutation_needs_no_other_backend_than_jax() -> None:
    run_python("-c", PROGRAM, environment={"TAPE_BACKEND": "jax", "TAPE_DISABLE_BACKENDS": "numpy"})
