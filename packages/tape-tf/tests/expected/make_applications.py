"""Write `applications.json`: what the networks of `tf.keras.applications` are in Keras, and what they compute.

Run it where Keras is installed: `python make_applications.py`. The weights of the computations are those of
`weights_for` in `test_applications.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "keras"))

SMALL = {"include_top": False, "input_shape": [96, 96, 3], "pooling": "avg"}
ARCHITECTURES: list[tuple[str, dict[str, Any]]] = [
    *[(name, {}) for name in ("MobileNet", "MobileNetV2", "ResNet50", "ResNet50V2", "InceptionV3", "Xception")],
    *[(name, {}) for name in ("DenseNet121", "EfficientNetB0")],
    *[(name, SMALL) for name in ("VGG16", "VGG19", "ResNet101", "ResNet152", "ResNet101V2", "ResNet152V2")],
    *[(name, SMALL) for name in ("DenseNet169", "DenseNet201", "EfficientNetB1")],
    ("VGG16", {"include_top": False}),
    ("VGG16", {"input_shape": [32, 32, 3], "classes": 7, "classifier_activation": None}),
    ("MobileNet", {"alpha": 0.25, "depth_multiplier": 2, "input_shape": [96, 96, 3]}),
    ("MobileNetV2", {"alpha": 0.35, "input_shape": [97, 65, 1], "include_top": False}),
    ("MobileNetV2", {"alpha": 1.4, "pooling": "max", "include_top": False}),
    ("InceptionV3", {"include_top": False}),
]
COMPUTED: list[tuple[str, dict[str, Any]]] = [
    ("VGG16", SMALL),
    ("MobileNet", SMALL | {"alpha": 0.25}),
    ("MobileNetV2", SMALL | {"alpha": 0.35}),
    ("ResNet50", SMALL),
    ("ResNet50V2", SMALL),
    ("InceptionV3", SMALL),
    ("Xception", SMALL),
    ("DenseNet121", SMALL),
    ("EfficientNetB0", SMALL),
]


def main() -> None:
    from test_applications import image, weights_for

    made, computed = [], []
    for name, given in ARCHITECTURES:
        keras.backend.clear_session()
        model = getattr(keras.applications, name)(weights=None, **given)
        lines = [f"{layer.name} {layer.output.shape!r}" for layer in model.layers]
        made.append(
            {
                "network": name,
                "arguments": given,
                "name": model.name,
                "parameters": model.count_params(),
                "layers": len(lines),
                "last": lines[-1],
                "digest": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
            }
        )
    for name, given in COMPUTED:
        model = getattr(keras.applications, name)(weights=None, **given)
        own = [layer for layer in model.layers if layer.name.startswith("normalization")]
        skipped = len(own[0].get_weights()) if own else 0
        weights = model.get_weights()
        model.set_weights([*weights[:skipped], *weights_for([w.shape for w in weights[skipped:]])])
        result = np.asarray(model(image(), training=False))[0]
        computed.append(
            {
                "network": name,
                "arguments": given,
                "start": result[:4].tolist(),
                "norm": float(np.linalg.norm(result)),
            }
        )
    path = Path(__file__).with_name("applications.json")
    path.write_text(json.dumps({"made": made, "computed": computed}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
