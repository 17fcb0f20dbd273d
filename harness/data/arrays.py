"""Sources of token ids: arrays on disk, of which only the rows that are used are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.data.paths import ARRAY_FILE, CHALLENGE_FILES, challenge_files, existing_file
from harness.errors import DataError
from harness.specs import Source


def token_ids(source: Source) -> np.ndarray:
    """Return the array of token ids from row `source.start` on: integers, rows by tokens, on disk if it can be.

    Raises:
        DataError: There is nothing to read, or it is not a two-dimensional array of integers.
    """
    stop = None if source.sequences is None else source.start + source.sequences
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
        raise DataError(f"{file} is an archive of arrays (.npz); save the one array of token ids with np.save.")
    if array.ndim != 2:
        raise DataError(
            f"{file} has {array.ndim} dimension{'s' * (array.ndim != 1)} (shape {array.shape}); "
            "an array of token ids has two: sequences by tokens."
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"{file} holds {array.dtype}, and token ids are integers{_not_whole(array)}. "
            "Save it with .astype(np.uint16) or int32."
        )
    return array


def _not_whole(array: np.ndarray) -> str:
    if not np.issubdtype(array.dtype, np.floating):
        return ""
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    return f" (row {bad[0]} holds NaN or infinity)" if len(bad) else ""
