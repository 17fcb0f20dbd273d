"""What makes a trial and a measurement the same as before: the digests that resuming and sharing rest on.

A trial's id holds what decides the erased models' numbers, and nothing else: not the sweep's name, not
the row's, not the order, not later strengths of a cumulative method, not the micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from harness.contracts import Checkpoint, Training
from harness.planning.grid import Row
from harness.planning.measures import Measure
from harness.specs import EvaluatorSpec, Memorization, Source, digest_of


def reference_id(kind: str, model: Checkpoint, retrained: Checkpoint | None, seed: int) -> str:
    """Return the id of a reference row: `original`, or `retrained`, which evaluators may compare with the original."""
    return digest_of([kind, model.digest, retrained.digest if retrained else None, seed])


def erasure_id(
    row: Row,
    model: Checkpoint,
    seed: int,
    training: Training,
    memorization: Memorization,
    engine: str,
    sources: Mapping[str, Source | None],
) -> str:
    """Return the id of one erasure.

    Args:
        row: The method and its settings; of a cumulative strength, the values do not count.
        model: What is erased from.
        seed: Of the data's order and of every other choice.
        training: How it trains; the micro-batch does not count.
        memorization: Counts if the method uses the memorised model.
        engine: What trains.
        sources: `forget`; `retain` if the method uses it; `validation`, which counts if training stops early.
    """
    reference, retain, validation = row.plugin.reference, sources["retain"], sources["validation"]
    return digest_of(
        {
            **row_identity(row, training),
            "model": model.digest,
            "seed": seed,
            "engine": engine,
            "forget": _digest(sources["forget"]),
            "retain": _digest(retain) if reference == "retain_data" else None,
            "memorization": asdict(memorization) if reference == "memorized_model" else None,
            "validation": _digest(validation) if training.early_stop is not None else None,
        }
    )


def row_identity(row: Row, training: Training) -> dict[str, Any]:
    """Return a row's part in the identity of its trials: two rows with the same would be the same trials."""
    settings = asdict(training)
    del settings["micro_batch"]
    return {
        "method": row.method,
        "version": row.plugin.version,
        "settings": dict(row.settings),
        "strength": None if row.plugin.strength.cumulative else float(row.strengths[0]),
        "training": settings,
    }


def evaluator_spec(
    measure: Measure, forget: Source, utility: Source, judges: Mapping[str, Checkpoint]
) -> EvaluatorSpec:
    """Return the evaluator with the identity of what it measures on any model."""
    key = digest_of(
        {
            "name": measure.name,
            "version": measure.version,
            "settings": dict(measure.settings),
            "forget": forget.digest,
            "utility": utility.digest,
            "judges": {role: judges[role].digest for role in measure.judges},
        }
    )
    return EvaluatorSpec(name=measure.name, version=measure.version, settings=measure.settings, key=key)


def _digest(source: Source | None) -> str | None:
    return source.digest if source else None
