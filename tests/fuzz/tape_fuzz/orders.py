"""Random steps of divided models that are not alike in the processes: an error on all, or what they say together.

`python -m tape_fuzz.orders --number 100 --seed 0` is run in each of two processes. Both draw the same two programs of
layers of one shape, which are often alike, and each runs its own. Either all raise a `MismatchError`, or the weights
are those of one process that computes the rows of each process by its program; those that are alike raise nothing.

In some one process makes an update otherwise, or assigns to a Variable alone. Some are mixed up later: both processes
run both programs, and then each its own, of which nothing is new. Since that may end in the midst of a step, by an
error that names the other process, each draw has a group of its own.
"""

from __future__ import annotations

import argparse
import random
import warnings
from typing import Any

import numpy as np
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import MismatchError, PeerError, full, mesh
from trials import Trial, limit_waits

LAYERS = "abc"
WIDTH, ROWS, STEPS = 4, 4, 4
STRATEGIES = ("Replicated", "Sharded", "TensorParallel")
CHANGES = ("swap", "drop", "repeat", "other", "freeze", "dtype", "update")
UPDATES = ("left out", "twice", "learning_rate", "weight_decay", "assigned", "set anew")
"""What one process does otherwise in an update, or after it."""


class Net(nn.Module):
    """Three layers, or pairs of layers, of one shape."""

    def __init__(self, pairs: bool, bias: bool) -> None:
        def layer() -> nn.Module:
            return nn.Dense(WIDTH, use_bias=bias, activation="tanh")

        self.a, self.b, self.c = [nn.Sequential([layer(), layer()]) if pairs else layer() for _ in LAYERS]

    def along(self, program: str, x: Any) -> Any:
        """Call the layers of a program in order."""
        for name in program:
            x = getattr(self, name)(x)
        return x


def drawn(chance: random.Random) -> tuple[str, str, str]:
    """Return the programs of the two processes, and how the second was changed."""
    first = "".join(chance.choices(LAYERS, k=chance.randint(2, 4)))
    if chance.random() < 0.3:
        return first, first, ""
    change, second, k = chance.choice(CHANGES), list(first), chance.randrange(len(first))
    if change == "freeze" and len(set(first)) == 1:  # of one layer nothing would be left to update
        change = "dtype"
    if change == "swap":
        j = chance.randrange(len(first))
        second[k], second[j] = second[j], second[k]
    elif change == "drop":
        del second[k]
    elif change == "repeat":
        second.insert(k, second[k])
    elif change == "other":
        second[k] = chance.choice(LAYERS)
    elif change == "update":
        change = chance.choice(UPDATES)
    return first, "".join(second), change if change in ("freeze", "dtype", *UPDATES) else ""


def weights_of(net: Net, run: Any, x: Any, programs: list[Any], dtype: str | None = None) -> list[Any]:
    """Take a step of each of some programs, and return the weights."""
    for program in programs:
        run(x if dtype is None else tc.astype(x, dtype), program)
    return [full(v).numpy() for v in net.variables]


def amiss(optimizer: Any, change: str, at: int) -> Any:
    """Return what updates as an optimizer does, and something else in one of its calls."""
    calls = []

    def apply(pairs: Any) -> None:
        calls.append(None)
        is_now = len(calls) == at + 1
        if not (is_now and change == "left out"):
            optimizer.apply_gradients(pairs)
        if is_now and change == "twice":
            optimizer.apply_gradients(pairs)
        elif is_now and change in ("learning_rate", "weight_decay"):
            setattr(optimizer, change, 0.25)
        elif is_now and change == "assigned":
            pairs[0][1].assign_add(pairs[0][1])
        elif is_now and change == "set anew":
            pairs[0][1].assign(pairs[0][1] * 1.0)

    return apply


def step_of(net: Net, forward: Any, change: str = "", at: int = 0) -> Any:
    """Return a step of training, of an array and a program, in which an update is amiss where a change is given."""
    optimizer = nn.SGD(0.5)
    apply = amiss(optimizer, change, at) if change else optimizer.apply_gradients

    def step(x: Any, program: Any) -> None:
        with tc.GradientTape() as tape:
            loss = tc.mean(forward(x, program) ** 2)
        variables = net.trainable_variables
        gradients = tape.gradient(loss, variables)
        apply([(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None])

    return step


def check(chance: random.Random) -> bool:
    """Draw programs and check them; return whether they were refused.

    Raises:
        AssertionError: as `check_drawn`.
    """
    programs, strategy = drawn(chance), chance.choice(STRATEGIES)
    if programs[2] in UPDATES:  # of which the next gradients tell
        strategy = chance.choice(STRATEGIES[:2])
    # What goes along with gradients tells, and those of `TensorParallel` stay where they are. gloo ends a process that
    # gets more bytes than it waits for.
    is_alike = sorted(programs[0]) == sorted(programs[1]) and not programs[2]
    is_later = is_alike and strategy != "TensorParallel" and chance.random() < 0.8
    with Trial() as m:
        if is_later:
            limit_waits(m, 5.0)
        grid = mesh({"data": 1, "model": -1}, device="cpu") if strategy == "TensorParallel" else m
        return check_drawn(chance, programs, strategy, grid, chance.choice((1, STEPS)) if is_later else 0)


def check_drawn(chance: random.Random, programs: tuple[str, str, str], strategy: str, m: Any, before: int) -> bool:
    """Check programs; return whether they were refused.

    Args:
        before: how many steps all processes take of either program first.

    Raises:
        AssertionError: programs that are alike were refused, or the weights are others.
    """
    first, second, change = programs
    compiled, bias = chance.random() < 0.5, chance.random() < 0.5
    compiled = compiled and change not in UPDATES  # a trace would have it in each call
    at = chance.randint(1, STEPS - 2)  # the first update is a meeting, which a process waits for
    said = f"{first} and {second} {change} with {strategy}, {compiled=}, {bias=}, {before=}, {at=}"
    seed = chance.randrange(1 << 30)

    def made(order: str) -> Net:
        net = Net(strategy == "TensorParallel", bias)
        for name in order:  # in which order layers are made says nothing
            getattr(net, name)(tc.zeros((1, WIDTH), dtype="float64"))
        draw = np.random.default_rng(seed)
        for v in net.variables:
            v.assign(draw.normal(size=v.shape))
        return net

    x = tc.asarray(np.random.default_rng(seed).normal(size=(ROWS, WIDTH)))
    net = made(LAYERS[::-1] if m.rank else LAYERS)
    parallel = getattr(nn.parallel, strategy)(m)
    parallel.prepare(net)
    own = programs[m.rank]
    if change == "freeze" and m.rank:
        next(iter(getattr(net, second[0]).variables)).trainable = False
    given = (change, at) if change in UPDATES and m.rank else ()
    step = step_of(net, lambda x, program: net.along(program, x), *given)
    both = [first, second] * before
    dtype = "float32" if change == "dtype" and m.rank else None
    refusals = (MismatchError, PeerError) if before else (MismatchError,)
    try:
        run = tc.function(step) if compiled else step
        found = weights_of(net, run, parallel.divide(x), [*both, *[own] * STEPS], dtype)
    except refusals:
        assert first != second or change, f"a false alarm: {said}"
        return True
    except Exception as error:
        error.add_note(f"rank {m.rank}, {said}")
        raise
    assert not change, f"not refused: {said}"
    assert first == second or strategy != "TensorParallel", f"not refused: {said}"
    alone = made(LAYERS)
    half = ROWS // 2
    together = step_of(
        alone, lambda x, two: tc.concat([alone.along(two[0], x[:half]), alone.along(two[1], x[half:])], axis=0)
    )
    steps = [*[(program, program) for program in both], *[(first, second)] * STEPS]
    for one, other in zip(found, weights_of(alone, together, x, steps), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8, err_msg=said)
    return False


def main() -> None:
    """Draw programs and check each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with warnings.catch_warnings(), tc.use_backend("torch:cpu"):
        warnings.simplefilter("ignore")
        refused = sum([check(random.Random(options.seed + k)) for k in range(options.number)])
    assert options.number < 10 or 0 < refused < options.number, f"{refused} of {options.number} were refused"


if __name__ == "__main__":
    main()
