"""A compiled function that is called inside a tape's block: one record, of which both directions are compiled.

The function is traced with a tape of its own, which watches what the tape around it watches, and the trace goes on
through that tape's backward sweep (`joint.py`). The program is then taken apart (`partition.py`): one for the call,
which also gives what the derivative needs, and one for the derivative. The sweep around hands over what has come to the
inputs so far, too, and the derivative adds to it in the order of the function's own records: so gradients have the bits
of eager ones.

What is not compiled is computed by running the function again, under a tape (`joint_call.py`): the first derivative for
other results than before, say, and every one that is itself recorded, which must be made of ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tape_core import random
from tape_core.compiled.joint import Joint, Pattern
from tape_core.compiled.joint_call import recorded_call
from tape_core.compiled.signature import SLICES, TENSOR, Signature, arguments_of

if TYPE_CHECKING:
    from tape_core.compiled.function import Function
    from tape_core.tape import GradientTape

_MANY = 4  # derivatives that one trace is made for
_KINDS = 1000  # kinds of calls that are remembered: a Python number among the arguments makes many


class InTapes:
    """What a function became that is called inside tapes' blocks; there is one for each compiled function.

    The first call of a kind runs as it is, and the second is traced.

    Attributes:
        known: the traces by kind of call, newest first.
    """

    def __init__(self, function: Function, name: str, options: dict[str, bool]) -> None:
        self.function = function
        self.name = name
        self.options = options
        self.known: dict[Any, list[Joint]] = {}
        self._patterns: dict[Any, set[Pattern]] = {}  # those that were asked for
        self._as_it_is: dict[Any, bool] = {}  # by kind, from its first call on

    def __call__(self, tape: GradientTape, args: Any, kwargs: Any) -> Any:
        """Call the function."""
        signature, static, with_kwargs = self.function._taken_apart(args, kwargs)
        key = tape._key
        slots: dict[int, int] = {}  # of what is watched among the arguments, with their numbers
        watched = [
            None if kind != TENSOR or (slot := leaf._slots.get(key)) is None else slots.setdefault(slot, len(slots))
            for leaf, kind in zip(signature.leaves, signature.kinds, strict=True)
        ]
        kind = signature.key, tuple(watched), tape._complex
        joint = next((joint for joint in self.known.get(kind, ()) if joint.fits(tape)), None)
        if joint is None:
            joint = self._traced(kind, tape, signature, static, with_kwargs, watched)
        if joint is not None:
            if not joint.inputs:
                joint.read(tape)
                return self.function._unrecorded(signature, static, with_kwargs, args, kwargs)
            found = recorded_call(joint, tape, signature.leaves)
            if found is not NotImplemented:
                return found
        return self.function.python(*args, **kwargs)

    @property
    def compiled(self) -> list[Joint]:
        """The traces that became code."""
        return [joint for several in self.known.values() for joint in several if joint.inputs]

    def _traced(
        self, kind: Any, tape: GradientTape, signature: Signature, static: Any, with_kwargs: bool, watched: Any
    ) -> Joint | None:
        """The function traced for calls of a kind; None where it is to run as it is."""
        if kind not in self._as_it_is:
            if len(self._as_it_is) == _KINDS:
                del self._as_it_is[next(iter(self._as_it_is))]
            self._as_it_is[kind] = SLICES in signature.kinds
            return None
        if self._as_it_is[kind]:
            return None

        structure = signature.structure  # and not the leaves, which need not live longer

        def python(leaves: list[Any]) -> Any:
            return self.function._called(*arguments_of(structure, leaves, with_kwargs), static)

        self.function._check_number(len({name for name, *_ in self.known} - {signature.key}))
        bits = random.get_state()
        try:
            with self.function._lock:
                joint = Joint(self, kind, python, tape, signature, watched, self._patterns.get(kind, set()))
        except Exception:  # noqa: BLE001 - what is wrong with the function it says itself, and a rule where it is needed
            self._as_it_is[kind] = True
            return None
        finally:
            random.set_state(bits)
        self.known.setdefault(kind, []).insert(0, joint)
        return joint

    def asked(self, joint: Joint, pattern: Pattern) -> None:
        """A derivative was asked for that is not compiled: the next call is traced for it, too."""
        patterns = self._patterns.setdefault(joint.kind, set())
        patterns |= {*joint.used, pattern}
        if len(patterns) <= _MANY:
            self.known[joint.kind] = [one for one in self.known[joint.kind] if one is not joint]
