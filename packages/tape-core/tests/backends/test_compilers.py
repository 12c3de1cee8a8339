"""Compilers are plugins: found, selected, and named when they cannot be used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import tape_core as tc
from tape_core.backends import Backend, CompilerError, CompilerLoadError, CompilerNotFoundError, compilers
from tape_core.backends.plugins import Plugins
from tape_core.base.installing import install_command

COUNTING = """
from tape_compile.compilers import Compiler
from tape_core.backends import CompilerInfo, hookimpl

seen = []


class Counting(Compiler):
    fuses = False

    def compile(self, program, run, examples):
        seen.append([(i.name, len(i.inputs)) for i in program.instructions])
        return run


@hookimpl
def tape_compiler_info():
    return CompilerInfo(name=NAME, contract=CONTRACT, backends=BACKENDS)


@hookimpl
def tape_load_compiler():
    return Counting()
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that installs a compiler of a third party, by its name and changes of its text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    compilers._reset()
    own = list(compilers._plugins._entry_points())
    made: list[str] = []

    def add(name: str, text: str = COUNTING, **values: Any) -> str:
        given = {"NAME": name, "CONTRACT": 1, "BACKENDS": (), **values}
        module = f"compiler_{name}_{len(made)}"
        for key, value in given.items():
            text = text.replace(key, repr(value))
        (tmp_path / f"{module}.py").write_text(text)
        made.append(module)
        own.append(EntryPoint(name, module, compilers.GROUP))
        return module

    monkeypatch.setattr(Plugins, "entry_points", lambda self: own)
    compilers._plugins._entry_points = lambda: own
    yield add
    compilers._reset()
    for module in made:
        sys.modules.pop(module, None)


def double(x: Any) -> Any:
    return tc.sin(x) * 2.0


def test_a_compiler_of_a_third_party_compiles(plugins: Any) -> None:
    module = plugins("counting")
    f = tc.function(compile="counting")(double)
    x = tc.asarray([0.5, 1.0])
    assert f(x).tolist() == double(x).tolist()
    assert f(x).tolist() == double(x).tolist()
    assert [name for name, _ in sys.modules[module].seen[0]] == ["sin", "multiply"]
    assert len(sys.modules[module].seen) == 1


def test_the_environment_selects_the_compiler_of_functions_that_name_none(
    plugins: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plugins("counting")
    monkeypatch.setenv("TAPE_COMPILER", "counting")
    x = tc.asarray([0.5, 1.0])
    assert tc.function(double)(x).tolist() == double(x).tolist()
    assert len(sys.modules[module].seen) == 1
    tc.function(compile="python")(double)(x)
    tc.function(compile=False)(double)(x)
    assert len(sys.modules[module].seen) == 1


def test_a_name_in_the_environment_that_nothing_provides_is_an_error(
    plugins: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPE_COMPILER", "countin")
    plugins("counting")
    with pytest.raises(CompilerNotFoundError, match=r"(?s)Did you mean 'counting'.*asked for by TAPE_COMPILER=countin"):
        tc.function(double)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(plugins: Any) -> None:
    plugins("counting")
    with pytest.raises(ValueError, match="no compiler named 'pythn' is installed\n  Did you mean 'python'"):
        tc.function(compile="pythn")(double)(1.0)
    with pytest.raises(CompilerNotFoundError, match=r"Installed compilers: .*counting.*python") as caught:
        tc.function(compile="elsewhere")(double)(1.0)
    # Nobody of the project owns that name: a stranger might.
    assert "pip install" not in str(caught.value)
    assert install_command("tape-jax") in str(compilers._not_found("xla", []))


def test_a_broken_plugin_is_named_and_is_in_no_other_ones_way(plugins: Any) -> None:
    plugins("broken", "import nothing_of_this_name")
    plugins("tomorrow", CONTRACT=99)
    plugins("misspelled", COUNTING.replace("tape_load_compiler", "tape_lode_compiler"))
    plugins("nameless", NAME="another")
    plugins("counting")
    for name, what in {
        "broken": "ModuleNotFoundError: No module named 'nothing_of_this_name'",
        "tomorrow": "it is written to version 99 of the compiler contract",
        "misspelled": "unknown hook 'tape_lode_compiler'",
        "nameless": "it calls itself 'another'",
    }.items():
        with pytest.raises(CompilerLoadError, match=f"compiler '{name}' .*cannot be loaded: .*{what}"):
            tc.function(compile=name)(double)(1.0)
    assert tc.function(compile="counting")(double)(0.0).item() == 0.0


def test_two_packages_cannot_claim_a_name(plugins: Any) -> None:
    plugins("counting")
    plugins("counting")
    with pytest.raises(CompilerLoadError, match="several packages claim its name"):
        tc.function(compile="counting")(double)(1.0)


def test_a_disabled_compiler_is_not_used(plugins: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_DISABLE_COMPILERS", "counting")
    plugins("counting")
    with pytest.raises(CompilerError, match="compiler 'counting' is disabled by TAPE_DISABLE_COMPILERS=counting"):
        tc.function(compile="counting")(double)(1.0)


def test_a_compiler_is_for_the_backends_that_it_names(plugins: Any) -> None:
    plugins("counting", BACKENDS=("elsewhere",))
    with pytest.raises(ValueError, match="double: compile='counting' is for arrays of elsewhere, and these are of "):
        tc.function(compile="counting")(double)(1.0)


def test_what_a_compiler_does_not_support_is_said(plugins: Any) -> None:
    plugins("counting")
    generator = tc.default_rng(0)
    with pytest.raises(ValueError, match=r"compile='counting' is for what depends on its inputs alone.*random_bits"):
        tc.function(compile="counting")(lambda x: x + generator.uniform(()))(1.0)


def test_without_the_package_a_function_says_what_to_install() -> None:
    code = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tape_compile":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import tape_core as tc
x = tc.Variable(3.0, backend="numpy")
with tc.GradientTape() as tape:
    y = tc.sin(x * x)
tape.gradient(y, x)
tc.vmap(tc.grad(tc.sin))(tc.ones(3, backend="numpy"))
try:
    tc.function(tc.sin)
except ImportError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"To install it: {install_command('tape-compile')}" in found.stdout


def test_modules_that_moved_are_found_with_a_warning_that_names_their_public_place() -> None:
    with pytest.warns(DeprecationWarning, match=r"tape_core\.pytree is tape_core\.support\.pytree now"):
        assert tc.pytree.flatten([1, 2])[0] == [1, 2]  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"tape_core\.dtypes is tape_core\.support\.dtypes now"):
        assert tc.dtypes.float32 is tc.float32  # type: ignore[attr-defined]


def test_a_backend_of_an_earlier_contract_is_told_what_takes_the_place_of_its_compiler() -> None:
    with pytest.warns(DeprecationWarning, match=r"Old\.accelerated is not used any more: write a compiler"):

        class Old(Backend):
            def accelerated(self, run: Any, how: str, examples: Any) -> Any:
                return run
