"""What an MLflow run is to hold, as plain data, and at which steps its metrics are."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Literal

from harness.base.digests import digest_of
from harness.contracts import Number
from harness.records.record import DIRTY
from harness.specs import Source, TrialSpec

Metrics = dict[tuple[str, int], float]
"""By name and step."""
RunStatus = Literal["FINISHED", "FAILED", "RUNNING", "KILLED"]

_COSTS = ("erase_seconds", "peak_memory_bytes", "measure_seconds", "resources/")
"""Metrics that differ each time a point is made; the others are decided by its identity."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """When a run was, as far as the journal says."""

    started: datetime | None = None
    ended: datetime | None = None
    """Both None of what was journaled before times were kept."""
    seconds: float = 0.0
    """What erasing and measuring took; known of all."""

    @classmethod
    def around(cls, spans: Sequence[Span]) -> Span:
        """Return the span from the first start to the last end of these."""
        return cls(
            started=min((span.started for span in spans if span.started), default=None),
            ended=max((span.ended for span in spans if span.ended), default=None),
            seconds=sum(span.seconds for span in spans),
        )


@dataclass(frozen=True)
class DataSet:
    """Texts, as MLflow names them."""

    name: str
    digest: str

    @classmethod
    def of(cls, role: str, texts: Source) -> DataSet:
        """Return the data set that texts are in a role: without their path, and with as much digest as MLflow takes."""
        half = "" if texts.half == "all" else f" ({texts.half} half)"
        return cls(f"{role}{half}: {texts.source}", texts.digest[:36] or "none")


@dataclass(frozen=True)
class KeptModel:
    """What MLflow's logged model of a point is to hold besides its run's params, numbers and tags."""

    name: str
    tags: Mapping[str, str]
    data_sets: Mapping[str, DataSet]
    """What each group of metrics was measured on."""


@dataclass(frozen=True)
class RunContent:
    """What one run is to hold."""

    key: str
    """Names it among all runs of its sweep."""
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Metrics
    """All are finite."""
    status: RunStatus
    span: Span
    spec: TrialSpec | None = None
    """Whose data sets are logged with it."""
    model: KeptModel | None = None
    """Of a point whose erased model was kept."""

    @property
    def numbers_digest(self) -> str:
        """Return what names these numbers: a run that has them all says so in a tag."""
        return digest_of(sorted([name, step, value] for (name, step), value in self.metrics.items()))


@cache
def own_commit() -> str:
    """Return Lethe's own commit, with `-dirty` where files differ from it; '' if it was installed from a package."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    command = ["git", "--no-optional-locks", "-C", str(root), *describe]  # Other workers ask at the same time.
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def commit_tag(commit: str | None = None) -> dict[str, str]:
    """Return a commit of Lethe as a tag, by default its own; nothing where there is none."""
    known = (own_commit() if commit is None else commit).removesuffix(DIRTY)
    return {"mlflow.source.git.commit": known} if known else {}


def source_tags(sweep: str, commit: str | None = None) -> dict[str, str]:
    """Return what MLflow's column *Source* shows: the sweep that a run is of, and a commit of Lethe."""
    return {"mlflow.source.name": f"sweep {sweep}", "mlflow.source.type": "LOCAL", **commit_tag(commit)}


def steps_of(strengths: Sequence[Number | None]) -> dict[Number | None, int]:
    """Return each strength's step: itself where all are whole (epochs), else its place among them.

    Example:
        >>> steps_of((1, 2, 4)), steps_of((0.5, 1, 1.5)), steps_of((None,))
        ({1: 1, 2: 2, 4: 4}, {0.5: 0, 1: 1, 1.5: 2}, {None: 0})
    """
    whole: dict[Number | None, int] = {strength: strength for strength in strengths if isinstance(strength, int)}
    return whole if len(whole) == len(strengths) else {strength: step for step, strength in enumerate(strengths)}


def contradicts(held: Metrics, wanted: Metrics) -> bool:
    """Return whether a number that MLflow holds is not the one that the journal holds."""
    return any(held.get(key, value) != value for key, value in wanted.items() if not key[0].startswith(_COSTS))


def legal(name: str) -> str:
    """Return `name` with what MLflow refuses in a key replaced."""
    return re.sub(r"[^\w\-./: ]", "_", name)
