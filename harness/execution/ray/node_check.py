"""Checks that a node of a cluster has the sweep's folders, and the same inputs as the driver.

The driver leaves a marker, a small file, in the results and in the artifacts folder. A node that reads it there has
the same folders, and answers with a file beside it, which the driver then sees. The markers stay while the sweep runs:
nodes may join later.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from harness.base.files import remove, write_whole
from harness.errors import StorageError
from harness.execution.environment import input_differences, inputs_of
from harness.execution.job import Folders, NodeMarker
from harness.specs import TrialSpec

_WHAT = "the file by which a cluster's nodes know the folder"
_SHARE = "put it on a path that all nodes share (--results names one)"
_CHECKED: set[str] = set()
"""Markers of folders that this process has checked."""


@contextmanager
def marked(folders: Folders, specs: Sequence[TrialSpec]) -> Iterator[Folders]:
    """Keep markers in both folders meanwhile; the value has what nodes are checked against.

    Raises:
        StorageError: A folder cannot be written.
    """
    name = f"{secrets.token_hex(8)}.{folders.results.name}"
    made = [folder for folder in _both(folders).values() if not folder.exists()]
    try:
        for folder in _both(folders).values():
            _remove_markers(folder, folders.results.name)  # A killed driver of this sweep may have left some.
            write_whole(folder / _file(name), name, _WHAT)
        yield replace(folders, marker=NodeMarker(name, inputs_of(specs)))
    finally:
        for folder in _both(folders).values():
            _remove_markers(folder, folders.results.name)
        for folder in made:
            with suppress(OSError):  # It is in use by now.
                folder.rmdir()


def node_faults(folders: Folders, node: str) -> list[str]:
    """Return, on a node, how it differs from the driver, as clauses; answer in the folders that are the same.

    Args:
        folders: As `marked` made them.
        node: The node's id, in hexadecimal digits.
    """
    marker, clauses = folders.marker, []
    assert marker is not None
    for what, folder in _both(folders).items():
        try:
            is_same = (folder / _file(marker.name)).read_text() == marker.name
        except OSError:
            is_same = False
        if not is_same:
            clauses.append(f"does not see the sweep's {what} folder at {folder}: {_SHARE}")
            continue
        try:
            write_whole(folder / _file(marker.name, node), node, _WHAT)
        except StorageError as error:
            clauses.append(f"cannot write into the sweep's {what} folder: {str(error).rstrip('.')}")
    return clauses + input_differences(marker.inputs, marker.inputs.like())


def unanswered(folders: Folders, node: str) -> list[str]:
    """Return, as clauses, the folders in which a node's answer did not arrive; remove the answers that did."""
    marker, clauses = folders.marker, []
    assert marker is not None
    for what, folder in _both(folders).items():
        answer = folder / _file(marker.name, node)
        if not answer.is_file():
            clauses.append(f"writes to {folder}, and the driver sees nothing of it: {_SHARE}, the {what} folder")
        remove(answer)
    return clauses


def refusal(folders: Folders, node: str, label: str) -> str:
    """Return, on a node where a job is to start, why it must not: a sentence, '' if it may.

    A process checks once. On one machine there is no marker, and nothing to check.

    Args:
        folders: Of the sweep.
        node: The node's id.
        label: The name of the node in the sentence.
    """
    if folders.marker is None or folders.marker.name in _CHECKED:
        return ""
    process = f"{node}{secrets.token_hex(4)}"
    clauses = node_faults(folders, process) or unanswered(folders, process)
    if not clauses:
        _CHECKED.add(folders.marker.name)
    return f"NodeError: {label} {'; it '.join(clauses)}." if clauses else ""


def _both(folders: Folders) -> dict[str, Path]:
    return {"results": folders.results, "artifacts": folders.artifacts}


def _file(name: str, node: str = "") -> str:
    nonce, _, sweep = name.partition(".")
    return f".cluster-{nonce}{'-' * bool(node)}{node}.{sweep}"


def _remove_markers(folder: Path, sweep: str) -> None:
    ours = re.compile(rf"\.cluster-[0-9a-f-]+\.{re.escape(sweep)}")
    for file in folder.glob(".cluster-*"):
        if ours.fullmatch(file.name):
            remove(file)
