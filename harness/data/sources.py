"""Sources: rows of texts, or of token ids, in order, and read no further than they are used.

What is wrong with a single row is reported with its number and never with its text: it may be the
forget set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.data.paths import (
    ARRAY_FILE,
    CHALLENGE_FILES,
    SOURCE_SETTINGS,
    TEXT_FILE,
    challenge_files,
    existing_file,
)
from harness.errors import DataError, unknown
from harness.hub import Repository, fetch_data_set
from harness.miniature import corpus
from harness.specs import Source

Role = Literal["forget", "holdout", "retain", "utility", "validation"]
AS_THEY_STAND: tuple[Role, ...] = ("forget", "holdout")
"""Roles of which every row is used; of the others, the first ones that are long enough."""


@dataclass(frozen=True)
class TextRow:
    """One text, or why it cannot be used."""

    where: str
    """`line 12`, as an editor counts, or `row 11`, as an array or data set counts."""
    text: str = ""
    problem: str = ""


def source_label(source: Source, role: Role) -> str:
    """Return what to call these texts in a message: the file's name, or whose texts they are."""
    return source.path or f"the miniature's {role} texts"


def texts(source: Source, role: Role) -> Iterator[TextRow]:
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
    raise DataError(unknown("source of texts", source.source, SOURCE_SETTINGS))


def token_ids(source: Source) -> np.ndarray:
    """Return the array of token ids from row `source.start` on: integers, rows by tokens, on disk if it can be.

    It ends with the last row that is used, unless those are a sample.

    Raises:
        DataError: There is nothing to read, or it is not a two-dimensional array of integers.
    """
    is_whole = source.sequences is None or source.sample_seed is not None
    stop = None if is_whole else source.start + (source.sequences or 0)
    if source.source == "npy":
        parts = [_array(existing_file(source.path, ARRAY_FILE))]
    else:
        parts = [_array(file) for file in challenge_files(source.path)]
    counts = {len(part) for part in parts}
    if len(counts) > 1:
        raise DataError(
            f"{source.path}: the parts have different numbers of rows ({', '.join(map(str, sorted(counts)))}). "
            f"{', '.join(CHALLENGE_FILES)} must be of the same set."
        )
    rows = [part[source.start : stop] for part in parts]
    return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)


def _array(file: Path) -> np.ndarray:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(
            f"{file} is not a .npy array that can be read: empty, cut short, another format, or Python objects."
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(f"{file} is an archive of arrays (.npz); save the one array of token ids with np.save.")
    if array.ndim != 2:
        raise DataError(
            f"{file} has {array.ndim} dimension{'s' * (array.ndim != 1)} (shape {array.shape}); "
            "an array of token ids has two: sequences by tokens."
        )
    if not np.issubdtype(array.dtype, np.integer):
        is_float = np.issubdtype(array.dtype, np.floating)
        bad = np.flatnonzero(~np.isfinite(array).all(axis=1)).tolist() if is_float else []
        not_finite = f" (row {bad[0]} holds NaN or infinity)" if bad else ""
        raise DataError(
            f"{file} holds {array.dtype}, and token ids are integers{not_finite}. "
            "Save it with .astype(np.uint16) or int32."
        )
    return array


def _miniature(source: Source, role: Role) -> Iterator[TextRow]:
    makers = {
        "forget": corpus.forget_records,
        "holdout": corpus.unseen_records,
        "retain": corpus.retain_documents,
        "utility": corpus.utility_documents,
        "validation": corpus.validation_documents,
    }
    for number, text in enumerate(makers[role]()[source.start :], source.start):
        yield TextRow(f"row {number}", text)


def _jsonl(file: Path, source: Source) -> Iterator[TextRow]:
    with file.open("rb") as stream:
        for number, line in enumerate(islice(stream, source.start, None), source.start + 1):
            yield _json_row(f"line {number}", line, source.field)


def _json_row(where: str, line: bytes, field: str) -> TextRow:
    if not line.strip():
        return TextRow(where, problem="is empty")
    try:
        # utf-8-sig: a file saved on Windows may begin with a byte order mark.
        value = json.loads(line.rstrip().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return TextRow(where, problem=f"is not UTF-8 (byte {error.start + 1})")
    except json.JSONDecodeError as error:
        problem = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        return TextRow(where, problem=f"is not valid JSON ({problem})")
    except (ValueError, RecursionError):
        return TextRow(where, problem="is not JSON that can be read (too deep, or a number too long)")
    if not isinstance(value, dict):
        return TextRow(where, problem='is not an object {"' + field + '": ...}')
    return _text_row(where, value, field)


def _text_row(where: str, values: Mapping[str, Any], field: str) -> TextRow:
    if field not in values:
        # Only what looks like a field's name is shown: a mangled row may have text for keys.
        others = [key for key in values if key.isidentifier() and len(key) <= 30]
        return TextRow(where, problem=f"has no field '{field}'" + (f" (it has {', '.join(others)})" if others else ""))
    text = values[field]
    if not isinstance(text, str):
        return TextRow(where, problem=f"has a '{field}' that is not text")
    try:
        text.encode()
    except UnicodeEncodeError:
        return TextRow(where, problem=f"has a '{field}' with half of a surrogate pair, which is no character")
    return TextRow(where, text)


def _hub(source: Source) -> Iterator[TextRow]:
    path = source.path or ""
    local = Path(path).expanduser()
    if not local.is_dir():
        local = fetch_data_set(Repository(path, "dataset"), source.name)
    import datasets

    inner = local / (source.name or "")
    folder, name = (inner, None) if inner.is_dir() else (local, source.name)
    try:
        # Streaming reads no more than is used, and leaves no copy in the cache.
        loaded = datasets.load_dataset(str(folder), name, split=source.split, streaming=True)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:300]
        raise DataError(f"the data set '{path}' cannot be loaded: {type(error).__name__}: {reason}") from error
    try:
        for number, row in enumerate(loaded.skip(source.start), source.start):
            yield _text_row(f"row {number}", row, source.field)
    except (ValueError, OSError) as error:
        # The message is withheld: a reader's message may quote what it could not parse.
        raise DataError(
            f"the data set '{source.path}' cannot be read: {type(error).__name__}. "
            "Its files must be parquet or JSON lines."
        ) from error
