"""Fixtures: fake packages with backend plugins, in a folder of the test's own; ops that go with their test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tape_core.backends import compilers, discovery, selection
from tape_core.base.ambient import SELECTIONS

PLUGIN = """\
from tape_core.backends import BackendInfo, hookimpl

@hookimpl
def tape_backend_info():
    return BackendInfo(
        name="NAME", contract=1, array_types=("NAMElib:Array",), install="pip install NAMElib"
    )

@hookimpl
def tape_load_backend():
    import NAMElib
    return NAMElib.backend
"""

LIBRARY = """\
from types import SimpleNamespace
from tape_core.backends import Backend

class Array: pass

class Fake(Backend):
    def devices(self):
        return ("cpu", "gpu:0", "gpu:1")

    def asarray(self, obj, **options):
        return super().asarray(obj, **options) if hasattr(self.namespace, "asarray") else Array()

backend = Fake("NAME", SimpleNamespace(__version__="3.1"), array_types=("NAMElib:Array",))
"""


class Site:
    """A folder on `sys.path` to which fake packages are added; no other plugin is to be seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        name: str,
        *,
        distribution: str = "",
        requires: str = "",
        plugin: Mapping[str, str] = {},
        library: Mapping[str, str] = {},
    ) -> None:
        """A package with the backend `name`: module `plugin_NAME`, array library `NAMElib`.

        `plugin` and `library` replace text of these modules.
        """
        distribution = distribution or f"tape-{name}"
        for module, text, changes in (
            (f"plugin_{name}", PLUGIN, plugin),
            (f"{name}lib", LIBRARY, library),
        ):
            for old, new in changes.items():
                assert old in text
                text = text.replace(old, new)
            self.write(f"{module}.py", text.replace("NAME", name))
        info = f"{distribution.replace('-', '_')}-1.5.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n"
        self.write(f"{info}/METADATA", metadata + (f"Requires-Dist: {requires}\n" * bool(requires)))
        self.write(f"{info}/entry_points.txt", f"[tape.backends]\n{name} = plugin_{name}\n")

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    found = discovery._entry_points
    monkeypatch.setattr(
        discovery,
        "_entry_points",
        lambda: (e for e in found() if Path(str(e.dist.locate_file(""))) == tmp_path),
    )
    monkeypatch.setattr(discovery, "_state", discovery._State())
    without_compilers = compilers._make_plugins()
    without_compilers._entry_points = tuple
    monkeypatch.setattr(compilers, "_plugins", without_compilers)
    monkeypatch.setattr(selection, "_process", None)
    monkeypatch.setattr(selection, "_default", None)
    monkeypatch.setattr(selection, "_specs", {})
    for variable in ("TAPE_BACKEND", "TAPE_DISABLE_BACKENDS", "TAPE_TRACE_PLUGINS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    contexts = SELECTIONS.set(())
    before = set(sys.modules)
    yield Site(tmp_path)
    SELECTIONS.reset(contexts)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
