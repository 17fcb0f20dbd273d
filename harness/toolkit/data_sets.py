"""Data sets that an evaluator reads: from the hub, through this machine's cache, and the embedded reasoning tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.base import hub
from harness.base.hub import Repository
from harness.miniature.texts import reasoning_rows


def data_set_commit(id: str) -> str:
    """Return the commit that a data set of the hub is pinned to: the one in the cache, else the hub's newest.

    Raises:
        DataError: It is neither in the cache nor on the hub, or the hub does not answer.
    """
    return hub.commit(Repository(id, "dataset"))


def data_set_folder(id: str, configuration: str | None) -> Path:
    """Return the folder of a data set's files, from the cache or, where it lacks them, from the hub.

    Raises:
        DataError: They are neither in the cache nor on the hub.
    """
    return hub.fetch_data_set(Repository(id, "dataset"), configuration)


def embedded_task(name: str) -> list[dict[str, Any]]:
    """Return the rows of a reasoning task on the embedded corpus, in the schema of the hub's data set of that name."""
    return reasoning_rows(name)
