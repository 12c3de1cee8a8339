"""Functions of neural networks against plain NumPy, on their samples, and what each says of wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import STRICT
from tape_conformance.references.neural_networks import REFERENCES
from tape_core.extend import Draw, Op, Refused, Sample, registry


def samples(name: str) -> list[Sample]:
    declared = registry[name].samples
    assert declared is not None
    return [s for s in declared(Draw(1)) if not isinstance(s, Refused)]


CASES = [pytest.param(registry[name], s, id=f"{name}-{k}") for name in REFERENCES for k, s in enumerate(samples(name))]


def on(backend: Any, value: Any) -> Any:
    """An argument of a sample on a backend."""
    if isinstance(value, list):
        return [on(backend, v) for v in value]
    return tc.asarray(value.numpy(), backend=backend) if isinstance(value, tc.Tensor) else value


def results(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple) else [out]


def values_and_gradients(op: Op, sample: Sample, backend: Any) -> list[Any]:
    args = [on(backend, a) for a in sample.args]
    leaves = [v for a in args for v in (a if isinstance(a, list) else [a]) if isinstance(v, tc.Tensor)]
    leaves = [v for v in leaves if v.dtype.inexact]
    with tc.GradientTape() as tape:
        tape.watch(leaves)
        out = results(op.function(*args, **sample.kwargs))
        seen = sample.observed(tc, *out)
        total = sum(tc.sum(tc.abs(o) ** 2) for o in (seen if isinstance(seen, tuple) else (seen,)))
    found = tape.gradient(total, leaves, unconnected_gradients="zero")
    assert all(o.backend.name == backend for o in out) or backend is STRICT
    return [*(o.numpy() for o in out), *(g.numpy() for g in found)]


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_values_agree_with_the_reference(op: Op, sample: Sample) -> None:
    args = [[x.numpy() for x in a] if isinstance(a, list) else a.numpy() if isinstance(a, tc.Tensor) else a
            for a in sample.args]  # fmt: skip
    expected = results(REFERENCES[op.name](*args, **sample.kwargs))
    for out, value in zip(results(op.function(*sample.args, **sample.kwargs)), expected, strict=True):
        assert out.shape == np.shape(value)
        np.testing.assert_allclose(out.numpy(), value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_the_kernels_of_the_standard_alone_agree_with_numpys(op: Op, sample: Sample) -> None:
    found, expected = (values_and_gradients(op, sample, backend) for backend in (STRICT, "numpy"))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: tc.layer_norm(x, axis=3), "layer_norm: axis 3 is out of bounds"),
        (lambda x: tc.group_norm(x, groups=3), "groups must be a positive integer that divides the 4 channels"),
        (lambda x: tc.group_norm(x, tc.ones(2), groups=2), r"scale must have shape \(4,\)"),
        (lambda x: tc.batch_norm(x, None, None, tc.ones(4)), "both mean and variance"),
        (lambda x: tc.batch_norm(x, layout="NC"), "layout must be"),
        (lambda x: tc.instance_norm(x), "3 dimensions or more"),
        (lambda x: tc.dropout(x, 1.5), "rate must be from 0 to 1"),
        (lambda x: tc.dropout(x, 0.5, noise_shape=(3, 4)), "noise_shape"),
        (lambda x: tc.glu(x, axis=2), "glu: axis 2"),
    ],
)
def test_errors_name_the_function_and_the_argument(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(tc.ones((2, 4)))
