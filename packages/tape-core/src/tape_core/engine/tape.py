"""GradientTape: records what is computed from watched values, and differentiates it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tape_core.base.ambient import ACTIVE
from tape_core.base.contexts import contextmanager
from tape_core.base.lookup import tool
from tape_core.base.mistakes import flag
from tape_core.base.reprs import lenient, lenient_html
from tape_core.base.user_code import warn_user
from tape_core.engine import binding, pytree, recording
from tape_core.engine.arguments import check_tensors, check_unconnected, cotangents_for
from tape_core.engine.backward import gradients
from tape_core.engine.cuts import on_derivative
from tape_core.engine.indexed_slices import IndexedSlices, dense
from tape_core.engine.recording import LIVE, new_key, special_dtype
from tape_core.engine.tensor import Tensor, own_slots, wrap
from tape_core.engine.variable import Variable
from tape_core.typing import PyTree, Raw, Record, Records, Slot, Slots

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.debugging import Drawing, Explanation, Float64Origins, Summary
    from tape_core.debugging.journal import Journal
    from tape_core.engine.cuts import Cuts
    from tape_core.engine.op import Op

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V", bound=Tensor)

_PURGE_ABOVE = 8  # slots; from a value with more, those of tapes that are gone are dropped


class WatchError(TypeError, ValueError):
    """Something that is not a Tensor was to be watched. (A ValueError too, as TensorFlow raises.)"""


class GradientTape(recording.InBlock):
    """Records the operations on watched values, to differentiate them.

    Trainable Variables are watched when they are read inside the context, other values when
    :meth:`watch` names them.

    >>> import tape_core as tc
    >>> x = tc.asarray(3.0)
    >>> with tc.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> tape.gradient(y, x)
    Tensor(6.0, shape=(), dtype=float32, backend=numpy)

    Tapes nest, to any order:

    >>> with tc.GradientTape() as outer:
    ...     outer.watch(x)
    ...     with tc.GradientTape() as inner:
    ...         inner.watch(x)
    ...         y = x * x * x
    ...     first = inner.gradient(y, x)
    >>> outer.gradient(first, x)
    Tensor(18.0, shape=(), dtype=float32, backend=numpy)

    Args:
        persistent: keep the records after the first gradient, so that more can be asked for.
        watch_accessed_variables: watch trainable Variables when they are read; with False only what
            :meth:`watch` names is watched.
        debug: also note what is not recorded, the lines of your code, times and bytes, for :meth:`explain`,
            :meth:`summary` and :meth:`draw`, and raise a RuntimeError in a backward pass where an array of yours was
            written to after it was recorded. It slows recording down several times.
        check_numerics: raise :class:`~tape_core.debugging.NumericsError` at the first op, forward or backward, that
            makes a NaN or an infinity. It includes `debug`.
    """

    # _key: names this tape in the slots of tensors; a new one after reset() and release.
    # _variables: by id, those watched, each with its slots: one for each value that was read.
    # _past, _old_key: the variables and the key of the records that a gradient has used up, or reset() dropped.
    # _records: see tape_core.engine.record; None for a leaf. A value's slot is its place in this list.
    # _on_op: the list's `append`; on a debugging tape its journal's, see tape_core.debugging.journal.
    __slots__ = (
        "__weakref__",
        "_cuts",
        "_entered",
        "_journal",
        "_key",
        "_leaves",
        "_masked",
        "_old_key",
        "_on_op",
        "_past",
        "_persistent",
        "_records",
        "_sparse",
        "_special",
        "_starts_masked",
        "_used",
        "_variables",
        "_warned",
        "_watch_accessed",
    )

    _on_op: Callable[[Record | None], None]  # None is a leaf

    def __init__(
        self,
        persistent: bool = False,
        watch_accessed_variables: bool = True,
        debug: bool = False,
        check_numerics: bool = False,
    ) -> None:
        # Most are the defaults, for which no function is called: a small tape takes a few microseconds.
        self._persistent = persistent is not False and flag("GradientTape", "persistent", persistent)
        self._watch_accessed = watch_accessed_variables is True or flag(
            "GradientTape", "watch_accessed_variables", watch_accessed_variables
        )
        self._used = self._open = self._entered = False
        self._guard: Any = None
        self._warned = False
        self._cuts: Cuts | None = None
        self._journal: Journal | None = None
        self._variables: dict[int, tuple[Variable, tuple[int, ...]]] = {}
        self._past = self._variables
        self._begin()
        check_numerics = check_numerics is not False and flag("GradientTape", "check_numerics", check_numerics)
        if (debug is not False and flag("GradientTape", "debug", debug)) or check_numerics:
            self._journal = tool("Journal")(check_numerics=check_numerics)
            self._on_op = self._journal.begin(self._key, self._records)

    def __del__(self) -> None:
        try:  # noqa: SIM105 - `suppress` takes longer
            LIVE.discard(self._key)
        except AttributeError:  # it was not made
            pass

    def _begin(self) -> None:
        self._key = new_key()
        self._records: Records = []
        self._on_op = self._records.append
        self._leaves: list[int] = []
        # What the records met that the fast backward pass does not handle.
        self._sparse = False
        self._masked = self._starts_masked = self._special = 0

    def _clear(self) -> None:
        """Start afresh, under a new key, so that slots given out before mean nothing any more."""
        LIVE.discard(self._key)
        self._old_key = self._key
        self._past, self._variables = self._variables, {}
        self._begin()
        if self._journal is not None:
            self._on_op = self._journal.begin(self._key, self._records)

    # -- recording

    def __enter__(self) -> GradientTape:
        """Start to record, or go on.

        Raises:
            RuntimeError: the tape is recording already.
        """
        if self._open and recording.is_active(self):
            raise recording.RecordingError(
                "Tape is still recording, This can happen if you try to re-enter an already-active tape."
            )
        self._start()
        return self

    def _start(self) -> None:
        if self._used and not self._persistent:
            # As in TensorFlow: re-entered after its gradient, it is a fresh tape. What was watched since stays.
            self._used = False
            self._past = {}
        self._open = self._entered = True
        if self._journal is not None:
            self._journal.start()
        recording.activate(self)

    def _on_stop(self) -> None:
        if self._journal is not None:
            self._journal.stop()

    def reset(self) -> None:
        """Forget the records, the watches and the variables, and go on recording.

        Raises:
            RuntimeError: the tape is not recording.
        """
        if not recording.is_active(self):
            raise recording.RecordingError("Tape is not recording.")
        self._clear()
        self._past = {}

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Record nothing inside the block: `with tape.stop_recording(): ...`.

        Raises:
            RuntimeError: the tape is not recording.
        """
        if not recording.is_active(self):
            raise recording.RecordingError("Trying to stop recording a tape which is not recording.")
        try:
            recording.deactivate(self)
            yield
        finally:
            if not recording.is_active(self):
                self._start()

    def watch(self, tensor: PyTree) -> None:
        """Record what is computed from `tensor` from now on: a Tensor, a Variable or any pytree of them.

        Of :class:`IndexedSlices` it is the values that are watched.

        Raises:
            TypeError: a leaf is something else; then nothing is watched.
        """
        leaves, structure = pytree.flatten(tensor)
        for k, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                if isinstance(leaf, IndexedSlices):
                    leaves[k] = leaf.values
                    continue
                raise WatchError(
                    f"Passed in object {leaf!r}{pytree.path(structure, k)} of type {type(leaf).__name__!r}, not a "
                    f"Tensor or Variable; make a Tensor of it first: x = tape_core.asarray(...), tape.watch(x), and "
                    f"compute with x"
                )
        # After all checks: if one leaf is wrong, none is watched.
        for leaf in leaves:
            if not leaf.dtype.inexact:
                self._warn_of_dtype("watch", leaf)
            elif isinstance(leaf, Variable):
                self._watch_variable(leaf)
            elif self._key not in leaf._slots:
                self._watch_leaf(own_slots(leaf), special_dtype(leaf.backend, leaf.dtype))

    def watched_variables(self) -> tuple[Variable, ...]:
        """Return the Variables watched so far, in the order in which they were constructed."""
        # A gradient that has used up the records has moved the Variables to `_past`; users may ask for them still.
        variables = [entry[0] for entry in (self._past | self._variables).values()]
        return tuple(sorted(variables, key=lambda variable: variable._serial))

    def _watch_variable(self, variable: Variable) -> None:
        """Watch a variable from now on."""
        self._variables.setdefault(id(variable), (variable, ()))
        if self._key not in variable._slots:
            self._on_read(variable)

    def _watches(self, variable: Variable) -> bool:
        """Return whether a variable would have a gradient if it were read now."""
        watched = (self._watch_accessed and variable.trainable) or id(variable) in self._variables
        return watched and variable._inexact

    def _on_read(self, variable: Variable) -> int | None:
        """Watch a variable that was read, if it is to be watched: return its slot."""
        # By id, since `==` compares elements. The entry holds the Variable, so that no other one gets its id.
        name = id(variable)
        entry = self._variables.get(name)
        if self._cuts is not None:
            self._cuts.read.add(name)
        if entry is None and not (self._watch_accessed and variable.trainable):
            return None
        if variable._inexact:
            if binding.in_use:  # the value may be another one, of another dtype
                slot = self._watch_leaf(variable._slots, special_dtype(variable.backend, variable.dtype))
            else:
                slot = self._watch_leaf(variable._raw_slots, variable._special)
            # A new value of the variable is one more leaf: its gradient is the sum over them.
            self._variables[name] = (variable, (slot,) if entry is None else (*entry[1], slot))
            return slot
        if entry is None:
            self._variables[name] = (variable, ())
        return None

    def _watch_leaf(self, slots: Slots, what: int) -> int:
        """Give a leaf a slot: return it."""
        if len(slots) > _PURGE_ABOVE:
            for key in list(slots):  # a copy: other threads may write to it or do this too
                if key not in LIVE:
                    slots.pop(key, None)
        slots[self._key] = slot = len(self._records)
        self._on_op(None)
        self._leaves.append(slot)
        if what:
            self._special |= what
        return slot

    def _before_op(self, op: Op, backend: Backend, out: Raw, at: Sequence[Slot] = ()) -> None:
        if op.reach_of_mask > self._masked:
            self._masked = op.reach_of_mask
        if op.sparse and any([i is not None and self._records[i] is not None for i in at]):
            self._sparse = True  # a sparse cotangent ends at a leaf, or else it must be made dense on its way
        dtype = backend.dtype(out.dtype)
        if dtype.special:
            self._special |= special_dtype(backend, dtype)

    # -- derivatives

    # Who does not ask for None is given the type of a source that is connected; the others ask by name.
    @overload
    def gradient(
        self,
        target: PyTree,
        sources: Tensor,
        output_gradients: PyTree = None,
        unconnected_gradients: Literal["zero", "error"] = ...,
    ) -> Tensor: ...
    @overload
    def gradient(
        self,
        target: PyTree,
        sources: list[V],
        output_gradients: PyTree = None,
        unconnected_gradients: Literal["zero", "error"] = ...,
    ) -> list[Tensor]: ...
    @overload
    def gradient(
        self,
        target: PyTree,
        sources: tuple[Variable, ...],
        output_gradients: PyTree = None,
        unconnected_gradients: Literal["zero", "error"] = ...,
    ) -> tuple[Tensor, ...]: ...
    @overload
    def gradient(
        self,
        target: PyTree,
        sources: dict[K, V],
        output_gradients: PyTree = None,
        unconnected_gradients: Literal["zero", "error"] = ...,
    ) -> dict[K, Tensor]: ...
    @overload
    def gradient(
        self,
        target: PyTree,
        sources: T,
        output_gradients: PyTree = None,
        unconnected_gradients: Literal["zero", "error"] = ...,
    ) -> T: ...
    @overload
    def gradient(
        self, target: PyTree, sources: Tensor, output_gradients: PyTree = None, *, unconnected_gradients: str
    ) -> Tensor | None: ...
    @overload
    def gradient(
        self, target: PyTree, sources: list[V], output_gradients: PyTree = None, *, unconnected_gradients: str
    ) -> list[Tensor | None]: ...
    @overload
    def gradient(
        self,
        target: PyTree,
        sources: tuple[Variable, ...],
        output_gradients: PyTree = None,
        *,
        unconnected_gradients: str,
    ) -> tuple[Tensor | None, ...]: ...
    @overload
    def gradient(
        self, target: PyTree, sources: dict[K, V], output_gradients: PyTree = None, *, unconnected_gradients: str
    ) -> dict[K, Tensor | None]: ...
    @overload
    def gradient(
        self, target: PyTree, sources: T, output_gradients: PyTree = None, *, unconnected_gradients: str
    ) -> Any: ...
    def gradient(
        self,
        target: PyTree,
        sources: PyTree,
        output_gradients: PyTree = None,
        unconnected_gradients: str = "none",
    ) -> Any:
        """Return the gradient of the sum of `target` with respect to each of `sources`.

        Args:
            target: a Tensor, or any pytree of them, whose elements are all added up.
            sources: a Tensor or Variable, or any pytree of them: leaves or intermediate results.
            output_gradients: the cotangent of each leaf of `target`, of its shape; ones by default.
            unconnected_gradients: what to return for a source that `target` does not depend on: `"none"` (None),
                `"zero"` (zeros of the source's shape and dtype) or `"error"` (raise).

        Returns:
            The structure of `sources`; at each leaf a Tensor of the source's shape and dtype, or
            :class:`IndexedSlices` for a source that was only gathered from, or that is one: its values are those with
            respect to the values of the source, its indices the same. For a holomorphic f of a complex
            source it is conj(f'(z)), as in TensorFlow and PyTorch.

        Raises:
            RuntimeError: a second call on a tape that is not persistent.
            TypeError: a leaf of `target` or `sources` is not a Tensor.
            ValueError: `output_gradients` do not fit, or a source is unconnected and that is an error.
        """
        check_unconnected(unconnected_gradients)
        targets, target_structure = pytree.flatten(target)
        leaves, structure = pytree.flatten(sources)
        slices: Sequence[tuple[int, IndexedSlices]] = ()
        if structure is not None and structure is not list and structure is not tuple:
            slices = [(k, leaf) for k, leaf in enumerate(leaves) if isinstance(leaf, IndexedSlices)]
            for k, leaf in slices:
                leaves[k] = leaf.values
        check_tensors("gradient", "target", targets, target_structure)
        check_tensors("gradient", "sources", leaves, structure)
        cotangents = None
        if output_gradients is not None:
            cotangents = cotangents_for(targets, target_structure, output_gradients)
        self._begin_use("gradient")
        try:
            # What is to be explained must still be there.
            release = not self._persistent and unconnected_gradients != "error"
            results = gradients(self, targets, leaves, cotangents, release=release)
            if ACTIVE.get():
                on_derivative(targets, results)
            for k, result in enumerate(results):
                if result is None:
                    path = pytree.path(structure, k)
                    results[k] = self._unconnected("gradient", target, leaves[k], path, unconnected_gradients)
        finally:
            self._end_use()
        for k, source in slices:
            if results[k] is not None:  # of the values
                results[k] = IndexedSlices(dense(results[k]), source.indices, source.dense_shape)
        return pytree.unflatten(structure, results)

    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: Tensor,
        unconnected_gradients: Literal["zero", "error"] = ...,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Tensor: ...
    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: list[V],
        unconnected_gradients: Literal["zero", "error"] = ...,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> list[Tensor]: ...
    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: tuple[Variable, ...],
        unconnected_gradients: Literal["zero", "error"] = ...,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> tuple[Tensor, ...]: ...
    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: dict[K, V],
        unconnected_gradients: Literal["zero", "error"] = ...,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> dict[K, Tensor]: ...
    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: Tensor,
        *,
        unconnected_gradients: str,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Tensor | None: ...
    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: list[V],
        *,
        unconnected_gradients: str,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> list[Tensor | None]: ...
    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: tuple[Variable, ...],
        *,
        unconnected_gradients: str,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> tuple[Tensor | None, ...]: ...
    @overload
    def jacobian(
        self,
        target: Tensor,
        sources: dict[K, V],
        *,
        unconnected_gradients: str,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> dict[K, Tensor | None]: ...
    @overload
    def jacobian(
        self,
        target: PyTree,
        sources: PyTree,
        unconnected_gradients: str = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any: ...
    def jacobian(
        self,
        target: PyTree,
        sources: PyTree,
        unconnected_gradients: str = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivative of each element of `target` with respect to each element of `sources`.

        All rows at once: the backward pass runs on a batch of cotangents, as under :func:`~tape_core.vmap`.

        >>> import tape_core as tc
        >>> x = tc.asarray([1.0, 2.0])
        >>> with tc.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x[::-1]
        >>> tape.jacobian(y, x).tolist()
        [[2.0, 1.0], [2.0, 1.0]]

        Args:
            target: a Tensor, or any pytree of them.
            sources: a Tensor or Variable, or any pytree of them.
            unconnected_gradients: as for :meth:`gradient`.
            parallel_iterations: at most so many elements of the target at once, to use less memory; by default all.
            experimental_use_pfor: with False, one element after the other.

        Returns:
            The structure of `target`; at each leaf the structure of `sources`, with Tensors of shape
            `target.shape + source.shape`.

        Raises:
            RuntimeError, TypeError, ValueError: as :meth:`gradient`.
        """
        chunk = parallel_iterations if experimental_use_pfor else 1
        return tool("jacobian")(self, target, sources, unconnected_gradients, chunk, loop=not experimental_use_pfor)

    @overload
    def batch_jacobian(
        self,
        target: Tensor,
        source: Tensor,
        unconnected_gradients: Literal["zero", "error"] = ...,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Tensor: ...
    @overload
    def batch_jacobian(
        self,
        target: Tensor,
        source: Tensor,
        *,
        unconnected_gradients: str,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Tensor | None: ...
    def batch_jacobian(
        self,
        target: PyTree,
        source: PyTree,
        unconnected_gradients: str = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the Jacobian of each example: row k of `target` depends on row k of `source` only.

        >>> import tape_core as tc
        >>> x = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
        >>> with tc.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> tape.batch_jacobian(y, x).tolist()
        [[[2.0, 0.0], [0.0, 4.0]], [[6.0, 0.0], [0.0, 8.0]]]

        Args:
            target: a Tensor of shape `(b, *m)`.
            source: a Tensor of shape `(b, *n)`.
            unconnected_gradients, parallel_iterations, experimental_use_pfor: as for :meth:`jacobian`.

        Returns:
            A Tensor of shape `(b, *m, *n)`.

        Raises:
            ValueError: the numbers of examples differ, or there are no elements beside them.
            RuntimeError, TypeError: as :meth:`gradient`.
        """
        chunk = parallel_iterations if experimental_use_pfor else 1
        compute = tool("batch_jacobian")
        return compute(self, target, source, unconnected_gradients, chunk, loop=not experimental_use_pfor)

    # -- what it tells of itself

    def explain(self, target: PyTree, source: PyTree) -> Explanation:
        """Explain why the gradient of `target` with respect to `source` is None, or which ops connect the two.

        >>> import tape_core as tc
        >>> x = tc.asarray(3.0)
        >>> with tc.GradientTape() as tape:
        ...     y = x * x
        >>> tape.explain(y, x)
        the target does not depend on Tensor of shape (), dtype float32: it was not watched (tape.watch(x) inside ...

        A tape made with `debug=True` names the line where the path is cut, by what, and answers after its gradient was
        computed, too. Without it the answer is what the records tell. It is no use of the tape: ask as often as needed.

        Args:
            target, source: Tensors or Variables, or pytrees of them: then each pair is explained.
        """
        made: Explanation = tool("explain")(self, target, source)
        return made

    def summary(self) -> Summary:
        """Return a table of the records: for each op how many, their bytes, and with `debug=True` their times.

        >>> import tape_core as tc
        >>> x = tc.Variable([1.0, 2.0])
        >>> with tc.GradientTape() as tape:
        ...     y = tc.sum(tc.exp(x * x))
        >>> tape.summary().rows[0].op, tape.summary().total.count
        ('multiply', 3)
        """
        made: Summary = tool("summary")(self)
        return made

    def float64_origins(self) -> Float64Origins:
        """Return the ops of the block that make float64 (or complex128) of narrower floats, with your lines.

        What is computed further with their results is not listed. The tape has to be made with `debug=True`; it answers
        after its gradient was computed, too, and also of ops that it did not record.

        >>> import numpy as np, tape_core as tc
        >>> x = tc.Variable([1.0, 2.0])
        >>> with tc.GradientTape(debug=True) as tape:
        ...     y = tc.sum(tc.exp(x) * np.asarray([0.5, 1.5]))
        >>> [(origin.op, origin.operands, origin.result) for origin in tape.float64_origins()]
        [('multiply', ('float32', 'float64'), 'float64')]

        Raises:
            RuntimeError: the tape was made without `debug=True`.
        """
        made: Float64Origins = tool("float64_origins")(self)
        return made

    def draw(
        self,
        path: str | PathLike[str] | None = None,
        *,
        collapse: bool | Iterable[str] = False,
        max_nodes: int = 400,
        engine: str | None = None,
    ) -> Drawing:
        """Draw the recorded graph: notebooks show the picture, and it is written to `path` if that is given.

        Each node says op, shape, dtype, and with `debug=True` time and bytes, as far as they are known.

        Args:
            path: a file to write, of suffix `.svg`, or `.dot` for Graphviz.
            collapse: draw each call of these functions of yours as one node: their names, or True for those that the
                tape's block calls itself. It needs `debug=True`.
            max_nodes: of a larger graph the beginning and the end are drawn, and one node for what is between.
            engine: `"graphviz"` to have its program `dot` lay out the picture, `"plain"` to do without; by default
                Graphviz where it is installed.

        Raises:
            ValueError: there is no such suffix or engine, or the tape does not know functions.
            RuntimeError: Graphviz is asked for and not installed.
        """
        made: Drawing = tool("draw")(self, path, collapse, max_nodes, engine)
        return made

    @lenient
    def __repr__(self) -> str:
        made: str = tool("text")(self)
        return made

    @lenient_html
    def _repr_html_(self) -> str:
        made: str = tool("html")(self)
        return made

    def _begin_use(self, method: str) -> None:
        """Check that the records may be used for a derivative; called before."""
        if self._used and not self._persistent:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians)"
            )
        if not self._entered:
            raise RuntimeError(
                f"GradientTape.{method}: the tape has recorded nothing: compute inside its block, `with tape: y = f(x)`"
            )
        if recording.is_active(self):
            if self._persistent:
                warn_user(
                    f"GradientTape.{method}: called inside the context of a persistent tape, which records it; this "
                    f"is needed for higher-order derivatives only, and costs time and memory: call it after the block"
                )
            else:
                # As in TensorFlow: a tape that is not persistent stops recording when its gradient is asked for.
                recording.deactivate(self)

    def _end_use(self) -> None:
        """Drop the records of a tape that is not persistent; called after a derivative, also if it failed."""
        if not self._persistent:
            self._used = True
            self._clear()

    def _unconnected(
        self,
        method: str,
        target: PyTree,
        source: Tensor,
        path: str,
        unconnected_gradients: str,
        shape: tuple[int, ...] | None = None,
    ) -> Any:
        """Return the derivative, of this shape, with respect to a source on which the target does not depend."""
        if unconnected_gradients == "error":
            raise tool("unconnected")(self, method, target, source, path)
        if not source.dtype.inexact:
            self._warn_of_dtype(method, source)
        if unconnected_gradients == "none":
            return None
        array = source._array
        if shape is None:
            return wrap(source.backend.xp.zeros_like(array), source.backend)
        return wrap(source.backend.xp.zeros_beside(array, shape, dtype=array.dtype), source.backend)

    def _warn_of_dtype(self, method: str, tensor: Tensor) -> None:
        """Warn, once a tape, of a tensor that has no gradient."""
        if not self._warned:
            self._warned = True
            what = "Variable" if isinstance(tensor, Variable) else "asarray"
            warn_user(
                f"GradientTape.{method}: a tensor of dtype {tensor.dtype} has no derivative, its gradient is None; "
                f"make it with tape_core.{what}(..., dtype=tape_core.float32)"
            )
