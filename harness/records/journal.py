"""The journal of a sweep: one append-only file of checksummed JSON lines for each trial.

Each line ends in its checksum and is synced, so after a crash a broken line is recognised and its work done again.
In a measurement's `numbers` NaN is `null`; elsewhere `null` is None and NaN is `{"float": "nan"}`. Infinity is
`{"float": "inf"}` or `{"float": "-inf"}` in both.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.base.files import append_line, digest_of, locked, read_file, remove, write_whole
from harness.base.messages import MAX_CHARACTERS, storable
from harness.contracts import Json
from harness.errors import DataError, PluginError, StorageError
from harness.records.items import MetricItems, is_intact, items_file, read_items, write_items
from harness.records.record import AT_FORMAT, KINDS, Measurement, Record
from harness.settings import Plan

_LOG = logging.getLogger(__name__)
_CHECKSUM_DIGITS = 16


class Journal:
    """The records of one sweep, in `results/<sweep>/journal`.

    Several trials may be written at once, by several processes or threads; one trial has one writer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plan = folder / "plan.json"
        self._warned: set[str] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the sweep until the block or the process ends.

        Raises:
            DataError: Another run has the lock.
        """
        results = self.folder.parent
        busy = f"another run of this sweep is writing to {results}. Wait until it ends, or stop it: "
        with locked(self.folder / ".in-use", wait=0, busy=f"{busy}what it has measured is kept."):
            yield

    def append(self, record: Record) -> None:
        """Append `record` with the time to its trial's file, and sync it to disk; texts pass through `storable`.

        Raises:
            PluginError: The record contains a value that JSON cannot, such as an array in a method's notes.
            StorageError: It cannot be written; the file is unchanged.
        """
        dated = replace(record, at=datetime.now(UTC).strftime(AT_FORMAT))
        append_line(self._path(record.trial_id), _line_of(dated), "the journal's next line")

    def append_measurement(self, measurement: Measurement, items: dict[str, MetricItems]) -> None:
        """Write the items, then append the measurement with the digest of their file."""
        file = self._items_file(measurement)
        digest = write_items(file, items)
        try:
            self.append(replace(measurement, items=digest))
        except StorageError:
            remove(file)
            raise

    def items(self, measurement: Measurement) -> dict[str, MetricItems]:
        """Return a measurement's items by metric; empty if it has none.

        Raises:
            DataError: The file is missing or damaged.
        """
        return read_items(self._items_file(measurement), measurement.items) if measurement.items else {}

    def _items_file(self, measurement: Measurement) -> Path:
        return items_file(self.folder.parent, measurement.point_id, measurement.key)

    def read(self, trial_id: str) -> list[Record]:
        """Return a trial's records, oldest first; none if it was never started.

        Broken lines and measurements without intact items are left out with a warning. An interrupted write breaks
        only the last line, which gets none.

        Raises:
            DataError: It cannot be read, or an intact line is no record of this version.
        """
        path = self._path(trial_id)
        try:
            lines = read_file(path, "a trial's journal").rstrip(b"\n").split(b"\n")
        except FileNotFoundError:
            return []
        records = []
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
        plain: dict[str, Json] = _encode(plan.model_dump(mode="json"), "plan", str)
        text = json.dumps({**plain, "checksum": digest_of(plain)}, indent=1, allow_nan=False) + "\n"
        write_whole(self._plan, text, "the plan", durable=True)

    def read_plan(self) -> Plan:
        """Return the plan of the last run.

        Raises:
            DataError: `plan.json` is missing or damaged.
        """
        try:
            plain = json.loads(read_file(self._plan, "a sweep's plan"))
            if plain.pop("checksum") != digest_of(plain):
                raise ValueError("its checksum is of another content")
            return Plan.model_validate(_decode(plain, str), strict=False)
        except FileNotFoundError:
            raise DataError(f"there is no {self._plan}. Run the sweep first: python -m harness.sweep FILE.") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{self._plan} is damaged, or not a plan of this version of Lethe ({type(error).__name__}: "
                f"{storable(str(error), 1000)}). Run the sweep again: it writes a new one, and keeps what is measured."
            ) from error

    def _path(self, trial_id: str) -> Path:
        return self.folder / f"{trial_id}.jsonl"

    def _warn(self, problem: str) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            _LOG.warning("%s", problem)


def _line_of(record: Record) -> bytes:
    kind = type(record).__name__.lower()
    body: dict[str, Json] = {"kind": kind}
    for name in (field.name for field in fields(record)):
        encode = _encode_numbers if (kind, name) == ("measurement", "numbers") else _encode
        body[name] = encode(getattr(record, name), f"{kind}.{name}")
    text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    return text[:-1] + _tail(text) + b"\n"


def _tail(text: bytes) -> bytes:
    checksum = hashlib.sha256(text).hexdigest()[:_CHECKSUM_DIGITS]
    return f',"checksum":"{checksum}"}}'.encode()


_TAIL_BYTES = len(_tail(b""))


def _record_of(line: bytes) -> Record | None:
    """Return the record of a line; None if its checksum differs."""
    text = line[:-_TAIL_BYTES] + b"}"
    if line[-_TAIL_BYTES:] != _tail(text):
        return None
    values = json.loads(text) if _is_plain(text) else _decode(json.loads(text))
    for name in {"metrics", "samples", "log", "probes", "worker_nodes"} & values.keys():
        values[name] = tuple(values[name])
    if "numbers" in values:
        values["numbers"] = {name: math.nan if value is None else value for name, value in values["numbers"].items()}
    return KINDS[values.pop("kind")](**values)


def _is_plain(text: bytes) -> bool:
    """Return True if `_decode` would change nothing: decoding a large journal is slow."""
    return len(text) <= MAX_CHARACTERS and text.isascii() and b"\\u" not in text and b'"float"' not in text


def _encode(value: Any, path: str, text: Callable[[str], str] = storable) -> Json:
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, Mapping):
        encoded = {}
        for key, item in value.items():
            name = text(str(key))
            encoded[name] = _encode(item, f"{path}.{name}", text)
        return encoded
    if isinstance(value, list | tuple):
        return [_encode(item, f"{path}[{index}]", text) for index, item in enumerate(value)]
    raise PluginError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which the journal cannot hold. "
        "Allowed: str, int, float, bool, None, and lists and dictionaries of these."
    )


def _encode_numbers(numbers: Mapping[str, float], path: str) -> Json:
    encoded: dict[str, Json] = {}
    for name, value in numbers.items():
        number = float(value)
        encoded[name] = None if math.isnan(number) else _encode(number, path)
    return encoded


def _decode(value: Json, text: Callable[[str], str] = storable) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and value.get("float") in ("nan", "inf", "-inf"):
            return float(value["float"])
        return {text(name): _decode(item, text) for name, item in value.items()}
    if isinstance(value, list):
        return [_decode(item, text) for item in value]
    return text(value) if isinstance(value, str) else value
