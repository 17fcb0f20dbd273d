"""The records of what happened in a trial: what the journal holds, one a line."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from harness.base.messages import reason
from harness.contracts import Json, Number

AT_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
DIRTY = "-dirty"
"""What follows a commit where the files were not as it has them."""


def time_of(at: str) -> datetime:
    """Return the moment that a record's `at` names.

    Raises:
        ValueError: It is not of the form that the journal writes.

    Example:
        >>> time_of("2026-02-03T04:05:06Z").isoformat()
        '2026-02-03T04:05:06+00:00'
    """
    return datetime.strptime(at, AT_FORMAT).replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Journaled:
    """What every record has."""

    at: str | None = field(default=None, repr=False, compare=False)
    """When the journal wrote its line: UTC, ISO 8601, to the second; None until then."""


@dataclass(frozen=True, kw_only=True)
class Measurement(Journaled):
    """One evaluator's numbers on one point: the unit of work that is never done twice."""

    trial_id: str
    point_id: str
    strength: Number | None
    evaluator: str
    key: str
    """The evaluator spec's key: with the point's id, the measurement's identity."""
    definition: str
    numbers: Mapping[str, float]
    metrics: tuple[Mapping[str, Json], ...]
    """The declared `Metric`s, so that tables can be made without loading the plugin."""
    samples: tuple[Mapping[str, str], ...]
    notes: Mapping[str, Json]
    seconds: float
    code: str = ""
    """The digest of the evaluator's code."""
    items: str = ""
    """The digest of the file that holds what each item has; '' where the evaluator reports no items."""


@dataclass(frozen=True, kw_only=True)
class Point(Journaled):
    """One erased model of a trial, before any evaluator saw it."""

    trial_id: str
    point_id: str
    strength: Number | None
    erase_seconds: float
    """From the trial's start to this model: a cumulative trial's later points hold the earlier ones."""
    peak_memory_bytes: int | None
    """The most that erasing held of a GPU's memory up to here, of the worker that held most; None on a CPU."""
    notes: Mapping[str, Json]
    code: str = ""
    """The digest of the method's code; '' for a model that is measured as it is."""
    worker_nodes: tuple[str, ...] = ()
    """Where each worker that erased ran, as `Started.node`; empty where the trial's own process did."""


@dataclass(frozen=True, kw_only=True)
class Walked(Journaled):
    """The end of a walked trial's search for its strength; it is not searched again."""

    trial_id: str
    level: float
    """The level in numbers."""
    strength: Number | None
    """The strength that is at the level; None: none was found."""
    reached: bool
    nearest: Mapping[str, Json]
    """The probe whose MA is nearest to the level: `strength`, `ma` and `perplexity`."""
    probes: tuple[Mapping[str, Json], ...]
    """All probes, in the order in which they were made."""
    reason: str = ""
    """Why the level was not reached."""


WHOLE, COLLAPSED, PAST, STOPPED = "whole", "collapsed", "past every target", "stopped early"
ENDS = (WHOLE, COLLAPSED, PAST, STOPPED)
"""How a candidate's trajectory ends: at its last strength, where utility is out of bounds, where no target is left to
reach, or where the training itself stopped."""


@dataclass(frozen=True, kw_only=True)
class Candidate(Journaled):
    """One candidate of a study, whole: what was tried, and what its probes saw."""

    trial_id: str
    """The study's id."""
    number: int
    """0 is the method's defaults; the others follow from the candidates that were known when they were asked for."""
    settings: Mapping[str, Json]
    """A value for each dimension of the study's space; of a cumulative strength the last one of the trajectory."""
    probes: tuple[Mapping[str, Json], ...]
    """Rising: `strength`, the targets' metrics and the utility by name, and `optimiser_steps` so far."""
    targets: Mapping[str, float]
    """Each level in numbers, by its key."""
    original: Mapping[str, float]
    """The original's own probe."""
    end: str
    """Why the trajectory ended, one of `ENDS`; or the error of one that failed."""
    seconds: float
    """Of erasing and probing, without what candidates share."""

    @property
    def error(self) -> str | None:
        """Return how it failed, if it did; what its probes saw before that counts all the same."""
        return None if self.end in ENDS else self.end


@dataclass(frozen=True, kw_only=True)
class Stopped(Journaled):
    """A trajectory that ended early; its later strengths are never tried again."""

    trial_id: str
    strength: Number
    reason: str


@dataclass(frozen=True, kw_only=True)
class Failed(Journaled):
    """A trial that raised."""

    trial_id: str
    error: str
    """The exception's type and message, without any text of the forget set."""
    log: tuple[str, ...]
    """The last lines of the traceback."""

    @property
    def reason(self) -> str:
        """Return the error for people."""
        return reason(self.error)


@dataclass(frozen=True, kw_only=True)
class Started(Journaled):
    """A trial's first record: the spec itself, and the versions it ran with."""

    trial_id: str
    spec: Mapping[str, Json]
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    """The processor, its instructions and cores, the memory and the GPU."""
    commit: str = ""
    """Lethe's own, with `-dirty` where files differed from it; '' where it was installed from a package."""
    node: str = ""
    """The machine's host name and, on a cluster, its address: `gpu-3 (10.0.0.7)`."""


Record = Started | Walked | Point | Measurement | Candidate | Stopped | Failed
KINDS: dict[str, type[Record]] = {
    kind.__name__.lower(): kind for kind in (Started, Walked, Point, Measurement, Candidate, Stopped, Failed)
}


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


def kept_name(point_id: str, code: str) -> str:
    """Return the name under which an erased model is kept: a method's edited code makes another model."""
    return f"{point_id}-{code}" if code else point_id


def cpu_kind(hardware: Mapping[str, str]) -> str:
    """Return what a machine computes on, by which the last digits of what it trains are decided; '' if nobody knows.

    Example:
        >>> cpu_kind({"processor": "AMD EPYC", "instructions": "AVX512"}), cpu_kind({"processor": "AMD EPYC"})
        ('AMD EPYC (AVX512)', 'AMD EPYC')
    """
    instructions = hardware.get("instructions", "")
    return hardware.get("processor", "") + (f" ({instructions})" if instructions else "")
