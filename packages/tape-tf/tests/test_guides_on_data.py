"""Tutorials of TensorFlow's documentation run whole, as they stand, on small data that are made here.

Like test_guides.py they need the checkout that `TAPE_GUIDES` names, and `nox -s guides` runs them. Addresses of data
are replaced by those of local files.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf

TITANIC = {
    "survived": ["0", "1"], "sex": ["male", "female"], "age": ["22.0", "38.5"], "n_siblings_spouses": ["1", "0"],
    "parch": ["0", "2"], "fare": ["7.25", "71.2833"], "class": ["First", "Third"], "deck": ["unknown", "C"],
    "embark_town": ["Southampton", "Cherbourg"], "alone": ["n", "y"],
}  # fmt: skip
FONT = ("font", "fontVariant", "m_label", "strength", "italic", "orientation")


def table(columns: dict[str, list[str]], rows: int) -> str:
    """A table as CSV, whose columns repeat some values, each with a period of its own."""
    found = [
        [values[(row // (k + 1)) % len(values)] for k, values in enumerate(columns.values())] for row in range(rows)
    ]
    return "".join(",".join(line) + "\n" for line in [list(columns), *found])


def csv_data(folder: Path) -> dict[str, Path]:
    """Files for load_data/csv, by the addresses that it reads."""
    random = np.random.default_rng(0)
    abalone, titanic, traffic, fonts = (folder / name for name in ("a.csv", "train.csv", "t.csv.gz", "fonts.zip"))
    abalone.write_text("\n".join(",".join(f"{x:.3f}" for x in random.uniform(0, 9, 8)) for _ in range(64)) + "\n")
    titanic.write_text(table(TITANIC, 64))
    columns = {"holiday": ["None"], "temp": ["288.28", "290.1"], "clouds_all": ["40", "1"], "weather_main": ["Clear"]}
    traffic.write_bytes(gzip.compress(table(columns | {"traffic_volume": ["5545", "10", "7"]}, 600).encode()))
    pixels = {f"r{row}c{column}": ["0", "255", "17"] for row in range(20) for column in range(20)}
    with zipfile.ZipFile(fonts, "w") as archive:
        for font in ("A", "B", "C"):
            described = {name: [font if name == "font" else "65"] for name in FONT}
            archive.writestr(f"{font}.csv", table(described | pixels, 24))
    stored, archives = "https://storage.googleapis.com", "https://archive.ics.uci.edu/ml/machine-learning-databases"
    return {
        f"{stored}/download.tensorflow.org/data/abalone_train.csv": abalone,
        f"{stored}/tf-datasets/titanic/train.csv": titanic,
        f"{archives}/00492/Metro_Interstate_Traffic_Volume.csv.gz": traffic,
        f"{archives}/00417/fonts.zip": fonts,
    }


def fonts_where_keras_2_put_them(number: int) -> None:
    """Keras 3 unpacks an archive into a folder of its own, and the notebook looks for what Keras 2 did."""
    if number == 96:
        for path in [*Path("fonts").rglob("*.csv")]:
            path.rename(Path("fonts") / path.name)


NOTEBOOKS: dict[str, tuple[Callable[[Path], dict[str, Path]], Callable[[int], None]]] = {
    "load_data/csv": (csv_data, fonts_where_keras_2_put_them),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_tutorial(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = os.environ.get("TAPE_GUIDES")
    if not checkout:
        pytest.skip("TAPE_GUIDES does not name a checkout of tensorflow/docs")
    matplotlib, pandas = pytest.importorskip("matplotlib"), pytest.importorskip("pandas")
    if name == "load_data/csv" and int(pandas.__version__.partition(".")[0]) > 2:
        pytest.skip("the notebook asks for columns of text by the dtype that they have before pandas 3")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    for module, value in (("tensorflow", tf), ("tensorflow.keras", tf.keras)):
        monkeypatch.setitem(sys.modules, module, value)
    make, before = NOTEBOOKS[name]
    (tmp_path / "web").mkdir()
    files = make(tmp_path / "web")
    notebook = json.loads((Path(checkout) / "site" / "en" / "tutorials" / f"{name}.ipynb").read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    failed = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).replace("epochs=10", "epochs=2").splitlines()
        source = "\n".join(line for line in lines if not line.startswith(("%", "!")))
        for address, path in files.items():
            source = source.replace(address, path.as_uri())
        before(number)
        try:
            with warnings.catch_warnings():
                exec(compile(source, f"{name}, cell {number}", "exec"), namespace)
        except Exception as error:  # noqa: BLE001 - all that fail are listed
            failed.append(f"cell {number}: {type(error).__name__}: {error}\n{source}")
    matplotlib.pyplot.close("all")
    assert not failed, "\n\n".join(failed)
