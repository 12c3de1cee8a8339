"""Processes of a checked mesh that do not run the same program raise an error that says what each of them does."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("mismatches_in_processes.py")


@pytest.mark.parametrize(("n", "how"), [(2, "argument"), (4, "environment")])
def test_different_programs_are_an_error_that_names_each(n: int, how: str) -> None:
    environment = {"TAPE_CHECK_RANKS": "1"} if how == "environment" else None
    found = run_processes(PROGRAM.read_text(encoding="utf-8"), n, how, environment=environment)
    assert found == ["done\n"] * n


def test_many_processes_count_those_that_do_the_same() -> None:
    """Of more processes than there are here, each would read what all others tell: so two are taken for many."""
    program = Path(__file__).with_name("other_orders_in_processes.py").read_text(encoding="utf-8")
    assert "import tape_core as tc\n" in program
    few = "import tape_core as tc\nfrom tape_torch import meetings\nmeetings.FEW = 1\n"
    program = program.replace("import tape_core as tc\n", few, 1)
    assert run_processes(program, 2, "Sharded", "compiled", "8") == ["done\n"] * 2


def test_first_calls_that_differ_are_an_error_without_a_checked_mesh() -> None:
    program = Path(__file__).with_name("first_calls_in_processes.py")
    assert run_processes(program.read_text(encoding="utf-8"), 2) == ["done\n"] * 2


@pytest.mark.parametrize("how", ["plain", "checked"])
def test_gradients_of_other_variables_are_an_error_that_names_them(how: str) -> None:
    program = Path(__file__).with_name("other_gradients_in_processes.py")
    assert run_processes(program.read_text(encoding="utf-8"), 2, how) == ["done\n"] * 2


@pytest.mark.parametrize("strategy", ["Replicated", "Sharded"])
def test_gradients_of_copies_of_a_model_that_differ_are_an_error_that_names_them(strategy: str) -> None:
    program = Path(__file__).with_name("other_layers_in_processes.py")
    assert run_processes(program.read_text(encoding="utf-8"), 2, "plain", strategy) == ["done\n"] * 2


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("strategy", ["Replicated", "Sharded", "TensorParallel"])
def test_steps_of_other_layers_are_an_error_that_names_them(strategy: str, how: str) -> None:
    program = Path(__file__).with_name("other_orders_in_processes.py")
    assert run_processes(program.read_text(encoding="utf-8"), 2, strategy, how, "8") == ["done\n"] * 2


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_gradients_that_are_sent_by_themselves_are_compared(how: str) -> None:
    program = Path(__file__).with_name("other_orders_in_processes.py")
    assert run_processes(program.read_text(encoding="utf-8"), 2, "Replicated", how, "1500") == ["done\n"] * 2


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_optimizers_with_other_settings_are_an_error_that_names_them(how: str) -> None:
    program = Path(__file__).with_name("settings_in_processes.py")
    assert run_processes(program.read_text(encoding="utf-8"), 2, how) == ["done\n"] * 2


def test_an_environment_variable_that_says_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    from tape_torch.distributed import mesh

    monkeypatch.setenv("TAPE_CHECK_RANKS", "yes")
    with pytest.raises(ValueError, match="TAPE_CHECK_RANKS='yes' is neither 0 nor 1"):
        mesh(device="cpu")
