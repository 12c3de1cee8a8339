"""Activations of complex numbers: the holomorphic functions, as JAX has them, or an error; never NumPy's order."""

import os

import numpy as np
import pytest
import tape_core as tc
from support import run_python

pytestmark = pytest.mark.each_backend

Z = np.asarray([0.3 - 1.2j, -2.0 + 0.7j, 1.5 + 2.9j, -0.4 - 3.0j])

DEFINITIONS = {
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "softplus": lambda z: np.log(1 + np.exp(z)),
    "log_sigmoid": lambda z: -np.log(1 + np.exp(-z)),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "mish": lambda z: z * np.tanh(np.log(1 + np.exp(z))),
    "softmax": lambda z: np.exp(z) / np.exp(z).sum(),
    "log_softmax": lambda z: z - np.log(np.exp(z).sum()),
    "logsumexp": lambda z: np.log(np.exp(z).sum()),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_holomorphic_activations(name):
    function, definition = getattr(tc, name), DEFINITIONS[name]
    z = tc.asarray(Z)
    expected = definition(Z)
    for f in (function, tc.function(function)):
        np.testing.assert_allclose(f(z).numpy(), expected, rtol=1e-12)
    rows = tc.vmap(function)(tc.stack([z, z]))
    np.testing.assert_allclose(rows.numpy(), np.stack([expected, expected]), rtol=1e-12)

    def loss(z):
        return tc.sum(tc.real(function(z) * (0.7 - 0.4j)))

    # The gradient of a real loss: the derivative by the real part, plus i times that by the imaginary part.
    for gradient in (tc.grad(loss)(z), tc.function(tc.grad(loss))(z)):
        for k in range(len(Z)):
            step = np.zeros(len(Z), complex)
            step[k] = 1e-6
            by_parts = [
                (np.sum((definition(Z + s) * (0.7 - 0.4j)).real) - np.sum((definition(Z - s) * (0.7 - 0.4j)).real))
                / 2e-6
                for s in (step, 1j * step)
            ]
            np.testing.assert_allclose(gradient.numpy()[k], by_parts[0] + 1j * by_parts[1], rtol=2e-7, atol=2e-8)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_an_exported_file_computes_with_complex_numbers(name, tmp_path):
    def called(x):
        return getattr(tc, name)(x)

    function, z = tc.function(called), tc.asarray(Z)
    tc.asarray([1.0], dtype="bfloat16") + 1  # kernels are guarded as well
    function.export(tmp_path / "file.py", z)
    namespace = {"__name__": "file", "__file__": str(tmp_path / "file.py")}
    exec((tmp_path / "file.py").read_text(), namespace)
    found = namespace["called"](z.array)[0]
    np.testing.assert_allclose(np.asarray(found), DEFINITIONS[name](Z), rtol=1e-12)


def test_large_complex_numbers_do_not_overflow_and_logarithms_are_principal():
    z = tc.asarray([900 + 10j, -900 + 10j])
    np.testing.assert_allclose(tc.sigmoid(z).numpy(), [1, 0], atol=1e-300)
    wrapped = 10 - 4 * np.pi  # the angle of exp(10j)
    np.testing.assert_allclose(tc.softplus(z).numpy(), [900 + 1j * wrapped, 0], atol=1e-300)
    np.testing.assert_allclose(tc.logsumexp(z).numpy(), 900 + 1j * wrapped)


@pytest.mark.parametrize("name", ["relu", "elu", "hard_silu", "leaky_relu", "relu6", "sort", "max", "argmin", "floor"])
def test_functions_of_real_numbers_refuse_complex_ones(name):
    function = getattr(tc, name)
    z = tc.asarray(Z)
    for f, argument in ((function, z), (tc.function(function), z), (tc.vmap(function), tc.stack([z, z]))):
        with pytest.raises(TypeError, match=rf"^{name}\(x: complex128\[4\]\).*real numbers.*tape_core\.real"):
            f(argument)
    with tc.GradientTape() as tape, pytest.raises(TypeError, match="real numbers"):
        tape.watch(z)
        function(z)
    function(tc.asarray(Z.real))  # real arguments go the same way as before


def test_a_complex_number_of_python_counts():
    x = tc.asarray([1.0, 2.0])
    for call in (lambda: tc.maximum(x, 1j), lambda: x < 1j, lambda: x <= 1j, lambda: tc.clip(x, 1j)):
        with pytest.raises(TypeError, match="real numbers, not complex ones"):
            call()


MADE = (
    *("x * 1j", "tc.astype(x, 'complex64')", "tc.fft.fft(x)", "tc.asarray(np.ones(2, np.complex64))"),
    *("tc.linalg.eigvals(tc.asarray([[0.0, 1.0], [-1.0, 0.0]]))", "tc.function(lambda x: x * 1j)(x)"),
    *("tc.where(x > 0, x, 1j)", "tc.zeros(2, dtype=tc.complex128)"),
)


@pytest.mark.long_on_jax
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each array is the first of a process that is forked")
def test_the_first_complex_array_of_a_program_is_told_apart_however_it_was_made():
    code = (
        "import os, sys, numpy as np, tape_core as tc\n"
        "library = os.environ.get('TAPE_BACKEND', '').partition(':')[0]\n"
        "library and __import__(library)  # takes most of the time\n"
        f"for made in {MADE!r}:\n"
        "    if os.fork():\n"
        "        assert os.wait()[1] == 0, made\n"
        "        continue\n"
        "    x = tc.asarray([1.0, 2.0])\n"
        "    tc.relu(x), tc.sigmoid(x)\n"
        "    z = eval(made)\n"
        "    s = 1 / (1 + np.exp(-z.numpy()))\n"
        "    assert np.allclose(tc.sigmoid(z).numpy(), s, rtol=1e-5)\n"
        "    try:\n"
        "        tc.relu(z)\n"
        "    except TypeError as error:\n"
        "        print(error, flush=True)\n"
        "    sys.exit()\n"
    )
    found = run_python("-c", code)
    assert found.count("it takes real numbers") == len(MADE), found
