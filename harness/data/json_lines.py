"""JSON lines, plain or compressed by gzip, read one by one and never more of one than fits into memory.

Nothing of a text is in any message: it may be the forget set.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from harness.errors import DataError

MOST_LINE_BYTES = 64 * 2**20
LONG_LINE_BYTES = 8 * 2**20
MOST_NESTED = 1_000_000
"""Lists and objects in a long line: each takes twenty times as much memory as it has characters."""
MOST_RATIO = 200
"""Texts shrink to a tenth; what is two hundred times as large as its file holds nothing, or was made to do harm."""
MOST_FIELDS_NAMED = 10
EMPTY = "is empty"
_UNSUSPECTED_BYTES = 2**20


@dataclass(frozen=True)
class TextRow:
    """One text, or why it cannot be used."""

    where: str
    """`line 12`, as an editor counts, or `row 11`, as an array or data set counts."""
    text: str = ""
    problem: str = ""


def json_rows(file: Path, start: int, field: str) -> Iterator[TextRow]:
    """Yield the texts of a file from its line `start` on, counted from 0; an unusable line says so.

    Args:
        file: JSON lines; compressed by gzip if it is named so.
        start: Lines that are passed over.
        field: Of each line's object.

    Raises:
        DataError: The file cannot be read, a line is too long, or the file grows out of all proportion when it is
            decompressed.
    """
    for number, line in enumerate(_whole_lines(file), 1):
        if number > start:
            yield json_row(f"line {number}", line, field)


def _whole_lines(file: Path) -> Iterator[bytes]:
    is_compressed = file.suffix == ".gz"
    try:
        with file.open("rb") as raw, gzip.open(raw) if is_compressed else raw as stream:
            size = 0
            for number in count(1):
                line = stream.readline(MOST_LINE_BYTES + 1)
                size += len(line)
                if is_compressed and size > max(_UNSUSPECTED_BYTES, MOST_RATIO * raw.tell()):
                    raise DataError(
                        f"{file} decompresses to more than {MOST_RATIO} times its size, as no text does: give it as "
                        "it is, without compression."
                    )
                if len(line) > MOST_LINE_BYTES:
                    raise DataError(f"{file}, line {number} has more than {MOST_LINE_BYTES:,} bytes: split it.")
                if not line:
                    return
                yield line
    except (OSError, EOFError, zlib.error) as error:
        what = "is not a complete gzip file" if is_compressed else "cannot be read"
        raise DataError(f"{file} {what} ({type(error).__name__}).") from error


def json_row(where: str, line: bytes, field: str) -> TextRow:
    """Return the text that a line holds, or why it cannot be used."""
    if not line.strip():
        return TextRow(where, problem=EMPTY)
    if len(line) > LONG_LINE_BYTES and line.count(b"[") + line.count(b"{") > MOST_NESTED:
        return TextRow(where, problem=f"has more than {MOST_NESTED:,} lists and objects")
    try:
        # utf-8-sig: a file saved on Windows may begin with a byte order mark.
        value = json.loads(line.rstrip().decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        return TextRow(where, problem=f"is not UTF-8 (byte {error.start + 1})")
    except json.JSONDecodeError as error:
        problem = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        return TextRow(where, problem=f"is not valid JSON ({problem})")
    except _TwiceError:
        return TextRow(where, problem="has a field twice")
    except (ValueError, RecursionError):
        return TextRow(where, problem="is not JSON that can be read (too deep, or a number too long)")
    if not isinstance(value, dict):
        return TextRow(where, problem='is not an object {"' + field + '": ...}')
    return text_row(where, value, field)


class _TwiceError(ValueError):
    """A field that an object has twice: which one counts, no standard says."""


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _TwiceError
    return value


def text_row(where: str, values: Mapping[str, Any], field: str) -> TextRow:
    """Return the text in a row's field, or why it cannot be used."""
    if field not in values:
        # Only what looks like a field's name is shown: a mangled row may have text for keys.
        others = [key for key in values if key.isidentifier() and len(key) <= 30][:MOST_FIELDS_NAMED]
        return TextRow(where, problem=f"has no field '{field}'" + (f" (it has {', '.join(others)})" if others else ""))
    text = values[field]
    if not isinstance(text, str):
        return TextRow(where, problem=f"has a '{field}' that is not text")
    try:
        text.encode()
    except UnicodeEncodeError:
        return TextRow(where, problem=f"has a '{field}' with half of a surrogate pair, which is not a character")
    return TextRow(where, text)
