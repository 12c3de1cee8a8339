"""custom_gradient and custom_jvp: their contract, and that they compose like any function."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend

X = np.linspace(-1, 1, 4)


@tc.custom_gradient
def log1pexp(x: Any) -> Any:
    e = tc.exp(x)
    return tc.log(1 + e), lambda upstream: upstream * (1 - 1 / (1 + e))


def test_the_gradient_is_the_one_given() -> None:
    assert tc.grad(log1pexp)(50.0).item() == 1.0
    x = tc.asarray(2.0)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = log1pexp(3 * x)
    assert tape.gradient(y, x).item() == pytest.approx(3 / (1 + np.exp(-6)))
    assert tape.gradient(y, x).item() == pytest.approx(3 / (1 + np.exp(-6)))


def test_it_is_differentiated_itself_and_composes() -> None:
    slope = 1 / (1 + np.exp(-X))
    x = tc.asarray(X)
    assert np.allclose(tc.vmap(tc.grad(tc.grad(log1pexp)))(x).numpy(), slope * (1 - slope))
    assert np.allclose(tc.jacfwd(log1pexp)(x).numpy(), np.diag(slope))
    assert np.allclose(tc.jacrev(log1pexp)(x).numpy(), np.diag(slope))
    assert np.allclose(tc.grad(lambda x: tc.sum(tc.vmap(log1pexp)(x)))(x).numpy(), slope)
    assert np.allclose(tc.hessian(lambda x: tc.sum(log1pexp(x)))(x).numpy(), np.diag(slope * (1 - slope)))


def test_arguments_and_results_are_structures() -> None:
    @tc.custom_gradient
    def f(pair: Any, name: str, n: Any, *, scale: float) -> Any:
        def grad(*upstream: Any) -> Any:
            assert len(upstream) == 2
            assert not upstream[1].numpy().any()
            return [{"a": upstream[0] * 10, "b": None}, None, None]

        return (pair["a"] * scale, {"other": pair["b"]}), grad

    a, b = tc.asarray(2.0), tc.asarray(3.0)
    with tc.GradientTape() as tape:
        tape.watch([a, b])
        y, other = f({"a": a, "b": b}, "x", tc.asarray(1), scale=5.0)
    assert y.item() == 10.0
    assert other["other"].item() == 3.0
    assert tape.gradient(y, [a, b], unconnected_gradients="none")[0].item() == 10.0


def test_variables() -> None:
    w = tc.Variable(3.0, name="w")

    @tc.custom_gradient
    def f(x: Any) -> Any:
        def grad(upstream: Any, variables: Any = None) -> Any:
            assert variables == [w]
            return upstream * 100, [upstream * 7]

        return x * w, grad

    x = tc.asarray(2.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert [g.item() for g in tape.gradient(y, [x, w])] == [100.0, 7.0]

    @tc.custom_gradient
    def without(x: Any) -> Any:
        return x * w, lambda upstream: upstream

    with pytest.raises(TypeError, match=r"reads the variables \['w'\], so its grad must take the keyword argument"):
        without(x)

    @tc.custom_gradient
    def too_few(x: Any) -> Any:
        return x * w, lambda upstream, variables=None: (upstream, [])

    with tc.GradientTape() as tape:
        tape.watch(x)
        y = too_few(x)
    with pytest.raises(ValueError, match="Must return gradient for each variable"):
        tape.gradient(y, x)


def test_mistakes() -> None:
    x = tc.asarray([1.0, 2.0])

    def gradient(f: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.custom_gradient(f)(x, x)
        return tape.gradient(y, x)

    with pytest.raises(ValueError, match="expected to return 2 gradients, but returned 1 instead"):
        gradient(lambda x, y: (x * y, lambda upstream: upstream))
    with pytest.raises(ValueError, match=r"for argument 1 has shape \(\), the value has shape \(2,\)|argument"):
        gradient(lambda x, y: (x * y, lambda upstream: (upstream, tc.sum(upstream))))
    with pytest.raises(TypeError, match="must return a pair"):
        tc.custom_gradient(lambda x: x)(x)


def test_the_result_is_a_new_tensor_and_what_is_inside_is_off_the_path() -> None:
    double = tc.custom_gradient(lambda x: (x, lambda upstream: upstream * 2))
    x = tc.asarray(1.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = double(x)
    assert y is not x
    assert tape.gradient(y, x).item() == 2.0


def test_complex_gradients_are_conjugated_as_those_of_a_tape() -> None:
    z = tc.asarray(1 + 2j)
    square = tc.custom_gradient(lambda z: (z * z, lambda upstream: upstream * tc.conj(2 * z)))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(z)
        own, custom = z * z * 1j, square(z) * 1j
    assert tape.gradient(custom, z).item() == tape.gradient(own, z).item()


# -- custom_jvp


@tc.custom_jvp
def softer(x: Any) -> Any:
    return tc.log(1 + tc.exp(x))


@softer.defjvp
def softer_rule(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return softer(x), tc.sigmoid(x) * t


def test_forward_and_reverse_mode_go_by_the_rule() -> None:
    @tc.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        x, y = primals
        return x * y, 10 * tangents[0] * y + 100 * x * tangents[1]

    assert f(2.0, 3.0) == 6.0
    x, y = tc.asarray(2.0), tc.asarray(3.0)
    assert tc.jvp(f, (x, y), (1.0, 0.0))[1].item() == 30.0
    assert tc.jvp(lambda x: f(x, y), (x,), (1.0,))[1].item() == 30.0
    assert [g.item() for g in tc.grad(f, (0, 1))(x, y)] == [30.0, 200.0]
    assert tc.grad(lambda y: f(x, y))(y).item() == 200.0
    # Of what the rule computes: d/dy of 10 y.
    assert tc.grad(lambda y: tc.grad(f)(x, y))(y).item() == 10.0
    assert tc.jacfwd(lambda y: tc.jvp(lambda x: f(x, y), (x,), (1.0,))[1])(y).item() == 10.0


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("compile", [None, "python"])
def test_a_mask_leaves_no_nan_of_a_custom_jvp(compile: str | None) -> None:
    root = tc.custom_jvp(tc.sqrt)
    root.defjvp(lambda p, t: (tc.sqrt(p[0]), 0.5 * t[0] / tc.sqrt(p[0])))
    x = tc.asarray([-1.0, 0.0, 4.0], dtype="float64")

    def slopes(x: Any) -> Any:
        gradient = tc.grad(lambda x: tc.sum(tc.where(x > 0, x * root(x), 0)))
        return gradient(x), tc.grad(lambda x: tc.sum(gradient(x) ** 2))(x), tc.vmap(gradient)(tc.stack([x, -x]))

    first, second, each = (slopes if compile is None else tc.function(slopes, compile=compile))(x)
    assert first.tolist() == [0.0, 0.0, 3.0]
    assert second.tolist() == [0.0, 0.0, 2.25]
    assert each.tolist() == [[0.0, 0.0, 3.0], [1.5, 0.0, 0.0]]


def test_custom_jvp_is_exact_to_any_order_in_any_mode() -> None:
    x = tc.asarray(X)
    tc.testing.check_grads(softer, (x,), order=3)
    slope = 1 / (1 + np.exp(-X))
    assert np.allclose(tc.hessian(lambda x: tc.sum(softer(x)))(x).numpy(), np.diag(slope * (1 - slope)))
    assert tc.grad(softer)(tc.asarray(88.0)).item() == 1.0


def test_structures_and_leaves_without_a_derivative() -> None:
    seen: list[Any] = []

    @tc.custom_jvp
    def f(pair: Any, n: Any, name: str, *, scale: float = 1.0) -> Any:
        return {"y": pair["a"] * scale, "n": n + 1, "b": pair["b"]}

    @f.defjvp
    def rule(primals: Any, tangents: Any, *, scale: float = 1.0) -> Any:
        seen.append((primals, tangents))
        pair, n, _ = primals
        out = {"y": pair["a"] * scale, "n": n + 1, "b": pair["b"]}
        return out, {"y": tangents[0]["a"] * scale, "n": None, "b": None}

    a, b, n = tc.asarray([1.0, 2.0]), tc.asarray(3.0), tc.asarray([1, 2])
    with tc.GradientTape() as tape:
        tape.watch([a, b])
        out = f({"a": a, "b": b}, n, "x", scale=5.0)
        y = tc.sum(out["y"]) + out["b"]
    found = tape.gradient(y, [a, b])
    assert found[0].tolist() == [5.0, 5.0]
    assert found[1] is None
    assert out["n"].tolist() == [2, 3]
    (primals, tangents) = seen[0]
    assert primals[2] == "x"
    assert tangents[1] is None
    assert tangents[2] is None
    assert tangents[0]["b"].shape == ()
    with tc.ForwardAccumulator(a, tc.asarray([1.0, 0.0])) as acc:
        out = f({"a": a, "b": b}, n, "x", scale=5.0)
    assert acc.jvp(out["y"]).tolist() == [5.0, 0.0]
    assert acc.jvp(out["n"]) is None


def test_mistakes_in_a_rule_are_named() -> None:
    def f_with(rule: Any) -> Any:
        f = tc.custom_jvp(lambda x: [x, x * 2])
        f.defjvp(rule)
        return lambda x: tc.sum(f(x)[0])

    x = tc.asarray([1.0, 2.0])
    with pytest.raises(TypeError, match=r"unruly has no rule; give it one with @unruly.defjvp"):

        @tc.custom_jvp
        def unruly(x: Any) -> Any:
            return x

        unruly(x)
    with pytest.raises(TypeError, match="must return a pair"):
        tc.grad(f_with(lambda p, t: t))(x)
    with pytest.raises(ValueError, match=r"it is \[\*\], the result is \[\*, \*\]"):
        tc.grad(f_with(lambda p, t: (p, [t[0]])))(x)
    with pytest.raises(ValueError, match=r"from the rule of <lambda>\[1\] has shape \(\), the result has shape"):
        tc.jvp(f_with(lambda p, t: (p, [t[0], tc.sum(t[0])])), (x,), (x,))
    with pytest.raises(TypeError, match=r"complex64, the result is real"):
        tc.jvp(f_with(lambda p, t: (p, [t[0], t[0] * 1j])), (x,), (x,))


def test_what_a_rule_would_not_see_is_refused() -> None:
    w, x = tc.Variable(3.0, name="w"), tc.asarray(2.0)

    def with_identity_rule(f: Any) -> Any:
        f = tc.custom_jvp(f)
        f.defjvp(lambda p, t: (p[0], t[0]))
        return f

    reads = with_identity_rule(lambda x: x * w)
    with pytest.raises(TypeError, match=r"reads the variables \['w'\]"):
        reads(x)
    for order in (1, 2):
        with pytest.raises(TypeError, match="watches and that is not among its arguments"):
            _nth(lambda y: with_identity_rule(lambda x: x * y)(x), order)(x)
    with pytest.raises(TypeError, match="not among its arguments"):
        tc.jvp(lambda y: with_identity_rule(lambda x: x * y)(x), (x,), (x,))
    with pytest.raises(TypeError, match="not among its arguments"):
        tc.grad(lambda y: tc.sum(tc.vmap(lambda y: with_identity_rule(lambda x: x * y)(x))(y)))(tc.ones(2))
    assert with_identity_rule(lambda x: x * tc.stop_gradient(x))(x).item() == 4.0
    assert tc.grad(lambda y: y * with_identity_rule(lambda x: x * tc.stop_gradient(y))(x))(x).item() == 4.0


def _nth(f: Any, order: int) -> Any:
    return f if order == 0 else _nth(tc.grad(f), order - 1)


def test_complex_tangents() -> None:
    square = tc.custom_jvp(lambda z: z * z)
    square.defjvp(lambda p, t: (p[0] * p[0], 2 * p[0] * t[0]))
    z = tc.asarray([1 + 2j, 0.5j])
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(z)
        own, custom = z * z * 1j, square(z) * 1j
    assert np.allclose(tape.gradient(custom, z).numpy(), tape.gradient(own, z).numpy())
    assert np.allclose(tc.jvp(square, (z,), (z,))[1].numpy(), 2 * z.numpy() ** 2)


def square(form: str) -> Any:
    """A square, of which the backward pass, or a part of it, is computed by another library."""

    @tc.custom_gradient
    def f(x: Any) -> Any:
        a = x.numpy()
        conj_a = np.conj(a)

        def grad(upstream: Any) -> Any:
            if form == "half":  # a part of it where a tape can see it
                return tc.asarray(conj_a) * upstream + tc.asarray(conj_a * upstream.numpy())
            if form == "stopped":
                return tc.asarray(2 * conj_a) * tc.stop_gradient(upstream)
            return tc.asarray(2 * conj_a * upstream.numpy())

        return tc.asarray(a * a), grad

    return f


@pytest.mark.parametrize("form", ["all", "half", "stopped"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_forward_mode_of_what_is_computed_with_numpy(form: str, dtype: Any) -> None:
    with tc.use_backend("numpy"):
        f, x = (
            square(form),
            tc.asarray(np.asarray([1.0, 2.0, 3.0], dtype=dtype) * (1 if dtype is np.float64 else 1 + 1j)),
        )
        t = tc.asarray(np.asarray([1.0, 10.0, -1.0], dtype=dtype))
        expected = 2 * x.numpy() * t.numpy()
        np.testing.assert_allclose(tc.jvp(f, (x,), (t,))[1].numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(tc.linearize(f, x)[1](t).numpy(), expected, rtol=1e-12)
        np.testing.assert_allclose(tc.jacfwd(f)(x).numpy(), np.diag(2 * x.numpy()), rtol=1e-12)
        composed = tc.jvp(lambda x: f(x * x) * 3, (x,), (t,))[1].numpy()
        np.testing.assert_allclose(composed, 12 * x.numpy() ** 3 * t.numpy(), rtol=1e-12)
        with tc.ForwardAccumulator(x, t) as accumulator:
            y = f(x)
        np.testing.assert_allclose(accumulator.jvp(y).numpy(), expected, rtol=1e-12)


def test_second_derivatives_of_what_is_computed_with_numpy_are_not_zeros() -> None:
    with tc.use_backend("numpy"):
        f, x = square("all"), tc.asarray([1.0, 2.0])
        for derivative in (tc.hessian, lambda g: tc.jacrev(tc.grad(g)), lambda g: lambda x: tc.hvp(g, (x,), (x,))):
            with pytest.raises(ValueError, match=r"(?s)its values leave Tape by numpy\(\).*in square.<locals>.f"):
                derivative(lambda x: tc.sum(f(x)))(x)
        linear = tc.custom_gradient(lambda x: (x * 3, lambda upstream: upstream * 3))
        assert tc.hessian(lambda x: tc.sum(linear(x)))(x).tolist() == [[0, 0], [0, 0]]


def test_results_and_gradients_of_another_backend_say_so() -> None:
    x = tc.asarray([1.0, 2.0], backend=ArrayAPIBackend("strict", array_api_strict))
    on_numpy = np.ones(2, dtype=np.float32)
    result = tc.custom_gradient(lambda x: (tc.asarray(on_numpy), lambda upstream: upstream))
    with pytest.raises(
        TypeError, match=r"custom_gradient\(<lambda>\): the result is on backend 'numpy', the arguments on"
    ):
        tc.grad(lambda x: tc.sum(result(x)))(x)
    gradient = tc.custom_gradient(lambda x: (x * 2, lambda upstream: on_numpy))
    assert tc.grad(lambda x: tc.sum(gradient(x)))(x).tolist() == [1, 1]  # an array of NumPy is data
    gradient = tc.custom_gradient(lambda x: (x * 2, lambda upstream: tc.asarray(on_numpy)))
    with pytest.raises(TypeError, match=r"the grad of <lambda> for argument 0 is on backend 'numpy', the value on"):
        tc.grad(lambda x: tc.sum(gradient(x)))(x)


class Holder:
    """Methods under other names than those of their functions."""

    scaled = tc.custom_gradient(lambda self, x: (x * 2, lambda upstream: upstream * self.factor))

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.weight = tc.Variable(3.0)

    @property
    @tc.custom_gradient
    def doubled(self) -> Any:
        return self.weight * 2, lambda upstream, variables: ((), [upstream * self.factor])


def test_methods_under_any_name_and_properties() -> None:
    holder, x = Holder(5.0), tc.asarray(1.0)
    assert tc.grad(holder.scaled)(x).item() == 5
    with tc.GradientTape() as tape:
        y = holder.doubled
    assert tape.gradient(y, holder.weight).item() == 5


def test_a_python_float_has_the_tangent_0_in_a_rule() -> None:
    @tc.custom_jvp
    def product(a: Any, b: Any) -> Any:
        return a * b

    @product.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (a, b), (da, db) = primals, tangents
        return product(a, b), da * b + a * db

    x = tc.asarray(2.0)
    for factor in (3.0, tc.asarray(3.0)):
        assert tc.grad(lambda x: product(x, factor))(x).item() == 3.0  # noqa: B023
        assert tc.jvp(lambda x: product(factor, x), (x,), (1.0,))[1].item() == 3.0  # noqa: B023
    assert tc.grad(lambda x: tc.imag(product(x, 3j)))(x).item() == 3.0
