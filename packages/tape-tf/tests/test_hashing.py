"""Hash functions: the numbers are those that TensorFlow 2.21 gives, for each length that takes a way of its own."""

from __future__ import annotations

import numpy as np
import tape_tf as tf

BUCKETS = 2**63 - 1
FAST = {
    0: 1936946117179621456, 1: 4494688008148699989, 3: 7836721383716570152, 4: 365121004050576997,
    7: 1123016345076934235, 8: 6649577755799664552, 16: 8913314169182629276, 17: 2691913911681613941,
    32: 764915578794662492, 33: 8882213536466149448, 64: 6936790096686938507, 65: 1750252573709625707,
    128: 2861393397590574204, 130: 1333027554596271832, 1000: 1529728316342999936,
}  # fmt: skip
STRONG = {
    0: 2686708340997301328, 1: 274520826288358461, 3: 6477929093537017816, 4: 6864308307701110400,
    7: 4630031277816804079, 8: 3977785331452190394, 16: 4066049244573317554, 17: 1095046965975363592,
    32: 5552624411487160686, 33: 3834350839707522725, 64: 8695607076059901198, 65: 870348859877703585,
    128: 7902433612548324364, 130: 133772909775570244, 1000: 7118946713227801274,
}  # fmt: skip


def texts(lengths: dict[int, int]) -> list[bytes]:
    return [bytes(k * 7 % 256 for k in range(n)) for n in lengths]


def test_hashes_of_strings_are_those_of_tensorflow() -> None:
    fast = tf.strings.to_hash_bucket_fast(texts(FAST), BUCKETS)
    np.testing.assert_array_equal(fast.numpy(), list(FAST.values()))
    strong = tf.strings.to_hash_bucket_strong(texts(STRONG), BUCKETS, key=[1, 2**40])
    np.testing.assert_array_equal(strong.numpy(), list(STRONG.values()))
    assert fast.dtype == tf.int64


def test_other_programs_find_the_same_bins() -> None:
    assert tf.strings.to_hash_bucket_fast(["Hello", "TensorFlow", "2.x"], 3).numpy().tolist() == [0, 2, 2]
    unknown = tf.keras.layers.StringLookup(vocabulary=["a"], num_oov_indices=5)
    assert unknown(["a", "b", "c", "d", "e"]).numpy().tolist() == [5, 2, 2, 0, 1]
