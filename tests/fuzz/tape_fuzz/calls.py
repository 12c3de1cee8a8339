"""Calls that differ: of other shapes, dtypes, numbers and settings, in any order, of one compiled function."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tape_core.backends.discovery import is_installed

# What may be said of a call. Numbers include those that are equal and are not alike.
_OF_A_CALL = {
    "number": ["2", "2.0", "True", "1", "0.0", "-0.0", "0.5", "np.float32(0.5)", "tc.asarray(0.5, dtype='float32')"],
    "how": ["'doubled'", "None"],
    "is_other_dtype": ["True"],
    "shape": ["'longer'", "'first'"],
    "is_assigned": ["True"],
    "is_frozen": ["True"],
    "default": ["'float64'"],
    # Of a dict, for which those that are equal are one.
    "key": ["1", "1.0", "True", "0", "0.0", "-0.0", "False"],
    # In the first call of a kind and in the second.
    "settings": ["(2, 2)", "(2, 2.0)", "(True, 1)", "(0.5, 0.5)", "(0.5, 0.25)", "(0.0, -0.0)"],
}


@st.composite
def calls(draw: Any, most: int) -> list[str]:
    """Lines of a program's text: how it is called, by which library and with which static arguments."""
    changes = st.lists(st.sampled_from([*_OF_A_CALL]), min_size=1, max_size=2, unique=True)
    said = []
    for _ in range(draw(st.integers(1, most))):
        named = [f"{name}={draw(st.sampled_from(_OF_A_CALL[name]))}" for name in draw(changes)]
        said.append(f"dict({', '.join(named)})")
    library = draw(st.sampled_from([name for name in ("numpy", "torch", "jax") if is_installed(name)]))
    static = draw(st.sampled_from([(), (), ("how", "number")]))
    return [f"calls = [{', '.join(['dict()', *said, 'dict()'])}]", f"library, static = {library!r}, {static!r}"]


OTHER_CALLS = """
import tape_nn as nn

def agree(found, expected, what):
    if compiler == "xla":
        close(found, expected, what, 1e-5)
    else:
        same(found, expected, what)

OTHER = {"float32": "float64", "float64": "float32"}

class Held(nn.Module):
    def __init__(self, count):
        self.parts, self.settings = [tc.Variable(1.0) for _ in range(count)], {"all": [2]}

# The arguments of a program as leaves of a Module, which changes in place from one call to the next.
def copied(count):
    leaves, structure = tc.tree_flatten(Held(count))
    return tc.tree_unflatten(structure, leaves)

def told(function):
    def called(given, number, how):
        of_key = []
        if isinstance(given, dict):
            ((key, given),) = given.items()
            of_key = [tc.asarray([2, 3]) * key, tc.asarray([2.0, 3.0]) * key]
        if isinstance(given, Held):
            given, number = given.parts, given.settings["all"][0]
        found = [x if x is None or not is_real(x) else x * number for x in [*function(*given), tc.ones(2)]]
        return of_key + [x if x is None or not is_real(x) or how != "doubled" else x + x for x in found]
    return called

def changed(x, shape=None, is_other_dtype=False):
    if shape == "longer":
        x = tc.concat([x, x], axis=0) if x.ndim else tc.stack([x, x])
    elif shape == "first" and x.ndim:
        x = x[:1]
    return tc.astype(x, OTHER[x.dtype.name]) if is_other_dtype and x.dtype.name in OTHER else x

def answer(function, *args, **kwargs):
    try:
        return arrays(function(*args, **kwargs))
    except Exception as error:
        if "Tape" in str(error):
            raise
        return None  # it refuses such calls: so it must in every way

with tc.use_backend(library):
    held_in = None
    eager, ours = made()
    traced, theirs = made()
    f = told(derived(eager, ours))
    compiled = tc.function(told(derived(traced, theirs)), compile=compiler, static_argnames=static, retrace="allow")
    try:
        # Each call twice: a second one of a kind goes by a guard in place of a cache key.
        for at, call in enumerate([call for call in calls for _ in range(2)]):
            what = f"compiled by {compiler} on {library}, call {at}: {call}"
            others = {"number": call.get("number", 2), "how": call.get("how", "as it is")}
            given = [changed(x, call.get("shape"), call.get("is_other_dtype")) for x in inputs(at)]
            if "settings" in call:
                if held_in is None:
                    held_in = copied(len(given))
                held_in.parts[:], held_in.settings["all"][0] = given, call["settings"][at % 2]
                given = held_in
            if "key" in call:
                given = {call["key"]: given}
            for v in [*ours, *theirs]:
                v.trainable = not call.get("is_frozen")
                if call.get("is_assigned"):
                    v.assign(v * 0.5 + 0.25)
            tc.set_default_dtype(call.get("default"))
            held = [v.value for v in ours]
            tc.set_seed(at)
            expected = answer(f, given, **others)
            tc.set_seed(at)
            if expected is None:
                for v, x in zip(ours, held):
                    v.assign(x)
                if compiler == "xla":  # which checks no values
                    continue
                assert answer(compiled, given, **others) is None, f"{what}: refused eagerly alone"
            else:
                agree(arrays(compiled(given, **others)), expected, what)
            agree(arrays(theirs), arrays(ours), f"{what}: Variables")
    finally:
        tc.set_default_dtype(None)
"""
"""A script after that of a program: the compiled function and the eager one agree in each of its calls."""
