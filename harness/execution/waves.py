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
from harness.records.journal import Journal
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
    errors: dict[str, str] = {}

    def watch_failures(event: Event) -> None:
        if event.kind == "failed":
            errors[event.job] = event.message
        watch(event)

    shared = shared_jobs(results, folders)
    execute(shared, folders, watch_failures)
    reason_by_key = {job.provides: _missing(job, errors[job.name]) for job in shared if job.name in errors}

    def start(jobs: Sequence[Job]) -> None:
        for job in jobs:
            if reason := _reason_against(job, reason_by_key):
                record_failure(job, folders, watch, reason, ())
        execute([job for job in jobs if not _reason_against(job, reason_by_key)], folders, watch)

    wave = trial_jobs(results, folders)
    started: dict[str, dict[int, Mapping[str, Json]]] = {}
    studies = [study.spec for study in unfinished_studies(results)]
    while True:
        for study in list(studies):
            candidates = next_candidates(study, folders, started.setdefault(study.study_id, {}))
            wave += candidates
            if not candidates or _reason_against(candidates[0], reason_by_key):
                studies.remove(study)
        if not wave:
            return
        start(wave)
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
    spec_by_key: dict[tuple[Literal["prepare", "memorize"], str], TrialSpec] = {}

    def add(kind: Literal["prepare", "memorize"], key: str, spec: TrialSpec) -> None:
        spec_by_key.setdefault((kind, key), spec)

    prepared: dict[str, bool] = {}
    for trial in results.unfinished:
        for key in _keys_to_prepare(trial, artifacts, prepared):
            add("prepare", key, trial.spec)
    for spec in (
        *(study.spec.trial for study in unfinished_studies(results)),
        *(trial.spec for trial in results.unfinished),
    ):
        for key in _memorized_keys(spec):
            add("memorize", key, spec)
    jobs, names = [], set[str]()
    for (kind, key), spec in sorted(spec_by_key.items(), key=lambda item: item[0][0] != "prepare"):
        if kind == "prepare" or artifacts.find(MEMORIZED, key) is None:
            name = _unused(f"{kind}-{spec.model.short_name}", key, names)
            jobs.append(Job(name=name, kind=kind, spec=spec, provides=key))
    return jobs


def trial_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return the unfinished trials as jobs.

    The quickest trial of each variant and model comes first, so that an early table has all variants; then the longest
    first. Length is the number of points, or `WALKED_POINTS`.
    """
    artifacts, prepared, names, jobs = Artifacts(folders.artifacts), dict[str, bool](), set[str](), list[Job]()
    for trial in results.unfinished:
        spec, needs = trial.spec, _keys_to_prepare(trial, artifacts, prepared)
        strength = f"-{spec.strengths[0]:g}" if len(spec.strengths) == 1 else ""
        strength = f"-to-{spec.until.at}" if spec.until else strength
        name = _unused(f"{spec.variant}{strength}-{spec.model.short_name}-s{spec.seed}", spec.trial_id, names)
        jobs.append(Job(name=name, kind="trial", spec=spec, needs=(*needs, *_memorized_keys(spec))))
    jobs.sort(key=_length)
    quickest: dict[tuple[str, str], Job] = {}
    for job in jobs:
        quickest.setdefault((job.spec.model.id, job.spec.variant), job)
    others = [job for job in jobs if quickest[job.spec.model.id, job.spec.variant] is not job]
    return [*quickest.values(), *sorted(others, key=_length, reverse=True)]


def next_candidates(study: StudySpec, folders: Folders, started: dict[int, Mapping[str, Json]]) -> list[Job]:
    """Return the candidates that can be proposed now; none at the end of the search.

    Args:
        study: The search.
        folders: Location of the journal.
        started: Settings of candidates that this run started, by number; new ones are added. A candidate whose process
            died is tried again by the next run.
    """
    candidates = study_results(study, Journal(folders.results / "journal").read(study.study_id)).candidates
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
    return Job(name=name, kind="candidate", spec=spec, candidate=task, needs=_memorized_keys(spec))


def _keys_to_prepare(trial: TrialResults, artifacts: Artifacts, prepared: dict[str, bool]) -> tuple[str, ...]:
    """Return the key of the arrays that remaining evaluators lack of their original, if any."""
    spec = trial.spec
    for evaluator_spec in spec.evaluators:
        key = prepared_key(spec.model, evaluator_spec)
        if key not in prepared:
            prepared[key] = is_prepared(spec.model, evaluator_spec, artifacts)
    lacking = [key for each in spec.evaluators if not prepared[key := prepared_key(spec.model, each)]]
    for _, evaluators in trial.remaining:
        if any(prepared_key(spec.model, each) in lacking for each in evaluators):
            return (digest_of([*lacking, spec.engine.workers]),)  # Trials with other workers run apart.
    return ()


def _memorized_keys(spec: TrialSpec) -> tuple[str, ...]:
    return (memorized_key(spec),) if spec.reference == "memorized_model" else ()


def _missing(job: Job, error: str) -> str:
    if job.kind == "prepare":
        return f"what is measured of the original alone could not be computed: {error}"
    return f"the memorised model could not be built: {error}"


def _reason_against(job: Job, reason_by_key: Mapping[str | None, str]) -> str:
    return next((reason_by_key[key] for key in job.needs if key in reason_by_key), "")


def _length(job: Job) -> int:
    return WALKED_POINTS if job.spec.until else len(job.spec.points())


def _unused(name: str, digest: str, names: set[str]) -> str:
    """Return an unused name with a few digits of a digest, or all."""
    short = f"{name}-{digest[:4]}"
    unused = f"{name}-{digest}" if short in names else short
    names.add(unused)
    return unused
