"""The rule interface: ops and derivative rules that others write, by `tape_core.extend`."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import array_api_compat.numpy
import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from support import gradients
from tape_core.backends import ArrayAPIBackend
from tape_core.extend import NONDIFF, TODO, elementwise, linear, op, transpose, vjp

THIS_FILE = __file__.rsplit("/", 1)[-1]


pytestmark = pytest.mark.usefixtures("_ops_are_forgotten")


def second(f: Any, x: Any) -> Any:
    with tc.GradientTape() as outer:
        outer.watch(x)
        (g,) = gradients(f, x)
    return outer.gradient(g, x)


# -- ops of one's own


def test_an_elementwise_op_gives_its_partial_derivatives() -> None:
    """The engine sums over broadcasting, casts and differentiates again."""

    @elementwise(
        x1=lambda xp, x1, x2: 2 * x1 * x2,
        x2=lambda xp, x1: x1 * x1,
        kernel=lambda xp, x1, x2: x1 * x1 * x2,
    )
    def square_times(x1: Any, x2: Any, /) -> Any:
        """`x1² x2`."""

    x, y = tc.asarray([[1.0], [2.0]]), tc.asarray([3.0, 4.0, 5.0], dtype="float64")
    assert np.array_equal(square_times(x, y).numpy(), x.numpy() ** 2 * y.numpy())
    dx, dy = gradients(square_times, x, y)
    assert (dx.tolist(), dx.dtype) == ([[24.0], [48.0]], tc.float32)
    assert (dy.tolist(), dy.dtype) == ([5.0, 5.0, 5.0], tc.float64)
    assert square_times.__name__ == "square_times"
    assert square_times(2.0, 3).item() == 12.0
    assert square_times(x, 3.0).tolist() == [[3.0], [12.0]]
    assert second(lambda x: square_times(x, 3.0), x).tolist() == [[6.0], [6.0]]
    with pytest.raises(ValueError, match=r"square_times\(x1: float32\[2, 1\], x2: float64\[3, 2\]"):
        square_times(x, tc.ones((3, 2), dtype="float64"))


def test_partial_derivatives_may_be_numbers_or_rules_of_the_cotangent() -> None:
    @elementwise(x1=1, x2=-2, x3=vjp(lambda xp, g, x3: g / x3), kernel=lambda xp, a, b, c: a - 2 * b)
    def combine(x1: Any, x2: Any, x3: Any, /) -> Any:
        """`x1 - 2 x2`, with a made-up derivative for x3."""

    x = tc.asarray([2.0, 4.0])
    assert [g.tolist() for g in gradients(combine, x, x * 1.0, x * 2.0)] == [
        [1.0, 1.0],
        [-2.0, -2.0],
        [0.25, 0.125],
    ]


def test_a_linear_op_gives_its_transpose() -> None:
    @linear(
        x=transpose(lambda xp, g, x_spec, n: xp.reshape(xp.sum(g, axis=0), x_spec.shape) * n),
        kernel=lambda xp, x, *, n=2: xp.stack([x * n, x * n]),
    )
    def twice_times(x: Any, /, *, n: int = 2) -> Any:
        """Two copies of `n x`."""

    x = tc.asarray([1.0, 2.0])
    assert gradients(twice_times, x)[0].tolist() == [4.0, 4.0]
    assert gradients(lambda x: twice_times(x, n=3), x)[0].tolist() == [6.0, 6.0]
    assert second(lambda x: twice_times(x * x), x).tolist() == [8.0, 8.0]


def test_a_general_op_has_parameters_by_position_keyword_or_default() -> None:
    @op(x=vjp(lambda xp, g, x, power, shift: g * power * (x + shift) ** (power - 1)),
        kernel=lambda xp, x, power, shift=1.0: (x + shift) ** power)  # fmt: skip
    def shifted_power(x: Any, /, power: int, shift: float = 1.0) -> Any:
        """`(x + shift) ** power`."""

    x = tc.asarray([1.0])
    assert gradients(lambda x: shifted_power(x, 2), x)[0].item() == 4.0
    assert gradients(lambda x: shifted_power(x, power=3), x)[0].item() == 12.0
    assert gradients(lambda x: shifted_power(x, 3, 2.0), x)[0].item() == 27.0
    assert gradients(lambda x: shifted_power(x, 3, shift=2.0), x)[0].item() == 27.0
    assert second(lambda x: shifted_power(x, 3), x).item() == 12.0
    with pytest.raises(TypeError, match=r"shifted_power: missing a required argument: 'power'.*signature is"):
        shifted_power(x)
    with pytest.raises(TypeError, match="shifted_power: got an unexpected keyword argument 'scale'"):
        shifted_power(x, 2, scale=1)


def test_a_general_op_of_two_inputs_takes_scalars() -> None:
    @op(a=vjp(lambda xp, g, b: g * b), b=NONDIFF, kernel=lambda xp, a, b: a * b)
    def scaled_by(a: Any, b: Any, /) -> Any:
        """`a b`, for b a constant."""

    x = tc.asarray([1.0, 2.0])
    assert gradients(lambda x: scaled_by(x, 3.0), x)[0].tolist() == [3.0, 3.0]
    assert gradients(lambda x: scaled_by(x, x), x)[0].tolist() == [1.0, 2.0]
    assert gradients(lambda b: scaled_by(2.0, b), x) == [None]


def test_an_op_of_a_sequence_returns_a_cotangent_for_each() -> None:
    @linear(
        arrays=transpose(lambda xp, g, arrays_spec: [g * (k + 1) for k, _ in enumerate(arrays_spec)]),
        sequence=True,
        kernel=lambda xp, arrays: sum((k + 1) * a for k, a in enumerate(arrays)),
    )
    def weighted(arrays: Any, /) -> Any:
        """The sum of 1 x the first, 2 x the second..."""

    x, y = tc.asarray([1.0]), tc.asarray([2.0])
    assert [g.item() for g in gradients(lambda x, y: weighted([x, y, x]), x, y)] == [4.0, 2.0]
    with pytest.raises(ValueError, match="weighted: arrays is empty"):
        weighted([])
    with pytest.raises(TypeError, match=r"weighted: arrays\[1\] must be a Tensor.*'b' of type 'str'"):
        weighted([x, "b"])


# -- what a record keeps


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (lambda xp, g: g, []),
        (lambda xp, g, x_spec, y_spec: g * x_spec.shape[0] / y_spec.shape[0], []),
        (lambda xp, g, x: g * x, ["x"]),
        (lambda xp, g, y: g * y, ["y"]),
        (lambda xp, g, out: g * out, ["out"]),
        (lambda xp, g, out, y, x_spec, scale: g * y * scale, ["out", "y"]),
    ],
    ids=["nothing", "specs", "x", "y", "out", "several"],
)
@pytest.mark.parametrize("kind", ["elementwise", "op", "op with parameters"])
def test_a_record_keeps_what_its_rule_names_and_nothing_else(rule: Any, kept: list[str], kind: str) -> None:
    takes_scale = "scale" in rule.__code__.co_varnames
    if takes_scale and kind != "op with parameters":
        pytest.skip("an op without parameters")
    declare = elementwise if kind == "elementwise" else op

    if kind == "op with parameters":

        @declare(x=vjp(rule), y=NONDIFF, kernel=lambda xp, x, y, scale=2.0: x * y * scale)
        def keeps_for_test(x: Any, y: Any, /, scale: float = 2.0) -> Any:
            """`x y scale`."""

    else:

        @declare(x=vjp(rule), y=NONDIFF, kernel=lambda xp, x, y: x * y)
        def keeps_for_test(x: Any, y: Any, /) -> Any:
            """`x y`."""

    arrays = {"x": np.ones(3), "y": np.full(3, 2.0)}
    x, y = tc.asarray(arrays["x"]), tc.asarray(arrays["y"])
    with tc.GradientTape() as tape:
        tape.watch(x)
        out = keeps_for_test(x, y)
    references = {name: weakref.ref(array) for name, array in arrays.items()}
    references["out"] = weakref.ref(out._array)
    arrays.clear()
    del x, y, out
    gc.collect()
    assert [name for name, reference in references.items() if reference() is not None] == sorted(
        kept, key=list(references).index
    )
    del tape


def test_multiply_keeps_only_the_other_factor() -> None:
    a, b = np.ones(3), np.ones(3)
    x, y = tc.asarray(a), tc.asarray(b)
    references = [weakref.ref(a), weakref.ref(b)]
    with tc.GradientTape() as tape:
        tape.watch(x)
        z = x * y
    del a, b, x, y
    assert [reference() is not None for reference in references] == [False, True]
    del tape, z


# -- what is computed


def test_a_rule_runs_only_for_inputs_that_are_watched() -> None:
    ran: list[str] = []

    def rule(name: str) -> Any:
        def run(xp: Any, g: Any) -> Any:
            ran.append(name)
            return g

        return vjp(run)

    @op(a=rule("a"), b=rule("b"), c=rule("c"), kernel=lambda xp, a, b, c: a + b + c)
    def adds_three(a: Any, b: Any, c: Any, /) -> Any:
        """The sum of three."""

    x, y, z = (tc.asarray([float(k)]) for k in range(3))
    gradients(lambda y: adds_three(x, y, z), y)
    assert ran == ["b"]
    ran.clear()
    gradients(lambda x, z: adds_three(x, y, z), x, z)
    assert sorted(ran) == ["a", "c"]


def test_a_product_with_one_matrix_watched_is_one_product_backward() -> None:
    class Counting:
        def __init__(self) -> None:
            self.products = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(array_api_compat.numpy, name)

        def matmul(self, a: Any, b: Any) -> Any:
            self.products += 1
            return np.matmul(a, b)

    namespace = Counting()
    backend = ArrayAPIBackend("counting", namespace, array_types=["nowhere:Array"])
    x, w = (tc.ones(shape, backend=backend) for shape in ((2, 3), (3, 4)))
    with tc.GradientTape() as tape:
        tape.watch(w)
        y = x @ w
    assert namespace.products == 1
    tape.gradient(y, w)
    assert namespace.products == 2


def test_a_rule_runs_only_for_inputs_that_lead_to_a_source() -> None:
    ran: list[str] = []

    def rule(name: str) -> Any:
        def run(xp: Any, g: Any) -> Any:
            ran.append(name)
            return g

        return vjp(run)

    @op(a=rule("a"), b=rule("b"), kernel=lambda xp, a, b: a + b)
    def adds_two(a: Any, b: Any, /) -> Any:
        """The sum of two."""

    v, w = tc.Variable([2.0]), tc.Variable([3.0])
    with tc.GradientTape(persistent=True) as tape:
        middle = v * 2.0
        y = adds_two(middle, w)
    assert tape.gradient(y, v).item() == 2.0
    assert tape.gradient(y, middle).item() == 1.0
    assert tape.gradient(y, w).item() == 1.0
    assert ran == ["a", "a", "b"]
    assert tape.gradient(y, y).item() == 1.0
    assert ran == ["a", "a", "b"], "a source that is the target needs no rule"
    assert [g.item() for g in tape.gradient(y, [w, v])] == [1.0, 2.0]


# -- nothing flows, or nobody wrote it


def test_nondiff_gives_none() -> None:
    @op(x=NONDIFF, kernel=lambda xp, x: x * 2.0, reason="for this test")
    def blocks_for_test(x: Any, /) -> Any:
        """`2 x`, as a constant."""

    @op(a=vjp(lambda xp, g: g), b=NONDIFF, kernel=lambda xp, a, b: a + b)
    def half_blocks(a: Any, b: Any, /) -> Any:
        """`a + b`, with b a constant."""

    x, y = tc.asarray([1.0]), tc.asarray([2.0])
    assert gradients(blocks_for_test, x) == [None]
    dx, dy = gradients(half_blocks, x, y)
    assert (dx.item(), dy) == (1.0, None)


@pytest.mark.parametrize("declare", [elementwise, op], ids=["elementwise", "op"])
def test_todo_raises_only_on_the_path(declare: Any) -> None:
    @declare(a=vjp(lambda xp, g, b: g * b), b=TODO, kernel=lambda xp, a, b: a * b)
    def half_written(a: Any, b: Any, /) -> Any:
        """`a b`, with one rule missing."""

    x, y = tc.asarray([2.0]), tc.asarray([3.0])
    assert half_written(x, y).item() == 6.0, "the op itself works"
    assert gradients(lambda x: half_written(x, y), x)[0].item() == 3.0
    with pytest.raises(NotImplementedError, match="rule of 'half_written' for 'b' is not written yet"):
        gradients(lambda y: half_written(x, y), y)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        z = y * y
        w = half_written(x, y)
    assert tape.gradient(z, y).item() == 6.0, "not on the path from z"
    with pytest.raises(NotImplementedError, match="half_written"):
        tape.gradient(w, [x, y])
    with pytest.raises(NotImplementedError, match="half_written"), tc.GradientTape():
        tape.gradient(w, y)


def test_todo_does_not_raise_for_sources_that_do_not_need_it() -> None:
    @op(a=vjp(lambda xp, g, b: g * b), b=TODO, kernel=lambda xp, a, b: a * b)
    def half_written_too(a: Any, b: Any, /) -> Any:
        """`a b`, with one rule missing."""

    v, w = tc.Variable([2.0]), tc.Variable([3.0])
    with tc.GradientTape() as tape:
        y = half_written_too(v, w)
    assert tape.gradient(y, v).item() == 3.0


# -- what a rule returns


@pytest.mark.parametrize("recorded", [False, True], ids=["raw", "recorded"])
def test_a_cotangent_of_another_shape_names_op_input_and_line(recorded: bool) -> None:
    @op(x=vjp(lambda xp, g, x: xp.sum(g * x)), kernel=lambda xp, x: x * 2.0)
    def wrong_shape(x: Any, /) -> Any:
        """`2 x`, with a rule that forgets the axis."""

    line = wrong_shape.op.rules["x"].fn.__code__.co_firstlineno
    x = tc.asarray([1.0, 2.0])
    message = (
        rf"the rule of 'wrong_shape' for 'x' \(.*{THIS_FILE}:{line}\) returned a cotangent of shape "
        r"\(\); the input has \(2,\)"
    )
    with pytest.raises(ValueError, match=message):
        if recorded:
            second(wrong_shape, x)
        else:
            gradients(wrong_shape, x)


def test_a_sequence_rule_with_too_few_or_wrong_cotangents() -> None:
    @linear(
        arrays=transpose(lambda xp, g: [xp.sum(g), g]),
        sequence=True,
        kernel=lambda xp, arrays: arrays[0] + arrays[1],
    )
    def wrong_sequence(arrays: Any, /) -> Any:
        """A sum."""

    @linear(
        arrays=transpose(lambda xp, g: [g, g]),
        sequence=True,
        kernel=lambda xp, arrays: arrays[0] + arrays[1],
    )
    def short_sequence(arrays: Any, /) -> Any:
        """A sum."""

    x, y = tc.asarray([1.0, 2.0]), tc.asarray([3.0, 4.0])
    with pytest.raises(ValueError, match=rf"'wrong_sequence' for 'arrays' \(.*{THIS_FILE}"):
        gradients(lambda x, y: wrong_sequence([x, y]), x, y)
    with pytest.raises(ValueError, match=rf"'short_sequence'.*{THIS_FILE}.* returned 2 cotangents.* 3 arrays"):
        gradients(lambda x, y: short_sequence([x, y, x]), x, y)


def test_the_engine_casts_to_the_dtype_of_the_input() -> None:
    @op(x=vjp(lambda xp, g: xp.astype(g, xp.float64) * 1.0), kernel=lambda xp, x: x * 2.0)
    def widens(x: Any, /) -> Any:
        """`2 x`, with a rule in double precision."""

    assert gradients(widens, tc.asarray([1.0]))[0].dtype is tc.float32


def test_masks_is_heeded_by_an_op_of_two_inputs() -> None:
    @elementwise(
        x=vjp(lambda xp, g, keep: xp.where(keep, g, 0)),
        keep=NONDIFF,
        masks=True,
        kernel=lambda xp, x, keep: xp.where(keep, x, 0),
    )
    def masked_for_test(x: Any, keep: Any, /) -> Any:
        """x where `keep`, else 0."""

    x = tc.asarray([0.0, 4.0])
    assert gradients(lambda x: masked_for_test(tc.sqrt(x), x > 0), x)[0].tolist() == [0.0, 0.25]


def test_a_tensor_for_a_parameter_that_has_no_rule_is_refused() -> None:
    @elementwise(x=1, kernel=lambda xp, x, y: x + y)
    def one_rule_for_two(x: Any, y: Any, /) -> Any:
        """`x + y`; the rule for y is forgotten."""

    @op(x=vjp(lambda xp, g: g), z=NONDIFF, kernel=lambda xp, x, z, y: x + y)
    def two_rules_for_three(x: Any, z: Any, y: Any, /) -> Any:
        """`x + y`; the rule for y is forgotten."""

    x = tc.asarray([1.0])
    assert one_rule_for_two(x, 1.0).item() == 2.0
    with pytest.raises(TypeError, match="one_rule_for_two: a Tensor was given for a parameter; only its inputs, x,"):
        one_rule_for_two(x, x)
    with pytest.raises(TypeError, match=r"two_rules_for_three: a Tensor .* only its inputs, x, z,"):
        two_rules_for_three(x, x, x)


def test_a_gradient_in_another_dtype_on_a_library_whose_arrays_wrap_others() -> None:
    # Its arrays have an attribute `_array`, as Tensors do.
    strict = ArrayAPIBackend("strict", array_api_strict)
    x = tc.asarray([1.0, 2.0], dtype="float32", backend=strict)
    (g,) = gradients(lambda x: tc.sum(tc.astype(x, "float64") * 2.0), x)
    assert (g.dtype, g.tolist()) == (tc.float32, [2.0, 2.0])
    (g,) = gradients(lambda x: x * tc.ones((3, 2), dtype="float64", backend=strict), x)
    assert (g.dtype, g.tolist()) == (tc.float32, [3.0, 3.0])


# -- several results


def test_several_results_of_which_some_are_not_used() -> None:
    x = tc.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    def middle(x: Any) -> Any:
        _, b, _ = tc.unstack(x * x)
        return b * 10.0

    assert gradients(middle, x)[0].tolist() == [[0.0, 0.0], [60.0, 80.0], [0.0, 0.0]]
    assert second(middle, x).tolist() == [[0.0, 0.0], [20.0, 20.0], [0.0, 0.0]]

    def twice(x: Any) -> Any:
        a, _, c = tc.unstack(x)
        return a * a + a * c

    assert gradients(twice, x)[0].tolist() == [[7.0, 10.0], [0.0, 0.0], [1.0, 2.0]]
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a, b, c = tc.unstack(x)
        y = a * b
    assert tape.gradient(y, [a, b, c])[:2] != [None, None]
    assert tape.gradient(y, c) is None
    assert tape.gradient(c, x).tolist() == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    assert tape.gradient([a, a, c], x).tolist() == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


def test_a_rule_of_several_results_gets_a_cotangent_for_each() -> None:
    @op(
        x=vjp(lambda xp, g, x: g[0] * 2 * x + xp.sum(g[1])),
        kernel=lambda xp, x: (x * x, xp.sum(x)),
    )
    def square_and_sum(x: Any, /) -> Any:
        """`x²` and the sum of x."""

    x = tc.asarray([1.0, 2.0])
    assert gradients(lambda x: square_and_sum(x)[0], x)[0].tolist() == [2.0, 4.0]
    assert gradients(lambda x: square_and_sum(x)[1], x)[0].tolist() == [1.0, 1.0]
    assert gradients(lambda x: list(square_and_sum(x)), x)[0].tolist() == [3.0, 5.0]
    assert second(lambda x: square_and_sum(x)[0] * square_and_sum(x)[1], x).tolist() == [16.0, 20.0]
