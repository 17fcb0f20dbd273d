"""Studies on their way to trials: which are unfinished, how large their candidates get, and what the others chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from harness.contracts import Json, Number
from harness.plans import Plan, StudySpec
from harness.records.bisection import bisected_strength, is_bisected
from harness.records.journal import Journal
from harness.records.ranges import space_at
from harness.records.record import Candidate
from harness.records.results import Results, StudyResults, read_results, read_studies
from harness.records.spending import is_paid
from harness.search_space import Choice, Dimension, LogUniform, end_of
from harness.specs import TrialSpec


def unfinished_studies(results: Results) -> list[StudyResults]:
    """Return the studies that have candidates left to try."""
    return [study for study in results.searches if not is_over(study.spec, study.candidates)]


def largest_candidate(study: StudySpec) -> TrialSpec:
    """Return a study's trial at the end of each of its ranges, which needs most: what is sized for all of them."""
    settings = {name: end_of(dimension) for name, dimension in {**study.space, **study.widest}.items()}
    return study.trial_with(settings, study.strengths(settings))


def specs_left(results: Results) -> list[TrialSpec]:
    """Return what is left to run of a sweep: unfinished trials, and of each unfinished study its largest candidate."""
    specs = [trial.spec for trial in results.unfinished]
    for study in unfinished_studies(results):
        specs.append(largest_candidate(study.spec))
    return specs


def read_tuned(plan: Plan, journal: Journal) -> Results:
    """Return what the journal says of a plan, and of the trials of what its finished studies chose."""
    studies = read_studies(plan.studies, journal)
    chosen = chosen_trials([study for study in studies if is_over(study.spec, study.candidates)])
    return read_results(replace(plan, trials=(*plan.trials, *chosen)), journal)


def chosen_trials(studies: Sequence[StudyResults]) -> list[TrialSpec]:
    """Return a trial for each seed and each chosen setting, seeds outermost; targets that share one share its trial.

    A trial's id is that of an untuned sweep's trial with the same settings. A target that was not reached has none.
    """
    merged: dict[str, TrialSpec] = {}
    for seed in dict.fromkeys(seed for study in studies for seed in study.spec.seeds):
        for study in studies:
            for spec in _of_targets(study, seed) if seed in study.spec.seeds else ():
                same = merged.get(spec.trial_id, spec)
                strengths = tuple(sorted({*same.strengths, *spec.strengths}))
                targets = {**same.targets, **spec.targets}
                merged[spec.trial_id] = replace(spec, strengths=strengths, targets=targets)
    return list(merged.values())


def _of_targets(study: StudyResults, seed: int) -> list[TrialSpec]:
    trials = []
    for result in study.targets:
        if result.chosen is None:
            continue
        settings = result.chosen.candidate.settings
        strength = result.chosen.probe["strength"]
        near = [one for one in neighbours(study.spec, strength) if one > 0]
        measured = tuple(sorted((strength, *near)))
        searched = {name: value for name, value in settings.items() if name != study.spec.trial.strength_name}
        for strengths in (measured,) if study.spec.is_cumulative else [(one,) for one in measured]:
            spec = replace(study.spec.trial_with(settings, strengths), seed=seed, searched=searched)
            if strength in strengths:
                spec = replace(spec, targets={str(result.target): strength})
            trials.append(spec.identified(is_cumulative=study.spec.is_cumulative))
    return trials


NEAR = 1.2
"""How far on either side of a chosen strength, as a factor, the method is measured once more."""


def neighbours(study: StudySpec, strength: Number) -> tuple[Number, ...]:
    """Return the strengths on either side of a chosen one that are measured with it, rising; 0 is the original.

    What is chosen on one half of the texts, at a dial's steps, meets the target on the other half only about; between
    measured neighbours it can be said what it costs to meet it. They are the steps before and after it of a cumulative
    strength, the listed values next to it, or what lies a fifth away within the range; below the first of them lies the
    original. None of a strength that the sweep fixes.
    """
    name = study.trial.strength_name
    dimension = study.widest.get(name, study.space.get(name))
    if dimension is None:
        return ()
    if isinstance(dimension, Choice):
        listed = [0, *sorted(dimension.values)]
        place = listed.index(strength)
        return (listed[place - 1], *listed[place + 1 : place + 2])
    if study.is_cumulative:
        return (strength - 1, strength + 1)
    near = [max(strength / NEAR, dimension.low), min(strength * NEAR, dimension.high)]
    below, above = map(round, near) if isinstance(dimension.low, int) else near
    return (below if below < strength else 0, *([above] if above > strength else []))


def is_over(study: StudySpec, known: Sequence[Candidate]) -> bool:
    """Return whether a study has tried what it was to try, or has nothing left to learn."""
    numbers = {candidate.number for candidate in known}
    following = min({*range(study.trials)} - numbers, default=study.trials)
    if not known or not is_paid(study, following, known):
        return bool(known)
    if is_bisected(study):
        return bisected_settings(study, known) is None
    return untried_settings(study, [candidate.settings for candidate in known]) == []


def bisected_settings(study: StudySpec, known: Sequence[Candidate]) -> dict[str, Json] | None:
    """Return the strength that a bisected study tries next; None if nothing is left to learn."""
    name = study.trial.strength_name
    dimension = space_at(study, len(known), known)[name]
    assert isinstance(dimension, LogUniform)
    strength = bisected_strength(study, dimension, known)
    return None if strength is None else {name: strength}


def dimensions_tried(study: StudySpec) -> dict[str, Dimension]:
    """Return what candidates differ in: not in a cumulative strength, which each of them raises step by step."""
    tried = dict(study.space)
    if study.is_cumulative:
        tried.pop(study.trial.strength_name, None)
    return tried


def untried_settings(study: StudySpec, tried: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]] | None:
    """Return the settings that are left where there are finitely many; None where there are not.

    How far a cumulative strength goes makes no difference between two.
    """
    searched = dimensions_tried(study)
    choices = [dimension.values for dimension in searched.values() if isinstance(dimension, Choice)]
    if len(choices) < len(searched):
        return None
    alike = []
    for settings in tried:
        alike.append(tuple(settings[name] for name in searched))
    untried: list[dict[str, Json]] = []
    for values in product(*choices):
        if values not in alike:
            untried.append({**study.defaults, **dict(zip(searched, values, strict=True))})
    return untried
