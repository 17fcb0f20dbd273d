"""JSON lines, read one by one. Nothing of a text is in any message: it may be the forget set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DataError

MAX_FIELDS_NAMED = 10


@dataclass(frozen=True)
class TextRow:
    """One text, or why it cannot be used."""

    where: str
    """`line 12`, as an editor counts, or `row 11`, as an array or data set counts."""
    text: str = ""
    problem: str = ""


def json_rows(file: Path, start: int, field: str) -> Iterator[TextRow]:
    """Yield the texts of a file from its line `start` on, counted from 0; an unusable line gives its reason.

    Args:
        file: JSON lines.
        start: Lines that are passed over.
        field: Of each line's object.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if number > start:
                    yield _json_row(f"line {number}", line, field)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error


def _json_row(where: str, line: bytes, field: str) -> TextRow:
    if not line.strip():
        return TextRow(where, problem="is empty")
    try:
        # utf-8-sig: a file saved on Windows may begin with a byte order mark.
        value = json.loads(line.rstrip().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return TextRow(where, problem=f"is not UTF-8 (byte {error.start + 1})")
    except json.JSONDecodeError as error:
        return TextRow(where, problem=f"is not valid JSON ({error.msg.removesuffix(' at')} at column {error.colno})")
    if not isinstance(value, dict):
        return TextRow(where, problem='is not an object {"' + field + '": ...}')
    return text_row(where, value, field)


def text_row(where: str, values: Mapping[str, Any], field: str) -> TextRow:
    """Return the text in a row's field, or why it cannot be used."""
    if field not in values:
        # Only keys that look like a field's name are shown: a mangled row may have text for keys.
        others = [key for key in values if key.isidentifier() and len(key) <= 30][:MAX_FIELDS_NAMED]
        return TextRow(where, problem=f"has no field '{field}'" + (f" (it has {', '.join(others)})" if others else ""))
    text = values[field]
    if not isinstance(text, str):
        return TextRow(where, problem=f"has a '{field}' that is not text")
    return TextRow(where, text)
