"""Versions that do not go together are refused by name, with what to install; old ones are announced before."""

from __future__ import annotations

import re
import warnings

import pytest
from support import run_python
from tape_core.backends import (
    BackendInfo,
    BackendLoadError,
    CompilerInfo,
    CompilerLoadError,
    compilers,
    discovery,
    versions,
)
from tape_core.backends.hookspecs import HOOKS, INFOS
from tape_core.backends.versions import CONTRACT_VERSION, CONTRACTS, Contract

# As in a release 0.4 of tape-core that has brought version 3, speaks version 2 still and version 1 no more.
LATER = {
    1: Contract("0.1", until="0.3", changes="Change one."),
    2: Contract("0.2", until="0.6", changes="Rename put to write."),
    3: Contract("0.4"),
}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "CONTRACTS", LATER)
    monkeypatch.setattr(versions, "CONTRACT_VERSION", 3)
    monkeypatch.setattr(versions, "__version__", "0.4.2")


def refusal(site, name: str, contract: str) -> list[str]:
    site.add(name, plugin={"contract=1": f"contract={contract}"})
    with pytest.raises(BackendLoadError) as caught:
        discovery.load(name)
    return str(caught.value).split("\n  ")


def test_the_newest_version_is_spoken_and_the_table_is_whole() -> None:
    assert list(CONTRACTS) == [*range(1, CONTRACT_VERSION + 1)]
    assert CONTRACT_VERSION in versions.spoken()
    assert not CONTRACTS[CONTRACT_VERSION].until
    for old in list(CONTRACTS.values())[:-1]:
        assert old.changes, "its authors are not told what to change"


def test_a_plugin_of_the_newest_contract_says_nothing(site, later) -> None:
    site.add("alpha", plugin={"contract=1": "contract=3"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert discovery.load("alpha").name == "alpha"


def test_a_plugin_of_an_older_contract_works_and_its_end_is_announced(site, later) -> None:
    site.add("alpha", plugin={"contract=1": "contract=2"})
    with pytest.warns(FutureWarning) as caught:
        assert discovery.load("alpha").name == "alpha"
    (warning,) = caught
    assert str(warning.message) == (
        "backend 'alpha' (tape-alpha 1.5, entry point plugin_alpha) is written to version 2 of the backend contract, "
        "the newest is 3: tape-core 0.6 will refuse it. Install a newer tape-alpha: pip install --upgrade tape-alpha. "
        "For its author: Rename put to write."
    )
    assert warning.filename == __file__  # the user's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        discovery.load("alpha")  # once


def test_a_plugin_of_a_contract_that_has_ended_is_told_which_versions_to_install(site, later) -> None:
    first, *hints = refusal(site, "alpha", "1")
    assert first.endswith(
        "it is written to version 1 of the backend contract, and tape-core 0.4.2 speaks versions 2, 3"
    )
    assert hints == [
        "Install a newer tape-alpha: pip install --upgrade tape-alpha",
        'or a tape-core that speaks version 1: pip install "tape-core>=0.1,<0.3"',
    ]


def test_a_plugin_of_a_contract_to_come_is_told_which_versions_to_install(site, later) -> None:
    first, *hints = refusal(site, "alpha", "4")
    assert first.endswith(
        "it is written to version 4 of the backend contract, and tape-core 0.4.2 speaks versions 2, 3"
    )
    assert hints == [
        "Install a newer tape-core: pip install --upgrade tape-core",
        'or an older tape-alpha: pip install "tape-alpha<1.5"',
    ]


@pytest.mark.parametrize("contract", ["'1'", "True", "0", "-2", "1.0", "None"])
def test_what_is_no_version_is_refused(site, contract) -> None:
    first, hint = refusal(site, "alpha", contract)
    assert f"contract is {contract}, which is no version of the backend contract" in first
    assert hint.startswith("Its author writes contract=1")


def test_both_kinds_of_plugins_say_their_version() -> None:
    assert set(HOOKS) == set(INFOS) == {"backend", "compiler"}
    for info in (BackendInfo, CompilerInfo):
        assert "contract" in info.__dataclass_fields__


def test_a_compiler_for_another_tape_compile_is_refused(tmp_path, monkeypatch) -> None:
    info = tmp_path / "tape_quick-2.0.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: tape-quick\nVersion: 2.0\nRequires-Dist: tape-compile>=77\n"
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text("[tape.compilers]\nquick = tape_quick\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    compilers._reset()
    try:
        with pytest.raises(CompilerLoadError) as caught:
            compilers.info("quick")
    finally:
        compilers._reset()
    assert (
        f"it requires tape-compile>=77, and this is tape-compile {versions.installed_version('tape-compile')}"
        in str(caught.value)
    )
    assert "pip install --upgrade tape-compile tape-quick" in str(caught.value)


OLD_CORE = """
import sys
from tape_core.backends import versions
versions.__version__ = "0.0.7"  # as if an older tape-core were installed
for package in sys.argv[1:]:
    try:
        __import__(package.replace("-", "_"))
    except ImportError as error:
        print(error)
"""


def test_a_package_of_tape_is_not_imported_with_another_tape_core() -> None:
    packages = ["tape-nn", "tape-tf", "tape-compile", "tape-numpy", "tape-torch", "tape-jax", "tape-autograd"]
    installed = {package: found for package in packages if (found := versions.installed_version(package))}
    assert "tape-numpy" in installed
    printed = run_python("-c", OLD_CORE, *installed).splitlines()
    for (package, version), first, *hints in zip(installed.items(), *[iter(printed)] * 3, strict=True):
        found = re.fullmatch(rf"{package} {version} requires (tape-core>=\S+), and this is tape-core 0\.0\.7", first)
        assert found, first
        assert hints == [
            f"  Upgrade both: pip install --upgrade tape-core {package}",
            f'  or install what it requires: pip install "{found[1]}"',
        ]
