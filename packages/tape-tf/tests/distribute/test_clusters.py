"""Descriptions of clusters, against what TensorFlow's say."""

from __future__ import annotations

import pytest
import tape_tf as tf


def test_a_cluster_says_what_it_was_given() -> None:
    cluster = tf.train.ClusterSpec({"worker": ["a:1", "b:2"], "ps": {1: "c:3"}})
    assert cluster.as_dict() == {"worker": ["a:1", "b:2"], "ps": {1: "c:3"}}
    assert cluster.task_indices("ps") == [1]
    assert cluster == tf.train.ClusterSpec(cluster)
    assert "chief" not in cluster.as_dict()
    with pytest.raises(ValueError, match="No such job"):
        cluster.num_tasks("chief")
    with pytest.raises(ValueError, match="No task with index 0"):
        cluster.task_address("ps", 0)
    with pytest.raises(TypeError, match="job names"):
        tf.train.ClusterSpec(["a:1"])
    with pytest.raises(TypeError, match="list of addresses"):
        tf.train.ClusterSpec({"worker": "a:1"})


def test_a_resolver_gives_the_address_of_a_task() -> None:
    cluster = tf.train.ClusterSpec({"worker": ["a:1", "b:2"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=1, rpc_layer="grpc"
    )
    assert resolver.master() == ""
    assert resolver.master("worker", 0) == "grpc://a:1"
    with pytest.raises(ValueError, match="2 workers"):
        tf.distribute.MultiWorkerMirroredStrategy(resolver)
