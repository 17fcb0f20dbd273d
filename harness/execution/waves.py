"""Runs a sweep's missing jobs in waves: shared models first, then trials and generations of searches.

Jobs of a wave are independent, so executors run them in any order. Proposals depend only on finished generations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from harness.base.files import digest_of
from harness.contracts import Json
from harness.execution.job import CandidateTask, Event, Executor, Folders, Job, Watcher, record_failure
from harness.execution.search import next_settings, results_awaited
from harness.execution.trial.run import run_job
from harness.execution.trial.tasks import is_prepared, prepared_key
from harness.records.artifacts import MEMORIZED, Artifacts, memorized_key
from harness.records.results import Results, TrialResults, study_results
from harness.records.tuned import unfinished_studies
from harness.settings import StudySpec, TrialSpec, replace

WALKED_POINTS = 10
"""Points of a grid that take as long as a walk."""


def run_waves(results: Results, folders: Folders, execute: Executor, watch: Watcher) -> None:
    """Run every unfinished trial and study.

    Args:
        results: The journal's state.
        folders: Journal and artifacts.
        execute: The executor.
        watch: Receives every event.

    Raises:
        StorageError: The journal cannot be written.
        ExecutorError: Ray died.
    """
    shared = shared_jobs(results, folders)
    key_by_job = {job.name: job.provides for job in shared}
    reason_by_key: dict[str | None, str] = {}

    def watch_failures(event: Event) -> None:
        if event.kind == "failed":
            reason_by_key[key_by_job[event.job]] = f"what it shares with others could not be made: {event.message}"
        watch(event)

    execute(shared, folders, watch_failures)
    wave, studies = trial_jobs(results, folders), [study.spec for study in unfinished_studies(results)]
    started: dict[str, dict[int, Mapping[str, Json]]] = {study.study_id: {} for study in studies}
    while True:
        for study in list(studies):
            candidates = next_candidates(study, folders, started[study.study_id])
            wave += candidates
            if not candidates or not reason_by_key.keys().isdisjoint(candidates[0].needs):
                studies.remove(study)
        if not wave:
            return
        possible = []
        for job in wave:
            reasons = [reason_by_key[key] for key in job.needs if key in reason_by_key]
            if reasons:
                record_failure(job, folders, watch, reasons[0], ())
            else:
                possible.append(job)
        execute(possible, folders, watch)
        wave = []


def run_inline(jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    """Run jobs in this process, one by one, without time limits or isolation.

    Raises:
        StorageError: The journal cannot be written.
    """
    for job in jobs:
        run_job(job, folders, watch)


def shared_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return a job for each memorised model and each set of arrays that unfinished trials lack."""
    artifacts = Artifacts(folders.artifacts)
    specs_by_key: dict[tuple[Literal["prepare", "memorize"], str], list[TrialSpec]] = {}
    is_prepared_by_key: dict[str, bool] = {}
    for trial in results.unfinished:
        for key in _keys_to_prepare(trial, artifacts, is_prepared_by_key):
            specs_by_key.setdefault(("prepare", key), []).append(trial.spec)
    specs = [study.spec.trial for study in unfinished_studies(results)] + [trial.spec for trial in results.unfinished]
    for spec in specs:
        for key in _memorized_keys(spec):
            if artifacts.find(MEMORIZED, key) is None:
                specs_by_key.setdefault(("memorize", key), []).append(spec)
    jobs = []
    for (kind, key), sharing in specs_by_key.items():
        limits = [spec.time_limit for spec in sharing if spec.time_limit is not None]
        longest = max(limits, key=lambda limit: limit.minutes) if len(limits) == len(sharing) else None
        name = f"{kind}-{sharing[0].model.short_name}-{key[:8]}"
        jobs.append(Job(name=name, kind=kind, spec=replace(sharing[0], time_limit=longest), provides=key))
    return jobs


def trial_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return the unfinished trials as jobs: references first, then the longest first."""
    artifacts, is_prepared_by_key, jobs = Artifacts(folders.artifacts), dict[str, bool](), list[Job]()
    for trial in results.unfinished:
        spec, needs = trial.spec, _keys_to_prepare(trial, artifacts, is_prepared_by_key)
        strength = f"-{spec.strengths[0]:g}" if len(spec.strengths) == 1 else ""
        strength = f"-to-{spec.until.at}" if spec.until else strength
        name = f"{spec.variant}{strength}-{spec.model.short_name}-s{spec.seed}-{spec.trial_id[:8]}"
        jobs.append(Job(name=name, kind="trial", spec=spec, needs=(*needs, *_memorized_keys(spec))))
    return sorted(jobs, key=lambda job: (not job.spec.is_reference, -_length(job.spec)))


def next_candidates(study: StudySpec, folders: Folders, started: dict[int, Mapping[str, Json]]) -> list[Job]:
    """Return the candidates that can be proposed now; none at the end of the search.

    Args:
        study: The search.
        folders: Location of the journal.
        started: Settings of candidates that this run started, by number; new ones are added. A candidate whose process
            died is tried again by the next run.
    """
    candidates = study_results(study, folders.journal.read(study.study_id)).candidates
    recorded = {candidate.number for candidate in candidates}
    generation: list[Job] = []
    for number in range(study.trials):
        if number in recorded or number in started:
            continue
        awaited = results_awaited(study, number)
        if any(job.candidate and job.candidate.number < awaited for job in generation):
            break
        others = {other: settings for other, settings in started.items() if other not in recorded}
        settings = next_settings(study, number, candidates, others)
        if settings is None:
            break
        started[number] = settings
        generation.append(candidate_job(study, number, settings))
    return generation


def candidate_job(study: StudySpec, number: int, settings: Mapping[str, Json]) -> Job:
    """Return the job of a candidate."""
    spec = study.trial_with(settings, study.strengths(settings))
    # The id is the candidate's own, so that two of a study never write to one place.
    spec = replace(spec, trial_id=f"{study.study_id}-{number}")
    name = f"{spec.variant}-{spec.model.short_name}-candidate-{number}-{study.study_id[:4]}"
    task = CandidateTask(study=study, number=number, settings=settings)
    return Job(name=name, kind="candidate", spec=spec, candidate=task, needs=tuple(_memorized_keys(spec)))


def _keys_to_prepare(trial: TrialResults, artifacts: Artifacts, is_prepared_by_key: dict[str, bool]) -> list[str]:
    """Return the key of the arrays that remaining evaluators lack of their original, if any."""
    model, lacking = trial.spec.model, []
    for each in trial.spec.evaluators:
        key = prepared_key(model, each)
        if key not in is_prepared_by_key:
            is_prepared_by_key[key] = is_prepared(model, each, artifacts)
        if not is_prepared_by_key[key]:
            lacking.append(key)
    remaining = {prepared_key(model, each) for _, evaluators in trial.remaining for each in evaluators}
    return [] if remaining.isdisjoint(lacking) else [digest_of(lacking)]


def _memorized_keys(spec: TrialSpec) -> list[str]:
    return [memorized_key(spec)] if spec.reference == "memorized_model" else []


def _length(spec: TrialSpec) -> int:
    return WALKED_POINTS if spec.until else len(spec.points())
