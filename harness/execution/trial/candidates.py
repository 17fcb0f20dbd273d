"""One candidate of a study, here and now: erase with its settings, probe on the way, and journal what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from harness.contracts import ErasedModel
from harness.errors import StorageError
from harness.execution.guard.failure import failure
from harness.execution.guard.redaction import failure_for_report
from harness.execution.job import CandidateTask, Event, Folders, Job, Watcher
from harness.execution.trial.erasing import erase
from harness.execution.trial.inputs import clear_shared, validation_set
from harness.execution.trial.probing import asked_for, probe, selection_set, shared_probe
from harness.plans import StudySpec
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import COLLAPSED, PAST, STOPPED, WHOLE, Candidate
from harness.records.studies import Probe, is_outside
from harness.specs import TrialSpec


@dataclass
class _Seen:
    """What a candidate has seen so far: kept even if it fails on its way."""

    original: dict[str, float] = field(default_factory=dict)
    targets: dict[str, float] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)


def run_candidate(job: Job, folders: Folders, watch: Watcher) -> str:
    """Try a candidate, journal it as one record, and return in words how it went.

    What raises ends it, and what it saw before counts all the same.
    """
    assert job.candidate is not None
    task, seen, began = job.candidate, _Seen(), time.perf_counter()

    def progress(message: str) -> None:
        watch(Event(job=job.name, kind="progress", message=message))

    try:
        end = _walk(task, job.spec, Artifacts(folders.artifacts, progress), seen, progress)
    except StorageError:  # No fault of its settings: it is tried again when the sweep is run again.
        raise
    except BaseException as raised:  # Whatever a plugin raises at settings that nobody has tried before.
        error = failure(raised, job.spec)
        clear_shared()  # It may have been harmed.
        end, _ = failure_for_report(error, job.spec.samples)
    candidate = Candidate(
        trial_id=task.study.study_id,
        number=task.number,
        settings=dict(task.settings),
        probes=tuple(seen.probes),
        targets=seen.targets,
        original=seen.original,
        end=end,
        seconds=time.perf_counter() - began,
    )
    Journal(folders.results / "journal").append(candidate)
    return _told(task.study, candidate)


def _walk(
    task: CandidateTask, spec: TrialSpec, artifacts: Artifacts, seen: _Seen, progress: Callable[[str], None]
) -> str:
    """Probe the erased model at each strength, and return why there are no more."""
    study = task.study
    selection, validation = selection_set(study), validation_set(spec)
    seen.original |= shared_probe(study, spec.model, artifacts)
    seen.targets |= {str(target): asked_for(study, target, artifacts) for target in study.targets}
    settings = {**spec.settings, spec.strength_name: spec.strengths[-1]}
    with closing(erase(spec, artifacts, spec.strengths, settings, progress)) as erasures:
        for erasure in erasures:
            erased = erasure.erased
            numbers = probe(erased.model, selection, validation)
            seen.probes.append({"strength": erased.strength, **numbers, "optimiser_steps": _steps(study, spec, erased)})
            if is_outside(study, seen.original, numbers):
                return COLLAPSED
            if all(numbers[target.metric] <= seen.targets[str(target)] for target in study.targets):
                return PAST
            if erased.stop_reason:
                return STOPPED
    return WHOLE


def _steps(study: StudySpec, spec: TrialSpec, erased: ErasedModel) -> int:
    """Return how many steps the optimiser has taken up to here."""
    if not study.is_trained:
        return 0
    # The training loop notes its epoch; a loop of a plugin's own has the strength, if that counts epochs.
    epochs = erased.notes.get("epoch", erased.strength if study.is_cumulative else 0)
    return int(epochs) * -(-spec.forget.rows // spec.training.global_batch)


def _told(study: StudySpec, candidate: Candidate) -> str:
    seen = "nothing probed"
    if candidate.probes:
        last = candidate.probes[-1]
        names = [*dict.fromkeys(target.metric for target in study.targets), study.utility]
        numbers = ", ".join(f"{name} {last[name]:.4g}" for name in names)
        seen = f"{numbers} at {study.trial.strength_name} {last['strength']:g}"
    return f"{seen}; {'failed: ' if candidate.error else ''}{candidate.end}"
