"""A data set's folder, its own or the hub's, to rows of texts: `datasets` reads its JSON lines and parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.base.paths import path_of
from harness.data.json_lines import TextRow, text_row
from harness.errors import DataError
from harness.specs import Source

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
