"""What is printed: one way to the terminal, on which no text of a file, a plugin or a model can act."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from harness.base.messages import printable

_LOST: dict[int, OSError] = {}
"""Why nothing more is written to an output of this process, by its descriptor."""


class _Lasting(io.FileIO):
    """A file to which writing never fails: after the first failure, everything goes nowhere."""

    def write(self, data: Any, /) -> int:
        """Write what can be written, and return how much of the data was taken."""
        try:
            return super().write(data)
        except OSError as error:
            _LOST[self.fileno()] = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(data)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Print as usual during the block, or nowhere once nothing can be written there.

    A reader may leave (`| head`), a terminal may close, a disk may be full: a command's real output is in files.
    Streams that are not the process's own, such as a notebook's, stay as they are.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # Else the next file to be opened is printed into.
        pass
    os.close(descriptor)
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(sys.__stdout__, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(sys.__stderr__, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _lasting(stream: TextIO | None, descriptor: int) -> TextIO:
    raw = _Lasting(descriptor, "w", closefd=False)
    if not isinstance(stream, io.TextIOWrapper):  # It was closed before the process began.
        return io.TextIOWrapper(io.BufferedWriter(raw), write_through=True)
    with suppress(OSError):
        stream.flush()
    is_direct = stream.write_through
    buffer = cast(BinaryIO, raw) if is_direct else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering, write_through=is_direct
    )


def lost_output() -> str:
    """Return why the printed result is incomplete; '' if it is complete, or if its reader or terminal is gone."""
    error = _LOST.get(1)
    return "" if error is None or error.errno in (errno.EPIPE, errno.EIO) else str(error.strerror)


def tell(*lines: object, is_error: bool = False, end: str = "\n") -> None:
    """Print lines, whatever they are made of, to where results go or to where errors go."""
    stream = sys.stderr if is_error else sys.stdout
    print(printable("\n".join(map(str, lines))), end=end, file=stream, flush=True)


class SafeConsole(Console):
    """A console that acts on its own styles alone."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, their texts printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def console(width: int) -> Console:
    """Return a console that is `width` characters wide where there is no terminal, in a pipe say."""
    terminal = SafeConsole()
    return terminal if terminal.is_terminal else SafeConsole(width=width)
