"""What a plan and a report both say, in words: how each model reads texts, and how few steps an epoch is.

Nothing heavy is imported for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.contracts import Json, Precision
from harness.specs import EvaluatorSpec, TrialSpec


def readings_of(trials: Iterable[TrialSpec]) -> tuple[str, ...]:
    """Return a sentence on each model: how its texts begin and end, how long they may be, in which precision it is."""
    by_model = {spec.model.id: spec for spec in trials if spec.reading}
    said = []
    for spec in by_model.values():
        parts = [_how_it_reads(spec.reading), *_how_it_is_measured(spec.evaluators)]
        said.append(f"{spec.model.short_name}: {'; '.join(parts)}.")
    return tuple(said)


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


def _how_it_is_measured(evaluators: Sequence[EvaluatorSpec]) -> Iterator[str]:
    """Yield in which precision models and judges compute, where that is not fp32 for all."""
    by_precision: dict[Precision, list[str]] = {}
    for evaluator in evaluators:
        by_precision.setdefault(evaluator.precision, []).append(evaluator.name)
    exact = by_precision.pop("fp32", [])
    for precision in by_precision:
        yield f"measured in {precision}" + (f" ({', '.join(exact)} in fp32)" if exact else "")
    if any(evaluator.judge_precision == "bf16" for evaluator in evaluators):
        yield "judges of perplexity and features compute in bf16"
