"""What to use instead of the names of `tf.compat.v1`, and of estimators."""

from __future__ import annotations

from tape_tf.absences import ABSENT

_GRAPH = "there are no graphs and sessions: code runs as it is written"
_HELD = "Variables are attributes of a tf.Module, a layer or a model, and in its trainable_variables"
_ESTIMATOR = "use tf.keras.Model with compile and fit, or a loop of your own with tf.GradientTape"

_OTHERS = {
    "compat": "there is no TensorFlow 1: " + _GRAPH,
    "compat.v1.placeholder": _GRAPH + "; use arguments of a function, and tf.TensorSpec for their shapes",
    "compat.v1.placeholder_with_default": _GRAPH + "; use an argument of a function with a default",
    "compat.v1.get_variable": "use tf.Variable, as an attribute of a tf.Module or a layer",
    "compat.v1.variable_scope": "hold Variables as attributes; tf.name_scope names them",
    "compat.v1.get_collection": _HELD,
    "compat.v1.GraphKeys": _HELD,
    "compat.v1.make_template": "use a tf.Module or a layer, which keeps its Variables",
    "compat.v1.py_func": "use tf.numpy_function",
    "compat.v1.data": "use tf.data.Dataset, and iter(dataset)",
    "compat.v1.layers": "use the layers of tf.keras.layers",
    "compat.v1.losses": "use the losses of tf.keras.losses",
    "compat.v1.metrics": "use the metrics of tf.keras.metrics",
    "compat.v1.nn": "use the functions of tf.nn",
    "compat.v1.nn.rnn_cell": "use the cells of tf.keras.layers, and tf.keras.layers.RNN",
    "compat.v1.initializers": "use those of tf.keras.initializers",
    "compat.v1.train": "use tf.train.Checkpoint, and the optimizers of tf.keras.optimizers",
    "compat.v1.train.Saver": "use tf.train.Checkpoint",
    "compat.v1.losses.get_total_loss": "add the losses of a model, model.losses, to your own",
    "compat.v1.losses.get_regularization_loss": "add up model.losses",
    "compat.v1.losses.get_regularization_losses": "use model.losses",
    "compat.v1.keras": "use tf.keras",
    "compat.v1.keras.utils": "hold the layers as attributes of a tf.keras.Model",
    "compat.v1.logging": 'use logging.getLogger("tensorflow")',
    "compat.forward_compatible": "there is one version",
    "compat.v2": "use tf",
    "estimator": _ESTIMATOR,
    "compat.v1.estimator": _ESTIMATOR,
    "keras.utils.DeterministicRandomTestTool": "use tf.keras.utils.set_random_seed before each model, or "
    "copy the weights of one to the other with get_weights and set_weights",
    "keras.dtensor": "a process computes on one device: see docs/torch.md for several",
}

_SEVERAL = {
    "Session InteractiveSession ConfigProto GPUOptions Graph get_default_graph get_default_session reset_default_graph "
    "disable_eager_execution disable_v2_behavior disable_v2_tensorshape disable_resource_variables "
    "disable_control_flow_v2 disable_tensor_equality control_dependencies": _GRAPH,
    "global_variables_initializer local_variables_initializer tables_initializer variables_initializer "
    "initialize_all_variables report_uninitialized_variables": "Variables and tables have their values from the start",
    "global_variables local_variables trainable_variables moving_average_variables model_variables": _HELD,
    "train.get_global_step train.get_or_create_global_step train.create_global_step train.global_step": "use the "
    "iterations of an optimizer, or a tf.Variable that counts",
    "train.MonitoredSession train.MonitoredTrainingSession train.SessionRunHook train.LoggingTensorHook": _GRAPH
    + "; the callbacks of tf.keras.callbacks are called during fit",
}

# Names of TensorFlow 1 and what is there instead, in the module named first.
_RENAMED = {
    "keras.layers compat.v1.layers": (
        "dense=Dense conv1d=Conv1D conv2d=Conv2D conv3d=Conv3D conv2d_transpose=Conv2DTranspose "
        "separable_conv2d=SeparableConv2D dropout=Dropout flatten=Flatten "
        "batch_normalization=BatchNormalization max_pooling1d=MaxPooling1D max_pooling2d=MaxPooling2D "
        "max_pooling3d=MaxPooling3D average_pooling2d=AveragePooling2D"
    ),
    "keras.losses compat.v1.losses": (
        "softmax_cross_entropy=CategoricalCrossentropy(from_logits=True) "
        "sparse_softmax_cross_entropy=SparseCategoricalCrossentropy(from_logits=True) "
        "sigmoid_cross_entropy=BinaryCrossentropy(from_logits=True) log_loss=BinaryCrossentropy "
        "mean_squared_error=MeanSquaredError absolute_difference=MeanAbsoluteError huber_loss=Huber "
        "hinge_loss=Hinge cosine_distance=CosineSimilarity"
    ),
    "keras.optimizers compat.v1.train": (
        "GradientDescentOptimizer=SGD MomentumOptimizer=SGD AdamOptimizer=Adam RMSPropOptimizer=RMSprop "
        "AdagradOptimizer=Adagrad AdadeltaOptimizer=Adadelta FtrlOptimizer=Ftrl Optimizer=Optimizer"
    ),
    "keras.optimizers.schedules compat.v1.train": (
        "polynomial_decay=PolynomialDecay exponential_decay=ExponentialDecay cosine_decay=CosineDecay "
        "cosine_decay_restarts=CosineDecayRestarts inverse_time_decay=InverseTimeDecay "
        "piecewise_constant=PiecewiseConstantDecay piecewise_constant_decay=PiecewiseConstantDecay"
    ),
    "keras.initializers compat.v1.initializers": (
        "glorot_normal=GlorotNormal glorot_uniform=GlorotUniform zeros=Zeros ones=Ones constant=Constant "
        "random_normal=RandomNormal random_uniform=RandomUniform truncated_normal=TruncatedNormal "
        "variance_scaling=VarianceScaling orthogonal=Orthogonal identity=Identity"
    ),
    "keras.metrics compat.v1.metrics": (
        "accuracy=Accuracy mean=Mean auc=AUC precision=Precision recall=Recall "
        "mean_squared_error=MeanSquaredError mean_absolute_error=MeanAbsoluteError"
    ),
    "keras.layers compat.v1.nn.rnn_cell": (
        "LSTMCell=LSTMCell BasicLSTMCell=LSTMCell GRUCell=GRUCell BasicRNNCell=SimpleRNNCell"
    ),
}

ABSENT.update(_OTHERS)
ABSENT.update({f"compat.v1.{name}": text for names, text in _SEVERAL.items() for name in names.split()})
for _places, _pairs in _RENAMED.items():
    _there, _here = _places.split()
    for _pair in _pairs.split():
        _old, _, _new = _pair.partition("=")
        ABSENT[f"{_here}.{_old}"] = f"use tf.{_there}.{_new}"
