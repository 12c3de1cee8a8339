"""Batch, group and instance normalization: statistics, layouts, equal elements."""

from __future__ import annotations

import numpy as np
import tape_core as tc
from support import numpy_gradient, numpy_gradients


def test_batch_norm_by_layouts_and_with_given_statistics() -> None:
    rng = np.random.default_rng(0)
    x, scale, offset = (rng.standard_normal(shape) for shape in ((4, 3, 2, 5), (5,), (5,)))
    out, mean, variance = tc.batch_norm(tc.asarray(x), tc.asarray(scale), tc.asarray(offset))
    np.testing.assert_allclose(mean.numpy(), x.mean((0, 1, 2)))
    np.testing.assert_allclose(variance.numpy(), x.var((0, 1, 2)))
    expected = (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5) * scale + offset
    np.testing.assert_allclose(out.numpy(), expected)
    first = tc.batch_norm(
        tc.asarray(np.moveaxis(x, -1, 1)), tc.asarray(scale), tc.asarray(offset), layout="channels_first"
    )
    np.testing.assert_allclose(np.moveaxis(first.output.numpy(), 1, -1), expected)
    again = tc.batch_norm(tc.asarray(x), tc.asarray(scale), tc.asarray(offset), mean, variance)
    np.testing.assert_allclose(again.output.numpy(), expected)
    given = numpy_gradients(lambda m, v: tc.sum(tc.batch_norm(tc.asarray(x), None, None, m, v).output), mean, variance)
    np.testing.assert_allclose(given[0], -24 / np.sqrt(variance.numpy() + 1e-5))


def test_the_statistics_of_a_batch_have_gradients() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3))
    found = numpy_gradient(lambda t: tc.sum(tc.batch_norm(t).mean * 2.0) + tc.sum(tc.batch_norm(t).variance), x)
    np.testing.assert_allclose(found, 2 / 4 + (x - x.mean(0)) * 2 / 4)


def test_group_and_instance_norm() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    grouped = tc.group_norm(tc.asarray(x), groups=2).numpy()
    for i, g in ((0, 0), (1, 1)):
        part = x[i, :, 2 * g : 2 * g + 2]
        np.testing.assert_allclose(grouped[i, :, 2 * g : 2 * g + 2], (part - part.mean()) / np.sqrt(part.var() + 1e-5))
    each = tc.instance_norm(tc.asarray(x)).numpy()
    np.testing.assert_allclose(each, tc.group_norm(tc.asarray(x), groups=4).numpy())
    scale = np.arange(4.0)
    first = tc.group_norm(tc.asarray(np.moveaxis(x, -1, 1)), tc.asarray(scale), groups=2, layout="channels_first")
    np.testing.assert_allclose(np.moveaxis(first.numpy(), 1, -1), grouped * scale)


def test_normalisation_of_equal_elements_is_finite() -> None:
    for f in (tc.layer_norm, tc.rms_norm):
        assert np.isfinite(numpy_gradient(lambda x, f=f: tc.sum(f(x) ** 2), [[0.0, 0.0]])).all()
