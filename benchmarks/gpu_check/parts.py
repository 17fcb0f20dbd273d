"""The parts of a check: what each measures, case by case, and what becomes of a case that fails or does not fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from benchmarks.gpu_check.card import Card, gigabytes

MOST_QUOTED = 300
"""Characters of an error's message."""
Row = tuple[str, ...]


class WrongError(Exception):
    """What a case measured is wrong: a number that is not finite, or one that should be another's."""


@dataclass(frozen=True)
class Case:
    """One thing to be measured."""

    name: str
    run: Callable[[], Iterable[Row]]
    """Yields the table's rows; those that it yielded before an error stay."""
    needs: Callable[[], int] = lambda: 0
    """Bytes on the card; 0 where they are not known."""


@dataclass(frozen=True)
class Part:
    """A question about a card, and the table that answers it."""

    title: str
    about: str
    columns: Row
    cases: tuple[Case, ...]
    until: float = 1.0
    """The share of the whole check's time that is over when this part begins no further case."""


@dataclass
class PartResult:
    """What came out of a part."""

    part: Part
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """A sentence for each case that was not tried."""
    failures: list[str] = field(default_factory=list)
    """A sentence for each case that raised."""


def run_parts(parts: Iterable[Part], card: Card, minutes: float, say: Callable[[str], None]) -> Iterator[PartResult]:
    """Yield what came out of each part: whatever one case does, the others run.

    Args:
        parts: In their order.
        card: A case that needs more memory than it has is skipped.
        minutes: After so many, no further case begins.
        say: Told what is going on.
    """
    began = time.monotonic()
    for part in parts:
        result = PartResult(part)
        say(part.title)
        for case in part.cases:
            say(f"  {case.name}")
            try:
                if (reason := _reason_to_skip(case, card, part, time.monotonic() - began, minutes)) is not None:
                    result.skipped.append(f"{case.name}: {reason}")
                    say(f"    skipped: {reason}")
                    continue
                for row in case.run():
                    result.rows.append(row)
                    say(f"    {' · '.join(row)}")
            except Exception as error:
                result.failures.append(f"{case.name}: {_sentence(error)}")
                say(f"    failed: {_sentence(error)}")
            card.release()
        yield result


def _reason_to_skip(case: Case, card: Card, part: Part, seconds: float, minutes: float) -> str | None:
    if seconds > 60 * minutes * part.until:
        return f"{part.until * minutes:.3g} minutes were over."
    if (needs := case.needs()) > card.memory:
        return f"it needs about {gigabytes(needs)}, and a process on this card has {gigabytes(card.memory)}."
    return None


def _sentence(error: Exception) -> str:
    message = " ".join(str(error).split())[:MOST_QUOTED]
    return message if isinstance(error, WrongError) else f"{type(error).__name__}: {message}"
