"""Text that others wrote, an error's message or a plugin's note, as it may be kept in a file and shown to a person."""

from __future__ import annotations

import re

MOST_CHARACTERS = 10_000
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for tab and line end, those that turn the direction of text, and half surrogates."""


def storable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""Return text that any file can hold: what UTF-8 cannot encode is escaped, and what is too long is cut, saying so.

    Twice is the same as once.

    Example:
        >>> storable("half a \ud800 pair")
        'half a \\ud800 pair'
        >>> storable("x" * 100, most=50)
        'xxxxxxxxxxxxxxxxx … (83 more characters were cut)'
    """
    if len(text) <= most and len(escaped := _escaped(text)) <= most:
        return escaped
    kept = most - len(_cut_note(len(text)))
    while (excess := len(_escaped(text[:kept])) + len(_cut_note(len(text) - kept)) - most) > 0:
        kept -= -(-excess // 6)  # An escaped character has six.
    return _escaped(text[:kept]) + _cut_note(len(text) - kept)


def printable(text: str) -> str:
    r"""Return text that a terminal and a browser show as it stands: what would steer them is escaped.

    Example:
        >>> printable("red \x1b[31m, bell \a, and\ttab")
        'red \\x1b[31m, bell \\x07, and\ttab'
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shown(text: str, most: int = 2000) -> str:
    """Return as much of a message as fits a terminal, printable; journal and report have more of it."""
    return printable(storable(text, most))


def _escaped(text: str) -> str:
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _cut_note(count: int) -> str:
    return f" … ({count:,} more characters were cut)"
