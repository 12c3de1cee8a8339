"""Where float64 begins, as a debugging tape tells it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tape_core as tc
from tape_core.debugging import Float64Origins


def _told(origins: Float64Origins) -> list[tuple[str, tuple[str, ...], str]]:
    return [(origin.op, origin.operands, origin.result) for origin in origins]


@pytest.mark.each_backend
def test_the_line_where_a_float64_array_meets_float32_is_told_and_nothing_downstream() -> None:
    x, weights = tc.Variable([1.0, 2.0]), np.asarray([0.5, 1.5])
    with tc.GradientTape(debug=True) as tape:
        h = tc.exp(x) * 2.0 * np.float64(3.0)
        y = h * weights  # here it begins
        loss = tc.sum(y * x + y / 2)
    for used in (False, True):  # it answers after the records are used up, too
        if used:
            tape.gradient(loss, x)
        (origin,) = origins = tape.float64_origins()
        assert _told(origins) == [("multiply", ("float32", "float64"), "float64")]
        assert origin.place is not None
        assert Path(origin.place.file).samefile(__file__)
        assert "y = h * weights  # here it begins" in repr(origins)
        assert f"line {origin.place.line}" in repr(origins)


@pytest.mark.each_backend
def test_each_way_in_is_an_origin() -> None:
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape(debug=True) as tape:
        a = tc.astype(x, tc.float64)
        b = tc.asarray(np.ones(2))  # nothing narrow beside it
        c = x + b
        d = tc.concat([x, b])
        e = tc.astype(x, tc.complex64) * b
        tc.sum(x, dtype=tc.float64)
        a * x, c - x, d, e * x
    told = _told(tape.float64_origins())
    assert ("astype", ("float32",), "float64") in told
    assert ("add", ("float32", "float64"), "float64") in told
    assert ("multiply", ("complex64", "float64"), "complex128") in told
    assert ("sum", ("float32",), "float64") in told
    assert len({origin.place.line for origin in tape.float64_origins() if origin.place}) == len(told) == 5


@pytest.mark.each_backend
def test_inside_vmap_a_line_is_told_once() -> None:
    weights = tc.asarray(np.ones((2, 3)))
    with tc.GradientTape(debug=True) as tape:
        tc.vmap(lambda a: tc.sum(a * weights[0]) + tc.sum(weights @ a))(tc.ones((4, 3)))
    told = _told(tape.float64_origins())
    assert ("multiply", ("float32", "float64"), "float64") in told
    assert [op for op, _, _ in told].count("multiply") == 1
    assert len(told) == 2


def test_float32_alone_and_float64_alone_have_no_origin() -> None:
    with tc.GradientTape(debug=True) as tape:
        tc.sin(tc.ones(2) * tc.arange(2)) / 3
        tc.sin(tc.ones(2, dtype=tc.float64) * tc.arange(2)) / 3
    assert tape.float64_origins() == ()
    assert repr(tape.float64_origins()) == "no op makes float64 of narrower floats"


def test_a_tape_without_notes_says_what_it_needs() -> None:
    with tc.GradientTape() as tape:
        pass
    with pytest.raises(RuntimeError, match="debug=True"):
        tape.float64_origins()
