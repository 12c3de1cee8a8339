"""The JAX backend, as its users meet it: loading, dtypes, arrays of JAX, errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tape_core as tc
from support import run_python


def python(code: str, **environment: str) -> str:
    """Run code in a process of its own; return what it prints."""
    return run_python("-c", code, environment=environment).strip()


# -- loading


def test_gradients_of_jax_arrays_are_jax_arrays() -> None:
    x = tc.asarray([1.0, 2.0, 3.0], backend="jax")
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(x[1:] ** 2)
    gradient = tape.gradient(y, x)
    assert isinstance(gradient.array, jax.Array)
    assert gradient.array.tolist() == [0.0, 4.0, 6.0]


def test_the_environment_selects_the_backend_and_a_device() -> None:
    code = "import tape_core as tc; x = tc.zeros(2); print(x.backend.name, x.device)"
    assert python(code, TAPE_BACKEND="jax") == "jax cpu:0"
    assert python(code, TAPE_BACKEND="jax:cpu") == "jax cpu:0"


@pytest.mark.parametrize("make", ["tc.asarray(1.0)", "tc.zeros(2)", "tc.default_rng(0).normal(2)", "tc.sin(1.0)"])
def test_devices_that_jax_is_told_to_use_and_does_not_have_are_named_with_the_cure(make: str) -> None:
    code = f"import tape_core as tc\ntry: {make}\nexcept tc.backends.BackendError as error: print(error)"
    shown = python(code, TAPE_BACKEND="jax", JAX_PLATFORMS="nonsense")
    assert "JAX_PLATFORMS" in shown
    assert "'nonsense'" in shown
    assert "JAX_PLATFORMS=cpu" in shown


def test_64_bits_are_there_and_a_users_wish_for_32_is_refused() -> None:
    code = (
        "import tape_core as tc; print(tc.asarray([1]).dtype, tc.asarray(1.0, dtype='float64').dtype, tc.ones(1).dtype)"
    )
    assert python(code, TAPE_BACKEND="jax") == "int64 float64 float32"
    code = (
        "import tape_core as tc\n"
        "try: tc.zeros(2, backend='jax')\n"
        "except tc.backends.BackendLoadError as error: print(error)"
    )
    assert "unset JAX_ENABLE_X64" in python(code, JAX_ENABLE_X64="0")


def test_64_bits_that_are_switched_off_later_are_an_error_not_another_dtype() -> None:
    tc.asarray([1.0], backend="jax")
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(TypeError, match=r"jax_enable_x64 was switched off"):
            tc.asarray([1], backend="jax")
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_compiled_functions_need_64_bits_where_their_values_have_them(backend: str) -> None:
    doubled = tc.function(lambda x: 2 * x, compile="xla")
    arrays = [tc.ones(3, dtype=dtype, backend=backend) for dtype in (tc.float64, tc.float32)]
    for x in arrays:
        doubled(x)
    with jax.enable_x64(False):
        with pytest.raises(TypeError, match=r"JAX makes float32 of float64, since jax_enable_x64 was switched off"):
            doubled(arrays[0])
        assert doubled(arrays[1]).dtype == tc.float32
    assert doubled(arrays[0]).dtype == tc.float64


def test_an_old_jax_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import tape_jax
    from tape_jax import compilers

    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.4.30")
    said = r"JAX 0\.8 or later, and JAX 0\.4\.30 is installed: pip install 'jax>=0\.8'"
    for load in (tape_jax.tape_load_backend, compilers.tape_load_compiler):
        with pytest.raises(ImportError, match=said):
            load()


def test_the_oldest_version_is_that_of_the_packages_requirement() -> None:
    from importlib.metadata import requires

    import tape_jax

    least = ".".join(map(str, tape_jax.MINIMUM))
    assert f"jax>={least}" in [requirement.replace(" ", "") for requirement in requires("tape-jax") or ()]


def test_without_jax_the_error_says_how_to_get_it() -> None:
    code = (
        "import sys, tape_core as tc\n"
        "sys.meta_path.insert(0, type('', (), {'find_spec': staticmethod(lambda name, *_: "
        "(_ for _ in ()).throw(ModuleNotFoundError('No module named jax', name='jax')) if name == 'jax' else None)}))\n"
        "try: tc.zeros(2, backend='jax')\n"
        "except tc.backends.BackendLoadError as error: print(error)"
    )
    assert "pip install tape-jax" in python(code)


# -- dtypes


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
              "float32", "float64", "complex64", "complex128"],
)  # fmt: skip
def test_every_dtype_comes_in_and_goes_out(dtype: str) -> None:
    given = np.asarray([0, 1, 1]).astype(getattr(ml_dtypes, dtype, dtype))
    x = tc.asarray(given, backend="jax")
    assert x.dtype is getattr(tc, dtype)
    assert x.array.dtype == given.dtype
    assert tc.ones(2, dtype=dtype, backend="jax").dtype is x.dtype
    assert x.numpy().tolist() == given.tolist()


def test_python_numbers_are_weak_and_arrays_of_jax_never_are() -> None:
    weak = jnp.asarray(2.0)
    assert weak.weak_type
    x = tc.asarray(weak)
    assert (tc.ones(2, backend="jax") * x).dtype is tc.float64
    assert (tc.ones(2, backend="jax") * 2.0).dtype is tc.float32
    assert (tc.arange(3, backend="jax") * 2.0).dtype is tc.float32
    assert (tc.ones(2, dtype="bfloat16", backend="jax") * 2.0).dtype is tc.bfloat16
    assert tc.add(jnp.ones(2, jnp.float32), weak).dtype is tc.float64


def test_integers_that_count_and_multiply_have_64_bits() -> None:
    small = tc.asarray(np.asarray([3, 100, 7], np.uint8), backend="jax")
    assert tc.cumulative_prod(small).tolist() == [3, 300, 2100]
    assert tc.cumulative_prod(small).dtype is tc.uint64
    assert tc.searchsorted(small, small).dtype is tc.int64


# -- factorizations


def test_factorizations_and_triangular_systems_are_jaxs_own() -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=(2, 40, 40)) + 10 * np.eye(40)
    x = tc.asarray(given, backend="jax")
    lu, permutation = tc.linalg.lu_factor(x)
    assert permutation.dtype is tc.int64
    lower, upper = np.tril(lu.numpy(), -1) + np.eye(40), np.triu(lu.numpy())
    rows = np.take_along_axis(given, permutation.numpy()[..., None], axis=-2)
    np.testing.assert_allclose(lower @ upper, rows, rtol=1e-12, atol=1e-12)
    b = tc.asarray(rng.normal(size=(40, 3)), backend="jax")
    found = tc.linalg.solve_triangular(x, b, lower=True).numpy()
    np.testing.assert_allclose(np.tril(given) @ found, np.broadcast_to(b.numpy(), found.shape), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="singular"):
        tc.linalg.solve_triangular(x * 0.0, b)


# -- arrays of JAX


def test_jax_arrays_are_known_without_being_asked_for() -> None:
    x = jnp.arange(3.0)
    assert tc.sin(x).backend.name == "jax"
    assert tc.asarray(x).array is x


def test_what_jax_traces_is_an_array_of_the_backend() -> None:
    def f(x: jax.Array) -> jax.Array:
        assert tc.asarray(x).backend.name == "jax"
        gradient = tc.grad(lambda t: tc.sum(tc.sin(t) * tc.asarray([1.0, 2.0, 3.0], backend="jax")))(tc.asarray(x))
        return gradient.array

    x = jnp.arange(3.0)
    expected = np.cos(np.arange(3.0)) * [1, 2, 3]
    for transformed in (f, jax.jit(f)):
        np.testing.assert_allclose(transformed(x), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(f)(jnp.stack([x, x])), [expected, expected], rtol=1e-6)
    cosines = jax.grad(lambda x: jnp.sum(tc.sin(tc.asarray(x)).array))(x)
    np.testing.assert_allclose(cosines, np.cos(np.arange(3.0)), rtol=1e-6)


def test_the_text_of_a_traced_tensor_says_so() -> None:
    seen = []
    jax.jit(lambda x: seen.append(repr(tc.asarray(x))) or x)(jnp.ones(2))  # type: ignore[func-returns-value]
    assert "Tracer" in seen[0] or "float64[2]" in seen[0]


def test_an_assignment_changes_no_array_of_jax() -> None:
    given = jnp.zeros(3)
    x = tc.Variable(given)
    x.assign_add(jnp.ones(3))
    assert given.tolist() == [0, 0, 0]
    assert x.numpy().tolist() == [1, 1, 1]


# -- errors


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_a_label_that_is_no_class_is_an_error(labels: list[int]) -> None:
    scores = tc.ones((2, 3), backend="jax")
    with pytest.raises(ValueError, match=r"labels must be in \[0, 3\)"):
        tc.cross_entropy(scores, tc.asarray(labels, backend="jax"))
    with pytest.raises(ValueError, match=r"labels must be in \[0, 3\)"):
        tc.cross_entropy(tc.matrix_transpose(scores), tc.asarray(labels, backend="jax"), axis=0)


def test_labels_are_not_looked_at_where_jax_traces() -> None:
    scores, labels = jnp.zeros((2, 3), jnp.float32), jnp.asarray([0, 2])
    loss = jax.jit(lambda x, y: tc.cross_entropy(x, y).array)(scores, labels)
    np.testing.assert_allclose(loss, np.log([3.0, 3.0]), rtol=1e-6)


def test_shapes_that_do_not_fit_are_value_errors() -> None:
    a, b = tc.ones((2, 3), backend="jax"), tc.ones(4, backend="jax")
    for call in (lambda: a @ b, lambda: a + b, lambda: tc.concat([a, b])):
        with pytest.raises(ValueError, match=r"\[2, 3\].*\[4\]"):
            call()


def test_a_branch_on_a_traced_value_is_jaxs_error() -> None:
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x: tc.asarray(x).array if tc.asarray(x)[0] > 0 else x)(jnp.ones(2))
