"""A compiled function that is called inside a tape's block: one record, of which both directions are compiled.

The function is traced with a tape of its own, which watches what the tape around it watches, and the trace continues
through that tape's backward sweep (`trace.py`): a joint program, as in PyTorch's AOTAutograd. It is partitioned
(`partition.py`) into a program for the call, which also returns residuals, and one for the derivative. The outer sweep
passes the cotangents that the inputs have so far, and the derivative adds to them in the order of the function's own
records: only so do gradients have the bits of eager ones, since addition of floats is not associative.

A derivative that is not compiled is computed by running the function again, under a tape (`record.py`): for instance
the first one for a new pattern of cotangents, and every one that is itself recorded, which must consist of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from tape_core import Tensor, random
from tape_core.backends import BackendMismatchError
from tape_core.staging import TracingError
from tape_core.support import warn_user

from tape_compile import thresholds
from tape_compile.cache import Traces, notify_on_end, remember
from tape_compile.cache_key import SLICES, TENSOR, Args, Kwargs, Signature, Static, arguments_of, call_with_static
from tape_compile.codegen.executable import load_compiler
from tape_compile.events import compiling, traced
from tape_compile.results import check_containers
from tape_compile.turns import tracing_turn
from tape_compile.under_tape.record import recorded_call
from tape_compile.under_tape.trace import Joint, Pattern

if TYPE_CHECKING:
    from tape_core import GradientTape

    from tape_compile.compilers import Compiler
    from tape_compile.function import Function


class UnderTape:
    """The traces of one compiled function for calls inside tapes' blocks.

    The first call of a kind runs as plain Python, and the second is traced: many functions are called once in a tape,
    and tracing both directions takes several times as long as a call.

    Attributes:
        known: the traces by kind of call, newest first.
    """

    def __init__(
        self, function: Function[..., Any], name: str, options: dict[str, bool], how: str | Compiler | None
    ) -> None:
        # A weak reference: the function owns this object, and a cycle would keep its constants until collection.
        self._function = ref(function)
        self._lock = function._lock
        self.name = name
        self.options = options
        self.how = how
        self.compiler = load_compiler(how)
        self.known: Traces[Joint] = Traces(function._compiled.most)
        self._patterns: dict[Any, set[Pattern]] = {}  # by kind of call, the patterns of cotangents that sweeps had
        self.refusals: dict[Any, str] = {}  # by cache key, why calls of the kind are not compiled
        self._eager: dict[Any, bool] = {}  # by kind, from its first call on: whether it always runs as plain Python

    @property
    def function(self) -> Function[..., Any]:
        """The compiled function, which exists while it is called."""
        found = self._function()
        assert found is not None
        return found

    def __call__(self, tape: GradientTape, args: Args, kwargs: Kwargs) -> Any:
        """Call the function inside the block of a tape."""
        signature, static, with_kwargs = self.function._split_call(args, kwargs)
        signature.upload()
        key = tape._key
        slots: dict[int, int] = {}  # of watched arguments, to their ids; Tensors with one slot have one id
        watched = [
            None if kind != TENSOR or (slot := leaf._slots.get(key)) is None else slots.setdefault(slot, len(slots))
            for leaf, kind in zip(signature.leaves, signature.kinds, strict=True)
        ]
        # The watched arguments are those with derivatives, so they are part of the cache key.
        kind = signature.key, tuple(watched), tape._special
        joint = next((joint for joint in self.known.get(kind, ()) if joint.fits(tape)), None)
        if joint is None:
            joint = self._trace(kind, tape, signature, static, with_kwargs, watched)
        if joint is not None:
            joint.recent = True
            if tape._cuts is not None and any([number is not None for number in watched]):
                tape._cuts.merge(joint.cuts)
            # Nothing to differentiate: the code for calls outside of tapes does, once the tape knows which Variables
            # it reads.
            if not joint.inputs:
                joint.read(tape)
                return self.function._call_compiled(signature, static, with_kwargs, args, kwargs)
            if joint.backend.is_strict:
                return self.function._run_eagerly(args, kwargs)
            found = recorded_call(joint, tape, signature.leaves)
            if found is not NotImplemented:
                return found
        return self.function._run_eagerly(args, kwargs)

    @property
    def compiled(self) -> list[Joint]:
        """The traces with code of their own."""
        return [joint for joint in self.known.all if joint.inputs]

    def _trace(
        self,
        kind: tuple[Hashable, ...],
        tape: GradientTape,
        signature: Signature,
        static: Static,
        with_kwargs: bool,
        watched: Sequence[int | None],
    ) -> Joint | None:
        """Trace the function for calls of a kind; None where it is to run as plain Python."""
        eager = self._eager.get(kind)
        if eager is None:
            # False: the next call of the kind is traced. With IndexedSlices among the arguments there is no joint
            # trace.
            remember(self._eager, kind, SLICES in signature.kinds, thresholds.MAX_CALL_KINDS)
        if eager is not False:
            return None

        structure = signature.structure  # the closure below must not keep the leaves alive

        python_function, with_names, name = self.function.python, self.function._signature, self.name

        def python(leaves: list[Any]) -> Any:
            args, kwargs = arguments_of(structure, leaves, with_kwargs)
            result = call_with_static(python_function, with_names, args, kwargs, static)
            if args or kwargs:
                check_containers(name, structure, leaves, (args, kwargs) if with_kwargs else args)
            return result

        with tracing_turn(self._lock) as turn:
            if not turn:
                return None
            # Another thread may have traced it while this one waited.
            joint = next((joint for joint in self.known.get(kind, ()) if joint.fits(tape)), None)
            if joint is not None or self._eager.get(kind):
                return joint
            self.function._check_retraces(len({key for key, *_ in list(self.known)} - {signature.key}))
            # Tracing runs the function besides the call itself: the numbers that it draws are given back.
            bits = random.get_state()
            why = ""  # not the error, which holds this frame
            began = perf_counter()
            try:
                with compiling(self.name, signature):
                    joint = Joint(self, kind, python, tape, signature, watched, self._patterns.get(kind, set()))
            except Exception as error:  # noqa: BLE001 - the plain run raises the user's own errors
                moved = isinstance(error, BackendMismatchError) and self.function._move_host_data(signature, error)
                if not moved:  # else the next call has another key
                    remember(self._eager, kind, True, thresholds.MAX_CALL_KINDS)
                    if isinstance(error, TracingError):
                        why = str(error)
                joint = None
            finally:
                random.set_state(bits)
            if joint is None:
                # After the trace: a warning may be an error of the user's.
                if why:
                    self._say(signature.key, why)
                return None
            joint.gone = notify_on_end(
                [leaf for leaf in signature.leaves if type(leaf) is not Tensor], self._forget(kind)
            )
            if joint.inputs:
                traced(self.name, joint, signature, len(self.compiled), began, " inside a tape's block")
            self.known.add(kind, joint)
            return joint

    def _say(self, key: Hashable, why: str) -> None:
        """Note why calls with a cache key run as plain Python, and warn once, if the function is allowed to do so."""
        function = self.function
        if function._fallback and key not in function._eager and key not in self.refusals:
            remember(self.refusals, key, why, thresholds.MAX_CALL_KINDS)
            if function._fallback != "silent":
                warn_user(
                    f"{why}\n{self.name} is not compiled for these arguments inside tapes' blocks, and runs as plain "
                    f"Python there."
                )

    def _forget(self, kind: tuple[Hashable, ...]) -> Callable[[], None]:
        """Return a callback that drops the traces of a kind whose arguments are gone, so that it cannot occur again."""
        owner = ref(self)

        def forget() -> None:
            if (found := owner()) is not None:
                for known in (found.known, found._patterns, found._eager):
                    known.pop(kind, None)
                found.refusals.pop(kind[0], None)

        return forget

    def on_missing_derivative(self, joint: Joint, pattern: Pattern) -> None:
        """A derivative was needed that is not compiled: the next call is traced for its pattern, too."""
        with self._lock.now:
            patterns = {*self._patterns.get(joint.kind, ()), *joint.used, pattern}
            remember(self._patterns, joint.kind, patterns, thresholds.MAX_CALL_KINDS)
            # Dropped, and so traced again for all patterns that were met. Beyond the limit, further ones run the
            # function again.
            if len(patterns) <= thresholds.MAX_DERIVATIVES:
                self.known.remove(joint.kind, joint)
