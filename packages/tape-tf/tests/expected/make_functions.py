"""Make functions.json: what TensorFlow gives for the calls in functions.txt, and the gradients of its results.

python make_functions.py    # needs tensorflow 2.21
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def inputs() -> dict[str, Any]:
    """The variables of the calls."""
    rng = np.random.RandomState(0)

    def uniform(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        return rng.uniform(low, high, shape).round(3).astype("float32")

    square = uniform(2, 3, 3)
    positive = (square @ square.transpose(0, 2, 1) + np.eye(3)).round(3).astype("float32")
    return {
        "x": uniform(3, 4),
        "y": uniform(3, 4),
        "p": uniform(3, 4, low=0.1, high=2.0),
        "q": uniform(3, 4, low=0.05, high=0.9),
        "v": uniform(4),
        "w": uniform(4, 2),
        "i": rng.randint(0, 3, (3, 4)).astype("int32"),
        "j": rng.randint(1, 5, (3, 4)).astype("int32"),
        "b": rng.rand(3, 4) > 0.5,
        "z": (uniform(3, 4) + 1j * uniform(3, 4)).astype("complex64"),
        "M": uniform(2, 3, 3),
        "S": positive,
        "im": uniform(2, 6, 5, 3),
        "s1": uniform(2, 8, 3),
        "vol": uniform(1, 4, 4, 4, 2),
        "k1": uniform(3, 3, 4),
        "k2": uniform(3, 3, 3, 4),
        "k3": uniform(2, 2, 2, 2, 3),
        "lab": np.array([1, 0, 3]),
        "B3": uniform(2, 3, 1),
        "sig": uniform(2, 16),
        "ids": np.array([0, 0, 2]),
        "e": uniform(6, 2),
        "dk": uniform(2, 2, 3, 2),
        "pk": uniform(1, 1, 6, 4),
        "kt": uniform(3, 3, 5, 3),
        "xm": np.array([2, 2, 1], "float32"),
        "zero": np.array([0, 0, 3], "float32"),
    }


def stored(array: Any) -> dict[str, Any]:
    """An array as JSON has it: complex numbers as pairs."""
    array = np.asarray(array)
    kind = array.dtype.name
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    values = [float(f"{v:.7g}") if array.dtype.kind == "f" else v for v in array.ravel().tolist()]
    return {"dtype": kind, "shape": list(array.shape), "values": values}


def main() -> None:
    """Write functions.json, a case to a line."""
    import tensorflow as tf  # only here: pytest imports this file to look for doctests

    given = inputs()
    lines = []
    for call in (HERE / "functions.txt").read_text().splitlines():
        tensors = {name: tf.constant(value) for name, value in given.items()}
        used = [n for n, t in tensors.items() if re.search(rf"\b{n}\b", call) and t.dtype.name[:3] in ("flo", "com")]
        with tf.GradientTape() as tape:
            tape.watch([tensors[n] for n in used])
            result = eval(call, {"tf": tf, "np": np, **tensors})
        leaves = [leaf for leaf in tf.nest.flatten(result) if tf.is_tensor(leaf)]
        case: dict[str, Any] = {"call": call, "result": [stored(leaf) for leaf in leaves]}
        targets = [leaf for leaf in leaves if leaf.dtype.is_floating or leaf.dtype.is_complex]
        try:
            found = tape.gradient(targets, [tensors[n] for n in used]) if targets and used else []
        except LookupError:  # TensorFlow has no gradient
            used = []
            found = []
        case["gradients"] = {
            n: None if g is None else stored(tf.convert_to_tensor(g)) for n, g in zip(used, found, strict=False)
        }
        lines.append(json.dumps(case))
    stored_inputs = json.dumps({name: stored(value) for name, value in given.items()})
    text = '{"inputs": ' + stored_inputs + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n"
    (HERE / "functions.json").write_text(
        text.replace("NaN", '"nan"').replace("-Infinity", '"-inf"').replace("Infinity", '"inf"')
    )


if __name__ == "__main__":
    main()
