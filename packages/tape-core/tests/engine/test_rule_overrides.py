"""Rules that a backend or a plugin brings in place of the ops' own."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy
import numpy as np
import pytest
import tape_core as tc
from support import gradients
from tape_core.backends import ArrayAPIBackend, BackendLoadError, discovery
from tape_core.extend import registry

pytestmark = pytest.mark.usefixtures("_ops_are_forgotten")


def second(f: Any, x: Any) -> Any:
    with tc.GradientTape() as outer:
        outer.watch(x)
        (g,) = gradients(f, x)
    return outer.gradient(g, x)


def test_an_override_replaces_rules_on_one_backend() -> None:
    other = ArrayAPIBackend("other", array_api_compat.numpy, array_types=["nowhere:Array"])
    there, here = tc.asarray([1.0], backend=other), tc.asarray([1.0], backend="numpy")
    assert gradients(tc.cos, there)[0].item() == pytest.approx(-np.sin(1.0))
    registry.override("cos", other, x=lambda xp, out: out * 0 + 7)
    assert gradients(tc.cos, there)[0].item() == 7.0
    assert gradients(tc.cos, here)[0].item() == pytest.approx(-np.sin(1.0))
    registry.override("multiply", other, x2=5)
    dx, dy = gradients(tc.multiply, there, there * 3.0)
    assert (dx.item(), dy.item()) == (3.0, 5.0), "what is not named keeps its rule"
    with pytest.raises(KeyError, match="no_such_op"):
        registry.override("no_such_op", other, x=1)
    with pytest.raises(TypeError, match="op 'cos' has no input 'y'"):
        registry.override("cos", other, y=1)
    with pytest.raises(TypeError, match="asks for 'z'"):
        registry.override("cos", other, x=lambda xp, z: z)
    assert gradients(tc.cos, there)[0].item() == 7.0, "a refused override changes nothing"


def test_a_plugin_brings_ops_and_rules(site: Any) -> None:
    site.add(
        "extra",
        plugin={
            "@hookimpl\ndef tape_load_backend": '''\
@hookimpl
def tape_register_rules(registry, backend):
    from tape_core.extend import elementwise

    @elementwise(x=lambda xp, x: 3 * x * x, kernel=lambda xp, x: x * x * x)
    def cube_by_plugin(x, /):
        """`x³`."""

    registry.override("exp", backend, x=lambda xp, out: out * 0 + 5)

@hookimpl
def tape_load_backend'''
        },
        library={
            "from types import SimpleNamespace": "import array_api_compat.numpy",
            'SimpleNamespace(__version__="3.1")': "array_api_compat.numpy",
        },
    )
    assert "cube_by_plugin" not in registry, "nothing is loaded yet"
    backend = discovery.load("extra")
    cube = registry["cube_by_plugin"].function
    x = tc.asarray([2.0], backend=backend)
    assert x.backend.name == "extra"
    assert cube(x).item() == 8.0
    assert gradients(cube, x)[0].item() == 12.0
    assert second(cube, x).item() == 12.0
    assert gradients(tc.exp, x)[0].item() == 5.0
    assert backend.xp.cube_by_plugin(np.asarray(2.0)) == 8.0


@pytest.mark.parametrize("name", ["cosines", "cosine"])
def test_kernels_of_a_plugin_are_looked_at_when_it_has_declared_its_ops(site: Any, name: str) -> None:
    site.add(
        "extra",
        plugin={
            "@hookimpl\ndef tape_load_backend": '''\
@hookimpl
def tape_register_rules(registry, backend):
    from tape_core.extend import elementwise

    @elementwise(x=lambda xp, x: x, kernel=lambda xp, x: x)
    def cosines(x, /):
        """Those of a plugin."""

@hookimpl
def tape_load_backend'''
        },
        library={
            "from types import SimpleNamespace": "import array_api_compat.numpy",
            'SimpleNamespace(__version__="3.1")': "array_api_compat.numpy",
            "array_types=": f"kernels={{'{name}': array_api_compat.numpy.cos}}, array_types=",
        },
    )
    if name == "cosines":
        backend = discovery.load("extra")
        assert backend.xp.cosines(np.asarray(0.0)) == 1.0
        return
    for _ in range(2):
        with pytest.raises(BackendLoadError, match=r"has a kernel for 'cosine', .*did you mean 'cosines'"):
            discovery.load("extra")
