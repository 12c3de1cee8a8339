"""A backend whose arrays cannot be written to: nothing of Tape writes into arrays but by `Backend.put`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from support import run_python
from tape_conformance import check_backend
from tape_core.backends import Backend

SOURCE = Path(__file__).parent / "plugins" / "tape-immutable" / "src"


@pytest.fixture(scope="module")
def immutable() -> Backend:
    sys.path.insert(0, str(SOURCE))
    try:
        import tape_immutable

        return tape_immutable.tape_load_backend()
    finally:
        sys.path.remove(str(SOURCE))


def test_writing_raises(immutable):
    with pytest.raises(TypeError, match="immutable"):
        immutable.asarray([1.0, 2.0])[0] = 3.0


WRITING = ["getitem", "setitem", "scatter", "scatter_add", "scatter_multiply", "scatter_min", "scatter_max", "take",
           "add_windows", "sliding_windows", "max_pool", "avg_pool", "conv", "cholesky", "pad", "roll"]  # fmt: skip


@pytest.mark.parametrize("op", WRITING)
def test_ops_that_write(immutable, op):
    kinds = ["value", "vjp", "sparsity"]
    report = check_backend(immutable, only=[f"{op}/{kind}/*" for kind in kinds])
    assert report.ok, report.failed


def test_contract(immutable):
    report = check_backend(immutable, only=["contract/*", "tape/*"])
    assert report.ok, report.failed


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("optimizer", [lambda: nn.Adam(0.01), lambda: nn.SGD(0.1, momentum=0.9)], ids=["adam", "sgd"])
def test_training_is_that_of_numpy(immutable, compiled, optimizer):
    x = np.random.default_rng(0).normal(size=(16, 8, 8, 1)).astype(np.float32)
    labels = np.arange(16) % 3

    def losses(backend: Backend | str) -> list[float]:
        with tc.use_backend(backend):
            tc.random.set_seed(0)
            layers = [nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(3)]
            model, update = nn.Sequential(layers), optimizer()

            def step(x: tc.Tensor) -> tc.Tensor:
                with tc.GradientTape() as tape:
                    loss = tc.mean(nn.losses.sparse_categorical_crossentropy(labels, model(x), from_logits=True))
                variables = model.trainable_variables
                update.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                return loss

            run = tc.function(step) if compiled else step
            return [run(tc.asarray(x)).item() for _ in range(5)]

    found = losses(immutable)
    assert found[-1] < found[0]
    np.testing.assert_allclose(found, losses("numpy"), rtol=1e-4)


def test_an_index_out_of_bounds_is_an_error_without_asking_the_library(immutable):
    with tc.use_backend(immutable):
        x = tc.ones((2, 3))
        for read in (lambda: x[2], lambda: x[-3], lambda: x[0, 3], lambda: tc.at(x, 2).set(0.0)):
            with pytest.raises(IndexError, match="out of bounds"):
                read()


def test_the_plugin_may_name_its_class_as_users_know_it(tmp_path):
    """A library's `Array` is often defined in a private module, under another name."""
    site = tmp_path / "site"
    (site / "renamed").mkdir(parents=True)
    (site / "renamed" / "__init__.py").write_text("from renamed._hidden import _Hidden as Array\n")
    (site / "renamed" / "_hidden.py").write_text(
        "import numpy\n\n\nclass _Hidden(numpy.ndarray):\n    pass\n\n\n_Hidden.__module__ = 'elsewhere'\n"
    )
    plugin = """
import numpy
from tape_core.backends import ArrayAPIBackend, BackendInfo, hookimpl

@hookimpl
def tape_backend_info():
    return BackendInfo(name="renamed", contract=1, array_types=("renamed:{name}",), install="-")

@hookimpl
def tape_load_backend():
    from renamed import Array

    class Renamed(ArrayAPIBackend):
        def asarray(self, obj, **options):
            options.pop("device", None)
            return numpy.asarray(obj, **options).view(Array)

    return Renamed("renamed", numpy, array_types=("renamed:{name}",))
"""
    info = site / "tape_renamed-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: tape-renamed\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tape.backends]\nrenamed = tape_renamed\n")
    (site / "tape_renamed.py").write_text(plugin.replace("{name}", "Array"))
    found = run_python(
        "-c",
        f"""
import sys
sys.path.insert(0, {str(site)!r})
import numpy, renamed
import tape_core as tc
print(tc.exp(numpy.zeros(2).view(renamed.Array)).backend.name)
""",
    )
    assert found.strip() == "renamed"
    (site / "tape_renamed.py").write_text(plugin.replace("{name}", "Tensor"))
    status = run_python(
        "-c",
        f"""
import sys
sys.path.insert(0, {str(site)!r})
from tape_core.__main__ import main
main([])
""",
    )
    assert "broken: TypeError: it makes arrays of type 'elsewhere:_Hidden', which its array_types" in status
