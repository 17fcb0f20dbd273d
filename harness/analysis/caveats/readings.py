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
    return tuple(f"{id.rstrip('/').rpartition('/')[2]}: {_reading(reading)}." for id, reading in by_model.items())


def large_batches(batches: Iterable[tuple[TrialSpec, str]]) -> list[str]:
    """Return a sentence for every batch that holds more than the forget set.

    Args:
        batches: Trials, each with whose batch is meant: `training` or `memorized_model`.
    """
    sizes = (
        (spec.forget.rows, name, (spec.training if name == "training" else spec.memorization).global_batch)
        for spec, name in batches
    )
    large = dict.fromkeys(size for size in sizes if 0 < size[0] < size[2])
    return [
        f"{name}.global_batch ({batch}) is above the number of forget sequences ({rows}): every epoch is one step on "
        "all of them."
        for rows, name, batch in large
    ]


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
