"""Module finds its Variables."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import tape_core as tc
import tape_nn as nn


def names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_variables()]


class Pair(NamedTuple):
    first: Any
    second: Any


def test_order_of_definition_and_nesting() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            self.z = tc.Variable(1.0)
            self.a = tc.Variable(2.0)

    class Outer(nn.Module):
        def __init__(self) -> None:
            self.last = tc.Variable(0.0)
            self.inner = Inner()
            self.blocks = [Inner(), (Inner(), {"x": tc.Variable(3.0)})]
            self.by_name = {"q": tc.Variable(4.0), "b": [tc.Variable(5.0)]}
            self.pair = Pair(tc.Variable(6.0), None)
            self.number, self.text, self.tensor = 3, "kernel", tc.ones(2)

    outer = Outer()
    assert names(outer) == [
        "last",
        "inner.z",
        "inner.a",
        "blocks.0.z",
        "blocks.0.a",
        "blocks.1.0.z",
        "blocks.1.0.a",
        "blocks.1.1.x",
        "by_name.q",
        "by_name.b.0",
        "pair.0",
    ]
    assert isinstance(outer.variables, tuple)
    assert [id(v) for v in outer.variables] == [id(v) for _, v in outer.named_variables()]


def test_shared_variables_count_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.a = tc.Variable([1.0, 2.0])
            self.b = tc.Variable([1.0, 2.0])  # equal, but another
            self.again = [self.a, self.b]
            self.layer = nn.Dense(2)
            self.same_layer = self.layer

    tied = Tied()
    tied.layer(tc.ones((1, 2)))
    assert names(tied) == ["a", "b", "layer.kernel", "layer.bias"]


def test_a_child_may_hold_its_parent() -> None:
    class Node(nn.Module):
        def __init__(self, parent: nn.Module | None) -> None:
            self.parent = parent
            self.weight = tc.Variable(1.0)

    root = Node(None)
    root.child = Node(root)  # type: ignore[attr-defined]
    root.self_containing = [root]  # type: ignore[attr-defined]
    assert names(root) == ["weight", "child.weight"]


def test_trainable_variables() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            self.scale = tc.Variable(1.0)
            self.mean = tc.Variable(0.0, trainable=False)

    norm = Norm()
    assert norm.variables == (norm.scale, norm.mean)
    assert norm.trainable_variables == (norm.scale,)


def test_attributes_can_change_at_any_time() -> None:
    class Empty(nn.Module):
        pass

    module: Any = Empty()
    assert module.variables == ()
    module.w = tc.Variable(1.0)
    module.more = []
    module.more.append(tc.Variable(2.0))
    assert names(module) == ["w", "more.0"]
    del module.w
    assert names(module) == ["more.0"]


def test_module_without_call_is_not_callable() -> None:
    with pytest.raises(TypeError, match="not callable"):
        nn.Module()()  # type: ignore[operator]


def test_a_model_as_in_the_tensorflow_guide() -> None:
    class LinearModel(nn.Module):
        def __init__(self) -> None:
            self.w = tc.Variable(2.0)
            self.b = tc.Variable(1.0)

        def __call__(self, x: Any) -> tc.Tensor:
            return self.w * x + self.b

    model = LinearModel()
    x, y = tc.asarray([1.0, 2.0, 3.0]), tc.asarray([3.0, 5.0, 8.0])
    optimizer = nn.SGD(learning_rate=0.1)
    losses = []
    for _ in range(200):
        with tc.GradientTape() as tape:
            loss = tc.mean((y - model(x)) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        losses.append(float(loss))
    assert losses[0] == pytest.approx(1 / 3)
    assert losses[-1] < 0.06 < losses[0]
    assert tape.watched_variables() == (model.w, model.b)
    assert repr(model) == "<LinearModel: 2 variables, 2 parameters>"
