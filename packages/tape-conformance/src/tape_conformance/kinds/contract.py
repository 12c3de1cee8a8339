"""Checks of the backend contract: the plugin, creation, dtypes, devices, conversion, errors, the backward pass."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.backends import ArrayAPIBackend, BackendError, backend_of_type, info, installed, unknown_names
from tape_core.backends.random_kernels import RandomKernels
from tape_core.extend import registry
from tape_core.support import DTYPES

from tape_conformance.checking import Group, Skipped, Target, expect, expect_close, expect_equal
from tape_conformance.samples import Case, draw_cases, on_backend
from tape_conformance.tolerances import LARGE_ENOUGH_FOR_BLOCKS, SAME_RTOL, SINGLE_RTOL

GROUP = check = Group("contract")

REQUIRED_DTYPES = ("bool", "int32", "int64", "float32", "float64")

_VALUES = np.asarray([[0.0, 1.5, -2.0], [3.0, 0.25, 7.0]])


def _dtypes(target: Target) -> list[tc.DType]:
    """Return the dtypes of the standard that the library has."""
    # The standard has neither of the two; bfloat16 has a check of its own.
    names = [name for name in DTYPES if getattr(target.backend.namespace, name, None) is not None]
    return [DTYPES[name] for name in names if name not in ("float16", "bfloat16")]


def _expect_raises(error: type[Exception], function: Callable[[], object], *words: str) -> None:
    """Fail unless a call raises this error, with a message that has all the words."""
    try:
        function()
    except error as found:
        for word in words:
            expect(word in str(found), f"the message {str(found)!r} does not say {word!r}")
    except Exception as found:
        raise AssertionError(f"it raised {found!r}, expected {error.__name__}") from found
    else:
        raise AssertionError(f"it did not raise {error.__name__}")


# -- what all other checks need, first


@check("dtype/float64")
def dtype_float64(target: Target) -> None:
    """The library makes float64 when it is asked for, and keeps it."""
    # The samples are float64: finite differences of narrower numbers tell too little.
    makers: dict[str, Callable[[], tc.Tensor]] = {
        "asarray of NumPy's float64": lambda: on_backend(_VALUES),
        'asarray([0.1], dtype="float64")': lambda: tc.asarray([0.1], dtype="float64"),
        'zeros(2, dtype="float64")': lambda: tc.zeros(2, dtype="float64"),
        'astype(ones(2), "float64")': lambda: tc.astype(tc.ones(2, dtype="float32"), "float64"),
        "a sum of float64": lambda: on_backend(_VALUES) + on_backend(_VALUES),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the failure says it
        for what, make in makers.items():
            dtype = make().dtype
            expect(dtype is tc.float64, f"your library must make float64 when asked: {what} is {dtype}")
        one = tc.asarray([1.0], dtype="float64") + 1e-12
    expect(bool(one.numpy()[0] != 1), "your library must make float64 when asked: its float64 lost 1e-12 beside 1")


# -- the plugin


@check("plugin/64-bit")
def plugin_64_bit(target: Target) -> None:
    """The library makes arrays of 64 bits where it is asked for them: the references of all checks are in float64."""
    for name in ("float64", "int64"):
        made = str(target.backend.dtype(tc.asarray([1, 2], dtype=name).array.dtype))
        expect(
            made == name,
            f"asked for {name}, the library made {made}: it must make arrays of 64 bits when asked. Where that is a "
            f"setting, as jax_enable_x64 of JAX is, tape_load_backend sets it",
        )


@check("plugin/name")
def plugin_name(target: Target) -> None:
    """The backend's name is that of its plugin."""
    if target.plugin not in installed():
        raise Skipped("not an installed plugin")
    expect_equal(target.backend.name, target.plugin, "the backend's name")
    expect_equal(info(target.plugin or "").name, target.plugin, "the name in tape_backend_info")


@check("plugin/light")
def plugin_light(target: Target) -> None:
    """The module of the entry point does not import the array library."""
    if target.plugin not in installed():
        raise Skipped("not an installed plugin")
    module = installed()[target.plugin or ""].entry_points[0].module
    libraries = sorted({t.partition(":")[0].partition(".")[0] for t in target.backend.array_types})
    # In another process, since this one has loaded the backend.
    code = f"import sys, tape_core, {module}; print([m for m in {libraries!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expect(found.returncode == 0, found.stderr)
    expect(
        found.stdout.strip() == "[]", f"importing {module} imports {found.stdout.strip()}: do so in tape_load_backend"
    )


@check("plugin/types")
def plugin_types(target: Target) -> None:
    """Raw arrays of the library are recognised as the backend's, and are operands."""
    raw = on_backend(_VALUES).array
    if target.plugin in installed():
        stated = (info(target.plugin or "").array_types, target.backend.array_types)
        expect(set(stated[1]) <= set(stated[0]), "tape_backend_info and the backend state different array_types")
        expect(backend_of_type(type(raw)) is target.backend, f"{type(raw)} is not known as an array of the backend")
        expect_close(tc.add(raw, raw).numpy(), 2 * _VALUES, "the sum of raw arrays", SINGLE_RTOL)
    # A subclass of a stated type will do: bfloat16 arrays on NumPy are one of ndarray, for example.
    # A compiled class may have its module in its name.
    names = [t.partition(":")[2].rpartition(".")[2] for t in target.backend.array_types]
    own = [cls.__name__.rpartition(".")[2] for cls in type(raw).__mro__]
    expect(not set(own).isdisjoint(names), f".array is a {type(raw)}, not one of {names}")


@check("plugin/names")
def plugin_names(target: Target) -> None:
    """Every kernel and rule of the backend has the name of an op."""
    unknown = unknown_names(target.backend)
    expect(not unknown, "; ".join(unknown.values()))


# -- creation


def _created(dtype: tc.DType) -> dict[str, tuple[Any, Any]]:
    """Return arrays by the name of a creation function: the backend's and NumPy's."""
    d: Any = np.dtype(dtype.name)
    like = on_backend(np.ones((2, 3)))
    made: dict[str, tuple[Any, Any]] = {
        "zeros": (tc.zeros((2, 3), dtype=dtype), np.zeros((2, 3), d)),
        "ones": (tc.ones(4, dtype=dtype), np.ones(4, d)),
        "full": (tc.full((2,), 1, dtype=dtype), np.full((2,), 1, d)),
        # The elements of `empty` may be anything, so it is checked without any.
        "empty": (tc.zeros_like(tc.empty((0, 2), dtype=dtype)), np.zeros((0, 2), d)),
        "zeros_like": (tc.zeros_like(like, dtype=dtype), np.zeros((2, 3), d)),
        "ones_like": (tc.ones_like(like, dtype=dtype), np.ones((2, 3), d)),
        "full_like": (tc.full_like(like, 1, dtype=dtype), np.full((2, 3), 1, d)),
        "asarray": (tc.asarray([[0, 1], [1, 0]], dtype=dtype), np.asarray([[0, 1], [1, 0]], d)),
        "asarray-0d": (tc.asarray(1, dtype=dtype), np.asarray(1, d)),
        "asarray-empty": (tc.asarray([], dtype=dtype), np.asarray([], d)),
        "asarray-numpy": (on_backend(np.asarray([1, 0], d)), np.asarray([1, 0], d)),
    }
    if dtype.kind in ("signed integer", "unsigned integer", "real floating"):
        made["arange"] = (tc.arange(1, 7, 2, dtype=dtype), np.arange(1, 7, 2).astype(d))
    if dtype.kind in ("real floating", "complex floating"):
        made["linspace"] = (tc.linspace(0, 1, 5, dtype=dtype), np.linspace(0, 1, 5, dtype=d))
    if dtype.kind != "bool":
        made["eye"] = (tc.eye(2, 3, k=1, dtype=dtype), np.eye(2, 3, k=1, dtype=d))
    return made


@check("creation/values")
def creation_values(target: Target) -> None:
    """Every creation function makes the right values, in every dtype, on the backend and its device."""
    for dtype in _dtypes(target):
        for name, (found, expected) in _created(dtype).items():
            what = f"{name}, dtype={dtype}"
            expect_close(found.numpy(), expected, what, SINGLE_RTOL)
            expect(found.dtype is dtype, f"{what} has dtype {found.dtype}")
            expect(found.backend is target.backend, f"{what} is on backend {found.backend.name!r}")
            _expect_on_device(found, target, what)


def _expect_on_device(x: tc.Tensor, target: Target, what: str) -> None:
    device = target.device
    expect(x.device == device or x.device.startswith(f"{device}:"), f"{what} is on {x.device!r}, not on {device!r}")


@check("creation/default-dtypes")
def creation_default_dtypes(target: Target) -> None:
    """Python numbers become float32, int64, complex64 and bool."""
    for value, dtype in ((1.0, tc.float32), (1, tc.int64), (True, tc.bool)):
        expect_equal(tc.asarray(value).dtype, dtype, f"the dtype of asarray({value})")
        expect_equal(tc.asarray([value]).dtype, dtype, f"the dtype of asarray([{value}])")
        expect_equal(tc.full((2,), value).dtype, dtype, f"the dtype of full((2,), {value})")
    if tc.complex64 in _dtypes(target):
        expect_equal(tc.asarray(1j).dtype, tc.complex64, "the dtype of asarray(1j)")
    expect_equal(tc.zeros(2).dtype, tc.float32, "the dtype of zeros(2)")
    expect_equal(tc.linspace(0, 1, 3).dtype, tc.float32, "the dtype of linspace")
    expect_equal(tc.arange(3).dtype, tc.int64, "the dtype of arange(3)")


@check("creation/copies")
def creation_copies(target: Target) -> None:
    """An array made with `copy=True` shares no memory with its source, nor the result of numpy() with its array."""
    own = np.array([1.0, 2.0])
    x = tc.asarray(own, copy=True, backend=target.backend)
    own[0] = 9.0
    expect_equal(x.tolist(), [1.0, 2.0], "an array whose source was written to")
    x.numpy()[0] = 9.0
    expect_equal(x.tolist(), [1.0, 2.0], "an array whose numpy() was written to")


@check("creation/random", exhaustive=True)
def creation_random(target: Target) -> None:
    """Random numbers are the same on every backend."""
    plain = ArrayAPIBackend("reference", np)
    draws: list[Callable[[], Any]] = [
        lambda: tc.default_rng(7).uniform((3, 2), dtype="float64"),
        lambda: tc.default_rng(7).normal((5,), dtype="float64"),
        lambda: tc.default_rng(7).integers(0, 10, (4,)),
        lambda: tc.default_rng(7).permutation(6),
    ]
    for draw in draws:
        with tc.use_backend(plain):
            expected = draw().numpy()
        expect_close(draw().numpy(), expected, "a random number", SAME_RTOL)
    # The backend's own kernels against those that are made of integer arithmetic.
    library, generic = target.backend.library, RandomKernels(plain)
    key, counter, n = (2**64 - 5, 7), 2**40, 1001
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("words", (n,)),
        ("half_words", (n,)),
        ("uniform", ((n,), "float32")),
        ("uniform", ((7, 11), "float64")),
        ("integers", ((n,), -3, 8)),
        ("integers", ((n,), 0, 10**6)),
        ("integers", ((n,), -7, 2**21 - 7)),
        ("integers", ((n,), 0, 2**32 - 5)),
        ("integers", ((n,), -(2**60), 2**62)),
        ("integers", ((n,), -(2**63), 2**63)),
        ("integers", ((n,), 5, 10**12)),
        ("integers", ((n,), 0, 2**33 - 1)),
        ("integers", ((7, 11), 0, 2**40)),
        ("permutation", ((n,),)),
        ("permutation", ((7, 11),)),
    ]
    for name, arguments in calls:
        found = library.numpy(getattr(library.random, name)(key, counter, *arguments, device=target.device))
        expect_equal(found.tolist(), getattr(generic, name)(key, counter, *arguments).tolist(), f"{name}{arguments}")


# -- dtypes


@check("dtype/required")
def dtype_required(target: Target) -> None:
    """The library has the dtypes that ops and rules rely on."""
    missing = [name for name in REQUIRED_DTYPES if DTYPES[name] not in _dtypes(target)]
    expect(not missing, f"the namespace has no {', '.join(missing)}")


@check("dtype/round-trip")
def dtype_round_trip(target: Target) -> None:
    """A dtype converts to the library's and back, and an array made with it has it."""
    for dtype in _dtypes(target):
        raw = target.backend.raw_dtype(dtype)
        expect(target.backend.dtype(raw) is dtype, f"{dtype} comes back as {target.backend.dtype(raw)}")
        expect(tc.zeros(1, dtype=dtype).dtype is dtype, f"zeros(1, dtype={dtype}) is {tc.zeros(1, dtype=dtype).dtype}")
    expect(target.backend.raw_dtype(None) is None, "raw_dtype(None) is not None")
    _expect_raises(TypeError, lambda: target.backend.raw_dtype("quaternion"))


@check("dtype/promotion", exhaustive=True)
def dtype_promotion(target: Target) -> None:
    """The dtype of a sum is the one that the standard's promotion rules give."""
    known = _dtypes(target)
    for a in known:
        for b in known:
            try:
                expected = tc.result_type(a, b)
            except TypeError:
                continue  # the standard does not define it
            if expected not in known or tc.bool in (a, b):
                continue
            found = tc.add(tc.ones(2, dtype=a), tc.ones(2, dtype=b)).dtype
            expect(found is expected, f"{a} + {b} is {found}, expected {expected}")


@check("dtype/scalars")
def dtype_scalars(target: Target) -> None:
    """A Python scalar takes the dtype of the array; 0-d arrays promote like any other."""
    for dtype in _dtypes(target):
        if dtype.kind in ("real floating", "complex floating"):
            for shape in ((), (2,)):
                x = tc.ones(shape, dtype=dtype)
                for result in (x + 1.0, 2.0 * x, x**2, 1 - x, x / 3, x * 1):
                    expect(result.dtype is dtype, f"an operator of {dtype} and a Python scalar gives {result.dtype}")
    narrow, wide = tc.ones(2, dtype="float32"), tc.ones((), dtype="float64")
    expect_equal((narrow * wide).dtype, tc.float64, "the dtype of float32[2] * float64[]")


@check("dtype/casts", exhaustive=True)
def dtype_casts(target: Target) -> None:
    """astype keeps the values, for every pair of dtypes that both hold them."""
    for a in _dtypes(target):
        for b in _dtypes(target):
            if a.kind == "complex floating" and b.kind != "complex floating":
                continue
            x = tc.astype(tc.asarray([0, 1], dtype=a), b)
            expect(x.dtype is b, f"astype({a}, {b}) is {x.dtype}")
            expect_close(x.numpy(), np.asarray([0, 1], b.name), f"astype({a}, {b})", 0)


@check("dtype/bfloat16", exhaustive=True)
def dtype_bfloat16(target: Target) -> None:
    """bfloat16, if the backend has it, accumulates in float32 and rounds; Python numbers are weak; also compiled."""
    try:
        target.backend.raw_dtype(tc.bfloat16)
    except TypeError as error:
        raise Skipped(str(error)) from None
    x = tc.asarray([[0.1, 2.5, -3.0], [1.0, 300.0, 0.01]], dtype="bfloat16")
    wide = tc.astype(x, "float32")
    for dtype, expected in (
        ("float16", "float32"),
        ("float32", "float32"),
        ("int32", "bfloat16"),
        ("bool", "bfloat16"),
    ):
        found = tc.multiply(x, tc.ones(3, dtype=dtype)).dtype
        expect(found == expected, f"bfloat16 * {dtype} is {found}, expected {expected}")
    for result in (x + 1.0, 2.0 * x, x**2, 1 - x, x / 3, x * 1):
        expect(result.dtype is tc.bfloat16, f"an operator of bfloat16 and a Python scalar gives {result.dtype}")
    # Added up in bfloat16 it would be 256: 257 needs nine bits, and 256 + 1 rounds to 256.
    expect_equal(tc.sum(tc.ones(1000, dtype="bfloat16")).item(), 1000.0, "the sum of 1,000 ones")
    functions: dict[str, Callable[[Any], Any]] = {
        "x * 2.5 + 1": lambda x: x * 2.5 + 1,
        "exp": tc.exp,
        "tanh": tc.tanh,
        "sum": lambda x: tc.sum(x, axis=1),
        "mean": tc.mean,
        "var": tc.var,
        "max": tc.max,
        "softmax": tc.softmax,
        "logsumexp": tc.logsumexp,
        "matmul": lambda x: x @ tc.matrix_transpose(x),
        "x[0]": lambda x: x[0],
    }
    for name, function in functions.items():
        # bfloat16 has 8 significant bits, so one rounding is off by 2**-9 at most; an operation may be two kernels.
        found, rtol = function(x), 2.0**-7
        expect(found.dtype is tc.bfloat16, f"{name} of bfloat16 gives {found.dtype}")
        expected = function(wide).numpy()
        expect_close(tc.astype(found, "float32").numpy(), expected, f"{name} of bfloat16", rtol, 2.0**-16)
        compiled = tc.function(lambda x, function=function: function(x))(x)
        expect(compiled.dtype is tc.bfloat16, f"{name} of bfloat16, compiled, gives {compiled.dtype}")
        same = tc.all(compiled == found)
        expect(bool(same), f"{name} of bfloat16 is {found}, and compiled {compiled}")
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(function(x) * 0.5)
        expect_equal(tape.gradient(y, x).dtype, tc.bfloat16, f"the dtype of the gradient of {name}")


# -- devices


@check("device/listed")
def device_listed(target: Target) -> None:
    """The default device is one of `devices()`, which are strings."""
    devices = target.backend.devices()
    expect(bool(devices), "devices() is empty")
    expect(all(isinstance(d, str) for d in devices), f"devices() are not all text: {devices}")
    # A device may have a number that its short name leaves out: `cuda` is `cuda:0`.
    default = target.backend.default_device
    expect(any(d == default or d.startswith(f"{default}:") for d in devices), f"{default!r} is not among {devices}")


@check("device/placement")
def device_placement(target: Target) -> None:
    """Arrays are made on `device=`, move to it by to_device, and their gradient moves back."""
    for device in target.backend.devices():
        x = tc.asarray([1.0, 2.0], device=device)
        expect_equal(x.device, device, "the device of asarray(device=)")
        expect_equal(tc.zeros(2, device=device).device, device, "the device of zeros(device=)")
        expect_equal((x * 2 + tc.sum(x)).device, device, "the device of a result")
        source = tc.asarray([1.0, 2.0])
        with tc.GradientTape() as tape:
            tape.watch(source)
            y = source.to_device(device) ** 2
        expect_equal(y.device, device, "the device of to_device")
        gradient = tape.gradient(y, source)
        expect_equal(gradient.device, source.device, "the device of the gradient through to_device")
        expect_close(gradient.numpy(), [2.0, 4.0], "the gradient through to_device", SINGLE_RTOL)


@check("device/absent")
def device_absent(target: Target) -> None:
    """A device that is not there is an error that names those that are."""
    absent = "warp:42"
    _expect_raises(
        BackendError, lambda: tc.use_backend(target.backend, device=absent), absent, *target.backend.devices()[:1]
    )
    _expect_raises(BackendError, lambda: tc.zeros(2, device=absent), absent)


# -- conversion


@check("conversion/values")
def conversion_values(target: Target) -> None:
    """Tensors convert to NumPy arrays, lists and Python scalars, and print."""
    for dtype in _dtypes(target):
        expected = np.asarray([[0, 1, 1]], dtype.name)
        x = tc.asarray([[0, 1, 1]], dtype=dtype)
        expect_equal(x.numpy().dtype, expected.dtype, f"the dtype of numpy() of {dtype}")
        expect_close(x.numpy(), expected, f"numpy() of {dtype}", 0)
        expect_close(np.asarray(x), expected, f"numpy.asarray of {dtype}", 0)
        expect_equal(x.tolist(), expected.tolist(), f"tolist() of {dtype}")
        item = x[0, 1].item()
        expect(type(item) is type(expected[0, 1].item()), f"item() of {dtype} is a {type(item).__name__}")
        expect(str(dtype) in repr(x), f"repr of {dtype} does not say so: {x!r}")
    one = tc.asarray(2.5)
    expect_equal((float(one), int(one), bool(one), complex(one)), (2.5, 2, True, 2.5), "conversions of a 0-d array")
    expect_equal(list(range(9))[tc.asarray(3)], 3, "a 0-d integer array as an index")


@check("conversion/array")
def conversion_array(target: Target) -> None:
    """`.array` is an array of the library, also for a Tensor of shape ()."""
    for x in (tc.asarray(1.0), tc.sum(tc.ones(3)), tc.ones(3)[0], tc.ones((2, 2))):
        expect(hasattr(x.array, "shape") and hasattr(x.array, "dtype"), f".array is {x.array!r}")
        kind = type(tc.ones(3).array)
        expect(isinstance(x.array, kind), f".array of shape {x.shape} is a {type(x.array)}, of shape (3,) a {kind}")


@check("conversion/dlpack")
def conversion_dlpack(target: Target) -> None:
    """DLPack works in both directions."""
    x = on_backend(_VALUES)
    try:
        found = np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError) as error:
        raise Skipped(f"NumPy cannot read this device: {error}") from None
    expect_close(found, _VALUES, "numpy.from_dlpack", 0)
    expect_close(tc.from_dlpack(x).numpy(), _VALUES, "from_dlpack", 0)


@check("conversion/host-data", exhaustive=True)
def conversion_host_data(target: Target) -> None:
    """NumPy's arrays go to the selected backend, and beside a Tensor to that Tensor's, in every op."""
    made = {"asarray": tc.asarray(_VALUES), "Variable": tc.Variable(_VALUES), "exp": tc.exp(_VALUES)}
    for name, x in made.items():
        expect(x.backend is target.backend, f"{name} of a NumPy array is on backend {x.backend.name!r}")
        expect_equal(x.dtype, tc.float64, f"the dtype of {name} of a NumPy array")
    wrong = []
    for op in registry.values():
        # Where operands go depends on the op, hardly on their shapes: two samples show it.
        for case in draw_cases(op).accepted[:2]:
            wrong += [f"{op.name}/{case.label}: {problem}" for problem in _problems_with_host_data(case, target)]
    expect(not wrong, "\n".join(wrong))


def _problems_with_host_data(case: Case, target: Target) -> list[str]:
    """Call an op with NumPy's arrays in place of all its Tensors, then of all but one; return what is wrong."""
    tensors = [k for k, value in enumerate(case.values) if isinstance(value, tc.Tensor) and value.dtype.name in DTYPES]
    host = {k: case.values[k].numpy() for k in tensors}
    expected = case.observed(case.call())
    elsewhere = "numpy" if "numpy" in installed() else ArrayAPIBackend("reference", np)
    problems = []
    for kept in (None, *tensors) if len(tensors) > 1 else (None,):
        given = {k: array for k, array in host.items() if k != kept}
        what = "NumPy arrays alone" if kept is None else f"NumPy arrays beside {case.name_of(kept)}"
        # Beside a Tensor what is selected must not matter; NumPy is where these arrays would stay.
        with nullcontext() if kept is None else tc.use_backend(elsewhere):
            try:
                found = case.observed(case.call(given))
            except Exception as error:  # noqa: BLE001 - told with all others
                problems.append(f"with {what}: {error!r}")
                continue
        for out, wanted in zip(found, expected, strict=True):
            if out.backend is not target.backend or out.device != wanted.device or out.dtype is not wanted.dtype:
                problems.append(f"with {what}: the result is {out.dtype} on {out.backend.name!r}, {out.device!r}")
            elif not np.allclose(out.numpy(), wanted.numpy(), rtol=SINGLE_RTOL, atol=SINGLE_RTOL, equal_nan=True):
                problems.append(f"with {what}: the values differ")
    return problems


# -- errors


@check("errors/mixed-backends")
def errors_mixed_backends(target: Target) -> None:
    """Operands of two backends are a TypeError that names both and says how to convert."""
    other = tc.ones(2, backend=ArrayAPIBackend("reference", np))
    own = tc.ones(2)
    for function in (lambda: own + other, lambda: tc.concat([own, other]), lambda: tc.where(own > 0, own, other)):
        _expect_raises(TypeError, function, target.backend.name, "reference", "asarray")


@check("errors/shapes")
def errors_shapes(target: Target) -> None:
    """Shapes that do not fit are a ValueError that names the op and the shapes."""
    a, b = tc.ones((2, 3)), tc.ones((4,))
    _expect_raises(ValueError, lambda: a + b, "add", "[2, 3]", "[4]")
    _expect_raises(ValueError, lambda: a @ b, "matmul", "[2, 3]", "[4]")
    _expect_raises(ValueError, lambda: tc.concat([a, b]), "concat")
    _expect_raises(ValueError, lambda: tc.reshape(a, (4,)), "reshape")
    _expect_raises(IndexError, lambda: a[5], "getitem")
    _expect_raises(ValueError, lambda: tc.sum(a, axis=3), "sum")
    _expect_raises(ValueError, lambda: tc.sum(tc.asarray(1.0), axis=0), "sum", "0 dimensions")


@check("errors/operands")
def errors_operands(target: Target) -> None:
    """An operand that is no array is a TypeError that names the argument."""
    x: Any = tc.ones(2)
    _expect_raises(TypeError, lambda: tc.add(x, "three"), "add", "x2", "'three'")
    _expect_raises(TypeError, lambda: tc.sin([object()]), "sin")
    _expect_raises(TypeError, lambda: x + object())
    _expect_raises(TypeError, lambda: tc.zeros(2, dtype="quaternion"), "quaternion")


# -- the backward pass


@check("backward/quiet")
def backward_quiet(target: Target) -> None:
    """A backward pass does not warn: the warning would point at no line of the user's."""
    x = tc.asarray([0.0, 1.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sqrt(x)
    # NumPy's own setting may have been changed in this thread; without warnings there would be nothing to hear.
    with np.errstate(all="warn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tape.gradient(y, x).numpy()
    expect_close(found, [np.inf, 0.5], "the gradient of sqrt at 0", SINGLE_RTOL)


@check("backward/exclusive")
def backward_exclusive(target: Target) -> None:
    """`is_exclusive` is False for an array that somebody else holds, and for a view.

    The sweep overwrites a cotangent that is exclusive; with a wrong answer gradients are silently wrong.
    """
    # Told of one reference, which is `held`, it must find the one of the list.
    held = target.backend.asarray(np.ones(4))
    also = [held]
    expect(not target.backend.is_exclusive(held, 1), "an array that a list holds is said to be exclusive")
    # A view has an object of its own, which nobody else refers to, but the memory of another array.
    view = target.backend.xp.reshape(held, (2, 2))
    expect(not target.backend.is_exclusive(view, 1), "a view is said to be exclusive")
    del also


@check("memory/spare")
def memory_spare(target: Target) -> None:
    """`spare_memory` gives nothing that somebody else holds, or that has another shape or dtype, and each array once.

    Optimizers write new values of Variables into what it gives; with a wrong answer, others see their values change.
    """
    backend = target.backend
    for what in ("an array that somebody holds", "an array of which there is a view", "an array of another shape"):
        held = backend.asarray(np.ones((4, 4)))
        others = [held, backend.xp.reshape(held, (16,))]
        kept, shape, dtype = [held], tuple(held.shape), held.dtype
        if what == "an array that somebody holds":
            del others[1]
        else:
            del others[0], held
        if what == "an array of another shape":
            others.clear()
            shape = (2, 8)
        expect(backend.spare_memory(kept, shape, dtype) is None, f"spare_memory gives the memory of {what}")
        expect(not kept, "spare_memory leaves an array in the list, from which it would be given once more")
    expect(backend.spare_memory([], (4, 4), backend.asarray(np.ones(1)).dtype) is None, "memory comes from nowhere")


@check("memory/formulas")
def memory_formulas(target: Target) -> None:
    """`formulas` compute what operators do, also into the memory of an argument, and write into no other one.

    Optimizers compute new values of Variables by them.
    """
    backend = target.backend
    given = {name: np.linspace(0.25, 1.75, 7) + k for k, name in enumerate(("x", "y", "z"))}
    x, y, z = given.values()
    expected = {
        "lerp": (("x", "y", 0.25), x + (y - x) * 0.25),
        "lerp_square": (("x", "y", 0.25), x + (y * y - x) * 0.25),
        "accumulate": (("x", 0.75, "y", -0.5), x * 0.75 - y * 0.5),
        "subtract_scaled": (("x", "y", 0.5), x - y * 0.5),
        "subtract_root_quotient": (("x", "y", "z", 0.125, 0.5), x - y / (np.sqrt(z) + 0.125) * 0.5),
    }
    formulas = backend.formulas(backend.asarray(x))
    unknown = sorted(formulas.keys() - expected.keys())
    expect(not unknown, f"formulas has {', '.join(unknown)}, which nothing asks for")
    for name, formula in formulas.items():
        spelled, value = expected[name]
        for over in (None, *[part for part in spelled if isinstance(part, str)]):
            arrays = {key: backend.asarray(array, copy=True) for key, array in given.items()}
            args = [arrays[part] if isinstance(part, str) else part for part in spelled]
            found = formula(*args) if over is None else formula(*args, out=arrays[over])
            where = "" if over is None else f" with out={over}"
            expect(np.allclose(backend.numpy(found), value), f"the formula {name}{where} gives other values")
            for key, array in arrays.items():
                same = key == over or np.array_equal(backend.numpy(array), given[key])
                expect(same, f"the formula {name}{where} writes into {key}")
            if over is None:
                continue
            # So do the calls that `overwriting` adds for it, once they are made, and of a shorter array, too.
            for n in (7, 5):
                arrays = {key: backend.asarray(array[:n], copy=True) for key, array in given.items()}
                calls: list[partial[object]] = []
                adding = backend.overwriting(backend.asarray(x), calls).get(name)
                if adding is None:
                    continue
                args = [arrays[part] if isinstance(part, str) else part for part in spelled]
                expect(adding(*args, out=arrays[over]) is arrays[over], f"overwriting: {name} does not return out")
                unchanged = all([np.array_equal(backend.numpy(arrays[key]), given[key][:n]) for key in given])
                expect(unchanged, f"overwriting: {name} writes before its calls are made")
                for call in calls:
                    expect(type(call) is partial, f"overwriting: {name} adds {call!r}, which is no functools.partial")
                    call()
                expect(np.allclose(backend.numpy(arrays[over]), value[:n]), f"overwriting: {name} gives other values")


@check("backward/scale")
def backward_scale(target: Target) -> None:
    """`scale` is `g * partial(x)` and `add_scaled` adds that to its first argument, in place if they are told to."""
    backend = target.backend
    if backend.array_class is None:
        raise Skipped("the backend reuses no memory")
    values = np.linspace(-1, 1, LARGE_ENOUGH_FOR_BLOCKS)
    # Blocks are flat parts, also of arrays with more axes.
    for shape in ((LARGE_ENOUGH_FOR_BLOCKS,), (100, LARGE_ENOUGH_FOR_BLOCKS // 100)):
        g, x = (backend.asarray(values.reshape(shape) * s) for s in (1.0, 2.0))
        expected = values * np.cos(2 * values)
        scaled = backend.scale(g, lambda xp, x: xp.cos(x), (x,), False)
        expect_close(backend.numpy(scaled).reshape(-1), expected, "scale", SAME_RTOL)
        expect_close(backend.numpy(g).reshape(-1), values, "the cotangent after scale", 0)
        total = backend.asarray(values.reshape(shape), copy=True)
        backend.add_scaled(total, g, lambda xp, x: xp.cos(x), (x,))
        expect_close(backend.numpy(total).reshape(-1), values + expected, "add_scaled", SAME_RTOL)
        same = backend.scale(g, lambda xp, x: xp.cos(x), (x,), True)
        expect(same is g, "scale with in_place made another array")
        expect_close(backend.numpy(g).reshape(-1), expected, "scale in place", SAME_RTOL)
