"""The one way to the terminal."""

from __future__ import annotations

import os
import sys

from rich.console import Console

from harness.base.messages import printable


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
