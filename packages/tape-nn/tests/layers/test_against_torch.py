"""Outputs and gradients of layers are those of PyTorch, as tests/expected/make_layers.py wrote them down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

CASES = json.loads((Path(__file__).parents[1] / "expected" / "layers.json").read_text())


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{case['layer']}" for k, case in enumerate(CASES)])
def test_layer(case: dict[str, Any]) -> None:
    arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in case["arguments"].items()}
    layer = getattr(nn, case["layer"])(**arguments, **({"return_state": True} if "h" in case["inputs"] else {}))
    inputs = {key: tc.asarray(x, dtype=tc.int64 if key == "ids" else tc.float64) for key, x in case["inputs"].items()}
    shapes = [x.shape for key, x in inputs.items() if key not in ("h", "c")]
    if isinstance(layer, nn.Layer):
        layer.build(*shapes, dtype=tc.float64)
    layer.load_state_dict({key: tc.asarray(x, dtype=tc.float64) for key, x in case["variables"].items()})
    layer.train(case.get("training", True))
    call = {key: tc.asarray(x) if key == "attention_mask" else x for key, x in case.get("call", {}).items()}

    sources = {key: x for key, x in inputs.items() if x.dtype.inexact}
    with tc.GradientTape() as tape:
        tape.watch(sources)
        if "c" in inputs:
            y, h, c = layer(inputs["x"], (inputs["h"], inputs["c"]))
            if not layer.return_sequences:
                y = tc.concat([h, c], axis=-1)
        elif "h" in inputs:
            y, h = layer(inputs["x"], initial_state=inputs["h"])
        else:
            y = layer(*inputs.values(), **call)
    close(y, case["output"])
    variables = dict(layer.named_variables())
    found_inputs, found_variables = tape.gradient(
        y, (sources, variables), output_gradients=tc.asarray(case["cotangent"], dtype=tc.float64)
    )
    for key, expected in case["input_gradients"].items():
        close(found_inputs[key], expected)
    for key, expected in case["variable_gradients"].items():
        gradient = found_variables[key]
        if case["layer"] == "Embedding":
            assert isinstance(gradient, tc.IndexedSlices)
            gradient = gradient.densify()
        close(gradient, expected)
    for key, expected in case.get("after", {}).items():
        close(variables[key], expected)
        assert found_variables[key] is None
