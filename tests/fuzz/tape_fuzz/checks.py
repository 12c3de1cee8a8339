"""The checks that random programs must pass, as text that follows a program's; see `programs.py`."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass

from tape_fuzz.calls import OTHER_CALLS


@dataclass(frozen=True)
class Check:
    """A script that follows the program's.

    Attributes:
        text: it raises where the program breaks a promise.
        needs: what a program must be for it; see `Op.is_not`. With "torch" or "jax" it is made of what that framework has.
        is_exact: whether inputs are float64; is_small: whether they are small.
    """

    text: str
    needs: tuple[str, ...] = ()
    is_exact: bool = False
    is_small: bool = False


COMMON = """
import warnings
warnings.simplefilter("ignore")

def arrays(found):
    return [x if x is None else np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in found]

def run(function, given):
    try:
        return arrays(function(*given))
    except (ValueError, IndexError) as error:
        if "Tape" in str(error):
            raise
        return None  # it refuses values: so it must in every way

def same(found, expected, what):
    assert (found is None) == (expected is None), f"{what}: refused in one way alone"
    if found is None:
        return
    assert len(found) == len(expected), f"{what}: {len(found)} results, not {len(expected)}"
    for k, (a, b) in enumerate(zip(found, expected)):
        if a is None or b is None:  # a branch that is not taken gives zeros where it is compiled
            assert (a is None or not np.any(a)) and (b is None or not np.any(b)), f"{what}: result {k} is {a}, not {b}"
        else:
            assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: result {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            if a.tobytes() != b.tobytes() and a.dtype.kind in "fcV":
                a, b = np.where(np.isnan(a), np.nan, a), np.where(np.isnan(b), np.nan, b)
            assert a.tobytes() == b.tobytes(), f"{what}: result {k} differs: {a.ravel()[a.ravel() != b.ravel()][:3]}, not {b.ravel()[a.ravel() != b.ravel()][:3]}"

def close(found, expected, what, rtol):
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a is None or b is None:
            assert (a is None or not np.any(a)) and (b is None or not np.any(b)), f"{what}: result {k} is {a}, not {b}"
            continue
        assert a.shape == b.shape, f"{what}: result {k} has shape {a.shape}, not {b.shape}"
        if a.size and np.all(np.isfinite(b)) and np.max(np.abs(b)) < 1e6:
            scale = 1 + np.max(np.abs(b))
            if a.dtype.itemsize // (1 + (a.dtype.kind == "c")) < 8 or b.dtype.itemsize // (1 + (b.dtype.kind == "c")) < 8:
                scale = scale * 1e6
            assert np.max(np.abs(a.astype(complex) - b)) <= rtol * scale, f"{what}: result {k}: {a.ravel()[:3]}, not {b.ravel()[:3]}"

def is_real(x):
    return tc.isdtype(x.dtype, "real floating")

def total(found):
    parts = [tc.mean(tc.sin(x)) for x in found if is_real(x) and x.size]
    return sum(parts[1:], parts[0]) if parts else None

def derived(program, variables):
    def f(*given):
        sources = [x for x in given if is_real(x)] + variables
        with tc.GradientTape() as tape:
            tape.watch([x for x in given if is_real(x)])
            found = program(*given)
            loss = total(found)
        return [*found, *(tape.gradient(loss, sources) if loss is not None else [])]
    return f

def alike(eager, ours, compiled, theirs, what):
    for call in (1, 2, 3):
        tc.set_seed(call); expected = run(eager, inputs(call))
        tc.set_seed(call); found = run(compiled, inputs(call))
        same(found, expected, f"{what}, call {call}")
        if found is None:
            break
        same(arrays(theirs), arrays(ours), f"Variables after call {call}")

def of_real(program, given):
    # Which inputs are real, and a loss of those, to which all of them are connected.
    real = [k for k, x in enumerate(given) if is_real(x)]
    def loss(*moved):
        full = list(given)
        for k, x in zip(real, moved):
            full[k] = x
        return total(program(*full)) + 0.0 * sum(tc.sum(x * x) for x in moved)
    return real, loss

"""

_BY_TORCH = """
with tc.use_backend("torch"):
    tc_asarray, tc.asarray = tc.asarray, lambda x, **how: tc_asarray(x, **{"backend": "torch", **how})
    try:
        eager, ours = made()
        traced, theirs = made()
        f, compiled = derived(eager, ours), tc.function(derived(traced, theirs), compile=COMPILER)
        for call in (1, 2, 3):
            expected = run(f, inputs(call))
            try:
                found = arrays(compiled(*inputs(call)))
            except (ValueError, IndexError) as error:
                if expected is not None and "compile=" not in str(error):
                    raise
                break  # it is not for what the program does
            except RuntimeError as error:
                if "inside PyTorch's compiler" not in str(error):  # such as results that are not the program's
                    raise
                break
            if expected is None:
                break
            close(found, expected, "compiled by COMPILER", 1e-8)
            close(arrays(theirs), arrays(ours), "Variables", 1e-8)
    finally:
        tc.asarray = tc_asarray
"""

_BY_XLA = """
from tape_core.backends.discovery import is_installed
for name in [name for name in ("numpy", "torch", "jax") if is_installed(name)]:
    with tc.use_backend(name):
        eager, ours = made()
        traced, theirs = made()
        f, compiled = derived(eager, ours), tc.function(derived(traced, theirs), compile="xla")
        tc.set_seed(1)
        for call in (1, 2, 3):
            before = tc.random.get_state()
            expected = run(f, inputs(call))
            if expected is None:  # XLA checks no values
                break
            after = tc.random.get_state()
            tc.random.set_state(before)
            rtol = 1e-5 if after == before else 1e-3  # draws are float32, of which derivatives multiply the rounding
            close(arrays(compiled(*inputs(call))), expected, f"compiled by XLA on {name}, call {call}", rtol)
            if call != 2:  # XLA keeps values that nobody reads from call to call
                close(arrays(theirs), arrays(ours), f"Variables on {name} after call {call}", rtol)
            assert tc.random.get_state() == after, f"on {name} call {call} has drawn as far as {tc.random.get_state()}, not {after}"
"""

_ELSEWHERE = """
from tape_fuzz import in_FRAMEWORK as elsewhere
with tc.use_backend("BACKEND"):
    program, variables = made()
    given = inputs(1)
    found = arrays(derived(program, [])(*given))
held = [elsewhere.asarray(v.numpy()) for v in variables]
tc_held, tc = tc, elsewhere.namespace()
tc.Variable = lambda x, name: held[int(name[1:])]
tc.asarray, asarray = lambda x: x, tc.asarray
other, _ = made()
tc.asarray = asarray
values, slopes = elsewhere.derived(other, [x.numpy() for x in given])
tc = tc_held
expected = arrays(values) + arrays(slopes if len(found) > len(values) else [])
close(found, expected, "FRAMEWORK's own derivatives", 1e-8)
"""

_DONATED = """
with tc.use_backend("jax"):
    tc_asarray, tc.asarray = tc.asarray, lambda x, **how: tc_asarray(x, **{"backend": "jax", **how})
    try:
        eager, ours = made()
        traced, theirs = made()
        compiled = tc.function(derived(traced, theirs), compile="xla", donate_variables=True, fallback="silent")
        f = derived(eager, ours)
        for call in (1, 2, 3, 4):
            expected = run(f, inputs(call))
            found = run(compiled, inputs(call))
            if expected is None or found is None:
                break
            close(found, expected, "compiled by XLA", 1e-8)
            close(arrays(theirs), arrays(ours), "Variables", 1e-8)
    finally:
        tc.asarray = tc_asarray
"""

_MASKED = """
from tape_fuzz.masks import guarded
program, variables = made()
given = inputs(1)
real, loss = of_real(program, given)
sources = [given[k] for k in real]
ways, every = [tc.cos(x * 3.0) for x in sources], tuple(range(len(real)))
grad = tc.grad(loss, every)
def forward(*xs):
    return [tc.jvp(loss, xs, ways)[1]]
def second(*xs):
    return tc.jvp(grad, xs, ways)[1]
def back(*xs):
    return tc.grad(lambda *xs: sum(tc.sum(tc.sin(g)) for g in grad(*xs)), every)(*xs)
def many(*xs):
    return tc.vmap(grad)(*[tc.stack([x, x * 0.5]) for x in xs])
def variable(*xs):
    with tc.GradientTape() as tape:
        y = loss(*xs)
    return tape.gradient(y, variables)
if total(program(*given)) is not None:
    for f in (grad, forward, second, back, many, *([variable] if variables else [])):
        with guarded():
            expected = arrays(f(*sources))
        if all(x is None or np.all(np.isfinite(x)) for x in expected):
            close(arrays(f(*sources)), expected, f.__name__, 1e-8)
            compiled = tc.function(f, compile=COMPILER)
            for call in (1, 2):
                close(arrays(compiled(*sources)), expected, f"{f.__name__} compiled by COMPILER, call {call}", 1e-8)
"""

CHECKED: dict[str, Check] = {
    "compiled": Check('''
eager, ours = made()
traced, theirs = made()
alike(eager, ours, tc.function(traced), theirs, "results")
'''),
    "compiled gradient": Check('''
eager, ours = made()
traced, theirs = made()
alike(derived(eager, ours), ours, tc.function(derived(traced, theirs)), theirs, "gradients")
''', ("derived",)),
    "compiled in a tape": Check('''
eager, ours = made()
traced, theirs = made()
alike(derived(eager, ours), ours, derived(tc.function(traced), theirs), theirs, "gradients through the compiled function")
'''),
    "compiled by others": Check('''
from tape_fuzz.compilers import CallByCall
for compiler in ("python", CallByCall(), CallByCall(fuses=False)):
    eager, ours = made()
    traced, theirs = made()
    alike(derived(eager, ours), ours, tc.function(derived(traced, theirs), compile=compiler), theirs, f"compiled by {compiler}")
''', ("derived",)),
    "exported": Check('''
import inspect, os, re, tempfile
traced, variables = made()
compiled = tc.function(traced)
if run(compiled, inputs(1)) is not None:
    with tempfile.TemporaryDirectory() as folder:
        compiled.export(os.path.join(folder, "alone.py"))
        alone = {"__file__": os.path.join(folder, "alone.py")}
        exec(compile(open(os.path.join(folder, "alone.py"), encoding="utf-8").read(), "alone.py", "exec"), alone)
    for call in (1, 2):
        given, held = inputs(call), {v.name: v for v in variables}
        names = list(inspect.signature(alone["program"]).parameters)[len(given):]
        # What the compiled function has, NumPy's scalars among it: of those some processors round powers in another way.
        copies = [x._array.copy() for x in [*given, *[held[name].value for name in names]]]
        found = run(alone["program"], copies)
        expected = run(compiled, given)
        if found is None and expected is None:
            break
        expected += [held[name].numpy() for name in re.findall(r"the new value of (v\\d+)", alone["program"].__doc__)]
        same(found, expected, f"exported, call {call}")
''', ("seeded", "exported")),
    "finite differences": Check('''
program, variables = made()
f = derived(program, variables)
given = inputs(1)
real, loss = of_real(program, given)
rng = np.random.default_rng(5)
ways = {k: rng.normal(size=given[k].shape) for k in real}
def at(h):
    moved = [tc.asarray(np.asarray(x.numpy() + h * ways[k])) if k in ways else x for k, x in enumerate(given)]
    loss = total(program(*moved))
    return None if loss is None else float(loss.numpy())
found = arrays(f(*given))[len(program(*given)):]
if found:
    slope = [0.0 if g is None else float(np.sum(g * ways[k])) for k, g in zip(real, found)]
    rates = [(8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h) for h in (1e-3, 5e-4)]
    scale = 1 + sum(0.0 if g is None else float(np.sum(np.abs(g * ways[k]))) for k, g in zip(real, found))
    if np.isfinite(sum(slope)) and abs(rates[0] - rates[1]) < 1e-6 * scale:
        assert abs(sum(slope) - rates[1]) < 1e-5 * scale + 50 * abs(rates[0] - rates[1]), f"gradient {sum(slope)}, finite differences {rates[1]}"
    sources = [given[k] for k in real]
    if hasattr(tc, "jvp"):
        _, forward = tc.jvp(loss, sources, [tc.asarray(np.asarray(ways[k])) for k in real])
        if np.isfinite(sum(slope)):
            assert abs(float(forward.numpy()) - sum(slope)) < 1e-8 * scale, f"forward {float(forward.numpy())}, backward {sum(slope)}"
''', ("smooth", "continuous", "pure", "seeded"), True, True),
    "second derivatives": Check('''
program, variables = made()
given = inputs(1)
real, loss = of_real(program, given)
rng = np.random.default_rng(5)
a = [tc.asarray(np.asarray(rng.normal(size=given[k].shape))) for k in real]
b = [tc.asarray(np.asarray(rng.normal(size=given[k].shape))) for k in real]
if total(program(*given)) is not None:
    sources = [given[k] for k in real]
    def along(way):
        return arrays(tc.hvp(loss, sources, way))
    def inner(xs, ys):
        return sum(float(np.sum(x * y.numpy())) for x, y in zip(xs, ys))
    one, other = along(a), along(b)
    scale = 1 + sum(float(np.sum(np.abs(x))) for x in one + other)
    if np.isfinite(scale) and scale < 1e5:
        assert abs(inner(one, b) - inner(other, a)) < 1e-7 * scale, f"second derivatives are not symmetric: {inner(one, b)}, {inner(other, a)}"
        def slope(h):
            moved = [tc.asarray(np.asarray(x.numpy() + h * y.numpy())) for x, y in zip(sources, a)]
            with tc.GradientTape() as tape:
                tape.watch(moved)
                y = loss(*moved)
            return inner(arrays(tape.gradient(y, moved)), b)
        rates = [(8 * (slope(h) - slope(-h)) - (slope(2 * h) - slope(-2 * h))) / (12 * h) for h in (1e-3, 5e-4)]
        if abs(rates[0] - rates[1]) < 1e-6 * scale:
            assert abs(inner(one, b) - rates[1]) < 1e-5 * scale + 50 * abs(rates[0] - rates[1]), f"second derivative {inner(one, b)}, finite differences {rates[1]}"
''', ("smooth", "continuous", "pure", "seeded"), True, True),
    "vmap": Check('''
program, variables = made()
batches = [inputs(seed) for seed in (1, 2, 3)]
stacked = [tc.asarray(np.stack([x.numpy() for x in each])) for each in zip(*batches)]
expected = [np.stack(each) for each in zip(*[arrays(program(*each)) for each in batches])]
close(arrays(tc.vmap(lambda *given: program(*given))(*stacked)), expected, "vmap", 1e-9)
compiled = tc.function(tc.vmap(lambda *given: program(*given)))
for call in (1, 2):
    close(arrays(compiled(*stacked)), expected, f"compiled vmap, call {call}", 1e-9)
''', ("continuous", "pure", "seeded"), True, True),
    "compiled second derivatives": Check('''
program, variables = made()
def found_by(*given):
    real, loss = of_real(program, given)
    sources = [given[k] for k in real]
    ways = [tc.cos(x * 3.0) for x in sources]
    every = tuple(range(len(real)))
    grad = tc.grad(loss, every)
    _, forward = tc.jvp(grad, tuple(sources), tuple(ways))
    many = tc.vmap(grad)(*[tc.stack([x, y]) for x, y in zip(sources, ways)])
    return [*forward, *many, *tc.grad(lambda *xs: sum(tc.sum(tc.sin(g)) for g in grad(*xs)), every)(*sources)]
if total(program(*inputs(1))) is not None:
    compiled = tc.function(found_by)
    for call in (1, 2):
        same(arrays(compiled(*inputs(call))), arrays(found_by(*inputs(call))), f"second derivatives, call {call}")
''', ("continuous", "pure", "seeded"), True, True),
    "autograd": Check(_ELSEWHERE.replace("FRAMEWORK", "torch").replace("BACKEND", "numpy"),
                      ("smooth", "continuous", "pure", "seeded", "torch"), True, True),
    "torch": Check('''
program, variables = made()
expected = arrays(derived(program, variables)(*inputs(1)))
with tc.use_backend("torch"):
    tc_asarray, tc.asarray = tc.asarray, lambda x, **how: tc_asarray(x, **{"backend": "torch", **how})
    try:
        other, theirs = made()
        f = derived(other, theirs)
        found = arrays(f(*inputs(1)))
        close(found, expected, "torch", 1e-8)
        again, others = made()
        compiled = tc.function(derived(again, others))
        for call in (1, 2, 3):
            expected = arrays(f(*inputs(call))) if call > 1 else found
            same(arrays(compiled(*inputs(call))), expected, f"compiled on torch, call {call}")
    finally:
        tc.asarray = tc_asarray
''', ("smooth", "continuous", "seeded"), True),
    "host data": Check('''
for name in ("numpy", "torch"):
    with tc.use_backend(name):
        program, variables = made()
        given = inputs(1)
        assert all(x.backend.name == name for x in given + variables)
        real, loss = of_real(program, given)
        sources, ways = [given[k] for k in real], [tc.cos(given[k] * 3.0) for k in real]
        grad = tc.grad(loss, tuple(range(len(real))))
        ways_of_calling = {"the compiled function": (tc.function(program), given), "vmap": (tc.vmap(program), [tc.stack([x, x]) for x in given])}
        if total(program(*given)) is not None:
            ways_of_calling |= {
                "grad": (grad, sources), "the compiled gradient": (tc.function(grad), sources), "jvp": (lambda *xs: tc.jvp(loss, xs[:len(real)], xs[len(real):]), sources + ways),
                "the compiled vmap of grad": (tc.function(tc.vmap(grad)), [tc.stack([x, y]) for x, y in zip(sources, ways)]),
                "hvp": (lambda *xs: tc.hvp(loss, xs[:len(real)], xs[len(real):]), sources + ways),
            }
        for what, (f, tensors) in ways_of_calling.items():
            expected = f(*tensors)
            found = f(*[x.numpy() for x in tensors])
            assert all(x.backend.name == name for x in found), f"{what} on {name}: not there"
            same(arrays(found), arrays(expected), f"{what} on {name}")
''', ("continuous", "pure", "seeded"), True, True),
    "JAX": Check(_ELSEWHERE.replace("FRAMEWORK", "jax").replace("BACKEND", "jax") + """
with tc.use_backend("jax"):
    compiled = tc.function(derived(made()[0], []), compile="xla")
    for call in (1, 2):
        close(arrays(compiled(*given)), expected, f"compiled by XLA, call {call}: JAX's own derivatives", 1e-8)
""", ("smooth", "continuous", "pure", "seeded", "jax"), True, True),
    "compiled by XLA": Check(_BY_XLA, ("smooth", "continuous", "derived"), True, True),
    "compiled by XLA, whole": Check(_BY_XLA, ("continuous", "derived"), True, True),
    "second derivatives by XLA": Check('''
from tape_core.backends.discovery import is_installed
program, variables = made()
given = inputs(1)
real, loss = of_real(program, given)
sources, ways = [given[k] for k in real], [tc.cos(given[k] * 3.0) for k in real]
grad = tc.grad(loss, tuple(range(len(real))))
def along(*xs):
    return tc.jvp(grad, xs[:len(real)], xs[len(real):])[1]
def back(*xs):
    return tc.grad(lambda *xs: sum(tc.sum(tc.sin(g)) for g in grad(*xs)), tuple(range(len(real))))(*xs[:len(real)])
if total(program(*given)) is not None:
    for what, f in (("forward over reverse", along), ("reverse over reverse", back), ("vmap", lambda *xs: tc.vmap(along)(*[tc.stack([x, x * 0.5]) for x in xs]))):
        compiled = tc.function(f, compile="xla")
        expected = arrays(f(*sources, *ways))
        for call in (1, 2):
            close(arrays(compiled(*sources, *ways)), expected, f"{what} by XLA, call {call}", 1e-7)
''', ("continuous", "pure", "seeded"), True, True),
    "compiled by PyTorch's tracer": Check("\nfrom tape_fuzz.compilers import TorchGraph\n" + _BY_TORCH.replace("COMPILER", "TorchGraph()"),
                                          ("smooth", "continuous", "seeded"), True, True),
    "masks": Check(_MASKED.replace("COMPILER", "'python'"), ("continuous", "seeded", "pure"), True, True),
    "masks by XLA": Check(_MASKED.replace("COMPILER", "'xla'"), ("continuous", "seeded", "pure"), True, True),
    "divided": Check("\nfrom tape_fuzz.divided import compare\ncompare(made, inputs)\n", ("smooth", "continuous", "seeded"), True, True),
    "divided with NaN": Check("\nfrom tape_fuzz.divided import compare\ncompare(made, inputs, has_nan=True)\n", (), True, True),
    "compiled by torch": Check(_BY_TORCH.replace("COMPILER", "'torch'"), ("smooth", "continuous", "seeded"), True, True),
    "other calls": Check("\ncompiler = 'python'\n" + OTHER_CALLS, ("derived",), False, True),
    "other calls by XLA": Check("\ncompiler = 'xla'\n" + OTHER_CALLS, ("smooth", "continuous", "derived"), True, True),
    "compiled by XLA, Variables donated": Check(_DONATED, ("smooth", "continuous", "seeded"), True, True),
}  # fmt: skip
"""The checks by name."""
