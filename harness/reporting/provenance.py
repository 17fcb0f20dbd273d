"""Where a report's numbers come from: when they were measured, for how long, on what, by which Lethe."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.caveats.readings import readings_of
from harness.analysis.cells import NOTHING, duration_text
from harness.analysis.seeds import work_seconds
from harness.records.record import DIRTY, cpu_kind, time_of
from harness.records.results import Results, TrialResults

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
    """How each model reads texts, and in what precision it is stored."""
    lethe: str
    """Version and commit, all of them where trials had several."""
    sweep_command: str
    """What measures again, from the sweep file's text in the report."""
    collate_command: str
    """What makes the report again, from the journal."""


def provenance(results: Results) -> Provenance:
    """Return where a sweep's numbers come from, as far as its journal says."""
    plan = results.plan
    command = f"lethe sweep {plan.sweep}.yaml"
    for override in plan.overrides:
        command += f" --set {shlex.quote(override)}"
    versions = []
    for trial in results.trials:
        for attempt in trial.attempts:
            if "lethe" in attempt.versions:
                changed = ", with changes" if attempt.commit.endswith(DIRTY) else ""
                commit = f" (commit {attempt.commit[:_COMMIT_DIGITS]}{changed})" if attempt.commit else ""
                versions.append(f"{attempt.versions['lethe']}{commit}")
    return Provenance(
        measured=_period(results),
        work=duration_text(work_seconds(results.measured) or None),
        machines=_machines(results),
        readings=readings_of(trial.spec for trial in results.trials),
        lethe=", ".join(dict.fromkeys(versions)),
        sweep_command=command,
        collate_command=f"lethe collate results/{plan.sweep}",
    )


def _period(results: Results) -> str:
    moments = sorted(moment for trial in results.trials for moment in trial.written)
    if not moments:
        return NOTHING
    first, last = time_of(moments[0]), time_of(moments[-1])
    elapsed = duration_text(round((last - first).total_seconds()))
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {end} UTC ({elapsed} from the first record to the last)"


def _machines(results: Results) -> tuple[str, ...]:
    """Return each kind of machine, the most frequent first: its hosts, and how many trials ran there if others did."""
    hosts: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for trial in results.trials:
        if trial.attempts and trial.attempts[-1].hardware:
            machine = machine_text(trial.attempts[-1].hardware)
            hosts.setdefault(machine, set()).add(trial.attempts[-1].node)
            counts[machine] += 1
    machines = []
    for machine, count in counts.most_common():
        named = ", ".join(_at_most(sorted(hosts[machine] - {""})))
        trials = f" ({count} trials)" if len(counts) > 1 else ""
        machines.append(f"{named}: {machine}{trials}" if named else f"{machine}{trials}")
    return tuple(_at_most(machines))


def _at_most(names: Sequence[str]) -> list[str]:
    shown, more = list(names[:_MOST_MACHINES]), len(names) - _MOST_MACHINES
    return [*shown, f"and {more} others"] if more > 0 else shown


def ran_on(trial: TrialResults) -> str:
    """Return where a trial ran, in the order of its attempts: the host, and what computed there; '' if nobody knows."""
    places: list[str] = []
    workers: list[str] = []
    for attempt in trial.attempts:
        if attempt.node:
            processor = attempt.hardware.get("gpu") or attempt.hardware.get("processor", NOTHING)
            places.append(f"{attempt.node}: {processor}")
    for point in trial.measured:
        workers += point.made.worker_nodes if point.made else ()
    on_workers = f"; workers on {', '.join(dict.fromkeys(workers))}" if workers else ""
    return ", then ".join(dict.fromkeys(places)) + on_workers


def machine_text(hardware: Mapping[str, str]) -> str:
    """Return a machine as a person would call it.

    Example:
        >>> hardware = {"processor": "EPYC", "instructions": "AVX512", "cores": "1", "memory": "16 GiB"}
        >>> machine_text({**hardware, "gpu": "H200, 140 GiB"})
        'EPYC (AVX512), 1 core, 16 GiB; GPU: H200, 140 GiB'
    """
    cores = hardware.get("cores", "")
    parts = [cpu_kind(hardware), cores and f"{cores} core{'' if cores == '1' else 's'}"]
    machine = ", ".join(filter(None, [*parts, hardware.get("memory", "")]))
    return f"{machine}; GPU: {hardware['gpu']}" if hardware.get("gpu") else machine
