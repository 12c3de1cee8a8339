"""cond, while_loop, scan and map: branches and loops that depend on values, eager, compiled and differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tape_core.base.ambient import ACTIVE, OPEN_AXES
from tape_core.base.mistakes import check_callable
from tape_core.engine import cuts, pytree
from tape_core.engine.levels import BatchedArray
from tape_core.engine.tensor import SCALARS, Tensor, read
from tape_core.ops.creation import asarray
from tape_core.ops.elementwise import where
from tape_core.ops.searching import any as any_of
from tape_core.transforms import loops
from tape_core.transforms.calls import name_of
from tape_core.transforms.closures import is_recorded
from tape_core.transforms.snapshots import snapshot

Function = Callable[..., Any]


class Tree:
    """A structure of arrays, of which the leaves are Tensors; None stays what it is.

    Raises:
        TypeError: a leaf is no array.
    """

    __slots__ = ("places", "size", "structure", "tensors")
    structure: Any
    tensors: list[Tensor]

    def __init__(self, tree: Any, what: str, like: Tree | None = None) -> None:
        if tree is None or type(tree) is Tensor:
            self.structure, self.size = None, 1
            self.places, self.tensors = ([], []) if tree is None else ([0], [tree])
            return
        leaves, self.structure = pytree.flatten(tree)
        self.size = len(leaves)
        self.places = [k for k, leaf in enumerate(leaves) if leaf is not None]
        # A Python number is what the leaf is that it takes the place of.
        known = dict(zip(like.places, like.tensors, strict=True)) if like is not None else {}
        # Others stand where the Tensors beside them do, which a compiled loop needs on one backend.
        beside = next((leaf for leaf in leaves if type(leaf) is Tensor), None)
        self.tensors = [
            _tensor(leaves[k], known.get(k), beside, lambda k=k: f"{what}{pytree.path(self.structure, k)}")  # type: ignore[misc]
            for k in self.places
        ]

    def of(self, tensors: Sequence[Tensor]) -> Any:
        """The structure with other Tensors."""
        if self.structure is None and self.places:
            return tensors[0]
        leaves: list[Any] = [None] * self.size
        for k, tensor in zip(self.places, tensors, strict=True):
            leaves[k] = tensor
        return pytree.unflatten(self.structure, leaves)

    def names(self) -> list[str]:
        """What messages call the Tensors."""
        return [pytree.path(self.structure, k) for k in self.places]

    def check(self, other: Tree, what: str, whose: str) -> None:
        """Whether another one is like this one.

        Raises:
            TypeError: its structure is another, or the shape or dtype of a leaf, which is named.
        """
        same = self.size == other.size and self.places == other.places
        if not same or not pytree.same(self.structure, other.structure, self.size):
            raise TypeError(f"{what} has the structure {other.shown()}, {whose} {self.shown()}; they must be the same")
        for k, (a, b) in enumerate(zip(self.tensors, other.tensors, strict=True)):
            if a.shape != b.shape or a.dtype is not b.dtype:
                name = self.names()[k]
                raise TypeError(
                    f"{what}{name} has shape {b.shape} and dtype {b.dtype}, {whose} shape {a.shape} and dtype "
                    f"{a.dtype}; they must be the same: see tape_core.astype and tape_core.broadcast_to"
                )

    def shown(self) -> str:
        """The structure with a star for each array."""
        return repr(pytree.unflatten(self.structure, [_Star() if k in self.places else None for k in range(self.size)]))


class _Star:
    def __repr__(self) -> str:
        return "*"


def _tensor(leaf: Any, like: Tensor | None, beside: Tensor | None, where: Callable[[], str]) -> Tensor:
    value = read(leaf, where)
    if type(value) not in SCALARS:
        return value  # type: ignore[no-any-return]
    fits = like is not None and (like.dtype.inexact or type(value) is not float) and type(value) is not complex
    if fits and like is not None and (type(value) is bool) == (like.dtype.kind == "bool"):
        return asarray(value, dtype=like.dtype, backend=like.backend.root, device=like.device)
    if beside is not None:
        return asarray(value, backend=beside.backend.root, device=beside.device)
    return asarray(value)


def cond(pred: Any, true_fn: Function, false_fn: Function, *operands: Any) -> Any:
    """`true_fn(*operands)` where `pred` holds, else `false_fn(*operands)`.

    It is `if` for code that is compiled, where Python cannot decide by a value: there both functions are traced, and
    the one that is needed runs.

    >>> import tape_core as tc
    >>> @tc.function
    ... def root(x):
    ...     return tc.cond(x > 0, tc.sqrt, lambda x: -tc.sqrt(-x), x)
    >>> root(tc.asarray(4.0)).item(), root(tc.asarray(-9.0)).item()
    (2.0, -3.0)

    Inside :func:`~tape_core.vmap`, where `pred` may be another for each example, both run for all examples, and each
    gets its own result; the gradient of a function is NaN there too where it is so for an example that does not use it.

    Args:
        pred: a scalar: a Tensor of shape () or a Python bool. A number holds where it is not 0.
        true_fn, false_fn: functions of the operands that return pytrees of one structure, with arrays of the same
            shapes and dtypes. They may use Tensors and Variables from around them.
        operands: pytrees of arrays.

    Raises:
        TypeError: `pred` is no scalar; the results are not alike, which is seen where both functions run.
    """
    for name, f in (("true_fn", true_fn), ("false_fn", false_fn)):
        check_callable("cond", name, f)
    if type(pred) in SCALARS:
        return (true_fn if pred else false_fn)(*operands)
    true_fn, false_fn = _lasting(true_fn), _lasting(false_fn)
    predicate = _scalar(pred, "cond: pred")
    given = Tree(operands, "cond: operands")
    if ACTIVE.get():
        cuts.on_branch(given.tensors)
    found: list[Tree] = []

    def flat(f: Function, name: str) -> loops.Branch:
        def run(tensors: list[Any]) -> list[Any]:
            like = found[0] if found else None
            out = Tree(f(*given.of(tensors)), f"cond: the result of {name}", like)
            if like is not None:
                like.check(out, f"cond: the result of {name}", "that of the other function has")
            found[:] = [like or out]
            return out.tensors

        return run

    branches = [flat(true_fn, "true_fn"), flat(false_fn, "false_fn")]
    if _differs(predicate):
        yes, no = (branch(given.tensors) for branch in branches)
        return found[0].of([where(predicate, a, b) for a, b in zip(yes, no, strict=True)])
    outs = loops.cond(_named("cond", true_fn), predicate, branches, given.tensors)
    return found[0].of(outs)


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any) -> Any:
    """What `body_fun` makes of `init_val`, called again on its own result while `cond_fun` of that holds.

    >>> import tape_core as tc
    >>> @tc.function
    ... def halved(x):
    ...     return tc.while_loop(lambda c: c[0] > 1, lambda c: (c[0] / 2, c[1] + 1), (x, 0))
    >>> x, steps = halved(tc.asarray(10.0))
    >>> x.item(), steps.item()
    (0.625, 4)

    Every derivative goes through it, whatever the number of steps. Where a tape or an accumulator records, the loop
    keeps what each step was given, and the derivative runs each step again.

    Inside :func:`~tape_core.vmap` it goes on until no example needs a step; the others stay as they are.

    Args:
        cond_fun: a function of the value that returns a scalar: a Tensor of shape () or a Python bool.
        body_fun: a function of the value that returns the next one: a pytree of the same structure, with arrays of the
            same shapes and dtypes.
        init_val: a pytree of arrays. Python numbers become Tensors.

    Raises:
        TypeError: `cond_fun` returns no scalar; `body_fun` returns another structure, shape or dtype than it was
            given: the leaf is named.
        RuntimeError: `body_fun` assigns to a Variable while a tape or an accumulator records.
    """
    check_callable("while_loop", "cond_fun", cond_fun)
    check_callable("while_loop", "body_fun", body_fun)
    cond_fun, body_fun = _lasting(cond_fun), _lasting(body_fun)
    init = Tree(init_val, "while_loop: init_val")
    if ACTIVE.get():
        cuts.on_branch(init.tensors)

    def test(carry: list[Any]) -> Any:
        found = cond_fun(init.of(carry))
        return found if type(found) in SCALARS else _scalar(found, "while_loop: the result of cond_fun")

    def step(carry: list[Any]) -> list[Any]:
        new = Tree(body_fun(init.of(carry)), "while_loop: the result of body_fun", init)
        init.check(new, "while_loop: the result of body_fun", "what it was given has")
        return new.tensors

    def needed(carry: list[Any]) -> Any:
        found = test(carry)
        return found if type(found) in SCALARS else _of_any_example(found)

    def of_those_that_need_it(carry: list[Any]) -> list[Any]:
        going, new = test(carry), step(carry)
        if type(going) in SCALARS or not _differs(going):
            return new
        return [where(going, a, b) for a, b in zip(new, carry, strict=True)]

    if OPEN_AXES.get():
        return init.of(loops.while_loop(_named("while_loop", body_fun), needed, of_those_that_need_it, init.tensors))
    return init.of(loops.while_loop(_named("while_loop", body_fun), test, step, init.tensors))


def scan(f: Function, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False) -> tuple[Any, Any]:
    """Call `f` on each element of `xs` in turn, with what it returned for the one before.

    >>> import tape_core as tc
    >>> last, sums = tc.scan(lambda total, x: (total + x, total + x), 0.0, tc.asarray([1.0, 2.0, 3.0]))
    >>> last.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])

    A compiled function has its body once, however long `xs` is. Where a tape or an accumulator records, up to 128
    steps, those of loops inside loops multiplied, are recorded as those of a Python loop. Of more the loop keeps what
    each step was given, and the derivative runs each step again: it takes less memory, and more time.

    Args:
        f: a function of what is carried and an element of `xs`, that returns a pair: what is carried on, a pytree of
            the same structure, shapes and dtypes, and a result for this element, any pytree of arrays or None.
        init: what is carried into the first call: a pytree of arrays. Python numbers become Tensors.
        xs: a pytree of arrays whose elements are along their first axis, or None.
        length: how many elements; it must be given where `xs` has no arrays.
        reverse: start with the last element. Results stand where their elements do.

    Returns:
        What is carried in the end, and the results, stacked along a first axis.

    Raises:
        TypeError: `f` returns no pair, or carries on another structure, shape or dtype: the leaf is named.
        ValueError: arrays of `xs` have other lengths, or no axis; `length` is missing or another.
        RuntimeError: `f` assigns to a Variable while a tape or an accumulator records, and there are more than 128
            steps.
    """
    check_callable("scan", "f", f)
    f = _lasting(f)
    carried = Tree(init, "scan: init")
    elements = Tree(xs, "scan: xs")
    n = _length(elements, length)
    results: list[Tree] = []

    def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        pair = f(carried.of(carry), elements.of(row))
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                f"scan: {name_of(f)} must return a pair, what is carried on and a result, got "
                f"{f'{len(pair)} of them' if isinstance(pair, tuple) else type(pair).__name__}"
            )
        new = Tree(pair[0], "scan: the carry that f returns", carried)
        carried.check(new, "scan: the carry that f returns", "init has")
        like = results[0] if results else None
        out = Tree(pair[1], "scan: the result of f", like)
        if like is not None:
            like.check(out, "scan: the result of f", "that for the first element has")
        results[:] = [like or out]
        return new.tensors, out.tensors

    last, ys = loops.scan(_named("scan", f), step, carried.tensors, elements.tensors, n, bool(reverse))
    return carried.of(last), results[0].of(ys)


def map(f: Function, xs: Any) -> Any:
    """`f` of each element of `xs`, one after the other, stacked.

    >>> import tape_core as tc
    >>> tc.map(lambda row: row / tc.sum(row), tc.asarray([[1.0, 3.0], [2.0, 2.0]])).tolist()
    [[0.25, 0.75], [0.5, 0.5]]

    :func:`~tape_core.vmap` does it at once, and takes more memory.

    Args:
        f: a function of an element that returns a pytree of arrays.
        xs: a pytree of arrays whose elements are along their first axis.

    Raises:
        ValueError: arrays of `xs` have other lengths, or no axis.
        TypeError: results of `f` are not alike.
    """
    check_callable("map", "f", f)
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


# -- what is asked of arguments


def _lasting(f: Function) -> Function:
    """The function as it is to be run again, too, where a derivative may be wanted."""
    return snapshot(f) if is_recorded() else f


def _named(what: str, f: Function) -> str:
    return f"{what}({name_of(f)})"


def _scalar(value: Any, what: str) -> Tensor:
    """A predicate as a Tensor of shape () and dtype bool."""
    tensor = read(value, what)
    if type(tensor) is not Tensor:
        tensor = asarray(tensor)
    if tensor.shape != ():
        raise TypeError(f"{what} must be a scalar, got shape {tensor.shape}; tape_core.any and all make one of more")
    return tensor if tensor.dtype.kind == "bool" else tensor != 0


def _differs(predicate: Tensor) -> bool:
    """Whether examples of a vmap may have other values."""
    array = predicate._array
    while type(array) is BatchedArray:
        if array.axis is not None:
            return True
        array = array.value._array
    return False


def _of_any_example(predicate: Tensor) -> Tensor:
    """Whether it holds for any example."""
    while type(array := predicate._array) is BatchedArray:
        predicate = array.value if array.axis is None else any_of(array.value)
    return predicate


def _length(elements: Tree, length: int | None) -> int:
    if length is not None and (type(length) is not int or length < 0):
        raise ValueError(f"scan: length must be an int, not below 0, or None, got {length!r}")
    found: dict[str, int] = {}
    for tensor, name in zip(elements.tensors, elements.names(), strict=True):
        if not tensor.ndim:
            raise ValueError(f"scan: xs{name} has shape (), and no axis of elements")
        found[name] = int(tensor.shape[0])
    if not found and length is None:
        raise ValueError("scan: length must be given where xs has no arrays")
    if len({*found.values()} | ({length} if length is not None else set())) > 1:
        sizes = ", ".join(f"xs{name} {n}" for name, n in found.items())
        raise ValueError(f"scan: {sizes}{f', length {length}' if length is not None else ''}: they must be the same")
    return length if length is not None else next(iter(found.values()))
