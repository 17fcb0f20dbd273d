"""What differs between the results of two sweeps: settings, versions, and the numbers of points that both have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Literal

from harness.analysis.evidence import Evidence, read_evidence
from harness.analysis.grouping import LEVEL, split_rows
from harness.analysis.metrics import MetricInfo, is_within_noise, metric_info
from harness.contracts import Metric
from harness.records.items import MetricItems
from harness.records.record import Measurement, cpu_kind
from harness.records.results import PointResults, Results
from harness.records.setting_changes import Change, flat_texts, setting_changes, unequal
from harness.statistics.contrasts import paired_p

Verdict = Literal["identical", "within noise", "differs", "only in A", "only in B", "not comparable"]


_OF_PLAN = ("question", "overrides", "ranked_at", "controls", "collapse", "compare", "reproduces", "samples")


@dataclass(frozen=True, order=True)
class PointName:
    """What one point is called in both sweeps, whatever its id is."""

    model: str
    """Without the folders above it."""
    variant: str
    seed: int
    at: str
    """Its strength; of a tuned trial the targets that it was chosen for; '' of a reference."""
    repeat: int = 0
    """Above 0 where an earlier point of the sweep has all of this in common with it."""

    def __str__(self) -> str:
        """Return what a person calls it: `emso@3 on miniature-m, seed 0`, or `emso at ma <= 0.9 on ...`."""
        repeat = f" ({self.repeat + 1})" if self.repeat else ""
        at = self.at and (f" at {self.at}" if " " in self.at else f"@{self.at}")
        return f"{self.variant}{at} on {self.model}, seed {self.seed}{repeat}"


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same in both."""

    what: str
    """A setting's path in dots, or what has a version."""
    a: str
    b: str
    points: tuple[PointName, ...] = ()
    """Those that it differs in; () for what holds for a whole sweep."""


@dataclass(frozen=True)
class NumberPair:
    """A metric of one point, in both."""

    point: PointName
    metric: str
    a: float
    b: float
    verdict: Verdict
    note: str = ""
    """Why the two cannot be compared."""

    @property
    def difference(self) -> float:
        """Return B − A; NaN where one of them is not there."""
        return self.b - self.a


@dataclass(frozen=True)
class Differences:
    """All that differs, and every number that both could have."""

    settings: tuple[Difference, ...]
    versions: tuple[Difference, ...]
    only_in_a: tuple[PointName, ...]
    only_in_b: tuple[PointName, ...]
    numbers: tuple[NumberPair, ...]
    cpus: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The kinds of CPU that trials of A, and of B, ran on."""

    @property
    def is_same(self) -> bool:
        """Return whether nothing differs, to the last bit."""
        others = (self.settings, self.versions, self.only_in_a, self.only_in_b)
        return not any(others) and all(pair.verdict == "identical" for pair in self.numbers)


def differences(a: Results, b: Results, pair: tuple[PointResults, PointResults] | None = None) -> Differences:
    """Return what differs between two sweeps; points are matched by model, variant, seed and strength, or target.

    Args:
        a: One sweep.
        b: Another, or the same.
        pair: One point of each: these two alone are compared, under the name of the first.

    Raises:
        DataError: The metrics of one of them are not known, or a file of items is damaged.
    """
    points_a, points_b = _named_points(a), _named_points(b)
    if pair is not None:
        [name] = [name for name, point in points_a.items() if point is pair[0]]
        points_a, points_b = {name: pair[0]}, {name: pair[1]}
    info = {**metric_info(b), **metric_info(a)}
    evidence = Evidence({**_of_side("A", read_evidence(a)), **_of_side("B", read_evidence(b))})
    settings: defaultdict[Change, list[PointName]] = defaultdict(list)
    versions: defaultdict[Change, list[PointName]] = defaultdict(list)
    numbers: list[NumberPair] = []
    only_in_a = []
    for name, point_a in points_a.items():
        if name not in points_b:
            only_in_a.append(name)
            continue
        point_b = points_b[name]
        numbers += _number_pairs(name, point_a, point_b, info, evidence)
        of_versions = unequal(_plugin_versions(point_a), _plugin_versions(point_b))
        for change in of_versions:
            versions[change].append(name)
        shown = [f"evaluators.{what.removeprefix('evaluator ')}.identity" for what, _, _ in of_versions]
        changes = setting_changes(point_a.spec, point_b.spec)
        if point_a.strength != point_b.strength:
            changes += unequal(*(flat_texts({"strength": point.strength}) for point in (point_a, point_b)))
        for change in changes:
            if change[0] not in shown:
                settings[change].append(name)
    of_plan = attrgetter(*_OF_PLAN)
    plans = [flat_texts(dict(zip(_OF_PLAN, of_plan(plan), strict=True))) for plan in (a.plan, b.plan)]
    packages = _recorded(a), _recorded(b)
    return Differences(
        settings=(*_sweep_wide(*plans), *_by_point(settings)),
        versions=(*(_sweep_wide(*packages) if all(packages) else ()), *_by_point(versions)),
        only_in_a=tuple(only_in_a),
        only_in_b=tuple(name for name in points_b if name not in points_a),
        numbers=tuple(numbers),
        cpus=(_cpus(a), _cpus(b)),
    )


def number_verdict(a: float, b: float, metric: Metric, p: float = math.nan) -> Verdict:
    """Return how far two values of a metric are the same; two that could not be measured are.

    Args:
        a: One value.
        b: The other.
        metric: What they are values of; with its noise.
        p: Of the paired test over their items; NaN where they have none in common.

    Example:
        >>> about = dict(name="ma", better="lower", unit="", low=0.0, high=1.0, group="erasure", source="", title="MA")
        >>> [number_verdict(0.5, b, Metric(**about, noise=0.02)) for b in (0.5, 0.51, 0.53, math.nan)]
        ['identical', 'within noise', 'differs', 'only in A']
        >>> [number_verdict(0.5, 0.53, Metric(**about, noise=0.02), p) for p in (0.2, 0.01)]
        ['within noise', 'differs']
        >>> unbounded = Metric(**{**about, "high": math.inf}, noise=0.02)
        >>> number_verdict(100.0, 101.0, unbounded), number_verdict(100.0, 103.0, unbounded)
        ('within noise', 'differs')
    """
    if math.isnan(a) or math.isnan(b):
        return "identical" if math.isnan(a) and math.isnan(b) else "only in B" if math.isnan(a) else "only in A"
    if a == b:
        return "identical"
    return "within noise" if is_within_noise(a, b, metric) or p >= LEVEL else "differs"


def _of_side(side: str, evidence: Evidence) -> dict[str, Mapping[str, MetricItems]]:
    """Return a sweep's items under ids that the other sweep's have not: the same trial has the same id in both."""
    return {side + point_id: items for point_id, items in evidence.by_point.items()}


def _cpus(results: Results) -> tuple[str, ...]:
    """Return the kinds of CPU that a sweep's trials ran on, the first first."""
    kinds = [cpu_kind(attempt.hardware) for trial in results.trials for attempt in trial.attempts]
    return tuple(dict.fromkeys(kind for kind in kinds if kind))


def _named_points(results: Results) -> dict[PointName, PointResults]:
    """Return every point that a sweep has or will have, by what it is called."""
    named: dict[PointName, PointResults] = {}
    for trial in results.trials:
        for point in trial.points:
            spec, strength = point.spec, point.strength
            at = "; ".join(spec.targets_at(strength)) or ("" if strength is None else f"{strength:g}")
            name = PointName(Path(spec.model.id).name, spec.variant, spec.seed, at)
            while name in named:
                name = replace(name, repeat=name.repeat + 1)
            named[name] = point
    return named


def _number_pairs(
    name: PointName, a: PointResults, b: PointResults, info: MetricInfo, evidence: Evidence
) -> Iterator[NumberPair]:
    of_a, of_b = _by_metric(a), _by_metric(b)
    for metric in info:
        ours, theirs = of_a.get(metric), of_b.get(metric)
        if ours and theirs:
            value_a, value_b = ours.numbers[metric], theirs.numbers[metric]
            p = math.nan
            if value_a != value_b and info[metric].items:
                ids = "A" + a.spec.point_id(a.strength), "B" + b.spec.point_id(b.strength)
                values = evidence.of_points(ids, info[metric])
                p = paired_p(*split_rows(values, 1)) if values else math.nan
            verdict, note = number_verdict(value_a, value_b, info[metric], p), ""
            if ours.definition != theirs.definition:
                verdict, note = "not comparable", f"definition {ours.definition} against {theirs.definition}"
            yield NumberPair(name, metric, value_a, value_b, verdict, note)
        elif ours:
            yield NumberPair(name, metric, ours.numbers[metric], math.nan, "only in A")
        elif theirs:
            yield NumberPair(name, metric, math.nan, theirs.numbers[metric], "only in B")


def _by_metric(point: PointResults) -> dict[str, Measurement]:
    by_metric: dict[str, Measurement] = {}
    for measurement in point.measurements:
        by_metric |= dict.fromkeys(measurement.numbers, measurement)
    return by_metric


def _plugin_versions(point: PointResults) -> dict[str, str]:
    versions = {f"method {point.spec.method}": str(point.spec.method_version)}
    for evaluator in point.spec.evaluators:
        versions[f"evaluator {evaluator.name}"] = str(evaluator.version)
    return versions


def _recorded(results: Results) -> dict[str, str]:
    """Return every version that any attempt of a sweep ran with, by package; nothing if none was recorded."""
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for trial in results.trials:
        for attempt in trial.versions:
            for name, version in attempt.items():
                versions[name].add(version)
    return {name: ", ".join(sorted(of_package)) for name, of_package in versions.items()}


def _sweep_wide(a: Mapping[str, str], b: Mapping[str, str]) -> list[Difference]:
    return [Difference(*change) for change in unequal(a, b)]


def _by_point(changes: Mapping[Change, list[PointName]]) -> list[Difference]:
    return [Difference(*change, points=tuple(points)) for change, points in changes.items()]
