"""Random programs and compositions that XLA compiles, or that run on JAX's arrays: these need JAX, and no PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tape_core import use_backend
from tape_fuzz import compositions, programs
from tape_fuzz.compositions import BACKWARD, BATCHES, FLOWS, FORWARD, IMPLICIT, IN_JAX, KINDS, OWN, TRACED, XLA
from tape_fuzz.search import search

if os.environ.get("TAPE_BACKEND") != "jax":  # where JAX is what is tested, nothing of this may be left out
    pytest.importorskip("tape_jax")

pytestmark = pytest.mark.filterwarnings("ignore")


class Counted:
    """How many programs XLA has compiled."""

    number = 0


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, record_property: Any) -> Iterator[Counted]:
    """What XLA has compiled for a test, which the summary of the run tells, too."""
    from tape_jax.xla import kept, packs
    from tape_jax.xla.compiler import XLA as Compiler

    # Programs have two Variables: with this each is packed, so that its values are deferred from call to call.
    monkeypatch.setattr(packs, "PACK_MIN_ARRAYS", 1)
    monkeypatch.setattr(kept, "KEPT_MIN_ARRAYS", 1)
    monkeypatch.setattr(kept, "READ_TOGETHER_AFTER", 2)
    found, original = Counted(), Compiler.compile

    def compile(self: Any, *args: Any) -> Any:
        made = original(self, *args)
        found.number += made.__name__ == "xla"
        return made

    monkeypatch.setattr(Compiler, "compile", compile)
    yield found
    record_property("fuzzed functions compiled by XLA", found.number)


# Of which kind, and how many. For each XLA compiles several functions, and eager JAX as many as it has ops of new
# shapes: all take half a minute of one processor.
SHARDS = {"xla": 6, "shared by xla": 5, "draws by xla": 5, "donated": 6, "by jax": 6, "masks by xla": 4}
SHARDS["calls by xla"] = 5


@pytest.mark.parametrize("kind", SHARDS)
def test_programs_compiled_by_xla_say_the_same(kind: str, compiled: Counted, record_property: Any) -> None:
    with use_backend("numpy"):  # programs name the other one where they use it
        drawn = programs.programs(kind)
        search(programs.check, drawn, SHARDS[kind], record_property, "programs of XLA", [*SHARDS].index(kind))
    assert compiled.number >= SHARDS[kind], "XLA has not compiled the programs that were drawn"


@pytest.mark.long_on_jax
def test_compositions_on_jax_have_the_same_derivatives(record_property: Any) -> None:
    # A program takes seconds, of which JAX compiles most.
    drawn = compositions.programs(2, KINDS, ["jax"], ["None", "'xla'"], against="jax")
    search(compositions.check, drawn, 8, record_property, "compositions on JAX")


def test_functions_compiled_by_xla_have_the_same_derivatives_wherever_they_are_called(
    compiled: Counted, record_property: Any
) -> None:
    inner = [*XLA * 6, *FLOWS, *BATCHES, *BACKWARD, *FORWARD]
    outermost = [*XLA * 12, *BATCHES, *FORWARD, *BACKWARD]
    drawn = compositions.programs(2, outermost, ["numpy", "jax"], ["None", "'xla'"], inner, "jax")
    search(compositions.check, drawn, 6, record_property, "compositions with XLA")
    assert compiled.number >= 6, "XLA has compiled nothing of the compositions that were drawn"


def test_jax_transforms_what_tape_transforms(record_property: Any) -> None:
    outermost = [*TRACED, *OWN, *IMPLICIT, "scan", "scan"]
    drawn = compositions.programs(2, outermost, ["jax"], inner=TRACED, against="jax", by_jax=True)
    search(compositions.check, drawn, 8, record_property, "compositions that JAX transforms")


def test_functions_that_jax_transforms_are_ops_of_tape(record_property: Any) -> None:
    inner = [*IN_JAX, *TRACED]
    drawn = compositions.programs(2, IN_JAX, ["jax"], ["None", "'xla'"], inner, "jax")
    search(compositions.check, drawn, 6, record_property, "compositions with functions that JAX transforms")
