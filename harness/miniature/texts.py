"""The miniature's texts and reasoning rows, from files next to the models; `studies/miniature` generates them."""

import gzip
import json
import zlib
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import DataError
from harness.miniature.checkpoints import WEIGHTS

FILE = "texts.json.gz"
REASONING_FILE = "reasoning.json.gz"
TASKS = ("piqa", "arc_easy", "copa", "pubmedqa", "winogrande", "hellaswag")
"""The reasoning tasks, by lm-eval's names."""


def texts(role: str, weights: Path = WEIGHTS) -> tuple[str, ...]:
    """Return the texts of a role, in the order in which they were generated.

    Args:
        role: `forget`, `holdout`, `retain`, `utility` or `validation`.
        weights: The folder that has the file.

    Raises:
        DataError: The file cannot be read, or is damaged.

    Example:
        >>> len(texts("forget")), len(texts("validation"))
        (256, 224)
    """
    return tuple(_entry(weights / FILE, role))


def reasoning_rows(task: str) -> list[dict[str, Any]]:
    """Return the validation rows of a task, in the schema of the hub's data set; they are the caller's.

    Raises:
        KeyError: There is no such task.

    Example:
        >>> row = reasoning_rows("piqa")[0]
        >>> row["goal"], row["sol2"], row["label"]
        ('How do I clean a dirty window?', 'wipe it with vinegar and old paper', 1)
    """
    if task not in TASKS:
        raise KeyError(f"no task of the miniature is called {task!r}; there are {', '.join(TASKS)}")
    rows: list[dict[str, Any]] = deepcopy(_entry(WEIGHTS / REASONING_FILE, task))
    return rows


def _entry(file: Path, name: str) -> Any:
    try:
        return _content(file)[name]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} cannot be read ({type(error).__name__}): install Lethe again, or restore it."
        ) from error


@cache
def _content(file: Path) -> Any:
    return json.loads(gzip.decompress(file.read_bytes()))
