"""A run of `fit` that was interrupted ends as if it had not been, to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn

# What a user's script would be; the callback tells the test where the run is.
SCRIPT = """
import hashlib, sys, threading
import tape_core as tc
import tape_nn as nn

class Tell:
    def on_batch_end(self, run):
        print(run.step, flush=True)
        if run.step == last + 1:
            threading.Event().wait()  # to be killed, soon

last = int(sys.argv[2]) if len(sys.argv) > 2 else 100

tc.set_seed(3)
x = tc.default_rng(1).normal((90, 4))
y = tc.astype(tc.sum(x * x, axis=-1) > 3.0, tc.int64)
model = nn.Sequential([
    nn.Dense(16, activation="relu"), nn.Dropout(0.3), nn.BatchNorm(),
    nn.Dropout(0.2, rng=tc.default_rng(8)), nn.Dense(2),
])
average = nn.ExponentialMovingAverage(model)
history = nn.fit(
    model, (x, y), loss=nn.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=nn.AdamW(nn.schedules.CosineDecay(0.01, 30), global_clipnorm=1.0),
    epochs=5, batch_size=16, metrics=[nn.metrics.SparseCategoricalAccuracy("accuracy")],
    validation=(x, y), callbacks=[average, nn.EarlyStopping(patience=3, restore_best=True), Tell()],
    checkpoint=sys.argv[1] if len(sys.argv) > 1 else None, checkpoint_every=4 if len(sys.argv) > 1 else None,
    progress=False,
)
digest = hashlib.sha256(repr(dict(history)).encode())
for state in (model.state_dict(), average.state_dict()):
    for name, value in state.items():
        digest.update(name.encode() + value.numpy().tobytes())
print(digest.hexdigest())
"""


def run_script(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(os.name != "posix", reason="only POSIX can kill without notice")
def test_killed_without_notice(tmp_path: Path) -> None:
    """Several times: soon after the start, within epochs, and while the file is written."""
    whole = run_script()
    assert len(whole) == 31  # 30 steps, and the digest
    file = str(tmp_path / "run.safetensors")
    told = []
    for last in (2, 9, 12, 23):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, file, str(last)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                told.append(int(line))
                if told[-1] >= last:
                    process.send_signal(signal.SIGKILL)
                    break
            assert process.wait() == -signal.SIGKILL
    rest = run_script(file)
    assert 20 < int(rest[0]) <= 25  # it did not begin anew
    assert rest[-1] == whole[-1]
    assert run_script(file) == whole[-1:]  # the run is over, with the same results
    assert os.listdir(tmp_path) == ["run.safetensors"]


class Interrupted(Exception):
    pass


class Interruption(nn.Callback):
    """Stands for whatever ends a program."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_batch_end(self, run: Any) -> None:
        if run.step == self.step:
            raise Interrupted


def train(file: Path | None, data: Any, interruption: int | None = None, **options: Any) -> tuple[Any, Any]:
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(3), nn.Dropout(0.5), nn.Dense(1)])
    every = None if file is None else options.pop("checkpoint_every", 2)
    options.pop("checkpoint_every", None)
    history = nn.fit(
        model,
        data,
        **{
            "loss": nn.losses.BinaryCrossentropy(from_logits=True),
            "optimizer": nn.Adam(0.1),
            "epochs": 3,
            "checkpoint": file,
            "checkpoint_every": every,
            "callbacks": [Interruption(interruption), *options.pop("callbacks", ())],
            "progress": False,
            **options,
        },
    )
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}, dict(history)


def arrays(n: int = 20) -> tuple[tc.Tensor, tc.Tensor]:
    x = tc.default_rng(0).normal((n, 4))
    return x, tc.astype(x[:, :1] > 0, tc.float32)


def interrupted(file: Path, data: Any, steps: tuple[int, ...], **options: Any) -> tuple[Any, Any]:
    for step in steps:
        with pytest.raises(Interrupted):
            train(file, data() if callable(data) else data, step, **options)
    return train(file, data() if callable(data) else data, **options)


def test_running_state_of_metrics(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 4}

    def metrics() -> list[nn.metrics.Metric]:
        return [nn.metrics.AUC(), nn.metrics.BinaryAccuracy(0.0)]

    whole = train(None, arrays(), metrics=metrics(), **options)
    assert interrupted(tmp_path / "a", arrays(), (3, 8), metrics=metrics(), **options) == whole
    one_epoch = interrupted(tmp_path / "b", arrays(), (8,), metrics=metrics(), checkpoint_every=None, **options)
    assert one_epoch == whole


def test_batches_made_with_random_numbers(tmp_path: Path) -> None:
    """The order is drawn at the beginning of an epoch, and noise for each batch, from the program's generator."""
    x, y = arrays()

    def batches(epoch: int) -> Iterator[Any]:
        order = tc.random.global_rng().permutation(20)
        for start in range(0, 20, 4):
            rows = order[start : start + 4]
            yield x[rows] + tc.random.global_rng().normal((4, 4)), y[rows]

    whole = train(None, batches)
    assert interrupted(tmp_path / "a", lambda: batches, (3, 7, 10)) == whole


def test_a_longer_run_goes_on(tmp_path: Path) -> None:
    whole = train(None, arrays(), epochs=5)
    train(tmp_path / "a", arrays(), epochs=2)
    assert train(tmp_path / "a", arrays(), epochs=5) == whole


def test_loss_scaling_goes_on(tmp_path: Path) -> None:
    def options() -> dict[str, Any]:
        return {"optimizer": nn.LossScaler(nn.Adam(0.1), growth_interval=3), "batch_size": 4}

    whole = train(None, arrays(), **options())
    for step in (4, 8):
        with pytest.raises(Interrupted):
            train(tmp_path / "a", arrays(), step, **options())
    last = options()
    assert train(tmp_path / "a", arrays(), **last) == whole
    assert last["optimizer"].scale == 2.0 ** (15 + 15 // 3)


def test_several_optimizers_go_on(tmp_path: Path) -> None:
    def step(run: Any, batch: Any) -> dict[str, Any]:
        x, y, _ = nn.fitting.unpack(batch)
        for optimizer, layer in zip(run.optimizer.values(), run.model.layers[::2], strict=True):
            with tc.GradientTape() as tape:
                loss = run.loss(y, run.model(x))
            variables = layer.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}

    def options() -> dict[str, Any]:
        optimizers = {"first": nn.Adam(0.1), "last": nn.SGD(0.1, momentum=0.9)}
        return {"optimizer": optimizers, "train_step": step, "batch_size": 4}

    whole = train(None, arrays(), **options())
    with pytest.raises(Interrupted):
        train(tmp_path / "a", arrays(), 8, **options())
    assert train(tmp_path / "a", arrays(), **options()) == whole
    other = options()
    other["optimizer"]["last"] = nn.SGD(0.1, momentum=0.8)
    with pytest.raises(ValueError, match=r"optimizer last\.momentum was 0.9 and is 0.8"):
        train(tmp_path / "a", arrays(), **other)


def test_what_callbacks_remember(tmp_path: Path) -> None:
    class Count(nn.Callback):
        def __init__(self) -> None:
            self.begun = 0
            self.batches = {"n": 0, "last": None}

        def on_train_begin(self, run: Any) -> None:
            self.batches = {"n": 0, "last": None}

        def on_epoch_begin(self, run: Any) -> None:
            self.begun += 1

        def on_batch_end(self, run: Any) -> None:
            self.batches = {"n": self.batches["n"] + 1, "last": tc.asarray([run.step])}  # type: ignore[operator]

        def state_dict(self) -> dict[str, Any]:
            return self.batches

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.batches = state

    with pytest.raises(Interrupted):
        train(tmp_path / "a", arrays(), 7, callbacks=[Count()], batch_size=4)
    count = Count()
    train(tmp_path / "a", arrays(), callbacks=[count], batch_size=4)
    assert count.batches["n"] == 15
    assert count.batches["last"].tolist() == [15]  # type: ignore[attr-defined]
    assert count.begun == 2  # that which was interrupted, too
    Count.state_dict = lambda self: {"n": object()}  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError, match=r"callbacks/0/n is of type 'object'; a state is made of"):
        train(tmp_path / "b", arrays(), callbacks=[Count()])


def test_anew_on_request(tmp_path: Path) -> None:
    whole = train(tmp_path / "a", arrays())
    with pytest.raises(Interrupted):
        train(tmp_path / "a", arrays(), 1, resume=False)
    assert train(tmp_path / "a", arrays(), resume=False) == whole


def test_what_a_kill_within_writing_leaves_is_removed(tmp_path: Path) -> None:
    for name in (".a.0123456789abcdef", ".a.settings", ".b.0123456789abcdef"):
        (tmp_path / name).write_bytes(b"")
    train(tmp_path / "a", arrays())
    assert sorted(os.listdir(tmp_path)) == [".a.settings", ".b.0123456789abcdef", "a"]


def test_weights_can_be_read_from_the_file(tmp_path: Path) -> None:
    weights, _ = train(tmp_path / "a", arrays())
    tensors, _ = nn.load_tensors(tmp_path / "a")
    for name, content in weights.items():
        assert tensors[f"model/{name}"].numpy().tobytes() == content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"batch_size": 8}, "batch_size was 32 and is 8", id="batch-size"),
        pytest.param({"shuffle": False}, "shuffle was True and is False", id="shuffle"),
        pytest.param({"seed": 7}, r"seed was \d+ and is 7", id="seed"),
        pytest.param({"optimizer": nn.SGD(0.1)}, "optimizer was 'Adam' and is 'SGD'", id="optimizer"),
        pytest.param({"optimizer": nn.Adam(0.1, beta_1=0.8)}, "optimizer.beta_1 was 0.9 and is 0.8", id="beta"),
        pytest.param({"optimizer": nn.Adam(0.2)}, "optimizer.learning_rate was 0.1 and is 0.2", id="rate"),
        pytest.param(
            {"loss": nn.losses.MeanSquaredError()}, "loss was 'BinaryCrossentropy' and is 'MeanSquaredError'", id="loss"
        ),
        pytest.param({"metrics": [nn.metrics.AUC()]}, r"metrics was \[\] and is \['auc'\]", id="metrics"),
        pytest.param(
            {"callbacks": [nn.EarlyStopping()]}, r"callbacks was \[\] and is \['EarlyStopping'\]", id="callbacks"
        ),
        pytest.param({"class_weight": {0: 2.0}}, "class_weight was None and is {'0': 2.0}", id="class-weight"),
        pytest.param({"epochs": 1}, "3 epochs are done, and epochs is 1", id="epochs"),
    ],
)
def test_a_file_of_another_run(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    train(tmp_path / "a", arrays())
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(ValueError, match=r"'.*a' is of another run than this:\n  " + message + r"\n[^ ]*Remove it"):
        train(tmp_path / "a", arrays(), **options)
    assert (tmp_path / "a").read_bytes() == before


def test_a_file_of_another_model_or_of_other_data(tmp_path: Path) -> None:
    train(tmp_path / "a", arrays())
    x, y = arrays(30)
    with pytest.raises(ValueError, match=r"arrays was \['float32 \(20, 4\)'.* and is \['float32 \(30, 2\)'") as caught:
        train(tmp_path / "a", (x[:, :2], y))
    assert "the variable 'layers.0.kernel' was float32 (4, 3) and is float32 (2, 3)" in str(caught.value)
    model = nn.Sequential([nn.Dense(3), nn.Dropout(0.5, rng=tc.default_rng(0)), nn.Dense(1, use_bias=False)])
    options: dict[str, Any] = {"optimizer": nn.Adam(0.1), "loss": nn.losses.BinaryCrossentropy(from_logits=True)}
    with pytest.raises(ValueError, match=r"random generators were \[''\] and are \['', 'layers.1.rng'\]") as caught:
        nn.fit(model, arrays(), checkpoint=tmp_path / "a", progress=False, **options)
    assert "the variable 'layers.2.bias' was float32 (1,) and is not there" in str(caught.value)


def test_files_that_are_no_runs(tmp_path: Path) -> None:
    file = tmp_path / "a"
    nn.save_tensors(file, {"w": tc.ones(2)})
    with pytest.raises(ValueError, match="was not written by fit"):
        train(file, arrays())
    train(file, arrays(), resume=False)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is damaged"):
        train(file, arrays())
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        train(tmp_path / "missing" / "a", arrays())


def test_a_state_that_makes_no_sense_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """Whatever the file says: the error is the documented one, with the file's name."""
    file = tmp_path / "a"
    train(file, arrays(), callbacks=[nn.EarlyStopping("loss", patience=9, restore_best=True)])
    tensors, metadata = nn.load_tensors(file)
    whole = metadata["tape_nn.fit"]
    state = json.loads(whole)
    texts = [whole[:-1], whole[1:], "[" * 100_000, "null", "[]", "7", '{"dict": {}}', whole.replace("tensor", "tensar")]
    wrong: list[Any] = [None, -1, 1e400, 10**400, "x", [], [[]], {}, {"dict": {}}, {"tensor": "none"}, {"dict": [1]}]
    for name in state["dict"]:
        parts = {key: value for key, value in state["dict"].items() if key != name}
        texts.append(json.dumps({"dict": parts}))
        texts += [json.dumps({"dict": parts | {name: value}}) for value in wrong]
    for text in texts:
        nn.save_tensors(file, tensors, {"tape_nn.fit": text})
        tc.set_seed(0)
        model = nn.Sequential([nn.Dense(3), nn.Dropout(0.5), nn.Dense(1)])
        model.build((None, 4))
        before, random = {name: value.tolist() for name, value in model.state_dict().items()}, tc.random.get_state()
        refused = None
        try:
            nn.fit(
                model,
                arrays(),
                loss=nn.losses.BinaryCrossentropy(from_logits=True),
                optimizer=nn.Adam(0.1),
                epochs=3,
                checkpoint=file,
                checkpoint_every=2,
                callbacks=[nn.EarlyStopping("loss", patience=9, restore_best=True)],
                progress=False,
            )
        except ValueError as error:
            refused = str(error)
        if refused is not None:
            assert repr(str(file)) in refused, text
            assert {name: value.tolist() for name, value in model.state_dict().items()} == before
            assert tc.random.get_state() == random
