"""Runs one candidate of a study: erase with its settings, probe on the way, and journal what was seen.

A probe is two forward passes of a model, over the selection half of the forget set and over validation texts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace

import numpy as np

from harness.base.messages import reason
from harness.contracts import Checkpoint, ErasedModel, Model, Sequences
from harness.errors import StorageError
from harness.execution.job import CandidateTask, Event, Folders, Job, Seen, Watcher
from harness.execution.redact import failure_for_report
from harness.execution.trial.erasing import erase
from harness.execution.trial.inputs import clear_shared, device_of, forget_set, validation_set
from harness.execution.trial.memorized import memorized_costs, operation_counter
from harness.models.loading import load_model
from harness.plans import PROBED_ERASURE, PROBED_UTILITY, StudySpec, Target
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.record import COLLAPSED, PAST, STOPPED, WHOLE
from harness.records.results import is_outside
from harness.specs import RETRAINED, TrialSpec
from harness.toolkit.decoding import greedy_continuations
from harness.toolkit.scoring import memorization_accuracy, own_perplexity

VERSION = 1
"""Raised when the numbers of probes change; part of the key of those that are shared."""


def run_candidate(job: Job, folders: Folders, watch: Watcher) -> str:
    """Try a candidate, journal it as one record, and return a sentence about how it went.

    An exception ends it, and what it saw before still counts.
    """
    assert job.candidate is not None
    task, seen = job.candidate, Seen()

    def progress(message: str) -> None:
        watch(Event(job=job.name, kind="progress", message=message))

    artifacts, began = Artifacts(folders.artifacts, progress), time.perf_counter()
    counter = operation_counter() if _counts_operations(task.study) else None
    try:
        _look_up_shared(task.study, job.spec, artifacts, seen)
        began = time.perf_counter()
        with counter or nullcontext():
            end = _erase_and_probe(task, job.spec, artifacts, seen, progress)
    except (StorageError, KeyboardInterrupt):  # No fault of its settings: it is tried again by the next run.
        raise
    except BaseException as error:  # Whatever a plugin raises at settings that nobody has tried before.
        clear_shared()  # It may have been harmed.
        end, _ = failure_for_report(error, job.spec.samples)
    seen.flops = float(counter.get_total_flops()) if counter else 0.0
    candidate = task.record(seen, end, time.perf_counter() - began)
    Journal(folders.results / "journal").append(candidate)
    how = "nothing probed"
    if seen.probes:
        last = seen.probes[-1]
        names = dict.fromkeys([*(target.metric for target in task.study.targets), task.study.utility])
        numbers = ", ".join(f"{name} {last[name]:.4g}".replace(" inf", " ∞") for name in names)
        how = f"{numbers} at {job.spec.strength_name} {last['strength']:g}"
    return f"{how}; {'failed: ' if candidate.error else ''}{reason(end)}"


def _counts_operations(study: StudySpec) -> bool:
    return study.cost is not None and study.cost.unit == "flops"


def _look_up_shared(study: StudySpec, spec: TrialSpec, artifacts: Artifacts, seen: Seen) -> None:
    """Note what all candidates share, which the first computes: no budget is charged with who was first."""
    seen.original |= shared_probe(study, spec.model, artifacts)
    seen.targets |= {str(target): asked_for(study, target, artifacts) for target in study.targets}
    seen.memorized |= memorized_costs(spec, artifacts)


def _erase_and_probe(
    task: CandidateTask, spec: TrialSpec, artifacts: Artifacts, seen: Seen, progress: Callable[[str], None]
) -> str:
    """Probe the erased model at each strength, and return why there are no more."""
    study = task.study
    selection, validation = selection_set(study), validation_set(spec)
    with closing(erase(spec, artifacts, spec.strengths, progress)) as erasures:
        for erasure in erasures:
            erased = erasure.erased
            numbers = probe(erased.model, selection, validation)
            steps = _optimiser_steps(study, spec, erased)
            seen.probes.append({"strength": erased.strength, **numbers, "optimiser_steps": steps})
            if is_outside(study, seen.original, numbers):
                return COLLAPSED
            if all(numbers[target.metric] <= seen.targets[str(target)] for target in study.targets):
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


def probe(model: Model, selection: Sequences, validation: Sequences) -> dict[str, float]:
    """Return a model's `ma` on the selection half, and its own `perplexity` on the validation texts.

    MA is that of the table under the exact definition: teacher-forced, over the continuation without its last
    token, the mean over sequences. Where perplexity is NaN, so is MA.
    """
    perplexity = own_perplexity(model, validation)
    if math.isnan(perplexity):
        return {PROBED_ERASURE: math.nan, PROBED_UTILITY: perplexity}
    predicted_NT = greedy_continuations(model, selection, [[]] * len(selection)).predicted_NT
    of_sequence = [
        memorization_accuracy(tokens_T, predicted_T, selection.prefix_tokens, int(length) - 1)
        for tokens_T, predicted_T, length in zip(selection.tokens_NT, predicted_NT, selection.lengths_N, strict=True)
    ]
    ma = math.nan if np.isnan(of_sequence).all() else float(np.nanmean(of_sequence))
    return {PROBED_ERASURE: ma, PROBED_UTILITY: perplexity}


def selection_set(study: StudySpec) -> Sequences:
    """Return the half of the forget set that a study's probes look at."""
    return forget_set(replace(study.trial, forget=study.selection))


def shared_probe(study: StudySpec, checkpoint: Checkpoint, artifacts: Artifacts) -> dict[str, float]:
    """Return the probe of a model that every candidate is compared with, computed once for all of them."""

    def make() -> dict[str, np.ndarray]:
        model = load_model(checkpoint).to(device_of(study.trial))
        seen = probe(model, selection_set(study), validation_set(study.trial))
        return {name: np.array(value) for name, value in seen.items()}

    key = "probe", str(VERSION), checkpoint.digest, study.selection.digest, study.trial.validation.digest
    return {name: float(value) for name, value in artifacts.arrays(key, make).items()}


def asked_for(study: StudySpec, target: Target, artifacts: Artifacts) -> float:
    """Return a target's value: its own number, or the retrained model's."""
    if target.at_most != RETRAINED:
        return float(target.at_most)
    assert study.retrained is not None
    return shared_probe(study, study.retrained, artifacts)[target.metric]
