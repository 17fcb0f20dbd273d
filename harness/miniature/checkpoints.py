"""The shipped models of the miniature: their names, folders and what was measured on them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

FORGET_RECORDS, UNSEEN_RECORDS = 256, 128
"""How many records the originals memorised, and how many no model ever saw."""
WEIGHTS = Path(__file__).parent / "weights"
MANIFEST = "manifest.json"
"""In the folder of the shipped models, and in each that `python -m studies.miniature` writes."""

ORIGINALS = ("miniature-s", "miniature-m", "miniature-l")
RETRAINED = tuple(f"{name}-retrained" for name in ORIGINALS)
JUDGE = "miniature-judge"


def names() -> tuple[str, ...]:
    """Return the names of all shipped models: the originals, their retrained twins and the judge."""
    return (*ORIGINALS, *RETRAINED, JUDGE)


def folder(name: str) -> Path:
    """Return the folder of the named model, as `from_pretrained` takes it.

    Raises:
        KeyError: There is no such model.
    """
    if name not in names():
        raise KeyError(f"no miniature model is called {name!r}; there are {', '.join(names())}")
    return WEIGHTS / name


def tokenizer_folder() -> Path:
    """Return the folder of the tokenizer that all models share."""
    return WEIGHTS / "tokenizer"


@cache
def manifest() -> dict[str, Any]:
    """Return what was written down when the models were made: digests, settings and measured quality."""
    content: dict[str, Any] = json.loads((WEIGHTS / MANIFEST).read_text())
    return content
