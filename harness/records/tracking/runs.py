"""What an MLflow run is to hold, as plain data, and how that becomes metrics with steps."""

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
from harness.specs import TrialSpec

Numbers = dict[tuple[str, Number | None], float]
"""By name and strength."""
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
class RunContent:
    """What one run is to hold."""

    key: str
    """Names it among all runs of its sweep."""
    tags: Mapping[str, str]
    params: Mapping[str, str]
    numbers: Numbers
    """All are finite; of a point without strengths: its final numbers."""
    status: RunStatus
    span: Span
    spec: TrialSpec | None = None
    """Whose data sets are logged with it."""

    @property
    def numbers_digest(self) -> str:
        """Return what names these numbers: a run that has them all says so in a tag."""
        return digest_of(sorted([name, repr(strength), value] for (name, strength), value in self.numbers.items()))


@cache
def own_commit() -> str:
    """Return Lethe's own commit, with `-dirty` where files differ from it; '' if it was installed from a package."""
    root = Path(__file__).parents[2]
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


def metrics_of(numbers: Numbers, held: Metrics) -> Metrics:
    """Return numbers by step instead of strength; steps that a run holds already stay.

    A strength's step is itself if all are whole (epochs), else its rank in order of arrival.
    """
    strengths = list(dict.fromkeys(strength for _, strength in numbers))
    steps: dict[Number | None, int] = {strength: strength for strength in strengths if isinstance(strength, int)}
    if len(steps) < len(strengths):
        steps = {value: step for (name, step), value in held.items() if name == "strength"}
        for strength in strengths:
            steps.setdefault(strength, max(steps.values(), default=-1) + 1)
    return {(name, steps[strength]): value for (name, strength), value in numbers.items()}


def contradicts(held: Metrics, wanted: Metrics) -> bool:
    """Return whether a number that MLflow holds is not the one that the journal holds."""
    return any(held.get(key, value) != value for key, value in wanted.items() if not key[0].startswith(_COSTS))


def legal(name: str) -> str:
    """Return `name` with what MLflow refuses in a key replaced."""
    return re.sub(r"[^\w\-./: ]", "_", name)
