"""Hints for names of tf.keras that are absent: what to use instead."""

from __future__ import annotations

from tape_tf.absences import ABSENT

_PREPARED = "prepare data with NumPy, scikit-learn or Pillow, and give it to tf.data or fit"
_RANDOM = (
    "there are RandomFlip, RandomRotation, RandomZoom, RandomTranslation, RandomCrop, RandomContrast and "
    "RandomBrightness; change images otherwise in tf.data.Dataset.map"
)
_HASHES = "join the features to one string, with tf.strings.join or tf.strings.as_string, and give it to Hashing"
_LOOP = "write a cell that convolves, and give it to RNN"
_FLOATX = "there are tf.keras.DTypePolicy and tf.keras.mixed_precision"
_SUMMED = "write it as a function of y_true and y_pred, which compile takes as a loss or a metric"

_LAYERS = {
    "AugMix AutoContrast ContrastLimitedAdaptiveHistogramEqualization CutMix Equalization MixUp Pipeline "
    "RandAugment RandomColorDegeneration RandomColorJitter "
    "RandomElasticTransform RandomErasing RandomGaussianBlur RandomGrayscale RandomHeight RandomHue "
    "RandomInvert RandomPerspective RandomPosterization RandomSaturation RandomSharpness RandomShear "
    "RandomWidth Solarization MaxNumBoundingBoxes": _RANDOM,
    "HashedCrossing": _HASHES,
    "ConvLSTM1D ConvLSTM2D ConvLSTM3D": _LOOP,
    "FlaxLayer JaxLayer TFSMLayer TorchModuleWrapper": "use the layers of tape_nn, or one of your own",
    "GroupQueryAttention": "use MultiHeadAttention",
    "Wrapper": "hold the layer as an attribute of a layer of your own",
    "InputSpec": "check inputs in `build`",
    "STFTSpectrogram MelSpectrogram": "use tf.signal.fft on frames",
}

_OTHERS = {
    "keras.applications": "there are VGG, ResNet, MobileNet, InceptionV3, Xception, DenseNet and EfficientNet: build "
    "another from layers, and load weights with load_weights",
    "keras.preprocessing": _PREPARED,
    "keras.utils.audio_dataset_from_directory": _PREPARED,
    "keras.dtype_policies": _FLOATX,
    "keras.ops": "there is a part of it; use functions of tf, tf.math and tf.nn for others",
    "keras.random": "use tf.random for others",
    "keras.tree": "use tf.nest",
    "keras.name_scope": "use tf.name_scope",
    "keras.device": "use tf.device",
    "keras.Variable": "use tf.Variable, or add_weight of a layer",
    "keras.distribution": "there is one process and its devices",
    "keras.estimator": "use Model.fit",
    "keras.wrappers": "use scikit-learn's own models beside these",
    "keras.experimental": "use tf.keras.Model, or tape_nn",
    "keras.callbacks.RemoteMonitor": "send logs from a Callback of your own",
    "keras.callbacks.SwapEMAWeights": "use tape_nn.ExponentialMovingAverage, or use_ema of an optimizer",
    "keras.callbacks.ProgbarLogger": "use verbose=1 of fit",
    "keras.optimizers.Adafactor": "use Adam or AdamW",
    "keras.optimizers.Lamb": "use AdamW",
    "keras.optimizers.Muon": "use AdamW; or derive from tape_nn.Optimizer",
}

_FUNCTIONS = (
    "losses.CTC losses.Circle losses.Dice losses.Tversky losses.BinaryFocalCrossentropy "
    "losses.CategoricalFocalCrossentropy "
    "losses.CategoricalGeneralizedCrossEntropy losses.ctc losses.circle losses.dice losses.tversky "
    "losses.binary_focal_crossentropy losses.categorical_focal_crossentropy "
    "losses.categorical_generalized_cross_entropy "
    "metrics.BinaryIoU metrics.ConcordanceCorrelation metrics.F1Score metrics.FBetaScore metrics.IoU metrics.MeanIoU "
    "metrics.OneHotIoU metrics.OneHotMeanIoU metrics.PearsonCorrelation metrics.PrecisionAtRecall metrics.R2Score "
    "metrics.RecallAtPrecision metrics.SensitivityAtSpecificity metrics.SpecificityAtSensitivity "
    "metrics.concordance_correlation metrics.pearson_correlation"
)

ABSENT.update(_OTHERS)
ABSENT.update({f"keras.{name}": _SUMMED for name in _FUNCTIONS.split()})
ABSENT.update({f"keras.layers.{name}": text for names, text in _LAYERS.items() for name in names.split()})
