"""Texts of what a user holds at a prompt: they say what it is, and with which settings."""

from __future__ import annotations

from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn

TEXTS: dict[str, Any] = {
    "Adam(learning_rate=0.5, clipnorm=1.0, beta_1=0.9, beta_2=0.999, epsilon=1e-07, amsgrad=False, lazy=False)": (
        lambda: nn.Adam(0.5, clipnorm=1.0)
    ),
    "SGD(learning_rate=WarmUp(schedule=0.1, steps=3, start=0.0), momentum=0.0, nesterov=False, lazy=False)": (
        lambda: nn.SGD(nn.schedules.WarmUp(0.1, 3))
    ),
    "LossScaler(Lion(learning_rate=0.5, beta_1=0.9, beta_2=0.99), scale=32768.0)": lambda: nn.LossScaler(nn.Lion(0.5)),
    "Huber(delta=2.0, reduction='sum_over_batch_size')": lambda: nn.losses.Huber(2.0),
    "Loss(hinge, reduction='none')": lambda: nn.losses.Loss(nn.losses.hinge, None),
    "Mean(name='cost')": lambda: nn.metrics.Mean("cost"),
    "ExponentialMovingAverage(decay=0.5, variables=1)": (
        lambda: nn.ExponentialMovingAverage({"w": tc.Variable(0.0)}, 0.5)
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_settings_are_shown(text: str) -> None:
    thing = TEXTS[text]()
    assert repr(thing) == text

    @tc.function
    def f(x: Any) -> Any:
        seen.append(repr(thing))
        return x

    seen: list[str] = []
    f(tc.ones(2))
    assert seen == [repr(thing)]  # also while a function is traced


def test_sequential_lists_its_layers() -> None:
    model = nn.Sequential([nn.Dense(3), tc.relu, nn.Sequential([nn.Dropout(0.5)])])
    model.build((None, 2))
    assert repr(model).splitlines() == [
        "<Sequential: 2 variables, 9 parameters",
        "  (0): <Dense: 2 variables, 9 parameters>",
        "  (1): relu",
        "  (2): <Sequential: 0 variables, 0 parameters",
        "    (0): <Dropout: 0 variables, 0 parameters>",
        "  >",
        ">",
    ]


def test_completion_shows_public_names_only() -> None:
    assert {name for name in dir(nn) if not name.startswith("_")} == {*nn.__all__, "extend", "layers", "optimizers"}
    shown = {name for name in dir(tc) if not name.startswith("_")}
    assert {name for name in tc.__all__ if not name.startswith("_")} <= shown
    assert not shown & {"base", "compiled", "engine", "interop", "modes", "ops", "sparsity", "transforms"}
    assert [name for name in shown if not hasattr(tc, name)] == []


def test_a_compiled_function_says_its_name_and_traces() -> None:
    @tc.function
    def double(x: Any) -> Any:
        return x * 2

    assert repr(double) == "<compiled function double: 0 traces>"
    double(tc.ones(2))
    assert repr(double) == "<compiled function double: 1 trace>"


def test_tensors_in_notebooks() -> None:
    x = tc.asarray([1.0, 2.0])
    assert x._repr_html_() == f"<pre>{x!r}</pre>"
    assert "minimum 0, mean 1, maximum 2</pre>" in tc.linspace(0.0, 2.0, 2001)._repr_html_()
    assert "minimum" not in tc.arange(2001)._repr_html_()
    seen: list[str] = []

    def double(row: Any) -> Any:
        seen.append(row._repr_html_())
        return row * 2

    @tc.function
    def f(x: Any) -> Any:
        seen.append(x._repr_html_())
        return tc.vmap(double)(x)

    f(tc.ones((3, 2001)))
    tc.vmap(double)(tc.ones((3, 2001)))
    assert len(seen) == 3
    assert not any("minimum" in text or "<another" in text for text in seen)


def test_a_notebook_shows_a_module_as_the_table_of_its_variables() -> None:
    model = nn.Sequential([nn.Dense(3)])
    assert "not built" in model._repr_html_()
    model.build((None, 2))
    html = model._repr_html_()
    assert html.startswith("<p>Sequential</p><table>")
    assert "<td>kernel (2, 3), bias (3,)</td><td>9</td>" in html
    assert nn.Dropout(0.5)._repr_html_() == "<pre>&lt;Dropout: 0 variables, 0 parameters&gt;</pre>"


def test_a_notebook_shows_a_module_that_a_transformation_made() -> None:
    seen: list[str] = []

    def loss(model: Any) -> Any:
        seen.append(model._repr_html_())
        return tc.sum(model(tc.ones((1, 2))))

    model = nn.Dense(3)
    model.build((None, 2))
    tc.grad(loss)(model)
    assert "Dense" in seen[0]


def test_a_notebook_shows_the_settings_of_an_optimizer() -> None:
    html = nn.Adam(0.5, clipnorm=1.0)._repr_html_()
    assert html.startswith("<p>Adam</p><table>")
    assert "<th>learning_rate</th><td>0.5</td>" in html
    assert "<th>clipnorm</th><td>1.0</td>" in html
    assert "WarmUp(schedule=0.1" in nn.SGD(nn.schedules.WarmUp(0.1, 3))._repr_html_()


def test_a_notebook_shows_what_a_compiled_function_was_traced_for() -> None:
    @tc.function(fallback="silent")
    def double(x: Any) -> Any:
        return x * 2 if x.ndim or x > 0 else x

    assert "traced when it is first called" in double._repr_html_()
    double(tc.ones((2, 3)))
    double(tc.ones(()))
    html = double._repr_html_()
    assert "<td>float32[2,3]</td><td>1</td><td>1</td>" in html
    assert "<code>double.show()</code>" in html
    assert "runs as plain Python for some arguments: double is compiled" in html
    assert "<lambda>" not in tc.function(lambda x: x)._repr_html_()


@pytest.mark.parametrize("kind", [nn.Sequential, nn.Adam, nn.LossScaler, nn.losses.MeanSquaredError])
def test_a_debugger_can_show_an_object_that_is_being_made(kind: type) -> None:
    thing = kind.__new__(kind)
    assert repr(thing) == f"<{kind.__name__} that is not initialised>"
    if hasattr(kind, "_repr_html_"):
        assert "that is not initialised" in thing._repr_html_()


def test_what_is_not_built_says_so_and_one_variable_is_no_plural() -> None:
    assert repr(nn.Dense(3)) == "<Dense: not built>"

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = tc.Variable(1.0)

    model = Scale()
    assert repr(model) == "<Scale: 1 variable, 1 parameter>"
    assert repr(nn.ParameterGroup([model.scale], learning_rate=0.1)) == "ParameterGroup(1 variable, learning_rate=0.1)"
