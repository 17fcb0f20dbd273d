"""Where a report's numbers come from: when they were measured, for how long, on what, by which Lethe."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.caveats.readings import readings_of
from harness.analysis.cells import NOTHING
from harness.records.record import DIRTY, time_of
from harness.records.results import Results, TrialResults

NOT_RECORDED = "not recorded"
"""Of journals that an older version wrote."""
_COMMIT_DIGITS = 10
_MOST_MACHINES = 4


@dataclass(frozen=True)
class Provenance:
    """The head of a report, as text."""

    measured: str
    """From the journal's first line to its last."""
    work: str
    """How long all trials took together, one after the other."""
    machines: tuple[str, ...]
    """What trials ran on, the most frequent first."""
    readings: tuple[str, ...]
    """How each model reads texts, and in what precision it is stored; none of journals that an older version wrote."""
    lethe: str
    """Version and commit, all of them where trials had several."""
    sweep_command: str
    """What measures again, from the sweep file's text in the report."""
    collate_command: str
    """What makes the report again, from the journal."""


def provenance(results: Results) -> Provenance:
    """Return where a sweep's numbers come from, as far as its journal says."""
    plan = results.plan
    overrides = [f" --set {shlex.quote(override)}" for override in plan.overrides]
    return Provenance(
        measured=_measured(results),
        work=duration_text(sum(work_seconds(trial) for trial in results.trials) or None),
        machines=_machines(results),
        readings=readings_of(trial.spec for trial in results.trials),
        lethe=_lethe(results),
        sweep_command=f"lethe sweep {plan.sweep}.yaml{''.join(overrides)}",
        collate_command=f"lethe collate results/{plan.sweep}",
    )


def work_seconds(trial: TrialResults) -> float:
    """Return how long a trial's erasing and measuring took, without what was done again."""
    erased = max((point.made.erase_seconds for point in trial.measured if point.made), default=0.0)
    return erased + sum(measurement.seconds for point in trial.measured for measurement in point.measurements)


def _measured(results: Results) -> str:
    moments = sorted(moment for trial in results.trials for moment in trial.written)
    if not moments:
        return NOT_RECORDED
    first, last = time_of(moments[0]), time_of(moments[-1])
    elapsed = duration_text(round((last - first).total_seconds()))
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {end} UTC ({elapsed} from the first record to the last)"


def _machines(results: Results) -> tuple[str, ...]:
    """Return each kind of machine, the most frequent first: its hosts, and how many trials ran there if others did."""
    last = [trial.attempts[-1] for trial in results.trials if trial.attempts and trial.attempts[-1].hardware]
    counts = Counter(machine_text(attempt.hardware) for attempt in last)
    told = []
    for machine, count in counts.most_common():
        hosts = sorted({attempt.node for attempt in last if attempt.node and machine_text(attempt.hardware) == machine})
        named = f"{', '.join(_first(hosts))}: {machine}" if hosts else machine
        told.append(f"{named} ({count} trials)" if len(counts) > 1 else named)
    return tuple(_first(told)) or (NOT_RECORDED,)


def _first(names: Sequence[str]) -> list[str]:
    more = len(names) - _MOST_MACHINES
    return [*names[:_MOST_MACHINES], *([f"and {more} others"] if more > 0 else [])]


def ran_on(trial: TrialResults) -> str:
    """Return where a trial ran, in the order of its attempts: the host, and what computed there; '' if nobody knows."""
    places = [
        f"{attempt.node}: {attempt.hardware.get('gpu') or attempt.hardware.get('processor', NOTHING)}"
        for attempt in trial.attempts
        if attempt.node
    ]
    workers = dict.fromkeys(node for point in trial.measured if point.made for node in point.made.worker_nodes)
    return ", then ".join(dict.fromkeys(places)) + (f"; workers on {', '.join(workers)}" if workers else "")


def machine_text(hardware: Mapping[str, str]) -> str:
    """Return a machine as a person would call it.

    Example:
        >>> machine_text({"processor": "EPYC", "cores": "1", "memory": "16 GiB", "gpu": "H200, 140 GiB"})
        'EPYC, 1 core, 16 GiB; GPU: H200, 140 GiB'
    """
    cores = hardware.get("cores", "")
    parts = [hardware.get("processor", ""), cores and f"{cores} core{'' if cores == '1' else 's'}"]
    machine = ", ".join(filter(None, [*parts, hardware.get("memory", "")]))
    return f"{machine}; GPU: {hardware['gpu']}" if hardware.get("gpu") else machine


def _lethe(results: Results) -> str:
    attempts = [attempt for trial in results.trials for attempt in trial.attempts if "lethe" in attempt.versions]
    found = dict.fromkeys(f"{attempt.versions['lethe']}{_commit_text(attempt.commit)}" for attempt in attempts)
    return ", ".join(found) or NOT_RECORDED


def _commit_text(commit: str) -> str:
    changed = ", with changes" if commit.endswith(DIRTY) else ""
    return f" (commit {commit[:_COMMIT_DIGITS]}{changed})" if commit else ""


def duration_text(seconds: float | None) -> str:
    """Return a time that a person can read at a glance.

    Example:
        >>> duration_text(3.52), duration_text(130), duration_text(3700), duration_text(None)
        ('3.5 s', '2 min 10 s', '1 h 1 min', '–')
    """
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = round(seconds) // 60, round(seconds) // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {round(seconds) % 60} s"
