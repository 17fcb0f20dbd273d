"""Rows, models and seeds to trials, with the digests that resuming and sharing rest on.

A trial's id holds what decides the erased models' numbers, and nothing else: not the sweep's name, not
the row's, not the order, not later strengths of a cumulative method, not the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.contracts import Checkpoint, Evaluator, Training
from harness.digests import digest_of
from harness.models.loading import configuration
from harness.planning.config import Sweep
from harness.planning.faults import Faults, check, plain
from harness.planning.grid import Row
from harness.planning.judges import JudgesByRole, judges_of
from harness.planning.subjects import Subject
from harness.specs import (
    HOLDOUT,
    ORIGINAL,
    RETRAINED,
    STAND_IN,
    UNSEEN_ROWS,
    EvaluatorSpec,
    Source,
    TrialSpec,
)
from harness.toolkit import judge_key

LABELS = {
    ORIGINAL: "Original",
    RETRAINED: "Retrained",
    HOLDOUT: "Original on unseen texts",
    STAND_IN: "Original on validation texts",
}


def trials(
    name: str,
    sweep: Sweep,
    subjects: Sequence[Subject],
    rows: Sequence[Row],
    evaluators: Mapping[str, Evaluator],
    judges: JudgesByRole,
) -> list[TrialSpec]:
    """Return the sweep's trials: the reference rows first, then each model's methods in the file's order.

    While judges are missing, there are none.
    """
    if any(role not in judges for evaluator in evaluators.values() for role in evaluator.judges):
        return []
    inputs = {each: dict(plugin.inputs()) for each, plugin in evaluators.items()}

    def measured_by(
        model: Checkpoint, sources: Mapping[str, Source], *, erasure_alone: bool = False
    ) -> tuple[EvaluatorSpec, ...]:
        tokenizer, own_judges = _tokenizer_identity(model), judges_of(judges, model)
        return tuple(
            _evaluator(each, plugin, inputs[each], sources, tokenizer, own_judges)
            for each, plugin in evaluators.items()
            if not erasure_alone or any(metric.group == "erasure" for metric in plugin.metrics)
        )

    references: list[TrialSpec] = []
    erasures: list[TrialSpec] = []
    for subject in subjects:
        sources, own_judges = dict(subject.texts.sources), judges_of(judges, subject.checkpoint)
        shared = {
            "sweep": name,
            "model": subject.checkpoint,
            "memorization": subject.memorization,
            "engine": subject.engine,
            "forget": sources["forget"],
            "utility": sources["utility"],
            "validation": sources["validation"],
            "evaluators": measured_by(subject.checkpoint, sources),
            "judges": own_judges,
            "cpus": subject.resources.cpus,
            "gpus": subject.resources.gpus,
            "keep_erased": sweep.keep_erased,
            "samples": sweep.report.samples,
        }
        for seed in sweep.seeds:
            references += _references(subject, seed, shared)
            erasures += [_erasure(subject, row, seed, shared) for row in rows]
        for kind in UNSEEN_ROWS:
            if kind == STAND_IN and subject.retrained is not None:
                continue  # The retrained model says better what a model says of texts that it never saw.
            if kind not in sources:
                continue
            asked = measured_by(subject.checkpoint, sources | {"forget": sources[kind]}, erasure_alone=True)
            if asked:
                unseen = shared | {"forget": sources[kind], "evaluators": asked}
                # One seed is enough: another would ask the same model the same.
                references += [_as_it_is(kind, subject, seed, unseen) for seed in sweep.seeds[:1]]
    return references + erasures


def refuse_same(rows: Sequence[Row], trainings: Iterable[Mapping[str, Any]], faults: Faults) -> None:
    """Add a fault for every row that asks for the same trials as one before it, with any model's training."""
    for shared in trainings:
        first: dict[str, str] = {}
        for row in rows:
            key = first.setdefault(digest_of(_row_identity(row, _training({**shared, **row.training}))), row.key)
            if key != row.key:
                reason = f"asks for the same trials as '{key}': the same method, settings and training. "
                faults.add(f"methods.{row.key}", f"{reason}Change a setting, or remove one of the two.")


def refuse_unerasable(subjects: Sequence[Subject], rows: Sequence[Row], faults: Faults) -> None:
    """Add a fault for every row whose method cannot erase from one of the models."""
    for subject in subjects:
        config = configuration(subject.checkpoint)
        for row in rows:
            settings = {**row.settings, row.plugin.strength.field: max(row.strengths)}
            method = check(row.plugin, settings, f"methods.{row.key}", faults)
            reason = method.refuses(config) if method is not None else None
            if reason:
                faults.add(f"methods.{row.key}", f"cannot erase from '{subject.checkpoint.id}': {reason}")


def _evaluator(
    name: str,
    plugin: Evaluator,
    inputs: Mapping[str, str],
    sources: Mapping[str, Source],
    tokenizer: str,
    judges: Mapping[str, Checkpoint],
) -> EvaluatorSpec:
    """Return the evaluator with the identity of what it measures on any model."""
    settings = plain(plugin)
    identity = {
        "name": name,
        "version": plugin.version,
        "settings": settings,
        "forget": sources["forget"].digest,
        "utility": sources["utility"].digest,
        "tokenizer": tokenizer,
        "judges": {role: _judge_identity(judges[role]) for role in plugin.judges},
        "inputs": inputs,
    }
    return EvaluatorSpec(name=name, version=plugin.version, settings=settings, key=digest_of(identity))


def _judge_identity(judge: Checkpoint) -> list[str]:
    """Return what decides a judge's numbers: its weights, how it reads a text, and whether it is the model itself."""
    own = [ORIGINAL] if judge.id == ORIGINAL else []
    return [*own, judge_key(judge) if Path(judge.location).is_dir() else judge.digest, _tokenizer_identity(judge)]


def _tokenizer_identity(checkpoint: Checkpoint) -> str:
    """Return a digest of a local tokenizer's files; one of the hub comes with its model's commit, or has a name."""
    folder = checkpoint.tokenizer
    return judge_key(replace(checkpoint, digest="", location=folder)) if Path(folder).is_dir() else folder


def _references(subject: Subject, seed: int, shared: Mapping[str, Any]) -> Iterator[TrialSpec]:
    """Yield the rows of whole models that are measured without any erasure."""
    yield _as_it_is(ORIGINAL, subject, seed, shared)
    if subject.retrained is not None:
        yield _as_it_is(RETRAINED, subject, seed, shared, subject.retrained)


def _as_it_is(
    kind: str, subject: Subject, seed: int, shared: Mapping[str, Any], twin: Checkpoint | None = None
) -> TrialSpec:
    """Return a reference row; evaluators may compare the retrained model with the original, so both count."""
    return TrialSpec(
        trial_id=digest_of([kind, subject.checkpoint.digest, twin.digest if twin else None, seed]),
        variant=kind,
        method=kind,
        label=LABELS[kind],
        reference="none",
        settings={},
        method_version=1,
        strength_name="",
        strengths=(),
        seed=seed,
        training=_training(subject.training),
        retrained=twin,
        retain=None,
        **shared,
    )


def _erasure(subject: Subject, row: Row, seed: int, shared: Mapping[str, Any]) -> TrialSpec:
    training = _training({**subject.training, **row.training})
    plugin, sources = row.plugin, subject.texts.sources
    retain = sources.get("retain") if plugin.reference == "retain_data" else None
    identity = {
        **_row_identity(row, training),
        "model": subject.checkpoint.digest,
        "seed": seed,
        "engine": str(subject.engine),
        "forget": sources["forget"].digest,
        "retain": retain.digest if retain else None,
        "memorization": asdict(subject.memorization) if plugin.reference == "memorized_model" else None,
        "validation": sources["validation"].digest if training.early_stop is not None else None,
    }
    return TrialSpec(
        trial_id=digest_of(identity),
        variant=row.variant,
        method=row.method,
        label=plugin.label if row.variant == row.method else f"{plugin.label} ({row.variant})",
        reference=plugin.reference,
        settings=row.settings,
        method_version=plugin.version,
        strength_name=plugin.strength.field,
        strengths=row.strengths,
        seed=seed,
        training=training,
        retain=retain,
        **shared,
    )


def _row_identity(row: Row, training: Training) -> dict[str, Any]:
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


def _training(settings: Mapping[str, Any]) -> Training:
    training = check(Training, settings, "training", Faults())
    assert training is not None, "each part was checked before"
    return training
