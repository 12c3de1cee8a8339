"""A toy tape: the ideas of Tape in one file, on NumPy alone. The page "A toy tape" walks through it."""

import inspect
from itertools import count
from types import SimpleNamespace

import numpy as np

KERNELS = SimpleNamespace()  # every op by name, on raw arrays: the namespace of an ordinary sweep
OPS = SimpleNamespace()  # every op by name, on Tensors: the namespace of a sweep that is itself recorded
ACTIVE = []  # the tapes that record now
KEYS = count()  # names for tapes, and for the axes of vmap

class Arithmetic:
    """Operators, by the namespace `xp` of a class."""
    __array_ufunc__ = None  # NumPy leaves `array * this` to us
    mT = property(lambda self: self.xp.matrix_transpose(self))
for sign, name in {"add": "add", "sub": "subtract", "mul": "multiply", "matmul": "matmul"}.items():
    setattr(Arithmetic, f"__{sign}__", lambda self, other, name=name: getattr(self.xp, name)(self, other))
    setattr(Arithmetic, f"__r{sign}__", lambda self, other, name=name: getattr(self.xp, name)(other, self))

class Tensor(Arithmetic):
    """A raw array, and the slot that its value has on each tape, by the tape's key."""
    xp = OPS
    shape = property(lambda self: self.array.shape)

    def __init__(self, array, slots=None):
        self.array = np.asarray(array, dtype=float) if isinstance(array, int | float | list) else array
        self.slots = {} if slots is None else slots

class Op:
    """A function of Tensors. An elementwise one has partial derivatives as rules, any other one VJPs."""
    def __init__(self, name, batch=None, params=None, **rules):
        self.kernel, self.elementwise, self.batch = getattr(np, name), batch is None, batch or batch_elementwise
        self.rules, self.params = rules, params or {}
        first = 1 if self.elementwise else 2  # what a rule names after `xp` (and `g`) is what records keep for it
        self.needs = [list(inspect.signature(rule).parameters)[first:] for rule in rules.values()]
        setattr(OPS, name, self)
        setattr(KERNELS, name, self.raw)

    def __call__(self, *inputs, **params):
        inputs = [x if isinstance(x, Tensor) else Tensor(x) for x in inputs]
        out = Tensor(self.raw(*inputs, **params))
        for tape in ACTIVE:
            slots = [x.slots.get(tape.key) for x in inputs]
            if slots != [None] * len(slots):
                needed = {name for names, i in zip(self.needs, slots, strict=True) if i is not None for name in names}
                values = dict(zip(self.rules, inputs, strict=True), out=out)
                kept = {name: (x.array, x.slots) for name, x in values.items() if name in needed}
                out.slots[tape.key] = len(tape.records)
                tape.records.append((self, slots, [x.shape for x in inputs], kept, self.params | params))
        return out

    def raw(self, *inputs, **params):
        """The raw result. Where an input is Batched: that of this op on all examples, one floor down."""
        arrays = [x.array if isinstance(x, Tensor) else x for x in inputs]
        axis = max([a.axis for a in arrays if isinstance(a, Batched)], default=None)
        if axis is None:
            return self.kernel(*arrays, **params)
        own = [isinstance(a, Batched) and a.axis == axis for a in arrays]
        below = [a.examples if mine else x for x, a, mine in zip(inputs, arrays, own, strict=True)]
        below = [x if isinstance(x, Tensor) else Tensor(x) for x in below]
        return Batched(self.batch(self, below, own, **self.params | params), axis)

class GradientTape:
    """Records what is computed in its block from what it watches."""
    def __init__(self):
        self.key = next(KEYS)
        self.records = []  # the place of a record is the slot of the value that it made
    def __enter__(self):
        ACTIVE.append(self)
        return self
    def __exit__(self, *error):
        ACTIVE.remove(self)
    def watch(self, x):
        x.slots[self.key] = len(self.records)
        self.records.append(None)  # a leaf

    def gradient(self, target, source, seed=None):
        """The reverse sweep: the seed (ones, if none is given) times the Jacobian; None if nothing is connected."""
        xp, lift = (OPS, Tensor) if ACTIVE else (KERNELS, lambda array, slots: array)
        seed = Tensor(np.ones(target.shape)) if seed is None else seed
        grads = {target.slots.get(self.key, -1): lift(seed.array, seed.slots)}
        for slot in reversed(range(max(grads) + 1)):
            if slot in grads and self.records[slot] is not None:
                op, slots, shapes, kept, params = self.records[slot]
                known = {f"{name}_shape": shape for name, shape in zip(op.rules, shapes, strict=True)}
                known |= params | {name: lift(*value) for name, value in kept.items()}
                for rule, needs, i, shape in zip(op.rules.values(), op.needs, slots, shapes, strict=True):
                    if i is not None:
                        g, arguments = grads[slot], [known[name] for name in needs]
                        d = g * rule(xp, *arguments) if op.elementwise else rule(xp, g, *arguments)
                        d = sum_to(xp, d, shape)
                        grads[i] = grads[i] + d if i in grads else d
        g = grads.get(source.slots.get(self.key))
        return g if g is None or ACTIVE else Tensor(g)

def sum_to(xp, d, shape):
    """Sum a cotangent over the axes along which an input of this shape was broadcast."""
    extra = len(d.shape) - len(shape)
    axes = tuple(k for k, n in enumerate(d.shape) if k < extra or n != shape[k - extra])
    return xp.reshape(xp.sum(d, axis=axes), shape=shape) if axes else d

class Batched(Arithmetic):
    """What a Tensor holds inside vmap: the Tensor of all examples, which looks like one of them."""
    xp = KERNELS
    shape = property(lambda self: self.examples.shape[1:])

    def __init__(self, examples, axis):
        self.examples, self.axis = examples, axis

def vmap(f):
    def on_examples(*args):
        axis = next(KEYS)  # an inner one has the larger number
        out = f(*[Tensor(Batched(x, axis)) for x in args])
        if isinstance(out.array, Batched) and out.array.axis == axis:
            return out.array.examples
        return OPS.broadcast_to(out, shape=(*args[0].shape[:1], *out.shape))
    return on_examples

def spread(x, n):
    """Give examples `n` dimensions: axes of length 1 go between that of the examples and theirs."""
    return OPS.reshape(x, shape=(x.shape[0], *[1] * (n + 1 - len(x.shape)), *x.shape[1:]))

def batch_elementwise(op, xs, own):
    n = max(len(x.shape) - mine for x, mine in zip(xs, own, strict=True))
    return op(*[spread(x, n) if mine else x for x, mine in zip(xs, own, strict=True)])

def batch_shape(op, xs, own, shape):
    return op(spread(xs[0], len(shape)), shape=(xs[0].shape[0], *shape))

def batch_sum(op, xs, own, axis):
    return op(xs[0], axis=tuple(k + 1 for k in (range(len(xs[0].shape) - 1) if axis is None else axis)))

def sum_rule(xp, g, x_shape, axis):
    ones = [1 if axis is None or k in axis else n for k, n in enumerate(x_shape)]
    return xp.broadcast_to(xp.reshape(g, shape=ones), shape=x_shape)

Op("add", x1=lambda xp: 1.0, x2=lambda xp: 1.0)
Op("subtract", x1=lambda xp: 1.0, x2=lambda xp: -1.0)
Op("multiply", x1=lambda xp, x2: x2, x2=lambda xp, x1: x1)
Op("sin", x=lambda xp, x: xp.cos(x))
Op("cos", x=lambda xp, x: -1.0 * xp.sin(x))
Op("exp", x=lambda xp, out: out)
Op("tanh", x=lambda xp, out: 1.0 - out * out)
Op("sum", batch_sum, {"axis": None}, x=sum_rule)
Op("reshape", batch_shape, x=lambda xp, g, x_shape: xp.reshape(g, shape=x_shape))
Op("broadcast_to", batch_shape, x=lambda xp, g, x_shape: sum_to(xp, g, x_shape))
Op("matrix_transpose", lambda op, xs, own: op(*xs), x=lambda xp, g: xp.matrix_transpose(g))
Op("matmul", lambda op, xs, own: op(*xs), x1=lambda xp, g, x2: g @ x2.mT, x2=lambda xp, g, x1: x1.mT @ g)
