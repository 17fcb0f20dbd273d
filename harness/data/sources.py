"""Sources: rows of texts, or of token ids, in order, and read no further than they are used.

What is wrong with a single row is reported with its number and never with its text: it may be the
forget set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness import miniature
from harness.base.files import path_of
from harness.base.hub import Repository, fetch_data_set
from harness.data.json_lines import TextRow, json_rows, text_row
from harness.data.paths import ARRAY_FILE, CHALLENGE_FILES, SOURCE_SETTINGS, TEXT_FILE, challenge_files, existing_file
from harness.errors import DataError, unknown
from harness.specs import Source

Role = Literal["forget", "holdout", "retain", "utility", "validation"]
ROLES: tuple[Role, ...] = ("forget", "holdout", "retain", "utility", "validation")
AS_THEY_STAND: tuple[Role, ...] = ("forget", "holdout")
"""Roles of which every row is used; of the others, the first ones that are long enough."""


def source_label(source: Source, role: Role) -> str:
    """Return what to call these texts in a message: the file's name, or whose texts they are."""
    return source.path or f"the miniature's {role} texts"


def texts(source: Source, role: Role) -> Iterator[TextRow]:
    """Yield the rows from `source.start` on; unusable ones say so and the reading goes on.

    Raises:
        DataError: There is nothing to read.
    """
    if source.source == "miniature":
        used = miniature.texts(role)[source.start :]
        return (TextRow(f"row {number}", text) for number, text in enumerate(used, source.start))
    if source.source == "jsonl":
        return json_rows(existing_file(source.path, TEXT_FILE), source.start, source.field)
    if source.source == "hub":
        path = source.path or ""
        local = path_of(path)
        return data_set_rows(
            local if local.is_dir() else fetch_data_set(Repository(path, "dataset"), source.name), source
        )
    raise DataError(unknown("source of texts", source.source, SOURCE_SETTINGS))


def token_ids(source: Source) -> np.ndarray:
    """Return the array of token ids from row `source.start` on: integers, rows by tokens, on disk if it can be.

    It ends with the last row that is used, unless those are a sample.

    Raises:
        DataError: There is nothing to read, or it is not a two-dimensional array of integers.
    """
    is_whole = source.sequences is None or source.sample_seed is not None
    stop = None if is_whole else source.start + (source.sequences or 0)
    files = [existing_file(source.path, ARRAY_FILE)] if source.source == "npy" else challenge_files(source.path)
    parts = [_array_of_ids(file) for file in files]
    counts = {len(part) for part in parts}
    if len(counts) > 1:
        raise DataError(
            f"{source.path}: the parts have different numbers of rows ({', '.join(map(str, sorted(counts)))}). "
            f"{', '.join(CHALLENGE_FILES)} must be of the same set."
        )
    rows = [part[source.start : stop] for part in parts]
    return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)


def _array_of_ids(file: Path) -> np.ndarray:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # A header of nonsense makes numpy and its parser raise just about anything.
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
    if not array.size:
        raise DataError(f"{file} holds nothing (shape {array.shape}); an array of token ids has sequences by tokens.")
    if not np.issubdtype(array.dtype, np.integer):
        is_float = np.issubdtype(array.dtype, np.floating)
        bad = np.flatnonzero(~np.isfinite(array).all(axis=1)).tolist() if is_float else []
        not_finite = f" (row {bad[0]} holds NaN or infinity)" if bad else ""
        raise DataError(
            f"{file} holds {array.dtype}, and token ids are integers{not_finite}. "
            "Save it with .astype(np.uint16) or int32."
        )
    return array


READERS = ("Json", "Parquet")
"""The builders of `datasets` that are used: others read formats that are no texts, some of which can hold programs."""


def data_set_rows(folder: Path, source: Source) -> Iterator[TextRow]:
    """Yield a data set's texts from `source.start` on; an unusable row gives its reason.

    Raises:
        DataError: It has no such configuration or split, or its files cannot be read.
    """
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # Its errors are logged with what could not be parsed.
    inner = path_of(folder / (source.name or "."))
    folder, name = (inner, None) if inner.is_dir() else (folder, source.name)
    try:
        builder = datasets.load_dataset_builder(str(folder), name)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:300]
        raise DataError(f"the data set '{source.path}' cannot be loaded: {type(error).__name__}: {reason}") from error
    if not any(parent.__name__ in READERS for parent in type(builder).__mro__):
        raise DataError(f"the data set '{source.path}' is neither JSON lines nor parquet: convert it.")
    splits = [str(split) for split in builder.config.data_files]
    if source.split not in splits:
        raise DataError(f"the data set '{source.path}' has no split '{source.split}'. It has {', '.join(splits)}.")
    try:
        # Streaming reads no more than is used, and leaves no copy in the cache.
        loaded: Any = builder.as_streaming_dataset(split=source.split)
        for number, row in enumerate(loaded.skip(source.start), source.start):
            yield text_row(f"row {number}", row, source.field)
    except Exception as error:  # The reader's own message is withheld, since it may quote a line that it cannot parse.
        raise DataError(
            f"the data set '{source.path}' cannot be read: {type(error).__name__}. Its files must be whole, and "
            "parquet or JSON lines."
        ) from error
