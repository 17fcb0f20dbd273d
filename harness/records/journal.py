"""What happened in a sweep: one append-only file of checksummed lines for each trial.

A record is one JSON line that ends in its own checksum, written at once and synced, so that after
a crash at any moment every line is either whole or recognised as broken, and its work done again.

This is the one place that turns numbers JSON does not know into JSON and back. In a measurement's
`numbers`, where every value is a float, NaN is `null`. Everywhere else `null` stays None and NaN
is `{"float": "nan"}`; infinity is `{"float": "inf"}` or `{"float": "-inf"}` in both.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from harness.contracts import Json, Number
from harness.errors import DataError, PluginError
from harness.specs import EvaluatorSpec, Failed, Measurement, Plan, Point, Record, Started, Stopped, TrialSpec

Status = Literal["done", "failed", "missing"]
Remaining = tuple[tuple[Number | None, tuple[EvaluatorSpec, ...]], ...]

_LOG = logging.getLogger(__name__)
_KINDS: dict[str, type[Record]] = {
    kind.__name__.lower(): kind for kind in (Started, Point, Measurement, Stopped, Failed)
}
_CHECKSUM_DIGITS = 16


class Journal:
    """The records of one sweep, in `results/<sweep>/journal`.

    Several trials may be written at once, by several processes or threads; one trial has one writer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plan = folder / "plan.json"
        self._warned: set[tuple[str, int]] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs of this sweep out until the block, or the process, ends.

        Raises:
            DataError: Another run holds it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".in-use").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(
                    f"another run of this sweep is writing to {self.folder.parent}. Wait until it ends, or stop it: "
                    "what it has measured is kept."
                ) from None
            yield

    def append(self, record: Record) -> None:
        """Write `record` at the end of its trial's file and return once it is on the disk.

        Raises:
            PluginError: The record holds something that JSON cannot, an array in a method's notes, say.
        """
        line = _line_of(record)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(record.trial_id)
        is_new = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            line = b"\n" + line if torn else line
            while line:  # One write, so that lines never mix; a second only after a short one, to raise why.
                line = line[os.write(file, line) :]
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            _sync_folder(self.folder)

    def read(self, trial_id: str) -> list[Record]:
        """Return a trial's records, oldest first; none if it was never started.

        A broken line is left out: what it recorded is done again. A warning names it, unless it is
        the last line, which is what any interrupted write leaves.
        """
        path = self._path(trial_id)
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        last = max((number for number, line in enumerate(lines, start=1) if line), default=0)
        records = []
        for number, line in enumerate(lines, start=1):
            record = _record_of(line)
            if record is not None:
                records.append(record)
            elif line and number != last:
                self._warn(path, number)
        return records

    def trial_ids(self) -> tuple[str, ...]:
        """Return the ids of all trials that have records, sorted."""
        return tuple(sorted(path.stem for path in self.folder.glob("*.jsonl")))

    def write_plan(self, plan: Plan) -> None:
        """Write `plan.json` anew: whole, or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_encode(plan.to_json(), "plan"), indent=1, allow_nan=False) + "\n"
        temporary = self.folder / f".plan.{os.getpid()}.tmp"
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._plan)
        _sync_folder(self.folder)

    def read_plan(self) -> Plan:
        """Return the plan of the last run.

        Raises:
            DataError: There is no `plan.json`, or it is not one.
        """
        try:
            return Plan.from_json(_decode(json.loads(self._plan.read_bytes())))
        except FileNotFoundError:
            raise DataError(f"there is no {self._plan}. Run the sweep first: python -m harness.sweep FILE.") from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self._plan} is not a plan of this version of Lethe ({type(error).__name__}: "
                f"{error}). Run the sweep again: it writes a new one, and keeps what is measured."
            ) from error

    def _path(self, trial_id: str) -> Path:
        return self.folder / f"{trial_id}.jsonl"

    def _warn(self, path: Path, number: int) -> None:
        if (path.name, number) not in self._warned:
            self._warned.add((path.name, number))
            _LOG.warning("%s, line %d is broken and left out: what it recorded is done again.", path, number)


def measurements(records: Iterable[Record]) -> dict[tuple[str, str], Measurement]:
    """Return the measurements by point id and evaluator key; of duplicates, the last."""
    return {(each.point_id, each.key): each for each in records if isinstance(each, Measurement)}


def reachable(spec: TrialSpec, records: Iterable[Record]) -> tuple[Number | None, ...]:
    """Return the strengths that this trial has or will have a point at, rising.

    Nothing beyond the strength where a trajectory stopped is among them. That strength itself is,
    asked for or not, once the journal holds its model as a `Point`.
    """
    records = list(records)
    stops = [each.strength for each in records if isinstance(each, Stopped)]
    if not stops:
        return spec.points()
    stop = stops[-1]
    reached = tuple(each for each in spec.strengths if each <= stop)
    is_cut = len(reached) < len(spec.strengths)
    has_point = any(isinstance(each, Point) and each.strength == stop for each in records)
    return (*reached, stop) if is_cut and has_point and stop not in reached else reached


def remaining(spec: TrialSpec, records: Iterable[Record]) -> Remaining:
    """Return what is still to be measured: each reachable strength with the evaluators it lacks."""
    records = list(records)
    done = measurements(records)
    found = []
    for strength in reachable(spec, records):
        point = spec.point_id(strength)
        missing = tuple(each for each in spec.evaluators if (point, each.key) not in done)
        if missing:
            found.append((strength, missing))
    return tuple(found)


def status(spec: TrialSpec, records: Iterable[Record]) -> Status:
    """Return `done`, `failed` if the last attempt raised and something remains, else `missing`."""
    records = list(records)
    if not remaining(spec, records):
        return "done"
    attempts = [each for each in records if isinstance(each, Started | Failed)]
    return "failed" if attempts and isinstance(attempts[-1], Failed) else "missing"


def _line_of(record: Record) -> bytes:
    kind = type(record).__name__.lower()
    body: dict[str, Json] = {"kind": kind}
    for each in fields(record):
        value = getattr(record, each.name)
        encode = _encode_numbers if (kind, each.name) == ("measurement", "numbers") else _encode
        body[each.name] = encode(value, f"{kind}.{each.name}")
    text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    return text[:-1] + _tail(text) + b"\n"


def _tail(text: bytes) -> bytes:
    checksum = hashlib.sha256(text).hexdigest()[:_CHECKSUM_DIGITS]
    return f',"checksum":"{checksum}"}}'.encode()


_TAIL_BYTES = len(_tail(b""))


def _record_of(line: bytes) -> Record | None:
    """Return the record that `_line_of` wrote, or None if a byte differs or its fields are not ours."""
    text = line[:-_TAIL_BYTES] + b"}"
    if line[-_TAIL_BYTES:] != _tail(text):
        return None
    values: dict[str, Any] = _decode(json.loads(text))
    for name in {"metrics", "samples", "log"} & values.keys():
        values[name] = tuple(values[name])
    if "numbers" in values:
        numbers = values["numbers"].items()
        values["numbers"] = {name: math.nan if value is None else value for name, value in numbers}
    try:
        return _KINDS[values.pop("kind")](**values)
    except (KeyError, TypeError):  # another version's record
        return None


def _encode(value: Any, path: str) -> Json:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, Mapping):
        return {str(name): _encode(each, f"{path}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(each, f"{path}[{index}]") for index, each in enumerate(value)]
    raise PluginError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which the journal cannot hold. "
        "Allowed: str, int, float, bool, None, and lists and dictionaries of these."
    )


def _encode_numbers(numbers: Mapping[str, float], path: str) -> Json:
    values = {name: float(value) for name, value in numbers.items()}
    return {name: None if math.isnan(value) else _encode(value, path) for name, value in values.items()}


def _decode(value: Json) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and value.get("float") in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {name: _decode(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_decode(each) for each in value]
    return value


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
