"""Text for files and people: escaped, cut, and with words around counts."""

import os
import re
import sys
from collections.abc import Sequence

from rich.console import Console

from harness import errors

MAX_CHARACTERS = 10_000
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that steer a terminal, change direction, end a line, or cannot be encoded."""


def storable(text: str, most: int = MAX_CHARACTERS) -> str:
    r"""Return text for any file: escaped where UTF-8 cannot encode it, and cut with a note. Idempotent."""
    escaped = text if text.isascii() else text.encode(errors="backslashreplace").decode()
    if len(escaped) <= most:
        return escaped
    length = most - len(f" … ({len(escaped):,} more characters were cut)")
    return f"{escaped[:length]} … ({len(escaped) - length:,} more characters were cut)"


def printable(text: str) -> str:
    r"""Return text with terminal and browser controls escaped; line ends and tabs stay."""
    return _ACTING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shown(text: str, most: int = 2000) -> str:
    """Return a printable message, cut to fit a terminal."""
    return printable(storable(text, most))


def reason(error: str) -> str:
    """Return a recorded error for people, without the type of Lethe's own errors.

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
    """Return the first names and the number of others: `a, b and 2 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def tell(*lines: object, is_error: bool = False, end: str = "\n") -> None:
    """Print lines to the results or errors; ignore a closed pipe or terminal."""
    stream = sys.stderr if is_error else sys.stdout
    try:
        print(printable("\n".join(map(str, lines))), end=end, file=stream, flush=True)
    except OSError:  # A command's results are in files.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


WIDTH = 100
"""Width of a table without a terminal."""


def console(width: int = WIDTH) -> Console:
    """Return a console, `width` wide without a terminal."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=width)
