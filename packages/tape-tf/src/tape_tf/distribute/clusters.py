"""Descriptions of clusters: which processes there are, and which of them this is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tape_tf.names import exported

Jobs: TypeAlias = "ClusterSpec | Mapping[str, Sequence[str] | Mapping[int, str]]"


@exported("train.ClusterSpec")
class ClusterSpec:
    """The processes of a cluster: the addresses of the tasks of each job.

    >>> import tape_tf as tf
    >>> cluster = tf.train.ClusterSpec({"worker": ["a:1", "b:1"], "ps": ["c:1"]})
    >>> cluster.jobs, cluster.num_tasks("worker"), cluster.task_address("worker", 1)
    (['ps', 'worker'], 2, 'b:1')

    Args:
        cluster: the addresses, in a list or by number, for each name of a job; or another ClusterSpec.

    Raises:
        TypeError: it is something else.
    """

    def __init__(self, cluster: Jobs) -> None:
        given = cluster.as_dict() if isinstance(cluster, ClusterSpec) else cluster
        if not isinstance(given, Mapping):
            raise TypeError("`cluster` must be a dictionary mapping one or more job names to lists of addresses")
        self._jobs: dict[str, dict[int, str]] = {}
        for job, tasks in given.items():
            if isinstance(tasks, str) or not isinstance(tasks, Mapping | Sequence):
                raise TypeError(f"the tasks of the job {job!r} must be a list of addresses; got {tasks!r}")
            numbered = tasks.items() if isinstance(tasks, Mapping) else enumerate(tasks)
            self._jobs[job] = {int(number): str(address) for number, address in sorted(numbered)}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, sorted."""
        return sorted(self._jobs)

    def as_dict(self) -> dict[str, Any]:
        """Return the addresses by job: lists, or dictionaries where the numbers have gaps."""
        return {
            job: list(tasks.values()) if list(tasks) == list(range(len(tasks))) else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    def _tasks(self, job_name: str) -> dict[int, str]:
        if job_name not in self._jobs:
            raise ValueError(f"No such job in cluster: {job_name!r}; there are {', '.join(self.jobs) or 'none'}")
        return self._jobs[job_name]

    def num_tasks(self, job_name: str) -> int:
        """Return the number of tasks of a job.

        Raises:
            ValueError: there is no such job.
        """
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the numbers of the tasks of a job."""
        return list(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of a task.

        Raises:
            ValueError: there is no such job or task.
        """
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index} in job {job_name!r}.")
        return tasks[task_index]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"


@exported("distribute.cluster_resolver.ClusterResolver")
class ClusterResolver:
    """Base class of what tells a strategy of the cluster."""

    task_type: str | None = None
    task_id: int | None = None
    rpc_layer: str | None = None
    environment = ""

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster."""
        raise NotImplementedError(f"{type(self).__name__} must define cluster_spec()")

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return the address of a task, of this one by default; an empty string if there is no cluster."""
        kind = self.task_type if task_type is None else task_type
        number = self.task_id if task_id is None else task_id
        cluster = self.cluster_spec()
        if not cluster or kind is None or number is None:
            return ""
        address, layer = cluster.task_address(kind, number), rpc_layer or self.rpc_layer
        return f"{layer}://{address}" if layer else address


@exported("distribute.cluster_resolver.SimpleClusterResolver")
class SimpleClusterResolver(ClusterResolver):
    """A cluster that is given.

    Args:
        cluster_spec: the cluster.
        task_type, task_id: the job and number of this process.
        rpc_layer: the protocol of addresses.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError("cluster_spec must be a `tf.train.ClusterSpec`.")
        self._cluster, self._master = cluster_spec, master
        self.task_type, self.task_id, self.rpc_layer = task_type, task_id, rpc_layer
        self.environment = environment

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster."""
        return self._cluster

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return the address of a task; by default the one given as `master`."""
        return self._master if task_type is None else super().master(task_type, task_id, rpc_layer)


@exported("distribute.cluster_resolver.TFConfigClusterResolver")
class TFConfigClusterResolver(ClusterResolver):
    """The cluster that the environment variable `TF_CONFIG` describes, in JSON; an empty one if it is not set.

    Raises:
        ValueError: the text is not a JSON object; the message shows it.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        text = os.environ.get("TF_CONFIG", "") or "{}"
        try:
            config = json.loads(text)
        except ValueError as error:
            raise ValueError(f"TF_CONFIG is not JSON: {error}; it is {text!r}") from None
        if not isinstance(config, dict) or not isinstance(config.get("task", {}), dict):
            raise ValueError(f'TF_CONFIG must be an object such as {{"cluster": ..., "task": ...}}; it is {text!r}')
        task = config.get("task", {})
        number = task.get("index") if task_id is None else task_id
        self.task_type = task.get("type") if task_type is None else task_type
        self.task_id = None if number is None else int(number)
        self.rpc_layer = config.get("rpc_layer") if rpc_layer is None else rpc_layer
        self.environment = environment or config.get("environment", "")
        self._cluster = ClusterSpec(config.get("cluster", {}))

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster."""
        return self._cluster
