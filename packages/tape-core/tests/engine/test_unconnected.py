"""Derivatives of functions that do not depend on what they are differentiated with respect to."""

import pytest
import tape_core as tc

X = tc.asarray([1.0, 2.0])
NAMES = ("grad", "value_and_grad", "hessian", "jacrev", "jacfwd")
CUTS = {
    "does not compute with it": lambda x: tc.asarray(1.0),
    "floor has no derivative": lambda x: tc.sum(tc.floor(x * 2)),
    "floor_divide has no derivative": lambda x: tc.sum(x // 2),
    "argmax has no derivative": lambda x: tc.argmax(x),
    "astype makes int64": lambda x: tc.sum(tc.astype(x, "int64")),
    "greater has no derivative": lambda x: tc.sum(tc.where(x > 0, 1.0, 0.0)),
    "stop_gradient makes a constant": lambda x: tc.sum(tc.stop_gradient(x)),
    "leave Tape by numpy": lambda x: float(x.numpy().sum()),
    "leave Tape by float": lambda x: float(x[0]) * 2,
    "leave Tape by tolist": lambda x: tc.asarray(sum(x.tolist())),
}


def test_where_nothing_is_connected_the_error_says_what_cut_the_path():
    for text, f in CUTS.items():
        for name in NAMES:
            with pytest.raises(ValueError, match=rf"(?s){name}: the result does not depend on argument 0.*{text}"):
                getattr(tc, name)(f)(X)
        with pytest.raises(ValueError, match=rf"(?s)hvp: .*{text}"):
            tc.hvp(f, (X,), (X,))


def test_zeros_are_given_where_they_are_asked_for():
    for f in CUTS.values():
        for name in ("grad", "jacrev", "jacfwd"):
            assert getattr(tc, name)(f, allow_unconnected=True)(X).tolist() == [0.0, 0.0]
        assert tc.hessian(f, allow_unconnected=True)(X).tolist() == [[0.0, 0.0], [0.0, 0.0]]
        assert tc.hvp(f, (X,), (X,), allow_unconnected=True)[0].tolist() == [0.0, 0.0]
        assert tc.value_and_grad(f, allow_unconnected=True)(X)[1].tolist() == [0.0, 0.0]


def test_the_line_is_named_at_which_the_path_ends():
    with pytest.raises(ValueError, match=r"test_unconnected.py\", line \d+, in .*<lambda>"):
        tc.grad(lambda x: tc.sum(tc.floor(x)))(X)


def test_a_value_that_is_assigned_to_a_variable_is_said_to_be():
    v = tc.Variable([0.0, 0.0])
    for method in ("assign", "assign_add", "assign_sub"):
        assign = getattr(v, method)
        for f in (
            lambda x, assign=assign: tc.sum(assign(x) * 2),
            lambda x, assign=assign: tc.sum(assign(x * 2) * 2),
            lambda x, assign=assign: tc.sum(assign([x[0], x[1]]) * 2),
        ):
            for name in NAMES:
                with pytest.raises(
                    ValueError, match=rf"(?s)assigned to a Variable, by Variable.{method}.*GradientTape"
                ):
                    getattr(tc, name)(f)(X)


def test_a_tape_that_debugs_explains_an_assignment_of_the_source_itself():
    v, x = tc.Variable([0.0, 0.0]), tc.asarray([3.0, 4.0])
    for assign in (
        lambda: v.assign(x),
        lambda: v.assign_add(x),
        lambda: v.assign(x * 2),
        lambda: v.assign([x[0], x[1]]),
    ):
        with tc.GradientTape(debug=True) as tape:
            tape.watch(x)
            assign()
            y = tc.sum(v * v)
        found = tape.explain(y, x)
        assert (found.reason, found.connected) == ("assigned", False)


def test_variables_as_arguments_of_a_function_that_reads_the_variables_are_an_error():
    v = tc.Variable([1.0, 2.0], name="v")
    for name in ("grad", "value_and_grad", "jacrev", "jacfwd"):
        with pytest.raises(
            ValueError, match=r"(?s)Variable 'v' was given as an argument, and the function reads .*tape"
        ):
            getattr(tc, name)(lambda w: tc.sum(v * v))([v])
    with pytest.raises(ValueError, match=r"hessian.*but reads Variables"):
        tc.hessian(lambda w: tc.sum(v * v))(v)
    assert tc.grad(lambda w: tc.sum(w * v))(v).tolist() == [1.0, 2.0]


def test_in_vmap_and_compiled_it_is_the_same_error():
    def floor(x):
        return tc.sum(tc.floor(x))

    for f in (tc.vmap(tc.grad(floor)), tc.function(tc.vmap(tc.grad(floor))), tc.vmap(tc.hessian(floor))):
        with pytest.raises(ValueError, match="floor has no derivative"):
            f(tc.ones((3, 2)))
    compiled = tc.function(tc.grad(floor))
    for _ in range(2):
        with pytest.raises(ValueError, match="floor has no derivative"):
            compiled(X)
    inner = tc.function(floor)
    for _ in range(3):
        with pytest.raises(ValueError, match="floor has no derivative"):
            tc.grad(inner)(X)
    with pytest.raises(ValueError, match="floor has no derivative"):
        tc.grad(tc.checkpoint(floor))(X)
    with pytest.raises(ValueError, match="floor has no derivative"):
        tc.grad(lambda x: tc.sum(tc.vmap(tc.floor)(x)))(X)


def linear(x):
    return tc.sum(x * 3.0)


def by_tape(f):
    def gradient(x):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)

    return gradient


def test_second_derivatives_of_linear_functions_are_zero():
    zeros = [[0.0, 0.0], [0.0, 0.0]]
    compiled = tc.function(tc.grad(linear))
    for second in (
        tc.hessian(linear),
        tc.jacrev(tc.grad(linear)),
        tc.jacfwd(tc.grad(linear)),
        tc.jacrev(by_tape(linear)),
        tc.jacfwd(by_tape(linear)),
        tc.jacrev(tc.checkpoint(tc.grad(linear))),
        tc.jacrev(lambda x: tc.vjp(linear, x)[1](1.0)[0]),
        tc.jacrev(tc.vmap(tc.grad(lambda x: 3.0 * x))),
        tc.hessian(tc.function(linear)),
        tc.function(tc.hessian(linear)),
        tc.jacrev(lambda x: tc.stack([tc.jvp(linear, (x,), (t,))[1] for t in (tc.ones(2), tc.zeros(2))])),
        *[tc.jacrev(compiled)] * 3,
    ):
        assert second(X).tolist() == zeros
    assert tc.hvp(linear, (X,), (X,))[0].tolist() == [0.0, 0.0]
    assert tc.vmap(tc.hessian(linear))(tc.ones((3, 2))).tolist() == [zeros] * 3
    assert tc.grad(tc.grad(tc.grad(lambda x: x * x)))(2.0).item() == 0.0


def test_third_derivatives_of_quadratic_functions_are_zero():
    def square(x):
        return tc.sum(x * x)

    for third in (tc.jacfwd(tc.jacrev(tc.grad(square))), tc.jacrev(tc.hessian(square)), tc.jacfwd(tc.hessian(square))):
        assert third(X).tolist() == [[[0.0, 0.0], [0.0, 0.0]]] * 2


def test_a_function_that_is_constant_where_it_was_branched_to_has_the_derivative_zero():
    def python(x):
        return x if x < 0 else tc.asarray(1.0)

    def cond(x):
        return tc.cond(x < 0, lambda x: x, lambda x: tc.asarray(1.0), x)

    for f in (python, cond):
        assert tc.grad(f)(2.0).item() == 0.0
        assert tc.grad(f)(-2.0).item() == 1.0
    compiled = tc.function(tc.grad(cond))
    assert [compiled(tc.asarray(x)).item() for x in (2.0, -2.0, 2.0)] == [0.0, 1.0, 0.0]
    assert tc.grad(lambda x: tc.sum(tc.zeros_like(x)))(X).tolist() == [0.0, 0.0]
    assert tc.grad(lambda x: tc.sum(tc.sign(x)))(X).tolist() == [0.0, 0.0]


def test_one_argument_that_is_connected_is_enough():
    first, second = tc.grad(lambda x, y: tc.sum(x), (0, 1))(X, X)
    assert (first.tolist(), second.tolist()) == ([1.0, 1.0], [0.0, 0.0])
    found = tc.jacrev(lambda p: p["a"] * 2)({"a": X, "b": X})
    assert found["b"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert tc.jacfwd(lambda x: (x, tc.ones(1)))(X)[1].tolist() == [[0.0, 0.0]]
    with pytest.raises(ValueError, match=r"any of the arguments 0, 1"):
        tc.grad(lambda x, y: tc.asarray(1.0), (0, 1))(X, X)


def test_scipy_objective_does_not_converge_on_weights_that_are_loaded_into_a_model():
    v = tc.Variable([0.0, 0.0])

    def loss(x):
        v.assign(x)
        return tc.sum((v - 3.0) ** 2)

    fun, x0, _ = tc.scipy_objective(loss, X)
    with pytest.raises(ValueError, match=r"scipy_objective: .*assigned to a Variable"):
        fun(x0)
    with pytest.raises(ValueError, match=r"assigned to a Variable"):
        fun.hessp(x0, x0)
    fun, x0, _ = tc.scipy_objective(loss, X, allow_unconnected=True)
    assert fun(x0)[1].tolist() == [0.0, 0.0]


ONES = tc.ones(129)
AROUND = {
    "long scan": lambda b: lambda x: tc.sum(tc.scan(lambda c, r: (b(c), None), x, ONES)[0]),
    "long scan over elements": lambda b: (
        lambda x: tc.sum(tc.scan(lambda c, r: (c, b(r)), tc.ones(2), tc.broadcast_to(x, (129, 2)))[1])
    ),
    "long map from around": lambda b: lambda x: tc.sum(tc.map(lambda r: b(x) * r, ONES)),
    "while_loop": lambda b: (
        lambda x: tc.sum(tc.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, b(s[1])), (0, x))[1])
    ),
    "cond": lambda b: lambda x: tc.sum(tc.cond(tc.sum(X) > 0, b, lambda u: u, x)),
    "checkpoint": lambda b: lambda x: tc.sum(tc.checkpoint(b)(x)),
}
DERIVATIVES = {
    "grad": tc.grad,
    "jacrev": tc.jacrev,
    "jacfwd": tc.jacfwd,
    "hessian": tc.hessian,
    "hvp": lambda f: lambda x: tc.hvp(f, (x,), (x,))[0],
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("around", AROUND)
def test_what_is_run_again_for_its_derivative_says_where_its_path_ends(around, derivative):
    take, f = DERIVATIVES[derivative], AROUND[around]
    for body, text in (
        (tc.floor, "floor has no derivative"),
        (lambda u: tc.stop_gradient(u) * 0.9, "stop_gradient makes a constant"),
        (lambda u: tc.asarray((u.numpy() * 0.9).tolist()), r"leave Tape by numpy\(\)"),
    ):
        with pytest.raises(ValueError, match=text):
            take(f(body))(X)
    if around != "cond":  # of which the other branch is connected
        for _ in range(2):
            with pytest.raises(ValueError, match="floor has no derivative"):
                tc.function(take(f(tc.floor)))(X)
    assert not tc.any(take(f(tc.zeros_like))(X) != 0)
    second = derivative in ("hessian", "hvp")
    for call in (take(f(lambda u: u * 0.9)), tc.function(take(f(lambda u: u * 0.9)))):  # linear
        assert tc.all((call(X) == 0) == second)
    assert not tc.any(tc.isnan(take(f(tc.sin))(X)))


def test_a_part_of_a_carry_that_no_tangent_reaches_has_no_derivative():
    def last(k, steps):
        """The parts of a carry move on by one in each step, and the first of them is cut."""
        return lambda x: tc.scan(lambda c, r: ((tc.floor(c[0]), c[0] * 2.0, c[2]), None), (x, x, tc.ones(2)), steps)[0][
            k
        ]

    for steps in (ONES, tc.ones(3)):
        for k in (0, 2):
            for derivative in (tc.jacrev, tc.jacfwd):
                with pytest.raises(ValueError, match="does not depend"):
                    derivative(last(k, steps))(X)


def test_how_often_a_loop_runs_has_the_derivative_zero():
    def count(x):
        return tc.while_loop(lambda c: c[0] < c[1], lambda c: (c[0] + 1.0, c[1]), (0.0, x))[0]

    for f in (tc.grad(count), tc.function(tc.grad(count))):
        assert f(tc.asarray(2.5)).item() == 0.0


def test_a_path_that_is_cut_in_part_has_the_derivative_of_what_is_left():
    v = tc.Variable([1.0, 1.0])

    def loss(x):
        v.assign_add(x)
        return tc.sum(v * x)

    assert tc.grad(loss)(X).tolist() == [2.0, 3.0]
