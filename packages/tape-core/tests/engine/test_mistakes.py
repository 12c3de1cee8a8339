"""What is said of mistakes in calls: each error names what was wrong and what to do."""

import copy
import math
import re
import warnings

import numpy
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend, BackendNotFoundError
from tape_core.base.mistakes import flag, integer, meant, real
from tape_core.extend import registry

NUMBER = 3


def _cube(x, y=1.0):
    return x * x * x * y


def _ones(*shape):
    return tc.ones(shape)


NO_FUNCTIONS = {
    "grad": lambda: tc.grad(NUMBER),
    "value_and_grad": lambda: tc.value_and_grad(NUMBER),
    "jacrev": lambda: tc.jacrev(NUMBER),
    "jacfwd": lambda: tc.jacfwd(NUMBER),
    "hessian": lambda: tc.hessian(NUMBER),
    "hvp": lambda: tc.hvp(NUMBER, (_ones(2),), (_ones(2),)),
    "jvp": lambda: tc.jvp(NUMBER, (_ones(2),), (_ones(2),)),
    "vjp": lambda: tc.vjp(NUMBER, _ones(2)),
    "linearize": lambda: tc.linearize(NUMBER, _ones(2)),
    "vmap": lambda: tc.vmap(NUMBER),
    "checkpoint": lambda: tc.checkpoint(NUMBER),
    "function": lambda: tc.function(NUMBER),
    "custom_gradient": lambda: tc.custom_gradient(NUMBER),
    "custom_jvp": lambda: tc.custom_jvp(NUMBER),
    "defjvp": lambda: tc.custom_jvp(_cube).defjvp(NUMBER),
    "custom_root": lambda: tc.custom_root(_cube, NUMBER),
    "fixed_point": lambda: tc.fixed_point(NUMBER, _ones(2)),
    "scan": lambda: tc.scan(NUMBER, _ones(2), _ones(2)),
    "map": lambda: tc.map(NUMBER, _ones(2)),
    "cond": lambda: tc.cond(True, _cube, NUMBER, _ones(2)),
    "while_loop": lambda: tc.while_loop(_cube, NUMBER, _ones(2)),
    "scipy_objective": lambda: tc.scipy_objective(NUMBER, _ones(2)),
}


@pytest.mark.parametrize("name", NO_FUNCTIONS)
def test_what_is_no_function_is_refused_at_once(name):
    with pytest.raises(TypeError, match=rf"^{name}: .*function.*got 3"):
        NO_FUNCTIONS[name]()


BY_ARGUMENT = ["grad", "value_and_grad", "jacrev", "jacfwd", "hessian"]


@pytest.mark.parametrize("name", BY_ARGUMENT)
@pytest.mark.parametrize("argnums", ["x", True, 1.5, None, (0, "x"), (0, True), [0.0]])
def test_argnums_that_are_no_integers_are_refused_at_once(name, argnums):
    with pytest.raises(TypeError, match=re.escape(f"{name}: argnums must be") + ".*" + re.escape(repr(argnums))):
        getattr(tc, name)(_cube, argnums=argnums)


@pytest.mark.parametrize("name", BY_ARGUMENT)
def test_argnums_that_name_an_argument_twice_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}: argnums names an argument twice"):
        getattr(tc, name)(_cube, argnums=(1, 1))
    with pytest.raises(ValueError, match=f"{name}: argnums names an argument twice"):
        getattr(tc, name)(_cube, argnums=(0, -2))(2.0, 3.0)


@pytest.mark.parametrize("name", BY_ARGUMENT)
@pytest.mark.parametrize("argnums", [2, -3, (0, 2)])
def test_argnums_out_of_range_say_how_many_arguments_there_are(name, argnums):
    with pytest.raises(ValueError, match=f"{name}: argnums asks for argument -?[23], .*2 positional arguments"):
        getattr(tc, name)(_cube, argnums=argnums)(2.0, 3.0)


def test_argnums_may_be_any_integers():
    class Two:
        def __index__(self):
            return 1

    assert tc.grad(_cube, argnums=Two())(2.0, 3.0).item() == 8.0
    assert [g.item() for g in tc.grad(_cube, argnums=[-1, 0])(2.0, 3.0)] == [8.0, 36.0]


CALLS = {
    "no negative shape of normal": (
        lambda: tc.default_rng(0).normal((-1,)),
        ValueError,
        r"normal: shape must not have negative sizes; got \(-1,\)",
    ),
    "no negative shape of uniform": (
        lambda: tc.default_rng(0).uniform((2, -1)),
        ValueError,
        "uniform: shape must not have negative sizes",
    ),
    "no negative shape of integers": (
        lambda: tc.default_rng(0).integers(0, 5, -1),
        ValueError,
        "integers: shape must not have negative sizes",
    ),
    "no text for a shape": (lambda: tc.default_rng(0).normal("a"), TypeError, "normal: shape must be .*got 'a'"),
    "no float in a shape": (lambda: tc.default_rng(0).uniform((2.5,)), TypeError, "uniform: shape must be an integer"),
    "no float for low": (lambda: tc.default_rng(0).integers(0.5, 5), TypeError, "integers: low must be an integer"),
    "no permutation of -1": (lambda: tc.default_rng(0).permutation(-1), ValueError, "permutation: n must be at least"),
    "no permutation of text": (lambda: tc.default_rng(0).permutation("a"), TypeError, "permutation: n must be an int"),
    "no step of 0": (lambda: tc.arange(0, 5, 0), ValueError, "arange: step must not be 0"),
    "no step of 0.0": (lambda: tc.arange(0.0, 5.0, 0.0), ValueError, "arange: step must not be 0"),
    "no text for the start of a range": (lambda: tc.arange("a"), TypeError, "arange: start must be a number; got 'a'"),
    "no complex end of a range": (lambda: tc.arange(0, 1j), TypeError, "arange: stop must be a number; got 1j"),
    "no range without an end": (lambda: tc.arange(math.inf), ValueError, "arange: start must be finite; got inf"),
    "no range of NaN": (lambda: tc.arange(0.0, 1.0, math.nan), ValueError, "arange: step must be finite; got nan"),
    "no integers where most are 0": (
        lambda: tc.default_rng(0).uniform((2,), dtype="int64"),
        TypeError,
        "uniform: dtype must be floating; got int64",
    ),
    "no complex normal numbers": (
        lambda: tc.default_rng(0).normal((2,), dtype="complex64"),
        TypeError,
        "normal: dtype must be floating; got complex64",
    ),
    "no integer that is too large beside integers": (
        lambda: tc.asarray([1]) + 2**70,
        OverflowError,
        r"add\(x1: int64\[1\], x2: 1180591620717411303424\): ",
    ),
    "no fill value that is too large": (lambda: tc.full((2,), 2**70), (OverflowError, ValueError), "^full: "),
    "no derivative by no argument": (lambda: tc.hessian(tc.sum, argnums=())(_ones(2)), ValueError, "argnums is empty"),
    "no compiler that is not installed": (
        lambda: tc.function(lambda x: x, compile="nosuch")(_ones(2)),
        ValueError,
        "no compiler named 'nosuch' is installed",
    ),
    "no text for persistent": (lambda: tc.GradientTape(persistent="no"), TypeError, "persistent must be True or False"),
    "no text for debug": (lambda: tc.GradientTape(debug="no"), TypeError, "debug must be True or False"),
    "no list for watch_accessed_variables": (
        lambda: tc.GradientTape(watch_accessed_variables=[]),
        TypeError,
        "watch_accessed_variables must be True or False",
    ),
    "no number for a name": (
        lambda: tc.Variable(1.0, name=1),
        TypeError,
        "Variable: name must be a str or None",
    ),
    "no text for trainable": (lambda: tc.Variable(1.0, trainable="x"), TypeError, "trainable must be True or False"),
    "no product of numbers": (
        lambda: tc.asarray(1.0) @ tc.asarray(2.0),
        ValueError,
        r"matmul\(x1: float32\[\], x2: float32\[\]\): @ multiplies vectors and matrices, and x1 and x2 are numbers",
    ),
    "no product with a number": (lambda: tc.ones(3) @ 2.0, ValueError, r"x2 is a number.*write x1 \* x2"),
    "no product of a number": (lambda: tc.matmul(2.0, tc.ones(3)), ValueError, r"x1 is a number.*write x1 \* x2"),
    "no product of numbers when compiled": (
        lambda: tc.function(lambda x: x @ x)(tc.asarray(1.0)),
        ValueError,
        "@ multiplies vectors and matrices",
    ),
    "as many tangents as primals": (
        lambda: tc.ForwardAccumulator((_ones(2), _ones(3)), [_ones(2)]),
        ValueError,
        re.escape("tangents is [*], primals is (*, *)"),
    ),
    "no other keys than the primals": (
        lambda: tc.ForwardAccumulator({"a": _ones(2)}, {"b": _ones(2)}),
        ValueError,
        re.escape("tangents is {'b': *}, primals is {'a': *}"),
    ),
    "no list for the tangents of linearize": (
        lambda: tc.linearize(lambda p: p[0] * p[1], (_ones(2), _ones(2)))[1]([_ones(2), _ones(2)]),
        ValueError,
        re.escape("tangents is [[*, *]], primals is [(*, *)]"),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_says_what_was_wrong_with_a_call(name):
    call, kind, text = CALLS[name]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("listed", [True, False])
def test_two_output_gradients_for_one_target_are_counted(listed):
    v = tc.Variable([1.0, 2.0, 3.0])
    with tc.GradientTape() as tape:
        y = v * 2.0
    with pytest.raises(ValueError, match="output_gradients has 2 leaves, target has 1; give one for each"):
        tape.gradient([y] if listed else y, v, output_gradients=[_ones(3), _ones(3)])


def test_output_gradients_may_be_the_elements_of_one():
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = v * 2.0
    assert tape.gradient(y, v, output_gradients=[tc.asarray(1.0), tc.asarray(3.0)]).tolist() == [2.0, 6.0]


INSIDE_VMAP = {
    "add": (lambda x: x + _ones(4), r"add\(x1: float32\[3\], x2: float32\[4\]\) of one example, inside vmap"),
    "matmul": (lambda x: x @ _ones(4, 2), r"matmul\(x1: float32\[3\], x2: float32\[4, 2\]\) of one example"),
    "reshape": (lambda x: tc.reshape(x, (7,)), r"reshape\(x: float32\[3\], \(7,\)\) of one example"),
    "getitem": (lambda x: x[7], r"getitem\(x: float32\[3\], 7\) of one example"),
    "sum": (lambda x: tc.sum(x, axis=1), r"sum\(x: float32\[3\], axis=1\) of one example, inside vmap: axis 1 is out"),
    "concat": (lambda x: tc.concat([x, _ones(2, 2)]), r"concat\(arrays\[0\]: float32\[3\], .*\) of one example"),
    "gradient": (tc.grad(lambda x: tc.sum(x + _ones(4))), r"add\(x1: float32\[3\], x2: float32\[4\]\) of one example"),
}


@pytest.mark.parametrize("name", INSIDE_VMAP)
@pytest.mark.parametrize("compiled", [False, True])
def test_errors_inside_vmap_show_the_shapes_of_one_example(name, compiled):
    f, text = INSIDE_VMAP[name]
    mapped = tc.function(tc.vmap(f)) if compiled else tc.vmap(f)
    with pytest.raises((ValueError, IndexError), match=f"^{text}"):
        mapped(_ones(5, 3))
    with pytest.raises((ValueError, IndexError), match=f"^{text}"):  # and those of the call, once
        tc.vmap(tc.vmap(f))(_ones(6, 5, 3))


def test_an_op_that_is_not_declared_is_named_and_guessed():
    backend = tc.get_backend()
    with pytest.raises(KeyError, match=r"^no op 'tahn' is declared; did you mean 'tanh'\?"):
        registry.override("tahn", backend, x=lambda xp, x: x)
    with pytest.raises(KeyError, match=r"^no op 'matmull' is declared; did you mean 'matmul'\?"):
        registry["matmull"]
    with pytest.raises(KeyError, match=r"^no op 'qqqq' is declared$"):
        registry["qqqq"]
    assert "qqqq" not in registry
    assert registry.get("qqqq") is None


def test_a_kernel_that_a_backend_lacks_is_guessed():
    with pytest.raises(AttributeError, match=r"has no kernel 'expp'.*did you mean 'exp'\?"):
        tc.get_backend().xp.expp  # noqa: B018 # it is what is tested


@pytest.mark.parametrize("name", ["nosuch", "zig", "cupy"])
def test_no_package_is_suggested_that_nobody_owns(name):
    with pytest.raises(BackendNotFoundError) as error:
        tc.zeros(2, backend=name)
    assert "pip install" not in str(error.value)


def test_checked_arguments_are_python_numbers():
    assert (integer("f", "n", 3), real("f", "x", 1), flag("f", "b", 1)) == (3, 1.0, True)
    assert [type(found) for found in (real("f", "x", 1), flag("f", "b", 0))] == [float, bool]
    for check, wrong in ((integer, 2.0), (integer, True), (real, "1"), (real, None), (flag, 2), (flag, None)):
        with pytest.raises(TypeError, match="f: what must be"):
            check("f", "what", wrong)
    assert meant("qqqq", ["sin"]) == ""


def _tried(later=(), **options):
    """What is warned of when a backend with these kernels or rules runs its first ops."""
    backend = ArrayAPIBackend("hasty", numpy, array_types=("numpy:ndarray",), **options)
    backend.kernels.update(later)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = tc.ones(2, backend=backend)
        tc.sin(x)
        tc.vmap(tc.cos)(x)
        tc.function(tc.exp)(x)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernels": {"tahn": numpy.tanh}}, "has a kernel for 'tahn', and there is no such op; did you mean 'tanh'?"),
        ({"kernels": {"matmul_with_residual": numpy.matmul}}, "did you mean 'matmul_with_residuals'?"),
        ({"kernels": {"matmull_with_residuals": numpy.matmul}}, "did you mean 'matmul_with_residuals'?"),
        ({"kernels": {"matmull_keeping": numpy.matmul}}, "did you mean 'matmul_with_residuals'?"),
        ({"rules": {"sinn": {"x": 1}}}, "has rules for 'sinn', and there is no such op; did you mean 'sin'?"),
        (
            {"rules": {"matmul": {"x1": 1, "x3": 1}}},
            "a rule for the input 'x3' of op 'matmul', whose inputs are x1, x2",
        ),
    ],
)
def test_misspelled_kernels_and_rules_are_refused_when_a_backend_is_made(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ArrayAPIBackend("hasty", numpy, array_types=("numpy:ndarray",), **options)


def test_misspelled_kernels_that_come_later_are_warned_of_once():
    (text,) = _tried(later={"tahn": numpy.tanh})
    assert text.startswith("backend 'hasty' has a kernel for 'tahn', and there is no such op; did you mean 'tanh'?")


def test_kernels_of_ops_that_may_be_declared_later_are_not_warned_of():
    names = ("tanh", "of_another_package", "another_with_residuals", "yet_another_keeping", "ones_like")
    assert _tried(kernels={name: getattr(numpy, name, numpy.tanh) for name in names}) == []


class _Device:
    """A device of a library that has its own objects for them."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name


@pytest.mark.parametrize(("asked", "found"), [("cpu", "cpu:0"), ("cpu:0", "cpu:0"), ("gpu:1", "gpu:1"), (None, None)])
def test_a_device_without_a_number_is_the_first_of_its_kind(asked, found):
    class Info:
        def devices(self):
            return [_Device("cpu:0"), _Device("gpu:0"), _Device("gpu:1")]

        def default_device(self):
            return _Device("cpu:0")

    class Namespace:
        asarray = staticmethod(numpy.asarray)

        def __array_namespace_info__(self):
            return Info()

    backend = ArrayAPIBackend("numbered", Namespace(), array_types=("numpy:ndarray",))
    device = backend.raw_device(asked)
    assert (None if device is None else device.name) == found


def test_options_of_a_compiled_function_are_checked_when_it_is_made():
    with pytest.raises(ValueError, match=r"function: there is no pass 'fuse'; did you mean 'fusion'\?"):
        tc.function(_cube, passes={"fuse": False})
    with pytest.raises(TypeError, match=r"passes\['fusion'\] must be True or False; got 'no'"):
        tc.function(passes={"fusion": "no"})(_cube)
    with pytest.raises(TypeError, match="compile must be the name of a compiler"):
        tc.function(_cube, compile=3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tc.concat(None), "concat: arrays must be a list or tuple of arrays; got None of type NoneType"),
        (lambda x: tc.stack(3), "stack: arrays must be a list or tuple of arrays; got 3 of type int"),
        (lambda x: tc.linalg.multi_dot(3), "multi_dot: arrays must be a list or tuple of arrays; got 3"),
        (lambda x: tc.transpose(x, 1), "transpose: axes must be a list or tuple of integers; got 1"),
        (lambda x: tc.split(x, 2.5), "split: sections must be a list or tuple of sizes, or their number; got 2.5"),
        (lambda x: tc.split(x, "ab"), "split: sections[0] must be an integer; got 'a'"),
        (lambda x: tc.clip(None), "clip: x must be an array or a Python number, got None"),
        (lambda x: tc.rms_norm(None), "x must be an array or a Python number, got None"),
        (lambda x: tc.dropout(None, x), "dropout: rate must be a number; got Tensor"),
        (lambda x: tc.dropout(x, "0.5"), "dropout: rate must be a number; got '0.5'"),
        (lambda x: tc.linalg.matrix_power(x, 2.5), "matrix_power: n must be an integer; got 2.5"),
        (lambda x: tc.avg_pool(x[None], None), "must be an integer of at least 1"),
        (
            lambda x: tc.tensordot(x, x, axes=3),
            "tensordot: axes must be from 0 to 2 for shapes (2, 2) and (2, 2); got 3",
        ),
        (lambda x: tc.tensordot(x, x, axes=-1), "tensordot: axes must be from 0 to 2"),
    ],
)
def test_arguments_of_another_kind_are_named(call, text):
    with pytest.raises((TypeError, ValueError), match=re.escape(text)):
        call(tc.ones((2, 2)))


@pytest.mark.parametrize("convert", [int, float, complex])
def test_a_tensor_of_several_elements_is_no_number_on_any_backend(convert):
    for shape in ((2, 2), (0,)):
        with pytest.raises(
            TypeError, match=re.escape(f"needs a tensor without dimensions; this one has shape {shape}")
        ):
            convert(tc.ones(shape))


def test_an_error_of_what_gives_the_arrays_stays_as_it_is():
    def arrays():
        yield tc.ones(2)
        raise TypeError("of my own")

    with pytest.raises(TypeError, match=r"^of my own$"):
        tc.concat(arrays())


def test_users_programs_pass_mypy(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import tape_core as tc\n"
        "x = tc.ones(3)\n"
        'inner: tc.Tensor = tc.einsum("i,i->", x, x)\n'
        'scaled: tc.Tensor = tc.einsum("i,->i", x, 2.0)\n'
        "again: tc.Tensor = tc.einsum(x, [0], x, [0], [])\n"
        "small: bool = inner.item() < 0.1\n"
        "number: float = inner.item() + 1\n"
    )
    api = pytest.importorskip("mypy.api")
    out, _, status = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(program)])
    assert status == 0, out


def test_a_dtype_says_that_it_is_none_of_numpys() -> None:
    """SciPy's sparse matrices ask for `dtype.char`."""
    with pytest.raises(AttributeError, match=r"no attribute 'char'; this is no dtype of NumPy.*sparse matrix"):
        tc.ones(2).dtype.char  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(tc.float32, "nothing")
    assert copy.deepcopy(tc.float32) is tc.float32
