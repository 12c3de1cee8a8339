"""A table of the TensorFlow names that are absent, and the replacement that the error for each suggests.

An entry for `"io"` also answers for `"io.read_file"`. Remove an entry when its name is published: a test fails on
entries for names that exist.
"""

from __future__ import annotations

_GRAPH = "there are no graphs and sessions: code runs as it is written"
_STRINGS = "use Python's str and bytes on what tensor.numpy() gives"
_SPARSE = (
    "there are no sparse tensors: use a dense one (tf.scatter_nd(indices, values, dense_shape) makes it), "
    "tf.IndexedSlices for rows, tape_core.sparse_jacobian for Jacobians"
)
_DEVICES = "there is one process and its devices: use tf.device, or tape_core.use_backend"
_PROCESSES = "for several processes see docs/torch.md: gradients are added up with torch.distributed.all_reduce"
_COMPILER = "there is no graph compiler"
_QUANTIZED = "there are no quantized types"

ABSENT: dict[str, str] = {  # name without "tf." -> one clause that says what to use instead
    "ragged_fill_empty_rows": "use tf.ragged.constant, and pad rows with to_tensor()",
    "ragged_fill_empty_rows_grad": "use tf.ragged.constant, and pad rows with to_tensor()",
    "ragged": "of tf.ragged there are constant, stack and map_flat_values: pad rows with to_tensor(), and use a mask",
    "strings": "of tf.strings there is what tutorials use: use Python's str on the bytes of tensor.numpy()",
    "sparse": _SPARSE + "; a dense tensor needs no to_dense",
    "SparseTensor": _SPARSE,
    "SparseTensorSpec": _SPARSE,
    "Session": _GRAPH,
    "placeholder": _GRAPH + "; use arguments of a function",
    "global_variables_initializer": "Variables have their value from the start",
    "gradients": "use tf.GradientTape",
    "hessians": "use nested tf.GradientTape, tape.jacobian, or tape_core.hessian",
    "Graph": _GRAPH,
    "Operation": _GRAPH,
    "graph_util": _GRAPH,
    "get_static_value": "use tensor.numpy()",
    "control_dependencies": _GRAPH + "; statements run in their order",
    "group": _GRAPH,
    "no_op": _GRAPH,
    "make_ndarray": "use tensor.numpy()",
    "make_tensor_proto": "use tensor.numpy()",
    "RegisterGradient": "use tf.custom_gradient, or declare an op with tape_core.extend",
    "io": "of tf.io there is what tutorials use of local files: read others with Python or NumPy, and use "
    "tf.data.Dataset.from_tensor_slices",
    "queue": "use Python's queue",
    "lookup": "of tf.lookup there are StaticHashTable, StaticVocabularyTable, KeyValueTensorInitializer and "
    "experimental.MutableHashTable: "
    "use one of them, a dict, or tf.gather on a table",
    "train.SequenceExample": "use tf.train.Example, with lists of one length for each feature",
    "train.FeatureList": "use tf.train.Example, with lists of one length for each feature",
    "train.FeatureLists": "use tf.train.Example, with lists of one length for each feature",
    "train": "of tf.train there are checkpoints and Example; averages are in tape_nn.ExponentialMovingAverage",
    "saved_model": "of tf.saved_model there are save, load and contains_saved_model",
    "distribute": "of tf.distribute there are strategies of one device; " + _PROCESSES,
    "distribute.TPUStrategy": "there are no TPUs; " + _PROCESSES,
    "distribute.experimental.TPUStrategy": "there are no TPUs; " + _PROCESSES,
    "tpu": _DEVICES,
    "profiler": "use tape_core.GradientTape(debug=True) and its summary()",
    "lite": "for devices without Python, export a compiled function (a file that needs NumPy alone), or "
    "convert a .keras file with TensorFlow itself",
    "mlir": _COMPILER,
    "xla": _COMPILER,
    "raw_ops": "use the functions of tf, tf.math and tf.nn, or those of tape_core",
    "feature_column": "use NumPy or a data frame, and tf.data",
    "contrib": "it was part of TensorFlow 1",
    "quantization": _QUANTIZED,
    "quantize_and_dequantize_v4": _QUANTIZED,
    "test": "use pytest, and tape_core.testing for gradients",
    "audio": "read sounds with SciPy (scipy.io.wavfile) or soundfile, and use tf.data.Dataset.from_tensor_slices",
    "types": "of tf.types there is experimental.TraceType, and what it needs",
    "autograph": "code runs as it is written: nothing is converted",
    "experimental": "of tf.experimental there is numpy",
    "load_op_library": "declare an op with tape_core.extend",
    "load_library": "declare an op with tape_core.extend",
    "parallel_stack": "use tf.stack",
    "get_logger": 'use logging.getLogger("tensorflow")',
    "sysconfig": "nothing is compiled against this package",
    "nondifferentiable_batch_function": "there is no batching of calls",
    "type_spec_from_value": "use tf.TensorSpec.from_tensor",
    "variable_creator_scope": "Variables are made by tf.Variable alone",
    "image": "use the functions of tf and tf.nn on arrays, or Pillow before",
}

_SEVERAL = {  # several names, separated by spaces, that share one clause
    "summary.audio summary.graph": "scalars, histograms, images and texts are written",
    "DeviceSpec dtensor debugging.get_log_device_placement debugging.set_log_device_placement": _DEVICES,
    "config.experimental_connect_to_cluster config.experimental_connect_to_host "
    "config.experimental.ClusterDeviceFilters": _PROCESSES,
    "config.threading": "threads are the array library's: set OMP_NUM_THREADS before the import, or use "
    "torch.set_num_threads",
    "config.experimental.get_memory_info config.experimental.get_memory_usage "
    "config.experimental.reset_memory_stats config.experimental.get_device_details": "memory and devices are the array "
    "library's: torch.cuda.memory_stats and torch.cuda.get_device_properties tell of them",
    "config.experimental.enable_op_determinism": "NumPy is deterministic; torch.use_deterministic_algorithms makes "
    "PyTorch so",
    "config.experimental.enable_tensor_float_32_execution config.experimental.tensor_float_32_execution_enabled": "use "
    "torch.set_float32_matmul_precision",
    "AggregationMethod": "there is one replica: nothing is aggregated",
    "CriticalSection": "use threading.Lock",
    "IndexedSlicesSpec NoneTensorSpec OptionalSpec TensorArraySpec TypeSpec": "of specs there is tf.TensorSpec",
    "check_pinned guarantee_const import_graph_def no_gradient resource variant security tools "
    "config.optimizer": _GRAPH,
    "qint8 qint16 qint32 quint8 quint16 dtypes.qint8 dtypes.qint16 dtypes.qint32 dtypes.quint8 dtypes.quint16 "
    "dtypes.QUANTIZED_DTYPES": _QUANTIZED,
    "edit_distance fingerprint": _STRINGS,
    "dtypes.resource dtypes.variant dtypes.experimental": "a dtype is one of numbers or bool",
    "approx_top_k math.approx_max_k math.approx_min_k nn.approx_max_k nn.approx_min_k": "use tf.math.top_k",
    "batch_to_space space_to_batch space_to_batch_nd required_space_to_batch_paddings nn.space_to_batch "
    "nn.with_space_to_batch": "use the dilations of tf.nn.conv2d; tf.nn.space_to_depth moves blocks to channels",
    "bitcast": "use tensor.numpy().view(dtype)",
    "conv conv2d_backprop_filter_v2 conv2d_backprop_input_v2 nn.depthwise_conv2d_backprop_filter "
    "nn.depthwise_conv2d_backprop_input": "use tf.nn.convolution, and tf.GradientTape for its derivatives",
    "nn.atrous_conv2d_transpose nn.conv_transpose": "use tf.nn.conv2d_transpose, which has dilations",
    "extract_volume_patches": "use tape_core.sliding_windows",
    "fftnd ifftnd rfftnd irfftnd signal.fftnd signal.ifftnd signal.rfftnd signal.irfftnd": "use tape_core.fft",
    "histogram_fixed_width_bins": "use tf.histogram_fixed_width or tf.searchsorted",
    "matrix_square_root linalg.sqrtm linalg.logm": "there are tape_core.linalg.expm and eigh, of which it can be made",
    "random_index_shuffle random.Algorithm random.create_rng_state": "use tf.random.shuffle or tf.random.Generator",
    "register_tensor_conversion_function": "give the class a method __tape_tensor__, which returns a tape_core Tensor",
    "sets": "use Python's sets, tf.unique, or tape_core.isin",
    "math.betainc math.igamma math.igammac math.zeta math.special": "of special functions there are those in tf.math; "
    "another is declared with tape_core.extend",
    "math.sobol_sample": "use scipy.stats.qmc",
    "linalg.banded_triangular_solve linalg.eigh_tridiagonal linalg.tridiagonal_matmul linalg.tridiagonal_solve": "use "
    "tf.linalg.solve, tf.linalg.eigh or a matrix product on whole matrices",
    "linalg.experimental": "use the functions of tf.linalg",
    "nn.RNNCellDeviceWrapper nn.RNNCellDropoutWrapper nn.RNNCellResidualWrapper": "use the layers of tf.keras",
    "nn.all_candidate_sampler nn.compute_accidental_hits nn.fixed_unigram_candidate_sampler nn.nce_loss "
    "nn.learned_unigram_candidate_sampler nn.sampled_softmax_loss random.all_candidate_sampler "
    "random.fixed_unigram_candidate_sampler random.learned_unigram_candidate_sampler "
    "random.log_uniform_candidate_sampler random.uniform_candidate_sampler": "there are no candidate samplers: draw "
    "negative classes with tf.random.uniform(shape, maxval=classes, dtype=tf.int64) or tf.random.categorical of the "
    "logarithms of their frequencies; for all classes use tf.nn.sparse_softmax_cross_entropy_with_logits",
    "nn.batch_norm_with_global_normalization nn.normalize_moments nn.sufficient_statistics": "use tf.nn.moments and "
    "tf.nn.batch_normalization",
    "nn.collapse_repeated nn.ctc_beam_search_decoder nn.ctc_greedy_decoder nn.ctc_loss "
    "nn.ctc_unique_labels": "there is no CTC",
    "nn.dilation2d nn.erosion2d nn.fractional_avg_pool nn.fractional_max_pool nn.max_pool_with_argmax": "use "
    "tf.nn.max_pool2d, or tape_core.sliding_windows and tf.reduce_max",
    "nn.embedding_lookup_sparse nn.safe_embedding_lookup_sparse": _SPARSE,
    "nn.experimental": "use tf.nn.dropout with a seed",
    "nn.isotonic_regression": "use scipy.optimize.isotonic_regression",
    "random.gamma random.poisson random.stateless_binomial random.stateless_gamma random.stateless_poisson "
    "random.stateless_parameterized_truncated_normal": "draw with numpy.random, and tf.constant",
    "signal.inverse_mdct signal.inverse_stft signal.inverse_stft_window_fn signal.mdct signal.vorbis_window "
    "signal.kaiser_bessel_derived_window signal.kaiser_window signal.linear_to_mel_weight_matrix "
    "signal.mfccs_from_log_mel_spectrograms": "there are tf.signal.stft, frame, overlap_and_add and irfft; windows "
    "are in scipy.signal.windows",
    "debugging.enable_check_numerics debugging.disable_check_numerics": "use "
    "tape_core.GradientTape(check_numerics=True), or tf.debugging.check_numerics",
    "debugging.assert_proper_iterable": "use isinstance",
    "debugging.enable_traceback_filtering debugging.disable_traceback_filtering debugging.experimental "
    "debugging.is_traceback_filtering_enabled": "tracebacks are whole",
    "linalg.LinearOperator linalg.LinearOperatorAdjoint linalg.LinearOperatorBlockDiag "
    "linalg.LinearOperatorBlockLowerTriangular linalg.LinearOperatorCirculant linalg.LinearOperatorCirculant2D "
    "linalg.LinearOperatorCirculant3D linalg.LinearOperatorComposition linalg.LinearOperatorDiag "
    "linalg.LinearOperatorFullMatrix linalg.LinearOperatorHouseholder linalg.LinearOperatorIdentity "
    "linalg.LinearOperatorInversion linalg.LinearOperatorKronecker linalg.LinearOperatorLowRankUpdate "
    "linalg.LinearOperatorLowerTriangular linalg.LinearOperatorPermutation linalg.LinearOperatorScaledIdentity "
    "linalg.LinearOperatorToeplitz linalg.LinearOperatorTridiag linalg.LinearOperatorZeros": "there are no operators: "
    "use matrices, or a function and tape_core.linearize",
    "errors.AbortedError errors.AlreadyExistsError errors.CancelledError "
    "errors.DeadlineExceededError errors.OperatorNotAllowedInGraphError errors.PermissionDeniedError "
    "errors.UnauthenticatedError errors.UnavailableError errors.UnknownError": "nothing here raises it",
    "errors.ABORTED errors.ALREADY_EXISTS errors.CANCELLED errors.DATA_LOSS errors.DEADLINE_EXCEEDED "
    "errors.FAILED_PRECONDITION errors.INTERNAL errors.INVALID_ARGUMENT errors.NOT_FOUND errors.OK errors.OUT_OF_RANGE "
    "errors.PERMISSION_DENIED errors.RESOURCE_EXHAUSTED errors.UNAUTHENTICATED errors.UNAVAILABLE "
    "errors.UNIMPLEMENTED errors.UNKNOWN": "errors have no codes: catch their classes",
}
ABSENT.update({name: note for names, note in _SEVERAL.items() for name in names.split()})
