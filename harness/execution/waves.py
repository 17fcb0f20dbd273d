"""Runs a sweep's missing jobs: what trials share, trials, and searches in generations.

Jobs run in any order: one that needs an artifact waits while another makes it, or makes it itself. So what trials share
is in their wave, and workers start once. Proposals depend only on finished generations.
"""

from collections.abc import Mapping, Sequence

from harness.base.files import digest_of
from harness.execution.job import CandidateTask, Event, Executor, Folders, Job, Watcher
from harness.execution.search import next_settings, results_awaited
from harness.records.artifacts import MEMORIZED, Artifacts, is_prepared, memorized_key, prepared_key
from harness.records.results import Results, study_results
from harness.records.tuned import unfinished_studies
from harness.settings import Json, Study, Trial, replace

WALKED_POINTS = 10
"""Points of a grid that take as long as a walk."""


def run_waves(results: Results, folders: Folders, execute: Executor, watch: Watcher) -> None:
    """Run every unfinished trial and study; `watch` receives every event."""
    failed_jobs: set[str] = set()

    def watch_failures(event: Event) -> None:
        if event.kind == "failed":
            failed_jobs.add(event.job)
        watch(event)

    wave = [*shared_jobs(results, folders), *trial_jobs(results)]
    studies = [study.spec for study in unfinished_studies(results)]
    started: dict[str, dict[int, Mapping[str, Json]]] = {study.study_id: {} for study in studies}
    while True:
        for study in list(studies):
            has_failed = _memorizing_job(study.trial) in failed_jobs
            candidates = [] if has_failed else next_candidates(study, folders, started[study.study_id])
            wave += candidates
            if not candidates:
                studies.remove(study)
        if not wave:
            return
        execute(wave, folders, watch_failures)
        wave = []


def run_inline(jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    """Run jobs in this process, one by one, without time limits or isolation."""
    from harness.execution.trial import run  # It imports transformers' models, which takes seconds.

    for job in jobs:
        run.run_job(job, folders, watch)


def shared_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return a job for each memorised model and each set of arrays that unfinished trials lack."""
    artifacts, job_by_name = Artifacts(folders.artifacts), dict[str, Job]()
    for trial in results.unfinished:
        model, remaining = trial.spec.model, [each for _, evaluators in trial.remaining for each in evaluators]
        lacking = [each for each in trial.spec.evaluators if not is_prepared(model, each, artifacts)]
        if not trial.spec.is_of_original and any(each in remaining for each in lacking):
            keys = digest_of([prepared_key(model, each) for each in lacking])
            name = f"prepare-{model.short_name}-{keys[:8]}"
            job_by_name.setdefault(name, Job(name=name, kind="prepare", spec=trial.spec))
    specs = [study.spec.trial for study in unfinished_studies(results)] + [trial.spec for trial in results.unfinished]
    spec_by_key = {memorized_key(spec): spec for spec in specs if spec.reference == "memorized_model"}
    for key, spec in spec_by_key.items():
        if artifacts.find(MEMORIZED, key) is None:
            name = _memorizing_job(spec)
            job_by_name[name] = Job(name=name, kind="memorize", spec=spec)
    return list(job_by_name.values())


def trial_jobs(results: Results) -> list[Job]:
    """Return the unfinished trials as jobs: references first, then the longest first."""
    jobs, points = list[Job](), dict[str, int]()
    for trial in results.unfinished:
        spec = trial.spec
        strength = f"-{spec.strengths[0]:g}" if len(spec.strengths) == 1 else ""
        strength = f"-to-{spec.until.at}" if spec.until else strength
        name = f"{spec.variant}{strength}-{spec.model.short_name}-s{spec.seed}-{spec.trial_id[:8]}"
        jobs.append(Job(name=name, kind="trial", spec=spec))
        points[name] = WALKED_POINTS if spec.until else len(spec.points())
    return sorted(jobs, key=lambda job: (not job.spec.is_reference, -points[job.name]))


def next_candidates(study: Study, folders: Folders, started: dict[int, Mapping[str, Json]]) -> list[Job]:
    """Return the candidates that can be proposed now; none at the end of the search.

    Settings of those that this run `started` are added by number; died ones are tried again by the next run.
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


def candidate_job(study: Study, number: int, settings: Mapping[str, Json]) -> Job:
    """Return the job of a candidate."""
    spec = study.trial_with(settings, study.strengths(settings))
    # The id is the candidate's own, so that two of a study never write to one place.
    spec = replace(spec, trial_id=f"{study.study_id}-{number}")
    name = f"{spec.variant}-{spec.model.short_name}-candidate-{number}-{study.study_id[:4]}"
    task = CandidateTask(study=study, number=number, settings=settings)
    return Job(name=name, kind="candidate", spec=spec, candidate=task)


def _memorizing_job(spec: Trial) -> str:
    return f"memorize-{spec.model.short_name}-{memorized_key(spec)[:8]}"
