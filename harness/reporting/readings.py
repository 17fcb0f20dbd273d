"""How each model reads texts, in words: what a plan and a report say of it. Nothing heavy is imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.contracts import Json
from harness.specs import TrialSpec


def readings_of(trials: Iterable[TrialSpec]) -> tuple[str, ...]:
    """Return a sentence on each model: how its texts begin and end, how long they may be, its stored precision."""
    by_model = {spec.model.id: spec.reading for spec in trials if spec.reading}
    return tuple(f"{id.rstrip('/').rpartition('/')[2]}: {_reading(reading)}." for id, reading in by_model.items())


def _reading(reading: Mapping[str, Json]) -> str:
    starts, ends, context, stored = (reading.get(name) for name in ("starts_with", "ends_at", "context", "stored"))
    parts = [
        f"every text starts with {' '.join(starts)}" if starts else "nothing is put before a text",
        f"what it writes ends at {' or '.join(ends)}" if ends else "what it writes has no end of text",
        f"it reads {context:,} tokens at most" if context else "its configuration sets no longest text",
        f"weights stored in {stored}, loaded in fp32" if stored else "",
    ]
    judges = reading.get("judges_start_with") or {}
    parts += [f"the judge of {role} starts each with {' '.join(start)}" for role, start in judges.items()]
    return "; ".join(filter(None, parts))
