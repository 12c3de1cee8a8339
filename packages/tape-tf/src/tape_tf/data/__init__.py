"""`tf.data`: datasets."""

from tape_tf.data.dataset import DataIterator as Iterator
from tape_tf.data.dataset import Dataset
from tape_tf.data.elements import DatasetSpec
from tape_tf.data.files import CsvDataset, FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from tape_tf.data.source import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tape_tf.names import absent

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "CsvDataset",
    "Dataset",
    "DatasetSpec",
    "FixedLengthRecordDataset",
    "Iterator",
    "TFRecordDataset",
    "TextLineDataset",
]

__getattr__ = absent("data")
