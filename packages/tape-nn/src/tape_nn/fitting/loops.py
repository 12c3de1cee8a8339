"""`fit`, `evaluate` and `predict`: loops over batches of data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import tape_core as tc
from tape_core.random import global_rng
from tape_core.support import Task, contextmanager, integer, progress_of, pytree, sequence

from tape_nn.averaging import ExponentialMovingAverage
from tape_nn.checkpoints import Path
from tape_nn.fitting import run as steps
from tape_nn.fitting.callbacks import EarlyStopping, LearningRate, SaveBest
from tape_nn.fitting.data import Batch, Data, Divided, Source, source_of, unpack, with_class_weights
from tape_nn.fitting.progress import LOGGER, Progress
from tape_nn.fitting.resuming import RunFile
from tape_nn.fitting.run import History, LossLike, Run, Step
from tape_nn.generators import agree_on_random_states, random_states, set_random_states
from tape_nn.metrics import Metric
from tape_nn.module import Module
from tape_nn.naming import describe
from tape_nn.optimizers import LBFGS, GradientAccumulation, LossScaler, Optimizer, TransformOptimizer
from tape_nn.parallel import Strategy
from tape_nn.types import OptimizerLike


def fit(
    model: Module,
    data: Data,
    *,
    loss: LossLike | None = None,
    optimizer: OptimizerLike | Mapping[str, OptimizerLike] | None = None,
    epochs: int = 1,
    batch_size: int | None = None,
    metrics: Iterable[Metric] | Mapping[str, Metric] = (),
    validation: Data | None = None,
    callbacks: Sequence[object] = (),
    shuffle: bool = True,
    seed: int | None = None,
    class_weight: Mapping[int, float] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    progress: bool = True,
    train_step: Step | None = None,
    test_step: Step | None = None,
    compile: bool | str = False,
    accumulate: int = 1,
    average: ExponentialMovingAverage | None = None,
    parallel: Strategy | None = None,
) -> History:
    """Train a model: go through the data `epochs` times, with an update for each batch.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> tc.set_seed(0)
    >>> x = tc.linspace(-1.0, 1.0, 100)[:, None]
    >>> model = nn.Sequential([nn.Dense(16, activation="tanh"), nn.Dense(1)])
    >>> history = nn.fit(
    ...     model, (x, x**2), loss=nn.losses.MeanSquaredError(), optimizer=nn.Adam(0.03),
    ...     epochs=60, validation=(x, x**2), progress=False,
    ... )
    >>> history.epochs, list(history), history["val_loss"][-1] < 0.01
    (60, ['loss', 'val_loss'], True)

    With `checkpoint` the run can be killed at any time. The same program started again continues from the file, and
    ends with the same weights, to the bit, as without the interruption: the state of weights, optimizer, metrics,
    callbacks, random numbers and the order of the data is in the file. An iterable of batches, or a function that
    returns one, must yield the same batches for the same epoch.

    Args:
        model: a Module, called as `model(x)`. It is in training mode meanwhile, and afterwards as it was before.
        data: arrays `(x, y)` or `(x, y, weights)` with the examples along the first axis, where x and y may be nested;
            or a data set with `__len__` and `__getitem__`, as PyTorch's are, of examples `(x, y)` that are stacked;
            or an iterable of batches of this form; or a function from the epoch, counted from 0, to such an iterable.
            Arrays that are no Tensors are put where the model is. If layers have no Variables yet, the first batch is
            made once more, and the model called with it, before anything else.
        loss: a loss of :mod:`tape_nn.losses`, or a function of `y` and the predictions.
        optimizer: an optimizer, or a :class:`LossScaler`; or a dictionary of several, for a `train_step` that uses
            them.
        epochs: the total number of epochs; those before an interruption are included.
        batch_size: the number of examples in a batch, by default 32; the last batch may have fewer.
        metrics: metrics of :mod:`tape_nn.metrics`, in a list or by name. They are not weighted.
        validation: data like `data`, on which loss and metrics are computed after each epoch, as `"val_..."`.
        callbacks: objects with methods of :class:`Callback`, called in this order.
        shuffle: whether to permute the examples of arrays in each epoch.
        seed: seeds the permutations; by default it is drawn from the generator that `tc.set_seed` seeds.
        class_weight: factors for the weights of examples, by class.
        checkpoint: the path of a safetensors file that is written after each epoch.
        checkpoint_every: a number of steps after which the file is written as well.
        resume: whether to continue from the file if there is one; otherwise it is overwritten.
        progress: whether to show the progress on standard error, or in a notebook: a line of results for each epoch,
            and after two seconds how far the epoch is. With False, nothing that `fit` does is shown.
        train_step: a function of the :class:`~tape_nn.fitting.Run` and a batch that does the update in place of
            :func:`tape_nn.fitting.train_step`. It returns numbers by name; their means over the epoch go into the
            history. A Metric stands for its result.
        test_step: a function of the Run and a batch that is used for the validation in place of
            :func:`tape_nn.fitting.test_step`.
        compile: whether to compile the steps, those of the validation included, as :func:`tape_core.function` does; or
            the name of the compiler. The results are the same, on NumPy to the bit. Callbacks and the loading of data
            are not compiled. A `train_step` of your own is traced, so Python in it runs once for each shape of batch;
            the numbers `run.epoch`, `run.batch` and `run.step` are read anew in each step.
        accumulate: the number of batches for one update of the weights, which is that of one large batch of all their
            examples: the optimizers are wrapped in :class:`GradientAccumulation`. The last batches of an epoch make an
            update of their own. `run.step` and `checkpoint_every` go on counting batches.
        average: a moving average of the weights, which follows each update. The validation, and callbacks at the end of
            an epoch, such as :class:`SaveBest`, find the averages in the model; training goes on from the weights. It
            is part of the checkpoint.
        parallel: a strategy of :mod:`tape_nn.parallel`, by which the model and each batch are divided among several
            processes of PyTorch, or several devices of JAX. All processes call `fit` with the same arguments, and can
            have all data; each computes with its rows of a batch, and loads, of arrays and data sets, only these. A run
            is that of one process with the same batches, up to rounding.
            The checkpoint of several processes is a folder that all write, and may be resumed by another number of
            processes; on JAX it is a file, which other devices, or one, may go on from. Only the first process shows
            the progress; callbacks are called in all.

    Returns:
        The history: a dictionary of lists by the name of a result, with a number for each epoch.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: a number is out of range, arrays differ in length, the data have no batches, or the file is of
            another run: then the message lists all differences. Nothing is changed.
        TracingError: with `compile`, a step does what cannot be compiled.
    """
    # Last among the callbacks, so that it shows what the others have put into the results.
    shown = Progress(_is_shown(progress, parallel), parallel is None)
    given = sequence("fit", "callbacks", "callbacks", callbacks)
    if average is not None and not isinstance(average, ExponentialMovingAverage):
        raise TypeError(f"fit: average must be an nn.ExponentialMovingAverage of the model; got {average!r}")
    if average is not None and not any([each is average for each in given]):
        given = (average, *given)
    run = Run(model, optimizer, loss, metrics, [*given, shown], epochs, parallel)
    if integer("fit", "accumulate", accumulate, 1) > 1:
        run.accumulate(accumulate)
    _check(run, train_step, seed, checkpoint is not None)
    if parallel is not None and not isinstance(parallel, Strategy):
        raise TypeError(f"fit: parallel must be a strategy of nn.parallel, such as Replicated(mesh); got {parallel!r}")
    if checkpoint_every is not None and (checkpoint is None or checkpoint_every < 1):
        raise ValueError(f"checkpoint_every={checkpoint_every!r} needs a checkpoint, and must be at least 1")
    if validation is not None:
        _check_evaluation("validation", loss, metrics, test_step)
    step = steps.compiled_step(run, steps.train_step if train_step is None else train_step, compile)
    # A Run of its own: `begin_epoch` resets the means of this one, not those of the training. The metrics are shared.
    # One for all epochs, so that a compiled step is traced once.
    judge = Run(model, None, loss, run.metrics)
    judge_step = steps.compiled_step(judge, steps.test_step if test_step is None else test_step, compile)
    with _restore_modes(model), shown.of(run), _watched(parallel):
        if parallel is not None:
            told = {
                "epochs": epochs,
                "batch_size": batch_size,
                "shuffle": shuffle,
                "seed": seed,
                "accumulate": accumulate,
                "validation": validation is not None,
                "compile": compile,
                "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
                "checkpoint_every": checkpoint_every,
                "resume": resume,
                **_settings(run, class_weight),
            }
            cure = "All processes call fit with the same arguments"
            parallel.compare({name: repr(value) for name, value in told.items()}, "fit", "arguments", cure)
        # The order matters for exact resuming: first the Variables, which draw random numbers, then the seed.
        _build_model(model, source_of(data, model, batch_size))
        if parallel is not None:
            parallel.prepare(model)
            # A strategy of one's own may prepare otherwise. Dropout draws the mask of the whole batch in each process.
            agree_on_random_states(model, parallel.agree)
        file = None if checkpoint is None else RunFile(checkpoint, model, parallel)
        saved = file.read() if file is not None and resume else None
        if seed is None:
            # Drawn once and kept in the file: each epoch's order follows from the seed and its number.
            seed = int(global_rng().integers(0, 2**31)) if saved is None else saved.seed
            seed = seed if parallel is None else parallel.agree(seed)
        source = source_of(data, model, batch_size, seed if shuffle else None, parallel=parallel)
        held_out = (
            None
            if validation is None
            else source_of(validation, model, batch_size, name="validation", parallel=parallel)
        )
        if parallel is not None:
            parallel.check_batch_size(getattr(source, "batch_size", None))
        source = _divided(source, parallel)
        held_out = None if held_out is None else _divided(held_out, parallel)
        run.length = source.length
        run.arguments = _arguments(run, source, seed, shuffle, class_weight)
        model.train()
        if saved is not None:
            saved.resume(run)
        else:
            run.call("on_train_begin")
            if file is not None:
                file.write(run)
        within = parallel is not None and _stops_within_epochs(run, train_step, parallel)
        if within:
            run.compare_stops("before the first epoch")
        while run.epoch < run.epochs and not run.stopped:
            for _ in _steps(run, source, step, class_weight, within):
                # Between two steps, where the state is whole: within a step, weights and metrics are of different
                # batches.
                if file is not None and checkpoint_every and run.step % checkpoint_every == 0:
                    file.write(run)
            run.end_epoch()
            with nullcontext() if average is None else average.averaged():
                if held_out is not None:
                    # The metrics are reset for this; those of the training are in `run.logs` since `end_epoch`.
                    with progress_of("validation", held_out.length, "batches", logger=None) as task:
                        found = _evaluate(judge, held_out, run.epoch, judge_step, task)
                    run.logs.update({f"val_{name}": value for name, value in found.items()})
                run.call("on_epoch_end")
            run.compare_stops(f"epoch {run.epoch + 1}")
            run.history.append(run.logs)
            # Now the state is that of the next epoch's beginning, from which a checkpoint continues.
            run.epoch += 1
            run.batch = 0
            if file is not None:
                file.write(run)
        run.call("on_train_end")
    return run.history


def evaluate(
    model: Module,
    data: Data,
    *,
    loss: LossLike | None = None,
    metrics: Iterable[Metric] | Mapping[str, Metric] = (),
    batch_size: int | None = None,
    test_step: Step | None = None,
    progress: bool = True,
    parallel: Strategy | None = None,
) -> dict[str, float]:
    """Return the loss and the metrics of a model on data, by name; see :func:`fit` for the arguments.

    The model is in evaluation mode meanwhile. How many batches are done is shown after two seconds, unless `progress`
    is False. With `parallel`, all processes call this with the same data, and each computes with its rows of a batch; a
    model that :func:`fit` or `parallel.prepare` has divided stays so.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> model = nn.Dense(1, kernel_initializer="ones")
    >>> nn.evaluate(model, (tc.ones((5, 2)), tc.ones((5, 1))), loss=nn.losses.MeanSquaredError())
    {'loss': 1.0}

    Raises:
        TypeError, ValueError: as for :func:`fit`.
    """
    _check_module(model)
    _check_evaluation("evaluate", loss, metrics, test_step)
    run = Run(model, None, loss, metrics, parallel=parallel)
    source = _divided(source_of(data, model, batch_size, parallel=parallel), parallel)
    shown = _is_shown(progress, parallel)
    with (
        _watched(parallel),
        progress_of("evaluate", source.length, "batches", logger=LOGGER, shown=shown) as task,
    ):
        return _evaluate(run, source, 0, steps.test_step if test_step is None else test_step, task)


def predict(
    model: Module,
    data: Data,
    *,
    batch_size: int | None = None,
    progress: bool = True,
    parallel: Strategy | None = None,
) -> Any:
    """Return the outputs of a model for data, computed in batches and concatenated along the first axis.

    The model is in evaluation mode meanwhile.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.predict(nn.Dense(3), tc.ones((100, 2))).shape
    (100, 3)

    Args:
        model, batch_size: as for :func:`fit`.
        data: as for :func:`fit`. Parts of a tuple after the first, x, are ignored.
        progress, parallel: as for :func:`evaluate`.

    Returns:
        A tensor with a row for each example, or a structure of such tensors if the model returns one; in each process
        the whole.

    Raises:
        TypeError, ValueError: as for :func:`fit`.
    """
    _check_module(model)
    parts: list[list[tc.Tensor]] = []
    structure = None
    source = _divided(source_of(data, model, batch_size, parallel=parallel), parallel)
    shown = _is_shown(progress, parallel)
    with (
        _restore_modes(model),
        _watched(parallel),
        progress_of("predict", source.length, "batches", logger=LOGGER, shown=shown) as task,
    ):
        model.eval()
        for batch in source.batches(0):
            leaves, structure = pytree.flatten(model(unpack(batch)[0]))  # type: ignore[operator]
            parts.append(leaves if parallel is None else parallel.engine.full(leaves))
            task.advance()
    if not parts:
        raise ValueError("predict: data has no batches")
    whole = [tc.concat(leaves, axis=0) for leaves in zip(*parts, strict=True)]
    return pytree.unflatten(structure, whole)


def _divided(source: Source, parallel: Strategy | None) -> Source:
    return source if parallel is None else Divided(source, parallel)


def _watched(parallel: Strategy | None) -> AbstractContextManager[None]:
    return nullcontext() if parallel is None else parallel.watched()


def _is_shown(progress: bool, parallel: Strategy | None) -> bool:
    return progress and (parallel is None or parallel.mesh.rank == 0)


def _evaluate(run: Run, source: Source, epoch: int, step: Step, task: Task) -> dict[str, float]:
    run.length = source.length
    run.begin_epoch()
    with _restore_modes(run.model):
        run.model.eval()
        for batch in source.batches(epoch):
            run.take(step(run, batch), batch)
            run.batch += 1
            task.advance()
    if run.batch == 0:
        raise ValueError("evaluate: data has no batches")
    return run.logs


_QUIET: Final = {Progress, ExponentialMovingAverage, EarlyStopping, LearningRate, SaveBest}
"""The classes of callbacks that stop no run before the end of an epoch."""


def _stops_within_epochs(run: Run, train_step: Step | None, parallel: Strategy) -> bool:
    """Return whether what a user has written could stop the run between steps, on any process."""
    own = train_step is not None or not {type(each) for each in run.callbacks} <= _QUIET
    try:
        parallel.compare({"own": str(own)}, "fit", "callbacks")
    except ValueError:  # one process may have callbacks that others have not
        return True
    return own


def _steps(
    run: Run, source: Source, step: Step, class_weight: Mapping[int, float] | None, stops_within: bool
) -> Iterator[None]:
    """Take the steps that the epoch has left; yield after each one, unless a callback has stopped the run."""
    for batch in _batches(run, source):
        run.call("on_batch_begin")
        weighted = batch if class_weight is None else with_class_weights(batch, class_weight)
        run.tell_examples(weighted)
        run.take(step(run, weighted), batch)
        run.batch += 1
        run.step += 1
        if run.batch == run.length:
            run.flush()  # before the callbacks, which look at the weights of this step
        run.call("on_batch_end")
        if stops_within:
            run.compare_stops(f"batch {run.batch} of epoch {run.epoch + 1}")
        if run.stopped:
            run.flush_at_end()
            return
        yield
    run.flush_at_end()
    if run.batch == 0:
        raise ValueError(f"fit: data has no batches in epoch {run.epoch}")


def _batches(run: Run, source: Source) -> Iterator[Batch]:
    """Return the batches that the epoch has left: all of them, unless a run was resumed within it."""
    if run.batch == 0:
        run.begin_epoch()
        run.call("on_epoch_begin")
        run.epoch_random = random_states(run.model)
        return source.batches(run.epoch)
    # Making batches may draw random numbers, as an augmentation does: from the random state of the epoch's beginning
    # the batches to be skipped are made again as they were.
    now = random_states(run.model)
    set_random_states(run.model, run.epoch_random)
    batches = source.batches(run.epoch, skip=run.batch)
    set_random_states(run.model, now)
    return batches


def _build_model(model: Module, source: Source) -> None:
    """Make the Variables of layers that wait for an input, before anything else draws random numbers."""
    if all([getattr(found, "built", True) for _, found in model.named_modules()]) or not callable(model):
        return
    # Making this batch may draw random numbers; the first epoch makes it again, from the same state.
    before = random_states(model)
    batch = next(source.batches(0), None)
    set_random_states(model, before)
    if batch is None:
        raise ValueError("fit: data has no batches in epoch 0")
    # Evaluation mode: no dropout draws, and no moving average moves.
    model.eval()
    try:
        model(unpack(batch)[0])
    except Exception as error:
        error.add_note("fit called the model with the first batch to make its Variables")
        raise


@contextmanager
def _restore_modes(model: Module) -> Iterator[None]:
    """Return a context after which all modules are in the modes they were in before."""
    # Each Module its own mode: a part of a model may be kept in evaluation mode on purpose, when the rest is trained.
    modes = [(module, module.training) for _, module in model.named_modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _arguments(
    run: Run, source: Source, seed: int, shuffle: bool, class_weight: Mapping[int, float] | None
) -> dict[str, Any]:
    """Return the plain values that must be equal for a run to be resumed."""
    return {
        **source.description(),
        "shuffle": shuffle,
        "seed": seed,
        "callbacks": [type(callback).__name__ for callback in run.stateful],
        **_settings(run, class_weight),
    }


def _settings(run: Run, class_weight: Mapping[int, float] | None) -> dict[str, Any]:
    """Return the plain values of what a run trains with."""
    found = {
        "metrics": list(run.metrics),
        "class_weight": None if class_weight is None else {str(k): float(v) for k, v in class_weight.items()},
        **describe("loss", run.loss),
    }
    for name, optimizer in run.optimizers.items():
        found |= describe(f"optimizer {name}".strip(), optimizer)
    return found


def _check(run: Run, train_step: Step | None, seed: int | None, with_checkpoint: bool) -> None:
    """Raise a TypeError or a ValueError for arguments of `fit` that do not fit together."""
    _check_module(run.model)
    if type(run.epochs) is not int or run.epochs < 0:
        raise ValueError(f"epochs must be an integer of at least 0; got {run.epochs!r}")
    if seed is not None and type(seed) is not int:
        raise TypeError(f"seed must be an integer or None; got {seed!r}")
    if train_step is None and (run.loss is None or run.optimizer is None):
        missing = "a loss" if run.loss is None else "an optimizer"
        raise TypeError(f"fit needs {missing}, or a train_step that does without")
    if train_step is None and isinstance(run.optimizer, Mapping):
        raise TypeError("several optimizers need a train_step, which uses them")
    for optimizer in run.optimizers.values():
        if not hasattr(optimizer, "apply_gradients"):
            raise TypeError(f"optimizer must be one, such as nn.Adam(); got {optimizer!r}")
        if train_step is None and isinstance(optimizer, LBFGS):
            raise TypeError(
                "optimizer: LBFGS evaluates the loss several times for a step, so it needs a train_step of your own, "
                "which calls run.optimizer.step(closure, run.model)"
            )
        inner = optimizer
        while isinstance(inner, LossScaler | GradientAccumulation):
            inner = inner.optimizer
        if with_checkpoint and not isinstance(inner, Optimizer | TransformOptimizer | LBFGS):
            raise TypeError(
                f"checkpoint needs an optimizer of tape_nn, whose state has the Variables' names; got {inner!r}"
            )


def _check_evaluation(
    what: str,
    loss: LossLike | None,
    metrics: Iterable[Metric] | Mapping[str, Metric],
    test_step: Step | None,
) -> None:
    if loss is None and not metrics and test_step is None:
        raise TypeError(f"{what} needs a loss, metrics or a test_step: there is nothing to compute")


def _check_module(model: object) -> None:
    if not isinstance(model, Module):
        raise TypeError(f"model must be a Module; got {type(model).__name__!r}")
