"""Mistakes of users of several processes: errors that say what is wrong on which process, on all, and no hang."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn
from support import run_processes
from tape_torch import distributed

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("mistakes_in_processes.py")


def test_mistakes_of_two_processes_are_errors_on_both(tmp_path: Path) -> None:
    assert run_processes(PROGRAM.read_text(encoding="utf-8"), 2, str(tmp_path), may_fail=[1])[0] == "done\n"


def test_a_collective_after_the_end_of_the_group_says_so() -> None:
    program = """
import pytest, tape_core as tc, torch.distributed as dist
from tape_torch.distributed import all_reduce, mesh
m = mesh({"data": -1}, device="cpu")
dist.destroy_process_group()
with pytest.raises(RuntimeError, match="the process group of this mesh is no more: torch.distributed.destroy_process"):
    all_reduce(tc.ones(2, backend="torch:cpu"), m)
print("done")
"""
    assert run_processes(program, 1)[0] == "done\n"


_AFTERWARDS = """
import pytest, tape_core as tc, torch.distributed as dist
from tape_torch.distributed import distribute, full, local, mesh
tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu")
x = distribute(tc.ones((4, 2)), ("data",), mesh=m)
w = distribute(tc.Variable(tc.ones((2, 2))), (), mesh=m)
step = tc.function(lambda x: tc.mean(x @ w))
for _ in range(5):
    step(x)
dist.destroy_process_group()
acts = {
    "sum": lambda: tc.sum(x), "sort": lambda: tc.sort(x, axis=0), "beside": lambda: x * tc.ones((4, 2)),
    "full": lambda: full(x), "compiled": lambda: step(x), "assign": lambda: w.assign(tc.ones((2, 2))),
    "gradient": lambda: tc.grad(lambda x: tc.mean(x @ w))(x), "traced": lambda: tc.function(lambda x: tc.sum(x))(x),
    "numpy": lambda: x.numpy(), "distribute": lambda: distribute(tc.ones((4, 2)), ("data",), mesh=m),
}
for name, act in acts.items():
    with pytest.raises(RuntimeError, match="is no more: torch.distributed.destroy_process_group has ended it"):
        act()
        raise AssertionError(name)
assert local(x * 2.0).tolist() == [[2.0, 2.0]] * 2
print("done")
"""


def test_divided_arrays_after_the_end_of_their_group() -> None:
    assert run_processes(_AFTERWARDS, 2) == ["done\n"] * 2


# -- checkpoints that are not what they should be, in one process


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (1, 2):
        distributed.save(tmp_path / "run", {"w": tc.asarray([1.0], backend="torch")}, step=step, keep=2)
    return tmp_path / "run"


def test_a_checkpoint_without_its_manifest(run: Path) -> None:
    newest = run / "000002-step-2"
    (newest / "tape.json").unlink()
    for path in (run, newest):
        with pytest.raises(
            FileNotFoundError, match=r"tape.json' is missing: .*remove the folder '\S*000002-step-2'"
        ) as told:
            distributed.load(path)
        assert "'000001-step-1' is beside it" in str(told.value)


def test_a_file_and_no_folder_in_place_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        distributed.load(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"load: '\S*file' is a file"):
        distributed.load(tmp_path / "file")
    with pytest.raises(NotADirectoryError, match=r"save: '\S*file' is a file.*name another path"):
        distributed.save(tmp_path / "file", {})


def test_a_checkpoint_is_not_taken_for_the_folder_of_a_run(run: Path) -> None:
    newest = run / "000002-step-2"
    with pytest.raises(ValueError, match=r"is itself a checkpoint.*name the folder of the run, '\S*run'"):
        distributed.save(newest, {})
    # `fit` had begun anew, and put its own into it.
    model = nn.Dense(1)
    strategy = nn.parallel.Replicated(distributed.mesh({"data": 1}, device="cpu"))
    x = tc.ones((4, 2), backend="torch:cpu")
    with pytest.raises(ValueError, match="is itself a checkpoint"):
        nn.fit(
            model, (x, x[:, :1]), loss=nn.losses.MeanSquaredError(), optimizer=nn.SGD(), progress=False,
            parallel=strategy, checkpoint=newest,
        )  # fmt: skip
    assert sorted(os.listdir(newest)) == ["process-00000.safetensors", "tape.json"]


def test_a_step_that_is_no_number(tmp_path: Path) -> None:
    model = nn.Dense(1)
    model.build((None, 1))
    with pytest.raises(TypeError, match="save_run: step must be an integer"):
        nn.save_run(tmp_path / "run", model, step=1.5)  # type: ignore[arg-type]


# -- plans


def _planned(plan: Any, **options: Any) -> nn.parallel.TensorParallel:
    with tc.use_backend("torch:cpu"):
        model = nn.Sequential([nn.Dense(4), nn.Dense(2)])
        model.build((None, 4))
        strategy = nn.parallel.TensorParallel(distributed.mesh({"data": 1, "model": 1}, device="cpu"), plan, **options)
        strategy.prepare(model)
    return strategy


def test_a_plan_for_variables_that_the_model_does_not_have() -> None:
    with pytest.raises(
        ValueError, match=r"'layer.0.kernel' in the plan is no Variable.*did you mean 'layers.0.kernel'\?"
    ):
        _planned({"layer.0.kernel": (None, "model")})
    with pytest.warns(UserWarning, match=r"nothing is divided by '\*.kernels' of the plan.*'layers.0.kernel'") as said:
        _planned({"*.kernels": (None, "model"), "*.bias": ("model",)})
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _planned({"layers.0.kernel": (None, "model"), "*.bias": ("model",)})


def test_a_plan_of_another_kind_and_axes_that_are_not_there() -> None:
    with pytest.raises(TypeError, match="plan must be layouts by patterns of names"):
        _planned([("*.bias", ("model",))])
    with pytest.raises(ValueError, match=r"data='dat' is no axis of the mesh.*did you mean 'data'\?"):
        _planned(None, data="dat")
    with pytest.raises(ValueError, match=r"model='modl' is no axis of the mesh.*did you mean 'model'\?"):
        _planned(None, model="modl")


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (None, "the default plan divides attention, pairs of Dense layers in a Sequential, and embeddings"),
        ({"*.kernal": (None, "model")}, r"the plan has layouts for '\*.kernal'; did you mean 'kernel'\?"),
        (lambda name, variable: ("data",), "the plan gives no Variable a layout with such an axis"),
    ],
)
@pytest.mark.filterwarnings("ignore:TensorParallel. nothing is divided by")
def test_a_plan_that_divides_nothing_of_a_model(plan: Any, told: str) -> None:
    class Two:
        """A mesh of four processes."""

        engine, axes, size, rank = distributed, {"data": 2, "model": 2}, 4, 0

    mesh: Any = Two()
    with tc.use_backend("torch:cpu"):
        model = nn.Sequential([nn.Conv1D(2, 3), nn.Flatten()])
        model.build((None, 5, 1))
        strategy = nn.parallel.TensorParallel(mesh, plan)
        with pytest.raises(ValueError, match=rf"nothing of the model is divided along 'model'.*{told}\. The model has"):
            strategy.prepare(model)


def test_an_axis_of_the_mesh_that_nothing_is_divided_along() -> None:
    class Two:
        """A mesh of four processes whose user has misspelled an axis."""

        engine, axes, size, rank = distributed, {"dta": 2, "model": 2}, 4, 0

    mesh: Any = Two()
    with pytest.raises(ValueError, match=r"data='data' is no axis of the mesh, whose axes are 'dta', 'model'; did you"):
        nn.parallel.TensorParallel(mesh)
    assert nn.parallel.TensorParallel(mesh, data=None).data is None
    assert nn.parallel.TensorParallel(mesh, {"*.kernel": ("dta", "model")}).data is None
