"""What is printed: one way to the terminal, on which no text of a file, a plugin or a model can act."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from harness.messages import printable


def tell(*lines: object, is_error: bool = False, end: str = "\n") -> None:
    """Print lines, whatever they are made of, to where results go or to where errors go."""
    print(printable("\n".join(map(str, lines))), end=end, file=sys.stderr if is_error else sys.stdout, flush=True)


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
