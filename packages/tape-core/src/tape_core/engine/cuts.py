"""Cuts: the places where a path of values ends, which `grad` and the like name when nothing is connected.

Each of these functions has its tape or accumulator keep a `Cuts`. The paths that carry no derivative tell it when a
value comes by that the recorder knows: ops without a derivative, methods that take values out, assignments to
Variables. Where no argument reaches the result, it is the answer to the question why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.base.ambient import ACTIVE, OWN_DERIVATIVE
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.user_code import user_frame_past_numpy
from tape_core.typing import Raw, Slots

if TYPE_CHECKING:
    from tape_core.engine.op import Op
    from tape_core.engine.tensor import Tensor

_MOST = 5  # cuts that are kept of one call

_LEFT = "its values leave Tape by {}, and what is computed from them is a constant"
_ASSIGNED = (
    "its values were assigned to a Variable, by {}, and nothing flows through an assignment; to call a module with "
    "other values use `with module.using(values):` of tape_nn; for derivatives with respect to Variables use a "
    "GradientTape: `with tape: y = f()`, then `tape.gradient(y, variables)`"
)
_READ = (
    "{} was given as an argument, and the function reads the Variable itself, not the argument: compute with the "
    "argument, give a module the values by `with module.using(values):` of tape_nn, or use a GradientTape: "
    "`with tape: y = f()`, then `tape.gradient(y, variables)`"
)
_ELSEWHERE = (
    "what the function computes from it does not lead to the result, or comes by a function whose derivative is None, "
    "as one with custom_gradient may"
)
_UNUSED = "the function does not compute with it"
_BESIDE = (
    ", but reads Variables; for derivatives with respect to these use a GradientTape: `with tape: y = f()`, then "
    "`tape.gradient(y, variables)`"
)


class Cuts:
    """The places where paths from the values that one recorder knows end, so that nothing flows back.

    It tells a derivative that is 0 from one that is lost, and says in errors where it is lost.

    Attributes:
        ends: the reasons, with the user's line, by the name of the op or method.
        compared: the name of an op with a bool result, such as `less`. No derivative is lost by it unless `decided`.
        decided: Python took a branch by such a result.
        constant: only the shape and dtype of a value went into a result, whose derivative is 0; or only tangents did
            that were carried along beside the values.
        differentiated: a derivative of a value was taken, and it is constant, as that of a linear function.
        opaque: values were taken out in a function with a derivative of its own, which may depend on them unseen.
        taken_out: one of the ends is a method, `stop_gradient` or an assignment, and no op, so that later results may
            depend on the values unseen.
        read: the ids of the Variables that were read.
    """

    compared: str | None = None
    constant = decided = differentiated = opaque = taken_out = False

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.read: set[int] = set()

    def on_leave(self, key: int, tensor: Tensor, how: str) -> None:
        """Note that a method takes values out of a Tensor, if the recorder of this key knows it."""
        if not _known(tensor, key):
            return
        if how == "stop_gradient":
            self.on_end(how, "stop_gradient makes a constant of it")
        else:
            self.on_end(how, _LEFT.format(how))
            self.opaque |= OWN_DERIVATIVE.get()

    def on_op(self, op: Op, out: Raw) -> None:
        """Note that an op has no derivative."""
        dtype = str(getattr(out, "dtype", type(out).__name__))
        # By its text, which says so in every library.
        if "bool" in dtype:
            self.compared = self.compared or op.name
            return
        if op.name == "astype":
            why = f"astype makes {dtype.rpartition('.')[2]} of it, which has no derivative"
        else:
            why = f"{op.name} has no derivative" + (f": {op.reason}" if getattr(op, "reason", None) else "")
        self._note(op.name, why)

    def on_end(self, what: str, why: str) -> None:
        """Note that values were taken out of what is recorded."""
        self.taken_out = True
        self._note(what, why)

    def _note(self, what: str, why: str) -> None:
        # One place for each op or method: looking for the user's line is slow, and a loop would name the same one
        # again.
        if what not in self.ends and len(self.ends) < _MOST:
            frame = user_frame_past_numpy()
            place = f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_qualname}'
            self.ends[what] = f"{why}, here:\n{place}"

    def merge(self, other: Cuts) -> None:
        """Add the notes of another recorder, whose values depend on those that this one knows."""
        self.ends = {**other.ends, **self.ends}
        self.compared = self.compared or other.compared
        self.decided |= other.decided
        self.constant |= other.constant
        self.differentiated |= other.differentiated
        self.opaque |= other.opaque
        self.taken_out |= other.taken_out

    def is_zero(self, variables: Iterable[Any] = ()) -> bool:
        """Return whether a missing derivative is 0 indeed, as far as is known, and no path was lost.

        Args:
            variables: the Variables among the arguments.
        """
        if self.differentiated and not self.opaque:
            return True
        if self.ends or any([id(v) in self.read for v in variables]):
            return False
        return self.decided or self.constant

    def why(self, variables: Sequence[Any], used: bool) -> str:
        """Return why no path leads from the arguments to the result."""
        read = next((v for v in variables if id(v) in self.read), None)
        if read is not None:
            return _READ.format(f"Variable {read.name!r}" if read.name else f"a Variable of shape {read.shape}")
        if self.ends:
            return "\n".join(self.ends.values())
        if self.compared is not None:
            return f"{self.compared} has no derivative"
        return _ELSEWHERE if used else _UNUSED + _BESIDE * bool(self.read)


def check_zero(name: str, cuts: Cuts, arguments: str, variables: Sequence[Any], used: bool) -> None:
    """Raise unless a function whose result depends on no argument has the derivative 0 indeed.

    Args:
        name: the transformation that was called, for the message.
        cuts: the notes of its recorder.
        arguments: the arguments that were differentiated, for the message.
        variables: the Variables among them.
        used: whether anything was recorded that was computed from them.

    Raises:
        ValueError: no argument reaches the result, and why.
    """
    if not cuts.is_zero(variables):
        raise ValueError(
            f"{name}: the result does not depend on {arguments}, so that all derivatives would be 0: "
            f"{cuts.why(variables, used)}\nWhere the function is meant to be constant, {name}(..., "
            f"allow_unconnected=True) gives zeros"
        )


# -- events: each tells the recorders that know the Tensors


def _known(tensor: Tensor | None, key: int) -> bool:
    """Return whether a recorder knows a Tensor, or inside vmap the value of all examples."""
    while tensor is not None:
        if key in tensor._slots:
            return True
        tensor = getattr(tensor._array, "value", None) if tensor.backend.level else None
    return False


def _cuts_at(tensor: Tensor) -> list[Cuts]:
    """Return the cuts of the active recorders that know a Tensor."""
    return [r._cuts for r in ACTIVE.get() if r._cuts is not None and _known(tensor, r._key)]


def cuts_of(tensors: Iterable[Tensor]) -> list[Cuts]:
    """Return the cuts of the active recorders that know any of these Tensors."""
    return list({id(cuts): cuts for tensor in tensors for cuts in _cuts_at(tensor)}.values()) if ACTIVE.get() else []


@contextmanager
def own_derivative() -> Iterator[None]:
    """Enter a function that has a derivative of its own, or the computation of that derivative."""
    with setting(OWN_DERIVATIVE, True):
        yield


def on_shape_used(tensor: Tensor) -> None:
    """Note that an array is made in the shape and dtype of a Tensor."""
    for cuts in _cuts_at(tensor):
        cuts.constant = True


def on_assigned(tensor: Tensor, method: str) -> None:
    """Note that a Tensor is assigned to a Variable."""
    for cuts in _cuts_at(tensor):
        cuts.on_end("assign", _ASSIGNED.format(f"Variable.{method}"))


def on_no_derivative(op: Op, slots: Slots, out: Raw) -> None:
    """Note that an op has no derivative for the value of these slots."""
    for recorder in ACTIVE.get():
        if recorder._cuts is not None and recorder._key in slots:
            recorder._cuts.on_op(op, out)


def on_truth_asked() -> None:
    """Note that Python asks whether a Tensor is true."""
    for recorder in ACTIVE.get():
        # A bool has no slots, so it is not known which comparison it came from: any that this recorder has met will do.
        cuts = recorder._cuts
        if cuts is not None and cuts.compared is not None:
            cuts.decided = True


def on_tangents(values: Iterable[Tensor]) -> None:
    """Note that tangents were carried through a loop over these values.

    The tangents of a linear loop do not depend on its values. Recorders of the loop know the tangents all the same, and
    the derivative of the loop says what they depend on.
    """
    for cuts in cuts_of(values):
        cuts.constant = True


def on_branch(operands: Iterable[Tensor]) -> None:
    """Note that one of two functions is called with these operands, decided by a value."""
    on_truth_asked()
    for tensor in operands:
        for cuts in _cuts_at(tensor):
            cuts.decided = True


def on_derivative(targets: Iterable[Tensor], results: Sequence[Any]) -> None:
    """Note that a derivative of targets was computed: it may be constant for a recorder around it.

    A result that is None is no derivative, since no path leads there.
    """
    if all([r is None for r in results]):
        return
    for recorder in ACTIVE.get():
        cuts = recorder._cuts
        if cuts is None or cuts.differentiated:
            continue
        key = recorder._key
        # Of slices, the values carry the path; indices never do.
        known = [r for r in results if r is not None and _known(getattr(r, "values", r), key)]
        if not known and any([_known(t, key) for t in targets]):
            cuts.differentiated = True
