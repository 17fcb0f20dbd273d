"""The one way from a text to a path: a text that can name no file is refused in a sentence."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from harness.base.messages import printable
from harness.errors import DataError, LetheError

_SHOWN_CHARACTERS = 80
_REASONS = {
    errno.ENAMETOOLONG: "is too long: a name has at most 255 bytes, and a path 4095",
    errno.ELOOP: "is a loop of links, which leads to no file",
    errno.EACCES: "may not be looked at: a folder above it does not allow it",
}


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
    reason = _no_name_because(written)
    if reason:
        raise error(f"the path {in_quotes(written)} {reason}. Name another.")
    return Path(written).expanduser()


def _no_name_because(written: str) -> str:
    """Return why a text can name no file: a clause, '' if it can."""
    if not written:
        return "is empty"
    try:
        path = Path(written).expanduser()
        path.stat()
        return "" if os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK) else "may not be read by you"
    except RuntimeError:
        return f"begins with '{written.partition('/')[0]}', and this machine knows no such user's home"
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no character"
    except ValueError:
        return "holds a NUL character, which ends a name"
    except OSError as problem:
        if problem.errno not in (errno.ENOENT, errno.ENOTDIR):
            return _REASONS.get(problem.errno or 0, f"cannot be looked at ({problem.strerror})")
    return ""


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
