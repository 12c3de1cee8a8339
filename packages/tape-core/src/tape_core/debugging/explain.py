"""`tape.explain(target, source)`: the reason why a gradient is None, or the ops from the source to the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING

from tape_core.debugging.graph import Graph, Node, View, graph_of, view
from tape_core.debugging.notes import Call, Event, Generation, Place
from tape_core.engine import pytree
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.recording import LIVE
from tape_core.engine.tensor import Tensor
from tape_core.engine.variable import Variable
from tape_core.typing import PyTree

if TYPE_CHECKING:
    from tape_core.engine.tape import GradientTape

_SHOWN = 12  # steps of a path that are printed; of a longer one the first and last half
_DEBUG = "GradientTape(debug=True) tells where"


@dataclass(frozen=True)
class Step:
    """One op on a path, with the user's line where the tape was made with `debug=True`."""

    op: str
    shape: tuple[int, ...] | None
    dtype: str | None
    place: Place | None
    layout: str = ""

    def __str__(self) -> str:
        what = self.op if self.shape is None else f"{self.op} -> {self.dtype}{list(self.shape)}"
        what = f"{what} {self.layout}" if self.layout else what
        return what if self.place is None else f"{what}\n{indent(str(self.place), '    ')}"


@dataclass(frozen=True)
class Explanation:
    """The answer of :meth:`GradientTape.explain`; it prints as text.

    Attributes:
        connected: True if the target depends on the source, as far as the tape knows.
        reason: `"connected"`, or why not, in a word: `"not-watched"`, `"dtype"`, `"watched-late"`, `"outside"`,
            `"another-tape"`, `"left"` (by numpy() and the like), `"integer-cast"`, `"non-differentiable"`,
            `"stop_gradient"`, `"stop_recording"`, `"assigned"`, `"independent"`, `"not-a-tensor"`, `"reset"`, `"used"`,
            `"no-gradient"`, or `"cut"` where only a tape with `debug=True` would know which of these.
        text: the whole answer.
        op: the op, or the method, where the path ends.
        place: the user's line there, with `file`, `line` and `function`.
        path: the ops from the source to the target, or as far as the path goes.
        parts: for nested structures, the answer for each pair.
    """

    connected: bool
    reason: str
    text: str
    op: str | None = None
    place: Place | None = None
    path: tuple[Step, ...] = ()
    parts: tuple[Explanation, ...] = ()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True)
class _Why:
    """A reason before it is put into words."""

    reason: str
    text: str
    op: str | None = None
    place: Place | None = None
    path: tuple[Step, ...] = ()


def explain(tape: GradientTape, target: PyTree, source: PyTree) -> Explanation:
    """See :meth:`GradientTape.explain`."""
    targets, target_structure = pytree.flatten(target)
    sources, structure = pytree.flatten(source)
    graph = graph_of(tape)
    parts = []
    for k, one in enumerate(sources):
        label = _label(one, pytree.path(structure, k))
        for j, t in enumerate(targets):
            parts.append(_explained(_pair(tape, graph, t, one), f"the target{pytree.path(target_structure, j)}", label))
    if len(parts) == 1:
        return parts[0]
    n = max(len(targets), 1)
    connected = all(any(part.connected for part in parts[k * n : k * n + n]) for k in range(len(sources)))
    first = next((part for part in parts if not part.connected), None)
    text = "\n\n".join(part.text for part in parts) or "there is nothing to explain: no target, or no source"
    if connected or first is None:
        return Explanation(connected, "connected", text, parts=tuple(parts))
    return Explanation(False, first.reason, text, first.op, first.place, first.path, tuple(parts))


def unconnected(tape: GradientTape, method: str, target: PyTree, source: PyTree, path: str) -> ValueError:
    """Return the error for `unconnected_gradients="error"`."""
    graph = graph_of(tape)
    whys = [_pair(tape, graph, t, source) for t in pytree.flatten(target)[0]]
    why = next((why for why in whys if isinstance(why, _Why)), None)
    if why is None or not all(isinstance(one, _Why) for one in whys):
        why = _Why(
            "no-gradient",
            "the tape recorded a path from one to the other, but an op on it gave no gradient, as a custom_gradient "
            "that returns None",
        )
    found = _explained(why, "the target", f"the source {_label(source, path)}")
    return ValueError(f"{method}: {found.text}")


# -- words


def _label(value: object, path: str) -> str:
    if not isinstance(value, Tensor):
        return f"{type(value).__name__}{path}"
    what = f"Variable {value.name!r}" if isinstance(value, Variable) and value.name else type(value).__name__
    place = value.backend.place(value._array)  # how it is divided, if it is
    return f"{what}{path} of shape {value.shape}, dtype {value.dtype}" + (f", {place}" if place else "")


def _explained(found: _Why | list[Step], target: str, source: str) -> Explanation:
    if isinstance(found, _Why):
        unknown = found.reason == "used"  # the records are gone
        said = "it is not known whether {} depends on {}" if unknown else "{} does not depend on {}"
        lines = [f"{said.format(target, source)}: {found.text}"]
        if found.place is not None:
            lines.append(indent(str(found.place), "  "))
        return Explanation(False, found.reason, "\n".join(lines), found.op, found.place, found.path)
    text = f"{target} depends on {source}, by {len(found)} op{'s' * (len(found) != 1)}{':' * bool(found)}"
    shown = [f"  {step}" for step in found]
    if len(shown) > _SHOWN:
        half = _SHOWN // 2
        shown[half:-half] = [f"  ... {len(shown) - 2 * half:,} more ..."]
    return Explanation(True, "connected", "\n".join([text, *shown]), path=tuple(found))


def _steps(nodes: Sequence[Node]) -> list[Step]:
    return [
        Step(n.name, n.spec[0] if n.spec else None, n.spec[1] if n.spec else None, n.place, n.layout) for n in nodes
    ]


# -- one target and one source


def _pair(tape: GradientTape, graph: Graph, target: PyTree, source: PyTree) -> _Why | list[Step]:
    """Return the path from source to target, or the reason why there is none."""
    if (why := _no_tensor(target, "target") or _no_tensor(source, "source")) is not None:
        return why
    if target is source and source.dtype.inexact:
        return []
    at = view(tape)
    if isinstance(source, Variable):
        slots = at.variables.get(id(source), (None, ()))[1]
    else:
        slot = source._slots.get(at.key)
        slots = () if slot is None else (slot,)
    reached_target = target._slots.get(at.key)
    slots = tuple([slot for slot in slots if slot < len(graph.nodes)]) if graph.nodes else slots
    if reached_target is not None and reached_target < len(graph.nodes):
        if reached_target in slots:
            return []
        if reached_target in graph.reached_from(slots):
            return _steps(graph.path(slots, reached_target))
    if not source.dtype.inexact:
        text = f"its dtype {source.dtype} has no derivative; use a floating one, such as dtype=float32"
        return _Why("dtype", text)
    if not slots:
        return _dropped(tape, source) or _not_watched(tape, at, source)
    if at.used and at.generation is None and reached_target is not None:
        return _Why(
            "used",
            "the records are gone, the tape has been used for its one gradient: ask before gradient(), or open the "
            "tape with persistent=True or debug=True",
        )
    if at.generation is not None and (why := _by_notes(graph, at.generation, target, source, slots)) is not None:
        return why
    return _dropped(tape, target) or _by_slots(graph, at, target, slots, reached_target)


def _no_tensor(value: object, what: str) -> _Why | None:
    if isinstance(value, Tensor):
        return None
    if value is None:
        text = f"the {what} is None; was it the gradient of something unconnected?"
    elif isinstance(value, IndexedSlices):
        text = f"the {what} is IndexedSlices; use its densify()"
    else:
        text = f"the {what} is {_a(type(value).__name__)}, which no tape knows"
        if what == "target":
            text += ": it was computed outside of Tape, or left it by numpy(), item(), float() or the like"
        else:
            text += ": make a Tensor of it first, x = tape_core.asarray(...), tape.watch(x), and compute with x"
    return _Why("not-a-tensor", text)


def _a(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def _not_watched(tape: GradientTape, at: View, source: Tensor) -> _Why:
    if isinstance(source, Variable):
        if not source.trainable:
            text = "it was made with trainable=False, so tapes watch it only when tape.watch names it"
        elif not tape._watch_accessed:
            text = "the tape has watch_accessed_variables=False and tape.watch did not name it before it was read"
        else:
            text = "it was not read inside the tape's context, or the target was not computed from that value"
    else:
        text = (
            "it was not watched (tape.watch(x) inside the context, before it is used). If it was a Variable once: "
            "v = v - delta puts a Tensor in its place; v.assign_sub(delta) changes its value"
        )
    generation, place = at.generation, None
    if generation is not None and (number := generation.known(source._array)) is not None:
        producer = generation.producers[number]
        used = next((call for call in generation.calls if number in call.inputs), None)
        if producer is not None:
            text += f". {producer.name} computed it from what was not watched either"
            place = producer.place
        elif used is not None:
            text += f". It is used, by {used.name}, here:"
            place = used.place
    return _Why("not-watched", text, place=place)


def _dropped(tape: GradientTape, value: Tensor) -> _Why | None:
    """Return the reason "reset" if the tape knew a value before it dropped its records."""
    if tape._used or getattr(tape, "_old_key", -1) not in value._slots:
        return None
    return _Why(
        "reset",
        "it was recorded before the tape dropped its records, by reset() or by being entered again after gradient()",
    )


def _by_slots(graph: Graph, at: View, target: Tensor, slots: tuple[int, ...], reached: int | None) -> _Why:
    """Return the reason as far as the records alone show it, without `debug=True`."""
    if reached is not None and graph.nodes:
        leaves = [graph.nodes[i] for i in sorted(graph.leading_to([reached])) if graph.nodes[i].kind != "op"]
        known = ", ".join(_leaf(node) for node in leaves[:5]) + f" and {len(leaves) - 5} more" * (len(leaves) > 5)
        text = f"the target was computed from other values: {known or 'none that is watched'}"
        if at.generation is None:
            text += f". If it should depend on the source, a path is cut, as by numpy() or stop_gradient: {_DEBUG}"
        return _Why("independent", text)
    if any(key in LIVE and key != at.key for key in target._slots):
        text = "another tape recorded it, at a time when this one did not record"
        return _Why("another-tape", text)
    if at.generation is not None:
        text = (
            "it was not computed in this tape's context: before it, after it, or from numbers and arrays that are no "
            "Tensors"
        )
        return _Why("outside", text)
    if not target.dtype.inexact:
        text = f"the target has dtype {target.dtype}, which has no derivative: an op or a cast made it"
        return _Why("integer-cast", f"{text}; {_DEBUG}")
    consumers = [node for node in graph.nodes if not set(slots).isdisjoint(node.inputs)]
    use = "nothing that was recorded uses the source"
    if consumers:
        names = ", ".join(dict.fromkeys(node.name for node in consumers[:5]))
        use = f"the source is used by {names}, which does not lead there"
    text = (
        f"the tape did not record the target, and {use}. It was computed outside of the context, or before the source "
        f"was watched, or the path is cut: by numpy(), item() or float(), by a cast to integers, by an op without a "
        f"derivative, by stop_gradient, in stop_recording, or by an assignment to a Variable; {_DEBUG}"
    )
    return _Why("cut", text)


def _leaf(node: Node) -> str:
    name = f"Variable {node.name!r}" if node.kind == "variable" and node.name != "Variable" else (
        "a Variable" if node.kind == "variable" else "a watched Tensor"
    )  # fmt: skip
    return name if node.spec is None else f"{name} of shape {node.spec[0]}"


# -- with the journal of a debugging tape


def _by_notes(
    graph: Graph, generation: Generation, target: Tensor, source: Tensor, slots: tuple[int, ...]
) -> _Why | None:
    """Find where the path is cut, from all noted calls, recorded or not; None where they do not show it."""
    forward = graph.reached_from(slots)
    entries = generation.entries
    by_call: dict[int, list[int]] = {}
    numbers = set(generation.values.get(id(source), ()))
    if (own := generation.known(source._array)) is not None:
        numbers.add(_before_assignment(generation, own, source))
    slot_of: dict[int, int] = dict.fromkeys(numbers, slots[0])
    for slot, entry in enumerate(entries):
        if entry.call is None:
            continue
        by_call.setdefault(id(entry.call), []).append(slot)
        if slot in forward:
            for number in entry.call.outputs if entry.part is None else (entry.call.outputs[entry.part],):
                numbers.add(number)
                slot_of.setdefault(number, slot)
    end = generation.known(target._array)
    needed = _leading_to(generation, end)
    cuts = []
    for call in generation.calls:
        if needed.isdisjoint(call.outputs):
            continue
        recorded = by_call.get(id(call), [])
        if any(slot in forward for slot in recorded):
            continue
        taken = next((number for number in (*call.inputs, *call.extra) if number in numbers), None)
        if taken is not None:
            cuts.append((taken, call))
    if cuts:
        number, call = cuts[0]
        path = _steps(graph.path(slots, slot_of[number]))
        return _cut(generation, number, call, slots, tuple(path), more=len(cuts) - 1)
    producer = None if end is None else generation.producers[end]
    calls = len(generation.calls)
    if end is not None and end in numbers:
        left = _last(generation.events, {end}, calls)  # the target has a value that the tape knows, as another Tensor
    else:
        left = _last(generation.events, numbers, calls if producer is None else producer.order)
    if left is None:
        return None
    steps = tuple(_steps(graph.path(slots, slot_of[left.number])))
    return _Why(_reason(left), _words(left), left.how, left.place, steps)


def _before_assignment(generation: Generation, number: int, source: Tensor) -> int:
    """Return the number that a source had before its array was assigned to a Variable: nothing flows on from there."""
    call = generation.producers[number]
    while call is not None and call.op is None and call.inputs and not isinstance(source, Variable):
        before = call.inputs[-1]
        if before is None:
            break
        number = before
        call = generation.producers[number]
    return number


def _leading_to(generation: Generation, end: int | None) -> set[int]:
    """Return the numbers of all values that a value was computed from, recorded or not, and its own."""
    if end is None:
        return set()
    found, todo = {end}, [end]
    while todo:
        call = generation.producers[todo.pop()]
        if call is not None:
            for number in (*call.inputs, *call.extra):
                if number is not None and number not in found:
                    found.add(number)
                    todo.append(number)
    return found


def _last(events: Sequence[Event], numbers: set[int], order: int) -> Event | None:
    return next((e for e in reversed(events) if e.number in numbers and e.order <= order), None)


def _reason(event: Event) -> str:
    return "stop_gradient" if event.how == "stop_gradient" else "left"


def _words(event: Event) -> str:
    if event.how == "stop_gradient":
        return "stop_gradient makes a constant of it, here:"
    if event.how in ("array", "__dlpack__"):
        return (
            f"its values are taken out by {event.how}, which carries no path; what is computed from them is constant:"
        )
    return f"its values leave Tape by {event.how}, and what is computed from them is a constant to the tape:"


def _cut(
    generation: Generation,
    number: int,
    call: Call,
    slots: tuple[int, ...],
    path: tuple[Step, ...],
    more: int,
) -> _Why:
    """Say why nothing flows from a value through a call."""
    also = f" ({more} more path{'s are' if more > 1 else ' is'} cut)" if more else ""

    def why(reason: str, text: str, op: str | None = call.name, place: Place = call.place) -> _Why:
        return _Why(reason, text + also, op, place, path)

    op = call.op
    if op is None:
        return why("assigned", f"{call.name} takes the values only: nothing flows through an assignment")
    flowing = [k for k, n in enumerate(call.inputs) if n == number and (op.sequence or k in op.compiled)]
    if not flowing:
        named = [op.input_name(k) for k, n in enumerate(call.inputs) if n == number]
        where = f" for {named[0]!r}" if named and len(op.inputs) > 1 and op.compiled else ""
        where = where or (" for what it takes as a parameter, such as an index" if not named else "")
        because = f": {op.reason}" if op.reason else ""
        return why("non-differentiable", f"{op.name} has no derivative{where}{because}")
    if not any(_inexact(dtype) for _, dtype in call.specs):
        return why("integer-cast", f"{op.name} makes {call.specs[0][1]} of it, which has no derivative")
    if call.paused:
        return why("stop_recording", f"{op.name} was called while the tape was stopped, by stop_recording()")
    event = _last(generation.events, {number}, call.order)
    if event is not None:
        return why(_reason(event), _words(event), event.how, event.place)
    entries = generation.entries
    watched = min((entries[slot].order for slot in slots if entries[slot].call is None), default=0)
    if call.order < watched:
        return why("watched-late", f"{op.name} used it before tape.watch named it")
    return why("cut", f"{op.name} was not recorded: it got the value as a Tensor that this tape does not know")


def _inexact(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype
