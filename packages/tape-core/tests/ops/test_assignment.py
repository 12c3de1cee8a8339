"""Assignment to elements and in-place operators: the handle gets a new value, what was recorded keeps the old one."""

from __future__ import annotations

import copy
import operator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.ops import operators


def test_assignment_to_elements_is_differentiable() -> None:
    x = tc.asarray([1.0, 2.0, 3.0])
    v = tc.asarray(5.0)
    with tc.GradientTape() as tape:
        tape.watch([x, v])
        y = x * 1
        y[1] = v * v
        z = tc.sum(y * y)
    assert y.tolist() == [1.0, 25.0, 3.0]
    gx, gv = tape.gradient(z, [x, v])
    assert gx.tolist() == [2.0, 0.0, 6.0]
    assert gv.item() == 4 * 5.0**3


def test_what_was_computed_before_keeps_the_old_value() -> None:
    x = tc.asarray([1.0, 2.0])
    raw = x.array
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        before = y
        y[0] = 0.0
        z = y * 3
    assert before is y, "the handle is the same"
    assert x.array is raw
    assert x.tolist() == [1.0, 2.0]
    assert tape.gradient(z, x).tolist() == [0.0, 12.0]


def test_a_constant_that_is_assigned_to_becomes_part_of_the_path() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        buffer = tc.zeros(4)
        for k in range(4):
            buffer[k] = v * k
        total = tc.sum(buffer)
    assert tape.gradient(total, v).item() == 6.0


def test_second_order_through_assignment() -> None:
    x = tc.asarray(2.0)
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = tc.ones(3) * x
            y[1:] = x**3
            z = tc.sum(y)
        first = inner.gradient(z, x)
    assert first.item() == 1 + 2 * 3 * 4
    assert outer.gradient(first, x).item() == 2 * 6 * 2


def test_of_values_for_one_element_the_last_one_gets_the_gradient() -> None:
    x, values = tc.zeros(3), tc.asarray([1.0, 2.0, 3.0])
    with tc.GradientTape() as tape:
        tape.watch(values)
        x[tc.asarray([0, 0, 2])] = values
    assert x.tolist() == [2.0, 0.0, 3.0]
    assert tape.gradient(x, values).tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (0, 1.5),
        ((slice(None), 1), [7.0, 8.0]),
        (..., 0.0),
        ((slice(None, None, -1), slice(0, 2)), 3.0),
        (np.asarray([[True, False, True], [False, True, False]]), [1.0, 2.0, 3.0]),
        (np.asarray([1, 0]), [[1.0], [2.0]]),
    ],
    ids=["row", "column", "all", "steps", "mask", "integers"],
)
def test_values_are_numpys(key: Any, value: Any) -> None:
    expected = np.arange(6.0).reshape(2, 3)
    found = tc.asarray(expected.copy())
    expected[key] = value
    found[key] = tc.asarray(value, dtype="float64") if isinstance(value, list) else value
    assert found.tolist() == expected.tolist()
    scalar = tc.asarray(1.0)
    scalar[...] = 2.0
    assert scalar.item() == 2.0
    assert scalar.shape == ()


IN_PLACE = {
    "iadd": (7.0, 2.0), "isub": (7.0, 2.0), "imul": (7.0, 2.0), "itruediv": (7.0, 2.0), "ifloordiv": (7.0, 2.0),
    "imod": (7.0, 2.0), "ipow": (7.0, 2.0), "iand": (6, 3), "ior": (6, 3), "ixor": (6, 3), "ilshift": (6, 3),
    "irshift": (6, 1), "imatmul": (np.eye(2), np.ones((2, 2))),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators(name: str) -> None:
    a, b = (np.asarray(v) for v in IN_PLACE[name])
    x = y = tc.asarray(a)
    result = getattr(operator, name)(x, tc.asarray(b))
    assert result is x is y
    assert x.tolist() == getattr(operator, name[1:] if name not in ("iand", "ior") else f"{name[1:]}_")(a, b).tolist()


def test_an_in_place_operator_is_recorded() -> None:
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x * 1
        y += x
        y *= x
        y /= 2
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]


def test_an_operator_that_would_change_shape_or_dtype_is_refused() -> None:
    x = tc.asarray([1, 2])
    with pytest.raises(TypeError, match=r"x \+= y would change the dtype of x from int64 to float"):
        x += 0.5
    with pytest.raises(ValueError, match=r"x \*= y would change the shape of x from \(2,\) to \(3, 2\)"):
        x *= tc.ones((3, 2), dtype="int64")
    with pytest.raises(TypeError, match="unsupported operand"):
        x += "a"
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        (5, 1.0, IndexError, r"setitem\(x: float32\[2\]"),
        (0, tc.DType, TypeError, "setitem: values must be a Tensor"),
        (slice(None), [1.0, 2.0], TypeError, "setitem: values must be a Tensor"),
        (0, 1j, TypeError, "values of dtype complex64 do not fit into elements of dtype float32"),
    ],
    ids=["place", "type", "list", "complex"],
)
def test_mistakes_leave_the_tensor_as_it_was(key: Any, value: Any, error: type[Exception], message: str) -> None:
    x = tc.asarray([1.0, 2.0])
    with pytest.raises(error, match=message):
        x[key] = value
    assert x.tolist() == [1.0, 2.0]


def test_a_variable_refuses_and_names_the_way() -> None:
    v = tc.Variable([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"variable.assign\(new\)"):
        v[0] = 3.0
    new = v.value
    new[0] = 3.0
    assert v.tolist() == [1.0, 2.0]
    assert v.assign(new).tolist() == [3.0, 2.0]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_value_and_its_path_and_is_another_handle(copied: Any) -> None:
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        twin = copied(y)
        twin += 1
        z = twin * 3
    assert y.tolist() == [1.0, 4.0]
    assert tape.gradient(z, x).tolist() == [6.0, 12.0]


LOST = ["x[1:][0] = 5.0", "x[1:][0] += 5.0", "x[1:][:1] = 5.0", "x[tc.asarray([0, 1])][0] = x[1]"]


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("assign", [*LOST, "tc.abs(x)[0] = 5.0", "x.T[f(0)] = 5.0 if False else 6.0"])
def test_assignment_to_a_value_that_nobody_holds_is_refused(
    assign: str, lent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would change nothing, silently: indexing makes values, not views. Nor need reference counts tell."""
    monkeypatch.setattr(operators, "_COUNTS_MISS_LOCALS", lent)
    x = tc.asarray([[1.0], [2.0], [3.0]]) if ".T" in assign else tc.asarray([1.0, 2.0, 3.0])
    before = x.tolist()
    inside = f"def run(x):\n    f = abs\n    {assign}\nrun(x)"
    for code in (assign, inside):
        with pytest.raises(TypeError, match=r"x\[i\]\[j\] = value changes nothing"):
            exec(code, {"x": x, "tc": tc, "f": abs})
    assert x.tolist() == before


def test_assignment_to_a_sum_that_nobody_holds_is_refused() -> None:
    if operators._COUNTS_MISS_LOCALS:
        pytest.skip("what is in parentheses has no instruction at the place where the target begins")
    x = tc.asarray([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match=r"x\[i\]\[j\] = value changes nothing"):
        (x + 1)[0] = 5.0


@pytest.mark.parametrize(
    "assign", ["row[0] = v", "row[0] = row[0] + v", "row[f(0)] = v", "row[:1] = v", "(row)[0] = v"]
)
def test_assignment_to_a_local_variable_is_never_refused_however_references_are_counted(
    assign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some Pythons lend the value of a local variable without counting: then the count is that of a temporary."""
    monkeypatch.setattr(operators, "_COUNTS_MISS_LOCALS", True)
    monkeypatch.setattr(operators, "_TEMPORARY_REFCOUNT", 1000)
    space: dict[str, Any] = {}
    exec(f"def run(row, v, f):\n    {assign}\n    return row", space)
    assert space["run"](tc.asarray([1.0, 2.0])[:], 4.0, abs).tolist() in ([4.0, 2.0], [5.0, 2.0])


def test_assignment_to_what_somebody_holds_is_not_refused() -> None:
    held = {"x": tc.asarray([1.0, 2.0])}
    holder = [held["x"]]
    held["x"][0] = 5.0
    holder[0][1] = 6.0
    part = held["x"][:1]
    part[0] = 7.0
    rows = [part[:], part[:]]
    rows[0][0] = 8.0
    assert (held["x"].tolist(), part.tolist(), rows[0].tolist()) == ([5.0, 6.0], [7.0], [8.0])


def test_the_method_of_an_assignment_may_be_called() -> None:
    x = tc.asarray([1.0, 2.0])
    x.__setitem__(0, 5.0)
    operator.setitem(x, 1, 6.0)
    held = [x[:]]
    held.pop().__setitem__(0, 1.0)
    assert x.tolist() == [5.0, 6.0]


@pytest.mark.parametrize(
    "view",
    [tc.flip, lambda v: v[::-1] * 1.0, lambda v: tc.reshape(tc.reshape(v, (2, -1)).T, (-1,))],
    ids=["flip", "slice", "reshape"],
)
@pytest.mark.parametrize("off", [(), ("in_place",), ("schedule_updates",), ("fusion",)], ids=str)
def test_a_run_writes_over_old_values_and_results_of_its_own_at_once(view: Any, off: tuple[str, ...]) -> None:
    n = 100_000
    start = [tc.default_rng(k).normal((n,)) for k in range(3)]

    def made() -> tuple[Any, list[Any]]:
        u, v, w = variables = [tc.Variable(x) for x in start]

        def step(x: Any) -> Any:
            h = x * 0.5
            v.assign_add(tc.tanh(w) * 0.1)
            w.assign(w * 0.9 - tc.tanh(w * w))
            v.assign(view(v))
            return w[::2], u * u + h * 0.1

        return step, variables

    (eager, ours), (traced, theirs) = made(), made()
    compiled = tc.function(passes=dict.fromkeys(off, False))(traced)
    for k in range(4):
        x = tc.default_rng(k).normal((n,))
        expected = eager(x)
        found = compiled(x)
        for a, b in zip([*found, *theirs], [*expected, *ours], strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes()
