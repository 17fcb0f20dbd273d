"""What came out, as a page of docs/results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.gpu_check.parts import PartResult, Row


def file_name(card: str) -> str:
    """Return the name of a card's page.

    Example:
        >>> file_name("NVIDIA GeForce RTX 4090")
        'gpu_check_nvidia_geforce_rtx_4090.md'
    """
    return f"gpu_check_{re.sub('[^a-z0-9]+', '_', card.lower()).strip('_')}.md"


def page(card: str, facts: Mapping[str, str], results: Sequence[PartResult]) -> str:
    """Return the whole page, as Markdown."""
    lines = [f"# The check of a GPU: {card}", "", "    make gpu-check", ""]
    lines += ["Models are random, made from a configuration; nothing here says what a method erases.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    failures = [failure for result in results for failure in result.failures]
    lines += ["", f"{len(failures)} failed: each has its sentence below its table." if failures else "Nothing failed."]
    for result in results:
        lines += _section(result)
    return "\n".join(lines) + "\n"


def _section(result: PartResult) -> Iterator[str]:
    yield from ("", f"## {result.part.title}", "", result.part.about, "")
    if result.rows:
        yield _line(result.part.columns)
        yield _line(tuple("---" for _ in result.part.columns))
        yield from map(_line, result.rows)
    else:
        yield "Nothing was measured."
    for heading, sentences in (("Failed", result.failures), ("Skipped", result.skipped)):
        if sentences:
            yield from ("", f"{heading}:", "")
            yield from (f"- {sentence}" for sentence in sentences)


def _line(cells: Row) -> str:
    return f"| {' | '.join(cell.replace('|', '¦') for cell in cells)} |"
