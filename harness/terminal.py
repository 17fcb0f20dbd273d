"""What is printed: one way to the terminal, on which no text of a file, a plugin or a model can act."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from harness.messages import printable


def tell(*lines: object, is_error: bool = False, end: str = "\n") -> None:
    """Print lines, whatever they are made of, to where results go or to where errors go.

    If nobody reads there any more (`| head`), they go nowhere: what a command is for, it writes to files.
    """
    stream = sys.stderr if is_error else sys.stdout
    try:
        print(printable("\n".join(map(str, lines))), end=end, file=stream, flush=True)
    except BrokenPipeError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Let all that is written to a stream from now on go nowhere, what it still holds included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class SafeConsole(Console):
    """A console that acts on its own styles alone."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, their texts printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        """Go on, saying nothing: rich would end the process."""
        self.quiet = True
        _discard(sys.stdout)


def console(width: int) -> Console:
    """Return a console that is `width` characters wide where there is no terminal, in a pipe say."""
    terminal = SafeConsole()
    return terminal if terminal.is_terminal else SafeConsole(width=width)
