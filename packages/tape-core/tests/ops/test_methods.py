"""Methods that libraries call on arrays, and what is said of names that are called otherwise here."""

from __future__ import annotations

import importlib
import pickle
import re
import traceback
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import BackendError

X = np.random.default_rng(0).normal(size=(2, 1, 3)) + 0.1

CALLS = {
    "all": lambda x: (x > -9).all(axis=2),
    "any": lambda x: (x > 0).any(),
    "argmax": lambda x: x.argmax(axis=2),
    "argmin": lambda x: x.argmin(),
    "argsort": lambda x: x.argsort(),
    "argsort of all": lambda x: x.argsort(axis=None),
    "astype": lambda x: x.astype("float32"),
    "clip": lambda x: x.clip(-0.5, 0.5),
    "conj": lambda x: x.conj(),
    "conjugate": lambda x: (x * 1j).conjugate(),
    "copy": lambda x: x.copy(),
    "cumprod": lambda x: x.cumprod(axis=2),
    "cumprod of all": lambda x: x.cumprod(),
    "cumsum": lambda x: x.cumsum(axis=2),
    "cumsum of all": lambda x: x.cumsum(),
    "diagonal": lambda x: x.diagonal(),
    "diagonal of other axes": lambda x: x.diagonal(1, 0, 2),
    "dot": lambda x: x.dot(x[0, 0]),
    "dot with a matrix": lambda x: x[0].dot(x[:, 0].T),
    "dot with a stack": lambda x: x[0, 0].dot(x.transpose(0, 2, 1)),
    "dot with a number": lambda x: x.dot(2.0),
    "imag": lambda x: x.imag + (x * (1 + 2j)).imag,
    "real": lambda x: x.real + (x * (1 + 2j)).real,
    "repeat": lambda x: x.repeat(2, axis=0),
    "repeat all": lambda x: x.repeat(2),
    "round to decimals": lambda x: x.round(1) + x.round(decimals=2) + (9 * x).round(-1),
    "searchsorted": lambda x: (x * 0).ravel().searchsorted(0.5),
    "swapaxes": lambda x: x.swapaxes(0, -1) + x[0, 0].swapaxes(0, -1)[:, None, None],
    "take": lambda x: x.take(np.asarray([2, 0]), axis=2),
    "take of all": lambda x: x.take(np.asarray([2, 0])),
    "trace": lambda x: x.trace(0, 0, 2),
    "flatten": lambda x: x.flatten(),
    "max": lambda x: x.max(axis=(0, 2)),
    "mean": lambda x: x.mean(0),
    "min": lambda x: x.min(axis=-1, keepdims=True),
    "prod": lambda x: x.prod(),
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(3, 2),
    "reshape by a tuple": lambda x: x.reshape((-1, 2)),
    "round": lambda x: x.round(),
    "squeeze": lambda x: x.squeeze(),
    "squeeze an axis": lambda x: x.squeeze(axis=1),
    "std": lambda x: x.std(axis=(0, 2)),
    "sum": lambda x: x.sum(axis=1),
    "var": lambda x: x.var(),
    "var of a sample": lambda x: x.var(axis=2, ddof=1, keepdims=True),
    "transpose": lambda x: x.transpose(),
    "transpose in an order": lambda x: x.transpose(2, 0, 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_method_gives_what_numpy_gives_and_its_derivative(name: str) -> None:
    call: Any = CALLS[name]
    expected = call(X)
    for made in (tc.asarray(X), tc.Variable(X)):
        found = call(made)
        assert found.shape == expected.shape
        assert found.dtype.name == expected.dtype.name
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    compiled = tc.function(call)
    assert np.array_equal(compiled(tc.asarray(X)).numpy(), call(tc.asarray(X)).numpy())
    if expected.dtype == np.float64:
        tc.testing.check_grads(call, [tc.asarray(X)])
        assert np.array_equal(tc.vmap(lambda x: call(x).sum())(tc.asarray(np.stack([X, 2 * X]))).shape, (2,))


def test_a_copy_has_memory_of_its_own() -> None:
    array = np.ones(3)
    copy = tc.asarray(array).copy()
    array[:] = 7
    assert copy.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("concatenate", "it is tc.concat here (numpy.concatenate takes Tensors, too)"),
        ("dot", "it is tc.matmul here"),
        ("cumsum", "it is tc.cumulative_sum here"),
        ("array", "it is tc.asarray here"),
        ("jit", "it is tc.function here"),
        ("norm", "it is tc.linalg.vector_norm here"),
        ("expm", "it is tc.linalg.expm here"),
        ("randn", "write tc.default_rng(seed).normal(shape)"),
        ("poisson", "write tc.default_rng(seed).poisson(...)"),
        ("no_grad", "nothing is recorded outside of a tape"),
        ("nn", "the package tape_nn"),
        ("percentile", "has no attribute 'percentile' (numpy.percentile takes Tensors)"),
        ("sigmod", "did you mean tc.sigmoid?"),
        ("median_of_nothing", "module 'tape_core' has no attribute 'median_of_nothing'"),
        ("linalg.norm", "tc.linalg.matrix_norm(x) (numpy.linalg.norm takes Tensors, too)"),
        ("linalg.kron", "it is tc.kron here"),
        ("linalg.sovle", "did you mean tc.linalg.solve?"),
        ("fft.fft2", "write tc.fft.fftn(x, axes=(-2, -1)) (numpy.fft.fft2 takes Tensors, too)"),
        ("special.lgamma", "it is tc.special.gammaln here"),
        ("random.normal", "write tc.default_rng(seed).normal(...)"),
        ("random.PRNGKey", "rng = tc.default_rng(seed)"),
        ("Variable(1.0).detach", "'Variable' object has no attribute 'detach'; write tc.stop_gradient(x)"),
        ("ones(3).at", "write tc.at(x)[index].set(value)"),
        ("ones(3).backward", "tape.gradient(y, x)"),
        ("ones(3).requires_grad_", "tape.watch(x) watches a Tensor"),
        ("ones(3).softmax", "write tc.softmax(x)"),
        ("ones(3).exp_", "write x = tc.exp(x); tensors are not changed in place"),
        ("ones(3).T_", "'Tensor' object has no attribute 'T_'"),
        (
            "default_rng(0).standard_normal",
            "'Generator' object has no attribute 'standard_normal'; write rng.normal(shape)",
        ),
        ("default_rng(0).integer", "did you mean rng.integers?"),
    ],
)
def test_a_name_that_is_not_there_says_what_is(name: str, said: str) -> None:
    owner, _, last = f"tc.{name}".rpartition(".")
    owner = eval(owner, {"tc": tc})
    with pytest.raises(AttributeError, match=re.escape(said)) as caught:
        getattr(owner, last)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert not hasattr(owner, last)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert shown.startswith("AttributeError: ")


def test_each_hint_names_what_is_there() -> None:
    from tape_core.engine.hints import HINTS

    objects = {"tc": tc, "x": tc.asarray([1.0]), "rng": tc.default_rng(0)}
    for space, hints in HINTS.items():
        owner: Any = {"Tensor": objects["x"], "Generator": objects["rng"]}.get(space) or importlib.import_module(space)
        for name, said in {**hints.called, **hints.said}.items():
            assert not hasattr(owner, name), f"{space}.{name} is there"
            for first, rest in re.findall(r"\b(tc|x|rng)\.([a-zA-Z_][\w.]*\w)", said):
                found: Any = objects[first]
                for part in rest.split("."):
                    if part == "show":  # of what `tc.function(f)` returns
                        break
                    found = getattr(found, part)


def test_an_error_inside_a_property_is_not_taken_for_an_absent_name() -> None:
    class Odd(tc.Variable):
        @property
        def scale(self) -> float:
            return self.absent_here

    with pytest.raises(AttributeError, match="'absent_here'"):
        _ = Odd(1.0).scale


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: tc.sum(x, dim=0), "'dim'; it is called 'axis' here; its signature is sum(x"),
        (lambda x: x.sum(dim=0), "sum: got an unexpected keyword argument 'dim'; it is called 'axis' here"),
        (lambda x: x.max(0, keepdim=True), "it is called 'keepdims' here"),
        (
            lambda x: x.std(dim=0),
            "it is called 'axis' here; its signature is std(axis=None, *, ddof=0, keepdims=False)",
        ),
        (lambda x: x.std(unbiased=True), "it is called 'ddof' here"),
        (lambda x: tc.sum(x, axs=0), "did you mean 'axis'?"),
        (lambda x: tc.sum(x, 0), "give the axis by keyword, axis=..."),
        (lambda x: x.round(decimal=1), "did you mean 'decimals'?"),
        (lambda x: tc.sum(x, out=x), "functions write into no array here"),
        (lambda x: tc.zeros(2, 3), "a shape of several sizes is one argument, a tuple; its signature is zeros(shape"),
        (lambda x: tc.linspace(0, 1, steps=5), "it is called 'num' here"),
        (lambda x: tc.round(x, 2), "x.round(decimals) and round(x, digits) round to digits"),
        (lambda x: tc.where(x > 1), "tape_core.nonzero(condition) gives the places alone"),
        (lambda x: tc.function(abs, static_argnums=0), "it is called 'static_argnames' here"),
        (lambda x: tc.vmap(abs, in_dims=0), "it is called 'in_axes' here"),
        (lambda x: tc.default_rng(0).normal(size=3), "it is called 'shape' here"),
        (lambda x: tc.default_rng(0).normal(0.0, 1.0, 3), "its signature is normal(shape=None, *, mean=0.0"),
    ],
)
def test_a_call_in_another_librarys_words_says_what_to_write(call: Any, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        call(tc.asarray([1.0, 2.0]))


def test_two_axes_are_exchanged_by_another_name() -> None:
    with pytest.raises(ValueError, match=re.escape("x.swapaxes(0, 1) exchanges two")):
        tc.ones((2, 3, 4)).transpose(0, 1)


@pytest.mark.each_backend
@pytest.mark.parametrize(
    "call",
    [
        lambda x: tc.std(x, ddof=1),
        lambda x: tc.var(x, ddof=1),
        lambda x: tc.prod(x, where=np.asarray([True, False, True])),
        lambda x: tc.take(x, np.asarray([0]), 0),
        lambda x: tc.take(x, np.asarray([5]), axis=0, mode="clip"),
        lambda x: tc.concat([x, x], 0),
    ],
    ids=["std", "var", "prod", "take by place", "take", "concat"],
)
def test_an_argument_that_only_the_array_library_knows_is_refused(call: Any) -> None:
    # The rule knows nothing of it: the value was right and the gradient another function's.
    x = tc.asarray([1.0, 2.0, 4.0])
    with pytest.raises(TypeError, match="its signature is"):
        call(x)
    with pytest.raises(TypeError, match="its signature is"):
        tc.function(call)(x)
    with pytest.raises(TypeError, match="its signature is"):
        tc.vmap(call)(x[None])


@pytest.mark.each_backend
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integers_are_rounded_to_tens_as_python_does(dtype: str) -> None:
    numbers = [0, 4, 5, 6, 14, 15, 16, 25, 35, 44, 45, 95, 105, 115]
    if dtype[0] == "i":
        numbers += [-n for n in numbers]
    x = tc.asarray(numbers, dtype=dtype)
    for digits in (0, 1, -1, -2):
        found = round(x, digits)
        assert found.dtype.name == dtype
        assert found.tolist() == [round(n, digits) for n in numbers]
        assert x.round(digits).tolist() == found.tolist()
        assert tc.function(lambda x, n=digits: round(x, n))(x).tolist() == found.tolist()


def test_rounding_integers_to_a_unit_that_does_not_fit() -> None:
    assert round(tc.asarray([100, 127], dtype="int8"), -3).tolist() == [0, 0]
    with pytest.raises(OverflowError, match="a multiple of 100000 does not fit uint16"):
        round(tc.asarray([60000], dtype="uint16"), -5)


def test_attributes_of_memory_are_those_of_the_array() -> None:
    for dtype in ("float32", "complex128", "bool", "int16"):
        array = np.zeros((2, 3), dtype)
        x = tc.asarray(array)
        assert (x.itemsize, x.nbytes) == (array.itemsize, array.nbytes)
    assert [n.tolist() for n in tc.asarray([0.0, 3.0, 0.0, 1.0]).nonzero()] == [[1, 3]]


@pytest.mark.parametrize("owner", [tc, tc.linalg, tc.fft, tc.special, tc.stats, tc.random, tc.Tensor, tc.Generator])
def test_tab_completion_shows_public_names(owner: Any) -> None:
    names = [name for name in dir(owner) if not name.startswith("_")]
    if hasattr(owner, "__all__"):
        assert set(names) - set(owner.__all__) <= {"backends", "random", "staging", "support", "tracing", "typing"}
    if owner is tc.Tensor:
        assert {"sum", "reshape", "T", "shape", "real"} <= set(names)
        assert not {"detach", "sin", "add_", "assign", "grad"} & set(dir(owner) + dir(tc.ones(2)))
        assert {"assign", "value"} <= set(dir(tc.Variable)) & set(dir(tc.Variable(1.0)))
    assert "annotations" not in names
    assert "TYPE_CHECKING" not in names


def test_to_device_moves_and_its_gradient_travels_back() -> None:
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x.to_device(x.device) ** 2
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    with pytest.raises(BackendError, match="warp:42"):
        x.to_device("warp:42")
