"""Names of NumPy, SciPy, PyTorch, JAX, TensorFlow and autograd, and what the same is here; for error messages.

Each table is of one namespace. A value is an expression that can be written in place of the name, with `tc` for
tape_core, `np` for NumPy and `x` for an array; or, in a `_SAID` table, a clause that says more.
"""

from __future__ import annotations

from typing import Final

CORE: Final = {
    # NumPy
    "absolute": "tc.abs", "amax": "tc.max", "amin": "tc.min", "arccos": "tc.acos", "arccosh": "tc.acosh",
    "arcsin": "tc.asin", "arcsinh": "tc.asinh", "arctan": "tc.atan", "arctan2": "tc.atan2", "arctanh": "tc.atanh",
    "argwhere": "tc.stack(tc.nonzero(x), axis=-1)", "around": "x.round(decimals)", "array": "tc.asarray",
    "asanyarray": "tc.asarray", "ascontiguousarray": "tc.asarray", "bitwise_not": "tc.bitwise_invert",
    "bool_": "tc.bool", "cbrt": "tc.special.cbrt", "cdouble": "tc.complex128",
    "concatenate": "tc.concat", "conjugate": "tc.conj", "copy": "x.copy()", "csingle": "tc.complex64",
    "cumprod": "tc.cumulative_prod", "cumsum": "tc.cumulative_sum", "deg2rad": "x * (tc.pi / 180)",
    "degrees": "x * (180 / tc.pi)", "divmod": "divmod(x, y)", "dot": "tc.matmul", "double": "tc.float64",
    "exp2": "tc.special.exp2", "fabs": "tc.abs", "fix": "tc.trunc", "float_": "tc.float64",
    "fmax": "tc.maximum", "fmin": "tc.minimum", "half": "tc.float16",
    "inner": "tc.vecdot", "int_": "tc.int64", "intc": "tc.int32", "intp": "tc.int64", "invert": "tc.bitwise_invert",
    "left_shift": "tc.bitwise_left_shift", "mod": "tc.remainder", "ndarray": "tc.Tensor", "ndim": "x.ndim",
    "power": "tc.pow", "product": "tc.prod", "ptp": "tc.max(x) - tc.min(x)", "rad2deg": "x * (180 / tc.pi)",
    "radians": "x * (tc.pi / 180)", "random_normal": "tc.default_rng(seed).normal(shape)", "ravel": "x.ravel()",
    "right_shift": "tc.bitwise_right_shift", "rint": "tc.round", "shape": "x.shape", "short": "tc.int16",
    "sinc": "tc.special.sinc", "single": "tc.float32", "size": "x.size", "swapaxes": "x.swapaxes(axis1, axis2)",
    "true_divide": "tc.divide", "unique": "tc.unique_values", "vdot": "tc.vecdot(x.ravel(), y.ravel())",
    "linalg_norm": "tc.linalg.vector_norm", "norm": "tc.linalg.vector_norm",
    # of a submodule here
    "cholesky": "tc.linalg.cholesky", "cross": "tc.linalg.cross", "det": "tc.linalg.det",
    "diag": "tc.linalg.diagonal", "diagonal": "tc.linalg.diagonal", "eig": "tc.linalg.eig", "eigh": "tc.linalg.eigh",
    "expm": "tc.linalg.expm", "inv": "tc.linalg.inv", "inverse": "tc.linalg.inv",
    "logdet": "tc.linalg.slogdet(x).logabsdet", "matrix_exp": "tc.linalg.expm",
    "matrix_power": "tc.linalg.matrix_power", "matrix_rank": "tc.linalg.matrix_rank",
    "multi_dot": "tc.linalg.multi_dot", "pinv": "tc.linalg.pinv", "pinverse": "tc.linalg.pinv", "qr": "tc.linalg.qr",
    "slogdet": "tc.linalg.slogdet", "solve": "tc.linalg.solve", "svd": "tc.linalg.svd", "trace": "tc.linalg.trace",
    "ifft": "tc.fft.ifft", "rfft": "tc.fft.rfft", "irfft": "tc.fft.irfft", "fft2": "tc.fft.fftn(x, axes=(-2, -1))",
    # PyTorch
    "addmm": "b + x @ w", "as_tensor": "tc.asarray", "baddbmm": "b + x @ w",
    "bmm": "tc.matmul", "broadcast_tensors": "tc.broadcast_arrays", "cat": "tc.concat", "chain_matmul":
    "tc.linalg.multi_dot", "cholesky_solve": "tc.linalg.cho_solve", "chunk": "tc.split", "clamp": "tc.clip",
    "clamp_max": "tc.minimum", "clamp_min": "tc.maximum", "clone": "x.copy()", "compile": "tc.function",
    "dist": "tc.linalg.vector_norm(x - y)", "eq": "tc.equal",
    "expand": "tc.broadcast_to", "flatten": "x.flatten()", "fliplr": "tc.flip(x, axis=1)", "flipud":
    "tc.flip(x, axis=0)", "float": "tc.float32", "fill": "tc.full", "from_numpy": "tc.asarray", "ge":
    "tc.greater_equal", "ger": "tc.outer", "gt": "tc.greater", "igamma": "tc.special.gammainc",
    "igammac": "tc.special.gammaincc", "int": "tc.int64", "index_add": "tc.at(x)[index].add(values)",
    "index_copy": "tc.at(x)[index].set(values)", "index_put": "tc.at(x)[index].set(values)",
    "index_select": "tc.take", "is_tensor": "isinstance(x, tc.Tensor)", "le": "tc.less_equal",
    "lerp": "x + weight * (y - x)", "lgamma": "tc.special.gammaln", "long": "tc.int64", "lt": "tc.less",
    "lu_solve": "tc.linalg.lu_solve", "manual_seed": "tc.set_seed", "masked_fill": "tc.where(mask, value, x)",
    "masked_select": "x[mask]", "mm": "tc.matmul", "movedim": "tc.moveaxis", "mul": "tc.multiply", "multinomial":
    "tc.default_rng(seed).categorical(logits)", "mv": "tc.matmul", "mvlgamma": "tc.special.multigammaln",
    "narrow": "x[start:stop]", "ne": "tc.not_equal", "neg": "tc.negative", "numel": "x.size",
    "permute": "tc.permute_dims", "rand": "tc.default_rng(seed).uniform(shape)",
    "rand_like": "tc.default_rng(seed).uniform(x.shape)", "randint": "tc.default_rng(seed).integers(low, high, shape)",
    "randn": "tc.default_rng(seed).normal(shape)", "randn_like": "tc.default_rng(seed).normal(x.shape)",
    "randperm": "tc.default_rng(seed).permutation(n)", "range": "tc.arange", "repeat_interleave": "tc.repeat",
    "rsqrt": "1 / tc.sqrt(x)", "scatter": "tc.at(x)[index].set(values)",
    "scatter_add": "tc.at(x)[index].add(values)", "seed": "tc.set_seed", "std_mean": "tc.std(x), tc.mean(x)",
    "sub": "tc.subtract", "swapdims": "x.swapaxes(axis1, axis2)", "t": "x.T", "take_along_dim":
    "tc.take_along_axis", "topk": "tc.top_k", "trapz": "tc.trapezoid", "unbind": "tc.unstack",
    "unsqueeze": "tc.expand_dims", "var_mean": "tc.var(x), tc.mean(x)", "vstack": "tc.concat", "hstack": "tc.concat",
    # JAX and autograd
    "Array": "tc.Tensor", "associative_scan": "tc.scan", "custom_vjp": "tc.custom_gradient",
    "device_get": "x.numpy()", "device_put": "x.to_device(device)", "elementwise_grad":
    "tc.grad(lambda x: tc.sum(f(x)))", "fori_loop": "tc.while_loop", "hessian_vector_product": "tc.hvp",
    "jacobian": "tc.jacrev", "jit": "tc.function", "make_hvp": "tc.hvp", "make_jvp": "tc.jvp", "make_vjp": "tc.vjp",
    "primitive": "tc.custom_gradient", "remat": "tc.checkpoint", "switch": "tc.cond", "tree_structure":
    "tc.tree_flatten", "vectorize": "tc.vmap",
    # TensorFlow
    "assign": "variable.assign(value)", "boolean_mask": "x[mask]", "cast": "tc.astype", "clip_by_value": "tc.clip",
    "constant": "tc.asarray", "convert_to_tensor": "tc.asarray", "hessians": "tc.hessian", "gather_nd": "x[indices]",
    "gradients": "tc.grad", "matvec": "tc.matmul", "rank": "x.ndim", "recompute_grad": "tc.checkpoint",
    "reduce_all": "tc.all", "reduce_any": "tc.any", "reduce_logsumexp": "tc.logsumexp", "reduce_max": "tc.max",
    "reduce_mean": "tc.mean", "reduce_min": "tc.min", "reduce_prod": "tc.prod", "reduce_std": "tc.std",
    "reduce_sum": "tc.sum", "reduce_variance": "tc.var", "reverse": "tc.flip", "scatter_nd":
    "tc.at(x)[indices].add(values)", "tensor_scatter_nd_add": "tc.at(x)[indices].add(values)",
    "tensor_scatter_nd_update": "tc.at(x)[indices].set(values)", "truediv": "tc.divide",
}  # fmt: skip

_NO_GRAD = (
    "nothing is recorded outside of a tape; within one, write `with tape.stop_recording():`, or tc.stop_gradient(x) "
    "for one value"
)
_LAYERS = (
    "layers, losses, optimizers and training loops are in the package tape_nn; functions such as relu, softmax and "
    "conv are in tape_core: tc.relu"
)
_PLACES = (
    "a device is named where arrays are made, tc.asarray(x, backend='torch', device='cuda:0'), or for all by "
    "tc.set_backend('torch', 'cuda:0')"
)

CORE_SAID: Final = {
    "FloatTensor": "write tc.asarray(values, dtype=tc.float32)",
    "Module": "it is tape_nn.Module",
    "data": "datasets are in the package tape_tf: tape_tf.data",
    "histogram": "write np.histogram(x.numpy())",
    "identity": "the identity matrix is tc.eye(n); TensorFlow's tf.identity(x) is x itself",
    "image": "it is tape_tf.image, of the package tape-tf",
    "io": "it is tape_tf.io, of the package tape-tf",
    "print": "write print(x)",
    "train": "training loops are in the package tape_nn: tape_nn.fit; TensorFlow's are in tape_tf.train",
    "append": "write tc.concat([x, y])",
    "autograd": "write `with tc.GradientTape() as tape:` and tape.gradient(y, x), or tc.grad(f)(x); the names of HIPS "
    "autograd are in the package tape-autograd: import tape_autograd",
    "backward": "write `with tc.GradientTape() as tape:` and tape.gradient(y, x)",
    "block_until_ready": "there is nothing to wait for: reading a value waits",
    "config": "see tc.set_default_dtype, tc.set_backend, and the environment variable TAPE_BACKEND",
    "cuda": _PLACES,
    "device": _PLACES,
    "devices": _PLACES,
    "debug": "GradientTape(debug=True) and GradientTape(check_numerics=True) say what happened where; print works",
    "detach": "write tc.stop_gradient(x)",
    "enable_grad": _NO_GRAD,
    "enable_x64": "float64 is always there: dtype=tc.float64, or tc.set_default_dtype(tc.float64) for all",
    "eval_shape": "tc.function(f).show() prints the traced program, with shapes",
    "func": "the transformations are in tape_core itself: tc.grad, tc.vmap, tc.jvp, tc.jacrev",
    "functional": _LAYERS,
    "get_default_device": _PLACES,
    "inference_mode": _NO_GRAD,
    "jax": "the transformations are in tape_core itself: tc.grad, tc.vmap, tc.function for jit",
    "keras": "it is tape_tf.keras, of the package tape-tf",
    "lax": "its functions are in tape_core itself: tc.scan, tc.cond, tc.while_loop, tc.map, tc.stop_gradient",
    "load": "see tape_nn.load_tensors, or numpy.load and tc.asarray",
    "make_jaxpr": "tc.function(f).show() prints the traced program",
    "math": "its functions are in tape_core itself, such as tc.log, and in tc.special",
    "nn": _LAYERS,
    "no_grad": _NO_GRAD,
    "no_gradient": _NO_GRAD,
    "numpy": "the functions of NumPy are in tape_core under the Array API's names, and NumPy's own take Tensors",
    "optim": "optimizers are in the package tape_nn, as tape_nn.Adam",
    "pmap": "there is tc.vmap, on one device",
    "pure_callback": "see tc.custom_gradient for what another library computes",
    "save": "see tape_nn.save_tensors, or numpy.save(path, x.numpy())",
    "set_grad_enabled": _NO_GRAD,
    "tensor": "it is tc.asarray here; for gradients a tape watches it, by tape.watch(x), or it is a tc.Variable",
    "tree": "see tc.tree_map, tc.tree_leaves, tc.tree_flatten, tc.tree_unflatten",
    "tree_util": "see tc.tree_map, tc.tree_leaves, tc.tree_flatten, tc.tree_unflatten, tc.register_pytree",
    "utils": "batches and training loops are in the package tape_nn: tape_nn.fit",
}

LINALG: Final = {
    "cho_factor": "tc.linalg.cholesky", "cholesky_inverse": "tc.linalg.cho_solve", "cholesky_solve":
    "tc.linalg.cho_solve", "dot": "tc.matmul", "einsum": "tc.einsum", "inner": "tc.vecdot", "inverse": "tc.linalg.inv",
    "logdet": "tc.linalg.slogdet(x).logabsdet", "lu": "tc.linalg.lu_factor", "matrix_exp": "tc.linalg.expm",
    "matvec": "tc.matmul", "norm": "tc.linalg.vector_norm(x), or of matrices tc.linalg.matrix_norm(x)",
    "triangular_solve": "tc.linalg.solve_triangular", "vdot": "tc.vecdot(x.ravel(), y.ravel())",
    "cond": "tc.linalg.matrix_norm(x, ord=2) * "
    "tc.linalg.matrix_norm(tc.linalg.inv(x), ord=2)",
    "lstsq": "tc.linalg.pinv(a) @ b",
}  # fmt: skip

FFT: Final = {
    "fft2": "tc.fft.fftn(x, axes=(-2, -1))",
    "ifft2": "tc.fft.ifftn(x, axes=(-2, -1))",
    "irfft2": "tc.fft.irfftn(x, axes=(-2, -1))",
    "rfft2": "tc.fft.rfftn(x, axes=(-2, -1))",
}

SPECIAL: Final = {
    "erf_inv": "tc.special.erfinv", "igamma": "tc.special.gammainc", "igammac": "tc.special.gammaincc",
    "lbeta": "tc.special.betaln", "lgamma": "tc.special.gammaln", "logsigmoid": "tc.log_sigmoid",
    "modified_bessel_i0": "tc.special.i0", "modified_bessel_i1": "tc.special.i1",
    "mvlgamma": "tc.special.multigammaln", "sigmoid": "tc.special.expit",
}  # fmt: skip

SCIPY_SAID: Final = {
    "cluster": "distances of points are tc.cdist",
    "fft": "it is tc.fft, and SciPy's own scipy.fft takes Tensors",
    "optimize": "see tc.scipy_objective for minimizers, tc.custom_root for the derivative of a solution",
    "sparse": "see tc.linalg.csr_matmul",
    "spatial": "distances of points are tc.cdist",
    "special": "it is tc.special",
    "stats": "it is tc.stats",
}
SCIPY_LINALG: Final = {
    "kron": "tc.kron", "lu_factor": "tc.linalg.lu_factor", "lu_solve": "tc.linalg.lu_solve",
    "matrix_power": "tc.linalg.matrix_power", "multi_dot": "tc.linalg.multi_dot", "slogdet": "tc.linalg.slogdet",
    "trace": "tc.linalg.trace",
}  # fmt: skip

GENERATOR: Final = {
    "chisquare": "2 * rng.gamma(df / 2)",
    "lognormal": "tc.exp(rng.normal(shape, mean=0.0, stddev=1.0))", "multinomial": "rng.categorical(logits)",
    "permuted": "rng.permutation(n)", "pareto": "tc.exp(rng.exponential(shape) / a) - 1", "power":
    "rng.uniform(shape) ** (1 / a)", "rand": "rng.uniform(shape)", "randint": "rng.integers(low, high, shape)",
    "randn": "rng.normal(shape)", "random": "rng.uniform(shape)", "random_integers": "rng.integers(low, high, shape)",
    "random_sample": "rng.uniform(shape)", "randperm": "rng.permutation(n)",
    "rayleigh": "tc.sqrt(2 * rng.exponential(shape))", "seed": "tc.default_rng(seed)", "standard_cauchy":
    "rng.cauchy(shape)", "standard_exponential": "rng.exponential(shape)", "standard_gamma": "rng.gamma(a, shape)",
    "standard_normal": "rng.normal(shape)", "standard_t": "rng.student_t(df, shape)",
    "weibull": "rng.exponential(shape) ** (1 / a)", "manual_seed": "tc.default_rng(seed)", "bit_generator":
    "rng.get_state()", "fold_in": "rng.split()",
}  # fmt: skip
RANDOM_SAID: Final = {
    "PRNGKey": "there are no keys: a Generator has a state, rng = tc.default_rng(seed), and goes on with each draw",
    "key": "there are no keys: a Generator has a state, rng = tc.default_rng(seed), and goes on with each draw",
    "split": "a Generator splits: tc.default_rng(seed).split(n)",
    "fold_in": "a Generator splits: tc.default_rng(seed).split(n)",
    "seed": "it is tc.set_seed(seed) for the global generator; tc.default_rng(seed) makes one of your own",
    "RandomState": "it is tc.default_rng(seed) here",
}

# -- methods and attributes of arrays

TENSOR: Final = {
    "add_": "x += y", "clamp_": "x = x.clip(min, max)", "copy_": "x[...] = y", "div_": "x /= y",
    "fill_": "x[...] = value",
    "mul_": "x *= y", "sub_": "x -= y", "zero_": "x[...] = 0",
    "H": "tc.conj(x).mT", "adjoint": "tc.conj(x).mT", "bfloat16": "x.astype(tc.bfloat16)", "bool": "x.astype(tc.bool)",
    "clone": "x.copy()", "contiguous": "x", "cpu": "x.numpy(), or x.to_device('cpu')",
    "cuda": "x.to_device('cuda:0')", "data": "x.array, the backend's own array, or tc.stop_gradient(x)",
    "detach": "tc.stop_gradient(x)", "dim": "x.ndim", "double": "x.astype(tc.float64)", "element_size": "x.itemsize",
    "expand": "tc.broadcast_to(x, shape)", "expand_as": "tc.broadcast_to(x, y.shape)", "eval": "x",
    "flat": "x.flatten()", "float": "x.astype(tc.float32)", "gather": "tc.take_along_axis(x, indices, axis=axis)",
    "get_shape": "x.shape", "half": "x.astype(tc.float16)", "int": "x.astype(tc.int64)", "is_cuda": "x.device",
    "index": "x[index]", "is_contiguous": "x", "long": "x.astype(tc.int64)", "matmul": "x @ y",
    "ndimension": "x.ndim", "nelement": "x.size", "new_full": "tc.full(shape, value, dtype=x.dtype)",
    "new_ones": "tc.ones(shape, dtype=x.dtype)", "new_tensor": "tc.asarray(values, dtype=x.dtype)",
    "new_zeros": "tc.zeros(shape, dtype=x.dtype)", "numel": "x.size", "permute": "x.transpose(*axes)",
    "ptp": "x.max() - x.min()", "reshape_as": "x.reshape(y.shape)", "short": "x.astype(tc.int16)", "t": "x.T",
    "to_list": "x.tolist()", "tobytes": "x.numpy().tobytes()", "tofile": "x.numpy().tofile(path)", "type":
    "x.dtype, or x.astype(dtype)", "type_as": "x.astype(y.dtype)", "view": "x.reshape(shape)",
    "view_as": "x.reshape(y.shape)", "set_shape": "x.reshape(shape)", "resize": "x.reshape(shape)",
    "unflatten": "x.reshape(shape)", "unsqueeze": "tc.expand_dims(x, axis=axis), or x[..., None]",
    "add": "x + y", "addressable_data": "x.array", "devices": "x.device", "div": "x / y", "divide": "x / y",
    "eq": "x == y",
    "ge": "x >= y", "gt": "x > y", "le": "x <= y", "lt": "x < y", "mm": "x @ y", "bmm": "x @ y", "mv": "x @ y",
    "mul": "x * y", "multiply": "x * y", "ne": "x != y", "neg": "-x", "pow": "x ** y", "remainder": "x % y",
    "sub": "x - y", "subtract": "x - y", "true_divide": "x / y", "where": "tc.where(condition, x, y)",
    "argpartition": "x.argsort()", "partition": "tc.sort(x)", "device_buffer": "x.array",
    "strides": "x.numpy().strides", "stride": "x.numpy().strides", "sharding": "x.device",
}  # fmt: skip

_GRADIENTS = (
    "gradients are not kept on tensors: write `with tc.GradientTape() as tape:`, tape.watch(x) unless it is a "
    "Variable, and tape.gradient(y, x)"
)

TENSOR_SAID: Final = {
    "read_value": "a tc.Variable has its value as a tensor in .value",
    "assign": "only a tc.Variable is assigned; x[index] = value changes what this name stands for",
    "assign_add": "only a tc.Variable is assigned; write x += value",
    "assign_sub": "only a tc.Variable is assigned; write x -= value",
    "at": "write tc.at(x)[index].set(value), or .add, .multiply, .min, .max",
    "backward": "write `with tc.GradientTape() as tape:` around the computation, and tape.gradient(y, x)",
    "block_until_ready": "there is nothing to wait for: leave it out; x.numpy() waits",
    "fill": "write tc.full_like(x, value)",
    "grad": _GRADIENTS,
    "grad_fn": "tape.explain(y, x) says how one value depends on another",
    "is_leaf": _GRADIENTS,
    "register_hook": "see tc.custom_gradient, which computes the gradient of a function as you say",
    "requires_grad": "a tc.Variable is watched when a GradientTape reads it, and tape.watch(x) watches a Tensor",
    "retain_grad": "tape.gradient(y, [x, h]) gives the gradients of intermediate results, too",
    "sort": "tc.sort(x) returns a sorted tensor; NumPy's method sorts in place, and PyTorch's returns a pair",
    "to": "write x.to_device(device), x.astype(dtype), or tc.to_backend(x, backend)",
    "value": "a plain tensor is its value: leave it out",
}
