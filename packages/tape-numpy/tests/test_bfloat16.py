"""bfloat16 on NumPy: computed with in float32, rounded once an op, and the same when compiled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from support import run_python
from tape_conformance.samples import Case, draw_cases
from tape_core.extend import registry

ml_dtypes = pytest.importorskip("ml_dtypes")

ULP = 2.0**-8  # of a value between 0.5 and 1: twice what rounding may change


@pytest.fixture(autouse=True)
def _on_numpy() -> Iterator[None]:
    with tc.use_backend("numpy"):
        yield


def low(values: Any) -> tc.Tensor:
    return tc.asarray(values, dtype="bfloat16")


def held(x: tc.Tensor) -> Any:
    """Return the values as float64; a bfloat16 Tensor must hold a BFloat16Array, never an array of NumPy's own."""
    from tape_numpy.bfloat16 import BFloat16Array

    if x.dtype is tc.bfloat16:
        assert type(x._array) is BFloat16Array
    return np.asarray(x.array).astype(np.complex128 if x.dtype.kind == "complex floating" else np.float64)


def rounded(x: Any) -> Any:
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def bits(x: tc.Tensor) -> tuple[Any, ...]:
    held(x)
    return x.dtype, x.shape, x.numpy().tobytes()


def each(out: Any) -> tuple[Any, ...]:
    found = tuple(out) if isinstance(out, tuple | list) else (out,)
    return tuple([x.densify() if isinstance(x, tc.IndexedSlices) else x for x in found])


def cast(value: Any, dtype: str) -> Any:
    if isinstance(value, tc.Tensor):
        return tc.astype(value, dtype) if value.dtype.kind == "real floating" else value
    return type(value)([cast(part, dtype) for part in value]) if isinstance(value, list | tuple) else value


class Called:
    """A sample of an op with its inputs in bfloat16, and what may be done with it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.values = [cast(value, "bfloat16") for value in case.values]
        self.wide = [cast(value, "float32") for value in self.values]
        rest = case.sample.args[1:] if case.op.sequence else case.sample.args[len(self.values) :]
        self.rest, self.kwargs = rest, case.sample.kwargs
        self.leaves = [leaf.k for leaf in case.leaves if self.values[leaf.k].dtype is tc.bfloat16]

    @property
    def applies(self) -> bool:
        """True if an input is bfloat16, and the dtype of the result not a parameter."""
        low = any([isinstance(v, tc.Tensor) and v.dtype is tc.bfloat16 for v in self.values])
        return low and not self.case.is_complex and self.case.parameter("dtype") is None

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        given = [list(values)] if self.case.op.sequence else list(values)
        return each(self.case.op.function(*given, *self.rest, **self.kwargs))

    def observed(self, *values: Any) -> list[Any]:
        return [x for x in self.case.observed(self(*values)) if x.dtype.inexact]

    def gradients(self, *values: Any) -> tuple[Any, ...]:
        sources = [values[k] for k in self.leaves]
        with tc.GradientTape() as tape:
            tape.watch(sources)
            parts = [tc.real(x) if x.dtype.kind == "complex floating" else x for x in self.observed(*values)]
            loss = sum([tc.sum(tc.astype(x, "float32")) for x in parts], tc.asarray(0.0))
        return each(tape.gradient(loss, sources, unconnected_gradients="zero"))


OPS = sorted(registry)
SHAPED_BY_VALUES = {"nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values"}


@pytest.mark.parametrize("name", [name for name in OPS if name != "nextafter"])  # which is another one in float32
def test_ops(name: str) -> None:
    for called in map(Called, draw_cases(registry[name]).accepted):
        if not called.applies:
            continue
        values, label = called.values, called.case.label
        outs = called(*values)
        for out, wide in zip(outs, called(*called.wide), strict=True):
            assert out.dtype is (tc.bfloat16 if wide.dtype is tc.float32 else wide.dtype), label
            expected = rounded(held(wide)) if out.dtype is tc.bfloat16 else held(wide)
            np.testing.assert_allclose(held(out), expected, rtol=ULP, atol=1e-6, err_msg=label)
        if name in SHAPED_BY_VALUES:
            continue
        compiled = tc.function(called)
        for _ in range(3):
            assert list(map(bits, each(compiled(*values)))) == list(map(bits, outs)), label


@pytest.mark.parametrize("name", [name for name in OPS if registry[name].differentiable])
def test_derivatives(name: str) -> None:
    for called in map(Called, draw_cases(registry[name]).accepted):
        if not (called.applies and called.leaves):
            continue
        values, label = called.values, called.case.label
        try:
            wide = called.gradients(*called.wide)
        except (NotImplementedError, TypeError):
            continue  # not of float32 either
        found = called.gradients(*values)
        for g, h in zip(found, wide, strict=True):
            assert g.dtype is tc.bfloat16, label
            expected = held(h)
            finite = np.abs(expected[np.isfinite(expected)])
            scale = max(1.0, finite.max(initial=0.0))
            if name not in ILL_CONDITIONED:
                np.testing.assert_allclose(held(g), expected, rtol=4 * ULP, atol=2 * ULP * scale, err_msg=label)
        if name not in SHAPED_BY_VALUES:
            compiled = tc.function(called.gradients)
            for _ in range(2):
                assert list(map(bits, compiled(*values))) == list(map(bits, found)), label
        with tc.GradientTape() as outer:  # which records the sweep
            outer.watch([values[k] for k in called.leaves])
            again = called.gradients(*values)
        assert [g.dtype for g in again] == [tc.bfloat16] * len(again), label
        primals = [values[k] for k in called.leaves]
        with tc.ForwardAccumulator(primals, [tc.ones_like(x) for x in primals]) as accumulator:
            outs = called.observed(*values)
        for out in outs:
            tangent = accumulator.jvp(out, unconnected_gradients="zero")
            held(tangent)
            assert tangent.dtype is out.dtype, label


ILL_CONDITIONED = {"lu_solve"}  # a rounded solution, times what comes back from an inverse


# -- values


def test_sums_are_in_float32() -> None:
    x = tc.ones(1000, dtype="bfloat16")
    assert (tc.sum(x).item(), x.sum().item(), tc.mean(x).item(), (x @ x).item()) == (1000, 1000, 1, 1000)
    assert tc.cumulative_sum(x)[-1].item() == 1000
    assert tc.linalg.vector_norm(x).item() == rounded(np.sqrt(1000))
    assert tc.sum(x, dtype="float32").dtype is tc.float32
    assert np.sum(x).item() == 1000  # NumPy's own name


def test_a_kernel_of_several_calls_rounds_once() -> None:
    x = tc.default_rng(0).normal((64, 33), dtype="bfloat16")
    wide = tc.astype(x, "float32")
    for fn in (tc.softmax, tc.log_softmax, tc.erf, tc.gelu, tc.var, lambda x: tc.logsumexp(x, axis=1), tc.layer_norm):
        assert bits(fn(x)) == bits(tc.astype(fn(wide), "bfloat16"))


def test_values_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    a, b = (tc.default_rng(seed).normal((17, 17), dtype="bfloat16") for seed in (0, 1))
    ours = [torch.asarray(tc.astype(x, "float32").numpy()).to(torch.bfloat16) for x in (a, b)]
    for name, fn, theirs in [
        ("add", tc.add, torch.add), ("multiply", tc.multiply, torch.mul), ("divide", tc.divide, torch.div),
        ("matmul", tc.matmul, torch.matmul), ("exp", lambda a, b: tc.exp(a), lambda a, b: torch.exp(a)),
        ("tanh", lambda a, b: tc.tanh(a), lambda a, b: torch.tanh(a)),
        ("sum", lambda a, b: tc.sum(a, axis=0), lambda a, b: torch.sum(a, 0)),
        ("mean", lambda a, b: tc.mean(a), lambda a, b: torch.mean(a)),
        ("prod", lambda a, b: tc.prod(a, axis=1), lambda a, b: torch.prod(a, 1)),
        ("softmax", lambda a, b: tc.softmax(a), lambda a, b: torch.softmax(a, -1)),
        ("weak", lambda a, b: a * 2.5 + 1, lambda a, b: a * 2.5 + 1),
        ("maximum", tc.maximum, torch.maximum), ("less", tc.less, torch.lt),
        ("with integers", lambda a, b: a + tc.arange(17), lambda a, b: a + torch.arange(17)),
    ]:  # fmt: skip
        found, expected = fn(a, b), theirs(*ours)
        assert found.dtype.name == str(expected.dtype).removeprefix("torch."), name
        expected = expected.to(torch.float64).numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(held(found), expected, rtol=2 * ULP, atol=ULP * 2**-8 * scale, err_msg=name)


def test_the_next_number_is_one_of_bfloat16() -> None:
    x = low([1.0, -2.0, 0.0])
    assert tc.nextafter(x, low(9.0)).tolist() == [1 + 2.0**-7, -2 + 2.0**-7, 2.0**-133]
    assert np.nextafter(x.array, 9.0).tolist() == [1 + 2.0**-7, -2 + 2.0**-7, 2.0**-133]
    assert tc.nextafter(x, tc.asarray(9.0)).dtype is tc.float32


def test_promotion() -> None:
    x = low([1.5, 2.5])
    for value in (2, 2.0, True):
        assert (x * value).dtype is (value + x).dtype is tc.bfloat16
    assert (x * 1j).dtype is tc.complex64
    wider = {"float16": "float32", "float32": "float32", "float64": "float64", "complex64": "complex64"}
    for other, expected in wider.items():
        assert (x * tc.ones(2, dtype=other)).dtype == (tc.ones((), dtype=other) + x).dtype == expected, other
        assert tc.where(tc.asarray([True, False]), x, tc.ones(2, dtype=other)).dtype == expected, other
        assert tc.concat([x, tc.ones(2, dtype=other)]).dtype == expected, other
    for other in ("bool", "int8", "int64", "uint8"):
        assert (x * tc.ones(2, dtype=other)).dtype is tc.bfloat16, other
    # An integer is what it is in bfloat16, before the sum and after it.
    assert (low([0.0]) + tc.asarray([257])).item() == rounded(257)
    assert tc.result_type(x, tc.float16) is tc.float32
    assert tc.result_type(x, 1.0) is tc.bfloat16
    assert tc.can_cast(x, "float32")
    assert not tc.can_cast("float16", x.dtype)
    assert tc.isdtype(x.dtype, "real floating")
    assert tc.finfo(x).eps == 2.0**-7 == float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps)
    assert tc.finfo(x).max == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)


def test_as_the_default_dtype() -> None:
    code = """
import tape_core as tc
tc.set_backend("numpy")
tc.set_default_dtype("bfloat16")
n = tc.arange(1, 4)
found = [tc.one_hot(n, 4), tc.logcumsumexp(n), tc.polygamma(1, 2.0), tc.asarray([1.5]), tc.zeros(2), tc.fft.fftfreq(4)]
found += [tc.function(lambda n: tc.one_hot(n, 4))(n), tc.default_rng(0).normal((3,)), tc.segment_mean(n, n, 4)]
print({(t.dtype.name, type(t._array).__name__) for t in found}, tc.one_hot(n, 4)[1].tolist())
"""
    assert run(code) == "{('bfloat16', 'BFloat16Array')} [0.0, 0.0, 1.0, 0.0]"


def test_casts() -> None:
    x = low([0.0, 1.0, 200.0])
    for dtype in ("bool", "int8", "uint8", "int64", "float16", "float32", "float64", "complex64", "complex128"):
        if dtype != "int8":
            there = tc.astype(x, dtype)
            assert there.dtype == dtype
            np.testing.assert_array_equal(there.numpy(), np.asarray([0, 1, 200]).astype(dtype))
    for dtype in ("bool", "int8", "uint8", "int64", "float16", "float32", "float64"):
        back = tc.astype(tc.asarray([0, 1], dtype=dtype), "bfloat16")
        assert bits(back) == bits(low([0, 1])), dtype
    halves = [1 + 2.0**-8, 1 + 3 * 2.0**-8]  # between two values: to the even one
    assert low(halves).tolist() == [1.0, 1 + 2.0**-6]
    assert tc.astype(x, "bfloat16", copy=False).dtype is tc.bfloat16


def test_gradients_near_ties_and_far_from_zero() -> None:
    a, b = (tc.default_rng(seed).normal((3, 2), dtype="bfloat16") for seed in (0, 1))
    found = tc.grad(lambda a: tc.sum(tc.cdist(a, b, p=float("inf"))))(a)
    np.testing.assert_array_equal(
        held(found),
        tc.grad(lambda a: tc.sum(tc.cdist(a, tc.astype(b, "float32"), p=float("inf"))))(
            tc.astype(a, "float32")
        ).numpy(),
    )
    x = low([500.0, 502.0, 504.0])  # the result is rounded by more than 1
    assert abs(held(tc.grad(lambda x: tc.logsumexp(x))(x)).sum() - 1) < 2 * ULP


def test_mixed_with_float32_the_gradient_of_each_is_in_its_dtype() -> None:
    x, w = low([1.0, 2.0]), tc.asarray([3.0, 4.0])
    with tc.GradientTape() as tape:
        tape.watch([x, w])
        y = tc.sum((x * x) * w)
    dx, dw = tape.gradient(y, [x, w])
    assert (dx.dtype, dw.dtype) == (tc.bfloat16, tc.float32)
    assert (dx.tolist(), dw.tolist()) == ([6.0, 16.0], [1.0, 4.0])


def test_a_custom_gradient_gets_cotangents_in_the_dtype_of_its_result() -> None:
    seen = []

    @tc.custom_gradient
    def double(x: Any) -> Any:
        return 2 * x, lambda g: (seen.append(g.dtype), 2 * g)[1]

    assert tc.grad(lambda x: tc.sum(double(tc.exp(x))))(low([0.0])).tolist() == [2.0]
    assert seen == [tc.bfloat16]


def test_transformations() -> None:
    x = tc.default_rng(0).normal((4, 3), dtype="bfloat16")

    def f(x: Any) -> Any:
        return tc.sum(tc.tanh(x) * tc.softmax(x) * 2.0)

    one = [tc.grad(f)(row) for row in x]
    assert bits(tc.vmap(tc.grad(f))(x)) == bits(tc.stack(one))
    assert bits(tc.grad(lambda x: f(tc.checkpoint(tc.exp)(x)))(x[0])) == bits(tc.grad(lambda x: f(tc.exp(x)))(x[0]))
    for derivative in (tc.hessian, tc.jacfwd, tc.jacrev):
        found = derivative(f if derivative is tc.hessian else tc.softmax)(x[0])
        assert (found.dtype, found.shape) == (tc.bfloat16, (3, 3))
        wide = derivative(f if derivative is tc.hessian else tc.softmax)(tc.astype(x[0], "float32"))
        np.testing.assert_allclose(held(found), wide.numpy(), rtol=8 * ULP, atol=4 * ULP)
    total, steps = tc.scan(lambda c, e: (c + e, c * 2), low(0.0), x[0])
    assert (total.dtype, steps.dtype) == (tc.bfloat16, tc.bfloat16)


# -- arrays in and out


def test_arrays_in_and_out() -> None:
    x = low([[1.5, 0.1], [2.0, -3.0]])
    assert repr(x[0]) == "Tensor([1.5        0.10009766], shape=(2,), dtype=bfloat16, backend=numpy)"
    assert f"{x[0, 0]:.2f}" == "1.50"
    assert x.dtype == ml_dtypes.bfloat16
    assert x.dtype.type is ml_dtypes.bfloat16
    assert x.tolist() == [[1.5, 0.10009765625], [2.0, -3.0]]
    plain = x.numpy()
    assert (type(plain), plain.dtype) == (np.ndarray, np.dtype(ml_dtypes.bfloat16))
    assert bits(tc.asarray(plain)) == bits(x)
    assert bits(tc.asarray(ml_dtypes.bfloat16(1.5))) == bits(x[0, 0])
    assert bits(plain * x) == bits(x * x)
    assert isinstance(x.array, np.ndarray)
    assert float(np.ones(1000, ml_dtypes.bfloat16).view(type(x.array)).sum()) == 1000
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert bits(twin) == bits(x)


def test_what_numpy_does_not_have() -> None:
    with pytest.raises(TypeError, match="float8_e4m3 is not a dtype of backend 'numpy': of those of ml_dtypes"):
        tc.asarray(np.ones(2, ml_dtypes.float8_e4m3))
    with pytest.raises(BufferError, match=r"NumPy has no bfloat16 in DLPack; convert with tape_core\.astype"):
        np.from_dlpack(low([1.0]))
    with pytest.raises(TypeError, match="bitwise_and"):
        tc.bitwise_and(low([1.0]), low([1.0]))


def test_an_exported_file_is_refused(tmp_path: Path) -> None:
    def inside(x: Any) -> Any:
        return tc.astype(tc.softmax(tc.astype(x, "bfloat16")), "float32")

    def nested(x: Any) -> Any:
        return tc.cond(x[0] > 0, lambda: inside(x), lambda: x)

    for function, x in ((tc.sin, low([1.0])), (inside, tc.ones(2))):
        with pytest.raises(ValueError, match="computes with bfloat16, for which backend 'numpy' needs Tape"):
            tc.function(lambda x, function=function: function(x)).export(tmp_path / "file.py", x)
    with pytest.raises(ValueError, match=r"bfloat16 in float32.*has no source that stands alone"):
        tc.function(nested).export(tmp_path / "file.py", tc.ones(2))
    assert list(tmp_path.iterdir()) == []

    def ordinary(x: Any) -> Any:
        y = tc.erf(x) + tc.zeros_like(x) + tc.digamma(x) + tc.polygamma(1, x)
        return tc.grad(lambda x: tc.sum(tc.softmax(x) * tc.logsumexp(x) * y))(x)

    tc.function(ordinary).export(tmp_path / "file.py", tc.ones(2))  # float32 is what it was
    assert "bfloat16 import" not in (tmp_path / "file.py").read_text()
    namespace: dict[str, Any] = {"__name__": "file", "__file__": str(tmp_path / "file.py")}
    exec((tmp_path / "file.py").read_text(), namespace)
    np.testing.assert_array_equal(namespace["ordinary"](np.ones(2, np.float32))[0], ordinary(tc.ones(2)).numpy())


def test_checkpoints(tmp_path: Path) -> None:
    values = [1.0, -2.5, 0.0, -0.0, float("inf"), -float("inf"), 2.0**-133, 3.140625]
    nn.save_tensors(tmp_path / "x", {"x": low(values)})
    assert bits(nn.load_tensors(tmp_path / "x")[0]["x"]) == bits(low(values))


def test_to_and_from_torch() -> None:
    torch = pytest.importorskip("torch")
    x = low([1.5, 0.1])
    there = tc.asarray(x, backend="torch")
    assert there.array.dtype is torch.bfloat16
    assert bits(tc.asarray(there, backend="numpy")) == bits(x)
    assert tc.asarray(x.numpy(), backend="torch").dtype is tc.bfloat16


def test_keys() -> None:
    x = low([[1.0, 2.0], [3.0, 4.0]])
    assert bits(x[1, 1]) == bits(low(4.0))
    assert [bits(row) for row in x] == [bits(low([1.0, 2.0])), bits(low([3.0, 4.0]))]
    assert bits(x[tc.asarray([1, 0]), 0]) == bits(low([3.0, 1.0]))
    assert bits(x[x > 2]) == bits(low([3.0, 4.0]))
    x[0] = tc.asarray([0.1, 9.0])  # of float32: what is assigned takes the dtype of what it is assigned to
    x[1, 0] = 7
    assert bits(x) == bits(low([[0.1, 9.0], [7.0, 4.0]]))
    assert tc.at(x, 0).add(tc.asarray([1.0, 1.0])).dtype is tc.bfloat16
    wide = tc.zeros(2)
    wide[0] = low(1.5)
    assert (wide.dtype, wide.tolist()) == (tc.float32, [1.5, 0.0])


def test_random_numbers() -> None:
    rng = tc.default_rng(0)
    for found in (rng.normal((3,), dtype="bfloat16"), tc.dropout(low([1.0, 2.0]), 0.5)):
        assert found.dtype is tc.bfloat16
        held(found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_uniform_numbers_stay_below_the_upper_end(dtype: str) -> None:
    found = tc.default_rng(0).uniform((20_000,), dtype=dtype)
    assert 0 <= tc.min(found).item() < tc.max(found).item() < 1


# -- training


def net(dtype: str) -> tuple[list[tc.Variable], Any]:
    rng = tc.default_rng(0)
    shapes = [(4, 8), (8,), (8, 3)]
    variables = [tc.Variable(rng.normal(shape, dtype=dtype), name=f"v{k}") for k, shape in enumerate(shapes)]

    def loss(x: Any, labels: Any) -> Any:
        hidden = tc.relu(x @ variables[0] + variables[1])
        return tc.mean(tc.cross_entropy(hidden @ variables[2], labels))

    return variables, loss


@pytest.mark.parametrize("make", [nn.SGD, nn.Adam, nn.AdamW, nn.RMSprop, nn.Adagrad])
def test_an_optimizer_eager_and_compiled(make: Any) -> None:
    x, labels = tc.default_rng(1).normal((5, 4), dtype="bfloat16"), tc.asarray([0, 1, 2, 0, 1])

    def trained(compiled: bool) -> list[tc.Variable]:
        variables, loss = net("bfloat16")
        optimizer = make(0.05)

        def step(x: Any, labels: Any) -> Any:
            with tc.GradientTape() as tape:
                value = loss(x, labels)
            gradients = tape.gradient(value, variables)
            assert {g.dtype for g in gradients} == {tc.bfloat16}
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return value

        run = tc.function(step) if compiled else step
        values = [run(x, labels) for _ in range(5)]
        assert {v.dtype for v in values} == {tc.bfloat16}
        assert values[-1].item() < values[0].item()
        return variables

    eager, compiled = trained(False), trained(True)
    assert list(map(bits, eager)) == list(map(bits, compiled))


def test_an_adam_step_is_that_of_float32() -> None:
    value, gradient = low([1.0, -2.0, 0.5]), low([0.1, -3.0, 1e-3])
    found = {}
    for dtype in ("bfloat16", "float32"):
        v = tc.Variable(tc.astype(value, dtype))
        optimizer = nn.Adam(0.1)
        for _ in range(3):
            optimizer.apply_gradients([(tc.astype(gradient, dtype), v)])
        found[dtype] = held(v)
    np.testing.assert_allclose(found["bfloat16"], found["float32"], rtol=4 * ULP, atol=2 * ULP)


def test_rows_of_a_table() -> None:
    table = tc.Variable(tc.ones((4, 2), dtype="bfloat16"))
    with tc.GradientTape() as tape:
        y = tc.sum(tc.gather(table, tc.asarray([0, 0, 2])) * 2)
    gradient = tape.gradient(y, table)
    assert gradient.values.dtype is tc.bfloat16
    nn.SGD(0.25).apply_gradients([(gradient, table)])
    assert table.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [1.0, 1.0]]
    held(table)


def test_mixed_precision() -> None:
    model = nn.mixed_precision(nn.Sequential([nn.Dense(8, activation="relu"), nn.LayerNorm(), nn.Dense(2)]), "bfloat16")
    x = tc.default_rng(0).normal((4, 3))
    with tc.GradientTape() as tape:
        out = model(x)
        y = tc.mean(tc.astype(out, "float32") ** 2)
    assert out.dtype is tc.bfloat16
    assert {g.dtype for g in tape.gradient(y, model.trainable_variables)} == {tc.float32}


# -- compiled


def test_large_arrays_with_and_without_each_pass() -> None:
    from tape_compile.passes import PASSES

    rng = tc.default_rng(0)
    x, w, wide = rng.normal((600, 512), dtype="bfloat16"), rng.normal((512,), dtype="bfloat16"), rng.normal((600, 512))

    def f(x: Any, w: Any, wide: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch([x, w, wide])
            y = tc.relu(x * w + 1) * 0.5 + tc.softmax(x - w) * tc.ones_like(x)
            z = tc.tanh(wide * 2 + 1) * tc.astype(y, "float32") + tc.exp(-wide)
            total = tc.sum(z[:100] * 1) + tc.sum(z[100:] + tc.asarray(0.0)) + tc.mean(y)
        return total, y, z, *tape.gradient(total, [x, w, wide])

    eager = list(map(bits, f(x, w, wide)))
    names = [name for name in PASSES if not PASSES[name].on_request]
    chosen: list[dict[str, bool]] = [{}, *[{name: False} for name in names]]
    chosen += [{other: other == name for other in names} for name in names]
    for passes in chosen:
        compiled = tc.function(f, passes=passes)
        for _ in range(2):
            assert list(map(bits, compiled(x, w, wide))) == eager, passes


def test_one_function_for_both_dtypes() -> None:
    @tc.function
    def f(x: Any) -> Any:
        return tc.softmax(x * 2 + 1) @ x

    x = low([1.0, 2.0, 0.1])
    for given in (x, tc.astype(x, "float32"), x, tc.astype(x, "float32")):
        expected = tc.softmax(given * 2 + 1) @ given
        assert bits(f(given)) == bits(expected)


# -- without it, and after other dtypes


def run(code: str) -> str:
    return run_python("-c", code).strip()


def test_without_ml_dtypes() -> None:
    code = """
import sys
sys.modules["ml_dtypes"] = None
import tape_core as tc
for make in (lambda: tc.asarray([1.0], dtype="bfloat16"), lambda: tc.astype(tc.ones(2), tc.bfloat16)):
    try:
        make()
    except TypeError as error:
        print(error)
"""
    line = "backend 'numpy' has no dtype bfloat16 without the package ml_dtypes: pip install ml_dtypes"
    found = run("import os; os.environ['TAPE_BACKEND'] = 'numpy'" + code).splitlines()
    assert len(found) == 2
    assert all(line in text for text in found)


@pytest.mark.parametrize(
    "made",
    [
        "tc.ones(1000, dtype='bfloat16')",
        "tc.ones_like(tc.zeros(1000), dtype='bfloat16')",
        "tc.astype(tc.ones(1000), 'bfloat16')",
        "tc.asarray([1.0] * 1000, dtype='bfloat16')",
        "tc.set_default_dtype('bfloat16') or tc.asarray([1.0] * 1000)",
        "tc.set_default_dtype('bfloat16') or tc.one_hot(tc.zeros(1000, dtype='int64'), 1)",
        "tc.default_rng(0).uniform((1000,), low=1.0, high=1.0, dtype='bfloat16')",
        "tc.function(lambda x: tc.astype(x, 'bfloat16'))(tc.ones(1000))",
        "tc.vmap(lambda x: tc.astype(x, 'bfloat16'))(tc.ones(1000))",
    ],
    ids=str,
)
def test_what_asks_for_it_first(made: str) -> None:
    code = f"import tape_core as tc; tc.set_backend('numpy'); print(tc.sum({made}).item(), tc.sum({made}).dtype)"
    assert run(code) == "1000.0 bfloat16"


def test_a_checkpoint_and_a_debugging_tape_around_what_asks_for_it_first() -> None:
    code = """
import tape_core as tc
tc.set_backend("numpy")
x = tc.ones((2, 3))
with tc.GradientTape(debug=True) as tape:
    tape.watch(x)
    f = lambda x: tc.sum(tc.astype(tc.softmax(tc.astype(tc.exp(x) @ tc.ones((3, 3)), "bfloat16")), "float32") * x)
    y = tc.checkpoint(f, policy=["matmul"])(x) if POLICY else f(x)
print(tape.gradient(y, x).tolist() == tc.grad(f)(x).tolist())
with tc.GradientTape(debug=True) as tape:
    tape.watch(x)
    y = tc.sum(tc.softmax(tc.astype(x, "bfloat16")))
tape.gradient(y, x)
print(type(tc.softmax.op.bindings[x.backend][0]).__name__)
"""
    for policy in (False, True):
        assert run(code.replace("POLICY", str(policy))) == "True\nfunction"


@pytest.mark.parametrize(
    "made", ["tc.asarray(a)", "tc.ones(1000, dtype='int64') * a", "tc.Variable(a)", "tc.stack([a, a])[0]", "a"], ids=str
)
def test_an_array_of_numpys_own_comes_first(made: str) -> None:
    code = f"""
import ml_dtypes, numpy as np, tape_core as tc
a = np.ones(1000, ml_dtypes.bfloat16)
with tc.use_backend("numpy"):
    print(tc.sum({made}).item())
"""
    assert run(code) == "1000.0"


def test_ml_dtypes_is_imported_when_it_is_needed() -> None:
    code = "import sys, tape_core as tc; tc.softmax(tc.ones(3, backend='numpy')); print('ml_dtypes' in sys.modules)"
    assert run(code) == "False"


def test_kernels_that_were_bound_before_know_it() -> None:
    code = """
import os
os.environ["TAPE_BACKEND"] = "numpy"
import tape_core as tc
x = tc.ones((2, 3))
def f(x):
    found = [tc.softmax(x), tc.zeros_like(x), tc.erf(x), tc.broadcast_to(x[0], (9, 3)), tc.layer_norm(x)]
    return [*found, tc.einsum("ij,ij->i", x, x)]
compiled = tc.function(f)
compiled(x), f(x), tc.vmap(lambda x: tc.softmax(x))(x), tc.grad(lambda x: tc.sum(tc.softmax(x)))(x)
y = tc.astype(x, "bfloat16")
found = [*f(y), *compiled(y), tc.vmap(lambda x: tc.softmax(x))(y), tc.grad(lambda x: tc.sum(tc.softmax(x)))(y)]
print({(t.dtype.name, type(t._array).__name__) for t in found})
"""
    assert run(code) == "{('bfloat16', 'BFloat16Array')}"
