"""What the journal says of a study: its candidates, and which of their points reaches each target at the least cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.contracts import Json
from harness.plans import StudySpec, Target
from harness.records.record import Candidate, Record

Probe = Mapping[str, Json]


@dataclass(frozen=True)
class ChosenPoint:
    """The probe that reaches a target at the least cost, and the candidate whose it is."""

    candidate: Candidate
    probe: Probe
    is_collapsed: bool
    """Only where every probe that reaches the target has collapsed."""


@dataclass(frozen=True)
class TargetResult:
    """How far a study got towards one target."""

    target: Target
    chosen: ChosenPoint | None
    """None: no probe reached it."""
    best: float
    """The least of the target's metric that a probe saw; NaN if none saw any."""

    def __str__(self) -> str:
        """Return it in words, such as `not reached: best MA 0.71`."""
        if self.chosen is None:
            return f"not reached: best {self.target.metric.upper()} {self.best:.2f}"
        probe = self.chosen.probe
        return f"{self.target.metric.upper()} {probe[self.target.metric]:.2f} at strength {probe['strength']:g}"


@dataclass(frozen=True)
class StudyResults:
    """What the journal says of one study."""

    spec: StudySpec
    candidates: tuple[Candidate, ...]
    """By number."""
    targets: tuple[TargetResult, ...]
    """In the file's order."""

    @property
    def optimiser_steps(self) -> int:
        """Return how many steps all candidates took together."""
        return sum(int(candidate.probes[-1]["optimiser_steps"]) for candidate in self.candidates if candidate.probes)


def study_results(spec: StudySpec, records: Sequence[Record]) -> StudyResults:
    """Return what a study's records, oldest first, say of it; of a number that is there twice, the first.

    Those of an earlier, larger budget are left out: methods are compared at an equal one.
    """
    by_number: dict[int, Candidate] = {}
    for record in records:
        if isinstance(record, Candidate) and record.number < spec.trials:
            by_number.setdefault(record.number, record)
    candidates = tuple(by_number[number] for number in sorted(by_number))
    return StudyResults(spec, candidates, tuple(_target_result(spec, target, candidates) for target in spec.targets))


def _target_result(spec: StudySpec, target: Target, candidates: Sequence[Candidate]) -> TargetResult:
    reaching, seen = [], []
    for candidate in candidates:
        for probe in reaching_probes(spec, target, candidate):
            reaching.append(ChosenPoint(candidate, probe, is_outside(spec, candidate.original, probe)))
        seen += [probe[target.metric] for probe in candidate.probes if not math.isnan(probe[target.metric])]
    # Of equal ones the first: the earliest candidate, and the least strength.
    chosen = min(reaching, key=lambda point: (point.is_collapsed, point.probe[spec.utility]), default=None)
    return TargetResult(target, chosen, min(seen, default=math.nan))


def reaching_probes(spec: StudySpec, target: Target, candidate: Candidate) -> list[Probe]:
    """Return the probes of a candidate that reach a target and whose utility is known."""
    reaching = []
    for probe in candidate.probes:  # One that failed before its first probe does not know its targets.
        if probe[target.metric] <= candidate.targets[str(target)] and not math.isnan(probe[spec.utility]):
            reaching.append(probe)
    return reaching


def is_outside(spec: StudySpec, original: Mapping[str, float], probe: Probe) -> bool:
    """Return whether a probe's utility is outside of the study's bounds, times the original's, or not known."""
    least, most = (bound * original[spec.utility] for bound in spec.utility_bounds)
    return not least <= probe[spec.utility] <= most
