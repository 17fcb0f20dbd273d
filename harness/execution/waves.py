"""Runs a sweep's missing jobs in waves: shared models first, then trials and generations of searches.

Jobs of a wave are independent, so executors run them in any order. Proposals depend only on finished generations.
"""

from collections.abc import Mapping, Sequence

from harness.base.files import digest_of
from harness.execution.job import CandidateTask, Event, Executor, Folders, Job, Watcher, record_failure
from harness.execution.search import next_settings, results_awaited
from harness.planning.tuned import unfinished_studies
from harness.records.artifacts import MEMORIZED, Artifacts, is_prepared, memorized_key, prepared_key
from harness.records.results import Results, TrialResults, study_results
from harness.settings import Json, Study, Trial, replace

WALKED_POINTS = 10
"""Points of a grid that take as long as a walk."""


def run_waves(results: Results, folders: Folders, execute: Executor, watch: Watcher) -> None:
    """Run every unfinished trial and study; `watch` receives every event."""
    reason_by_job: dict[str, str] = {}

    def watch_failures(event: Event) -> None:
        if event.kind == "failed":
            reason_by_job[event.job] = f"a part it shares with others could not be made: {event.message}"
        watch(event)

    execute(shared_jobs(results, folders), folders, watch_failures)
    wave, studies = trial_jobs(results, folders), [study.spec for study in unfinished_studies(results)]
    started: dict[str, dict[int, Mapping[str, Json]]] = {study.study_id: {} for study in studies}
    while True:
        for study in list(studies):
            candidates = next_candidates(study, folders, started[study.study_id])
            wave += candidates
            if not candidates or not reason_by_job.keys().isdisjoint(candidates[0].needs):
                studies.remove(study)
        if not wave:
            return
        possible = []
        for job in wave:
            if reasons := [reason_by_job[name] for name in job.needs if name in reason_by_job]:
                for each in job.chain():
                    record_failure(each, folders, watch, reasons[0], ())
            else:
                possible.append(job)
        execute(possible, folders, watch)
        wave = []


def run_inline(jobs: Sequence[Job], folders: Folders, watch: Watcher) -> None:
    """Run jobs in this process, one by one, without time limits or isolation."""
    from harness.execution import trial  # It imports transformers' models, which takes seconds.

    for job in jobs:
        trial.run_job(job, folders, watch)


def shared_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return a job for each memorised model and each set of arrays that unfinished trials lack."""
    artifacts, spec_by_name = Artifacts(folders.artifacts), dict[str, Trial]()
    for trial in results.unfinished:
        for name in _preparing_jobs(trial, artifacts):
            spec_by_name.setdefault(name, trial.spec)
    specs = [study.spec.trial for study in unfinished_studies(results)] + [trial.spec for trial in results.unfinished]
    memorizing = {name: spec for spec in specs for name in _memorizing_jobs(spec)}
    for name, spec in memorizing.items():
        if artifacts.find(MEMORIZED, memorized_key(spec)) is None:
            spec_by_name[name] = spec
    jobs = []
    for name, spec in spec_by_name.items():
        jobs.append(Job(name=name, kind="memorize" if name.startswith("memorize") else "prepare", spec=spec))
    return jobs


def count_jobs(results: Results, folders: Folders) -> int:
    """Return the number of jobs left, with the trials that follow from unfinished studies."""
    ahead = [one.spec.trials - len(one.candidates) + len(one.spec.targets) for one in unfinished_studies(results)]
    return len(shared_jobs(results, folders)) + len(results.unfinished) + sum(ahead)


def trial_jobs(results: Results, folders: Folders) -> list[Job]:
    """Return the unfinished trials as jobs: references first, then the longest first.

    Walks of one erasure to several levels are a chain.
    """
    artifacts, job_by_erasure, points = Artifacts(folders.artifacts), dict[str, Job](), dict[str, int]()
    for trial in reversed(results.unfinished):  # A chain is made from its end.
        spec = trial.spec
        strength = f"-{spec.strengths[0]:g}" if len(spec.strengths) == 1 else ""
        strength = f"-to-{spec.until.at}" if spec.until else strength
        name = f"{spec.variant}{strength}-{spec.model.short_name}-s{spec.seed}-{spec.trial_id[:8]}"
        needs = (*_preparing_jobs(trial, artifacts), *_memorizing_jobs(spec))
        erasure = replace(spec, trial_id="", until=None).model_dump_json() if spec.until else spec.trial_id
        then = job_by_erasure.get(erasure)
        job_by_erasure[erasure] = Job(name=name, kind="trial", spec=spec, needs=needs, then=then)
        points[name] = (WALKED_POINTS if spec.until else len(spec.points())) + (points[then.name] if then else 0)
    jobs = [*job_by_erasure.values()][::-1]
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
    return Job(name=name, kind="candidate", spec=spec, candidate=task, needs=_memorizing_jobs(spec))


def _preparing_jobs(trial: TrialResults, artifacts: Artifacts) -> tuple[str, ...]:
    model, remaining = trial.spec.model, [each for _, evaluators in trial.remaining for each in evaluators]
    lacking = [each for each in trial.spec.evaluators if not is_prepared(model, each, artifacts)]
    if trial.spec.is_of_original or not any(each in remaining for each in lacking):
        return ()
    return (f"prepare-{model.short_name}-{digest_of([prepared_key(model, each) for each in lacking])[:8]}",)


def _memorizing_jobs(spec: Trial) -> tuple[str, ...]:
    key = memorized_key(spec)[:8]
    return (f"memorize-{spec.model.short_name}-{key}",) if spec.reference == "memorized_model" else ()
