"""The jobs that finish a sweep, in order; some of them wait for what others provide.

A sweep's jobs are its unfinished trials, and before them one job for each memorised model that
any of them needs, and one for each original of which their evaluators compute something beforehand.
An executor starts a job once what it `needs` has been provided, so that no trial ever waits in a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from harness.base.digests import digest_of
from harness.contracts import Json
from harness.execution.guard.time_limits import longer
from harness.execution.job import CandidateTask, Folders, Job
from harness.execution.prepared import is_prepared, prepared_key
from harness.plans import StudySpec
from harness.records.artifacts import MEMORIZED, Artifacts, memorized_key
from harness.records.results import Results, TrialResults
from harness.records.tuned import unfinished_studies
from harness.specs import EvaluatorSpec, TrialSpec


def jobs_for(results: Results, folders: Folders) -> list[Job]:
    """Return the jobs that finish a sweep: nothing for what the journal holds, what others need first.

    What unfinished studies need is among them; their candidates follow from one another, so they are not.

    Args:
        results: What the journal says of every trial and study.
        folders: Where artifacts may exist already.
    """
    artifacts = Artifacts(folders.artifacts)
    builders: dict[str, Job | None] = {}
    trials: list[Job] = []
    taken: set[str] = set()

    def builder(kind: Literal["prepare", "memorize"], key: str, spec: TrialSpec) -> Job | None:
        if key not in builders:
            name = _unused(f"{kind}-{spec.model.short_name}", key, taken)
            is_there = kind == "memorize" and artifacts.find(MEMORIZED, key) is not None
            return None if is_there else Job(name=name, kind=kind, spec=spec, provides=key)
        job = builders[key]  # It may run as long as any that needs it.
        return job and replace(job, spec=replace(job.spec, time_limit=longer(job.spec.time_limit, spec.time_limit)))

    for study in unfinished_studies(results):
        for key in _memorized(study.spec.trial):
            builders[key] = builder("memorize", key, study.spec.trial)
    lacks_prepared = _lacking_prepared(artifacts)
    for trial in results.unfinished:
        spec, prepared = trial.spec, lacks_prepared(trial)
        for key in _memorized(spec):
            builders[key] = builder("memorize", key, spec)
        for key in prepared:
            builders[key] = builder("prepare", key, spec)
        strength = "" if len(spec.strengths) != 1 else f"-{spec.strengths[0]:g}"
        name = _unused(f"{spec.variant}{strength}-{spec.model.short_name}-s{spec.seed}", spec.trial_id, taken)
        trials.append(Job(name=name, kind="trial", spec=spec, needs=(*prepared, *_memorized(spec))))
    # What is prepared is short, and more jobs wait for it.
    first = sorted(filter(None, builders.values()), key=lambda job: job.kind != "prepare")
    return [*first, *_in_order(trials)]


def _lacking_prepared(artifacts: Artifacts) -> Callable[[TrialResults], tuple[str, ...]]:
    """Return a function from a trial to the key of what must be prepared of its original; () if nothing must.

    What evaluators have prepared is read once for all trials.
    """
    known: dict[str, bool] = {}

    def lacks(spec: TrialSpec, measuring: EvaluatorSpec) -> bool:
        key = prepared_key(spec.model, measuring)
        if key not in known:
            known[key] = is_prepared(spec.model, measuring, artifacts)
        return not known[key]

    def keys(trial: TrialResults) -> tuple[str, ...]:
        spec = trial.spec
        lacking = [prepared_key(spec.model, measuring) for measuring in spec.evaluators if lacks(spec, measuring)]
        if not any(lacks(spec, measuring) for _, of_point in trial.remaining for measuring in of_point):
            return ()
        # Trials with other workers are run apart, and each lot has a job of its own.
        return (digest_of([*lacking, spec.engine.workers]),)

    return keys


def _in_order(trials: Sequence[Job]) -> list[Job]:
    """Return trials in the order to start them: an early table of all variants, and no long one alone at the end.

    The quickest trial of each variant on each model comes first, quick ones before long ones; then the others,
    longest first. A trial is as long as it has points.
    """
    first: dict[tuple[str, str], Job] = {}
    for job in sorted(trials, key=_length):
        first.setdefault((job.spec.model.id, job.spec.variant), job)
    names = {job.name for job in first.values()}
    return [*first.values(), *sorted((job for job in trials if job.name not in names), key=_length, reverse=True)]


def _length(job: Job) -> int:
    return len(job.spec.points())


def _unused(name: str, digest: str, taken: set[str]) -> str:
    """Return a job's name that no other has: with a few digits of a digest, or with all."""
    short = f"{name}-{digest[:4]}"
    unused = f"{name}-{digest}" if short in taken else short
    taken.add(unused)
    return unused


def candidate_job(study: StudySpec, number: int, settings: Mapping[str, Json]) -> Job:
    """Return the job that tries a candidate."""
    spec = study.trial_with(settings, study.strengths(settings))
    # The id is the candidate's own, so that two of a study never write to one place.
    spec = replace(spec, trial_id=f"{study.study_id}-{number}")
    name = f"{spec.variant}-{spec.model.short_name}-candidate-{number}-{study.study_id[:4]}"
    task = CandidateTask(study=study, number=number, settings=settings)
    return Job(name=name, kind="candidate", spec=spec, candidate=task, needs=_memorized(spec))


def _memorized(spec: TrialSpec) -> tuple[str, ...]:
    """Return the key of the memorised model that a trial needs; () if it needs none."""
    return (memorized_key(spec),) if spec.reference == "memorized_model" else ()
