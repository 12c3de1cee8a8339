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
    kinds = ["value", "vjp", "sparsity", "refused", "layout"]
    report = check_backend(immutable, only=[f"{op}/{kind}/*" for kind in kinds])
    assert report.ok, report.failed


def test_what_writing_would_do_is_not_checked(immutable):
    report = check_backend(immutable, only=["tanh/layout/*", "tanh/mutation/*"])
    assert {result.outcome for result in report.results} == {"skipped"}


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
        two, mixed = tc.asarray([2]), tc.asarray([0, -3])
        one = tc.asarray([3])
        for read in (
            lambda: x[2], lambda: x[-3], lambda: x[0, 3], lambda: tc.at(x, 2).set(0.0), lambda: x[two],
            lambda: tc.at(x, two).add(1.0), lambda: tc.take(x, two, axis=0), lambda: tc.take(x, mixed, axis=-2),
            lambda: tc.take(x[0], one), lambda: tc.gather(x, mixed), lambda: tc.take_along_axis(x, one[None]),
            lambda: tc.vmap(lambda i: tc.take(x, i, axis=0))(two[None]),
            lambda: tc.vmap(lambda row: tc.take(row, one))(x), lambda: tc.grad(lambda x: tc.sum(tc.gather(x, two)))(x),
        ):  # fmt: skip
            with pytest.raises(IndexError, match="out of bounds"):
                read()


def test_kernels_that_clamp_indices_are_not_asked(immutable):
    """A library's own indexing, in place of the default kernels, which look at indices by themselves."""

    class Clamping(type(immutable)):  # type: ignore[misc]
        pass

    asked = []

    def clamped(key, shape):
        asked.append(key)
        parts = key if isinstance(key, tuple) else (key,)
        return tuple([np.clip(part, -n, n - 1) for part, n in zip(parts, shape, strict=False)])

    def getitem(x, key):
        return immutable.asarray(np.asarray(x)[clamped(key, x.shape)])

    def scatter_add(x, values, key):
        out = np.array(x)
        np.add.at(out, clamped(key, x.shape), np.asarray(values))
        return immutable.asarray(out)

    kernels = {"getitem": getitem, "scatter_add": scatter_add}
    backend = Clamping("clamping", immutable.namespace, array_types=("tape_immutable.arrays:Array",), kernels=kernels)
    with tc.use_backend(backend):
        x = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
        for index in (2, -3, tc.asarray([0, 2]), (0, tc.asarray([2, 0])), (slice(None), 2)):
            for call in (lambda i=index: x[i], lambda i=index: tc.at(x, i).add(1.0)):
                with pytest.raises(IndexError, match="out of bounds"):
                    call()
        assert not asked
        assert x[tc.asarray([1, -2])].numpy().tolist() == [[3.0, 4.0], [1.0, 2.0]]
        assert tc.at(x, tc.asarray([0, 0])).add(1.0).numpy().tolist() == [[3.0, 4.0], [3.0, 4.0]]
        assert asked
        # Values that cannot be read are not compared: a library that traces by itself can go on.
        backend.xp.is_known = lambda array: False
        assert x[tc.asarray([5])].numpy().tolist() == [[3.0, 4.0]]


AXES = ["sum", "mean", "var", "prod", "max", "argmax", "cumulative_sum", "sort", "top_k", "flip", "roll", "repeat",
        "take", "concat", "stack", "unstack", "squeeze", "permute_dims", "expand_dims", "softmax", "logsumexp", "fft",
        "irfftn", "fftshift", "vector_norm", "vecdot", "trapezoid", "normalize", "cross_entropy"]  # fmt: skip


@pytest.mark.parametrize("op", AXES)
def test_ops_with_axes_on_a_library_that_counts_them_from_0_and_takes_any(immutable, op):
    kinds = ["value/*", "vjp/*", "refused/*", "vmap*", "second/*"]
    report = check_backend(immutable, only=[f"{op}/{kind}" for kind in kinds])
    assert report.ok, report.failed


def test_a_library_that_knows_no_negative_axes_and_takes_any_other():
    sys.path.insert(0, str(SOURCE))
    try:
        from tape_immutable.arrays import Namespace
    finally:
        sys.path.remove(str(SOURCE))
    import array_api_compat.numpy

    xp = Namespace(array_api_compat.numpy)
    x = xp.asarray([[1.0, 2.0], [3.0, 5.0]])
    with pytest.raises(NotImplementedError, match="from 0"):
        xp.sum(x, axis=-1)
    assert xp.sum(x, axis=7).tolist() == xp.sum(x, axis=1).tolist()
    with pytest.raises(TypeError, match="shapes"):
        xp.concat([x, x[0]])


def test_its_axes_and_shapes_are_errors_as_everywhere(immutable):
    def compare(x: tc.Tensor) -> tuple[object, ...]:
        found: list[object] = []
        for call in (
            lambda: tc.sum(x, axis=-3), lambda: tc.max(x, axis=(0, 2)), lambda: tc.stack([x, x], axis=3),
            lambda: tc.permute_dims(x, (0, 2)), lambda: tc.concat([x, x[0]]), lambda: x @ x, lambda: x + x[:, :2],
            lambda: tc.reshape(x, (4, 2)), lambda: tc.vecdot(x, x, axis=-3), lambda: tc.sort(x[0, 0]),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"x|arrays") as caught:
                call()
            found.append((type(caught.value).__name__ == "AxisError", str(caught.value).partition(":")[0]))
            if found[-1][0]:
                found.append(str(caught.value))
        return tuple(found)

    values = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    with tc.use_backend("numpy"):
        expected = compare(tc.asarray(values))
    with tc.use_backend(immutable):
        assert compare(tc.asarray(values)) == expected


def test_negative_axes_in_compiled_and_mapped_functions(immutable):
    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.permute_dims(tc.softmax(x, axis=-1), (-1, 0)) ** 2, axis=-2) + tc.max(x, axis=-1)[0]

    values = np.random.default_rng(0).normal(size=(4, 2, 3))
    found = []
    for backend in ("numpy", immutable):
        with tc.use_backend(backend):
            x = tc.asarray(values)
            every = tc.vmap(tc.grad(lambda x: tc.sum(f(x))))
            found.append([tc.function(f)(x[0]).numpy(), every(x).numpy(), tc.function(every)(x).numpy()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12)


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
