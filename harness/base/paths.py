"""The one way from a text to a path: a text that can name no file is refused in a sentence."""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.base.messages import printable
from harness.errors import DataError, LetheError

_SHOWN_CHARACTERS = 80


def path_of(text: str | os.PathLike[str], error: type[LetheError] = DataError) -> Path:
    """Return the path that a text names, `~` expanded; whether something is there is not asked.

    After this `is_file` and `is_dir` raise nothing.

    Args:
        text: As a user wrote it.
        error: What is raised.

    Raises:
        error: The text can name no file, or nobody may look at what it names.
    """
    written = os.fspath(text)
    if not written:
        raise error("the path '' is empty. Name another.")
    try:
        path = Path(written).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as problem:  # The latter two: an unknown user's home, a NUL character.
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"the path {in_quotes(written)} can name no file ({reason}). Name another.") from problem
    return path


def in_quotes(text: str) -> str:
    r"""Return a text as a message quotes it: what a terminal acts on written out, and cut.

    Example:
        >>> print(in_quotes("a\0b"), in_quotes("long" * 99)[-8:])
        'a\x00b' nglong…'
    """
    return f"'{printable(text[:_SHOWN_CHARACTERS])}{'…' if len(text) > _SHOWN_CHARACTERS else ''}'"


def usable_name(text: str) -> str:
    """Return the name of a sweep that a text makes.

    Example:
        >>> usable_name("my letters.v2"), usable_name("...")
        ('my-letters-v2', 'sweep')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_") or "sweep"
