"""Make history.json: runs of Keras' `fit`, with the data and the first weights they had.

python make_history.py    # needs keras 3 and one of its backends
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

rng = np.random.default_rng(0)
DATA = {
    "x": np.round(rng.normal(size=(25, 3)), 3),
    "y": rng.integers(0, 3, 25),
    "weights": np.round(rng.random(25), 3),
    "held_out_x": np.round(rng.normal(size=(11, 3)), 3),
    "held_out_y": rng.integers(0, 3, 11),
}
WEIGHTS = [np.round(rng.normal(size=shape), 3) for shape in ((3, 6), (6,), (6, 3), (3,))]
CASES: list[dict[str, Any]] = [
    {"weights": False, "class_weight": None},
    {"weights": True, "class_weight": None},
    {"weights": False, "class_weight": {"0": 0.5, "2": 3.0}},
]


def main() -> None:
    import keras

    keras.config.set_floatx("float64")
    for case in CASES:
        model = keras.Sequential([keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(3)])
        model.build((None, 3))
        model.set_weights(WEIGHTS)
        model.compile(
            keras.optimizers.Adam(0.05),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        classes = case["class_weight"]
        history = model.fit(
            DATA["x"],
            DATA["y"],
            sample_weight=DATA["weights"] if case["weights"] else None,
            class_weight=classes and {int(number): weight for number, weight in classes.items()},
            validation_data=(DATA["held_out_x"], DATA["held_out_y"]),
            batch_size=8,
            epochs=4,
            shuffle=False,
            verbose=0,
        )
        case["history"] = {name: [float(value) for value in values] for name, values in history.history.items()}
    data = {name: array.tolist() for name, array in DATA.items()}
    content = {"data": data, "first": [w.tolist() for w in WEIGHTS], "cases": CASES}
    Path(__file__).with_name("history.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
