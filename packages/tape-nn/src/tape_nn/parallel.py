"""Training on several devices: strategies, which say how a model and its batches are divided among those of a mesh.

A strategy is an argument of :func:`tape_nn.fit`, or of the two lines that a loop of one's own needs:
`strategy.prepare(model)` once the model has Variables, and `batch = strategy.divide(batch)`. A run on several devices
is then that of one with the same batches, up to rounding: the loss, metrics and norms of gradients are those of the
whole batch, and so is dropout.

The meshes are those of two engines: `tape_torch.distributed`, where each device has a process, which `torchrun` starts,
and `tape_jax.distributed`, where one process may have all devices. :func:`mesh` takes that of the backend that is
selected; nothing else here is of one. What is said of processes below holds on JAX for the devices of the mesh.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, TypeVar

from tape_core import Variable
from tape_core.backends import select
from tape_core.support import lenient, meant, pytree, warn_user
from tape_core.typing import PyTree

from tape_nn.checkpoints import Path, save_tensors
from tape_nn.generators import agree_on_random_states
from tape_nn.module import Module
from tape_nn.naming import ONE_MODEL, describe_modules

M = TypeVar("M", bound=Module)

Layout = tuple[str | None, ...]
"""For each axis of an array the axis of the mesh that divides it, or None; what is left out at the end is None."""


class Mesh(Protocol):
    """The processes, or devices, of a program in a grid, whose axes have names, as engines have them."""

    @property
    def axes(self) -> Mapping[str, int]:
        """The number of processes along each axis; on JAX of devices."""

    @property
    def size(self) -> int:
        """The number of all."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def engine(self) -> ModuleType:
        """The module with the functions `distribute`, `divide`, `full` and others, and those of checkpoints."""


def mesh(axes: Mapping[str, int] | None = None, *, device: str | None = None, checked: bool | None = None) -> Mesh:
    """Return the mesh of all processes, or devices, of the program, on the backend that is selected.

    It is `tape_torch.distributed.mesh` on PyTorch and `tape_jax.distributed.mesh` on JAX, so a program that begins with
    it runs on both. `mesh.engine` is the module of the one that was taken, with `distribute`, `full` and so on.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> with tc.use_backend("torch:cpu"):
    ...     m = nn.parallel.mesh({"data": -1})
    >>> m.axes, m.engine.__name__
    ({'data': 1}, 'tape_torch.distributed')

    Args:
        axes: the number along each axis, by name; one may be -1, for what remains. By default all are along one axis,
            `"data"`.
        device: the kind of the devices, such as `"cpu"`; by default that of the device that is selected.
        checked: whether the processes compare what they are about to do, before each collective; where they differ it
            is an error. By default as the environment variable `TAPE_CHECK_RANKS` says. One process of JAX, which has
            all devices, runs one program and has nothing to compare; several cannot, since XLA makes their collectives.

    Raises:
        ValueError: the axes are not what there is can be divided into, or the backend has no meshes, or cannot
            compare processes.
        RuntimeError: on PyTorch, there are no processes: the program was not started by `torchrun`.
    """
    selected = select()
    if selected.backend.distributed is None:
        raise ValueError(
            f"nn.parallel.mesh: the backend {selected.backend.name!r} ({selected.reason}) computes on one device; "
            f"select one with meshes, by tape_core.set_backend or TAPE_BACKEND: 'torch' or 'jax'"
        )
    kind = device or (selected.device.partition(":")[0] if selected.device else None)
    found: Mesh = import_module(selected.backend.distributed).mesh(axes, device=kind, checked=checked)
    return found


class Strategy:
    """How a model and its batches are divided; the base of those below, and of your own.

    A class of your own defines `layout`.

    Args:
        mesh: the processes, or devices, of an engine: see :func:`mesh`.
        data: the axis of the mesh along which batches are divided; None where there is none.

    Raises:
        TypeError: it is no such mesh, but one of a library, say.
        ValueError: the mesh has no such axis.
    """

    def __init__(self, mesh: Mesh, *, data: str | None = "data") -> None:
        if not hasattr(mesh, "engine") or not hasattr(mesh, "axes"):
            raise TypeError(
                f"{type(self).__name__}: mesh must be one of nn.parallel.mesh(axes); got {mesh!r}. The class Mesh of "
                f"tape_torch.distributed or tape_jax.distributed makes one of a DeviceMesh or a mesh of JAX"
            )
        self.mesh = mesh
        self.data = None if data is None else self._axis(data, "data")

    def layout(self, name: str, variable: Variable) -> Layout:
        """Return the layout of a Variable; `name` is its path in the model, such as `layers.0.kernel`."""
        raise NotImplementedError(f"{type(self).__name__} has no method `layout`")

    def prepare(self, model: M) -> M:
        """Divide the Variables of a model in place, and what optimizers keep for them; return the model.

        Each process calls this, with a model of the same shapes. The values are those of the first process, and so are
        the states of random generators, the global one and those of the model: a program needs no seed.

        Raises:
            ValueError: there are no Variables yet, one cannot be divided so, or the processes have different models:
                other Variables, or modules with other settings, such as another activation.
        """
        self.engine.distribute(model, self.layout, mesh=self.mesh)
        self.compare(describe_modules(model), f"{type(self).__name__}.prepare", "modules and settings", ONE_MODEL)
        agree_on_random_states(model, self.agree)
        return model

    def divide(self, batch: PyTree) -> Any:
        """Return a batch, which all processes have whole, of which each keeps its rows.

        Arrays whose first axis cannot be divided by the number of processes, or devices, are computed whole in each.

        Raises:
            ValueError: the processes have different batches.
        """
        leaves, structure = pytree.flatten(batch)
        found = []
        for k, leaf in enumerate(leaves):
            try:
                found.append(leaf if leaf is None else self._divided(leaf))
            except ValueError as error:
                if len(leaves) > 1:
                    error.add_note(f"in {type(self).__name__}.divide(batch), of batch{pytree.path(structure, k)}")
                raise
        return pytree.unflatten(structure, found)

    def join(self, parts: PyTree) -> Any:
        """Return one batch of the rows that each process has loaded itself, as PyTorch's DistributedSampler gives them.

        All processes have the same number of rows: leave out what some have more, by `drop_last=True` of a loader.

        >>> import tape_core as tc
        >>> import tape_nn as nn
        >>> from tape_torch.distributed import mesh
        >>> strategy = nn.parallel.Replicated(mesh({"data": -1}))
        >>> x, y = strategy.join((tc.ones((4, 2)), tc.zeros(4)))
        >>> x.shape[0] == 4 * strategy.mesh.size
        True

        Raises:
            ValueError: the parts have other shapes or dtypes in other processes.
        """
        rows: Layout = () if self.data is None else (self.data,)
        leaves, structure = pytree.flatten(parts)
        found = [
            leaf if leaf is None else self.engine.distribute(leaf, rows, mesh=self.mesh, local=True) for leaf in leaves
        ]
        return pytree.unflatten(structure, found)

    def own_rows(self, count: int) -> slice | None:
        """Return which rows of a batch of so many this process needs to load; None: all.

        :func:`tape_nn.fit` asks for it where it can load rows by themselves.
        """
        if self.data is None or count % self.mesh.axes[self.data]:
            return None
        found: slice | None = self.engine.own_rows(count, self.data, mesh=self.mesh)
        return found

    def joined(self, part: PyTree) -> Any:
        """Return the batch of which each process has loaded the rows that `own_rows` says."""
        leaves, structure = pytree.flatten(part)
        found = [leaf if leaf is None else self.engine.joined(leaf, (self.data,), mesh=self.mesh) for leaf in leaves]
        return pytree.unflatten(structure, found)

    def check_batch_size(self, size: int | None) -> None:
        """Refuse a number of examples in a batch, if it is known, that the processes do not divide.

        Raises:
            ValueError: each process would compute every batch whole.
        """
        n = 1 if self.data is None else self.mesh.axes[self.data]
        if size is not None and size % n:
            raise ValueError(
                f"batch_size={size} cannot be divided into {n} equal parts, as the axis {self.data!r} of the mesh asks "
                f"for: take a multiple of {n}"
            )

    def _divided(self, leaf: Any) -> Any:
        rows: Layout = () if self.data is None or not leaf.shape else (self.data,)
        if rows and leaf.shape[0] % self.mesh.axes[rows[0] or ""]:
            rows = ()
        return self.engine.divide(leaf, rows, mesh=self.mesh)

    def agree(self, number: int) -> int:
        """Return the first process's number in all processes."""
        found: int = self.engine.agree(number, mesh=self.mesh)
        return found

    def compare(self, told: Mapping[str, str], caller: str, what: str, cure: str = "") -> None:
        """Check that all processes give the same text by name; all of them call this.

        Args:
            caller, what, cure: for the message.

        Raises:
            ValueError: they do not.
        """
        self.engine.compare(told, caller=caller, what=what, cure=cure, mesh=self.mesh)

    def watched(self) -> AbstractContextManager[None]:
        """Return a context in which an error says which other process has died or failed, where the engine can tell."""
        watch: Callable[[float | None], AbstractContextManager[None]] | None = getattr(self.engine, "watched", None)
        return nullcontext() if watch is None else watch(None)

    def save_weights(self, model: Module, path: Path, metadata: Mapping[str, str] | None = None) -> None:
        """Write the whole weights of a divided model to one file, as :meth:`Module.save_weights` does.

        All processes call this. The first one gets all values and writes; when it returns, the file is there. For
        checkpoints of which each process writes its part, see :func:`tape_nn.save_run`.

        Raises:
            OSError: the file cannot be written; in the first process with the reason.
        """
        first = self.mesh.rank == 0
        whole: dict[str, Any] = {}
        for name, value in model.state_dict().items():
            tensor = self.engine.full(value)
            if first:
                whole[name] = tensor
        failed: Exception | None = None
        if first:
            try:
                save_tensors(path, whole, metadata)
            except Exception as error:  # noqa: BLE001 - it is raised again
                failed = error
        if self.agree(int(failed is not None)):
            raise failed or OSError(f"save_weights: process 0 could not write {os.fspath(path)!r}; it says why")

    @property
    def engine(self) -> ModuleType:
        """The module of the mesh."""
        return self.mesh.engine

    def _axis(self, name: str, what: str) -> str:
        if name not in self.mesh.axes:
            raise ValueError(
                f"{type(self).__name__}: {what}={name!r} is no axis of the mesh, whose axes are "
                f"{', '.join(map(repr, self.mesh.axes))}{meant(name, self.mesh.axes)}"
            )
        return name

    @lenient
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mesh!r})"


class Replicated(Strategy):
    """Data-parallel training: each process, or device of JAX, has a copy of the model, and its rows of each batch.

    >>> import tape_nn as nn
    >>> from tape_torch.distributed import mesh
    >>> strategy = nn.parallel.Replicated(mesh({"data": -1}))
    >>> strategy.layout("kernel", None)
    ()
    """

    def layout(self, name: str, variable: Variable) -> Layout:
        """Return the layout of a copy in each process."""
        return ()


class Sharded(Strategy):
    """Fully sharded training: each process has a part of each Variable, of its gradient and of the optimizer's state.

    The layout is that of PyTorch's FSDP2 and of ZeRO-3: a Variable is divided along the axis of the mesh along which
    batches are. It is divided along its longest axis that can be; one that has none is a copy in each process. On JAX
    it is each device that has a part.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> from tape_torch.distributed import mesh
    >>> strategy = nn.parallel.Sharded(mesh({"data": -1}))
    >>> strategy.layout("kernel", tc.Variable(tc.zeros((2, 6))))
    (None, 'data')
    """

    def __init__(self, mesh: Mesh, *, data: str = "data") -> None:
        super().__init__(mesh, data=data)

    def layout(self, name: str, variable: Variable) -> Layout:
        """Return the layout that divides the longest axis that can be divided."""
        assert self.data is not None
        return _longest(variable.shape, self.data, self.mesh.axes[self.data])


class TensorParallel(Strategy):
    """Tensor-parallel training: layers are divided among processes, and batches along another axis of the mesh.

    The default plan divides the kernels of attention by heads, those of pairs of Dense layers in a Sequential by
    columns in the first and by rows in the second, and embeddings by their vocabulary, as in Megatron-LM
    (Shoeybi et al. 2019, arXiv:1909.08053). What it does not know is a copy in each process; on JAX, on each device.
    So are layers that the mesh does not divide, of which a warning tells.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> from tape_torch.distributed import mesh
    >>> plan = {"*.kernel": (None, "model"), "*.bias": ("model",)}
    >>> strategy = nn.parallel.TensorParallel(mesh({"data": 1, "model": -1}), plan)
    >>> strategy.layout("layers.0.kernel", tc.Variable(tc.zeros((2, 6))))
    (None, 'model')

    Args:
        mesh: the processes, or devices, of an engine: see :func:`mesh`.
        plan: layouts by patterns of names, as `fnmatch` has them, of which the first that fits counts; or a function of
            the name and the Variable; by default the one above.
        model: the axis of the mesh that the default plan divides layers along.
        data: the axis of the mesh along which batches are divided. `"data"` may be absent, if the plan divides along
            all axes there are; with None each process computes the whole batch.
        sharded: whether what the plan leaves undivided is divided along `data`, as by :class:`Sharded`.

    Raises:
        TypeError: the plan is neither layouts by names nor a function.
        ValueError: the mesh has no such axis, or one along which nothing would be divided.
    """

    def __init__(
        self,
        mesh: Mesh,
        plan: Mapping[str, Layout] | Callable[[str, Variable], Layout] | None = None,
        *,
        model: str = "model",
        data: str | None = "data",
        sharded: bool = False,
    ) -> None:
        super().__init__(mesh, data=None)
        given: object = plan  # callers without a type checker may pass anything
        if given is not None and not isinstance(given, Mapping) and not callable(given):
            raise TypeError(
                f"TensorParallel: plan must be layouts by patterns of names, such as {{'*.kernel': (None, 'model')}}, "
                f"or a function of the name and the Variable; got {given!r}"
            )
        self.model = self._axis(model, "model") if plan is None else model
        self.plan = plan
        # "data" may be absent; a name that is given may not, and no axis may be left over by mistake.
        if data is not None and data not in mesh.axes and (data != "data" or self._left_over()):
            self._axis(data, "data")
        self.data = data if data is not None and data in mesh.axes else None
        self.sharded = sharded
        self._layouts: dict[int, Layout] = {}

    def prepare(self, model: M) -> M:
        """Divide the Variables of a model in place; see :meth:`Strategy.prepare`.

        Raises:
            ValueError: the plan names a Variable that the model does not have, or divides nothing of it among the
                processes, or as for :meth:`Strategy.prepare`.
        """
        if self.plan is None:
            self._layouts = default_plan(model, self.model, self.mesh.axes[self.model])
        elif isinstance(self.plan, Mapping):
            _check_names(self.plan, [name for name, _ in model.named_variables()])
        self._check_divides(dict(model.named_variables()))
        return super().prepare(model)

    def _check_divides(self, variables: Mapping[str, Variable]) -> None:
        """Refuse a model of which nothing is divided: the processes along an axis would all compute the same.

        Raises:
            ValueError: there are such processes, and it is.
        """
        axes = {axis for axis, n in self.mesh.axes.items() if n > 1 and axis != self.data}
        if not axes or not variables or any(axes.intersection(self.layout(*named)) for named in variables.items()):
            return
        names, along = list(variables), " or ".join(map(repr, sorted(axes)))
        first = next((name for name, v in variables.items() if v.ndim > 1), names[0])
        if self.plan is None:
            how = "the default plan divides attention, pairs of Dense layers in a Sequential, and embeddings"
        elif callable(self.plan):
            how = "the plan gives no Variable a layout with such an axis"
        else:
            how = f"the plan has layouts for {', '.join(map(repr, self.plan))}{_ends_meant(self.plan, names)}"
        raise ValueError(
            f"TensorParallel: nothing of the model is divided along {along}, so that all processes along it would "
            f"compute the same: {how}. The model has {_listed(names)}. Give a plan that fits, such as "
            f"{{{first!r}: (None, {min(axes)!r})}}, or take Replicated for this model"
        )

    def _left_over(self) -> list[str]:
        """Return the axes of the mesh of several processes along which nothing would be divided."""
        if callable(self.plan):
            return []
        layouts = [] if self.plan is None else self.plan.values()
        used = {self.model} if self.plan is None else {str(part) for layout in layouts for part in layout}
        return [name for name, n in self.mesh.axes.items() if n > 1 and name not in used]

    def layout(self, name: str, variable: Variable) -> Layout:
        """Return the layout of the plan."""
        found: Layout = ()
        if self.plan is None:
            found = self._layouts.get(id(variable), ())
        elif callable(self.plan):
            found = self.plan(name, variable)
        else:
            found = next((layout for pattern, layout in self.plan.items() if fnmatchcase(name, pattern)), ())
        if not any(found) and self.sharded and self.data is not None:
            return _longest(variable.shape, self.data, self.mesh.axes[self.data])
        return found


def _check_names(plan: Mapping[str, Layout], names: Sequence[str]) -> None:
    """Compare the names in a plan with those of a model's Variables; patterns that fit none are named by a warning.

    Raises:
        ValueError: there is no such Variable.
    """
    idle = [pattern for pattern in plan if names and not any(fnmatchcase(name, pattern) for name in names)]
    # A plan with patterns may be for several models, of which one has no biases, say.
    patterns = [pattern for pattern in idle if any(sign in pattern for sign in "*?[")]
    if wrong := [pattern for pattern in idle if pattern not in patterns]:
        said = "; ".join(f"{name!r} in the plan is no Variable of the model{meant(name, names)}" for name in wrong)
        raise ValueError(f"TensorParallel: {said} There are {_listed(names)}")
    if patterns:
        warn_user(
            f"TensorParallel: nothing is divided by {', '.join(map(repr, patterns))} of the plan, which no name of a "
            f"Variable fits; they are {_listed(names)}"
        )


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(map(repr, names[:8]))}{', ...' if len(names) > 8 else ''}"


def _ends_meant(plan: Mapping[str, Layout], names: Sequence[str]) -> str:
    """Return hints at the ends of names that patterns may have been meant to have."""
    ends = {name.rpartition(".")[2] for name in names}
    hints = [meant(pattern.rpartition(".")[2], sorted(ends)) for pattern in plan]
    return next((hint.rstrip(".") for hint in hints if hint), "")


def default_plan(model: Module, axis: str, size: int) -> dict[int, Layout]:
    """Return the layouts of the Variables of a model, by their ids, of :class:`TensorParallel`'s default plan.

    Layers that it would divide, and whose lengths are no multiples of `size`, are named by a warning.

    Raises:
        ValueError: the heads of an attention cannot be divided.
    """
    from tape_nn.layers import Dense, Embedding, MultiHeadAttention, Sequential

    found: dict[int, Layout] = {}
    names = {id(variable): name for name, variable in model.named_variables()}
    whole: list[str] = []

    def put(variable: Any, layout: Layout) -> None:
        if not isinstance(variable, Variable):  # a bias that is not there
            return
        apart = next((k for k, part in enumerate(layout) if part is not None and variable.shape[k] % size), None)
        if apart is None:
            found.setdefault(id(variable), layout)
        elif variable.ndim > 1:  # what is to be said of a bias is said of the kernel
            name = names.get(id(variable), variable.name)
            whole.append(f"{name} of shape {variable.shape}, along its axis {apart}")

    for name, layer in model.named_modules():
        if isinstance(layer, MultiHeadAttention):
            if layer.num_heads % size:
                raise ValueError(
                    f"TensorParallel: the {layer.num_heads} heads of {name or 'the attention'} cannot be divided into "
                    f"{size} equal parts; take as many heads as a multiple of it, or give a plan"
                )
            for part in ("query", "key", "value"):
                put(getattr(layer, f"{part}_kernel"), (None, axis))
                put(getattr(layer, f"{part}_bias"), (axis,))
            put(layer.output_kernel, (axis,))
        elif isinstance(layer, Embedding):
            for variable in layer.variables:
                put(variable, (axis,))
        elif isinstance(layer, Sequential):
            pending = False
            for inner in layer.layers:
                if isinstance(inner, Dense):
                    put(inner.kernel, (axis,) if pending else (None, axis))
                    put(inner.bias, () if pending else (axis,))
                    pending = not pending
    if whole:
        warn_user(
            f"TensorParallel: the axis {axis!r} of the mesh has {size} parts, into which these cannot be divided: "
            f"{'; '.join(dict.fromkeys(whole))}. They are a copy in each: take widths that are multiples of {size}, or "
            f"give a plan that says what is divided, and along which axis"
        )
    return found


def _longest(shape: tuple[int, ...], axis: str, size: int) -> Layout:
    able = [(n, -k) for k, n in enumerate(shape) if n and n % size == 0]
    if not able:
        return ()
    k = -max(able)[1]
    return (*[None] * k, axis)
