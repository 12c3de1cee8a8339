"""The code cells of TensorFlow's published guides run as they stand.

The guides do not belong to the repository. `TAPE_GUIDES` names a checkout of them (`git clone
https://github.com/tensorflow/docs`), and `nox -s guides -- CHECKOUT` runs these tests; without it they are skipped.
Only `import tensorflow as tf` and `import keras` are replaced, and what a notebook writes to the shell (`!`, `%`) is
left out. test_guide_programs.py does what the guides do, and is run everywhere.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import tape_tf as tf

GUIDES = ["autodiff", "advanced_autodiff", "basic_training_loops", "intro_to_modules"]

# Cells that cannot run, by a piece of their code, and why.
LEFT_OUT = {
    "tf.saved_model.": "the functions of a tf.Module are code, which files do not hold",
    "new_model": "it is what such a file would hold",
}


def cells(name: str) -> Iterator[tuple[int, str]]:
    """The number of each code cell that can run, and its Python."""
    checkout = os.environ.get("TAPE_GUIDES")
    if not checkout:
        pytest.skip("TAPE_GUIDES does not name a checkout of tensorflow/docs")
    path = Path(checkout) / "site" / "en" / "guide" / f"{name}.ipynb"
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and not any(piece in source for piece in LEFT_OUT):
            lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
            yield number, "\n".join(lines)


@pytest.mark.filterwarnings("ignore::UserWarning")  # they show mistakes, too
@pytest.mark.parametrize("name", GUIDES)
def test_guide(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(cells(name))
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)  # some cells write files
    for module in ("tensorflow", "keras"):
        monkeypatch.setitem(sys.modules, module, {"tensorflow": tf, "keras": tf.keras}[module])
    namespace = {"__name__": "__main__"}
    failed = []
    for number, source in found:
        try:
            exec(compile(source, f"{name}, cell {number}", "exec"), namespace)
        except Exception as error:  # noqa: BLE001 - all that fail are listed
            failed.append(f"cell {number}: {type(error).__name__}: {error}\n{source}")
    matplotlib.pyplot.close("all")
    assert not failed, "\n\n".join(failed)


def test_cells_that_cannot_run_are_few() -> None:
    """The table above is about cells that there are, and most run."""
    run = {name: len(list(cells(name))) for name in GUIDES}
    assert run == {"autodiff": 32, "advanced_autodiff": 38, "basic_training_loops": 15, "intro_to_modules": 36}


# -- all notebooks with a tape: which of the names that they use there are

LEAST_SHARE = 0.97  # of the uses of names
OTHER_TOPICS = ("r1", "hub", "tpu", "estimator")  # TensorFlow 1, models to download, TPUs
ALIASES = {"tf": "", "keras": "keras.", "layers": "keras.layers."}
NAME = re.compile(r"(?<![\w.])(tf|keras|layers)((?:\.[A-Za-z_]\w*)+)")


def notebooks() -> Iterator[str]:
    """The code of each notebook with a GradientTape."""
    checkout = os.environ.get("TAPE_GUIDES")
    if not checkout:
        pytest.skip("TAPE_GUIDES does not name a checkout of tensorflow/docs")
    root = Path(checkout) / "site" / "en"
    for path in sorted(root.rglob("*.ipynb")):
        if any(topic in part for part in path.relative_to(root).parts for topic in OTHER_TOPICS):
            continue
        found = json.loads(path.read_text(encoding="utf-8"))["cells"]
        lines = "\n".join("".join(cell["source"]) for cell in found if cell["cell_type"] == "code").splitlines()
        code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
        if "GradientTape" in code:
            yield code


def is_there(name: str) -> bool:
    value: object = tf
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return False
    return True


def test_most_names_of_notebooks_with_a_tape_are_there() -> None:
    uses = Counter(ALIASES[found[1]] + found[2][1:] for code in notebooks() for found in NAME.finditer(code))
    missing = Counter({name: count for name, count in uses.items() if not is_there(name)})
    share = 1 - missing.total() / uses.total()
    listed = "".join(f"\n{count:3} tf.{name}" for name, count in missing.most_common())
    assert share >= LEAST_SHARE, f"{share:.1%} of {uses.total()} uses of names are there; not these:{listed}"
