"""Runs one candidate of a study: erase with its settings, probe on the way, and journal what was seen.

A probe is two forward passes of a model, over the selection half of the forget set and over validation texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from harness.base.messages import reason
from harness.contracts import ErasedModel
from harness.errors import StorageError
from harness.execution.job import CandidateTask, Event, Folders, Job, Seen, Watcher
from harness.execution.redact import failure_for_report
from harness.execution.trial.erasing import erase
from harness.execution.trial.inputs import clear_shared, forget_set, validation_set
from harness.execution.trial.walk import level_in_numbers, probe, shared_probe
from harness.plans import PROBED_ERASURE, PROBED_UTILITY, StudySpec
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import COLLAPSED, PAST, STOPPED, WHOLE
from harness.records.results import is_outside
from harness.specs import TrialSpec


def run_candidate(job: Job, folders: Folders, watch: Watcher) -> str:
    """Try a candidate, journal it as one record, and return a sentence about how it went.

    An exception ends it, and what it saw before still counts.
    """
    assert job.candidate is not None
    task, seen = job.candidate, Seen()

    def progress(message: str) -> None:
        watch(Event(job=job.name, kind="progress", message=message))

    artifacts, began = Artifacts(folders.artifacts, progress), time.perf_counter()
    try:
        end = _erase_and_probe(task, job.spec, artifacts, seen, progress)
    except (StorageError, KeyboardInterrupt):  # No fault of its settings: it is tried again by the next run.
        raise
    except BaseException as error:  # Whatever a plugin raises at settings that nobody has tried before.
        clear_shared()  # It may have been harmed.
        end, _ = failure_for_report(error, job.spec.samples)
    candidate = task.record(seen, end, time.perf_counter() - began)
    Journal(folders.results / "journal").append(candidate)
    how = "nothing probed"
    if seen.probes:
        last = seen.probes[-1]
        numbers = ", ".join(
            f"{name} {last[name]:.4g}".replace(" inf", " ∞") for name in (PROBED_ERASURE, PROBED_UTILITY)
        )
        how = f"{numbers} at {job.spec.strength_name} {last['strength']:g}"
    return f"{how}; {'failed: ' if candidate.error else ''}{reason(end)}"


def _erase_and_probe(
    task: CandidateTask, spec: TrialSpec, artifacts: Artifacts, seen: Seen, progress: Callable[[str], None]
) -> str:
    """Probe the erased model at each strength, and return why there are no more."""
    study = task.study
    selection, validation = forget_set(replace(study.trial, forget=study.selection)), validation_set(spec)
    seen.original |= shared_probe(spec, spec.model, selection, artifacts)
    seen.targets |= {level.key: level_in_numbers(spec, level, selection, artifacts) for level in study.targets}
    with closing(erase(spec, artifacts, spec.strengths, progress)) as erasures:
        for erasure in erasures:
            erased = erasure.erased
            numbers = probe(erased.model, selection, validation)
            steps = _optimiser_steps(study, spec, erased)
            seen.probes.append({"strength": erased.strength, **numbers, "optimiser_steps": steps})
            if is_outside(study, seen.original, numbers):
                return COLLAPSED
            if all(numbers[PROBED_ERASURE] <= level for level in seen.targets.values()):
                return PAST
            if erased.stop_reason:
                return STOPPED
    return WHOLE


def _optimiser_steps(study: StudySpec, spec: TrialSpec, erased: ErasedModel) -> int:
    if not study.is_trained:
        return 0
    # The training loop notes them; a loop of a plugin's own has the strength, if that counts epochs.
    epochs = erased.strength if study.is_cumulative else 0
    return int(erased.notes.get("total_steps", epochs * spec.steps_per_epoch))
