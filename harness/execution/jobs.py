"""The jobs that finish a sweep, in order; some of them wait for what others provide.

A sweep's jobs are its unfinished trials, and before them one job for each memorised model that
any of them needs. An executor starts a job once its `needs` has been provided, so that no trial
ever waits in a slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.contracts import Json
from harness.execution.guard.time_limits import longer
from harness.execution.job import CandidateTask, Folders, Job
from harness.plans import StudySpec
from harness.records.artifacts import MEMORIZED, Artifacts, memorized_key
from harness.records.results import Results
from harness.records.tuned import unfinished_studies
from harness.specs import TrialSpec


def jobs_for(results: Results, folders: Folders) -> list[Job]:
    """Return the jobs that finish a sweep: nothing for what the journal holds, memorised models first.

    What unfinished studies need is among them; their candidates follow from one another, so they are not.

    Args:
        results: What the journal says of every trial and study.
        folders: Where artifacts may exist already.
    """
    artifacts = Artifacts(folders.artifacts)
    memorize: dict[str, Job | None] = {}
    trials: list[Job] = []
    taken: set[str] = set()
    searched = [study.spec.trial for study in unfinished_studies(results)]
    for spec in (*searched, *(trial.spec for trial in results.unfinished)):
        needs = _needs(spec)
        if needs and needs not in memorize:
            name = _unused(f"memorize-{spec.model.short_name}", needs, taken)
            is_there = artifacts.find(MEMORIZED, needs) is not None
            memorize[needs] = None if is_there else Job(name=name, kind="memorize", spec=spec, provides=needs)
        elif needs and (builder := memorize[needs]):  # It may run as long as any that needs it.
            longest = longer(builder.spec.time_limit, spec.time_limit)
            memorize[needs] = replace(builder, spec=replace(builder.spec, time_limit=longest))
        if spec in searched:
            continue
        strength = "" if len(spec.strengths) != 1 else f"-{spec.strengths[0]:g}"
        name = _unused(f"{spec.variant}{strength}-{spec.model.short_name}-s{spec.seed}", spec.trial_id, taken)
        trials.append(Job(name=name, kind="trial", spec=spec, needs=needs))
    return [*filter(None, memorize.values()), *_in_order(trials)]


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
    return Job(name=name, kind="candidate", spec=spec, candidate=task, needs=_needs(spec))


def _needs(spec: TrialSpec) -> str | None:
    return memorized_key(spec) if spec.reference == "memorized_model" else None
