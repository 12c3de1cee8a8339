"""check_grads: it passes what is right, and says which entry of which Jacobian is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.extend import op, vjp
from tape_core.testing import assert_close, check_grads, check_jvp, check_vjp, numerical_jacobian


@pytest.fixture
def cubed(_ops_are_forgotten: None) -> Any:
    """An op whose rule is wrong above 2."""

    @op(x=vjp(lambda xp, g, x: g * (3 * x * x + xp.astype(x > 2, x.dtype))), kernel=lambda xp, x: x**3)
    def cubed_wrongly(x: Any, /) -> Any:
        """Wrong above 2."""

    return cubed_wrongly


def test_what_is_right_passes() -> None:
    x, w = tc.asarray([0.5, 2.0], dtype="float64"), tc.asarray([[1.0, -1.0]], dtype="float64")
    check_grads(lambda x: tc.sin(x) * x, (x,), order=3)
    check_grads(lambda d, x: {"y": d["w"] @ x, "z": (tc.sum(x),)}, ({"w": w}, x), order=2)
    check_grads(lambda x: tc.sin(x) * x, (tc.astype(x, "float32"),))
    z = tc.asarray([1 + 2j, 0.5], dtype="complex128")
    check_grads(lambda z, x: (tc.abs(z) * x, tc.exp(z), tc.real(z)), (z, x), order=2)


def test_numerical_jacobian_counts_a_complex_number_as_two() -> None:
    z = tc.asarray(1 + 2j, dtype="complex128")
    assert np.allclose(numerical_jacobian(lambda z: z * z, (z,)), [[2, -4], [4, 2]])


@pytest.mark.parametrize("check", [check_jvp, check_vjp])
def test_a_wrong_entry_is_named(check: Any, cubed: Any) -> None:
    x = tc.asarray([[1.0, 3.0]], dtype="float64")
    check(lambda x: cubed(x), (x[:, :1],))
    with pytest.raises(AssertionError) as caught:
        check(lambda d: {"y": cubed(d["x"])}, ({"x": x},))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("1 of 4 entries of the Jacobian differ")
    place = "args[0]['x'][0, 1]"
    assert lines[1] == f"  d result['y'][0, 1] / d {place}: 28, by differences 27, where {place} is 3"


def test_arguments_have_the_names_that_are_given(cubed: Any) -> None:
    x = tc.asarray([1.0, 3.0], dtype="float64")
    with pytest.raises(AssertionError, match=r"d result\[1\] / d x\[1\]: 28, by differences 27, where x\[1\] is 3"):
        check_grads(lambda w, x: w * cubed(x), (tc.asarray(1.0, dtype="float64"), x), names=["w", "x"])
    z = tc.asarray([0.5, 2 - 1j], dtype="complex128")
    with pytest.raises(AssertionError, match=r"d result\[1\] / d Im z\[1\]: .*, where Im z\[1\] is -1"):
        check_vjp(lambda z: tc.real(z) + tc.stop_gradient(tc.imag(z)), (z,), names=["z"])
    with pytest.raises(ValueError, match="1 arguments, and 2 names"):
        check_jvp(tc.sin, (x,), names=["x", "y"])


def test_a_wrong_second_derivative_is_found() -> None:
    lossy = lambda x: tc.sin(x) + tc.stop_gradient(tc.grad(lambda y: y**3)(x)) * (x - tc.stop_gradient(x))  # noqa: E731
    x = (tc.asarray(2.0, dtype="float64"),)
    with pytest.raises(AssertionError, match="reverse mode: 1 of 1 entries"):
        check_grads(lossy, x, modes=["rev"])
    check_grads(lambda x: x**3 * tc.stop_gradient(tc.asarray(2.0)), x, order=2)


def test_mistakes() -> None:
    x = tc.asarray([1.0], dtype="float64")
    with pytest.raises(ValueError, match="modes are 'fwd' and 'rev', got 'forward'"):
        check_grads(tc.sin, (x,), modes=["forward"])
    with pytest.raises(ValueError, match="order must be at least 1"):
        check_grads(tc.sin, (x,), order=0)
    with pytest.raises(TypeError, match=r"args\[0\] has dtype int64"):
        check_grads(tc.sin, (tc.asarray([1]),))


def test_elements_may_differ_by_the_rounding_of_what_was_summed() -> None:
    a, b = tc.asarray([[1e8, 1.0, -1e8]]), tc.asarray([1.0, 0.5, 1.0])
    assert_close(a @ b, [0.0], magnitude=abs(a) @ abs(b))
    assert_close([1.0, 1e-17, float("nan"), float("inf")], [1.0, 0.0, float("nan"), float("inf")])
    assert_close([], [])
    for wrong in ([1.0, 1e-12], [float("nan"), 0.0], [float("inf"), 0.0]):
        with pytest.raises(AssertionError, match="1 of 2 elements differ; at "):
            assert_close(wrong, [1.0, 0.0])
    with pytest.raises(AssertionError, match="shape"):
        assert_close([1.0], [[1.0]])
    with pytest.raises(AssertionError, match="differ"):
        assert_close(a @ b, [8.0], magnitude=1.0)


def test_arrays_in_bfloat16_are_close_to_what_they_round() -> None:
    try:
        x = tc.asarray([1.0, 100.0, 0.1], dtype="bfloat16")
    except TypeError:
        pytest.skip("the backend has no bfloat16")
    exact = np.asarray([1.0, 100.3, 0.1])
    tc.testing.assert_close(x, exact)
    tc.testing.assert_close(exact, x)
    with pytest.raises(AssertionError, match="1 of 3 elements differ"):
        tc.testing.assert_close(x, [1.0, 150.0, 0.1])
