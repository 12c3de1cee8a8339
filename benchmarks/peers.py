"""The peers: what each is called, which environment it lives in, and how it makes a step of a workload."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from workloads import Data, Step, workload


@dataclass(frozen=True)
class Peer:
    label: str
    environment: str  # a key of environments.py
    backend: str = ""  # of a peer that is Tape
    compiled: bool = False  # its first call takes longer than the others
    alone: bool = False  # in a process of its own, since compiling it may have to be given up
    only: tuple[str, ...] = ()  # the workloads that it takes part in, if not all


PEERS = {
    "numpy": Peer("NumPy by hand", "tape"),
    "numpy_out": Peer("NumPy by hand, `out=`", "tape"),
    "tape": Peer("Tape", "tape", "numpy"),
    "tape_compiled": Peer("Tape, compiled", "tape", "numpy", compiled=True),
    "tape_checkpoint": Peer("Tape, checkpoint", "tape", "numpy"),
    "tape_torch": Peer("Tape on PyTorch", "tape", "torch:cpu"),
    "tape_torch_compiled": Peer("Tape on PyTorch, compiled", "tape", "torch:cpu", compiled=True),
    "torch": Peer("PyTorch eager", "tape"),
    "tape_inductor": Peer(
        'Tape on PyTorch, `compile="torch"`', "tape", "torch:cpu", True, True, ("small_mlp", "mnist_mlp", "wide", "rnn")
    ),
    "autograd": Peer("HIPS autograd", "autograd"),
    "mygrad": Peer("MyGrad", "mygrad"),
    "torch_func": Peer("torch.func", "tape", alone=True),
    "torch_compile": Peer("torch.compile", "tape", compiled=True, alone=True),
    "jax": Peer("JAX eager", "jax"),
    "jax_jit": Peer("jax.jit", "jax", compiled=True, alone=True),
    "tensorflow": Peer("TensorFlow eager", "tensorflow"),
    "tf_function": Peer("tf.function", "tensorflow", compiled=True, alone=True),
    "tf_xla": Peer("tf.function, XLA", "tensorflow", compiled=True, alone=True),
}
LABELS = {name: peer.label for name, peer in PEERS.items()}
COMPILED = tuple(name for name, peer in PEERS.items() if peer.compiled)


def threads_environment(count: int) -> dict[str, str]:
    """What libraries read when they are loaded: NPROC is XLA's."""
    libraries = ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "TAPE", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")
    names = [f"{library}_{'THREADS' if library.startswith('TF') else 'NUM_THREADS'}" for library in libraries]
    return dict.fromkeys([*names, "NPROC"], str(count))


def start(peer: str) -> str:
    """Import a peer's library, put it on the CPU and the threads that OMP_NUM_THREADS says; return its version."""
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    known = PEERS[peer]
    if peer in ("numpy", "numpy_out"):
        return np.__version__
    if known.backend.startswith("torch") or peer.startswith("torch"):
        import torch

        torch.set_num_threads(threads)
        if not known.backend:
            return str(torch.__version__)
        importlib.import_module("tape_torch")
    if known.backend:
        import tape_core

        tape_core.set_backend(known.backend)
        tape_core.get_backend()
        return str(tape_core.__version__)
    if known.environment == "jax":
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
        return str(jax.__version__)
    if known.environment == "tensorflow":
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        return str(tf.__version__)
    if peer == "mygrad":
        import mygrad

        mygrad.turn_memory_guarding_off()  # what its documentation advises where speed matters
    importlib.import_module(peer)
    return importlib.metadata.version(peer)


def setup(name: str, peer: str, data: Data) -> Step | None:
    """The peer's step, or None where the workload has no column for this peer."""
    module, known = workload(name), PEERS[peer]
    if known.only and name not in known.only:
        return None
    if known.backend:
        make = getattr(module, "with_tape_checkpoint" if peer == "tape_checkpoint" else "with_tape", None)
        compiler = "torch" if peer == "tape_inductor" else None
        return on_backend(make, data, known.backend, known.compiled, compiler) if make else None
    if make := getattr(module, f"with_{peer}", None):
        return make(data)
    for family, build in (("torch", torch_step), ("jax", jax_step), ("tensorflow", tensorflow_step)):
        if peer == family or known.environment == family or peer.startswith(f"{family}_"):
            return build(module, peer, data)
    return None


def on_backend(make: Callable[[Data], Step], data: Data, backend: str, compiled: bool, compiler: str | None) -> Step:
    """Tape's step, which makes its arrays on a backend of its own: several backends take turns in one process."""
    import tape_core

    selected = tape_core.use_backend(backend)

    def converted(value: Any) -> Any:
        if isinstance(value, list):
            return [converted(item) for item in value]
        if isinstance(value, np.ndarray) and backend != "numpy":
            return tape_core.asarray(value, backend=backend, copy=True).array
        return value

    with selected:
        step = make({name: converted(value) for name, value in data.items()})
        if compiled:
            step = tape_core.function(step, compile=compiler) if compiler else tape_core.function(step)

    def on_its_backend():
        with selected:
            return step()

    return on_its_backend


def torch_step(module: Any, peer: str, data: Data) -> Step | None:
    import torch

    if peer == "torch_compile":
        import torch._dynamo

        torch._dynamo.reset()  # a function that was compiled for other shapes would be compiled for all shapes
    if hasattr(module, "torch_function") and peer != "torch":
        function, arguments = module.torch_function(data)
        if peer == "torch_compile":
            function = torch.compile(function)
        return lambda: function(*arguments)
    if not hasattr(module, "torch_loss"):
        return None
    loss, parameters = module.torch_loss(data)
    if peer == "torch_func":
        both = torch.func.grad_and_value(loss, argnums=tuple(range(len(parameters))))

        def step():
            gradients, value = both(*parameters)
            return value, list(gradients)

        return step
    if peer == "torch_compile":
        loss = torch.compile(loss)
    parameters = [parameter.requires_grad_() for parameter in parameters]

    def step():
        value = loss(*parameters)
        return value, list(torch.autograd.grad(value, parameters))

    return step


def jax_step(module: Any, peer: str, data: Data) -> Step | None:
    import jax

    if hasattr(module, "jax_function"):
        function, arguments = module.jax_function(data)
    elif hasattr(module, "jax_loss"):
        loss, parameters, others = module.jax_loss(data)
        function, arguments = jax.value_and_grad(loss), [parameters, *others]
    else:
        return None
    if peer == "jax_jit":
        function = jax.jit(function)
    return lambda: jax.block_until_ready(function(*arguments))


def tensorflow_step(module: Any, peer: str, data: Data) -> Step | None:
    import tensorflow as tf

    if hasattr(module, "tensorflow_step"):
        step = module.tensorflow_step(data)
    elif hasattr(module, "tensorflow_loss"):
        loss, variables = module.tensorflow_loss(data)

        def step():
            with tf.GradientTape() as tape:
                value = loss()
            return value, tape.gradient(value, variables)

    else:
        return None
    return step if peer == "tensorflow" else tf.function(step, jit_compile=peer == "tf_xla")
