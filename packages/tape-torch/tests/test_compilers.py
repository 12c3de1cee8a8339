"""Functions compiled by PyTorch's own compilers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import torch
from tape_core.extend import registry
from tape_torch.compiled import Inductor
from tape_torch.optim import Optimizer


def on_torch(values: Any) -> Any:
    return tc.asarray(np.asarray(values, dtype="float32"), backend="torch", device="cpu")


def slope(x: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.tanh(x) * x)
    return tape.gradient(y, x)


def test_gradients_of_slices_are_put_together() -> None:
    def sums(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(tc.tanh(x[:2]) * tc.exp(x[2:]))
        return tape.gradient(y, x)

    x = on_torch([0.5, -1.0, 0.25, 2.0])
    assert np.array_equal(tc.function(sums)(x).numpy(), sums(x).numpy())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_torch_compile_gives_what_an_eager_call_gives() -> None:
    torch.compiler.reset()
    f = tc.function(compile="torch")(slope)
    rows = on_torch([[0.5, -1.0], [0.25, 2.0]])
    for x in (on_torch([0.5, -1.0]), on_torch([0.25, 2.0]), tc.asarray(rows.array[:, 0], backend="torch")):
        found = f(x)
        assert found.backend.name == "torch"
        assert np.allclose(found.numpy(), slope(x).numpy(), rtol=1e-6)
    assert f.traces == 1


def test_torch_compile_is_given_the_calls_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tape's own blocks would break Inductor's fusion into pieces of 131,072 elements, four times as slow.
    given = []
    monkeypatch.setattr(Inductor, "compile", lambda self, program, run, examples: given.append("torch") or run)

    def update(x: Any) -> Any:
        return ((x * 0.5 + 1.0) * x - x) / 3.0

    x = tc.asarray(torch.linspace(0, 1, 1 << 19))
    shown = []
    for how in (None, "torch"):
        f = tc.function(compile=how)(update)
        assert np.array_equal(f(x).numpy(), update(x).numpy())
        shown.append(f.text())
    assert given == ["torch"]
    assert "fused" in shown[0]
    assert "fused" not in shown[1]


@pytest.mark.parametrize("named", [True, False])
def test_without_a_compiler_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: bool
) -> None:
    if named:
        monkeypatch.setenv("CXX", "no-such-compiler")
    else:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"needs a C\+\+ compiler.*install g\+\+ or clang\+\+, or set CXX"):
        tc.function(compile="torch")(slope)(on_torch([1.0]))


def test_what_cannot_be_compiled_is_said() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA device, and the arrays are on cpu"):
            tc.function(compile="cudagraph")(slope)(on_torch([1.0]))
    with pytest.raises(ValueError, match="no compiler named 'xlb' is installed"):
        tc.function(compile="xlb")(slope)(on_torch([1.0]))
    with pytest.raises(ValueError, match="is for arrays of torch, and these are of numpy"):
        tc.function(compile="torch")(slope)(tc.asarray(np.ones(2), backend="numpy"))
    with pytest.raises(ValueError, match="calls random_bits: draw random numbers outside"):
        tc.function(compile="torch")(lambda x: tc.dropout(x, 0.5))(on_torch([1.0]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_torch_compile_takes_loops_of_one_length_and_refuses_decisions() -> None:
    torch.compiler.reset()
    x = on_torch([[0.5, -1.0], [0.25, 2.0]])

    def total(x: Any) -> Any:
        return tc.sum(tc.scan(lambda h, e: (tc.tanh(h + e), h), tc.zeros(2, backend="torch"), x)[1])

    f = tc.function(compile="torch")(tc.grad(total))
    assert np.allclose(f(x).numpy(), tc.grad(total)(x).numpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="cond decide by values: leave out compile"):
        tc.function(compile="torch")(lambda x: tc.map(lambda e: tc.cond(e[0] > 0, tc.sin, tc.cos, e), x))(x)
    with pytest.raises(ValueError, match="while_loop decide by values"):
        tc.function(compile="torch")(lambda x: tc.while_loop(lambda y: tc.sum(y) < 9, lambda y: y + 1, x))(x)


def test_an_optimizer_of_pytorch_takes_steps_in_a_compiled_function() -> None:
    def train(compiled: bool) -> list[float]:
        w = tc.Variable(on_torch([1.0, 2.0, 3.0]))
        optimizer = Optimizer(torch.optim.Adam, [w], lr=0.1)

        def step(x: Any) -> None:
            with tc.GradientTape() as tape:
                loss = tc.sum((w * x - 1.0) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])

        run = tc.function(step) if compiled else step
        for _ in range(5):
            run(on_torch([0.5, 0.3, 0.1]))
        values: list[float] = w.tolist()
        return values

    assert train(compiled=True) == train(compiled=False)


def test_compilers_refuse_optimizers_and_say_what_to_do() -> None:
    w = tc.Variable(on_torch([1.0, 2.0]))
    optimizer = Optimizer(torch.optim.SGD, [w], lr=0.1)

    def step(x: Any) -> None:
        optimizer.apply_gradients([(x, w)])

    with pytest.raises(ValueError, match=r"step: compile='torch'.*apply_gradients.*return the gradients"):
        tc.function(compile="torch")(step)(on_torch([1.0, 1.0]))


def test_gradients_of_large_arrays_are_those_of_eager_calls_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    x, w = (on_torch(rng.normal(size=70_000)) for _ in range(2))

    def slopes(x: Any, w: Any) -> Any:
        return tc.grad(lambda x, w: tc.sum(tc.tanh(x * w) * tc.exp(-x * x) + 0.3 * x * w + 3.0 * x), argnums=(0, 1))(
            x, w
        )

    compiled = tc.function(slopes)
    compiled(x, w)
    for found, expected in zip(compiled(x, w), slopes(x, w), strict=True):
        assert np.array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), -2.0])
def test_runs_may_have_numbers_that_have_no_literal(number: float) -> None:
    x = tc.asarray([1.0, -2.0] * 200_000, backend="torch")
    f = tc.function(lambda x: (x * number + x) * 2.0 - number)
    expected = (x * number + x) * 2.0 - number
    for _ in range(3):
        assert f(x).numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_a_kernel_that_pytorch_cannot_trace_is_named_with_what_to_do() -> None:
    torch.compiler.reset()
    product = registry["csr_matmul"].function
    x = on_torch([[0.5, -1.0], [0.25, 2.0]])
    data, indices, starts = (tc.asarray(v, backend="torch") for v in ([1.0, 2.0], [1, 0], [0, 1, 2]))
    with pytest.raises(ValueError, match="compile='torch' is for kernels that run in the same way for all values"):
        tc.function(compile="torch")(product)(data, indices, starts, x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_a_result_whose_shape_depends_on_values_is_named_with_what_to_do() -> None:
    torch.compiler.reset()
    mask = on_torch([1.0, 0.0, 1.0]) > 0.5  # a constant: so Tape can trace it
    f = tc.function(lambda x: tc.sum(x[mask]), compile="torch")
    with pytest.raises(ValueError, match=r"compile='torch'.*the same shape.*nonzero.*\. Leave out compile"):
        f(on_torch([0.25, 1.0, 2.0]))


@pytest.mark.parametrize(
    ("f", "arguments"),
    [
        (tc.special.betainc, (0.7, 1.9, 0.3)),
        (tc.special.gammainc, (0.7, 1.9)),
        (tc.linalg.eigvalsh, ([[2.0, 1.0], [1.0, 3.0]],)),
    ],
)
def test_no_kernel_becomes_a_constant_of_the_first_call(
    f: Callable[..., tc.Tensor], arguments: tuple[object, ...]
) -> None:
    """Kernels that compute outside of PyTorch are refused, or compute again; the first values never come back."""
    torch.compiler.reset()
    compiled = tc.function(f, compile="torch")
    if f in (tc.special.betainc, tc.special.gammainc):
        with pytest.raises(ValueError, match=r"compile='torch'.*Leave out compile"):
            compiled(*[on_torch(value) for value in arguments])
        return
    compiled(*[on_torch(value) for value in arguments])
    others = [0.5 * on_torch(value) + 0.1 for value in arguments]
    np.testing.assert_allclose(compiled(*others).numpy(), f(*others).numpy(), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_a_failure_of_pytorchs_compiler_says_whose_it_is_and_what_to_do() -> None:
    torch.compiler.reset()
    f = tc.function(lambda x: x * 1j + x, compile="torch")
    x = tc.zeros((0,), dtype="float64", backend="torch", device="cpu")
    try:
        assert f(x).shape == (0,)  # where PyTorch compiles it
    except RuntimeError as error:
        assert re.search(r"inside PyTorch's compiler.*Leave out compile", str(error))  # noqa: PT017


def test_a_function_that_computes_nothing_is_not_compiled() -> None:
    with pytest.raises(ValueError, match="compile='torch' has nothing to compile"):
        tc.function(lambda x: x, compile="torch")(tc.ones(2, backend="torch"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_torch_compile_of_a_module_of_pytorch_and_its_derivative() -> None:
    """Inductor gets what the module does, not the call; its parameters and buffers are those of each run."""
    import copy

    import tape_torch

    torch.compiler.reset()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh()).double()
    twin = copy.deepcopy(model)

    def descent(model: torch.nn.Module) -> Any:
        variables = tape_torch.variables(model)

        def step(x: Any) -> Any:
            with tc.GradientTape() as tape:
                loss = tc.sum(tape_torch.call(model, x) ** 2)
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign(variable - 0.01 * gradient)
            return loss

        return step

    compiled, eager = tc.function(compile="torch")(descent(model)), descent(twin)
    x = tc.asarray(torch.randn(5, 3, dtype=torch.float64))
    for k in range(4):
        assert compiled(x + k).item() == pytest.approx(eager(x + k).item(), rel=1e-9)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, twin.state_dict()[name])
