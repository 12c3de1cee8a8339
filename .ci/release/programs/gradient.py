"""A gradient, and a compiled function, on the backend that is named: what whoever installs one gets."""

import sys

import tape_core as tc

x = tc.Variable([1.0, 2.0])
with tc.GradientTape() as tape:
    y = tc.sum(x**3)
assert tape.gradient(y, x).tolist() == [3.0, 12.0]


@tc.function
def norm(x):
    return tc.sqrt(tc.sum(x * x))


assert norm(tc.asarray([3.0, 4.0])).item() == 5.0
assert tc.get_backend().name == sys.argv[1]
