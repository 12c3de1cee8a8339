"""Calls with a functional copy of a Module that has changed in a single point since the guard of calls was written."""

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_compile import function

pytestmark = pytest.mark.each_backend


class Model(nn.Module):
    def __init__(self) -> None:
        self.rate = 2.0
        self.sizes = [1, 2]
        self.table = {"a": ([1, {"b": 2}], 3)}
        self.inner = nn.Dense(2)
        self.layers = [nn.Dense(2), nn.Dense(2)]
        self.pair = (nn.Dense(2), self.layers[0])
        self.named = {"norm": nn.BatchNorm(), "scale": tc.Variable([1.0, 2.0])}
        self.shift = tc.Variable(0.5, trainable=False)
        self.weight = tc.Variable(2.0)
        self.tied = self.weight
        self.back = [self]

    def __call__(self, x: Any) -> Any:
        for layer in (self.inner, *self.layers, *self.pair):
            x = layer(x)
        x = self.named["norm"](x) * self.named["scale"]  # type: ignore[operator]
        return self.rate * x * self.weight + self.shift * self.tied


class Other(Model):
    def __call__(self, x: Any) -> Any:
        return 3.0 * super().__call__(x)


SETTINGS = {"rate", "sizes", "table", "units", "more"}
X = np.linspace(-1.0, 1.0, 6, dtype="float32").reshape(3, 2)


def made() -> Any:
    model = Model()
    model(tc.asarray(X))
    model.eval()
    return tc.tree_map(lambda leaf: leaf + 0.125, model)


def settings_of(module: nn.Module) -> list[Any]:
    return [(name, value) for name, value in vars(module).items() if name in SETTINGS]


def look(tree: Any, x: Any) -> tuple[Any, str]:
    """The result of a copy in a tree, and all that a function can see of it besides values."""
    copied = tree
    while not isinstance(copied, nn.Module):
        copied = copied["m"] if isinstance(copied, dict) else copied[0]
    seen = [(name, type(part).__name__, part.training, settings_of(part)) for name, part in copied.named_modules()]
    leaves = [
        (type(leaf).__name__, str(getattr(leaf, "dtype", None)), getattr(leaf, "shape", None))
        for leaf in tc.tree_leaves(copied)
    ]
    return copied(x), str((seen, leaves, copied.tied is copied.weight))


def check(f: Any, tree: Any) -> None:
    x = tc.asarray(X)
    for _ in range(2):
        found, expected = f(tree, x), look(tree, x)
        assert found[1] == expected[1]
        np.testing.assert_allclose(found[0].numpy(), expected[0].numpy(), rtol=1e-4, atol=1e-5)


def retyped(model: Any) -> None:
    model.__class__ = Other


def layer() -> nn.Dense:
    made = nn.Dense(2, use_bias=False)
    made.build((None, 2))
    return made


def cast(tensor: Any) -> Any:
    return tc.astype(tensor, "float64")


CHANGES: dict[str, Callable[[Any], object]] = {
    "a number": lambda m: setattr(m, "rate", 0.5),
    "a number of the other sign": lambda m: setattr(m, "rate", -0.0),
    "a number of another type": lambda m: setattr(m, "rate", 2),
    "a list that grows": lambda m: m.sizes.append(3),
    "an element of a list": lambda m: m.sizes.__setitem__(0, True),
    "another list": lambda m: setattr(m, "sizes", [2, 1]),
    "a list in a tuple in a dict": lambda m: m.table["a"][0].append(4),
    "a dict in a list in a tuple in a dict": lambda m: m.table["a"][0][1].update(b=5),
    "a key more": lambda m: m.table.update(c=1),
    "the order of keys": lambda m: (m.table.update(z=1), m.table.update(a=m.table.pop("a"))),
    "an attribute more": lambda m: setattr(m, "more", 1),
    "an attribute less": lambda m: delattr(m, "back"),
    "an attribute of a layer": lambda m: setattr(m.layers[1], "units", 3),
    "the activation of a layer": lambda m: setattr(m.pair[0], "activation", tc.tanh),
    "the mode": lambda m: m.train(),
    "the mode of a layer": lambda m: m.inner.train(),
    "a layer more": lambda m: m.layers.append(m.inner),
    "a layer less": lambda m: m.layers.pop(),
    "another layer": lambda m: setattr(m, "inner", layer()),
    "another layer in a dict": lambda m: m.named.update(norm=layer()),
    "a dict with one more": lambda m: m.named.update(more=m.inner),
    "the class": retyped,
    "the class of a layer": lambda m: setattr(m.named["norm"], "__class__", type("Mine", (nn.BatchNorm,), {})),
    "a Variable that is trained now": lambda m: setattr(m.shift, "trainable", True),
    "the value of a Variable": lambda m: m.shift.assign(7.0),
    "statistics": lambda m: m.named["norm"].moving_mean.assign([0.5, 0.25]),
    "other statistics": lambda m: setattr(m.named["norm"], "moving_mean", tc.Variable([3.0, 4.0], trainable=False)),
    "a Tensor in place of a leaf": lambda m: setattr(m.inner, "bias", tc.asarray([3.0, 4.0])),
    "a leaf of another dtype": lambda m: setattr(m.inner, "bias", cast(m.inner.bias)),
    "a leaf of another shape": lambda m: setattr(m.inner, "bias", tc.asarray([[3.0, 4.0]])),
    "a Variable in place of a leaf": lambda m: setattr(m.inner, "bias", tc.Variable([3.0, 4.0])),
    "a number in place of a leaf": lambda m: setattr(m.inner, "bias", 3.0),
    "a whole number in place of a leaf": lambda m: setattr(m.inner, "bias", 3),
    "a leaf in a dict": lambda m: m.named.update(scale=tc.asarray(4.0)),
    "one of two tied leaves": lambda m: setattr(m, "tied", tc.asarray(3.0)),
    "the other of two tied leaves": lambda m: setattr(m, "weight", tc.asarray(3.0)),
    "both tied leaves": lambda m: [
        setattr(m, name, value) for value in [tc.asarray(3.0)] for name in ("weight", "tied")
    ],
    "two leaves in place of tied ones": lambda m: [setattr(m, name, tc.asarray(3.0)) for name in ("weight", "tied")],
}
AROUND: dict[str, Callable[[Any], Any]] = {
    "alone": lambda m: m,
    "in a list": lambda m: [m, 1],
    "in a tuple in a dict": lambda m: {"m": (m, [m])},
}


# The guard is written in the second call; what takes copies apart in straight lines, when they have been often.
@pytest.mark.parametrize(("around", "calls"), [("alone", 2), ("in a list", 15), ("in a tuple in a dict", 15)])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_copy_are_seen(change: str, around: str, calls: int) -> None:
    f = tc.function(look, retrace="allow", max_traces=100)
    copied = made()
    tree = AROUND[around](copied)
    x = tc.asarray(X)
    for _ in range(calls):
        f(tree, x)
    check(f, tree)
    assert f.traces == 1
    untouched = AROUND[around](made())
    CHANGES[change](copied)
    check(f, tree)
    check(f, untouched)
    check(f, tree)


def test_settings_that_change_back_have_their_trace_again() -> None:
    f = tc.function(look, retrace="allow")
    copied = made()
    for rate, size in [(2.0, 2)] * 4 + [(0.5, 2), (2.0, 2), (2.0, 7), (2.0, 2), (0.5, 2), (2.0, 7)]:
        copied.rate = rate
        copied.sizes[1] = size
        check(f, copied)
    assert f.traces == 3


def test_copies_of_one_skeleton_and_of_others() -> None:
    f = tc.function(look, retrace="allow")
    first = made()
    copies = [first, tc.tree_map(lambda leaf: leaf * 2.0, first), tc.tree_map(lambda leaf: leaf * 3.0, first), made()]
    copies += [copy.copy(first), copy.deepcopy(first)]
    for _ in range(3):
        for one in [*copies, first, first]:
            check(f, one)
    # Three are of one skeleton. Others have other statistics, or hold another Module in place of themselves.
    assert f.traces == 4


def test_no_cache_key_is_made_for_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    for around in AROUND.values():
        f = tc.function(look, retrace="allow")
        copied = made()
        x = tc.asarray(X)
        for _ in range(3):
            f(around(copied), x)
        again = tc.tree_map(lambda leaf: leaf * 2.0, copied)
        with monkeypatch.context() as patched:

            def refuse(*_: object) -> None:
                raise AssertionError("a key was made")

            patched.setattr(function, "Signature", refuse)
            for one in (copied, again):
                check(f, around(one))
            copied.rate = 3.0
            with pytest.raises(AssertionError, match="a key was made"):
                f(around(copied), x)


def test_leaves_that_are_trees() -> None:
    model = nn.Dense(2)
    model.build((None, 2))
    _, structure = tc.tree_flatten(model)

    def values(copied: Any) -> Any:
        return [copied.kernel["k"] * 2.0, copied.bias.kernel + 1.0, [*copied.kernel], copied.bias.units]

    f = tc.function(values, retrace="allow")
    inner = tc.tree_map(lambda leaf: leaf * 1.0, model)
    for kernel in [{"k": tc.asarray(1.0)}] * 4 + [{"k": tc.asarray(2.0), "l": 1}, {"k": tc.asarray([2.0])}]:
        for units in (2, 2, 3):
            inner.units = units
            copied = tc.tree_unflatten(structure, [kernel, inner])
            found, expected = f(copied), values(copied)
            assert found[2:] == expected[2:]
            assert found[0].tolist() == expected[0].tolist()
            assert found[1].tolist() == expected[1].tolist()


@pytest.mark.parametrize("calls", [3, 15])
def test_copies_that_are_given_to_calls_end_with_their_last_reference(calls: int) -> None:
    f = tc.function(look, retrace="allow")
    model = Model()
    del model.back  # a Module that holds itself is freed by the garbage collector
    model(tc.asarray(X))
    copied = tc.tree_map(lambda leaf: leaf * 1.0, model)
    for _ in range(calls):
        f(copied, tc.asarray(X))
    gone = [weakref.ref(one) for one in (copied, copied.inner, copied.inner.kernel, copied.pair[0])]
    gc.collect()
    gc.disable()
    try:
        del copied
        assert [one() for one in gone] == [None] * len(gone)
    finally:
        gc.enable()
    model = made()
    kept = weakref.ref(model.shift)
    for _ in range(calls):
        tc.tree_leaves(model)
    del model
    gc.collect()
    assert kept() is None


def test_copies_of_which_copies_and_pickles_are_made() -> None:
    f = tc.function(look, retrace="allow")
    model = Model()
    model(tc.asarray(X))
    copied = tc.tree_map(lambda leaf: leaf * 1.0, model.eval())
    for _ in range(15):
        f(copied, tc.asarray(X))
    for one in (copy.copy(copied), copy.deepcopy(copied), pickle.loads(pickle.dumps(copied))):
        check(f, one)
        assert one.tied is one.weight
        one.weight = one.tied = tc.asarray(9.0)
        check(f, one)
        one.rate = 0.75
        check(f, one)


def test_copies_in_several_threads() -> None:
    f = tc.function(look, retrace="allow")
    first = made()
    x = tc.asarray(X)
    f(first, x)
    failed: list[BaseException] = []

    def work(k: int) -> None:
        try:
            mine = tc.tree_map(lambda leaf: leaf * float(k), first)
            for step in range(30):
                if step % 7 == 6:
                    mine.rate = float(step)
                found, expected = f(mine, x), look(mine, x)
                assert found[1] == expected[1]
                np.testing.assert_allclose(found[0].numpy(), expected[0].numpy(), rtol=1e-4, atol=1e-5)
                mine = tc.tree_map(lambda leaf: leaf + 0.125, mine)
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
