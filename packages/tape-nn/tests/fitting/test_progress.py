"""What `fit`, `evaluate` and `predict` say of how far they are."""

from __future__ import annotations

import io
import logging
from contextlib import redirect_stderr
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.base import displays, progress
from tape_nn.fitting import resuming
from tape_nn.fitting.storing import write_state

MSE = nn.losses.MeanSquaredError()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPE_PROGRESS", raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(progress, "AFTER", 0.0)
    monkeypatch.setattr(displays.Display, "interval", 0.0)
    monkeypatch.setattr(displays, "_terminal", None)


def _fit(**options: Any) -> nn.Module:
    x = tc.ones((4, 2))
    model = nn.Dense(1)
    settings = {"loss": MSE, "optimizer": nn.SGD(0.0), "batch_size": 1, **options}
    nn.fit(model, (x, x[:, :1]), validation=(x, x[:, :1]), **settings)
    return model


def test_a_terminal_shows_how_far_an_epoch_is() -> None:
    with redirect_stderr(Terminal()) as stream:
        _fit(epochs=2, compile=True)
    text = stream.getvalue()
    for part in (
        "epoch 1/2  1/4 batches  loss ",
        "epoch 2/2  4/4 batches",
        "validation  3/4 batches",
        "compiling train_step",
    ):
        assert part in text
    lines = [line.rpartition("\r")[2] for line in text.split("\n")]
    assert [line.partition(":")[0] for line in lines[:2]] == ["epoch 1/2", "epoch 2/2"]


def test_checkpoints_that_take_long_are_shown(tmp_path: Path) -> None:
    written = Event()

    class Watched(Terminal):
        def write(self, text: str) -> int:
            if f"writing {tmp_path}" in text:
                written.set()
            return super().write(text)

    def slow(*args: Any) -> None:
        assert written.wait(120)
        write_state(*args)

    with pytest.MonkeyPatch.context() as patch, redirect_stderr(Watched()):
        patch.setattr(resuming, "write_state", slow)
        _fit(epochs=1, checkpoint=tmp_path / "run")


def test_evaluate_and_predict_show_their_batches() -> None:
    model, x = nn.Dense(1), tc.ones((4, 2))
    with redirect_stderr(Terminal()) as stream:
        nn.evaluate(model, (x, x[:, :1]), loss=MSE, batch_size=1)
        nn.predict(model, x, batch_size=1)
    assert "evaluate  3/4 batches" in stream.getvalue()
    assert "predict  3/4 batches" in stream.getvalue()


def test_nothing_is_shown_where_progress_is_false() -> None:
    with redirect_stderr(Terminal()) as stream:
        model = _fit(compile=True, progress=False)
        x = tc.ones((4, 2))
        nn.evaluate(model, (x, x[:, :1]), loss=MSE, progress=False)
        nn.predict(model, x, progress=False)
    assert stream.getvalue() == ""


def test_the_logger_gets_a_line_for_each_epoch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tape_nn"):
        _fit(epochs=2, progress=False)
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert told[:2] == ["epoch 1/2", "epoch 2/2"]
