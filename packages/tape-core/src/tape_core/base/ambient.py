"""The ambient state of Tape: all its context variables, in one place.

A context variable has a value for each thread and each asyncio task, so programs that run side by side do not see each
other's tapes. All of them are made here, set by `tape_core.base.contexts.setting` or by the class in the second column,
and have their default where nothing is going on.

====================  ==============================================  =================================================
name                  is set by                                       is read by
====================  ==============================================  =================================================
`ACTIVE`              `engine.recording`: tapes and accumulators,     every call of an op, every read of a Variable:
                      in the order in which they were entered; what   these recorders are told of it
                      hides them for a while: sweeps that are not
                      recorded, functions with own derivatives
`OBSERVERS`           `transforms.closures`, `transforms.loops`,      assignments and random draws, wherever they happen
                      around functions that will run once more
`FORMER`              `base.undoing`, around plain Python functions    assignments to Variables, host numbers and
                      that take the place of compiled ones            optimizers: what they were before is kept
`BINDINGS`            `engine.binding`, around functions that read    reads of Variables and assignments to them, while
                      Variables with other values                     there is a binding in the process
`STAGE`               a compiler, while it traces a function          everything that must do something else in a trace,
                                                                      by `staging.current()`
`OPEN_AXES`           `vmap`, and derivatives that need the axes of   ops on batched arrays, random numbers, functions
                      a vmap that has ended                           with own derivatives
`INNER_AXES`          `modes.function_op`, while it computes a        derivatives of loops and branches
                      derivative from outside of some vmaps
`MASKED`              a sweep, around the derivative of a function    that derivative, if it is a sweep, too
                      that is one record
`REPLAY`              `checkpoint` with a policy                      kernels that the policy names
`READY`               `tape_torch.distributed`, around the gradient   that gradient, which tells when that of a source
                      of a tape                                       is final
`OWN_DERIVATIVE`      functions with own derivatives                  `engine.cuts`, where values leave Tape in these
`UNROLLED_STEPS`      loops that are unrolled                         loops inside them
`SELECTIONS`          `use_backend`                                   functions that create arrays
`KEEP_MODULES`        `engine.pytree.flatten_whole`                   Modules, where a tree is flattened
`STAND_INS`           `random.standing_in`, around calls with         draws from generators
                      given states of generators
`MAKING`              `meshes.draws`, around functions whose results  draws of this shape from generators
                      are made in parts
`LOADING`             `backends.discovery`, while it loads a plugin   `ArrayAPIBackend`, which checks names later then
`PROGRESS`            `base.progress.progress_of`, around long work   what is done in it, to say how far it is
====================  ==============================================  =================================================

Other state that all threads share:

==============================  ==================================================================================
`engine.recording.LIVE`         the keys of recorders that exist: slots under other keys mean nothing any more
`engine.op.registry`            all ops by name
`engine.op.BOUND`               each pair of an op and a backend that were bound to each other
`engine.op._interceptors`       wrappers around the kernels of all ops: those of debugging tapes
`backends.kernels`              `DEFAULT_KERNELS` and `EXTENSIONS`: the kernels of ops outside the standard
`random._global`                the generator that `set_seed` seeds
==============================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape_core.backends.selection import Selection
    from tape_core.base.progress import Task
    from tape_core.engine.levels import Axis
    from tape_core.engine.recording import Recorder
    from tape_core.meshes.draws import Making
    from tape_core.modes.replay import Session
    from tape_core.random import Generator
    from tape_core.staging import Stage

ACTIVE: ContextVar[tuple[Recorder, ...]] = ContextVar("tape_core.active", default=())
OBSERVERS: ContextVar[tuple[Recorder, ...]] = ContextVar("tape_core.observers", default=())
"""They are apart from `ACTIVE`, since a trace, or a function with a derivative of its own, hides what is active from
ops, while its effects happen all the same."""

FORMER: ContextVar[tuple[dict[tuple[int, str], tuple[Any, str, Any]], ...]] = ContextVar("tape_core.former", default=())
"""By the ids of objects and the names of their attributes: the objects, the names, the values from before."""

BINDINGS: ContextVar[dict[int, Any] | None] = ContextVar("tape_core.bindings", default=None)
"""By the ids of Variables and host numbers: a `Bound`, or a `BoundNumber`."""

STAGE: ContextVar[Stage | None] = ContextVar("tape_core.stage", default=None)
OPEN_AXES: ContextVar[tuple[Axis, ...]] = ContextVar("tape_core.open_axes", default=())
INNER_AXES: ContextVar[tuple[Axis, ...]] = ContextVar("tape_core.inner_axes", default=())
MASKED: ContextVar[int] = ContextVar("tape_core.masked", default=0)
"""How far the masks reach that the cotangents of the function's results have come through."""

REPLAY: ContextVar[Session | None] = ContextVar("tape_core.replay", default=None)
READY: ContextVar[Callable[[int, Any], Any] | None] = ContextVar("tape_core.ready", default=None)
"""Called with the number of the source, and its gradient."""

OWN_DERIVATIVE: ContextVar[bool] = ContextVar("tape_core.own_derivative", default=False)
UNROLLED_STEPS: ContextVar[int] = ContextVar("tape_core.unrolled_steps", default=1)
SELECTIONS: ContextVar[tuple[Selection, ...]] = ContextVar("tape_core.selections", default=())
KEEP_MODULES: ContextVar[bool] = ContextVar("tape_core.keep_modules", default=False)
STAND_INS: ContextVar[dict[int, Generator]] = ContextVar("tape_core.stand_ins", default={})  # noqa: B039 - never changed
"""By the ids of the generators that others stand for."""

MAKING: ContextVar[Making | None] = ContextVar("tape_core.making", default=None)
LOADING: ContextVar[bool] = ContextVar("tape_core.loading", default=False)
PROGRESS: ContextVar[Task | None] = ContextVar("tape_core.progress", default=None)
