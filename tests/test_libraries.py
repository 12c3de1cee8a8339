"""What docs/libraries.md says of other libraries holds, and what was found when it was written stays mended."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc

GENERATE = Path(__file__).parents[1] / "docs" / "generate" / "libraries"


def test_the_page_says_of_other_libraries_what_is_found() -> None:
    pytest.importorskip("scipy", minversion="1.17")
    # Of a library in another version than that of the page, nothing is said: it may have changed.
    command = [sys.executable, "-X", "utf8", str(GENERATE), "--check", "--every", "30"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert result.returncode == 0, f"run `python docs/generate/libraries`:\n{result.stdout}{result.stderr}"
    assert "calls checked" in result.stdout


def as_a_library(code: str, name: str = "someones.module", **values: Any) -> dict[str, Any]:
    """Run code as if it were that of an installed package."""
    names = {"__name__": name, **values}
    exec(compile(code, "/lib/site-packages/someones/module.py", "exec"), names)
    return names


def test_a_function_that_writes_through_a_view_is_refused() -> None:
    code = "def oaconvolve(x):\n    part = x[1:]\n    part += 1\n    return x"
    x = tc.asarray([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match=r"scipy \(oaconvolve, line 3\) writes to a part of an array.*fftconvolve"):
        as_a_library(code, "scipy.signal._signaltools")["oaconvolve"](x)
    assert as_a_library(code)["oaconvolve"](x).tolist() == [1.0, 2.0, 3.0]  # of another package


def test_a_library_that_copies_a_variable_warns() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        with pytest.warns(UserWarning, match="someones makes a copy, a Variable of its own, .*no gradient comes back"):
            names = as_a_library("import copy; twin = copy.deepcopy({'v': v})['v']", v=v)
        y = tc.sum(names["twin"] ** 2)
        mine = copy.deepcopy(v)  # users mean it
    assert tape.gradient(y, v) is None
    assert type(mine) is tc.Variable
    as_a_library("import copy; twin = copy.deepcopy(v)", v=v)  # no tape, no warning


def test_scikit_learns_workers_copy_the_filters_of_warnings() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    x = np.asarray([[0.0], [1.0], [2.0], [3.0]])
    assert ensemble.RandomForestRegressor(2, random_state=0).fit(x, x[:, 0]).predict(x).shape == (4,)


def test_matplotlib_takes_the_columns_of_a_tensor() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    data = np.asarray([[0.1, 0.9], [0.2, 0.8], [0.9, 0.7]])
    _, axes = pyplot.subplots()
    expected, found = (axes.hist(x, bins=2)[0] for x in (data, tc.asarray(data)))
    pyplot.close("all")
    np.testing.assert_array_equal(found, expected)


def test_to_numpy_gives_the_values_and_warns_of_a_library_on_a_tape() -> None:
    x = tc.asarray([1.0, 2.0])
    assert x.to_numpy().tolist() == [1.0, 2.0]
    with tc.GradientTape() as tape:
        tape.watch(x)
        assert x.to_numpy().tolist() == [1.0, 2.0]
        with pytest.warns(UserWarning, match=r"someones takes the values, by to_numpy\(\)"):
            as_a_library("values = x.to_numpy()", x=x)
