"""The journal of a sweep: one append-only file of checksummed JSON lines for each trial, and the records in it.

Each line ends in its checksum and is synced, so after a crash a broken line is recognised and its work done again.
In a measurement's `numbers` NaN is `null`; elsewhere `null` is None and NaN is `{"float": "nan"}`. Infinity is
`{"float": "inf"}` or `{"float": "-inf"}` in both.
"""

import hashlib
import json
import logging
import math
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, get_args

from harness.base import files, messages
from harness.contracts import Json, Number
from harness.errors import DataError, PluginError
from harness.records.items import MetricItems, is_intact, items_file, read_items, write_items
from harness.settings import Plan

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
    code: str = ""
    """As a `Point`'s."""
    seconds: float = field(default=math.nan, compare=False)


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
    code: str = ""
    """As a `Point`'s."""

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
        return messages.reason(self.error)


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
KINDS: dict[str, type[Record]] = {kind.__name__.lower(): kind for kind in get_args(Record)}


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


def cpu_kind(hardware: Mapping[str, str]) -> str:
    """Return a machine's processor, which decides the last digits of trained weights; '' if unknown.

    Example:
        >>> cpu_kind({"processor": "AMD EPYC", "instructions": "AVX512"}), cpu_kind({"processor": "AMD EPYC"})
        ('AMD EPYC (AVX512)', 'AMD EPYC')
    """
    instructions = hardware.get("instructions", "")
    return hardware.get("processor", "") + (f" ({instructions})" if instructions else "")


_LOG = logging.getLogger(__name__)
_TAIL_BYTES = len(',"checksum":"0123456789abcdef"}')


class Journal:
    """The records of one sweep, in `results/<sweep>/journal`.

    Several trials may be written at once, by several processes or threads; one trial has one writer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan_file = folder / "plan.json"
        self._warned: set[str] = set()

    def held(self) -> AbstractContextManager[None]:
        """Lock the sweep until the block or the process ends."""
        busy = f"another run of this sweep is writing to {self.folder.parent}. Wait until it ends, or stop it: "
        return files.locked(self.folder / ".in-use", wait=0, busy=f"{busy}what it has measured is kept.")

    def append(self, record: Record) -> None:
        """Append `record` with the time to its trial's file, and sync it to disk; texts pass through `storable`."""
        dated = replace(record, at=datetime.now(UTC).strftime(AT_FORMAT))
        files.append_line(self._path(record.trial_id), _line_of(dated), "the journal's next line")

    def append_measurement(self, measurement: Measurement, items: dict[str, MetricItems]) -> None:
        """Write the items, then append the measurement with the digest of their file."""
        self.append(replace(measurement, items=write_items(self._items_file(measurement), items)))

    def items(self, measurement: Measurement) -> dict[str, MetricItems]:
        """Return a measurement's items by metric; empty if it has none."""
        return read_items(self._items_file(measurement), measurement.items) if measurement.items else {}

    def _items_file(self, measurement: Measurement) -> Path:
        return items_file(self.folder.parent, measurement.point_id, measurement.key)

    def read(self, trial_id: str) -> list[Record]:
        """Return a trial's records, oldest first; none if it was never started.

        Broken lines and measurements without intact items are left out with a warning. An interrupted write breaks
        only the last line, which gets none.
        """
        path = self._path(trial_id)
        if not path.exists():
            return []
        lines, records = path.read_bytes().rstrip(b"\n").split(b"\n"), []
        for number, line in enumerate(lines, start=1):
            try:
                record = _record_of(line)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number} is whole, but no record of this version of Lethe ({error}). Use the "
                    "version that wrote it, or remove that line: its work is done again."
                ) from None
            if isinstance(record, Measurement) and record.items:
                file = self._items_file(record)
                if not is_intact(file, record.items):
                    self._warn(f"{file} is missing or damaged: its point is measured again.")
                    continue
            if record is not None:
                records.append(record)
            elif line and number != len(lines):
                self._warn(f"{path}, line {number} is broken and left out: its work is done again.")
        return records

    def write_plan(self, plan: Plan) -> None:
        """Replace `plan.json` atomically."""
        plain = plan.model_dump(mode="json")
        text = json.dumps({**plain, "checksum": files.digest_of(plain)}, indent=1, allow_nan=False) + "\n"
        files.write_whole(self.plan_file, text, "the plan", durable=True)

    def read_plan(self) -> Plan:
        """Return the plan of the last run."""
        try:
            plain = json.loads(self.plan_file.read_bytes())
            if plain.pop("checksum") != files.digest_of(plain):
                raise ValueError("its checksum is of another content")
            return Plan.model_validate(plain, strict=False)
        except FileNotFoundError:
            raise DataError(f"there is no {self.plan_file}. Run the sweep first: lethe sweep FILE.") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.plan_file} is damaged, or not a plan of this version of Lethe "
                f"({messages.storable(str(error), 1000)}). Run the sweep again: it writes a new one, and keeps what is "
                "measured."
            ) from error

    def _path(self, trial_id: str) -> Path:
        return self.folder / f"{trial_id}.jsonl"

    def _warn(self, problem: str) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            _LOG.warning("%s", problem)


def _line_of(record: Record) -> bytes:
    kind, values = type(record).__name__.lower(), {**vars(record)}
    if isinstance(record, Measurement):
        values["numbers"] = {name: None if math.isnan(value) else value for name, value in record.numbers.items()}
    text = json.dumps(_encode({"kind": kind, **values}, kind), separators=(",", ":"), allow_nan=False).encode()
    return text[:-1] + _tail(text) + b"\n"


def _tail(text: bytes) -> bytes:
    return f',"checksum":"{hashlib.sha256(text).hexdigest()[:16]}"}}'.encode()


def _record_of(line: bytes) -> Record | None:
    # A line whose checksum differs has none.
    text = line[:-_TAIL_BYTES] + b"}"
    if line[-_TAIL_BYTES:] != _tail(text):
        return None
    values = json.loads(text, object_hook=_decode)
    for name in {"metrics", "samples", "log", "probes", "worker_nodes"} & values.keys():
        values[name] = tuple(values[name])
    if "numbers" in values:
        values["numbers"] = {name: math.nan if value is None else value for name, value in values["numbers"].items()}
    return KINDS[values.pop("kind")](**values)


def _encode(value: Any, path: str) -> Json:
    if isinstance(value, str):
        return messages.storable(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, Mapping):
        return {messages.storable(str(key)): _encode(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise PluginError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which the journal cannot hold. "
        "Allowed: str, int, float, bool, None, and lists and dictionaries of these."
    )


def _decode(value: dict[str, Json]) -> Json:
    return float(value["float"]) if len(value) == 1 and value.get("float") in ("nan", "inf", "-inf") else value
