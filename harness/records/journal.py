"""The journal of a sweep: one append-only file of checksummed JSON lines for each trial.

Each line ends in its checksum and is synced, so after a crash a broken line is recognised and its work done again.
In a measurement's `numbers` NaN is `null`; elsewhere `null` is None and NaN is `{"float": "nan"}`. Infinity is
`{"float": "inf"}` or `{"float": "-inf"}` in both.
"""

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.base import files, messages
from harness.contracts import Json
from harness.errors import DataError, PluginError
from harness.records.items import MetricItems, is_intact, items_file, read_items, write_items
from harness.records.record import AT_FORMAT, KINDS, Measurement, Record
from harness.settings import Plan

_LOG = logging.getLogger(__name__)
_TAIL_BYTES = len(',"checksum":"0123456789abcdef"}')


class Journal:
    """The records of one sweep, in `results/<sweep>/journal`.

    Several trials may be written at once, by several processes or threads; one trial has one writer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plan = folder / "plan.json"
        self._warned: set[str] = set()

    def held(self) -> AbstractContextManager[None]:
        """Lock the sweep until the block or the process ends."""
        results = self.folder.parent
        busy = f"another run of this sweep is writing to {results}. Wait until it ends, or stop it: "
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
                    "version that wrote it, or remove that line: what it recorded is done again."
                ) from None
            if isinstance(record, Measurement) and record.items:
                file = self._items_file(record)
                if not is_intact(file, record.items):
                    self._warn(f"{file} is missing or damaged: what it belongs to is measured again.")
                    continue
            if record is not None:
                records.append(record)
            elif line and number != len(lines):
                self._warn(f"{path}, line {number} is broken and left out: what it recorded is done again.")
        return records

    def write_plan(self, plan: Plan) -> None:
        """Replace `plan.json` atomically."""
        plain = plan.model_dump(mode="json")
        text = json.dumps({**plain, "checksum": files.digest_of(plain)}, indent=1, allow_nan=False) + "\n"
        files.write_whole(self._plan, text, "the plan", durable=True)

    def read_plan(self) -> Plan:
        """Return the plan of the last run."""
        try:
            plain = json.loads(self._plan.read_bytes())
            if plain.pop("checksum") != files.digest_of(plain):
                raise ValueError("its checksum is of another content")
            return Plan.model_validate(plain, strict=False)
        except FileNotFoundError:
            raise DataError(f"there is no {self._plan}. Run the sweep first: python -m harness.sweep FILE.") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self._plan} is damaged, or not a plan of this version of Lethe "
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
    record: Record = KINDS[values.pop("kind")](**values)
    return record


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
    is_number = len(value) == 1 and value.get("float") in ("nan", "inf", "-inf")
    return float(value["float"]) if is_number else value
