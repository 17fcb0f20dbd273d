"""How long a sweep will take on this machine: by what its models took before."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import DataError
from harness.plugins import METHODS
from harness.records.journal import Journal
from harness.records.results import Results, TrialResults, read_results
from harness.records.tuned import largest_candidate, unfinished_studies
from harness.sizing.machine import Machine
from harness.specs import TrialSpec

_Samples = defaultdict[tuple[str, str], list[float]]
"""Seconds by a model's digest and the name of an evaluator or method."""


@dataclass(frozen=True)
class Speeds:
    """What one model took on this machine, in seconds."""

    measuring: Mapping[str, float] = field(default_factory=dict)
    """For each text, by evaluator."""
    erasing: Mapping[str, float] = field(default_factory=dict)
    """For each forget text and pass over them, by method."""


@dataclass(frozen=True)
class ExpectedTime:
    """What is left of a sweep."""

    seconds: float
    """Of wall time; NaN where nothing is known of the model."""
    unknown: tuple[str, ...] = ()
    """The evaluators that are not counted: they measured this model never before."""


def results_on_models(root: Path, digests: Set[str]) -> Iterator[Results]:
    """Yield the latest results below a folder that measured any of these models, so that it is known what they take."""
    plans = sorted(root.glob("*/journal/plan.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in plans[:_SWEEPS_READ]:
        journal = Journal(file.parent)
        try:
            results = read_results(journal.read_plan(), journal)
        except DataError:  # Another version's, or damaged: what it says of speed is no loss.
            continue
        if digests & {trial.spec.model.digest for trial in results.trials}:
            yield results


_SWEEPS_READ = 8
"""How many sweeps are read to learn what a model takes."""


def speeds_of(known: Iterable[Results]) -> dict[str, Speeds]:
    """Return what each model took in sweeps, by its digest: means over what was measured."""
    measuring: _Samples = defaultdict(list)
    erasing: _Samples = defaultdict(list)
    for results in known:
        for trial in results.trials:
            _add_trial(trial, measuring, erasing)
        for study in results.searches:
            for candidate in study.candidates if study.spec.is_cumulative else ():
                if candidate.probes:
                    spec = study.spec.trial
                    passed = _passed(spec, candidate.probes[-1]["strength"])
                    erasing[spec.model.digest, spec.method].append(candidate.seconds / passed)
    speeds = {}
    for digest in {digest for digest, _ in (*measuring, *erasing)}:
        speeds[digest] = Speeds(*(_means(known, digest) for known in (measuring, erasing)))
    return speeds


def _add_trial(trial: TrialResults, measuring: _Samples, erasing: _Samples) -> None:
    spec = trial.spec
    if spec.is_of_unseen:  # Measured by some of the evaluators' metrics alone.
        return
    for point in trial.measured:
        for measurement in point.measurements:
            measuring[spec.model.digest, measurement.evaluator].append(measurement.seconds / _texts(spec))
    made = [(point.made.erase_seconds, point.strength) for point in trial.points if point.made]
    if made and not spec.is_reference:
        seconds, strength = max(made, key=lambda of_point: of_point[0])
        erasing[spec.model.digest, spec.method].append(seconds / _passed(spec, strength))


def _means(known: Mapping[tuple[str, str], Sequence[float]], digest: str) -> dict[str, float]:
    return {name: math.fsum(of_one) / len(of_one) for (of, name), of_one in known.items() if of == digest}


def _texts(spec: TrialSpec) -> int:
    return (spec.measured or spec.forget).rows + spec.utility.rows


def _passed(spec: TrialSpec, strength: float | None) -> float:
    """Return how many texts are erased until a strength is reached, each counted as often as it is read."""
    is_cumulative = METHODS.load(spec.method).strength.cumulative
    passes = strength if is_cumulative else spec.settings.get("epochs", 1)
    return max(1, spec.forget.rows) * max(1.0, float(passes or 1))


def side_by_side(machine: Machine, specs: Sequence[TrialSpec]) -> int:
    """Return how many of a sweep's trials its largest one lets a machine run at the same time."""
    return max(1, machine.cpus // max((spec.cpus * spec.engine.workers for spec in specs), default=1))


def expected_time(
    results: Results, to_memorize: Iterable[TrialSpec], known: Mapping[str, Speeds], at_once: int
) -> ExpectedTime:
    """Return how long what is left of a sweep takes, as well as what is known of its models says.

    A method that has not erased yet is taken to be as slow as the slowest that has.

    Args:
        results: What is measured so far.
        to_memorize: A trial of each memorised model that is to be trained.
        known: What each model took, by its digest.
        at_once: How many trials run at the same time.
    """
    unknown: dict[str, None] = {}
    jobs = []
    for trial in results.unfinished:
        speeds = known.get(trial.spec.model.digest, Speeds())
        jobs.append(_erasing_seconds(trial, speeds) + _measuring_seconds(trial, speeds, unknown))
    for study in unfinished_studies(results):
        largest, speeds = largest_candidate(study.spec), known.get(study.spec.trial.model.digest, Speeds())
        seconds = _passed(largest, max(largest.strengths)) * _speed(largest, speeds)
        jobs += [seconds] * (study.spec.trials - len(study.candidates))
    for spec in to_memorize:
        passed = spec.forget.rows * spec.memorization.epochs
        jobs.append(passed * _speed(spec, known.get(spec.model.digest, Speeds())))
    if not jobs:
        return ExpectedTime(0.0)
    longest, together = max(jobs), math.fsum(jobs) / at_once
    return ExpectedTime(math.nan if math.isnan(together) else max(longest, together), tuple(unknown))


def _erasing_seconds(trial: TrialResults, speeds: Speeds) -> float:
    strengths = [strength for strength, evaluators in trial.remaining if strength is not None and evaluators]
    if trial.spec.is_reference or not strengths:
        return 0.0
    return _passed(trial.spec, max(strengths)) * _speed(trial.spec, speeds)


def _speed(spec: TrialSpec, speeds: Speeds) -> float:
    """Return the seconds of a text and pass; NaN where nothing was erased from this model yet."""
    return speeds.erasing.get(spec.method, max(speeds.erasing.values(), default=math.nan))


def _measuring_seconds(trial: TrialResults, speeds: Speeds, unknown: dict[str, None]) -> float:
    seconds = 0.0
    for _, evaluators in trial.remaining:
        for evaluator in evaluators:
            if evaluator.name not in speeds.measuring:
                unknown[evaluator.name] = None
            seconds += speeds.measuring.get(evaluator.name, 0.0) * _texts(trial.spec)
    return seconds
