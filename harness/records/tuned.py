"""Studies on their way to trials: which are unfinished, how large their candidates get, and what the others chose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from harness.contracts import Json, Number
from harness.plans import Plan, StudySpec
from harness.records.bisection import bisected_strength, is_bisected
from harness.records.journal import Journal
from harness.records.ranges import space_at
from harness.records.record import Candidate
from harness.records.results import PointResults, Results, StudyResults, read_results, read_studies
from harness.records.spending import is_paid
from harness.search_space import OF_TRAINING, Choice, Dimension, LogUniform, end_of
from harness.specs import ORIGINAL, RETRAINED, TrialSpec


def unfinished_studies(results: Results) -> list[StudyResults]:
    """Return the studies that have candidates left to try."""
    return [study for study in results.studies if not is_over(study.spec, study.candidates)]


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

    A choice that misses its target on the reported texts, or whose neighbour below meets it too, has further strengths
    once that is known: see `bracketing_strengths`.
    """
    studies = [study for study in read_studies(plan.studies, journal) if is_over(study.spec, study.candidates)]
    chosen: list[TrialSpec] = []
    while True:
        results = read_results(replace(plan, trials=(*plan.trials, *chosen)), journal)
        wanted = chosen_trials(studies, results)
        if wanted == chosen:
            return results
        chosen = wanted


def chosen_trials(studies: Sequence[StudyResults], results: Results) -> list[TrialSpec]:
    """Return a trial for each seed and each chosen setting, seeds outermost; targets that share one share its trial.

    A trial's id is that of an untuned sweep's trial with the same settings. A target that was not reached has none.

    Args:
        studies: Those that are over.
        results: What is measured so far.
    """
    measured = {point.spec.point_id(point.strength): point for point in results.measured} if studies else {}
    of_reference: dict[tuple[str, str, int], dict[str, float]] = {}
    for point in measured.values():
        if point.spec.is_reference:
            of_reference[point.spec.method, point.spec.model.id, point.spec.seed] = point.numbers
    merged: dict[str, TrialSpec] = {}
    for seed in dict.fromkeys(seed for study in studies for seed in study.spec.seeds):
        for study in studies:
            model = study.spec.trial.model.id
            original = of_reference.get((ORIGINAL, model, seed), {})
            levels = of_reference.get((RETRAINED, model, seed), {})
            for spec in _of_targets(study, seed, measured, original, levels) if seed in study.spec.seeds else ():
                same = merged.get(spec.trial_id, spec)
                fully = {*same.strengths} - {*same.neighbours} | {*spec.strengths} - {*spec.neighbours}
                strengths = tuple(sorted({*same.strengths, *spec.strengths}))
                merged[spec.trial_id] = replace(
                    spec,
                    strengths=strengths,
                    targets={**same.targets, **spec.targets},
                    chosen={**same.chosen, **spec.chosen},
                    neighbours=tuple(one for one in strengths if one not in fully),
                )
    return list(merged.values())


def _of_targets(
    study: StudyResults,
    seed: int,
    measured: Mapping[str, PointResults],
    of_original: Mapping[str, float],
    of_retrained: Mapping[str, float],
) -> list[TrialSpec]:
    """Return the trials of a study's choices; `measured` has each point by its id.

    Until it is known which point is nearest to a target, all of them are measured as neighbours are.
    """
    trials: list[TrialSpec] = []
    for result in study.targets:
        if result.chosen is None:
            continue
        settings, strength = result.chosen.candidate.settings, result.chosen.probe["strength"]
        searched = {name: value for name, value in settings.items() if name != study.spec.trial.strength_name}
        chosen = replace(study.spec.trial_with(settings, (strength,)), seed=seed, searched=searched)
        asked, metric = result.target.at_most, result.target.metric
        level = of_retrained.get(metric, math.nan) if isinstance(asked, str) else asked
        first = _Walk(study.spec, chosen, strength, metric, measured, of_original.get(metric, math.nan))
        points = _points(first, level)
        nearest, is_known = _nearest(points, level)
        for walk in dict.fromkeys(walk for walk, _ in points):
            strengths = tuple(one for of, one in points if of is walk)
            for together in [strengths] if study.spec.is_cumulative else [(one,) for one in strengths]:
                stands = [one for one in together if (walk, one) == nearest]
                fully = stands if is_known or len(points) == 1 else []
                trial = replace(
                    walk.trial_at(together[0]),
                    strengths=together,
                    targets={str(result.target): one for one in stands},
                    chosen={str(result.target): one for one in together if (walk, one) == (first, strength)},
                    neighbours=tuple(one for one in together if one not in fully),
                )
                trials.append(trial)
    return trials


@dataclass(frozen=True, eq=False)
class _Walk:
    """A choice's trajectory towards a target: its metric at any strength, and which strengths come next."""

    study: StudySpec
    chosen: TrialSpec
    start: Number
    metric: str
    measured: Mapping[str, PointResults]
    of_original: float
    steps_of_choice: tuple[int, Number] | None = None
    """Of a walk at a lower rate: how many steps led to the choice at its own, and its strength."""

    def trial_at(self, strength: Number) -> TrialSpec:
        """Return the trial that erases to this strength alone."""
        return replace(self.chosen, strengths=(strength,)).identified(is_cumulative=self.study.is_cumulative)

    def _point(self, strength: Number) -> PointResults | None:
        return self.measured.get(self.trial_at(strength).point_id(strength))

    def __call__(self, strength: Number) -> float:
        """Return the number on the reported texts, at 0 the original's; NaN where it is not measured."""
        if strength == 0:
            return self.of_original
        point = self._point(strength)
        return point.numbers.get(self.metric, math.nan) if point else math.nan

    def steps_at(self, strength: Number) -> int:
        """Return how many optimiser steps lead to a strength: what its training noted, or else passes over the texts.

        An epoch of SUGD's has more of them than a pass, and one of SGA's may have fewer.
        """
        point = self._point(strength)
        noted = point.made.notes.get("total_steps") if point and point.made else None
        return noted if isinstance(noted, int) else round(strength * self.chosen.steps_per_epoch)

    @property
    def steps_per_epoch(self) -> int:
        """Return how many steps an epoch has, by those that led to the choice."""
        steps, epochs = self.steps_of_choice or (self.steps_at(self.start), self.start)
        return max(1, round(steps / epochs))

    def after_steps(self, steps: int) -> Number:
        """Return the strength that so many steps lead to."""
        return round(steps / self.steps_per_epoch, 4)

    def neighbour(self, reach: int) -> Number:
        """Return the strength so many of the dial's steps above the start, or below; below all lies 0."""
        if self.steps_of_choice is None:
            return neighbour(self.study, self.start, reach)
        return self.after_steps(max(0, round(self.start * self.steps_per_epoch) + SLOWER * reach))

    def slowed(self, strengths: Sequence[Number], level: float) -> _Walk | None:
        """Return a walk at a lower rate, if here a single step leads past the level and neither of its ends is close.

        It starts after `SLOWER` times as many steps, and its neighbour below is where that step began.
        """
        is_close = any(abs(self(one) - level) <= CLOSE * self.of_original for one in strengths)
        if is_close or not self.study.is_divisible or not isinstance(_dial(self.study), LogUniform):
            return None
        for low, high in pairwise((0, *strengths)):
            if self(low) > level >= self(high) and self.steps_at(high) - self.steps_at(low) <= 1:
                rate = self.chosen.training.learning_rate / SLOWER
                slower = replace(
                    self.chosen,
                    training=replace(self.chosen.training, learning_rate=rate),
                    searched={**self.chosen.searched, f"{OF_TRAINING}learning_rate": rate},
                )
                start = self.after_steps(SLOWER * round(high * self.steps_per_epoch))
                steps_of_choice = self.steps_of_choice or (self.steps_at(self.start), self.start)
                return replace(self, chosen=slower, start=start, steps_of_choice=steps_of_choice)
        return None


def _points(walk: _Walk, level: float) -> list[tuple[_Walk, Number]]:
    """Return the points of a choice's walk, rising, and of those at lower rates that follow it."""
    points: list[tuple[_Walk, Number]] = []
    for _ in range(1 + LOWERINGS):
        strengths = sorted({walk.start, *bracketing_strengths(walk, level)} - {0})
        points += [(walk, one) for one in strengths]
        slower = walk.slowed(strengths, level)
        if slower is None:
            break
        walk = slower
    return points


def _nearest(points: Sequence[tuple[_Walk, Number]], level: float) -> tuple[tuple[_Walk, Number], bool]:
    """Return the point whose number is nearest to a level, and whether it is known: until then the chosen one."""
    distances = [abs(walk(strength) - level) for walk, strength in points]
    if any(map(math.isnan, distances)):
        walk = points[0][0]
        return (walk, walk.start), False
    return points[distances.index(min(distances))], True


NEAR = 1.2
"""How far from a chosen strength, as a factor, the method is measured once more."""
REACHES = (1, 2, 4, 8)
"""How many such factors, or steps, from a choice its trajectory is measured until it meets the target."""
REFINEMENTS = 4
"""How many strengths are measured between the two where it passes the target ..."""
CLOSE = 0.02
"""... until one is so close to it, as a share of the original's number."""
SLOWER = 4
"""What the learning rate is divided by where one step leads past the target and neither of its ends is close ..."""
LOWERINGS = 2
"""... and how often."""


def bracketing_strengths(walk: _Walk, level: float) -> list[Number]:
    """Return the strengths beside a walk's start between which its trajectory meets the target; 0 is the original.

    What is chosen on one half of the texts, at a dial's steps, meets the target on the other half only about. The
    strength below is always among them. From the choice the walk goes up where it misses the target, and down where it
    meets it, ever further, until the other side is found: by 1, 2, 4 and 8 steps of a cumulative strength or of listed
    values, or factors of 1.2 within the range; below all of them lies the original. Then some strengths between the
    last ones, each where the line between them meets the target, bring a measured point close to it: a part of an
    epoch where the method may stop there. A strength that the sweep fixes has none.

    Args:
        walk: Has the metric's number on the reported texts at each strength that is measured.
        level: What the target allows; NaN where the retrained model is not measured yet.

    Returns:
        In the order in which they are to be known; the last of them may be unmeasured.
    """
    if _dial(walk.study) is None:
        return []
    beside = [walk.neighbour(-REACHES[0])]
    number = walk(walk.start)
    if math.isnan(number) or math.isnan(level):
        return beside
    sign, near = 1 if number > level else -1, walk.start
    for reach in REACHES:
        reached = walk.neighbour(sign * reach)
        if reached not in (*beside, walk.start):
            beside.append(reached)
        if reached == 0 or not (walk(reached) > level if sign > 0 else walk(reached) <= level):
            break
        near = reached
    else:
        if sign < 0:
            reached = 0
            beside.append(reached)
    low, high = sorted((near, reached))
    for _ in range(REFINEMENTS):
        between = _between(walk, low, high, level)
        # The original stands for no target, however close it is.
        if between is None or any(one and abs(walk(one) - level) <= CLOSE * walk(0) for one in (low, high)):
            break
        beside.append(between)
        if math.isnan(walk(between)):
            break
        low, high = (between, high) if walk(between) > level else (low, between)
    return beside


def _between(walk: _Walk, lower: Number, upper: Number, level: float) -> Number | None:
    """Return the strength at which the line between two is at a level; of a divisible dial, after a whole step.

    None where the level does not lie between their numbers, or the dial has nothing between the two.
    """
    dimension, of_lower, of_upper = _dial(walk.study), walk(lower), walk(upper)
    if not isinstance(dimension, LogUniform) or not of_lower > level >= of_upper:
        return None
    share = min(max((of_lower - level) / (of_lower - of_upper), 0.1), 0.9)
    strength = lower + (upper - lower) * share
    if walk.study.is_divisible:
        first, last = walk.steps_at(lower), walk.steps_at(upper)
        if last - first < 2:
            return None
        strength = walk.after_steps(min(max(round(first + (last - first) * share), first + 1), last - 1))
        if not lower < strength < upper:  # Its epochs differ in length.
            strength = round((lower + upper) / 2, 4)
    else:
        strength = round(strength) if isinstance(dimension.low, int) else float(f"{strength:.4g}")
    return strength if lower < strength < upper else None


def neighbour(study: StudySpec, strength: Number, steps: int) -> Number:
    """Return the strength that lies so many steps above, or below, another, or the last before; below all lies 0."""
    dimension = _dial(study)
    if isinstance(dimension, Choice):
        listed = [0, *sorted(dimension.values)]
        nearest: Number = listed[min(max(listed.index(strength) + steps, 0), len(listed) - 1)]
        return nearest
    if study.is_cumulative:
        return max(strength + steps, 0)
    assert isinstance(dimension, LogUniform)
    near = min(max(strength * NEAR**steps, dimension.low), dimension.high)
    near = round(near) if isinstance(dimension.low, int) else near
    return 0 if steps < 0 and near >= strength else near


def _dial(study: StudySpec) -> Dimension | None:
    name = study.trial.strength_name
    return study.widest.get(name, study.space.get(name))


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
