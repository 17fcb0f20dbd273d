"""The corpus's texts that sweeps read, from a file beside the models: writing them anew takes a second."""

import gzip
import json
import zlib
from functools import cache
from pathlib import Path

from harness.base.files import write_whole
from harness.errors import DataError
from harness.miniature import corpus
from harness.miniature.checkpoints import WEIGHTS

FILE = "texts.json.gz"
"""In the folder of the shipped models: made from the corpus that they have read."""

GENERATED = {
    "forget": corpus.forget_records,
    "holdout": corpus.unseen_records,
    "retain": corpus.retain_documents,
    "utility": corpus.utility_documents,
    "validation": corpus.validation_documents,
}
"""What generates the texts of each role."""


def texts(role: str, weights: Path = WEIGHTS) -> tuple[str, ...]:
    """Return the texts of a role, in the order in which they were generated.

    Args:
        role: One of `GENERATED`.
        weights: The folder that has the file.

    Raises:
        DataError: The file cannot be read, or is damaged.

    Example:
        >>> len(texts("forget")), len(texts("validation"))
        (256, 224)
    """
    return _stored(weights / FILE)[role]


def write_texts(weights: Path) -> None:
    """Write the file of a folder of models anew.

    Raises:
        StorageError: The folder cannot be written.
    """
    generated = {role: generate() for role, generate in GENERATED.items()}
    content = json.dumps(generated, ensure_ascii=False, indent=0).encode()
    write_whole(weights / FILE, gzip.compress(content, mtime=0))


@cache
def _stored(file: Path) -> dict[str, tuple[str, ...]]:
    try:
        content = json.loads(gzip.decompress(file.read_bytes()))
        return {role: tuple(content[role]) for role in GENERATED}
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} cannot be read ({type(error).__name__}): install Lethe again, or restore it."
        ) from error
