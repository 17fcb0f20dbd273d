"""Rows, models and seeds to trials, each with its identity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.contracts import Training
from harness.errors import Fault
from harness.planning.config import Sweep
from harness.planning.faults import check
from harness.planning.grid import Row
from harness.planning.identity import erasure_id, evaluator_spec, reference_id, row_identity
from harness.planning.measures import Panel
from harness.planning.subjects import Subject
from harness.specs import ORIGINAL, RETRAINED, TrialSpec, digest_of


def trials(name: str, sweep: Sweep, subjects: Sequence[Subject], rows: Sequence[Row], panel: Panel) -> list[TrialSpec]:
    """Return the sweep's trials: the reference rows first, then each model's methods in the file's order.

    While judges are missing, there are none.
    """
    if not panel.is_complete:
        return []
    common = {
        "sweep": name,
        "judges": panel.judges,
        "cpus": sweep.resources.cpus,
        "gpus": sweep.resources.gpus,
        "keep_erased": sweep.keep_erased,
        "samples": sweep.report.samples,
    }
    about = [{**common, **_about(subject, panel)} for subject in subjects]
    found = [
        spec
        for subject, shared in zip(subjects, about, strict=True)
        for seed in sweep.seeds
        for spec in _references(subject, seed, shared)
    ]
    return found + [
        _erasure(subject, row, seed, shared)
        for subject, shared in zip(subjects, about, strict=True)
        for seed in sweep.seeds
        for row in rows
    ]


def refuse_same(rows: Sequence[Row], trainings: Iterable[Mapping[str, Any]], faults: list[Fault]) -> None:
    """Add a fault for every row that asks for the same trials as one before it.

    Args:
        rows: The sweep's rows.
        trainings: Each model's training settings.
        faults: Grows.
    """
    for shared in trainings:
        first: dict[str, str] = {}
        for row in rows:
            key = first.setdefault(digest_of(row_identity(row, _training({**shared, **row.training}))), row.key)
            reason = (
                f"asks for the same trials as '{key}': the same method, settings and training. "
                "Change a setting, or remove one of the two."
            )
            if key != row.key:
                faults.append(Fault(f"methods.{row.key}", reason))


def _about(subject: Subject, panel: Panel) -> dict[str, Any]:
    texts = subject.texts
    return {
        "model": subject.checkpoint,
        "memorization": subject.memorization,
        "engine": subject.engine,
        "forget": texts.forget,
        "utility": texts.utility,
        "validation": texts.validation,
        "evaluators": tuple(evaluator_spec(each, texts.forget, texts.utility, panel.judges) for each in panel.measures),
    }


def _references(subject: Subject, seed: int, shared: Mapping[str, Any]) -> Iterator[TrialSpec]:
    """Yield the rows that are measured without any erasure."""
    for kind, twin in ((ORIGINAL, None), (RETRAINED, subject.retrained)):
        if kind == RETRAINED and twin is None:
            continue
        yield TrialSpec(
            trial_id=reference_id(kind, subject.checkpoint, twin, seed),
            variant=kind,
            method=kind,
            label=kind.capitalize(),
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
    texts, plugin = subject.texts, row.plugin
    sources = {"forget": texts.forget, "retain": texts.retain, "validation": texts.validation}
    return TrialSpec(
        trial_id=erasure_id(row, subject.checkpoint, seed, training, subject.memorization, subject.engine, sources),
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
        retain=texts.retain if plugin.reference == "retain_data" else None,
        **shared,
    )


def _training(settings: Mapping[str, Any]) -> Training:
    training, _ = check(Training, settings, "training")
    assert training is not None, "each part was checked before"
    return training
