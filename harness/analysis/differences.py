"""What differs between the results of two sweeps: settings, versions, and the numbers of points that both have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.analysis.metrics import MetricInfo, metric_info
from harness.contracts import Metric
from harness.records.record import Measurement
from harness.records.results import PointResults, Results

Verdict = Literal["identical", "within noise", "differs", "only in A", "only in B", "not comparable"]


_NOT_COMPARED = ("trial_id", "sweep", "label", "strengths", "targets", "evaluators")
"""Of a trial: names and ids, and what is compared in another way."""
_PLACES = ("path", "location", "tokenizer", "id")
"""Where something lies: no difference where its digest is the same."""
_OF_PLAN = ("question", "overrides", "ranked_at", "controls", "collapse", "compare", "reproduces", "samples")
_ABSENT = "—"


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
        """Return what a person calls it: `emso at 3 on miniature-m, seed 0`."""
        repeat = f" ({self.repeat + 1})" if self.repeat else ""
        return f"{self.variant}{self.at and f' at {self.at}'} on {self.model}, seed {self.seed}{repeat}"


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

    @property
    def is_same(self) -> bool:
        """Return whether nothing differs, to the last bit."""
        others = (self.settings, self.versions, self.only_in_a, self.only_in_b)
        return not any(others) and all(pair.verdict == "identical" for pair in self.numbers)


def differences(a: Results, b: Results) -> Differences:
    """Return what differs between two sweeps; points are matched by model, variant, seed and strength, or target.

    Raises:
        DataError: Of one of them it cannot be told what its metrics are.
    """
    points_a, points_b = _points(a), _points(b)
    both = {name: (points_a[name], points_b[name]) for name in points_a if name in points_b}
    settings, versions = _of_trials(both)
    plans = [_flat({name: getattr(plan, name) for name in _OF_PLAN}) for plan in (a.plan, b.plan)]
    info = {**metric_info(b), **metric_info(a)}
    return Differences(
        settings=(*(Difference(what, *pair) for what, pair in _unequal(*plans).items()), *settings),
        versions=(*_of_packages(a, b), *versions),
        only_in_a=tuple(name for name in points_a if name not in points_b),
        only_in_b=tuple(name for name in points_b if name not in points_a),
        numbers=tuple(pair for name, points in both.items() for pair in _of_numbers(name, *points, info)),
    )


def number_verdict(a: float, b: float, metric: Metric) -> Verdict:
    """Return how far two values of a metric are the same; two that could not be measured are.

    Example:
        >>> about = dict(name="ma", better="lower", unit="", low=0.0, high=1.0, group="erasure", source="", title="MA")
        >>> [number_verdict(0.5, b, Metric(**about, noise=0.02)) for b in (0.5, 0.51, 0.53, math.nan)]
        ['identical', 'within noise', 'differs', 'only in A']
        >>> unbounded = Metric(**{**about, "high": math.inf}, noise=0.02)
        >>> number_verdict(100.0, 101.0, unbounded), number_verdict(100.0, 103.0, unbounded)
        ('within noise', 'differs')
    """
    if math.isnan(a) or math.isnan(b):
        return "identical" if math.isnan(a) and math.isnan(b) else "only in B" if math.isnan(a) else "only in A"
    if a == b:
        return "identical"
    if metric.noise is None or not math.isfinite(a - b):
        return "differs"
    allowed = metric.noise * min(a, b) if math.isinf(metric.high) else metric.noise
    return "within noise" if abs(a - b) < allowed else "differs"


def _points(results: Results) -> dict[PointName, PointResults]:
    """Return every point that a sweep has or will have, by what it is called."""
    named: dict[PointName, PointResults] = {}
    for trial in results.trials:
        for point in trial.points:
            spec, strength = point.spec, point.strength
            targets = [target for target, reached_at in spec.targets.items() if reached_at == strength]
            at = "; ".join(targets) or ("" if strength is None else f"{strength:g}")
            name = PointName(Path(spec.model.id).name, spec.variant, spec.seed, at)
            while name in named:
                name = replace(name, repeat=name.repeat + 1)
            named[name] = point
    return named


def _of_numbers(name: PointName, a: PointResults, b: PointResults, info: MetricInfo) -> Iterator[NumberPair]:
    ours, theirs = _by_metric(a), _by_metric(b)
    for metric in info:
        of_a, of_b = ours.get(metric), theirs.get(metric)
        if of_a is None and of_b is None:
            continue
        value_a, value_b = (of.numbers[metric] if of else math.nan for of in (of_a, of_b))
        found: Verdict = "only in B" if of_a is None else "only in A"
        note = ""
        if of_a and of_b:
            found = number_verdict(value_a, value_b, info[metric])
            if of_a.definition != of_b.definition:
                found, note = "not comparable", f"definition {of_a.definition} against {of_b.definition}"
        yield NumberPair(name, metric, value_a, value_b, found, note)


def _by_metric(point: PointResults) -> dict[str, Measurement]:
    return {name: measurement for measurement in point.measurements for name in measurement.numbers}


def _of_trials(
    both: Mapping[PointName, tuple[PointResults, PointResults]],
) -> tuple[list[Difference], list[Difference]]:
    """Return what differs in settings and in plugins' versions, each once with the points that it differs in."""
    settings: dict[tuple[str, str, str], list[PointName]] = {}
    versions: dict[tuple[str, str, str], list[PointName]] = {}
    for name, (a, b) in both.items():
        of_versions = _unequal(_plugin_versions(a), _plugin_versions(b))
        told = {f"evaluators.{what.removeprefix('evaluator ')}.identity" for what in of_versions}
        for what, pair in of_versions.items():
            versions.setdefault((what, *pair), []).append(name)
        for what, pair in _unequal(_settings(a), _settings(b)).items():
            if what not in told:
                settings.setdefault((what, *pair), []).append(name)
    of_settings, by_version = (
        [Difference(*key, points=tuple(points)) for key, points in found.items()] for found in (settings, versions)
    )
    return of_settings, by_version


def _settings(point: PointResults) -> dict[str, str]:
    spec = point.spec
    kept = {name: value for name, value in spec.to_json().items() if name not in (*_NOT_COMPARED, "method_version")}
    kept["strength"] = point.strength
    kept["evaluators"] = {each.name: {"settings": each.settings, "identity": each.key} for each in spec.evaluators}
    return _flat(kept)


def _plugin_versions(point: PointResults) -> dict[str, str]:
    spec = point.spec
    of_evaluators = {f"evaluator {each.name}": str(each.version) for each in spec.evaluators}
    return {f"method {spec.method}": str(spec.method_version), **of_evaluators}


def _of_packages(a: Results, b: Results) -> list[Difference]:
    """Return the packages of which the two ran other versions, with all that each ran, if both recorded them."""
    ours, theirs = _recorded(a), _recorded(b)
    return [Difference(name, *pair) for name, pair in _unequal(ours, theirs).items()] if ours and theirs else []


def _recorded(results: Results) -> dict[str, str]:
    """Return every version that any attempt of a sweep ran with, by package."""
    found: dict[str, dict[str, None]] = {}
    for versions in (versions for trial in results.trials for versions in trial.versions):
        for name, version in versions.items():
            found.setdefault(name, {})[version] = None
    return {name: ", ".join(sorted(of_package)) for name, of_package in found.items()}


def _flat(value: Any, path: str = "") -> dict[str, str]:
    """Return each value by its path in dots, as text."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        below = ((f"{path}.{name}" if path else str(name), item) for name, item in value.items())
        return {at: text for name, item in below for at, text in _flat(item, name).items()}
    return {path: str(value)}


def _unequal(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return both values at the paths where they differ, but for those that follow from others of them."""
    paths = [path for path in dict.fromkeys((*a, *b)) if a.get(path, _ABSENT) != b.get(path, _ABSENT)]
    kept = [path for path in paths if not _follows(path, paths, {*a, *b})]
    return {path: (a.get(path, _ABSENT), b.get(path, _ABSENT)) for path in kept}


def _follows(path: str, unequal: Sequence[str], known: Set[str]) -> bool:
    """Return whether a difference says no more than others do: another place of the same contents, say."""
    parent, _, name = path.rpartition(".")
    if name in _PLACES and f"{parent}.digest" in known:
        return f"{parent}.digest" not in unequal
    deciding = (f"{parent}.settings", "judges.", "forget.", "measured.", "utility.")
    return name == "identity" and any(other.startswith(deciding) for other in unequal)
