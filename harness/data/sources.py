"""Sources of texts: their rows, in order, and read no further than they are used.

What is wrong with a single row is reported with its place and never with its text: it may be the
forget set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from harness.data.paths import SETTINGS, TEXT_FILE, existing_file
from harness.errors import DataError, unknown
from harness.hub import Repository, fetch_rows
from harness.miniature import corpus
from harness.specs import Source

Role = Literal["forget", "holdout", "retain", "utility", "validation"]
AS_THEY_STAND: tuple[Role, ...] = ("forget", "holdout")
"""Roles of which every row is used; of the others, the first ones that are long enough."""


@dataclass(frozen=True)
class Row:
    """One text, or why it cannot be used."""

    place: str
    """`line 12`, as an editor counts, or `row 11`, as an array or data set counts."""
    text: str = ""
    problem: str = ""


def named(source: Source, role: Role) -> str:
    """Return what to call these texts in a message: the file's name, or whose texts they are."""
    return source.path or f"the miniature's {role} texts"


def texts(source: Source, role: Role) -> Iterator[Row]:
    """Yield the rows from `source.start` on; unusable ones say so and the reading goes on.

    Raises:
        DataError: There is nothing to read.
    """
    if source.source == "miniature":
        return _miniature(source, role)
    if source.source == "jsonl":
        return _jsonl(existing_file(source.path, TEXT_FILE), source)
    if source.source == "hub":
        return _hub(source)
    raise DataError(unknown("source of texts", source.source, SETTINGS))


def _miniature(source: Source, role: Role) -> Iterator[Row]:
    makers = {
        "forget": corpus.forget_records,
        "holdout": corpus.unseen_records,
        "retain": corpus.retain_documents,
        "utility": corpus.utility_documents,
        "validation": corpus.validation_documents,
    }
    for number, text in enumerate(makers[role]()[source.start :], source.start):
        yield Row(f"row {number}", text)


def _jsonl(file: Path, source: Source) -> Iterator[Row]:
    with file.open("rb") as stream:
        for number, line in enumerate(islice(stream, source.start, None), source.start + 1):
            yield _json_row(f"line {number}", line, source.field)


def _json_row(place: str, line: bytes, field: str) -> Row:
    if not line.strip():
        return Row(place, problem="is empty")
    try:
        # utf-8-sig: a file saved on Windows may begin with a byte order mark.
        value = json.loads(line.rstrip().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return Row(place, problem=f"is not UTF-8 (byte {error.start + 1})")
    except json.JSONDecodeError as error:
        problem = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        return Row(place, problem=f"is not valid JSON ({problem})")
    except (ValueError, RecursionError):
        return Row(place, problem="is not JSON that can be read (too deep, or a number too long)")
    if not isinstance(value, dict):
        return Row(place, problem='is not an object {"' + field + '": ...}')
    return _text_row(place, value, field)


def _text_row(place: str, values: Mapping[str, Any], field: str) -> Row:
    if field not in values:
        # Only what looks like a field's name is shown: a mangled row may have text for keys.
        others = [key for key in values if key.isidentifier() and len(key) <= 30]
        return Row(place, problem=f"has no field '{field}'" + (f" (it has {', '.join(others)})" if others else ""))
    text = values[field]
    if not isinstance(text, str):
        return Row(place, problem=f"has a '{field}' that is not text")
    try:
        text.encode()
    except UnicodeEncodeError:
        return Row(place, problem=f"has a '{field}' with half of a surrogate pair, which is no character")
    return Row(place, text)


def _hub(source: Source) -> Iterator[Row]:
    path = source.path or ""
    local = Path(path).expanduser()
    if not local.is_dir():
        local = fetch_rows(Repository(path, "dataset"), source.name)
    import datasets

    inner = local / (source.name or "")
    folder, name = (inner, None) if inner.is_dir() else (local, source.name)
    try:
        # Streaming reads no more than is used, and leaves no copy in the cache.
        loaded = datasets.load_dataset(str(folder), name, split=source.split, streaming=True)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:300]
        raise DataError(f"the data set '{path}' cannot be loaded: {type(error).__name__}: {reason}") from error
    return _data_set_rows(loaded.skip(source.start), source)


def _data_set_rows(rows: Any, source: Source) -> Iterator[Row]:
    try:
        for number, row in enumerate(rows, source.start):
            yield _text_row(f"row {number}", row, source.field)
    except (ValueError, OSError) as error:
        # The message is withheld: a reader's message may quote what it could not parse.
        raise DataError(
            f"the data set '{source.path}' cannot be read: {type(error).__name__}. "
            "Its files must be parquet or JSON lines."
        ) from error
