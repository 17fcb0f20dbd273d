"""Text for files and people: what others wrote, an error's message or a plugin's note, and words around counts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rich.console import Console

from harness import errors

MAX_CHARACTERS = 10_000
_ACTING = (
    *(code for code in range(0x20) if chr(code) not in "\t\n"),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    *range(0xD800, 0xE000),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
)
"""Characters that move, colour or erase, turn the direction of writing, end a line, or cannot be encoded."""
_WRITTEN_OUT = {code: chr(code).encode("unicode_escape").decode() for code in _ACTING}


def storable(text: str, most: int = MAX_CHARACTERS) -> str:
    r"""Return text that any file can hold: what UTF-8 cannot encode is escaped, and what is too long is cut, saying so.

    Twice is the same as once.

    Example:
        >>> storable("half a \ud800 pair")
        'half a \\ud800 pair'
        >>> storable("x" * 100, most=50)
        'xxxxxxxxxxxxxxxxx … (83 more characters were cut)'
    """
    escaped = text if text.isascii() else text.encode(errors="backslashreplace").decode()
    if len(escaped) <= most:
        return escaped
    kept = most - len(f" … ({len(escaped):,} more characters were cut)")
    return f"{escaped[:kept]} … ({len(escaped) - kept:,} more characters were cut)"


def printable(text: str) -> str:
    r"""Return text with what would steer a terminal or a browser written out; line ends and tabs stay.

    Example:
        >>> printable("red \x1b[31m, bell \a, turned \u202e, and\ttab")
        'red \\x1b[31m, bell \\x07, turned \\u202e, and\ttab'
    """
    return text if text.isprintable() else text.translate(_WRITTEN_OUT)


def shown(text: str, most: int = 2000) -> str:
    """Return as much of a message as fits a terminal, printable; journal and report have more of it."""
    return printable(storable(text, most))


def reason(error: str) -> str:
    """Return a recorded error for people: without its type where that is one of Lethe's own, whose message says it all.

    Example:
        >>> reason("TrialError: the loss is NaN."), reason("KeyError: 'epoch'")
        ('the loss is NaN.', "KeyError: 'epoch'")
    """
    kind, colon, message = error.partition(": ")
    return message if colon and hasattr(errors, kind) else error


def amount(number: int, what: str) -> str:
    """Return a number with its noun: `7 rounds`, `1 round`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def first_names(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are.

    Example:
        >>> first_names(["a", "b", "c", "d"], most=2), first_names(["a"], most=2)
        ('a, b and 2 more', 'a')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def tell(*lines: object, is_error: bool = False, end: str = "\n") -> None:
    """Print lines to where results go, or errors; nowhere once a reader or terminal is gone."""
    stream = sys.stderr if is_error else sys.stdout
    try:
        print(printable("\n".join(map(str, lines))), end=end, file=stream, flush=True)
    except OSError:  # What a command makes is in files.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


WIDTH = 100
"""Characters that a table has where there is no terminal."""


def console(width: int = WIDTH) -> Console:
    """Return a console that is `width` characters wide where there is no terminal, in a pipe say."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=width)
