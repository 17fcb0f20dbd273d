"""Results of a sweep by its journal: each trial's status, measurements and remaining work."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness import settings as names
from harness.base.messages import reason
from harness.contracts import Json, Number
from harness.errors import DataError, did_you_mean
from harness.records.artifacts import erased_key
from harness.records.items import MetricItems
from harness.records.journal import Candidate, Failed, Journal, Measurement, Point, Record, Started, Stopped, Walked
from harness.settings import PROBED_ERASURE, PROBED_UTILITY, EvaluatorSpec, Level, Plan, Study, Trial, replace

Probe = Mapping[str, Json]
ROUNDING = 1e-6
"""A mean in single precision of texts at a level may be so much above it."""


class ChosenPoint(NamedTuple):
    """A probe at the least perplexity, or the nearest to a level, with its candidate."""

    candidate: Candidate
    probe: Probe
    is_collapsed: bool
    """True only where every probe that reaches the level has collapsed."""


class TargetResult(NamedTuple):
    """The outcome of a study at one level."""

    target: Level
    chosen: ChosenPoint | None
    """None: no probe reached the level."""
    nearest: ChosenPoint | None
    """The probe of the least MA, walked where none reached the level; None: no probes."""

    def __str__(self) -> str:
        """Return a clause such as `not reached: best MA 0.71`."""
        best = self.chosen or self.nearest
        if best is None:
            return "not reached: nothing was probed"
        ma, strength = best.probe[PROBED_ERASURE], best.probe["strength"]
        return f"MA {ma:.2f} at strength {strength:g}" if self.chosen else f"not reached: best MA {ma:.2f}"


class StudyResults(NamedTuple):
    """The candidates and outcomes of one study."""

    spec: Study
    candidates: tuple[Candidate, ...]
    targets: tuple[TargetResult, ...]

    @property
    def failure(self) -> str:
        """Return how many candidates failed, with the last one's reason; '' if none did."""
        errors = [candidate.error for candidate in self.candidates if candidate.error]
        count = f"{len(errors)} of {len(self.candidates)} candidates"
        return f"{count} failed, the last one: {reason(errors[-1])}" if errors else ""

    @property
    def is_failed(self) -> bool:
        """Return whether it is over and no candidate gave a number, so that no trial follows from it."""
        return is_over(self.spec, self.candidates) and all(result.nearest is None for result in self.targets)

    @property
    def optimiser_steps(self) -> int:
        """Return the total of all candidates."""
        return sum(int(candidate.probes[-1]["optimiser_steps"]) for candidate in self.candidates if candidate.probes)


def study_results(spec: Study, records: Sequence[Record]) -> StudyResults:
    """Return a study's results from its records, oldest first; the first record of a number counts.

    Candidates beyond the budget are left out: methods are compared at equal budgets.
    """
    by_number: dict[int, Candidate] = {}
    for record in records:
        if isinstance(record, Candidate) and record.number < spec.trials:
            by_number.setdefault(record.number, record)
    candidates = tuple(by_number[number] for number in sorted(by_number))
    return StudyResults(spec, candidates, tuple(_target_result(spec, target, candidates) for target in spec.targets))


def _target_result(spec: Study, target: Level, candidates: Sequence[Candidate]) -> TargetResult:
    reaching, probed = [], []
    for candidate in candidates:
        for probe in candidate.probes:
            point = ChosenPoint(candidate, probe, is_outside(spec, candidate.original, probe))
            probed += [] if math.isnan(probe[PROBED_ERASURE]) else [point]
            reaching += [point] if reaches(target, candidate, probe) else []
    # The first of equal ones: the earliest candidate at the least strength.
    chosen = min(reaching, key=lambda point: (point.is_collapsed, point.probe[PROBED_UTILITY]), default=None)
    return TargetResult(target, chosen, min(probed, key=lambda point: float(point.probe[PROBED_ERASURE]), default=None))


def reaches(target: Level, candidate: Candidate, probe: Probe) -> bool:
    """Return whether a candidate's probe reaches a level, with a known perplexity."""
    is_erased = probe[PROBED_ERASURE] <= candidate.targets[target.key] + ROUNDING
    return bool(is_erased and not math.isnan(probe[PROBED_UTILITY]))


def is_outside(spec: Study, original: Mapping[str, float], probe: Probe) -> bool:
    """Return whether a probe's perplexity is unknown, or outside the study's bounds times the original's."""
    low, high = (bound * original[PROBED_UTILITY] for bound in spec.utility_bounds)
    return not low <= probe[PROBED_UTILITY] <= high


Status = Literal["done", "failed", "missing"]


@dataclass(frozen=True)
class PointResults:
    """One strength of a trial: a row of the table."""

    spec: Trial
    strength: Number | None
    made: Point | None
    """The first record of the erased model; None: not erased, or only its measurements were kept."""
    measurements: tuple[Measurement, ...]
    """The last of each evaluator in the plan, with its current settings."""
    stop_reason: str
    """Reason why the trajectory ended here; '' elsewhere."""
    walked: Walked | None = None
    """The walk that found the strength; None for a listed strength."""

    @property
    def numbers(self) -> dict[str, float]:
        """Return numbers by metric."""
        return {name: number for measured in self.measurements for name, number in measured.numbers.items()}

    @property
    def erased_key(self) -> str:
        """Return the artifact name of its erased model, which may have been kept."""
        return erased_key(self.spec.model_id(self.strength), self.made.code if self.made else "")


def measurements(points: Iterable[PointResults]) -> Iterator[tuple[PointResults, Measurement]]:
    """Yield every measurement with its point."""
    for point in points:
        yield from ((point, measurement) for measurement in point.measurements)


@dataclass(frozen=True)
class TrialResults:
    """The status and points of one trial."""

    spec: Trial
    points: tuple[PointResults, ...]
    """By rising strength, measured or not."""
    remaining: tuple[tuple[Number | None, tuple[EvaluatorSpec, ...]], ...]
    """Strengths with their missing evaluators."""
    status: Status
    """`done`; else `failed` if the last attempt raised, or `missing`."""
    stop: Stopped | None
    """The early end of the trajectory."""
    failure: Failed | None
    """The last attempt's error, if the trial failed."""
    is_begun: bool
    """True if the journal has a record of it."""
    attempts: tuple[Started, ...] = ()
    written: tuple[str, ...] = ()
    """`Journaled.at` of its first and last record; empty where unknown."""
    walked: Walked | None = None
    """The end of a walk; None before it, and for other trials."""

    @property
    def versions(self) -> tuple[Mapping[str, str], ...]:
        """Return each attempt's package versions."""
        return tuple(attempt.versions for attempt in self.attempts)

    @property
    def measured(self) -> tuple[PointResults, ...]:
        """Return the points with any measurement."""
        return tuple(point for point in self.points if point.measurements)


@dataclass(frozen=True)
class Results:
    """The results of a whole sweep."""

    plan: Plan
    trials: tuple[TrialResults, ...]
    studies: tuple[StudyResults, ...] = ()
    items_of: Callable[[Measurement], Mapping[str, MetricItems]] = lambda measurement: {}
    """Reads a measurement's items by metric; none without a folder."""
    folder: Path | None = None
    """The sweep's folder."""

    @property
    def name(self) -> str:
        """Return the name that commands know the sweep by: its folder's."""
        return self.folder.name if self.folder else self.plan.sweep

    @property
    def root(self) -> str:
        """Return the folder of all sweeps' results, as a command takes it from here."""
        return os.path.relpath(self.folder.parent) if self.folder else "results"

    @property
    def unfinished_studies(self) -> list[StudyResults]:
        """Return the studies with candidates left to try."""
        return [study for study in self.studies if not is_over(study.spec, study.candidates)]

    @property
    def remaining_specs(self) -> list[Trial]:
        """Return the unfinished trials, and the largest candidate of each unfinished study."""
        largest = (largest_candidate(study.spec) for study in self.unfinished_studies)
        return [*(trial.spec for trial in self.unfinished), *largest]

    @property
    def measured(self) -> list[PointResults]:
        """Return every measured point in the order of the trials."""
        return [point for trial in self.trials for point in trial.measured]

    def items(self, point: PointResults) -> dict[str, MetricItems]:
        """Return a point's items by metric; metrics without items are left out.

        Raises:
            DataError: A file of items is missing or damaged.
        """
        by_metric: dict[str, MetricItems] = {}
        for measurement in point.measurements:
            by_metric |= self.items_of(measurement)
        return by_metric

    @property
    def unfinished(self) -> list[TrialResults]:
        """Return the trials with remaining measurements."""
        return [trial for trial in self.trials if trial.status != "done"]

    @property
    def statuses(self) -> dict[str, Status]:
        """Return statuses by trial id."""
        return {trial.spec.trial_id: trial.status for trial in self.trials}


def read_results(plan: Plan, journal: Journal) -> Results:
    """Return the results of a plan's trials and studies."""
    trials = tuple(trial_results(spec, journal.read(spec.trial_id)) for spec in plan.trials)
    return Results(plan, trials, read_studies(plan.studies, journal), journal.items, journal.folder.parent)


def read_studies(studies: Sequence[Study], journal: Journal) -> tuple[StudyResults, ...]:
    """Return the results of studies."""
    return tuple(study_results(spec, journal.read(spec.study_id)) for spec in studies)


def trial_results(spec: Trial, records: Sequence[Record]) -> TrialResults:
    """Return a trial's results from its records, oldest first."""
    keys = {evaluator.key for evaluator in spec.evaluators}
    points_by_id: dict[str, Point] = {}
    measured_by_id: defaultdict[str, dict[str, Measurement]] = defaultdict(dict)
    stop, failure, walked = None, None, None
    for record in records:
        if isinstance(record, Point):
            points_by_id.setdefault(record.point_id, record)
        elif isinstance(record, Measurement) and record.key in keys:
            measured_by_id[record.point_id][record.key] = record
        elif isinstance(record, Stopped):
            stop = record
        elif isinstance(record, Walked):
            walked = walked or record
        elif isinstance(record, Started | Failed):
            failure = record if isinstance(record, Failed) else None
    points, remaining = [], []
    for strength in _reachable(spec, stop, walked):
        point_id = spec.point_id(strength)
        measured, point = measured_by_id[point_id], points_by_id.get(point_id)
        reason = stop.reason if stop and stop.strength == strength else ""
        points.append(PointResults(spec, strength, point, tuple(measured.values()), reason, walked))
        if missing := tuple(evaluator for evaluator in spec.evaluators if evaluator.key not in measured):
            remaining.append((strength, missing))
    moments = [record.at for record in records if record.at]
    status: Status = "done" if not remaining else "failed" if failure else "missing"
    ends: Any = {"stop": stop, "failure": failure if remaining else None, "walked": walked}
    ends["attempts"] = tuple(record for record in records if isinstance(record, Started))
    ends["written"] = (min(moments), max(moments)) if moments else ()
    return TrialResults(spec, tuple(points), tuple(remaining), status, is_begun=bool(records), **ends)


def _reachable(spec: Trial, stop: Stopped | None, walked: Walked | None) -> tuple[Number | None, ...]:
    """Return a trial's strengths with a model, now or later, rising.

    A walked trial has the strength that was found: None before, no strength where the level was not reached. Others
    end where the trajectory stopped, which is a point of its own.
    """
    if spec.until is not None:
        return (None,) if walked is None else (walked.strength,) if walked.reached else ()
    if not stop:
        return spec.points()
    strengths = tuple(strength for strength in spec.strengths if strength <= stop.strength)
    is_cut = len(strengths) < len(spec.strengths)
    return (*strengths, stop.strength) if is_cut and stop.strength not in strengths else strengths


MIN_ID = 4
"""Fewest characters of an id that name a point: `cd` is a method."""
NAMES_SHOWN = 8
"""Number of points that a message lists."""


def point_name(point: PointResults) -> str:
    """Return a point's name within its sweep: `emso@3`, `emso@unseen` if walked there, or `original`."""
    if point.strength is None:
        return point.spec.variant
    return f"{point.spec.variant}@{point.spec.until.short_name if point.spec.until else format(point.strength, 'g')}"


def find_points(name: str, measured: Sequence[PointResults]) -> list[PointResults]:
    """Return the points with a name or an id's beginning; several seeds, models and settings may share a name."""

    def is_called(point: PointResults) -> bool:
        is_id = len(name) >= MIN_ID and point.spec.point_id(point.strength).startswith(name)
        strengths = () if point.strength is None else (f"{point.strength:g}", f"{point.strength:.4g}")
        names = (f"{point.spec.variant}@{strength}" for strength in strengths)
        return is_id or name in (point.spec.variant, point_name(point), *names)

    return [point for point in measured if is_called(point)]


def find_one_point(name: str, by_sweep: Mapping[str, Results]) -> tuple[str, PointResults]:
    """Return the sweep and the only point with a name; without `SWEEP:` in it all sweeps are searched.

    Raises:
        DataError: No point has that name, or more than one.
    """
    wanted_sweep, _, called = name.rpartition(":")
    if wanted_sweep and wanted_sweep not in by_sweep:
        others = ", ".join(filter(str.strip, by_sweep)) or "none"
        raise DataError(
            f"there are no results of a sweep '{wanted_sweep}' here (there are of: {others}): say --results."
        )
    sweeps = [wanted_sweep] if wanted_sweep else [*by_sweep]
    matches = [(sweep, point) for sweep in sweeps for point in find_points(called, by_sweep[sweep].measured)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        lines = []
        for sweep, point in matches[:NAMES_SHOWN]:
            about = f"{point_name(point)} on {point.spec.model.id}, seed {point.spec.seed}"
            lines.append(f"  {sweep}:{point.spec.point_id(point.strength)}  ({about})")
        more = [f"  and {len(matches) - NAMES_SHOWN} more"] if len(matches) > NAMES_SHOWN else []
        raise DataError("\n".join([f"'{name}' means {len(matches)} points. Name one:", *lines, *more]))
    names = [point_name(point) for sweep in sweeps for point in by_sweep[sweep].measured]
    raise DataError(
        f"no measured point is called '{name}'.{did_you_mean(called, names)} A name is SWEEP:VARIANT@STRENGTH or "
        "@LEVEL, such as tradeoff:emso@3 or letters:emso@0.75, or an id of table.csv (point_id)."
    )


def largest_candidate(study: Study) -> Trial:
    """Return a study's trial at the end of every range, whose memory bounds that of all candidates."""
    settings = {name: names.end_of(dimension) for name, dimension in study.space.items()}
    return study.trial_with(settings, study.strengths(settings))


def read_sweep_results(plan: Plan, journal: Journal) -> Results:
    """Return a plan's results, with the walked trials that follow from its finished studies."""
    studies = [study for study in read_studies(plan.studies, journal) if is_over(study.spec, study.candidates)]
    return read_results(replace(plan, trials=(*plan.trials, *list_tuned_trials(studies))), journal)


def list_tuned_trials(studies: Sequence[StudyResults]) -> list[Trial]:
    """Return a walked trial for each seed and level of finished studies, seeds outermost.

    Its settings are those chosen for the level, or the nearest to it.
    """
    trials: list[Trial] = []
    for seed in dict.fromkeys(seed for study in studies for seed in study.spec.seeds):
        for study in studies:
            for result in study.targets if seed in study.spec.seeds else ():
                point = result.chosen or result.nearest
                if point is not None:
                    spec, settings = study.spec, point.candidate.settings
                    dial = spec.trial.strength_name
                    end = names.end_of(spec.space[dial]) if dial in spec.space else max(spec.trial.strengths)
                    searched = {name: value for name, value in settings.items() if name != dial}
                    trial = replace(spec.trial_with(settings, ()), seed=seed, searched=searched)
                    trial = replace(trial, until=result.target, walk_to=end)
                    trials.append(trial.identified(is_cumulative=spec.is_cumulative))
    return trials


def find_edges_reached(study: StudyResults) -> list[str]:
    """Return a clause for each chosen value at an end of its range: a better value may lie beyond.

    Strengths are left out, since they are walked, and so are choices, which have no order.
    """
    clauses = []
    for result in study.targets:
        for name, dimension in study.spec.space.items():
            if result.chosen and isinstance(dimension, names.LogUniform) and name != study.spec.trial.strength_name:
                value = result.chosen.candidate.settings[name]
                if (edge := names.edge_of(dimension, value)) is not None:
                    end = "lower" if edge == "low" else "upper"
                    clauses.append(f"{result.target}: {name} {value:.3g} is at the {end} end of its range")
    return clauses


def is_over(study: Study, candidates: Sequence[Candidate]) -> bool:
    """Return whether the budget is spent or no untried settings are left."""
    if not {*range(study.trials)} - {candidate.number for candidate in candidates}:
        return True
    return bool(candidates) and untried_settings(study, [candidate.settings for candidate in candidates]) == []


def sampled_dimensions(study: Study) -> dict[str, names.Dimension]:
    """Return the dimensions in which candidates differ: a cumulative strength is raised by each of them."""
    raised = {study.trial.strength_name} if study.is_cumulative else set()
    return {name: dimension for name, dimension in study.space.items() if name not in raised}


def untried_settings(study: Study, tried_settings: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]] | None:
    """Return the settings left to try; None where a dimension is continuous."""
    space = sampled_dimensions(study)
    choices = [dimension.values for dimension in space.values() if isinstance(dimension, names.Choice)]
    if len(choices) < len(space):
        return None
    tried_values = [tuple(settings[name] for name in space) for settings in tried_settings]
    combinations = [values for values in product(*choices) if values not in tried_values]
    return [{**study.defaults, **dict(zip(space, values, strict=True))} for values in combinations]
