"""A function that XLA compiles, on the arrays of the backend that is selected."""

import tape_core as tc


@tc.function(compile="xla")
def f(x):
    return tc.sum(tc.tanh(x) * x)


with tc.GradientTape() as tape:
    x = tc.Variable([0.0, 1.0])
    y = f(x)
assert abs(tape.gradient(y, x).tolist()[1] - 1.1816) < 1e-3
