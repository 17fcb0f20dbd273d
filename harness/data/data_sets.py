"""A data set's folder, its own or the hub's, to rows of texts: JSON lines are read here, parquet by `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.base.paths import path_of
from harness.data.json_lines import EMPTY, MOST_LINE_BYTES, TextRow, json_rows, text_row
from harness.errors import DataError
from harness.specs import Source

READ = ("Json", "Parquet")
"""The builders of `datasets` that are used: others read formats that are no texts, some of which can hold programs."""
MOST_ROW_GROUP_BYTES = 2**30
MOST_BLANK_LINES = 1000
"""Blank lines of a data set that are skipped; further ones count as rows without a text."""


def data_set_rows(folder: Path, source: Source) -> Iterator[TextRow]:
    """Yield a data set's texts from `source.start` on; an unusable row says so.

    Raises:
        DataError: It has no such configuration or split, or its files cannot be read.
    """
    inner = path_of(folder / (source.name or "."))
    folder, name = (inner, None) if inner.is_dir() else (folder, source.name)
    files = _files_of_lines(folder, name, source)
    if not files:
        yield from _of_others(folder, name, source)
    number = blanks = 0
    for file in files:
        for row in json_rows(file, 0, source.field):
            if row.problem == EMPTY and blanks < MOST_BLANK_LINES:
                blanks += 1
                continue
            if number >= source.start:
                yield replace(row, where=f"row {number}")
            number += 1


def _files_of_lines(folder: Path, name: str | None, source: Source) -> list[Path]:
    """Return the files of the split where they are JSON lines; none where they are something else.

    Raises:
        DataError: There is no such split, or one of the files would be decompressed without a limit.
    """
    import datasets

    try:
        builder = datasets.load_dataset_builder(str(folder), name)
        splits = {str(split): [Path(file) for file in files] for split, files in builder.config.data_files.items()}
    except Exception as error:
        raise _not_loaded(source, error) from error
    if source.split not in splits:
        known = ", ".join(splits)
        raise DataError(f"the data set '{source.path}' has no split '{source.split}'. It has {known}.")
    kind = next((parent.__name__ for parent in type(builder).__mro__ if parent.__name__ in READ), "")
    files = splits[source.split]
    if kind == "Json":
        # One array, or one object over many lines, is not read line by line.
        first_rows = [next(json_rows(file, 0, ""), None) for file in files]
        if not any(row and row.problem.startswith("is not") for row in first_rows):
            return files
    for file in files:
        _check_size(file, kind)
    return []


def _check_size(file: Path, kind: str) -> None:
    """Refuse what would be read whole, or decompressed without bounds.

    Raises:
        DataError: It is another format than JSON or parquet, is compressed, or is too large.
    """
    from pyarrow import ArrowException, parquet

    if not kind or (kind == "Json" and file.suffix != ".json"):
        raise DataError(f"{file} is neither parquet nor JSON lines, plain or compressed by gzip: convert it.")
    if kind == "Json" and file.stat().st_size > MOST_LINE_BYTES:
        raise DataError(f"{file} is one JSON value of more than {MOST_LINE_BYTES:,} bytes: write it as JSON lines.")
    if kind == "Parquet":
        try:
            about = parquet.read_metadata(file)
        except (OSError, ArrowException) as error:
            raise DataError(f"{file} is not a complete parquet file ({type(error).__name__}).") from error
        if any(about.row_group(n).total_byte_size > MOST_ROW_GROUP_BYTES for n in range(about.num_row_groups)):
            raise DataError(f"{file} has a row group of more than {MOST_ROW_GROUP_BYTES:,} bytes: write smaller ones.")


def _of_others(folder: Path, name: str | None, source: Source) -> Iterator[TextRow]:
    import datasets

    try:
        # Streaming reads no more than is used, and leaves no copy in the cache.
        loaded: Any = datasets.load_dataset(str(folder), name, split=source.split, streaming=True)
    except Exception as error:
        raise _not_loaded(source, error) from error
    try:
        for number, row in enumerate(loaded.skip(source.start), source.start):
            yield text_row(f"row {number}", row, source.field)
    except Exception as error:  # The reader's own message is withheld, since it may quote what it could not parse.
        raise DataError(
            f"the data set '{source.path}' cannot be read: {type(error).__name__}. Its files must be parquet or JSON "
            "lines."
        ) from error


def _not_loaded(source: Source, error: Exception) -> DataError:
    reason = (str(error).splitlines() or [""])[0][:300]
    return DataError(f"the data set '{source.path}' cannot be loaded: {type(error).__name__}: {reason}")
