"""What is printed: one way to the terminal, on which no text of a file, a plugin or a model can act."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

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


def visible(text: str) -> str:
    r"""Return a text with the characters that a terminal acts on written out; line ends and tabs stay.

    Example:
        >>> visible("a\x1b[2Jb\r\u202ec\n")
        'a\\x1b[2Jb\\r\\u202ec\n'
    """
    return text if text.isprintable() else text.translate(_WRITTEN_OUT)


def tell(*lines: object, is_error: bool = False, end: str = "\n") -> None:
    """Print lines, whatever they are made of, to where results go or to where errors go."""
    print(visible("\n".join(map(str, lines))), end=end, file=sys.stderr if is_error else sys.stdout, flush=True)


class SafeConsole(Console):
    """A console that acts on its own styles alone."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, their texts made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def console(width: int) -> Console:
    """Return a console that is `width` characters wide where there is no terminal, in a pipe say."""
    terminal = SafeConsole()
    return terminal if terminal.is_terminal else SafeConsole(width=width)
