"""Processes that are killed, fail or hang: no checkpoint is lost, nobody waits for ever, and errors name them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import run_processes
from tape_torch import distributed

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and fork")

# One program starts all trials, so that torch is imported once.
_KILLED = """
import datetime, os, random, sys, traceback
import torch, torch.distributed as dist
import tape_core as tc
from tape_torch import distributed

WORLD, STEPS = 3, 4
folder, meeting, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
torch.set_num_threads(1)

def state(step):
    return {"w": torch.full((64,), float(step)), "step": torch.tensor(step)}

def train(rank, trial, first, victim, nth, asynchronous):
    # A file of its own: that of processes that were killed stays, with the addresses of sockets that are closed.
    place = f"file://{meeting}/{trial}"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=WORLD)
    done = [0]
    if rank == victim:
        def hook(event, arguments):
            # Every time that the program touches a file of the checkpoint is a moment to die.
            if any(isinstance(one, str) and one.startswith(folder) for one in arguments):
                done[0] += 1
                if done[0] == nth:
                    os.kill(os.getpid(), 9)
        sys.addaudithook(hook)
    try:
        with distributed.watched(timeout=60):
            for step in range(first, first + STEPS):
                saving = distributed.save(folder, state(step), step=step, asynchronous=asynchronous)
                saving.wait()
                os.write(told, b"%d %d\\n" % (rank, step))
    except distributed.PeerError as error:
        assert error.ranks == (victim,), error
        os._exit(3)
    os._exit(0)

def last():
    if distributed.latest(folder) is None:
        return 0
    step, found, _ = distributed.load(folder)
    assert found["w"].tolist() == [float(step)] * 64 and found["step"].tolist() == step
    return step

killed = 0
for trial in range(int(sys.argv[4])):
    first = last() + 1
    victim, nth = chance.randrange(WORLD), chance.randrange(1, 60)
    heard, told = os.pipe()
    children = []
    for rank in range(WORLD):
        if (child := os.fork()) == 0:
            try:
                train(rank, trial, first, victim, nth, trial % 2 == 1)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        children.append(child)
    os.close(told)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    claimed = [int(line.split()[1]) for line in os.fdopen(heard).read().splitlines()]
    killed += codes[victim] == -9
    expected = {0} if codes[victim] == 0 else {3}
    assert {code for rank, code in enumerate(codes) if rank != victim} <= expected | {0}, (codes, victim, nth)
    # What a process was told to be saved is there.
    assert last() >= max(claimed, default=0), (last(), claimed, victim, nth)
    assert len(distributed.storage.checkpoints_in(folder)) <= 2
print(killed)
"""


def printed(program: str, *args: str, timeout: float) -> str:
    """Return what a program prints that starts the processes of all trials."""
    environment = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


@posix
def test_no_kill_loses_a_checkpoint(tmp_path: Path) -> None:
    meeting, folder = tmp_path / "meeting", tmp_path / "run"
    meeting.mkdir()
    died = int(printed(_KILLED, str(folder), str(meeting), "1", "8", timeout=240))
    assert died >= 4  # of 8 trials, half at least died within a save


_DYING = """
import os, signal, sys
import torch, torch.distributed as dist
from tape_torch import distributed
from tape_torch.distributed import failures

failures.PATIENCE = 1.0  # how long to look for another cause than one that lives and does not come
dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[1]
x = torch.ones(10)
if rank == 1 and how == "elsewhere":
    from tape_torch.notes import board

    distributed.mesh({"data": -1}, device="cpu")
    board().end()
    sys.exit()
try:
    with distributed.watched(timeout=2.0 if how == "hang" else 120.0):
        dist.all_reduce(x)
        if rank == 1:
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "fail":
                raise KeyError("no such file")
            if how == "hang":
                dist.distributed_c10d._get_default_store().wait(["over"])
                os._exit(0)
            if how == "leave":
                store = dist.distributed_c10d._get_default_store()
                store.wait(["left"])
                os.kill(os.getpid(), signal.SIGKILL)
        if how != "leave" or rank != 2:
            dist.all_reduce(x)
            dist.all_reduce(x)
    dist.distributed_c10d._get_default_store().set("left", "")
except distributed.PeerError as error:
    print(error.ranks, error)
    dist.distributed_c10d._get_default_store().set("over", "")
"""


@posix
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("die", "process 1 of 3 has died"),
        ("fail", "process 1 of 3 has failed: KeyError: 'no such file'"),
        ("hang", "process 1 of 3 lives, but hangs, or waits elsewhere"),
        ("elsewhere", "process 1 of 3 has come to the end of its program. All processes must take as many steps"),
    ],
)
def test_a_process_that_ends_is_named_by_all_others(how: str, message: str) -> None:
    outputs = run_processes(_DYING, 3, how, may_fail=[1])
    for rank in (0, 2):
        assert outputs[rank].startswith("(1,)"), outputs
        assert message in outputs[rank]


_DYING_IN_STEPS = """
import contextlib, datetime, os, sys, traceback, warnings
import torch, torch.distributed as dist
import tape_core as tc, tape_nn as nn
from tape_torch import distributed, divided_programs
from tape_torch.mismatches import is_collective
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

torch.set_num_threads(1)
tc.set_backend("torch:cpu")
warnings.simplefilter("error")

def die(*args):
    os.kill(os.getpid(), 9)

class Dying(TorchDispatchMode):
    # Counts the collectives of this process, and dies before the nth.

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __init__(self, nth):
        super().__init__()
        self.left = nth

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented
        if is_collective(func):
            self.left -= 1
            if not self.left:
                die()
        return func(*args, **(kwargs or {}))

def train(rank, place, strategy, compiled, watched, nth):
    # A limit for what is not found out at once.
    waits = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2, timeout=waits)
    m = distributed.mesh({"model" if strategy == "TensorParallel" else "data": -1}, device="cpu")
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(4)])
    model.build((None, 4))
    spread = getattr(nn.parallel, strategy)(m)
    spread.prepare(model)
    optimizer, x = nn.SGD(0.1, global_clipnorm=1.0), spread.divide(tc.ones((4, 4)))

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean(model(x) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables)))
        return loss

    def values():
        return [v.array.to_local().clone() for v in model.variables]

    run = tc.function(step) if compiled else step
    if rank == 1:
        if nth == 0:
            divided_programs.same_everywhere = die
        Dying(nth).__enter__()
    with distributed.watched() if watched else contextlib.nullcontext():
        try:
            for _ in range(6):
                before, loss = values(), None
                loss = run(x)
                before = values()
                float(loss)
        except BaseException:
            assert all(map(torch.equal, before, values())), "half a step"
            raise

meeting = sys.argv[1]
for k, trial in enumerate(eval(sys.argv[2])):
    children = []
    for rank in range(2):
        if (child := os.fork()) == 0:
            try:
                train(rank, f"file://{meeting}/{k}", *trial)
            except distributed.PeerError as error:
                os._exit(3 if error.ranks == (1,) and "rank 1 has died" in str(error).replace("process", "rank")
                         .replace("1 of 2", "1") else 4)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [3, -9], (trial, codes)
print("done")
"""


@posix
@pytest.mark.parametrize(
    "trials",
    [
        # Strategy, compiled, watched, and the number of the collective; 0 where the programs of parts are compared.
        [("Replicated", False, False, 1), ("TensorParallel", False, False, 3), ("TensorParallel", False, True, 7)],
        [("Sharded", True, False, 0), ("Replicated", True, True, 0), ("TensorParallel", True, False, 3)],
        pytest.param(
            [(s, c, w, n) for s in ("Sharded", "Replicated") for c in (0, 1) for w, n in ((0, 2), (1, 9))],
            marks=pytest.mark.long_on_torch,
        ),
    ],
    ids=["eager", "compiled", "many"],
)
def test_a_process_that_dies_in_a_step_is_named_and_leaves_no_half_of_it(trials: list[object], tmp_path: Path) -> None:
    assert printed(_DYING_IN_STEPS, str(tmp_path), repr(trials), timeout=400) == "done\n"


@posix
def test_one_that_has_left_is_not_blamed_for_one_that_died() -> None:
    outputs = run_processes(_DYING, 3, "leave", may_fail=[1])
    assert outputs[0].startswith("(1,) process 1 of 3 has died. Process 0 cannot")


def test_a_store_that_ends_with_its_process_at_the_end_is_no_error() -> None:
    program = """
import os, time
import torch.distributed as dist
from tape_torch import distributed
given = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
rank = int(os.environ["RANK"])
os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")
if rank == 0:
    own = dist.TCPStore("127.0.0.1", 0, world_size=2, is_master=True, wait_for_workers=False)
    given.set("port", str(own.port))
else:
    own = dist.TCPStore("127.0.0.1", int(given.get("port")), world_size=2, is_master=False)
dist.init_process_group("gloo", store=own, rank=rank, world_size=2)
with distributed.watched(timeout=60):
    dist.barrier()
    if rank == 1:
        given.wait(["over"])  # by now the store is gone
        time.sleep(0.5)
print("done", flush=True)
if rank == 0:
    given.set("over", "")
os._exit(0)
"""
    assert run_processes(program, 2) == ["done\n"] * 2


def test_a_mistake_of_ones_own_is_not_blamed_on_others() -> None:
    program = """
import torch.distributed as dist
from tape_torch import distributed
dist.init_process_group("gloo")
dist.barrier()  # one that is done at once may be gone while the other one still connects
try:
    with distributed.watched(timeout=60):
        raise RuntimeError("cannot restore: the store has no connection to the peer")
except RuntimeError as error:
    print(type(error).__name__)
"""
    assert run_processes(program, 2) == ["RuntimeError\n"] * 2


def test_a_single_process_needs_no_watch() -> None:
    with distributed.watched():
        pass
    with pytest.raises(ValueError, match="timeout must be more than 0"), distributed.watched(0):
        pass
