"""Convolutions of all kinds, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import numpy_gradients
from tape_conformance.references.neural_networks import REFERENCES
from tape_core.ops.nn import convolution

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)


@FAST
@given(data=st.data(), layout=st.sampled_from(["channels_last", "channels_first"]), groups=st.integers(1, 3))
def test_any_convolution(data: Any, layout: Any, groups: int) -> None:
    m = data.draw(st.integers(1, 2))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(m))

    kernel, stride, dilation = numbers(1, 3), numbers(1, 3), numbers(1, 3)
    padding = data.draw(st.sampled_from(["same", tuple(zip(numbers(0, 2), numbers(0, 2), strict=True))]))
    sizes = tuple((k - 1) * d + 1 + n for k, d, n in zip(kernel, dilation, numbers(0, 4), strict=True))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    last = layout == "channels_last"
    x = rng.standard_normal((2, *sizes, 2 * groups) if last else (2, 2 * groups, *sizes))
    w = rng.standard_normal((*kernel, 2, groups) if last else (groups, 2, *kernel))
    given: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    given |= {"groups": groups, "layout": layout}
    a, b = tc.asarray(x), tc.asarray(w)
    out = tc.conv(a, b, **given)
    np.testing.assert_allclose(out.numpy(), REFERENCES["conv"](x, w, **given), atol=1e-12)
    # What is transposed: <conv(x), g> = <x, conv_transpose(g)>.
    g = tc.asarray(rng.standard_normal(out.shape))
    dx, dw = numpy_gradients(lambda a, b: tc.sum(tc.conv(a, b, **given) * g), x, w)
    assert np.sum(dx * x) == pytest.approx(tc.sum(out * g).item())
    assert np.sum(dw * w) == pytest.approx(tc.sum(out * g).item())
    if padding != "same" and all(n >= 1 for n in sizes):
        back = tc.conv_transpose(g, b, **given)
        np.testing.assert_allclose(back.numpy(), REFERENCES["conv_transpose"](g.numpy(), w, **given), atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 4, 4, 4)), rng.standard_normal((2, 3, 4 // groups, 6))

    def everything() -> list[Any]:
        f = lambda x, w: tc.sum(tc.conv(x, w, groups=groups, padding="same") ** 2)  # noqa: E731
        return numpy_gradients(f, x, w)  # type: ignore[no-any-return]

    whole = everything()
    monkeypatch.setattr(convolution, "WINDOWS_CHUNK_ELEMENTS", 500)
    monkeypatch.setattr(convolution, "WINDOWS_COLUMNS_BELOW", 0)
    for a, b in zip(everything(), whole, strict=True):
        tc.testing.assert_close(a, b, rtol=1e-12)


def test_a_transposed_convolution_with_same_padding_multiplies_the_lengths() -> None:
    x, w = tc.ones((1, 3, 5, 2)), tc.ones((2, 3, 4, 2))
    assert tc.conv_transpose(x, w, stride=(2, 3), padding="same").shape == (1, 6, 15, 4)
    assert tc.conv(tc.ones((1, 6, 15, 4)), w, stride=(2, 3), padding="same").shape == x.shape
