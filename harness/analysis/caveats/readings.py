"""What a plan and a report both say, in words: how each model reads texts, and how few steps an epoch is.

Nothing heavy is imported for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.contracts import Json
from harness.specs import TrialSpec


def readings_of(trials: Iterable[TrialSpec]) -> tuple[str, ...]:
    """Return a sentence on each model: how its texts begin and end, how long they may be, its stored precision."""
    by_model = {spec.model.id: spec.reading for spec in trials if spec.reading}
    return tuple(f"{id.rstrip('/').rpartition('/')[2]}: {_how_it_reads(reading)}." for id, reading in by_model.items())


def large_batches(batches: Iterable[tuple[TrialSpec, str]]) -> list[str]:
    """Return a sentence for every batch that holds more than the forget set.

    Args:
        batches: Trials, each with whose batch is meant: `training` or `memorized_model`.
    """
    said = []
    for spec, name in batches:
        part = spec.training if name == "training" else spec.memorization
        if 0 < spec.forget.rows < part.global_batch:
            said.append(
                f"{name}.global_batch ({part.global_batch}) is above the number of forget sequences "
                f"({spec.forget.rows}): every epoch is one step on all of them."
            )
    return list(dict.fromkeys(said))


def _how_it_reads(reading: Mapping[str, Json]) -> str:
    starts, ends, context, stored = map(reading.get, ("starts_with", "ends_at", "context", "stored"))
    parts = [
        f"every text starts with {' '.join(starts)}" if starts else "nothing is put before a text",
        f"what it writes ends at {' or '.join(ends)}" if ends else "what it writes has no end of text",
        f"it reads {context:,} tokens at most" if context else "its configuration sets no longest text",
    ]
    if stored:
        parts.append(f"weights stored in {stored}, loaded in fp32")
    for role, start in (reading.get("judges_start_with") or {}).items():
        parts.append(f"the judge of {role} starts each with {' '.join(start)}")
    return "; ".join(parts)
