"""The records of a trial: one line each in the journal."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, get_args

from harness.base.messages import reason
from harness.contracts import Json, Number

AT_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
DIRTY = "-dirty"
"""Suffix of a commit whose files had uncommitted changes."""


def parse_time(at: str) -> datetime:
    """Parse a record's `at`.

    Raises:
        ValueError: Not in `AT_FORMAT`.

    Example:
        >>> parse_time("2026-02-03T04:05:06Z").isoformat()
        '2026-02-03T04:05:06+00:00'
    """
    return datetime.strptime(at, AT_FORMAT).replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Journaled:
    """The fields that all records share."""

    at: str | None = field(default=None, repr=False, compare=False)
    """Time at which the journal wrote the line, UTC in `AT_FORMAT`; None until then."""
    trial_id: str
    """A trial's, or a study's."""


@dataclass(frozen=True, kw_only=True)
class Measurement(Journaled):
    """One evaluator's numbers on one point: the unit of work that is never repeated."""

    point_id: str
    strength: Number | None
    evaluator: str
    key: str
    """`EvaluatorSpec.key`: with the point's id it identifies the measurement."""
    definition: str
    numbers: Mapping[str, float]
    metrics: tuple[Mapping[str, Json], ...]
    """The declared `Metric`s: tables need no plugin."""
    samples: tuple[Mapping[str, str], ...]
    notes: Mapping[str, Json]
    seconds: float
    code: str = ""
    """Digest of the evaluator's code."""
    items: str = ""
    """Digest of the file of item values; '' where the evaluator reports no items."""


@dataclass(frozen=True, kw_only=True)
class Point(Journaled):
    """One erased model of a trial, before it is measured."""

    point_id: str
    strength: Number | None
    erase_seconds: float
    """Seconds since the trial's start, so a cumulative trial's later points include the earlier ones."""
    peak_memory_bytes: int | None
    """Peak GPU memory of erasing so far, in the worker with the highest peak; None on a CPU."""
    notes: Mapping[str, Json]
    code: str = ""
    """Digest of the method's code; '' for a reference row."""
    worker_nodes: tuple[str, ...] = ()
    """`Started.node` of each worker; empty where the trial's own process erased."""
    is_pair: bool = False
    """Whether it is two models that decode together, which cannot be kept."""


@dataclass(frozen=True, kw_only=True)
class Walked(Journaled):
    """The end of a walked trial's search for its strength, which is never repeated."""

    level: float
    strength: Number | None
    """None: no strength reached the level."""
    reached: bool
    nearest: Mapping[str, Json]
    """Probe whose MA is nearest to the level: `strength`, `ma` and `perplexity`."""
    probes: tuple[Mapping[str, Json], ...]
    """All probes in order."""
    reason: str = ""
    """Reason why the level was not reached."""


WHOLE, COLLAPSED, PAST, STOPPED = "whole", "collapsed", "past every target", "stopped early"
ENDS = (WHOLE, COLLAPSED, PAST, STOPPED)
"""Ends of a candidate's trajectory: at its last strength, at utility out of bounds, after the last target, or at an
early stop of the training."""


@dataclass(frozen=True, kw_only=True)
class Candidate(Journaled):
    """One candidate of a study: its settings and probes."""

    number: int
    """0: the method's defaults; the sampler suggests the others from the candidates before them."""
    settings: Mapping[str, Json]
    """A value for each dimension of the study's space; a cumulative strength has the trajectory's last."""
    probes: tuple[Mapping[str, Json], ...]
    """By rising `strength`: the targets' metrics, the utility, and `optimiser_steps` so far."""
    targets: Mapping[str, float]
    """Number of each level by its key."""
    original: Mapping[str, float]
    """The original's probe."""
    end: str
    """One of `ENDS`, or the error of a failed candidate."""
    seconds: float
    """Time of erasing and probing, without work that candidates share."""

    @property
    def error(self) -> str | None:
        """Return the error, if it failed; probes before it count all the same."""
        return None if self.end in ENDS else self.end


@dataclass(frozen=True, kw_only=True)
class Stopped(Journaled):
    """A trajectory that ended early; its later strengths are never tried."""

    strength: Number
    reason: str


@dataclass(frozen=True, kw_only=True)
class Failed(Journaled):
    """A trial that raised."""

    error: str
    """Exception type and message, without texts of the forget set."""
    log: tuple[str, ...]
    """Last lines of the traceback."""

    @property
    def reason(self) -> str:
        """Return the error for people."""
        return reason(self.error)


@dataclass(frozen=True, kw_only=True)
class Started(Journaled):
    """The first record of each attempt at a trial."""

    spec: Mapping[str, Json]
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    """Processor, instructions, cores, memory and GPU."""
    commit: str = ""
    """`own_commit()` at that time."""
    node: str = ""
    """Host name and, on a cluster, address: `gpu-3 (10.0.0.7)`."""


Record = Started | Walked | Point | Measurement | Candidate | Stopped | Failed
KINDS: dict[str, Any] = {kind.__name__.lower(): kind for kind in get_args(Record)}


@cache
def own_commit() -> str:
    """Return Lethe's commit, with `-dirty` where files differ from it; '' if installed from a package."""
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


def erased_key(point_id: str, code: str) -> str:
    """Return the artifact name of an erased model, which depends on the digest of the method's code."""
    return f"{point_id}-{code}" if code else point_id


def cpu_kind(hardware: Mapping[str, str]) -> str:
    """Return a machine's processor, which decides the last digits of trained weights; '' if unknown.

    Example:
        >>> cpu_kind({"processor": "AMD EPYC", "instructions": "AVX512"}), cpu_kind({"processor": "AMD EPYC"})
        ('AMD EPYC (AVX512)', 'AMD EPYC')
    """
    instructions = hardware.get("instructions", "")
    return hardware.get("processor", "") + (f" ({instructions})" if instructions else "")
