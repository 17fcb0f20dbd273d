"""Every node of a cluster looked at before anything starts: it must have what the driver has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.errors import ConfigError, Fault
from harness.execution.guard.interruption import INTERRUPTION
from harness.execution.job import Folders
from harness.execution.ray.faults import ray_watched
from harness.execution.ray.node_check import marked, node_faults, unanswered
from harness.execution.ray.session import node_label, ray_session
from harness.execution.ray.temporary_folder import temporary_folder
from harness.execution.ray_settings import set_ray_environment
from harness.specs import TrialSpec

set_ray_environment()

import ray  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

ANSWER_SECONDS = 300.0
"""A node has for its answer: it starts a process, which imports torch."""


@contextmanager
def cluster_checked(file: str, folders: Folders, specs: Sequence[TrialSpec]) -> Iterator[Folders]:
    """Ask every node; the value is what nodes that join later, and are new in a later session, are checked against.

    Args:
        file: The sweep file, for the message.
        folders: To be the same on every node.
        specs: What is to run there.

    Raises:
        ConfigError: A node lacks something, or has something else; nothing has started, and no file is left.
        ExecutorError: The cluster cannot be joined.
        StorageError: A folder cannot be written.
    """
    with marked(folders, specs) as checked:
        if faults := _faults(checked):
            raise ConfigError(file, faults)
        yield checked


def _faults(folders: Folders) -> list[Fault]:
    with INTERRUPTION.watched(), temporary_folder() as temporary, ray_session(temporary), ray_watched():
        nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        asked = {
            node: ray.remote(node_faults)
            .options(num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
            .remote(folders, node)
            for node in nodes
        }
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_SECONDS)
        clauses = {node: _answer(asked[node]) or unanswered(folders, node) for node in nodes}
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # What left meanwhile runs nothing.
        return [
            Fault(f"node {node_label(about['NodeManagerAddress'], about['NodeManagerHostname'])}", f"it {clause}.")
            for node, about in nodes.items()
            if node in alive
            for clause in clauses[node]
        ]


def _answer(asked: Any) -> list[str]:
    try:
        return list(ray.get(asked, timeout=0))
    except ray.exceptions.GetTimeoutError:
        return [
            f"gave no answer within {ANSWER_SECONDS:g} s: see Ray's logs there, or take the node out of the cluster"
        ]
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines or [type(error).__name__])[-1].rstrip(".")
        return [f"could not be asked ({reason}): install Lethe there as it is installed here"]
