"""What tape-jax costs those who do not use it: nothing. JAX is imported where it is selected or its arrays arrive."""

import pytest
from support import run_python

PROGRAM = """
import sys
import numpy as np, tape_core as tc, tape_nn as nn

model = nn.Dense(2)
with tc.GradientTape() as tape:
    loss = tc.sum(model(np.ones((3, 4), np.float32)) ** 2)
tape.gradient(loss, model.trainable_variables)
assert tc.get_backend().name == "numpy"
tc.function(lambda x: x * 2.0)(tc.ones(3))
for wrong in ("text", object()):
    try:
        tc.sin(wrong)
    except TypeError:
        pass
assert not [name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib")]
"""


def test_a_program_on_numpy_does_not_import_jax():
    run_python("-c", PROGRAM, environment={"TAPE_BACKEND": "numpy"})
    # NumPy is what is chosen where two are installed.
    run_python("-c", PROGRAM, environment={"TAPE_BACKEND": ""})


# All that Tape's other packages have, whether or not a program of their users asks for it.
EVERYTHING = """
import importlib, pkgutil, sys
for package in ("tape_core", "tape_compile", "tape_numpy", "tape_nn", *PACKAGES):
    package = importlib.import_module(package)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
import numpy as np, tape_core as tc
f = tc.function(lambda x: tc.cond(tc.sum(x) > 0, lambda: tc.dropout(x, 0.5), lambda: x * tc.default_rng(1).normal(3)))
for backend in ("numpy", *BACKENDS):
    with tc.use_backend(backend):
        for _ in range(3):
            tc.vmap(tc.grad(lambda a: a * a))(f(tc.ones(3)))
found = [name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib", "tape_jax")]
assert not found, found[:5]
"""


@pytest.mark.parametrize("has_torch", [False, True])
def test_no_module_of_the_other_packages_imports_jax_or_tape_jax(has_torch):
    packages, backends = (), ()
    if has_torch:
        pytest.importorskip("tape_torch")
        packages, backends = ("tape_torch",), ("torch",)
    program = EVERYTHING.replace("PACKAGES", repr(packages)).replace("BACKENDS", repr(backends))
    run_python("-c", program, environment={"TAPE_BACKEND": "numpy"})


def test_jax_is_imported_when_it_is_selected():
    run_python(
        "-c",
        "import sys, tape_core as tc\n"
        "tc.set_backend('jax')\n"
        "assert tc.zeros(3).backend.name == 'jax' and 'jax' in sys.modules\n",
    )


@pytest.mark.parametrize("selected", ["numpy", "jax"])
def test_arrays_of_jax_stay_where_they_are_whatever_is_selected(selected):
    run_python(
        "-c",
        "import jax.numpy as jnp, tape_core as tc\n"
        "x = jnp.asarray([1.0, 2.0], dtype=jnp.float32)\n"
        "assert tc.sin(x).backend.name == 'jax' and tc.asarray(x).array is x\n",
        environment={"TAPE_BACKEND": selected},
    )


FIRST_PROGRAM = """
import warnings
warnings.simplefilter("error")
import jax, tape_core as tc
traced = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: traced.append(event) if event.endswith("/jaxpr_trace_duration") else None
)
tc.function(lambda: tc.random.global_rng().normal((5,)), compile="xla")()
first = len(traced)
traced.clear()
tc.function(lambda: tc.random.global_rng().normal((5,)), compile="xla")()
assert first == len(traced), (first, len(traced))
"""


def test_the_first_program_of_a_process_is_traced_as_often_as_others():
    """JAX's 64 bits are switched on before it is, and not by it."""
    run_python("-c", FIRST_PROGRAM, environment={"TAPE_BACKEND": "numpy"})
