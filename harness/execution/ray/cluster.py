"""Checks every node of a cluster before anything starts: it must have what the driver has."""

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
"""How long a node may take to answer: it starts a process, which imports torch."""


@contextmanager
def cluster_checked(file: str, folders: Folders, specs: Sequence[TrialSpec]) -> Iterator[Folders]:
    """Check every node; the value is what nodes that join later are checked against.

    Args:
        file: The sweep file, for the message.
        folders: Those that every node must share.
        specs: What is to run there.

    Raises:
        ConfigError: A node lacks something, or has something else; nothing has started, and no file is left.
        ExecutorError: The cluster cannot be joined.
        StorageError: A folder cannot be written.
    """
    with marked(folders, specs) as checked:
        if faults := _node_faults(checked):
            raise ConfigError(file, faults)
        yield checked


def _node_faults(folders: Folders) -> list[Fault]:
    with INTERRUPTION.watched(), temporary_folder() as temporary, ray_session(temporary), ray_watched():
        asked = {}
        for node in _alive_nodes():
            on_node = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(node_faults).options(num_cpus=0, max_retries=0, scheduling_strategy=on_node)
            asked[node] = task.remote(folders, node)
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_SECONDS)
        clauses = {node: _answer(answer) or unanswered(folders, node) for node, answer in asked.items()}
        faults = []
        for node, label in _alive_nodes().items():  # A node that left meanwhile runs nothing.
            faults += [Fault(f"node {label}", f"it {clause}.") for clause in clauses.get(node, ())]
        return faults


def _alive_nodes() -> dict[str, str]:
    """Return each node's id, and what people call it."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return {node["NodeID"]: node_label(node["NodeManagerAddress"], node["NodeManagerHostname"]) for node in alive}


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
