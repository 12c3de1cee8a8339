"""cond, while_loop, scan and map: branches and loops that depend on values, eager, compiled and differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from tape_core.base.ambient import ACTIVE, OPEN_AXES
from tape_core.base.dtypes import DType, complex128, float64
from tape_core.base.mistakes import check_callable
from tape_core.engine import cuts, pytree
from tape_core.engine.levels import BatchedArray
from tape_core.engine.tensor import SCALARS, Tensor, alias, is_number, read, to_number
from tape_core.ops.creation import asarray
from tape_core.ops.elementwise import where
from tape_core.ops.searching import any as any_of
from tape_core.transforms import loops
from tape_core.transforms.calls import name_of
from tape_core.transforms.closures import is_recorded
from tape_core.transforms.snapshots import snapshot
from tape_core.typing import ArrayLike, PyTree

Function = Callable[..., Any]
R = TypeVar("R")
# A bound of Any is no bound, but lets lambdas compute with an argument of which nothing is known yet.
C = TypeVar("C", bound=Any)
X = TypeVar("X", bound=Any)
Y = TypeVar("Y")


class Tree:
    """A pytree of arrays, flattened to Tensors; a leaf None stays None.

    Attributes:
        structure: the structure of the pytree; None for a single Tensor or for None.
        size: the number of leaves, with those that are None.
        places: the indices of the leaves that are arrays.
        tensors: these leaves.
        numbers: by their place among the Tensors, the leaves that were numbers, Python's or NumPy's scalars.

    Raises:
        TypeError: a leaf is not an array.
    """

    __slots__ = ("numbers", "places", "size", "structure", "tensors")
    structure: Any
    tensors: list[Tensor]
    numbers: dict[int, complex]

    def __init__(self, tree: PyTree, what: str, like: Tree | None = None, around: Sequence[Tensor] = ()) -> None:
        self.numbers = {}
        # The usual cases, in which nothing needs to be flattened.
        if tree is None or type(tree) is Tensor:
            self.structure, self.size = None, 1
            self.places, self.tensors = ([], []) if tree is None else ([0], [tree])
            return
        leaves, self.structure = pytree.flatten(tree)
        self.size = len(leaves)
        self.places = [k for k, leaf in enumerate(leaves) if leaf is not None]
        # A Python number takes the dtype of the leaf that it replaces, such as a count that a loop carries.
        known = dict(zip(like.places, like.tensors, strict=True)) if like is not None else {}
        # Without such a leaf it goes where the other Tensors are: a compiled loop needs all of them on one backend.
        beside = next((leaf for leaf in (*leaves, *around) if isinstance(leaf, Tensor)), None)
        values = [
            read(leaves[k], lambda k=k: f"{what}{pytree.path(self.structure, k)}", known.get(k, beside))  # type: ignore[misc]
            for k in self.places
        ]
        self.numbers = {
            at: to_number(leaves[k])
            for at, k in enumerate(self.places)
            if type(leaves[k]) is not Tensor and is_number(leaves[k])
        }
        # NumPy's scalars keep their dtype where there is no array whose dtype they can take.
        for at, number in self.numbers.items():
            if (leaf := known.get(self.places[at])) is not None and _fits(number, leaf.dtype):
                values[at] = number
        around = [*[value for value in values if type(value) is Tensor], *around]
        self.tensors = [
            value if type(value) is Tensor else _of_number(value, known.get(k), around)
            for k, value in zip(self.places, values, strict=True)
        ]

    def given_away(self) -> list[Tensor]:
        """Return the Tensors, and keep aliases: who gets them may ask who else has them."""
        found, self.tensors = self.tensors, [alias(t) for t in self.tensors]
        return found

    def give_way(self, other: Tree) -> bool:
        """Return whether numbers of this tree are to take the dtypes of another's leaves, and all others are alike."""
        if len(self.tensors) != len(other.tensors):
            return False
        pairs = zip(self.tensors, other.tensors, strict=True)
        differ = [k for k, (a, b) in enumerate(pairs) if a.dtype is not b.dtype]
        return bool(differ) and all(
            [k in self.numbers and _fits(self.numbers[k], other.tensors[k].dtype) for k in differ]
        )

    def of(self, tensors: Sequence[Tensor]) -> PyTree:
        """Return the pytree with other Tensors."""
        if self.structure is None and self.places:
            return tensors[0]
        leaves: list[Any] = [None] * self.size
        for k, tensor in zip(self.places, tensors, strict=True):
            leaves[k] = tensor
        return pytree.unflatten(self.structure, leaves)

    def handed(self, tensors: Sequence[Tensor]) -> PyTree:
        """Return the pytree with other Tensors, for a function that may change them in place: with aliases."""
        return self.of([alias(t) for t in tensors])

    def names(self) -> list[str]:
        """Return the paths of the Tensors, for messages."""
        return [pytree.path(self.structure, k) for k in self.places]

    def check(self, other: Tree, what: str, whose: str) -> None:
        """Check that another pytree is like this one.

        Raises:
            TypeError: it differs in structure, or in the shape or dtype of a leaf, which the message names.
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
        """Return the structure as text, with a star for each array."""
        return repr(pytree.unflatten(self.structure, [_Star() if k in self.places else None for k in range(self.size)]))


class _Star:
    def __repr__(self) -> str:
        return "*"


def _of_number(value: complex, like: Tensor | None, around: Sequence[Tensor]) -> Tensor:
    """Return a Python number as a Tensor: of the dtype of the leaf that it replaces, if any, else beside the others."""
    if like is not None and _fits(value, like.dtype):
        return asarray(value, dtype=like.dtype, backend=like.backend.root, device=like.device)
    if around:
        first = around[0]
        return asarray(value, dtype=_dtype_beside(value, around), backend=first.backend.root, device=first.device)
    return asarray(value)


def _fits(value: complex, dtype: DType) -> bool:
    """Return whether a number may be of a dtype: an int among floats, a float not among integers."""
    exact = (dtype.inexact or type(value) is not float) and type(value) is not complex
    return exact and (type(value) is bool) == (dtype.kind == "bool")


def _dtype_beside(value: complex, around: Sequence[Tensor]) -> DType | None:
    """Return the dtype of a Python number that a loop begins with; None for the default one.

    A sum that begins with 0.0 is of the precision of what is added: the first step could not change it.
    """
    if type(value) in (float, complex) and any([tensor.dtype in (float64, complex128) for tensor in around]):
        return float64 if type(value) is float else complex128
    return None


def cond(pred: ArrayLike, true_fn: Callable[..., R], false_fn: Callable[..., R], *operands: Any) -> R:
    """Return `true_fn(*operands)` if `pred` is true, else `false_fn(*operands)`.

    It is the `if` of compiled functions, where Python cannot decide by a value: there both functions are traced, and
    each call runs one of them.

    >>> import tape_core as tc
    >>> @tc.function
    ... def root(x):
    ...     return tc.cond(x > 0, tc.sqrt, lambda x: -tc.sqrt(-x), x)
    >>> root(tc.asarray(4.0)).item(), root(tc.asarray(-9.0)).item()
    (2.0, -3.0)

    Inside :func:`~tape_core.vmap`, where `pred` may differ between examples, both run for all examples and each example
    takes its own result. So a branch whose gradient is NaN for an example spoils it, even where the example takes the
    other branch.

    Args:
        pred: a scalar: a Tensor of shape () or a Python bool. A number is true where it is not 0.
        true_fn, false_fn: functions of the operands that return pytrees of one structure, with arrays of the same
            shapes and dtypes. They may use Tensors and Variables from around them.
        operands: pytrees of arrays.

    Raises:
        TypeError: `pred` is not a scalar; or the results are not alike, which shows where both functions run.

    A number as a result, as in `lambda: 0.0`, takes the dtype of the other function's result where both run. Where only
    one does, it has the default dtype of its kind.
    """
    for name, f in (("true_fn", true_fn), ("false_fn", false_fn)):
        check_callable("cond", name, f)
    # A Python value is known, in a trace too: the other function is not needed.
    if type(pred) in SCALARS:
        return (true_fn if pred else false_fn)(*operands)
    true_fn, false_fn = _frozen(true_fn), _frozen(false_fn)
    predicate = _scalar(pred, "cond: pred")
    given = Tree(operands, "cond: operands")
    if ACTIVE.get():
        cuts.on_branch(given.tensors)
    found: list[Tree] = []

    def flat(f: Function, name: str) -> loops.Branch:
        def run(tensors: list[Any]) -> list[Any]:
            like = found[0] if found else None
            out = Tree(f(*given.handed(tensors)), f"cond: the result of {name}", like)
            # The branch that runs first says how results look, but its numbers are weak beside the other's arrays: then
            # it has to run once more. The structure is needed after the call.
            if like is not None and like.give_way(out):
                like = None
            if like is not None:
                like.check(out, f"cond: the result of {name}", "that of the other function has")
            found[:] = [like or out]
            return out.given_away()

        return run

    branches = [flat(true_fn, "true_fn"), flat(false_fn, "false_fn")]
    # Each example decides for itself, so both run for all of them.
    if _differs_by_example(predicate):
        yes, no = (branch(given.tensors) for branch in branches)
        if [t.dtype for t in yes] != [t.dtype for t in no]:
            yes = branches[0](given.tensors)
        outs = [where(predicate, a, b) for a, b in zip(yes, no, strict=True)]
    else:
        outs = loops.cond(_label("cond", true_fn), predicate, branches, given.tensors)
    result: R = found[0].of(outs)
    return result


@overload
def while_loop(
    cond_fun: Callable[[Tensor], ArrayLike], body_fun: Callable[[Tensor], Tensor], init_val: complex
) -> Tensor: ...
@overload
def while_loop(cond_fun: Callable[[X], ArrayLike], body_fun: Callable[[X], X], init_val: X) -> X: ...
def while_loop(cond_fun: Function, body_fun: Function, init_val: PyTree) -> PyTree:
    """Apply `body_fun` to `init_val`, and again to its result, while `cond_fun` of the value is true.

    >>> import tape_core as tc
    >>> @tc.function
    ... def halved(x):
    ...     return tc.while_loop(lambda c: c[0] > 1, lambda c: (c[0] / 2, c[1] + 1), (x, 0))
    >>> x, steps = halved(tc.asarray(10.0))
    >>> x.item(), steps.item()
    (0.625, 4)

    All derivatives are defined, reverse mode too, whatever the number of steps. Where a tape or an accumulator records,
    the loop keeps the input of each step, and the derivative runs each step again.

    Inside :func:`~tape_core.vmap` it goes on until no example needs a step; the values of finished examples stay.

    Args:
        cond_fun: a function of the value that returns a scalar: a Tensor of shape () or a Python bool.
        body_fun: a function of the value that returns the next one: a pytree of the same structure, with arrays of the
            same shapes and dtypes.
        init_val: a pytree of arrays. Python numbers become Tensors, of float64 where another leaf is.

    Raises:
        TypeError: `cond_fun` does not return a scalar; or the result of `body_fun` differs from its argument in
            structure, shape or dtype: the message names the leaf.
        RuntimeError: `body_fun` assigns to a Variable while a tape or an accumulator records.
    """
    check_callable("while_loop", "cond_fun", cond_fun)
    check_callable("while_loop", "body_fun", body_fun)
    cond_fun, body_fun = _frozen(cond_fun), _frozen(body_fun)
    init = Tree(init_val, "while_loop: init_val")
    if ACTIVE.get():
        cuts.on_branch(init.tensors)

    def test(carry: list[Any]) -> Any:
        found = cond_fun(init.handed(carry))
        return found if type(found) in SCALARS else _scalar(found, "while_loop: the result of cond_fun")

    def step(carry: list[Any]) -> list[Any]:
        new = Tree(body_fun(init.handed(carry)), "while_loop: the result of body_fun", init)
        init.check(new, "while_loop: the result of body_fun", "what it was given has")
        return new.tensors

    def test_any_example(carry: list[Any]) -> Any:
        found = test(carry)
        return found if type(found) in SCALARS else _true_for_any_example(found)

    def step_unfinished(carry: list[Any]) -> list[Any]:
        going, new = test(carry), step(carry)
        if type(going) in SCALARS or not _differs_by_example(going):
            return new
        return [where(going, a, b) for a, b in zip(new, carry, strict=True)]

    # In every vmap, since whether the test differs by example shows only when it is computed.
    if OPEN_AXES.get():
        return init.of(
            loops.while_loop(_label("while_loop", body_fun), test_any_example, step_unfinished, init.tensors)
        )
    return init.of(loops.while_loop(_label("while_loop", body_fun), test, step, init.tensors))


@overload
def scan(
    f: Callable[[Tensor, X], tuple[Tensor, Y]], init: complex, xs: X, length: int | None = None, reverse: bool = False
) -> tuple[Tensor, Y]: ...
@overload
def scan(
    f: Callable[[C, X], tuple[C, Y]], init: C, xs: X, length: int | None = None, reverse: bool = False
) -> tuple[C, Y]: ...
@overload
def scan(
    f: Callable[[C, None], tuple[C, Y]], init: C, xs: None = None, length: int | None = None, reverse: bool = False
) -> tuple[C, Y]: ...
def scan(
    f: Function, init: PyTree, xs: PyTree = None, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Call `f` on each element of `xs` in turn, with the carry that it returned for the one before.

    >>> import tape_core as tc
    >>> last, sums = tc.scan(lambda total, x: (total + x, total + x), 0.0, tc.asarray([1.0, 2.0, 3.0]))
    >>> last.item(), sums.tolist()
    (6.0, [1.0, 3.0, 6.0])

    A compiled function has its body once, however long `xs` is. Where a tape or an accumulator records, up to 128
    steps (those of nested loops multiplied) are recorded like the steps of a Python loop. A longer loop keeps the input
    of each step, and the derivative runs each step again: it takes less memory, and more time.

    Args:
        f: a function of the carry and an element of `xs` that returns a pair: the next carry, of the same structure,
            shapes and dtypes, and a result for this element, any pytree of arrays or None.
        init: the first carry: a pytree of arrays. Python numbers become Tensors, of float64 where an array of `init` or
            `xs` is.
        xs: a pytree of arrays whose elements are along their first axis, or None.
        length: how many elements; it must be given where `xs` has no arrays.
        reverse: start with the last element. Results have the places of their elements.

    Returns:
        The last carry, and the results, stacked along a first axis.

    Raises:
        TypeError: `f` does not return a pair, or its carry changes in structure, shape or dtype: the message names the
            leaf.
        ValueError: arrays of `xs` have different lengths, or no axis; `length` is missing or differs from theirs.
        RuntimeError: `f` assigns to a Variable while a tape or an accumulator records, and there are more than 128
            steps.
    """
    check_callable("scan", "f", f)
    f = _frozen(f)
    elements = Tree(xs, "scan: xs", around=[x for x in pytree.flatten(init)[0] if isinstance(x, Tensor)])
    carried = Tree(init, "scan: init", around=elements.tensors)
    n = _length(elements, length)
    results: list[Tree] = []

    def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        pair = f(carried.handed(carry), elements.handed(row))
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
        return new.tensors, out.given_away()

    last, ys = loops.scan(_label("scan", f), step, carried.tensors, elements.tensors, n, bool(reverse))
    return carried.of(last), results[0].of(ys)


def map(f: Callable[[X], R], xs: X) -> R:
    """Apply `f` to each element of `xs`, one after the other, and stack the results.

    >>> import tape_core as tc
    >>> tc.map(lambda row: row / tc.sum(row), tc.asarray([[1.0, 3.0], [2.0, 2.0]])).tolist()
    [[0.25, 0.75], [0.5, 0.5]]

    :func:`~tape_core.vmap` computes all of them at once, and takes more memory.

    Args:
        f: a function of an element that returns a pytree of arrays.
        xs: a pytree of arrays whose elements are along their first axis.

    Raises:
        ValueError: arrays of `xs` have different lengths, or no axis.
        TypeError: results of `f` are not alike.
    """
    check_callable("map", "f", f)
    # A scan that carries nothing.
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


# -- checks of arguments


def _frozen(f: Function) -> Function:
    """Return the function with the bindings of its closure frozen, if a derivative may run it again later."""
    return snapshot(f) if is_recorded() else f


def _label(what: str, f: Function) -> str:
    return f"{what}({name_of(f)})"


def _scalar(value: ArrayLike, what: str) -> Tensor:
    """Return a predicate as a Tensor of shape () and dtype bool."""
    tensor = read(value, what)
    if type(tensor) is not Tensor:
        tensor = asarray(tensor)
    if tensor.shape != ():
        raise TypeError(f"{what} must be a scalar, got shape {tensor.shape}; tape_core.any and all make one of more")
    return tensor if tensor.dtype.kind == "bool" else tensor != 0


def _differs_by_example(predicate: Tensor) -> bool:
    """Return True if the examples of a vmap may have different values."""
    array = predicate._array
    while type(array) is BatchedArray:
        if array.axis is not None:
            return True
        array = array.value._array
    return False


def _true_for_any_example(predicate: Tensor) -> Tensor:
    """Return a predicate that is true if it is true for any example of the vmaps around."""
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
