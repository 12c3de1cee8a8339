"""Random programs, as text: a grammar of statements, and the checks that a program must pass.

A program is drawn statement by statement, and each is run as it is drawn: one that raises, or gives numbers that are too
large to compare anything by, is left out. So an op is one line of `OPS`; of its arguments the table says the kind alone.
What is checked is the text of a script, and a failure prints it: what is read is what was run.
"""

# ruff: noqa: E501 - an op is one line
from __future__ import annotations

import math
import re
import textwrap
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
import tape_core as tc
import tape_nn as nn
from hypothesis import strategies as st

from tape_fuzz.calls import OTHER_CALLS, calls
from tape_fuzz.masks import masked, root


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

_OPTIMIZERS = [
    "nn.SGD(0.1, momentum=0.9)", "nn.Adam(0.05)", "nn.AdamW(0.05, weight_decay=0.1)", "nn.RMSprop(0.05)", "nn.GradientAccumulation(nn.Adam(0.05), 2)",
    "nn.GradientAccumulation(nn.SGD(0.1, momentum=0.5), 3)", "nn.Adam(0.05, groups=[nn.ParameterGroup(lambda v: v.name == 'v0', learning_rate=0.2)])",
    "nn.Adam(nn.schedules.ExponentialDecay(0.1, 2, 0.5))", "nn.Adam(0.05, clipnorm=0.5)", "nn.LossScaler(nn.SGD(0.1))",
    "nn.LossScaler(nn.GradientAccumulation(nn.SGD(0.1, momentum=0.5), 2), 8.0, growth_interval=1)",
]  # fmt: skip
_TRANSFORMATIONS = ["sgd(0.1, momentum=0.9)", "adam(0.1)", "adamw(0.1)", "scale_by_rms()", "trace(0.9, nesterov=True)"]

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

_SMALL = [(3,), (2, 3), (), (3, 3), (1, 3), (4,), (2, 1, 3), (0,), (2, 0), (1,)]
_DIVISIBLE = [(4,), (6, 4), (4, 1), (4, 2, 3), (8, 3), (3, 4), (), (2, 0), (5, 2)]
_LARGE = [(5000,), (4096,), (20_000,), (70, 300), (300, 70), (100_000,), (4, 2500), (300_000,)]
_NUMBERS = ["2", "3", "-2", "0.5", "-0.5", "2.0", "1.5", "-1", "0.25", "3.0", "-1.5", "1", "0"]
_BINARY = ["+", "-", "*", "+", "-", "*", "/"]
_HOLE = re.compile(r"\{(\w+)\}")
_LARGEST = 1e4  # of a value: what is larger says little about others
_MOST = 700_000  # elements


@dataclass
class Program:
    """A program: `text` is a script that defines `inputs(seed)` and `made()`, which gives a function and its Variables.

    `calls` are further lines of it, for a check of several calls.
    """

    inputs: list[tuple[tuple[int, ...], str]]
    variables: list[tuple[tuple[int, ...], str]]
    lines: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    is_not: set[str] = field(default_factory=set)
    optimizers: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The script."""
        given = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        body = "\n".join(self.lines)
        made = [f"    v{k} = tc.Variable({_drawn(*v)}, name='v{k}')" for k, v in enumerate(self.variables)]
        if self.optimizers:
            made += [f"    o{k} = {text}" for k, text in enumerate(self.optimizers)]
            named = ", ".join([f"'v{k}': v{k}" for k in range(len(self.variables))])
            made += [f"    m0 = nn.ExponentialMovingAverage({{{named}}}, decay=0.5)"]
        return "\n".join(
            [
                "import numpy as np",
                "import tape_core as tc",
                *(["import tape_nn as nn"] if self.optimizers else []),
                *(["from tape_fuzz.masks import masked, root"] if "masked(" in body else []),
                "",
                "def inputs(seed):",
                "    rng = np.random.default_rng(seed)",
                f"    return [{', '.join([_drawn(*x) for x in self.inputs])}]",
                "",
                "def made():",
                "    rng = np.random.default_rng(0)",
                *made,
                f"    h0 = np.asarray(rng.normal(size={self.inputs[0][0]}))",
                *(["    r0 = tc.default_rng(3)"] if "r0." in body else []),
                f"    def program({given}):",
                textwrap.indent(body, " " * 8),
                f"        return [{', '.join(self.results)}]",
                f"    return program, [{', '.join([f'v{k}' for k in range(len(self.variables))])}]",
                "",
                *self.calls,
            ]
        )


def _drawn(shape: tuple[int, ...], dtype: str) -> str:
    if dtype.startswith("complex"):
        return f"tc.asarray((rng.normal(size={shape}) + 1j * rng.normal(size={shape})).astype({dtype!r}))"
    if dtype.startswith("int"):
        return f"tc.asarray(np.asarray(rng.integers(-5, 6, size={shape}), dtype={dtype!r}))"
    if dtype == "bfloat16":  # which NumPy does not know by name
        return f"tc.asarray(rng.normal(size={shape}), dtype={dtype!r})"
    return f"tc.asarray(np.asarray(rng.normal(size={shape}), dtype={dtype!r}))"


class _Run:
    """A program as it is drawn, with the values that it has so far."""

    def __init__(self, draw: Any, program: Program, ops: list[Op]) -> None:
        self.draw = draw
        self.ops = ops
        self.program = program
        self.names: dict[str, Any] = {}
        tc.set_seed(0)  # the values decide what is drawn next: hypothesis must find the same when it draws again
        exec(program.text, self.names)
        # What a statement may do with a random number must not differ when Hypothesis draws the program again.
        self.names["tc"].set_seed(0)
        self.values: dict[str, Any] = {f"x{k}": x for k, x in enumerate(self.names["inputs"](1))}
        _, variables = self.names["made"]()
        self.variables = {f"v{k}": v for k, v in enumerate(variables)}
        # Others than those of `made`, which the program cannot tell from outside; they are as fresh.
        self.training = {f"o{k}": eval(text, {"nn": nn}) for k, text in enumerate(program.optimizers)}
        if program.optimizers:
            self.training["m0"] = nn.ExponentialMovingAverage(self.variables, decay=0.5)
        self.generator = tc.default_rng(2)
        self.host = np.asarray(np.random.default_rng(2).normal(size=program.inputs[0][0]))

    def choice(self, of: list[Any]) -> Any:
        return of[self.draw(st.integers(0, len(of) - 1))] if len(of) > 1 else of[0]

    def value(self, kind: str, like: str | None) -> str | None:
        """The name of a value of this kind; later ones above all."""
        found = [name for name, x in [*self.variables.items(), *self.values.items()] if _is(x, kind)]
        if like is not None:
            shape = self._of(like).shape
            found = [name for name in found if self._of(name).shape in (shape, ())] or found
        if not found:
            return None
        back = self.draw(st.integers(0, 2 * len(found)))
        return found[-1 - back % len(found)] if back < 2 * len(found) else found[-1]

    def _of(self, name: str) -> Any:
        return self.variables[name] if name in self.variables else self.values[name]

    def expression(self, like: str | None, depth: int) -> str | None:
        """Operators in operators, on real values, with all parentheses."""
        kind = self.draw(st.integers(0, 9)) if depth else 0
        if kind <= 1:
            return self.value("f", like)
        a = self.expression(like, depth - 1)
        if a is None:
            return None
        if kind == 2:
            return f"(-{a})"
        if kind == 3:
            return f"(({a} * {a} + 0.5) ** {self.choice(_NUMBERS)})"
        if kind == 4:
            return f"({a} ** {self.choice(['2', '3', '2.0'])})"
        if kind == 5:
            return f"({self.choice(_NUMBERS)} {self.choice(_BINARY[:6])} {a})"
        if kind == 6:
            return f"({a} {self.choice(_BINARY[:6])} {self.choice(_NUMBERS)})"
        b = self.expression(like, depth - 1)
        symbol = self.choice(_BINARY)
        return f"({a} / ({b} * {b} + 0.5))" if symbol == "/" else f"({a} {symbol} {b})"

    def filled(self, text: str, out: str) -> str | None:
        """Statements of the grammar with names in their holes."""
        found: dict[str, str] = {"out": out}
        parts: list[str] = []
        at = 0
        for hole in _HOLE.finditer(text):
            name = hole[1]
            given: str | None
            if name == "out":
                given = out
            elif name.endswith("0"):
                given = found.get(name[0])
            elif name == "n":
                given = self.choice(_NUMBERS)
            elif name == "k":
                given = str(self.draw(st.integers(1, 3)))
            elif name == "j":
                given = str(self.draw(st.integers(0, 1)))
            elif name == "h":
                given = self.choice(["h0", "h0", "np.float64(0.75)", "np.float32(-0.5)", "np.asarray([0.5])"])
            elif name == "o":
                given = self.choice([o for o in self.training if o.startswith("o")])
            elif name == "t":
                given = self.choice(_TRANSFORMATIONS)
            elif name == "e":
                given = self.expression(found.get("f"), 3)
            elif name == "v":
                given = found.get("v") or self.value("v", None)
            elif name == "w":
                given = self.value("v", None)
            elif name == "g":
                given = self.value("f", found.get("f"))
            elif name == "p":
                given = self.value("f", found.get("f"))
                given = given and f"({given} * {given} + 0.5)"
            else:
                given = self.value(name, found.get(name))
                if name == "F" and name in found:
                    given = found[name]
            if given is None:
                return None
            if name not in ("p", "e", "g", "h"):
                found.setdefault(name, given)
            parts += [text[at : hole.start()], given]
            at = hole.end()
        return "".join([*parts, text[at:]])

    def _is_huge(self, text: str) -> bool:
        """Whether two of the values in it would be broadcast to something that takes all memory."""
        shapes = [self._of(name).shape for name in set(re.findall(r"\b[axv]\d+\b", text)) if name in self]
        return any(_size_of_both(a, b) > _MOST for a, b in combinations(shapes, 2))

    def __contains__(self, name: str) -> bool:
        return name in self.values or name in self.variables

    def statement(self) -> None:
        """Draw one, run it, and keep it where it says something."""
        op: Op = self.choice(self.ops)
        out = f"a{len(self.values)}"
        text = self.filled(op.text, out)
        if text is None or text.isidentifier() or self._is_huge(text):
            return
        if "{out}" not in op.text:
            text = f"{out} = {text}"
        held = {name: v.value for name, v in self.variables.items()}
        try:
            own = {"h0": self.host, "r0": self.generator}
            names = {
                "tc": tc,
                "np": np,
                "nn": nn,
                "masked": masked,
                "root": root,
                **self.training,
                **own,
                **self.variables,
                **self.values,
            }
            exec(text, names)
            found = names[out]
            if (
                not isinstance(found, tc.Tensor)
                or isinstance(found, tc.Variable)
                or found.size > _MOST
                or not _is_moderate(found)
            ):
                raise ValueError
            if any(not _is_moderate(v) for v in self.variables.values()):
                raise ValueError
        except Exception:  # noqa: BLE001 - whatever it is, a program has something else there
            for name, v in self.variables.items():
                v.assign(held[name])
            return
        self.values[out] = found
        self.program.lines.append(text)
        self.program.is_not.update(op.is_not)


def _size_of_both(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    try:
        return math.prod(np.broadcast_shapes(a, b))
    except ValueError:
        return 0


def _is(x: Any, kind: str) -> bool:
    is_variable = isinstance(x, tc.Variable)
    if kind == "v":
        return is_variable
    if kind == "F":
        return tc.isdtype(x.dtype, "real floating") and x.ndim >= 2 and 0 < x.size <= 64
    if kind == "d":
        return tc.isdtype(x.dtype, "real floating") and x.ndim > 0
    return tc.isdtype(x.dtype, {"f": "real floating", "i": "integral", "b": "bool", "c": "complex floating"}[kind])


def _is_moderate(x: Any) -> bool:
    array = x.numpy()
    return not array.size or bool(np.all(np.abs(array.astype(complex)) < _LARGEST))


@dataclass(frozen=True)
class Kind:
    """What programs of a kind are made of, and how often each check is made of them.

    Attributes:
        ops: the grammar.
        checks: names of checks, one of which is made.
        sizes: how often shapes are large, of twelve programs.
        variables: the smallest and the largest number of Variables.
        statements: the largest number of statements, of small and of large shapes.
        trains: whether programs have optimizers, and an average of their Variables.
        shapes: the small ones, of which a second input may have one of the first four.
        calls: how many calls differ from the first one, at most, in checks of calls.
    """

    ops: list[Op]
    checks: list[str]
    sizes: int
    variables: tuple[int, int] = (0, 3)
    statements: tuple[int, int] = (40, 16)
    trains: bool = False
    shapes: list[tuple[int, ...]] = field(default_factory=lambda: _SMALL)
    calls: int = 0


_FLOATS = ["float32", "float64", *(["bfloat16"] if find_spec("ml_dtypes") is not None else [])]
_BITS = ("compiled", "compiled gradient", "compiled in a tape", "compiled by others")
"""The checks that compare bits: they can be made in any precision."""


@st.composite
def programs(draw: Any, kind: str = "mixed") -> tuple[Program, str]:
    """A program of a kind, and which check it is for; it is made of nothing that the check cannot be made of."""
    how = KINDS[kind]
    check = how.checks[draw(st.integers(0, len(how.checks) - 1))]
    dtype = "float64" if CHECKED[check].is_exact else draw(st.sampled_from(_FLOATS if check in _BITS else _FLOATS[:2]))
    is_large = not CHECKED[check].is_small and draw(st.integers(0, 11)) < how.sizes
    shapes = _LARGE if is_large else how.shapes
    shape = shapes[draw(st.integers(0, len(shapes) - 1))]
    inputs = [(shape, dtype)]
    for _ in range(draw(st.integers(0, 2))):
        other = draw(st.sampled_from([dtype, dtype, "int64", "complex128" if dtype == "float64" else "complex64"]))
        inputs.append((shape if is_large or draw(st.booleans()) else draw(st.sampled_from(how.shapes[:4])), other))
    variables = [(shape, dtype) for _ in range(draw(st.integers(*how.variables)))]
    optimizers = draw(st.lists(st.sampled_from(_OPTIMIZERS), min_size=1, max_size=2)) if how.trains else []
    run = _Run(draw, Program(inputs, variables, optimizers=optimizers), _allowed(kind, check))
    program = run.program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(draw(st.integers(2, how.statements[is_large]))):
            run.statement()
    made = [name for name in run.values if name.startswith("a")]
    if made:
        program.results = [made[-1]] + [name for name in made[:-1] if draw(st.integers(0, 3)) == 0]
    else:
        program.results = ["x0"]
    if how.calls:
        program.calls = draw(calls(how.calls))
    return program, check


@cache
def _allowed(kind: str, check: str) -> list[Op]:
    """The ops of a kind that a check can be made of, each as often as it weighs."""
    needs = {*CHECKED[check].needs}
    # Where no check needs it, PyTorch or JAX need not be installed.
    elsewhere = [import_module(f"tape_fuzz.in_{name}") for name in sorted(needs & {"torch", "jax"})]
    if elsewhere:
        needs.add("torch")
    found = [
        op for op in KINDS[kind].ops if not needs & {*op.is_not} and all(other.has(op.text) for other in elsewhere)
    ]
    return [op for op in found for _ in range(op.weight)]


# -- checks


@dataclass(frozen=True)
class Check:
    """A script that follows the program's.

    Attributes:
        text: it raises where the program breaks a promise.
        needs: what a program must be for it; see `Op.is_not`. With "torch" or "jax" it is made of what that framework has.
        is_exact: whether inputs are float64; is_small: whether they are small.
    """

    text: str
    needs: tuple[str, ...] = ()
    is_exact: bool = False
    is_small: bool = False


COMMON = """
import warnings
warnings.simplefilter("ignore")

def arrays(found):
    return [x if x is None else np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in found]

def run(function, given):
    try:
        return arrays(function(*given))
    except (ValueError, IndexError) as error:
        if "Tape" in str(error):
            raise
        return None  # it refuses values: so it must in every way

def same(found, expected, what):
    assert (found is None) == (expected is None), f"{what}: refused in one way alone"
    if found is None:
        return
    assert len(found) == len(expected), f"{what}: {len(found)} results, not {len(expected)}"
    for k, (a, b) in enumerate(zip(found, expected)):
        if a is None or b is None:  # a branch that is not taken gives zeros where it is compiled
            assert (a is None or not np.any(a)) and (b is None or not np.any(b)), f"{what}: result {k} is {a}, not {b}"
        else:
            assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: result {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            if a.tobytes() != b.tobytes() and a.dtype.kind in "fcV":
                a, b = np.where(np.isnan(a), np.nan, a), np.where(np.isnan(b), np.nan, b)
            assert a.tobytes() == b.tobytes(), f"{what}: result {k} differs: {a.ravel()[a.ravel() != b.ravel()][:3]}, not {b.ravel()[a.ravel() != b.ravel()][:3]}"

def close(found, expected, what, rtol):
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a is None or b is None:
            assert (a is None or not np.any(a)) and (b is None or not np.any(b)), f"{what}: result {k} is {a}, not {b}"
            continue
        assert a.shape == b.shape, f"{what}: result {k} has shape {a.shape}, not {b.shape}"
        if a.size and np.all(np.isfinite(b)) and np.max(np.abs(b)) < 1e6:
            scale = 1 + np.max(np.abs(b))
            if a.dtype.itemsize // (1 + (a.dtype.kind == "c")) < 8 or b.dtype.itemsize // (1 + (b.dtype.kind == "c")) < 8:
                scale = scale * 1e6
            assert np.max(np.abs(a.astype(complex) - b)) <= rtol * scale, f"{what}: result {k}: {a.ravel()[:3]}, not {b.ravel()[:3]}"

def is_real(x):
    return tc.isdtype(x.dtype, "real floating")

def total(found):
    parts = [tc.mean(tc.sin(x)) for x in found if is_real(x) and x.size]
    return sum(parts[1:], parts[0]) if parts else None

def derived(program, variables):
    def f(*given):
        sources = [x for x in given if is_real(x)] + variables
        with tc.GradientTape() as tape:
            tape.watch([x for x in given if is_real(x)])
            found = program(*given)
            loss = total(found)
        return [*found, *(tape.gradient(loss, sources) if loss is not None else [])]
    return f

def alike(eager, ours, compiled, theirs, what):
    for call in (1, 2, 3):
        tc.set_seed(call); expected = run(eager, inputs(call))
        tc.set_seed(call); found = run(compiled, inputs(call))
        same(found, expected, f"{what}, call {call}")
        if found is None:
            break
        same(arrays(theirs), arrays(ours), f"Variables after call {call}")

def of_real(program, given):
    # Which inputs are real, and a loss of those, to which all of them are connected.
    real = [k for k, x in enumerate(given) if is_real(x)]
    def loss(*moved):
        full = list(given)
        for k, x in zip(real, moved):
            full[k] = x
        return total(program(*full)) + 0.0 * sum(tc.sum(x * x) for x in moved)
    return real, loss

"""

_BY_TORCH = """
with tc.use_backend("torch"):
    tc_asarray, tc.asarray = tc.asarray, lambda x, **how: tc_asarray(x, **{"backend": "torch", **how})
    try:
        eager, ours = made()
        traced, theirs = made()
        f, compiled = derived(eager, ours), tc.function(derived(traced, theirs), compile=COMPILER)
        for call in (1, 2, 3):
            expected = run(f, inputs(call))
            try:
                found = arrays(compiled(*inputs(call)))
            except (ValueError, IndexError) as error:
                if expected is not None and "compile=" not in str(error):
                    raise
                break  # it is not for what the program does
            except RuntimeError as error:
                if "inside PyTorch's compiler" not in str(error):  # such as results that are not the program's
                    raise
                break
            if expected is None:
                break
            close(found, expected, "compiled by COMPILER", 1e-8)
            close(arrays(theirs), arrays(ours), "Variables", 1e-8)
    finally:
        tc.asarray = tc_asarray
"""

_BY_XLA = """
from tape_core.backends.discovery import is_installed
for name in [name for name in ("numpy", "torch", "jax") if is_installed(name)]:
    with tc.use_backend(name):
        eager, ours = made()
        traced, theirs = made()
        f, compiled = derived(eager, ours), tc.function(derived(traced, theirs), compile="xla")
        tc.set_seed(1)
        for call in (1, 2, 3):
            before = tc.random.get_state()
            expected = run(f, inputs(call))
            if expected is None:  # XLA checks no values
                break
            after = tc.random.get_state()
            tc.random.set_state(before)
            rtol = 1e-5 if after == before else 1e-3  # draws are float32, of which derivatives multiply the rounding
            close(arrays(compiled(*inputs(call))), expected, f"compiled by XLA on {name}, call {call}", rtol)
            if call != 2:  # XLA keeps values that nobody reads from call to call
                close(arrays(theirs), arrays(ours), f"Variables on {name} after call {call}", rtol)
            assert tc.random.get_state() == after, f"on {name} call {call} has drawn as far as {tc.random.get_state()}, not {after}"
"""

_ELSEWHERE = """
from tape_fuzz import in_FRAMEWORK as elsewhere
with tc.use_backend("BACKEND"):
    program, variables = made()
    given = inputs(1)
    found = arrays(derived(program, [])(*given))
held = [elsewhere.asarray(v.numpy()) for v in variables]
tc_held, tc = tc, elsewhere.namespace()
tc.Variable = lambda x, name: held[int(name[1:])]
tc.asarray, asarray = lambda x: x, tc.asarray
other, _ = made()
tc.asarray = asarray
values, slopes = elsewhere.derived(other, [x.numpy() for x in given])
tc = tc_held
expected = arrays(values) + arrays(slopes if len(found) > len(values) else [])
close(found, expected, "FRAMEWORK's own derivatives", 1e-8)
"""

_DONATED = """
with tc.use_backend("jax"):
    tc_asarray, tc.asarray = tc.asarray, lambda x, **how: tc_asarray(x, **{"backend": "jax", **how})
    try:
        eager, ours = made()
        traced, theirs = made()
        compiled = tc.function(derived(traced, theirs), compile="xla", donate_variables=True, fallback="silent")
        f = derived(eager, ours)
        for call in (1, 2, 3, 4):
            expected = run(f, inputs(call))
            found = run(compiled, inputs(call))
            if expected is None or found is None:
                break
            close(found, expected, "compiled by XLA", 1e-8)
            close(arrays(theirs), arrays(ours), "Variables", 1e-8)
    finally:
        tc.asarray = tc_asarray
"""

_MASKED = """
from tape_fuzz.masks import guarded
program, variables = made()
given = inputs(1)
real, loss = of_real(program, given)
sources = [given[k] for k in real]
ways, every = [tc.cos(x * 3.0) for x in sources], tuple(range(len(real)))
grad = tc.grad(loss, every)
def forward(*xs):
    return [tc.jvp(loss, xs, ways)[1]]
def second(*xs):
    return tc.jvp(grad, xs, ways)[1]
def back(*xs):
    return tc.grad(lambda *xs: sum(tc.sum(tc.sin(g)) for g in grad(*xs)), every)(*xs)
def many(*xs):
    return tc.vmap(grad)(*[tc.stack([x, x * 0.5]) for x in xs])
def variable(*xs):
    with tc.GradientTape() as tape:
        y = loss(*xs)
    return tape.gradient(y, variables)
if total(program(*given)) is not None:
    for f in (grad, forward, second, back, many, *([variable] if variables else [])):
        with guarded():
            expected = arrays(f(*sources))
        if all(x is None or np.all(np.isfinite(x)) for x in expected):
            close(arrays(f(*sources)), expected, f.__name__, 1e-8)
            compiled = tc.function(f, compile=COMPILER)
            for call in (1, 2):
                close(arrays(compiled(*sources)), expected, f"{f.__name__} compiled by COMPILER, call {call}", 1e-8)
"""

CHECKED: dict[str, Check] = {
    "compiled": Check('''
eager, ours = made()
traced, theirs = made()
alike(eager, ours, tc.function(traced), theirs, "results")
'''),
    "compiled gradient": Check('''
eager, ours = made()
traced, theirs = made()
alike(derived(eager, ours), ours, tc.function(derived(traced, theirs)), theirs, "gradients")
''', ("derived",)),
    "compiled in a tape": Check('''
eager, ours = made()
traced, theirs = made()
alike(derived(eager, ours), ours, derived(tc.function(traced), theirs), theirs, "gradients through the compiled function")
'''),
    "compiled by others": Check('''
from tape_fuzz.compilers import CallByCall
for compiler in ("python", CallByCall(), CallByCall(fuses=False)):
    eager, ours = made()
    traced, theirs = made()
    alike(derived(eager, ours), ours, tc.function(derived(traced, theirs), compile=compiler), theirs, f"compiled by {compiler}")
''', ("derived",)),
    "exported": Check('''
import inspect, os, re, tempfile
traced, variables = made()
compiled = tc.function(traced)
if run(compiled, inputs(1)) is not None:
    with tempfile.TemporaryDirectory() as folder:
        compiled.export(os.path.join(folder, "alone.py"))
        alone = {"__file__": os.path.join(folder, "alone.py")}
        exec(compile(open(os.path.join(folder, "alone.py"), encoding="utf-8").read(), "alone.py", "exec"), alone)
    for call in (1, 2):
        given, held = inputs(call), {v.name: v for v in variables}
        names = list(inspect.signature(alone["program"]).parameters)[len(given):]
        # What the compiled function has, NumPy's scalars among it: of those some processors round powers in another way.
        copies = [x._array.copy() for x in [*given, *[held[name].value for name in names]]]
        found = run(alone["program"], copies)
        expected = run(compiled, given)
        if found is None and expected is None:
            break
        expected += [held[name].numpy() for name in re.findall(r"the new value of (v\\d+)", alone["program"].__doc__)]
        same(found, expected, f"exported, call {call}")
''', ("seeded", "exported")),
    "finite differences": Check('''
program, variables = made()
f = derived(program, variables)
given = inputs(1)
real, loss = of_real(program, given)
rng = np.random.default_rng(5)
ways = {k: rng.normal(size=given[k].shape) for k in real}
def at(h):
    moved = [tc.asarray(np.asarray(x.numpy() + h * ways[k])) if k in ways else x for k, x in enumerate(given)]
    loss = total(program(*moved))
    return None if loss is None else float(loss.numpy())
found = arrays(f(*given))[len(program(*given)):]
if found:
    slope = [0.0 if g is None else float(np.sum(g * ways[k])) for k, g in zip(real, found)]
    rates = [(8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h) for h in (1e-3, 5e-4)]
    scale = 1 + sum(0.0 if g is None else float(np.sum(np.abs(g * ways[k]))) for k, g in zip(real, found))
    if np.isfinite(sum(slope)) and abs(rates[0] - rates[1]) < 1e-6 * scale:
        assert abs(sum(slope) - rates[1]) < 1e-5 * scale + 50 * abs(rates[0] - rates[1]), f"gradient {sum(slope)}, finite differences {rates[1]}"
    sources = [given[k] for k in real]
    if hasattr(tc, "jvp"):
        _, forward = tc.jvp(loss, sources, [tc.asarray(np.asarray(ways[k])) for k in real])
        if np.isfinite(sum(slope)):
            assert abs(float(forward.numpy()) - sum(slope)) < 1e-8 * scale, f"forward {float(forward.numpy())}, backward {sum(slope)}"
''', ("smooth", "continuous", "pure", "seeded"), True, True),
    "second derivatives": Check('''
program, variables = made()
given = inputs(1)
real, loss = of_real(program, given)
rng = np.random.default_rng(5)
a = [tc.asarray(np.asarray(rng.normal(size=given[k].shape))) for k in real]
b = [tc.asarray(np.asarray(rng.normal(size=given[k].shape))) for k in real]
if total(program(*given)) is not None:
    sources = [given[k] for k in real]
    def along(way):
        return arrays(tc.hvp(loss, sources, way))
    def inner(xs, ys):
        return sum(float(np.sum(x * y.numpy())) for x, y in zip(xs, ys))
    one, other = along(a), along(b)
    scale = 1 + sum(float(np.sum(np.abs(x))) for x in one + other)
    if np.isfinite(scale) and scale < 1e5:
        assert abs(inner(one, b) - inner(other, a)) < 1e-7 * scale, f"second derivatives are not symmetric: {inner(one, b)}, {inner(other, a)}"
        def slope(h):
            moved = [tc.asarray(np.asarray(x.numpy() + h * y.numpy())) for x, y in zip(sources, a)]
            with tc.GradientTape() as tape:
                tape.watch(moved)
                y = loss(*moved)
            return inner(arrays(tape.gradient(y, moved)), b)
        rates = [(8 * (slope(h) - slope(-h)) - (slope(2 * h) - slope(-2 * h))) / (12 * h) for h in (1e-3, 5e-4)]
        if abs(rates[0] - rates[1]) < 1e-6 * scale:
            assert abs(inner(one, b) - rates[1]) < 1e-5 * scale + 50 * abs(rates[0] - rates[1]), f"second derivative {inner(one, b)}, finite differences {rates[1]}"
''', ("smooth", "continuous", "pure", "seeded"), True, True),
    "vmap": Check('''
program, variables = made()
batches = [inputs(seed) for seed in (1, 2, 3)]
stacked = [tc.asarray(np.stack([x.numpy() for x in each])) for each in zip(*batches)]
expected = [np.stack(each) for each in zip(*[arrays(program(*each)) for each in batches])]
close(arrays(tc.vmap(lambda *given: program(*given))(*stacked)), expected, "vmap", 1e-9)
compiled = tc.function(tc.vmap(lambda *given: program(*given)))
for call in (1, 2):
    close(arrays(compiled(*stacked)), expected, f"compiled vmap, call {call}", 1e-9)
''', ("continuous", "pure", "seeded"), True, True),
    "compiled second derivatives": Check('''
program, variables = made()
def found_by(*given):
    real, loss = of_real(program, given)
    sources = [given[k] for k in real]
    ways = [tc.cos(x * 3.0) for x in sources]
    every = tuple(range(len(real)))
    grad = tc.grad(loss, every)
    _, forward = tc.jvp(grad, tuple(sources), tuple(ways))
    many = tc.vmap(grad)(*[tc.stack([x, y]) for x, y in zip(sources, ways)])
    return [*forward, *many, *tc.grad(lambda *xs: sum(tc.sum(tc.sin(g)) for g in grad(*xs)), every)(*sources)]
if total(program(*inputs(1))) is not None:
    compiled = tc.function(found_by)
    for call in (1, 2):
        same(arrays(compiled(*inputs(call))), arrays(found_by(*inputs(call))), f"second derivatives, call {call}")
''', ("continuous", "pure", "seeded"), True, True),
    "autograd": Check(_ELSEWHERE.replace("FRAMEWORK", "torch").replace("BACKEND", "numpy"),
                      ("smooth", "continuous", "pure", "seeded", "torch"), True, True),
    "torch": Check('''
program, variables = made()
expected = arrays(derived(program, variables)(*inputs(1)))
with tc.use_backend("torch"):
    tc_asarray, tc.asarray = tc.asarray, lambda x, **how: tc_asarray(x, **{"backend": "torch", **how})
    try:
        other, theirs = made()
        f = derived(other, theirs)
        found = arrays(f(*inputs(1)))
        close(found, expected, "torch", 1e-8)
        again, others = made()
        compiled = tc.function(derived(again, others))
        for call in (1, 2, 3):
            expected = arrays(f(*inputs(call))) if call > 1 else found
            same(arrays(compiled(*inputs(call))), expected, f"compiled on torch, call {call}")
    finally:
        tc.asarray = tc_asarray
''', ("smooth", "continuous", "seeded"), True),
    "host data": Check('''
for name in ("numpy", "torch"):
    with tc.use_backend(name):
        program, variables = made()
        given = inputs(1)
        assert all(x.backend.name == name for x in given + variables)
        real, loss = of_real(program, given)
        sources, ways = [given[k] for k in real], [tc.cos(given[k] * 3.0) for k in real]
        grad = tc.grad(loss, tuple(range(len(real))))
        ways_of_calling = {"the compiled function": (tc.function(program), given), "vmap": (tc.vmap(program), [tc.stack([x, x]) for x in given])}
        if total(program(*given)) is not None:
            ways_of_calling |= {
                "grad": (grad, sources), "the compiled gradient": (tc.function(grad), sources), "jvp": (lambda *xs: tc.jvp(loss, xs[:len(real)], xs[len(real):]), sources + ways),
                "the compiled vmap of grad": (tc.function(tc.vmap(grad)), [tc.stack([x, y]) for x, y in zip(sources, ways)]),
                "hvp": (lambda *xs: tc.hvp(loss, xs[:len(real)], xs[len(real):]), sources + ways),
            }
        for what, (f, tensors) in ways_of_calling.items():
            expected = f(*tensors)
            found = f(*[x.numpy() for x in tensors])
            assert all(x.backend.name == name for x in found), f"{what} on {name}: not there"
            same(arrays(found), arrays(expected), f"{what} on {name}")
''', ("continuous", "pure", "seeded"), True, True),
    "JAX": Check(_ELSEWHERE.replace("FRAMEWORK", "jax").replace("BACKEND", "jax") + """
with tc.use_backend("jax"):
    compiled = tc.function(derived(made()[0], []), compile="xla")
    for call in (1, 2):
        close(arrays(compiled(*given)), expected, f"compiled by XLA, call {call}: JAX's own derivatives", 1e-8)
""", ("smooth", "continuous", "pure", "seeded", "jax"), True, True),
    "compiled by XLA": Check(_BY_XLA, ("smooth", "continuous", "derived"), True, True),
    "compiled by XLA, whole": Check(_BY_XLA, ("continuous", "derived"), True, True),
    "second derivatives by XLA": Check('''
from tape_core.backends.discovery import is_installed
program, variables = made()
given = inputs(1)
real, loss = of_real(program, given)
sources, ways = [given[k] for k in real], [tc.cos(given[k] * 3.0) for k in real]
grad = tc.grad(loss, tuple(range(len(real))))
def along(*xs):
    return tc.jvp(grad, xs[:len(real)], xs[len(real):])[1]
def back(*xs):
    return tc.grad(lambda *xs: sum(tc.sum(tc.sin(g)) for g in grad(*xs)), tuple(range(len(real))))(*xs[:len(real)])
if total(program(*given)) is not None:
    for what, f in (("forward over reverse", along), ("reverse over reverse", back), ("vmap", lambda *xs: tc.vmap(along)(*[tc.stack([x, x * 0.5]) for x in xs]))):
        compiled = tc.function(f, compile="xla")
        expected = arrays(f(*sources, *ways))
        for call in (1, 2):
            close(arrays(compiled(*sources, *ways)), expected, f"{what} by XLA, call {call}", 1e-7)
''', ("continuous", "pure", "seeded"), True, True),
    "compiled by PyTorch's tracer": Check("\nfrom tape_fuzz.compilers import TorchGraph\n" + _BY_TORCH.replace("COMPILER", "TorchGraph()"),
                                          ("smooth", "continuous", "seeded"), True, True),
    "masks": Check(_MASKED.replace("COMPILER", "'python'"), ("continuous", "seeded", "pure"), True, True),
    "masks by XLA": Check(_MASKED.replace("COMPILER", "'xla'"), ("continuous", "seeded", "pure"), True, True),
    "divided": Check("\nfrom tape_fuzz.divided import compare\ncompare(made, inputs)\n", ("smooth", "continuous", "seeded"), True, True),
    "divided with NaN": Check("\nfrom tape_fuzz.divided import compare\ncompare(made, inputs, has_nan=True)\n", (), True, True),
    "compiled by torch": Check(_BY_TORCH.replace("COMPILER", "'torch'"), ("smooth", "continuous", "seeded"), True, True),
    "other calls": Check("\ncompiler = 'python'\n" + OTHER_CALLS, ("derived",), False, True),
    "other calls by XLA": Check("\ncompiler = 'xla'\n" + OTHER_CALLS, ("smooth", "continuous", "derived"), True, True),
    "compiled by XLA, Variables donated": Check(_DONATED, ("smooth", "continuous", "seeded"), True, True),
}  # fmt: skip
"""The checks by name."""

_APART = {
    "masks",
    "masks by XLA",
    "JAX",
    "compiled by XLA",
    "compiled by XLA, whole",
    "second derivatives by XLA",
    "compiled by XLA, Variables donated",
    "other calls",
    "other calls by XLA",
    "compiled by torch",
    "divided",
    "divided with NaN",
}
"""Inductor and XLA take seconds for each program; the last needs processes."""
KINDS: dict[str, Kind] = {
    "mixed": Kind(OPS, ["compiled", "compiled gradient", "compiled", "compiled gradient", "autograd", "autograd", *sorted(CHECKED.keys() - _APART)], 3),
    "state": Kind(STATE, ["compiled", "compiled", "compiled", "compiled gradient", "compiled in a tape", "exported"], 10, (2, 4), (12, 12)),
    "training": Kind(TRAINING, ["compiled", "compiled", "compiled by others", "compiled gradient", "compiled in a tape", "torch"], 2, (2, 3), (8, 6), trains=True),
    "products": Kind(PRODUCTS, ["compiled second derivatives"] * 3 + ["autograd", "second derivatives", "vmap"], 0, (0, 1), (8, 8)),
    "inductor": Kind(OPS, ["compiled by torch"], 0, (0, 1), (12, 12)),
    "donated": Kind(STATE, ["compiled by XLA, Variables donated"], 0, (2, 4), (10, 8)),
    "xla": Kind(OPS, ["compiled by XLA"], 0, (0, 2), (10, 10)),
    "calls": Kind(OPS, ["other calls"], 0, (0, 2), (10, 10), calls=4),
    "calls by xla": Kind(OPS, ["other calls by XLA"], 0, (0, 2), (6, 6), calls=3),
    "shared by xla": Kind(SHARED, ["compiled by XLA, whole", "compiled by XLA, whole", "second derivatives by XLA"], 0, (0, 2), (6, 6)),
    "by jax": Kind(OPS, ["JAX"], 0, (0, 2), (10, 10)),
    "masks": Kind(MASKS, ["masks"], 0, (0, 1), (8, 8)),
    "masks by xla": Kind(MASKS, ["masks by XLA"], 0, (0, 1), (6, 6)),
    "draws": Kind(DRAWS, ["compiled", "compiled gradient", "compiled in a tape"], 2, (0, 2), (10, 10)),
    "draws by xla": Kind(DRAWS, ["compiled by XLA"], 0, (0, 2), (8, 8)),
    "divided": Kind(OPS, ["divided"], 0, (0, 2), (24, 12)),
    "extremes": Kind(EXTREMES, ["divided with NaN"], 0, (0, 1), (4, 4), shapes=_DIVISIBLE),
}  # fmt: skip
"""The kinds of programs."""


def script(program: Program, check: str) -> str:
    """A program with its check, as a script that raises where the promise is broken."""
    return program.text + COMMON + CHECKED[check].text


def check(drawn: tuple[Program, str]) -> None:
    """Run a program's script.

    Raises:
        AssertionError: with the script.
    """
    program, name = drawn
    text = script(program, name)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            exec(compile(text, "<a random program>", "exec"), {"__name__": "program"})
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}\n\n{text}") from error
