"""Results of a sweep by its journal: each trial's status, measurements and remaining work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.contracts import Json, Number
from harness.errors import DataError
from harness.records.items import MetricItems
from harness.records.journal import Journal
from harness.records.record import Candidate, Failed, Measurement, Point, Record, Started, Stopped, Walked
from harness.settings import PROBED_ERASURE, PROBED_UTILITY, EvaluatorSpec, Level, Plan, StudySpec, TrialSpec

Probe = Mapping[str, Json]


@dataclass(frozen=True)
class ChosenPoint:
    """A probe at the least perplexity, or the nearest to a level, with its candidate."""

    candidate: Candidate
    probe: Probe
    is_collapsed: bool
    """True only where every probe that reaches the level has collapsed."""


@dataclass(frozen=True)
class TargetResult:
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


@dataclass(frozen=True)
class StudyResults:
    """The candidates and outcomes of one study."""

    spec: StudySpec
    candidates: tuple[Candidate, ...]
    targets: tuple[TargetResult, ...]

    @property
    def optimiser_steps(self) -> int:
        """Return the total of all candidates."""
        return sum(int(candidate.probes[-1]["optimiser_steps"]) for candidate in self.candidates if candidate.probes)


def study_results(spec: StudySpec, records: Sequence[Record]) -> StudyResults:
    """Return a study's results from its records, oldest first; the first record of a number counts.

    Candidates beyond the budget are left out: methods are compared at equal budgets.
    """
    by_number: dict[int, Candidate] = {}
    for record in records:
        if isinstance(record, Candidate):
            by_number.setdefault(record.number, record)
    candidates = tuple(by_number[number] for number in sorted(by_number) if number < spec.trials)
    return StudyResults(spec, candidates, tuple(_target_result(spec, target, candidates) for target in spec.targets))


def _target_result(spec: StudySpec, target: Level, candidates: Sequence[Candidate]) -> TargetResult:
    reaching, probed = [], []
    for candidate in candidates:
        for probe in reaching_probes(target, candidate):
            reaching.append(ChosenPoint(candidate, probe, is_outside(spec, candidate.original, probe)))
        for probe in candidate.probes:
            if not math.isnan(probe[PROBED_ERASURE]):
                probed.append(ChosenPoint(candidate, probe, is_outside(spec, candidate.original, probe)))
    # The first of equal ones: the earliest candidate at the least strength.
    chosen = min(reaching, key=lambda point: (point.is_collapsed, point.probe[PROBED_UTILITY]), default=None)
    nearest = min(probed, key=lambda point: float(point.probe[PROBED_ERASURE]), default=None)
    return TargetResult(target, chosen, nearest)


def reaching_probes(target: Level, candidate: Candidate) -> list[Probe]:
    """Return a candidate's probes with a known perplexity that reach a level."""
    reaching = []
    for probe in candidate.probes:  # One that failed before its first probe does not know its levels.
        if probe[PROBED_ERASURE] <= candidate.targets[target.key] and not math.isnan(probe[PROBED_UTILITY]):
            reaching.append(probe)
    return reaching


def is_outside(spec: StudySpec, original: Mapping[str, float], probe: Probe) -> bool:
    """Return True if a probe's perplexity is unknown, or outside the study's bounds times the original's."""
    low, high = (bound * original[PROBED_UTILITY] for bound in spec.utility_bounds)
    return not low <= probe[PROBED_UTILITY] <= high


Status = Literal["done", "failed", "missing"]
Remaining = tuple[tuple[Number | None, tuple[EvaluatorSpec, ...]], ...]
"""Strengths with their missing evaluators."""


@dataclass(frozen=True)
class PointResults:
    """One strength of a trial: a row of the table."""

    spec: TrialSpec
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


@dataclass(frozen=True)
class TrialResults:
    """The status and points of one trial."""

    spec: TrialSpec
    points: tuple[PointResults, ...]
    """By rising strength, measured or not."""
    remaining: Remaining
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
        """Return the package versions of each attempt."""
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
    return Results(
        plan,
        tuple(trial_results(spec, journal.read(spec.trial_id)) for spec in plan.trials),
        read_studies(plan.studies, journal),
        journal.items,
        journal.folder.parent,
    )


def read_studies(studies: Sequence[StudySpec], journal: Journal) -> tuple[StudyResults, ...]:
    """Return the results of studies."""
    return tuple(study_results(spec, journal.read(spec.study_id)) for spec in studies)


def trial_results(spec: TrialSpec, records: Sequence[Record]) -> TrialResults:
    """Return a trial's results from its records, oldest first."""
    keys = {evaluator.key for evaluator in spec.evaluators}
    points_by_id: dict[str, Point] = {}
    measurements: dict[str, dict[str, Measurement]] = {}
    starts, moments = [], []
    stop, failure, walked = None, None, None
    for record in records:
        if record.at:
            moments.append(record.at)
        if isinstance(record, Point):
            points_by_id.setdefault(record.point_id, record)
        elif isinstance(record, Measurement) and record.key in keys:
            measurements.setdefault(record.point_id, {})[record.key] = record
        elif isinstance(record, Stopped):
            stop = record
        elif isinstance(record, Walked):
            walked = walked or record
        elif isinstance(record, Started):
            starts.append(record)
            failure = None
        elif isinstance(record, Failed):
            failure = record
    points, remaining = [], []
    for strength in _reachable(spec, stop, walked):
        point_id = spec.point_id(strength)
        measurement_by_key = measurements.get(point_id, {})
        reason = stop.reason if stop and stop.strength == strength else ""
        point, measured = points_by_id.get(point_id), tuple(measurement_by_key.values())
        points.append(PointResults(spec, strength, point, measured, reason, walked))
        if missing := tuple(evaluator for evaluator in spec.evaluators if evaluator.key not in measurement_by_key):
            remaining.append((strength, missing))
    unfinished: Status = "failed" if failure else "missing"
    return TrialResults(
        spec=spec,
        points=tuple(points),
        remaining=tuple(remaining),
        status=unfinished if remaining else "done",
        stop=stop,
        failure=failure if remaining else None,
        is_begun=bool(records),
        attempts=tuple(starts),
        written=(min(moments), max(moments)) if moments else (),
        walked=walked,
    )


def _reachable(spec: TrialSpec, stop: Stopped | None, walked: Walked | None) -> tuple[Number | None, ...]:
    """Return a trial's strengths with a model, now or later, rising.

    A walked trial has the strength that was found: None before, no strength where the level was not reached. Others
    end where the trajectory stopped; that strength is included if a larger one was listed, since no other point shows
    the last part of the trajectory.
    """
    if spec.until is not None:
        return (None,) if walked is None else (walked.strength,) if walked.reached else ()
    if not stop:
        return spec.points()
    strengths = tuple(strength for strength in spec.strengths if strength <= stop.strength)
    is_cut = len(strengths) < len(spec.strengths)
    return (*strengths, stop.strength) if is_cut and stop.strength not in strengths else strengths


NAMES_SHOWN = 8
"""Number of points that a message lists."""


def point_name(point: PointResults) -> str:
    """Return a point's name within its sweep: `emso@3`, or `original`."""
    return point.spec.variant if point.strength is None else f"{point.spec.variant}@{point.strength:g}"


def find_points(name: str, measured: Sequence[PointResults]) -> list[PointResults]:
    """Return the points with a name, which several seeds, models and settings may share."""
    variant, at, strength = name.rpartition("@")
    called = []
    for point in measured:
        is_variant = not at and name == point.spec.variant
        is_at_strength = bool(at) and variant == point.spec.variant and _is_same(strength, point.strength)
        has_id = bool(name) and point.spec.point_id(point.strength).startswith(name)
        if is_variant or is_at_strength or has_id:
            called.append(point)
    return called


def _is_same(text: str, strength: Number | None) -> bool:
    try:
        return strength is not None and (text == f"{strength:g}" or float(text) == strength)
    except ValueError:
        return False


def require_one_point(name: str, called: Sequence[tuple[str, PointResults]], measured: Sequence[PointResults]) -> int:
    """Return the index of the only point with a name.

    Args:
        name: As the user gave it.
        called: The points with that name, each after its sweep.
        measured: All points searched, for the message.

    Raises:
        DataError: No point has that name, or more than one.
    """
    if len(called) == 1:
        return 0
    if called:
        lines = []
        for sweep, point in called[:NAMES_SHOWN]:
            spec = point.spec
            about = f"{point_name(point)} on {spec.model.id}, seed {spec.seed}"
            lines.append(f"  {sweep}:{spec.point_id(point.strength)}  ({about})")
        more = [f"  and {len(called) - NAMES_SHOWN} more"] if len(called) > NAMES_SHOWN else []
        raise DataError("\n".join([f"'{name}' means {len(called)} points. Name one:", *lines, *more]))
    variant = name.rpartition(":")[2].rpartition("@")[0]
    strengths = {point.strength for point in measured if point.spec.variant == variant and point.strength is not None}
    if strengths:
        listed = ", ".join(f"{strength:g}" for strength in sorted(strengths))
        raise DataError(f"'{name}' was not measured: {variant} was at {listed}.")
    variants = ", ".join(dict.fromkeys(point.spec.variant for point in measured)) or "nothing"
    raise DataError(
        f"no measured point is called '{name}'. A name is SWEEP:VARIANT@STRENGTH, such as tradeoff:emso@3, or an id of "
        f"table.csv (point_id). Measured: {variants}."
    )
