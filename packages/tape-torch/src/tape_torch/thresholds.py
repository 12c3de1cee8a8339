"""The sizes at which this package changes its way of computing, in one place.

They are trade-offs of speed and memory. None changes a result by more than rounding.
"""

from __future__ import annotations

BLOCK_ELEMENTS_PER_THREAD = 1 << 17
"""Elements: blocks of elementwise work on the CPU. Large, since each block costs a dozen calls of PyTorch; small enough
that the temporaries of a block stay in the cache."""

PIN_MIN_ELEMENTS = 1 << 14
"""Elements: from here on, an array on its way to a GPU goes through pinned memory, so that the copy is asynchronous."""

COPY_MAX_SPREAD = 4
"""A copy keeps the strides of a tensor if it takes at most so many times the memory of its elements."""

MATMUL_MIN_ELEMENTS = 1 << 14
"""Elements of the left matrix: for smaller ones, narrow products are as fast as others."""

MATMUL_NARROW_COLUMNS = 16
"""Columns: products with fewer take PyTorch's CPU kernels two to ten times as long as the transposed product. Measured
on the digits convnet of the benchmarks, where the gradient of the classifier took a tenth of a step."""

CROSS_ENTROPY_KEEP_MAX_ELEMENTS = 1 << 18
"""Elements of the logits: up to here, log_softmax is kept for the backward pass; above, it is computed again."""

POOL_BY_ROW_MAX_WINDOW = 5
"""Elements of a side: maxima of larger windows are as fast by PyTorch's kernel as along rows and then columns. Measured
on the CPU, on a network like LeNet, where a step became a sixth faster."""

GRAPH_MIN_KERNELS = 16
"""Kernels: for fewer, a CUDA graph's copies of arguments and results cost more than the launches it saves."""

GRAPH_MIN_KERNELS_PER_COPY = 2
"""Kernels for each argument and result, which a graph copies."""

GRAPH_MAX_MEAN_ELEMENTS = 1 << 16
"""Elements per array, on average: on larger ones a kernel takes longer than its launch."""

GRAPH_MAX_ELEMENTS = 1 << 26
"""Elements of all arrays: a graph keeps the memory of everything it computes."""

GRAPH_WORKSPACE_RUNS = 2
"""Runs on a stream of its own right before a graph is recorded, in which libraries allocate their workspace."""

GRAPH_WARMUP_RUNS = 2
"""Runs before a graph is recorded: a function that is called once or twice needs none."""

RANDOM_NUMPY_MAX_ELEMENTS = 1 << 15
"""Elements: up to here, NumPy makes uniform numbers of the bits, since its calls have less overhead than PyTorch's; for
more, PyTorch's threads are worth it."""

DRAWN_AT_ONCE = 1 << 20
"""Elements: random numbers of an array that is made divided are drawn in blocks of so many."""

ZEROS_GIVEN_BACK_MIN_BYTES = 1 << 20
"""Bytes: from here on, what an optimizer begins with has no memory before it is written to."""

REDUCTIONS_IN_FLIGHT = 2
"""Collectives that add up gradients and have begun when what needs the first of them is computed: each keeps its
gradient in memory meanwhile."""

TAKEN_TOGETHER_BYTES = 4 << 20
"""Bytes of the gradients that are added up first, by one collective for several: it begins early."""

SUMMED_TOGETHER_BYTES = 25 << 20
"""Bytes of the gradients that one collective adds up after that, as many as in PyTorch's DistributedDataParallel. Four
processes on two cores wait for each collective in turn: of 4 MB of gradients a step took 1.01 times as much time of the
CPUs as there by one collective, 1.10 by two, and 1.28 by four."""

SUMMED_ALONE_BYTES = 8 << 20
"""Bytes of a gradient that is added up by itself, without being copied to others."""

GATHERED_TOGETHER_BYTES = 4 << 20
"""Bytes of a process's parts of weights that one collective gathers for several."""

GATHERED_KEPT_BYTES = 25 << 20
"""Bytes of whole weights that are kept from a forward pass for the backward pass, in which they are gathered otherwise
once more. PyTorch's FSDP2 keeps those of the outermost module, however many."""

WEIGHT_TO_ACTIVATIONS = 8
"""How many times as large as a batch and its product with a weight the weight may be that is gathered for it, and not
the batch: a weight can be gathered before it is needed, and with others."""
