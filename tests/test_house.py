"""The house stays in order: floors, no circles, and packages that know of each other only what is declared."""

from __future__ import annotations

import house
import pytest

MOST_ANY = 0.15  # of annotated parameters


def test_no_module_of_core_imports_from_a_floor_above_and_no_package_one_that_comes_later() -> None:
    assert house.uphill() == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert house.cycles() == []


def test_packages_import_of_each_other_only_what_is_declared() -> None:
    assert house.private_imports() == []


@pytest.mark.parametrize("package", house.PACKAGES)
def test_few_parameters_are_of_any_type(package: str) -> None:
    assert house.share_of_any()[package] < MOST_ANY


def test_what_is_declared_says_what_it_exports() -> None:
    for package, names in house.DECLARED.items():
        for name in names:
            path = house.modules()[f"{package}.{name}"]
            assert "__all__" in path.read_text(encoding="utf-8"), path
