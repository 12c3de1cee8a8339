"""Calls of what is written against the Array API standard, or asks the array what to do: array-api-extra, einops,
opt_einsum."""

from __future__ import annotations

import numpy as np

from cases import Section

_random = np.random.default_rng(0)
EXTRA = Section(
    "array-api-extra",
    "import array_api_extra as xpx\nfrom array_api_compat import array_namespace",
    {
        "x": np.asarray([0.3, 0.9, 0.5, 0.7]),
        "X": _random.uniform(0.3, 0.9, (3, 4)),
        "s": np.asarray(0.4),
        "n": np.asarray([2, 0, 1]),
        "gaps": np.asarray([0.3, np.nan, 0.5, 0.7]),
    },
    """
xpx.angle(x)
xpx.apply_where(x > 0.4, x, lambda u: u**2, lambda u: 3 * u)
xpx.apply_where(x > 0.4, x, lambda u: u**2, fill_value=0.0)
xpx.argpartition(x, 1)[:1]
xpx.at(x, 1).set(s, copy=True)
xpx.at(x, 1).add(s, copy=True)
xpx.at(x, 1).subtract(s, copy=True)
xpx.at(x, 1).multiply(s, copy=True)
xpx.at(x, 1).divide(s, copy=True)
xpx.at(x, 1).power(s, copy=True)
xpx.at(x, 1).min(s, copy=True)
xpx.at(x, 1).max(s, copy=True)
xpx.at(x)[x > 0.4].set(0.0, copy=True)
xpx.atleast_nd(x, ndim=3)
xpx.broadcast_shapes(x.shape, (3, 1))
xpx.cov(X)
xpx.create_diagonal(x, offset=1)
xpx.deg2rad(x)
xpx.rad2deg(x)
xpx.expand_dims(x, axis=(0, 2))
xpx.isclose(x, x + 1e-12)
xpx.isin(n, n[:2])
xpx.kron(X, 2 * X)
xpx.lazy_apply(lambda u: u * 2, x)
xpx.nan_to_num(gaps)
xpx.nanmax(gaps)
xpx.nanmin(gaps)
xpx.nansum(gaps)
xpx.nanmean(gaps)
xpx.nunique(n)
xpx.one_hot(n, 3, dtype=array_namespace(x).float64) * s
xpx.pad(X, (1, 2), constant_values=1.0)
xpx.partition(X, 1)[:, :1]
xpx.searchsorted(array_namespace(x).sort(x), x)
xpx.setdiff1d(n, n[:1])
xpx.union1d(n, n[:1])
xpx.sinc(x)
xpx.unravel_index(n, (2, 2))
xpx.diag_indices(3, xp=array_namespace(x))
xpx.tril_indices(3, xp=array_namespace(x))
xpx.triu_indices(3, xp=array_namespace(x))
""",
    fixed="gaps",
    packages=("array-api-extra", "array-api-compat"),
)

EINOPS = Section(
    "einops",
    "from einops import einsum, pack, parse_shape, rearrange, reduce, repeat, unpack",
    {
        "X": _random.uniform(0.3, 0.9, (4, 6)),
        "Y": _random.uniform(0.3, 0.9, (6, 4)),
        "images": _random.uniform(0.3, 0.9, (2, 4, 4, 3)),
    },
    """
rearrange(images, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=2)
rearrange([X, 2 * X], "n a b -> a (n b)")
reduce(images, "b h w c -> b c", "mean")
reduce(images, "b h w c -> b c", "sum")
reduce(images, "b (h p) w c -> b h c", "max", p=2)
reduce(images, "b h w c -> b c", "min")
reduce(images, "b h w c -> c", "prod")
repeat(X, "a b -> a b c", c=2)
einsum(X, Y, "a b, b c -> a c")
einsum(images, "b h w c -> h c")
pack([X, images[0, :, :, 0]], "a *")[0]
unpack(X, [(2,), (4,)], "a *")
parse_shape(X, "a b")
""",
    packages=("einops",),
)

CONTRACT = Section(
    "opt_einsum",
    "import opt_einsum",
    {
        "X": _random.uniform(0.3, 0.9, (3, 4)),
        "Y": _random.uniform(0.3, 0.9, (4, 5)),
        "Z": _random.uniform(0.3, 0.9, (5, 3)),
        "S": _random.uniform(0.3, 0.9, (3, 3)),
    },
    """
opt_einsum.contract("ab,bc->ac", X, Y)
opt_einsum.contract("ab,bc,cd->ad", X, Y, Z)
opt_einsum.contract("ab,bc,ca->", X, Y, Z)
opt_einsum.contract("ab,ab->a", X, 2 * X)
opt_einsum.contract("aa->a", S)
opt_einsum.contract("aa->", S)
opt_einsum.contract("ab->ba", X)
opt_einsum.contract("ab,cd->abcd", X, Y)
opt_einsum.contract("...b,bc->...c", X, Y)
opt_einsum.contract(X, ["a", "b"], Y, ["b", "c"], ["a", "c"])
opt_einsum.contract_expression("ab,bc->ac", (3, 4), (4, 5))(X, Y)
opt_einsum.contract_expression("ab,bc,cd->ad", X, (4, 5), (5, 3), constants=[0])(Y, Z)
opt_einsum.contract_path("ab,bc,cd->ad", X, Y, Z)[0]
""",
    packages=("opt-einsum",),
)

SECTIONS = [EXTRA, EINOPS, CONTRACT]
