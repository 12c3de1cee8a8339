"""Calls of what holds arrays, tables and pictures: xarray, pandas, polars, matplotlib."""

from __future__ import annotations

import numpy as np

from cases import Section

_random = np.random.default_rng(0)
XARRAY = Section(
    "xarray",
    "import numpy as np\nimport xarray\nfrom xarray import DataArray\n\n\ndef D(x):\n"
    '    return DataArray(x, dims=("a", "b"), coords={"a": [10, 20, 30]})',
    {
        "x": np.asarray([0.3, 0.9, 0.5]),
        "X": _random.uniform(0.3, 0.9, (3, 4)),
        "Y": _random.uniform(0.3, 0.9, (3, 4)),
        "gaps": np.where(np.eye(3, 4) > 0, np.nan, 0.5),
    },
    """
D(X).data
(2 * D(X) + D(Y)).data
(D(X) * DataArray(x, dims="a")).data
np.sin(D(X)).data
D(X).sum("a").data
D(X).mean("a").data
D(X).std("a").data
D(X).var("a").data
D(X).max("a").data
D(X).min("a").data
D(X).median("a").data
D(X).prod("a").data
D(X).cumsum("a").data
D(X).cumprod("a").data
D(X).quantile(0.3, "a").data
D(X).count("a").data
D(X).argmax("a").data
D(X).idxmax("a").data
D(X).diff("a").data
D(X).shift(a=1, fill_value=0.0).data
D(X).roll(a=1).data
D(X).isel(a=1).data
D(X).isel(a=[0, 2]).data
D(X).sel(a=20).data
D(X).sel(a=[10, 30]).data
D(X)[1].data
D(X).where(D(X) > 0.5, 0.0).data
D(X).where(D(X) > 0.5).sum().data
D(X).fillna(0.0).data
D(X).clip(0.4, 0.7).data
D(X).transpose("b", "a").data
D(X).T.data
D(X).stack(c=("a", "b")).data
D(X).expand_dims("c").data
D(X).squeeze().data
D(X).pad(a=1, constant_values=0.0).data
D(X).astype("float64").data
D(X).copy().data
D(X).reindex(a=[10, 30]).data
D(X).interp(a=15.0).data
D(X).sortby("a", ascending=False).data
D(X).groupby("a").mean().data
D(X).groupby_bins("a", [0, 25, 40]).mean().data
D(X).coarsen(b=2).mean().data
D(X).rolling(b=2).mean().data[:, 1:]
D(X).weighted(DataArray(x, dims="a")).mean("a").data
D(X).integrate("a").data
D(X).differentiate("a").data
D(X).polyfit("a", 1).polyfit_coefficients.data
D(X).dot(D(Y), dim="b").data
xarray.dot(D(X), D(Y), dim="b").data
xarray.concat([D(X), D(Y)], "a").data
xarray.where(D(X) > 0.5, D(X), D(Y)).data
xarray.corr(D(X), D(Y), "a").data
xarray.cov(D(X), D(Y), "a").data
xarray.apply_ufunc(np.square, D(X)).data
xarray.Dataset({"u": D(X)}).mean("a").u.data
xarray.Dataset({"u": D(X)}).map(np.sin).u.data
D(X).values
D(X).to_numpy()
float(D(X).sum())
D(X).to_pandas().to_numpy()
D(X).equals(D(X))
""",
    packages=("xarray",),
)

PANDAS = Section(
    "pandas",
    "import numpy as np\nimport pandas",
    {"x": np.asarray([0.3, 0.9, 0.5]), "X": _random.uniform(0.3, 0.9, (3, 4)), "n": np.asarray([2, 0, 1])},
    """
pandas.Series(x).to_numpy()
pandas.DataFrame(X).to_numpy()
pandas.DataFrame({"u": x}).to_numpy()
pandas.DataFrame({"u": x, "n": n}).mean().to_numpy()
pandas.Index(x).to_numpy()
pandas.Series(np.asarray([1.0, 2.0, 3.0])).add(x).to_numpy()
(pandas.Series(np.asarray([1.0, 2.0, 3.0])) * x).to_numpy()
(x * pandas.Series(np.asarray([1.0, 2.0, 3.0]))).to_numpy()
pandas.Series([1.0, 2.0, 3.0]).iloc[n].to_numpy()
pandas.DataFrame(np.eye(3)).assign(u=x).to_numpy()
pandas.DataFrame(np.eye(3)).dot(x).to_numpy()
pandas.to_numeric(x)
pandas.cut(x, 2, labels=False)
pandas.unique(n)
pandas.isna(x)
""",
    packages=("pandas",),
)

POLARS = Section(
    "polars",
    "import numpy as np\nimport polars",
    {"x": np.asarray([0.3, 0.9, 0.5]), "X": _random.uniform(0.3, 0.9, (3, 4)), "n": np.asarray([2, 0, 1])},
    """
polars.Series(x).to_numpy()
polars.Series("u", x).to_numpy()
polars.DataFrame(X).to_numpy()
polars.DataFrame({"u": x}).to_numpy()
polars.DataFrame({"u": x, "n": n}).mean().to_numpy()
polars.from_numpy(X).to_numpy()
(polars.Series([1.0, 2.0, 3.0]) * x).to_numpy()
polars.DataFrame({"v": [1.0, 2.0, 3.0]}).with_columns(u=polars.lit(x)).to_numpy()
polars.Series([1.0, 2.0, 3.0])[n].to_numpy()
""",
    packages=("polars",),
)

PLOTS = Section(
    "matplotlib",
    'import matplotlib\n\nmatplotlib.use("agg")\nfrom matplotlib import pyplot\n\n\n'
    'def axes():\n    pyplot.close("all")\n    return pyplot.figure().add_subplot()',
    {
        "x": np.asarray([0.3, 0.9, 0.5]),
        "y": np.asarray([0.2, 0.4, 0.8]),
        "s": np.asarray(0.4),
        "X": _random.uniform(0.3, 0.9, (3, 4)),
        "colours": _random.uniform(0.3, 0.9, (3, 3)),
    },
    """
axes().plot(x)[0].get_ydata()
axes().plot(x, y)[0].get_xydata()
axes().plot(X)[0].get_ydata()
axes().plot([s, 2 * s])[0].get_ydata()
axes().semilogy(x)[0].get_ydata()
axes().loglog(x, y)[0].get_ydata()
axes().step(x, y)[0].get_ydata()
axes().scatter(x, y).get_offsets()
axes().scatter(x, y, c=y).get_array()
axes().scatter(x, y, c=colours).get_facecolors()
axes().scatter(x, y, s=x).get_sizes()
[bar.get_height() for bar in axes().bar(x, y)]
[bar.get_width() for bar in axes().barh(x, y)]
axes().hist(x, bins=2)[0]
axes().hist(X, bins=2)[0]
axes().errorbar(x, y, yerr=x)[0].get_xydata()
axes().fill_between(x, y).get_paths()[0].vertices
axes().stackplot(x, y)[0].get_paths()[0].vertices
axes().axhline(s).get_ydata()
axes().axvspan(s, 2 * s).get_width()
axes().hlines(x, 0.0, 1.0).get_segments()
axes().set_xlim(s, 2 * s)
axes().text(s, s, "here").get_position()
axes().imshow(X).get_array()
axes().pcolormesh(X).get_array()
axes().contour(X).levels
axes().quiver(x, y, x, y).U
axes().boxplot(x)["medians"][0].get_ydata()
axes().violinplot(x)["bodies"][0].get_paths()[0].vertices
axes().pie(x)[0][0].theta2
axes().hexbin(x, y, gridsize=2).get_array()
""",
    packages=("matplotlib",),
)

SECTIONS = [XARRAY, PANDAS, POLARS, PLOTS]
