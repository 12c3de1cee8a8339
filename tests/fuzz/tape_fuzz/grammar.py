"""The grammar of random programs: tables of statements; see `programs.py`."""

# ruff: noqa: E501 - an op is one line
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """Statements that give one value.

    Attributes:
        text: an expression, or lines that assign to `{out}`. `{f}`, `{i}`, `{b}` and `{c}` are values of real, integer,
            boolean and complex dtype, `{f0}` the `{f}` before, `{d}` and `{F}` real ones with axes, the latter small, `{g}` a real value of the shape of `{f}`, or of none;
            `{p}` a positive one, `{e}` a nested expression, `{n}` a number, `{k}` a small whole number, `{v}` and `{w}` Variables,
            `{h}` host data: an array or a number of NumPy, of which `h0` is the array, `r0` is a generator, `{o}` an optimizer, `{t}` a transformation of gradients.
        is_not: what it is not: "smooth", "continuous", "pure" (it assigns), "seeded" (it draws), "exported", "torch" (it is nothing that other frameworks have),
            "derived" (its gradient is not compiled: a generator that is not the global one draws in a branch or loop).
        weight: how often it is drawn.
    """

    text: str
    is_not: tuple[str, ...] = ()
    weight: int = 1


def _each(template: str, names: str, *is_not: str) -> list[Op]:
    return [Op(template.replace("NAME", name), is_not) for name in names.split()]


OPS: list[Op] = [
    # -- operators in every nesting
    Op("{e}", weight=12), Op("({e}) ** 2"), Op("(({e}) ** 2) ** 0.5", ("smooth",)), Op("({p} ** {n}) ** {n}", weight=4),
    Op("{p} ** ({p} ** {n})"), Op("-{p} ** {n}"), Op("(-{f}) ** 2 ** {k}"), Op("2.0 ** ({f}) ** 2"),
    Op("{p} ** {g}"), Op("({f} < {g}) == ({g} < 0.25)"), Op("(({f} < {g}) < ({f} > 0.1))"), Op("~({f} < {g}) | ({f} > 0)"),
    Op("({i} ** 2) ** 2 % 7"), Op("{i} // 3 + {i} % 4 - ({i} << 1)"), Op("-({i} - ({i} - {k}))"), Op("({i} & 6) ^ ({i} | 1)"),
    Op("{f} // 0.75", ("smooth", "continuous")), Op("{f} % 0.75", ("smooth", "continuous")),
    # -- operands of several dtypes
    Op("{f} * {i}", ("torch",), 2), Op("{i} - {f}", ("torch",), 2), Op("{f} + ({g} < {f})", ("smooth", "continuous", "torch")), Op("{i} / ({i} * {i} + 2)", ("torch",)),
    Op("tc.where({f} > 0, {i}, {f})", ("smooth", "continuous", "torch")), Op("tc.maximum({i}, {f})", ("smooth", "torch")), Op("tc.arctan2({p}, {i} * {i} + 1)".replace("arctan2", "atan2"), ("torch",)),
    Op("tc.sin({i}) + {n}", ("torch",)), Op("tc.mean({i}) * {f}", ("torch",)), Op("({i} < 2) * {f} + np.int32(2)", ("torch",)), Op("np.float64(0.5) * {f} - np.float32(2) * {i}", ("torch",)),
    Op("{i} + np.float64(0.5)", ("torch",)), Op("{i} * True + np.int64({k})", ("torch",)), Op("tc.where({i} > 0, np.float64(0.5), {f})", ("smooth", "continuous", "torch")),
    Op("kept = {i}\n{out} = tc.cond({n} < tc.sum({f}), lambda: tc.sum({f0}) * kept, lambda: kept - tc.mean({f0}))", ("smooth", "continuous", "torch")),
    # -- elementwise
    *_each("tc.NAME({f})", "sin cos tanh sigmoid softplus square erf atan asinh expm1 negative gelu silu softmax sinh mish"),
    *_each("tc.NAME({p})", "log sqrt log1p log2 reciprocal gammaln digamma cosh xlogy".replace(" xlogy", "")),
    *_each("tc.NAME({f})", "abs relu elu", "smooth"),
    *_each("tc.NAME({f})", "floor ceil sign round trunc", "smooth", "continuous"),
    *_each("tc.NAME({f}, {g})", "add subtract multiply hypot logaddexp"),
    *_each("tc.NAME({f}, {g})", "maximum minimum copysign", "smooth"),
    Op("tc.special.gammainc({p}, {p})"), Op("tc.special.stdtr({p}, {f})"), Op("tc.special.betainc({p}, {p}, tc.sigmoid({f}))"),
    Op("tc.divide({f}, {p})"), Op("tc.exp({f} * 0.25)"), Op("tc.atan2({f}, {p})"), Op("tc.clip({f}, -0.5, 0.5)", ("smooth",)),
    Op("tc.where({f} > {g}, {f}, {g} * 0.5)", ("smooth",)), Op("tc.where({b}, {f}, {g})", ("smooth",)),
    Op("tc.astype({f}, 'float32')", ("smooth",)), Op("tc.astype({i}, 'float64')"), Op("tc.astype({f} * 3, 'int64')", ("continuous",)),
    # -- reductions
    *_each("tc.NAME({f})", "sum mean var std logsumexp"), *_each("tc.NAME({d}, axis=-1)", "sum mean var logsumexp"),
    *_each("tc.NAME({d}, axis=0, keepdims=True)", "sum mean std"),
    *_each("tc.NAME({d}, axis=-1)", "max min", "smooth"), *_each("tc.NAME({f})", "max min", "smooth"),
    Op("tc.prod(tc.cos({f}))", weight=2), Op("tc.prod(1 + 0.01 * {d}, axis=-1)", weight=2), Op("tc.cumulative_sum({d}, axis=-1)"),
    Op("tc.cumulative_prod(1 + 0.01 * {d}, axis=-1)", weight=2), Op("tc.log_softmax({f})"), Op("tc.any({b})"), Op("tc.all({d} > 0.1, axis=-1)"),
    Op("tc.argmax({d}, axis=-1)", ("continuous",)), Op("tc.sum({i})"), Op("tc.diff({f})"), Op("tc.sort({f})", ("smooth",)),
    # -- shapes
    Op("tc.reshape({f}, (-1,))", weight=2), Op("tc.flip({f})", weight=2), Op("tc.roll({f}, {k})"), Op("{f}.T"), Op("tc.expand_dims({d}, axis=0)"),
    Op("tc.matrix_transpose({f})"), Op("tc.concat([{f}, {g}], axis=-1)"), Op("tc.stack([{f}, {f}])"), Op("tc.tile({F}, (2, 1))"),
    Op("tc.broadcast_to({f}, (2, *{f}.shape))".replace("*{f}.shape", "1")), Op("tc.unstack({F})[0]"), Op("tc.tril({f})"), Op("tc.repeat({F}, 2)"),
    Op("tc.split({f}, 2, axis=-1)[1]"), Op("tc.pad({F}, 1)"),
    # -- indexing, and assignment by index
    Op("{f}[0]", weight=2), Op("{f}[..., 0]"), Op("{f}[::-1]", weight=2), Op("{f}[1:]"), Op("{f}[..., ::2]", weight=2), Op("{f}[None]"), Op("{f}[-{k}]"),
    Op("{f}[tc.asarray([0, 0])]"), Op("{f}[..., tc.asarray([0, -1])]"), Op("tc.take({f}, tc.asarray([0, 1]), axis=-1)"),
    Op("{out} = +{f}\n{out}[0] = {e}"), Op("{out} = {f} * 1.0\n{out}[..., ::2] = {n}"), Op("{out} = tc.tanh({f})\n{out}[...] = {g}"),
    Op("{out} = tc.sin({f})\n{out} += {g}"), Op("{out} = tc.sin({f})\nkept = {out}\n{out} *= 0.5\n{out} = {out} + kept"),
    # -- products and linear algebra
    Op("{F} @ {F}.T"), Op("tc.matmul({F}, tc.matrix_transpose({F}))"), Op("tc.tensordot({f}, {f}, axes=1)"), Op("tc.vecdot({f}, {f})"),
    Op("tc.outer(tc.reshape({F}, (-1,)), tc.reshape({F}, (-1,)))"), Op("tc.einsum('...i,...i->...', {f}, {f})"),
    *_each("tc.linalg.NAME({F} @ tc.matrix_transpose({F}) * 0.1 + tc.eye({F0}.shape[-2]))", "inv cholesky det pinv"),
    Op("tc.linalg.solve({F} @ tc.matrix_transpose({F}) * 0.1 + tc.eye({F0}.shape[-2]), {F0})"),
    Op("tc.linalg.slogdet({F} @ tc.matrix_transpose({F}) * 0.1 + tc.eye({F0}.shape[-2]))[1]"),
    Op("tc.linalg.matrix_power({F} @ tc.matrix_transpose({F}) * 0.1, 3)"), Op("tc.linalg.vector_norm({f} + 0.5)"),
    # -- complex numbers
    Op("{f} * 1j + {g}"), Op("{c} * tc.conj({c}) + {c}"), Op("tc.exp({c} * 0.1j)"), Op("tc.real({c} ** 2)"), Op("tc.imag({c} * {c})"), Op("tc.abs({c} + 3)"),
    Op("tc.fft.fft({F})"), Op("tc.real(tc.fft.ifft({c}))"), Op("tc.sum({c})"), Op("tc.fft.irfft(tc.fft.rfft({F}))"),
    Op("tc.real(tc.sigmoid({c}) * 2)", ("torch",)), Op("tc.softplus({c} * 0.3)", ("torch",)), Op("tc.abs(tc.silu({c} * 0.2) + 3)", ("torch",)), Op("tc.softmax({c} * 0.3)", ("torch",)),
    Op("tc.real(tc.logsumexp({c} * 0.2))", ("torch",)), Op("tc.var({c})", ("torch",)),
    # -- methods, as NumPy's arrays have them
    *_each("{f}.NAME()", "sum mean ravel flatten copy conj transpose squeeze cumsum", "torch"), *_each("{f}.NAME()", "std var", "torch"),
    *_each("{d}.NAME(axis=-1)", "sum mean std var cumsum", "torch"), *_each("{d}.NAME(axis=[0], keepdims=True)", "sum mean", "torch"), *_each("{d}.NAME(axis=-1)", "max min", "torch", "smooth"),
    Op("(1 + 0.01 * {d}).prod(axis=-1)", ("torch",)), Op("(1 + 0.01 * {d}).cumprod(axis=0)", ("torch",)), Op("{f}.reshape(-1) * {n}", ("torch",)), Op("{d}.repeat(2, axis=0)", ("torch",)),
    Op("{d}.take([0, 0], axis=-1)", ("torch",)), Op("{F}.swapaxes(0, -1)", ("torch",)), Op("{F}.dot({F}.T)", ("torch",)), Op("{F}.trace()", ("torch",)), Op("{F}.diagonal()", ("torch",)),
    Op("{f}.clip(-0.5, 0.5)", ("torch", "smooth")), Op("{f}.round()", ("torch", "smooth", "continuous")), Op("{i}.astype('float64') + {f}.real", ("torch",)), Op("{c}.imag + {c}.real", ("torch",)),
    Op("{d}.argmax(axis=-1)", ("torch", "continuous")), Op("{i}.sum() * {n}", ("torch",)), Op("({d} > 0.1).any(axis=-1)", ("torch", "continuous")), Op("{d}.std(axis=0, ddof=0.5)", ("torch",)),
    # -- control flow, with values from around it
    Op("tc.cond(tc.sum({f}) > {n}, lambda: tc.sin({f0}), lambda: {f0} * tc.astype(tc.mean({g}), {f0}.dtype))", ("smooth", "continuous"), 2),
    Op("tc.scan(lambda h, x: (tc.tanh(h * {f} + x), h * x), {f0} * 0.5, tc.stack([{f0}, {g} + {f0}]))[{j}]", weight=3),
    Op("tc.scan(lambda h, x: (h * 0.5 + {e}, x * {f}), {f0}, tc.stack([{f0}] * {k}), reverse=True)[0]"),
    Op("tc.while_loop(lambda c: c[0] < {k}, lambda c: (c[0] + 1, tc.cos(c[1]) * {f}), (tc.asarray(0), {f0}))[1]", ("smooth",), 2),
    # -- functions that change what they are given in place
    Op("tc.checkpoint(lambda a: tc.sin(a.__imul__(0.5)) * a)({f})", ("torch",)), Op("tc.scan(lambda h, x: (tc.tanh(h.__iadd__(x)) * h, x.__imul__(0.5) + h), {f}, tc.stack([{f0}] * {k}))[{j}]", ("torch",), 2),
    Op("tc.cond(tc.sum({f0}) > {n}, lambda a: a.__imul__(0.5) + {f0}, tc.sin, {f})", ("smooth", "continuous", "torch")), Op("tc.while_loop(lambda c: c[0] < {k}, lambda c: (c[0].__iadd__(1), tc.cos(c[1].__imul__({n})) + c[1]), (tc.asarray(0), {f0}))[1]", ("smooth", "torch"), 2),
    Op("tc.grad(lambda a: tc.sum(tc.sin(a.__imul__(0.5)) * a))({f})", ("torch",)), Op("tc.vjp(lambda a: a.__iadd__({f0}) * a, {f})[1](tc.sin({f}))[0]", ("torch",)),
    Op("tc.map(lambda r: tc.sin(r) * tc.sum({F}) + r ** 2 ** 2, {F0})"),
    Op("{out} = tc.scan(lambda h, x: ({v}.assign_add(x * 0.1), ({v} * h, x))[1], {v} * 1.0, tc.stack([{v} * 0.5] * {k}))[0]", ("pure", "exported")),
    # -- Variables
    Op("{v} * {e}", weight=2), Op("{v} + 0.0"), Op("tc.tanh({v})"), Op("{v}[::2]"), Op("tc.sum({v} ** 2) ** 2"),
    Op("{v}.assign({f} * 0.5)\n{out} = {v} * 2.0", ("pure",), 4), Op("{v}.assign_add(tc.tanh({f}) * 0.1)\n{out} = {v} + {g}", ("pure",), 4),
    Op("{v}.assign({v} * 0.9 - tc.tanh({v} * {v}))\n{out} = {v}[::2]", ("pure",), 4), Op("{v}.assign_sub({g})\n{out} = tc.sum({v})", ("pure",), 2),
    Op("{v}.assign(tc.flip({v}))\n{out} = {v} * {v}", ("pure",), 4), Op("{out} = {v} * {v} + {f} * 0.1\n{v}.assign({out})", ("pure",), 3),
    # -- random numbers
    Op("tc.random.global_rng().normal({f}.shape) + {f0}", ("seeded",)), Op("tc.random.global_rng().uniform({f}.shape) * {f0}", ("seeded",)),
    Op("tc.vmap(lambda a: tc.dropout(a, 0.5) * {n}, randomness='different')({f})", ("seeded",)),
    Op("tc.vmap(lambda a: tc.random.global_rng().laplace(loc=a, scale=0.5), randomness='same')({f})", ("seeded",)),
    Op("tc.random.global_rng().split()[1].normal({f}.shape) + {f0}", ("seeded",)),
    Op("tc.random.global_rng().gamma(tc.abs({f}) + 1.5)", ("seeded", "smooth", "continuous")),
    Op("tc.random.global_rng().shuffle({f}) * {f0}", ("seeded",)),
    Op("tc.dropout({f}, 0.5)", ("seeded",)), Op("tc.default_rng({k}).normal({f}.shape) * {f0}", ("seeded",)), Op("r0.normal({f}.shape) * {f0}", ("seeded",), 2),
    Op("r0.uniform({f}.shape) + tc.random.global_rng().exponential({f}.shape) + r0.normal({f}.shape)", ("seeded",)), Op("r0.integers({k} + 5, shape={f}.shape) * {f0}", ("seeded",)),
    Op("r0.split(2)[{j}].uniform({f}.shape) * {f0}", ("seeded",)), Op("tc.checkpoint(lambda a: r0.normal(a.shape) * tc.dropout(a, 0.25))({f})", ("seeded",)),
    Op("tc.cond(tc.sum({f}) > {n}, lambda: tc.dropout({f0}, 0.5) * tc.random.global_rng().normal({f0}.shape), lambda: {f0} * tc.random.global_rng().uniform({f0}.shape))", ("seeded", "smooth", "continuous"), 2),
    Op("tc.cond({k} > 1, lambda: r0.normal({f0}.shape), lambda: r0.uniform({f0}.shape)) * {f0}", ("seeded",)),
    Op("tc.cond(tc.sum(r0.normal(3)) > 0, lambda: r0.normal({f}.shape), lambda: r0.uniform({f0}.shape) + r0.normal({f0}.shape)) * {f0}", ("seeded", "smooth", "continuous", "derived"), 2),
    Op("tc.scan(lambda h, x: (tc.dropout(h, 0.5) + x, tc.random.global_rng().normal(h.shape) * h), {f}, tc.stack([{f0}] * {k}))[{j}]", ("seeded",), 2),
    Op("tc.scan(lambda h, x: (h * 0.5 + tc.random.global_rng().normal(h.shape), x), {f}, tc.stack([{f0}] * {k}), reverse=True)[0]", ("seeded",)),
    Op("tc.while_loop(lambda c: c[0] < {k}, lambda c: (c[0] + 1, c[1] * tc.random.global_rng().uniform({f}.shape) + tc.dropout({f0}, 0.5)), (tc.asarray(0), {f0} * 1.0))[1]", ("seeded", "smooth"), 2),
    Op("tc.while_loop(lambda c: tc.random.global_rng().uniform() + c[0] < {k}, lambda c: (c[0] + 1, c[1] * 0.5), (tc.asarray(0.0, dtype='float64'), {f}))[1]", ("seeded", "smooth", "continuous")),
    Op("tc.grad(lambda a: tc.sum(a * r0.normal(a.shape) * tc.dropout({f}, 0.5)))({f0} * 1.0)", ("seeded",)),
    Op("tc.jvp(lambda a: tc.tanh(a) * r0.uniform(a.shape), ({f},), (tc.dropout({f}, 0.25),))[1]", ("seeded",)),
    Op("tc.vmap(lambda a: a * r0.normal(a.shape), randomness='different')({d})", ("seeded",)), Op("tc.vmap(lambda a: a + r0.uniform(a.shape), randomness='same')({d})", ("seeded",)),
    Op("tc.map(lambda r: r * tc.random.global_rng().normal(r.shape), {F})", ("seeded",)), Op("{v}.assign_add(r0.normal({v}.shape) * 0.1)\n{out} = tc.dropout({v}, 0.5)", ("seeded", "pure", "exported"), 2),
    Op("tc.scan(lambda h, x: (h * 0.5 + r0.normal(h.shape), r0.integers(5)), r0.uniform({f}.shape), length={k})[0] * {f0}", ("seeded", "derived")),
    # -- functions under SciPy's names
    Op("tc.scipy.linalg.expm(0.1 * tc.scipy.linalg.toeplitz(tc.tanh(tc.reshape({f}, (-1,))[:4])))"), Op("tc.scipy.ndimage.gaussian_filter1d(tc.reshape({f}, (-1,))[:8], 1.0)"),
    Op("tc.scipy.signal.convolve(tc.reshape({f}, (-1,))[:8], tc.reshape({f0}, (-1,))[:3], mode='same')"), Op("tc.scipy.integrate.trapezoid(tc.reshape({f}, (-1,))[:8])"),
    Op("tc.scipy.signal.detrend(tc.reshape({f}, (-1,))[:8])"),
    Op("s0 = r0.permutation(5)\n{out} = {f} * s0[{k}]", ("seeded", "exported")),
    # -- tapes and transformations inside
    Op("with tc.GradientTape() as t:\n    t.watch({f})\n    y = tc.sin({f0}) * {e}\n{out} = t.gradient(y, {f0})", weight=2),
    Op("with tc.GradientTape() as t, tc.GradientTape() as u:\n    t.watch({f})\n    u.watch({f0})\n    y = tc.tanh({f0}) ** 3\n    g = u.gradient(y, {f0})\n"
       "{out} = t.gradient(g, {f0})"),
    Op("with tc.GradientTape() as t:\n    y = {v} ** 2 * {f}\n{out} = t.gradient(y, {v})"),
    Op("tc.grad(lambda a: tc.sum(tc.sin(a) * {f}))({f0} * 1.0)"), Op("tc.jvp(lambda a: tc.tanh(a * {f}), ({f0},), ({f0} * 0.5,))[1]"),
    Op("tc.vmap(lambda a: tc.sum(a * a) * {n})({f})"), Op("tc.checkpoint(lambda a: tc.sin(a) * tc.cos(a))({f})"),
    Op("tc.custom_gradient(lambda a: (tc.sin(a), lambda u: u * tc.cos(a)))({f})", weight=2), Op("tc.vjp(tc.sin, {f})[1]({f0})[0]"),
    Op("tc.stop_gradient({f}) * {f0}", ("smooth",)),
    # -- host data
    Op("{f} * {h}", ("torch",), 2), Op("{h} - {f}", ("torch",), 2), Op("{f} / ({h} * {h} + 0.5)", ("torch",)), Op("tc.add({h}, {f})", ("torch",)), Op("{h} ** 2 * {f}", ("torch",)),
    Op("tc.maximum({f}, {h})", ("torch", "smooth")), Op("tc.where({f} > {h}, {f0}, {h})", ("torch", "smooth")), Op("tc.clip({f}, np.float32(-0.5), np.float64(0.5))", ("torch", "smooth")),
    Op("tc.concat([{f}, h0], axis=-1)", ("torch",)), Op("tc.stack([h0, {f}])", ("torch",)), Op("tc.einsum('...i,...i->...', h0, {f})", ("torch",)), Op("h0 @ {F}.T", ("torch",)),
    Op("tc.sum(tc.sin(h0)) * {f}", ("torch",)), Op("tc.asarray(h0.tolist()) + {f}", ("torch",)), Op("{f}[..., np.asarray([0, -1])]", ("torch",)), Op("tc.take({d}, np.asarray([0, 0]), axis=-1)", ("torch",)),
    Op("{out} = {f} * 1.0\n{out}[...] = {h}", ("torch",)), Op("{out} = tc.sin({f})\n{out} += {h}", ("torch",)), Op("{v}.assign(h0 * 0.5)\n{out} = {v} * {h}", ("torch", "pure"), 2),
    Op("{v}.assign_add({h})\n{out} = {v} * 0.5", ("torch", "pure")), Op("tc.cond(tc.sum({f}) > {h}.sum(), lambda: {f0} * h0, lambda: {f0} + h0)", ("torch", "smooth", "continuous")),
    Op("tc.scan(lambda c, x: (tc.tanh(c * {h} + x), c * x), {f}, np.stack([h0, h0]))[{j}]", ("torch",)), Op("tc.scan(lambda c, x: (c * 0.5 + x, x), h0, tc.stack([{f}] * {k}))[0]", ("torch",)),
    Op("tc.while_loop(lambda c: c[0] < np.int64({k}), lambda c: (c[0] + 1, tc.cos(c[1]) * {h}), (np.int64(0), {f}))[1]", ("torch", "smooth")),
    Op("tc.vmap(lambda a: tc.tanh(a * {h}))({f})", ("torch",)), Op("tc.vmap(lambda a, b: a * b)({f}, h0)", ("torch",)), Op("tc.map(lambda r: r * tc.sum({f}), np.stack([h0, h0]))", ("torch",)),
    Op("tc.grad(lambda a: tc.sum(tc.sin(a) * {f}))(h0)", ("torch",)), Op("tc.grad(lambda a: tc.sum(tc.sin(a) * {h}))({f})", ("torch",)), Op("tc.jvp(lambda a: tc.tanh(a * {f}), (h0,), ({f0},))[1]", ("torch",)),
    Op("tc.jvp(lambda a: tc.tanh(a * {h}), ({f},), (h0,))[1]", ("torch",)), Op("tc.vjp(lambda a: tc.sin(a * {h}), {f})[1](h0)[0]", ("torch",)),
    Op("tc.checkpoint(lambda a: tc.sin(a) * {h})({f})", ("torch",)), Op("tc.checkpoint(lambda a, b: tc.sin(a) * b)({f}, h0)", ("torch",)),
    Op("with tc.GradientTape() as t:\n    t.watch({f})\n    y = tc.sin({f0}) * {h}\n{out} = t.gradient(y, {f0}, output_gradients=h0)", ("torch",)),
    Op("tc.custom_gradient(lambda a: (tc.sin(a) * np.float64(0.5), lambda u: u * tc.cos(a) * np.float64(0.5)))({f})", ("torch",)),
]  # fmt: skip
"""The grammar: to have another op drawn, add its line."""

DRAWS: list[Op] = [op for op in OPS if "seeded" in op.is_not or "{v}" in op.text] + [Op("{e}", (), 4)]
"""Random numbers and Variables, in every nesting."""

STATE: list[Op] = [
    Op("{v}.assign_add(tc.tanh({w}) * 0.1)\n{out} = {v} * 1.0", ("pure",)), Op("{v}.assign({v} * 0.9 - tc.tanh({v} * {v}))\n{out} = {v}[::2]", ("pure",), 2),
    Op("{v}.assign(tc.flip({v}))\n{out} = {w} * {w} + {f} * 0.1", ("pure",), 2), Op("{v}.assign_sub({w} * 0.25)\n{out} = {f} * 0.5", ("pure",)),
    Op("{v}.assign({w}[::-1] * 0.5)\n{out} = {v} + 0.0", ("pure",)), Op("{v}.assign({w} * 1.0)\n{w0}.assign(tc.sin({v0}))\n{out} = {f} + {v0}", ("pure",)),
    Op("kept = +{v}\n{v}.assign(kept * 0.5 + {w} * {w})\n{out} = kept - {v}", ("pure",)), Op("{v}.assign(tc.roll({v}, {k}) + {w})\n{out} = {v}[{k}:]", ("pure",)),
    Op("{f} * 0.5", (), 2), Op("{v} * {v} + {f} * 0.1", (), 3), Op("{v}[::2]", (), 3), Op("{f}[1:]"), Op("tc.flip({f})"), Op("tc.tanh({f})"), Op("tc.reshape({v}, (-1,))[::2]"),
    Op("{e}"), Op("tc.sum({f})"), Op("{out} = tc.sin({f})\nkept = {out}\n{out} *= 0.5\n{out} = {out} + kept"), Op("{out} = {f} * 1.0\n{out}[..., ::2] = {n}"),
]  # fmt: skip
"""What a training step on large arrays is made of: Variables that are read, viewed and assigned in every order."""

# Of large numbers the sine says how products were rounded, and no value of the program shows how large they were.
_STEP = "with tc.GradientTape() as t:\n    y = tc.mean(tc.sin({v} * tc.tanh({e}) - {w}) ** 2)\ng = t.gradient(y, [{v}, {w0}])\n"
TRAINING: list[Op] = [
    Op(_STEP + "{o}.apply_gradients(zip(g, [{v0}, {w0}]))\n{out} = y * 1.0", ("pure", "exported"), 6), Op(_STEP + "{o}.apply_gradients(zip(g, [{v0}, {w0}]))\n{out} = {v0} * 0.5", ("pure", "exported"), 3),
    Op("with tc.GradientTape() as t:\n    y = tc.sum(tc.tanh({v} * {f}))\n{o}.apply_gradients([(t.gradient(y, {v0}), {v0})])\n{out} = {v0} + y", ("pure", "exported"), 2),
    Op(_STEP + "m = nn.chain(nn.transforms.clip_by_global_norm(0.5), nn.transforms.{t})\nu, s = m.update(g, m.init([{v0}, {w0}]), [{v0}, {w0}])\nu, s = m.update(g, s, [{v0}, {w0}])\n"
       "{out} = nn.transforms.apply_updates([{v0} * 1.0, {w0} * 1.0], u)[0]", (), 4),
    Op("m0.update()\n{out} = {v} * 0.5", ("pure", "exported"), 3), Op("with m0.averaged():\n    {out} = {v} * {f}", ("pure", "exported"), 2),
    Op("{e}", (), 2), Op("{v} * {f}", (), 2), Op("tc.tanh({f})"), Op("tc.mean({f})"), Op("{v}.assign_add(tc.tanh({w}) * 0.1)\n{out} = {v} * 1.0", ("pure",)),
]  # fmt: skip
"""What a step of training is made of: optimizers, those around others, transformations, and averages of Variables."""

OPTIMIZERS = [
    "nn.SGD(0.1, momentum=0.9)", "nn.Adam(0.05)", "nn.AdamW(0.05, weight_decay=0.1)", "nn.RMSprop(0.05)", "nn.GradientAccumulation(nn.Adam(0.05), 2)",
    "nn.GradientAccumulation(nn.SGD(0.1, momentum=0.5), 3)", "nn.Adam(0.05, groups=[nn.ParameterGroup(lambda v: v.name == 'v0', learning_rate=0.2)])",
    "nn.Adam(nn.schedules.ExponentialDecay(0.1, 2, 0.5))", "nn.Adam(0.05, clipnorm=0.5)", "nn.LossScaler(nn.SGD(0.1))",
    "nn.LossScaler(nn.GradientAccumulation(nn.SGD(0.1, momentum=0.5), 2), 8.0, growth_interval=1)",
]  # fmt: skip
TRANSFORMATIONS = ["sgd(0.1, momentum=0.9)", "adam(0.1)", "adamw(0.1)", "scale_by_rms()", "trace(0.9, nesterov=True)"]

PRODUCTS: list[Op] = [
    *_each("tc.NAME({d}, axis=0)", "prod cumulative_prod"), *_each("tc.NAME({d}, axis=-1)", "prod cumulative_prod"), Op("tc.prod({d}, axis=-1, keepdims=True)"),
    Op("tc.prod({f})"), Op("tc.prod({d} * {n}, axis={j})"), Op("tc.cumulative_prod({d} + {n}, axis={j})"), Op("tc.cumulative_sum({d}, axis={j})"),
    *_each("tc.NAME({d}, axis={j})", "sum mean var logsumexp"), Op("tc.matrix_transpose({F})"), Op("tc.flip({f})"), Op("{f}[..., ::2]"), Op("{f} * {g}", (), 3),
    Op("{e}"), Op("tc.sin({f})", (), 2), Op("{F} @ {F}.T"), Op("tc.log_softmax({f})"), Op("tc.stack([{f}, {f}])"), Op("tc.where({b}, {f}, {g})"), Op("{f} > 0.1"),
]  # fmt: skip
"""What sums and products along axes are made of."""

EXTREMES: list[Op] = [
    *_each("tc.NAME({d}, axis={j} - 1)", "max min argmax argmin sort argsort sum mean prod var std logsumexp cumulative_sum cumulative_prod logcumsumexp softmax log_softmax all any count_nonzero", "smooth"),
    *_each("tc.NAME({d}, axis={j} - 1, keepdims=True)", "max min sum mean"), *_each("tc.NAME({f})", "max min sum mean prod std logsumexp isnan isfinite sign abs relu signbit tanh"),
    *_each("tc.argsort({d}, axis={j} - 1, NAME=True)", "descending"), *_each("tc.NAME({f}, {g})", "maximum minimum logaddexp hypot multiply copysign"), Op("tc.top_k({d}, 1)[{j}]"), Op("tc.clip({f}, -0.5, 0.5)"),
    Op("tc.where(tc.isnan({f}), {g}, {f})"), Op("tc.where({f} > {g}, {f}, {g} * 0.5)"), Op("tc.linalg.vector_norm({d}, axis={j} - 1, ord=float('inf'))"), Op("tc.linalg.vector_norm({f})"),
    Op("{d} - tc.max({d}, axis=0, keepdims=True)", (), 2), Op("{F} @ tc.matrix_transpose({F})"), Op("tc.max({F} @ tc.matrix_transpose({F}), axis={j})"), Op("tc.flip({f})"), Op("tc.take_along_axis({d}, tc.argsort({d}, axis=0), axis=0)"),
    Op("tc.min({d} * {n}, axis={j} - 1)"), Op("tc.max(tc.stack([{f}, {f}]), axis=0)"), Op("tc.max({i})"), Op("tc.min({i}, axis=0)"), Op("tc.astype(tc.argmax({d}, axis=0), 'float64')"), Op("{v} * {f}"), Op("tc.max({v} * {n})"),
    Op("{v}.assign(tc.minimum({v}, tc.max({f})))\n{out} = {v} * 2.0"), Op("{d}[0]"), Op("tc.vmap(lambda r: tc.max(r))({d})"), Op("tc.grad(lambda a: tc.sum(tc.max(a, axis=0)))({d})"), Op("tc.jvp(lambda a: tc.min(a, axis=-1), ({d},), ({d},))[1]"),
]  # fmt: skip
"""Reductions, extremes and orders along axes, of values that may be NaN."""

_STEP_OF_SCAN = [
    "tc.tanh({e} * h + x)",
    "tc.sin(h) * tc.exp(0.1 * x) + tc.logsumexp(h) * {f}",
    "h * tc.sigmoid(x + h)",
    "tc.sqrt(h * h + 1.5) * tc.cos(x)",
    "tc.log_softmax(h + x)",
]
SHARED: list[Op] = [
    *[Op(f"tc.scan(lambda h, x: (tc.tanh({step}), h * tc.exp(0.1 * x)), {{f}} * 0.5, tc.stack([{{f0}}, {{g}} + {{f0}}, tc.sin({{f0}})]), reverse={flag})[{{j}}]") for step in _STEP_OF_SCAN for flag in (False, True)],
    Op("{out}, rows = tc.scan(lambda h, x: ((tc.tanh(h[0] + x), tc.sin(h[1]) * h[0]), {'a': tc.exp(0.1 * h[1]), 'b': tc.cos(h[0] * x)}), ({f} * 0.5, {g} + {f0}), tc.stack([{f0}] * {k}))\n{out} = {out}[{j}] + rows['a'][0] * tc.sum(rows['b'])", (), 2),
    Op("tc.scan(lambda h, x: (tc.scan(lambda q, y: (tc.tanh(q * y + x), tc.exp(0.1 * q)), h, tc.stack([x, h]))[0], tc.sin(h) * x), {f}, tc.stack([{f0}] * {k}))[{j}]", (), 2),
    Op("tc.scan(lambda h, x: (tc.tanh(tc.scan(lambda q, y: (tc.sin(q) + y, tc.cos(y) * q), x, tc.stack([x, h]), reverse=True)[1][0]), h), {f}, tc.stack([{f0}] * {k}))[0]"),
    Op("tc.scan(tc.checkpoint(lambda h, x: (tc.tanh({e} * h + x), tc.exp(0.1 * h) * x)), {f}, tc.stack([{f0}] * {k}))[{j}]", (), 2),
    Op("tc.scan(lambda h, x: (tc.checkpoint(lambda a: tc.tanh(tc.sin(a) * x))(h) + tc.sin(h), tc.sin(h)), {f}, tc.stack([{f0}] * {k}))[{j}]", (), 2),
    Op("tc.checkpoint(lambda a: tc.scan(lambda h, x: (tc.tanh(h + x) * a, tc.exp(0.1 * h)), a, tc.stack([a] * {k}))[{j}])({f})"),
    Op("tc.scan(lambda h, x: (tc.where(x > 0, tc.tanh(h * x), tc.sqrt(h * h + 0.5)), tc.where(h > x, tc.exp(0.1 * x), h)), {f}, tc.stack([{f0}] * {k}))[{j}]", ("smooth",), 2),
    Op("tc.scan(lambda h, x: (tc.cond(tc.sum(h) > 0, lambda: tc.tanh(h + x), lambda: tc.sin(h) * x), tc.exp(0.1 * h)), {f}, tc.stack([{f0}] * {k}))[{j}]", ("smooth", "continuous")),
    Op("tc.scan(lambda h, x: (tc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, tc.tanh(c[1]) + x), (0, h))[1], tc.sin(h)), {f}, tc.stack([{f0}] * {k}))[{j}]"),
    Op("tc.scan(lambda h, x: (tc.tanh(h @ {F}.T @ {F0}) + x, tc.exp(0.1 * (h @ {F0}.T))), {F0} * 0.5, tc.stack([{F0}] * {k}))[{j}]", (), 2),
    Op("tc.scan(lambda h, x: (tc.cumulative_prod(1 + 0.1 * tc.tanh(h + x), axis=-1), tc.logsumexp(h, axis=-1)), {d}, tc.stack([{d0}] * {k}))[{j}]"),
    Op("tc.scan(lambda h, x: (tc.sort(h + x, axis=-1), tc.sort(tc.sin(h), axis=-1, descending=True)), {d}, tc.stack([{d0} * 0.5] * {k}))[{j}]", ("smooth",)),
    Op("tc.scan(lambda h, x: (h * 0.5 + tc.grad(lambda a: tc.sum(tc.sin(a) * x))(h), tc.sin(h) * x), {f}, tc.stack([{f0}] * {k}))[{j}]"),
    Op("tc.vmap(lambda a: tc.scan(lambda h, x: (tc.tanh(h * x), tc.exp(0.1 * h)), a, tc.stack([a, a]))[{j}])({f})"),
    Op("tc.vmap(lambda a: tc.scan(lambda h, x: (tc.tanh(h * a + tc.sum(x)), tc.sin(h)), a, {f0})[0])({f})"),
    Op("tc.scan(lambda h, x: (tc.tanh(h + {v}), tc.exp(0.1 * h) * {v}), {v} * 0.5, None, length={k})[{j}]"),
    Op("tc.scan(lambda h, x: (tc.custom_gradient(lambda a: (tc.sin(a), lambda u: u * tc.cos(a)))(h) + x, tc.sin(h)), {f}, tc.stack([{f0}] * {k}))[{j}]"),
    Op("tc.scan(lambda h, x: (h + 1, tc.sin(h * {f}) * x), 0.0, tc.stack([{f0}] * {k}))[1]"), Op("tc.map(lambda r: tc.exp(0.1 * r) * tc.logsumexp(r + {F}), {F0})"),
    # -- exponentials, sorts and products
    *_each("tc.NAME({d}, axis={j})", "logsumexp log_softmax softmax cumulative_prod"), *_each("tc.NAME({d} * {n}, axis=-1)", "logsumexp log_softmax cumulative_prod"), Op("tc.logsumexp({d}, axis=0, keepdims=True) + {d0}"),
    Op("tc.logsumexp({d}, axis=-1) * tc.logsumexp({d0}, axis=-1)"), Op("tc.logsumexp({f})"), Op("tc.log_softmax({f})"), Op("tc.cross_entropy({d}, tc.softmax({d0}), axis=-1)"), Op("tc.exp({d} * 0.1) * tc.logsumexp({d0} * 0.1)"),
    Op("tc.cumulative_prod({d} * tc.asarray(tc.abs({d0}) > 0.5, dtype={d0}.dtype), axis=-1)", ("smooth", "continuous")), Op("tc.prod({d} * tc.asarray(tc.abs({d0}) > 0.5, dtype={d0}.dtype), axis=-1)", ("smooth", "continuous")),
    *_each("tc.NAME({d}, axis=-1)", "sort argsort max min", "smooth"), Op("tc.sort({d}, axis=0, descending=True)", ("smooth",), 2), Op("tc.sort({d}, axis={j}, stable=False)", ("smooth",)), Op("tc.take_along_axis({d}, tc.argsort({d0}, axis=-1), axis=-1)", ("smooth",)),
    Op("tc.sort(tc.round({d}), axis=-1) * tc.sort({d0}, axis=-1)", ("smooth", "continuous")), Op("tc.top_k({d}, 1)[0]", ("smooth",)), Op("tc.sort({f}[..., None] * {f0}, axis=-1)", ("smooth",)),
    Op("{e}", (), 3), Op("{f} * {g}", (), 2), Op("tc.stack([{f}, {g}])"), Op("{F} @ {F}.T"), Op("tc.sum({d}, axis=-1)"), Op("tc.reshape({f}, (-1,))"), Op("{v} * {f}"), Op("{f}[0]"),
    Op("{v}.assign_add(tc.tanh({f}) * 0.1)\n{out} = {v} + {g}", ("pure",)),
]  # fmt: skip
"""Scans whose derivatives share with them what they compute, and other ops that XLA is given in a form of its own."""

# Of masked functions, by what they are taken for: what is positive, small, no zero, or negative.
_TAKEN = {
    "{f} > 0": "tc.sqrt(a)|tc.log(a)|a ** 0.5|a ** -0.5|a ** 1.5|tc.log(a) * tc.sqrt(a)|tc.sqrt(tc.log1p(a))|1 / tc.sqrt(a)|tc.exp(tc.log(a) * 0.5)|tc.xlogy(a, a)|tc.hypot(a, a)",
    "tc.abs({f}) < 1": "tc.acos(a)|tc.atanh(a)|tc.erfinv(a)|tc.log(1 - a * a)|tc.sqrt(1 - a * a)|tc.sqrt(1 - tc.abs(a))|tc.asin(a) * a",
    "{f} != 0": "1 / a|tc.sin(a) / a|tc.reciprocal(a)|a / tc.abs(a)|tc.log(a * a)|(a * a) ** 0.5|tc.abs(a) ** 0.5|a ** -2|tc.logaddexp(a, -1 / (a * a))",
}
_BESIDE = ["a * 0.5", "tc.zeros_like(a)", "tc.sin(a)", "tc.cos(a) * {f0}"]
_NEGATIVE = ["tc.sqrt(-a)", "tc.log(1 - a)", "tc.log(-a - 0.0)", "(-a) ** 0.5", "-1 / a"]


def _masked(mask: str, f: str, g: str, x: str = "{f}") -> str:
    """A value of `tape_fuzz.masks.masked`; the mask is of the same value."""
    return f"masked({mask}, lambda a: {f}, lambda a: {g}, {x})"


MASKS: list[Op] = [
    *[Op(_masked(mask, f, g, "{f0}")) for mask, fs in _TAKEN.items() for f in fs.split("|") for g in _BESIDE],
    *[Op(_masked("{f} > 0", f, g, "{f0}"), (), 2) for f in _TAKEN["{f} > 0"].split("|")[:4] for g in _NEGATIVE[:2]],
    *[Op(_masked("{f} > 0", f"masked(a > 1, lambda a: tc.log(a - 1), lambda a: {f}, a)", g, "{f0}"), (), 2) for f in ("tc.sqrt(a)", "1 / a", "tc.log(a)") for g in _BESIDE[:2]],
    *[Op(f"tc.sum({_masked(mask, f, 'tc.zeros_like(a)', '{f0}')}{how})", (), 2) for mask, fs in _TAKEN.items() for f in fs.split("|")[:2] for how in ("", ", axis=-1", " * {f}")],
    *[Op(f"tc.NAME({_masked('{f} > 0', f, 'a * 0.5', '{f0}')})".replace("NAME", name)) for name in ("tanh", "softmax", "logsumexp", "mean", "flip", "sqrt", "square") for f in ("tc.sqrt(a)", "tc.log(a)") if (name, f) != ("sqrt", "tc.log(a)")],
    Op(f"tc.cumulative_sum(tc.reshape({_masked('{f} > 0', 'tc.sqrt(a)', 'a * 0.5', '{f0}')}, (-1,)))"),
    Op("tc.vmap(lambda x: masked(x > 0, lambda a: tc.sqrt(a), lambda a: a * 0.5, x))({f})", (), 3),
    Op("tc.vmap(tc.grad(lambda x: tc.sum(masked(x > 0, lambda a: tc.log(a) * a, lambda a: a * a, x))))({f})", (), 3),
    Op("tc.checkpoint(lambda x: masked(x > 0, lambda a: tc.sqrt(a), lambda a: tc.sin(a), x))({f})", (), 3),
    Op("masked({f} > 0, tc.checkpoint(lambda a: tc.sqrt(a) * tc.log1p(a)), lambda a: a * 0.5, {f0})", (), 3),
    Op("masked({f} > 0, lambda a: tc.cond(tc.sum({g}) > 0, lambda: tc.sqrt(a), lambda: tc.log(a)), lambda a: a * 0.5, {f0})", (), 3),
    Op("tc.cond(tc.sum({g}) > 0, lambda: masked({f} > 0, lambda a: tc.sqrt(a), lambda a: a, {f0}), lambda: masked({f0} != 0, lambda a: 1 / a, lambda a: a, {f0}))", (), 3),
    Op("tc.scan(lambda h, x: (masked(x > 0, lambda a: tc.sqrt(a) * 0.5, lambda a: a * h, x), masked(h != 0, lambda a: 1 / a, lambda a: a, h)), {f}, tc.stack([{f0}] * {k}))[{j}]", (), 4),
    Op("masked({f} > 0, lambda a: tc.scan(lambda h, x: (h * 0.5 + tc.sqrt(x), h), a, tc.stack([a] * {k}))[0], lambda a: a, {f0})", (), 3),
    Op("tc.map(lambda r: masked(r > 0, lambda a: tc.log(a), lambda a: a, r), {f})", (), 2),
    Op("tc.grad(lambda x: tc.sum(masked(x > 0, lambda a: a ** 1.5, lambda a: a * a, x)))({f})", (), 3),
    Op("tc.jvp(lambda x: masked(x > 0, lambda a: tc.sqrt(a), lambda a: a, x), ({f},), ({f} * 0 + 0.5,))[1]"),
    Op("masked({f} > 0, lambda a: root(a), lambda a: a, {f0})", (), 3), Op("masked({f} > 0, lambda a: tc.log(a) * root(a), lambda a: tc.sin(root(-a)), {f0})", (), 3),
    Op("tc.where({f} > 0, {f}, {g}) * masked({f0} > 0, lambda a: tc.log(a), lambda a: a, {f0})", (), 2),
    Op("{out} = masked({f} > 0, lambda a: tc.sqrt(a), lambda a: a, {f0}) * 1.0\n{out}[..., :1] = 0.5", (), 2),
    Op("masked({f} > 0, lambda a: tc.sqrt(a), lambda a: a, {f0})[..., ::-1]", (), 2), Op("masked({f} > 0, lambda a: tc.sqrt(a)[..., ::-1][..., ::-1], lambda a: a, {f0})", (), 3),
    Op("masked({f} > 0, lambda a: tc.reshape(tc.stack([tc.log(a), tc.sqrt(a)])[{j}], a.shape), lambda a: a, {f0})", (), 3),
    Op("tc.relu({f})", (), 6), Op("tc.round({f})", (), 6), Op("tc.where({b}, {f}, 0.0)", (), 3), Op("{e}", (), 3), Op("{f} > {n}"), Op("({f} > 0) & (tc.abs({f0}) < 1)"), Op("{v} * {f}", (), 2), Op("tc.sum({d}, axis=-1)"), Op("{f} * {g}", (), 3),
]  # fmt: skip
"""Functions behind masks, at values beyond their domains and at zeros."""
