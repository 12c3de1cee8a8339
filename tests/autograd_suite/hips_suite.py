"""A plugin of pytest for autograd's own tests: they import `autograd` and get `tape_autograd`.

`python -m nox -s autograd -- PATH` runs them, of a checkout of HIPS/autograd. What differs is expected to fail, with
the reason.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

import pytest

EXPECTED = {
    "test_fft.py::test_rfftn_odd_not_implemented": "it has a derivative here",
    "test_linalg.py::test_pinv": "uses private names of autograd.numpy.linalg",
    "test_misc.py::test_const_graph": "const_graph runs the function each time",
    "test_misc.py::test_const_graph_args": "const_graph runs the function each time",
    "test_wrappers.py::test_dtypes": "Tape has no longdouble",
    "test_wrappers.py::test_wrapped_name_and_docs": "the text of a docstring",
}


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `autograd` and its submodules in `tape_autograd`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "autograd":
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(f"tape_{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has been run under its own name."""


sys.meta_path.insert(0, Alias())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = EXPECTED.get(f"{item.path.name}::{item.name}")
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
