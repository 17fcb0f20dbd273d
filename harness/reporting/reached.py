"""The journal's records put in order: which points a trial reached, and which trials failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.contracts import Number
from harness.records.journal import status
from harness.reporting.facts import measurements
from harness.specs import Failed, Measurement, Plan, Point, Record, Started, Stopped, TrialSpec

Records = Mapping[str, Sequence[Record]]
"""Trial id to that trial's records, as the journal reads them."""


@dataclass(frozen=True)
class Reached:
    """One measured point of a trial: a row of the table."""

    spec: TrialSpec
    strength: Number | None
    point: Point | None
    """How the point was made; None if only its measurements were kept."""
    measurements: tuple[Measurement, ...]
    """The last of each evaluator; never empty."""
    stop_reason: str
    """Why the trajectory ended here; '' everywhere else."""

    @property
    def definition(self) -> str:
        """Return the definition behind the ranked numbers: `exact`, `table`, or `exact+table`."""
        return "+".join(sorted({each.definition for each in self.measurements if _is_ranked(each)}))


def _is_ranked(measurement: Measurement) -> bool:
    """Return whether any metric takes part in a ranking; reasoning tasks have no definition to mix."""
    return any(metric["ranked"] and metric["group"] != "reasoning" for metric in measurement.metrics)


def reached(spec: TrialSpec, records: Records) -> list[Reached]:
    """Return the trial's measured points by rising strength.

    Where a trajectory ended between two strengths that were asked for, its end is a point too.
    """
    trial = records.get(spec.trial_id, ())
    stop = next((record for record in reversed(trial) if isinstance(record, Stopped)), None)
    strengths: Sequence[Number | None] = spec.points()
    if stop and stop.strength not in strengths and stop.strength < max(spec.strengths, default=stop.strength):
        strengths = sorted([*spec.strengths, stop.strength])
    points: dict[str, Point] = {}
    for record in trial:
        if isinstance(record, Point):
            # The first: a point erased once more for a new evaluator says nothing new about its cost.
            points.setdefault(record.point_id, record)
    found = []
    for strength in strengths:
        name = spec.point_id(strength)
        latest = {each.key: each for each in measurements(spec, records) if each.point_id == name}
        reason = stop.reason if stop and stop.strength == strength else ""
        if latest:
            found.append(Reached(spec, strength, points.get(name), tuple(latest.values()), reason))
    return found


def reached_all(plan: Plan, records: Records) -> list[Reached]:
    """Return every measured point of the sweep, in the order of its trials."""
    return [point for spec in plan.trials for point in reached(spec, records)]


def failures(plan: Plan, records: Records) -> list[tuple[TrialSpec, Failed]]:
    """Return the trials whose last attempt raised, and left something to be measured, with how it ended."""
    found = []
    for spec in plan.trials:
        trial = records.get(spec.trial_id, ())
        if status(spec, trial) == "failed":
            found.append((spec, next(record for record in reversed(trial) if isinstance(record, Failed))))
    return found


def versions(records: Records) -> dict[str, list[str]]:
    """Return each package with the versions that the trials ran with: more than one if they changed."""
    found: dict[str, set[str]] = {}
    for trial in records.values():
        for record in trial:
            if isinstance(record, Started):
                for package, version in record.versions.items():
                    found.setdefault(package, set()).add(version)
    return {package: sorted(found[package]) for package in sorted(found)}


def warnings_of(point: Reached) -> list[str]:
    """Return what the method or an evaluator warned of at this point (the notes' key `warnings`)."""
    notes = [point.point.notes if point.point else {}, *(each.notes for each in point.measurements)]
    return [str(warning) for note in notes for warning in note.get("warnings", ())]
