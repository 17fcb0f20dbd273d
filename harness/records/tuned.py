"""Studies on their way to trials: which are unfinished, how large their candidates get, and what the others chose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import product

from harness.contracts import Json, Number
from harness.plans import Plan, StudySpec
from harness.records.bisection import bisected_strength, is_bisected
from harness.records.journal import Journal
from harness.records.ranges import space_at
from harness.records.record import Candidate
from harness.records.results import PointResults, Results, StudyResults, read_results, read_studies
from harness.records.spending import is_paid
from harness.search_space import Choice, Dimension, LogUniform, end_of
from harness.specs import RETRAINED, TrialSpec


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
    """Return what the journal says of a plan, and of the trials of what its finished studies chose.

    A choice that misses its target on the reported texts has one strength more, once that is known.
    """
    studies = [study for study in read_studies(plan.studies, journal) if is_over(study.spec, study.candidates)]
    results = read_results(replace(plan, trials=(*plan.trials, *chosen_trials(studies))), journal)
    missed = _points_that_missed(results)
    if not missed:
        return results
    return read_results(replace(plan, trials=(*plan.trials, *chosen_trials(studies, missed))), journal)


def _points_that_missed(results: Results) -> set[str]:
    """Return the ids of chosen points that have more of a target's metric than it asks for, on the reported texts."""
    targets = {str(target): target for study in results.studies for target in study.spec.targets}
    of_retrained: dict[tuple[str, int, str], float] = {}
    for point in results.measured if targets else ():
        if point.spec.method == RETRAINED:
            for target in targets.values():
                of_retrained[point.spec.model.id, point.spec.seed, target.metric] = _number(point, target.metric)
    missed = set()
    for point in results.measured if targets else ():
        for name in point.spec.targets_at(point.strength):
            metric, asked = targets[name].metric, targets[name].at_most
            if isinstance(asked, str):
                asked = of_retrained.get((point.spec.model.id, point.spec.seed, metric), math.nan)
            if _number(point, metric) > asked:
                missed.add(point.spec.point_id(point.strength))
    return missed


def _number(point: PointResults, metric: str) -> float:
    """Return a point's number; NaN where it is not measured."""
    return next((one.numbers[metric] for one in point.measurements if metric in one.numbers), math.nan)


def chosen_trials(studies: Sequence[StudyResults], missed: Set[str] = frozenset()) -> list[TrialSpec]:
    """Return a trial for each seed and each chosen setting, seeds outermost; targets that share one share its trial.

    A trial's id is that of an untuned sweep's trial with the same settings. A target that was not reached has none.

    Args:
        studies: Those that are over.
        missed: The ids of chosen points that miss their target on the reported texts: there a strength above them is
            measured too.
    """
    merged: dict[str, TrialSpec] = {}
    for seed in dict.fromkeys(seed for study in studies for seed in study.spec.seeds):
        for study in studies:
            for spec in _of_targets(study, seed, missed) if seed in study.spec.seeds else ():
                same = merged.get(spec.trial_id, spec)
                strengths = tuple(sorted({*same.strengths, *spec.strengths}))
                targets = {**same.targets, **spec.targets}
                merged[spec.trial_id] = replace(spec, strengths=strengths, targets=targets)
    return list(merged.values())


def _of_targets(study: StudyResults, seed: int, missed: Set[str]) -> list[TrialSpec]:
    trials = []
    for result in study.targets:
        if result.chosen is None:
            continue
        settings = result.chosen.candidate.settings
        strength = result.chosen.probe["strength"]
        near = neighbours(study.spec, strength)
        searched = {name: value for name, value in settings.items() if name != study.spec.trial.strength_name}
        chosen = replace(study.spec.trial_with(settings, (strength,)), seed=seed, searched=searched)
        chosen = replace(chosen, targets={str(result.target): strength})
        chosen = chosen.identified(is_cumulative=study.spec.is_cumulative)
        is_missed = chosen.point_id(strength) in missed
        others = [one for one in near if 0 < one < strength or (is_missed and one > strength)]
        if study.spec.is_cumulative:
            trials.append(replace(chosen, strengths=tuple(sorted((strength, *others)))))
            continue
        trials.append(chosen)
        for one in others:
            trials.append(replace(chosen, strengths=(one,), targets={}).identified(is_cumulative=False))
    return trials


NEAR = 1.2
"""How far on either side of a chosen strength, as a factor, the method is measured once more."""


def neighbours(study: StudySpec, strength: Number) -> tuple[Number, ...]:
    """Return the strengths on either side of a chosen one that may be measured with it, rising; 0 is the original.

    What is chosen on one half of the texts, at a dial's steps, meets the target on the other half only about; between
    measured neighbours it can be said what it costs to meet it: the lower one and, where the choice misses its target,
    the upper one. They are the steps before and after it of a cumulative strength, the listed values next to it, or
    what lies a fifth away within the range; below the first of them lies the original. None of a strength that the
    sweep fixes.
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
