"""Section on reproduction: points, trials, sweep file, settings, digests, versions and machines."""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from harness.analysis import metrics, seeds
from harness.base.messages import amount, first_names
from harness.records.journal import DIRTY, cpu_kind, parse_time
from harness.records.results import Results, TrialResults
from harness.reporting.plan import describe_readings
from harness.reporting.render import Column, fill_html, render
from harness.reporting.section import Pictures, Section
from harness.settings import HOLDOUT, VALIDATION_ROW, Plan

MAX_TRIALS = 2000


class Repeat(Section):
    """Everything that another laboratory needs."""

    title = "How to repeat this"
    lead = "The sweep file, with the same models, texts and versions, gives these numbers again."

    def html(self, pictures: Pictures) -> Markup:
        results, plan = self.analysis.results, self.analysis.results.plan
        pairs = {"Models, texts and judges, with their digests": list_inputs(plan), "Versions": versions(results)}
        failed = [trial for trial in results.trials if trial.failure][:40]
        parts: dict[str, Any] = {"failed": failed, "trials": _trial_table(results), "pairs": pairs, "file": plan.file}
        return fill_html("repeat", command=provenance(results)["sweep_command"], **parts)


def _trial_table(results: Results) -> Markup:
    columns = [
        *(Column("label", "Method"), Column("model", "Model"), Column("seed", "Seed", "count")),
        *(Column("status", "State"), Column("points", "Points"), Column("erasing", "Erasing", "seconds")),
        *(Column("measuring", "Measuring", "seconds"), Column("memory", "Peak memory", "bytes")),
        *(Column("engine", "Engine"), Column("place", "Ran on"), Column("trial", "Trial", "code")),
    ]
    rows = []
    for trial in results.trials[:MAX_TRIALS]:
        spec, erasures = trial.spec, [point.made for point in trial.measured if point.made]
        seconds = [measurement.seconds for point in trial.measured for measurement in point.measurements]
        row = {"label": spec.label, "model": spec.model.id, "seed": spec.seed, "status": trial.status}
        row |= {"points": f"{len(trial.measured)} of {len(trial.points)}", "measuring": sum(seconds) or math.nan}
        row |= {"erasing": max((point.erase_seconds for point in erasures), default=math.nan)}
        row |= {"memory": max((point.peak_memory_bytes or 0 for point in erasures), default=0) or math.nan}
        row |= {"engine": f"{spec.engine}, {spec.training.precision}", "place": describe_hosts(trial)}
        rows.append(row | {"trial": spec.trial_id, "collapsed": trial.status == "failed"})
    return render(pd.DataFrame(rows, columns=[*(column.name for column in columns), "collapsed"]), columns, "html")


def describe_hosts(trial: TrialResults) -> str:
    """Return the hosts of a trial's attempts and of its workers; '' if not recorded."""
    hosts = [attempt.node for attempt in trial.attempts if attempt.node]
    workers = [node for point in trial.measured if point.made for node in point.made.worker_nodes]
    on_workers = f"; workers on {', '.join(dict.fromkeys(workers))}" if workers else ""
    return ", then ".join(dict.fromkeys(hosts)) + on_workers


def versions(results: Results) -> list[tuple[str, str]]:
    """Return each package with the versions of all trials."""
    pairs = {pair for trial in results.trials for packages in trial.versions for pair in packages.items()}
    names = sorted({package for package, _ in pairs})
    return [(name, ", ".join(sorted(version for package, version in pairs if package == name))) for name in names]


def list_inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return the role of each input, and its name with its digest."""
    inputs = []
    for spec in plan.trials:
        models = {"model": spec.model, "retrained model": spec.retrained}
        models |= {f"judge of {role}": judge for role, judge in spec.judges.items()}
        inputs += [(role, f"{checkpoint.id} {checkpoint.digest}") for role, checkpoint in models.items() if checkpoint]
        first = {HOLDOUT: "holdout", VALIDATION_ROW: "stand-in"}.get(spec.method, "forget")
        texts = {first: spec.forget, "retain": spec.retain, "utility": spec.utility, "validation": spec.validation}
        for role, source in texts.items():
            if source:
                name = " ".join(filter(None, (source.source, source.path, source.name, source.digest)))
                inputs.append((f"{role} texts", name))
    return list(dict.fromkeys(inputs))


def provenance(results: Results) -> dict[str, Any]:
    """Return the origin of a sweep's numbers, from its journal, as text; the most frequent machine is first."""
    plan, builds = results.plan, []
    overrides = "".join(f" --set {shlex.quote(override)}" for override in plan.overrides)
    for trial in results.trials:
        for attempt in trial.attempts:
            if "lethe" in attempt.versions:
                changed = ", with changes" if attempt.commit.endswith(DIRTY) else ""
                commit = f" (commit {attempt.commit[:10]}{changed})" if attempt.commit else ""
                builds.append(f"{attempt.versions['lethe']}{commit}")
    moments = sorted(moment for trial in results.trials for moment in trial.written)
    date = f"{parse_time(moments[-1]):%-d %B %Y}" if moments else ""
    work, readings = seeds.work_seconds(results.trials), describe_readings(trial.spec for trial in results.trials)
    parts: dict[str, Any] = {"date": date, "measured": _period(moments), "work": metrics.duration_text(work or None)}
    parts |= {"machines": _machines(results), "readings": readings, "lethe": ", ".join(dict.fromkeys(builds))}
    root = results.root
    elsewhere = "" if root == "results" else f" --results {shlex.quote(root)}"
    parts["sweep_command"] = f"lethe sweep {shlex.quote(f'{plan.sweep}.yaml')}{overrides}{elsewhere}"
    return parts | {"collate_command": f"lethe collate {shlex.quote(f'{root}/{results.name}')}"}


def _period(moments: Sequence[str]) -> str:
    if not moments:
        return metrics.NOTHING
    first, last = parse_time(moments[0]), parse_time(moments[-1])
    elapsed = metrics.duration_text(round((last - first).total_seconds()))
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {end} UTC ({elapsed} from the first record to the last)"


def _machines(results: Results) -> list[str]:
    hosts_by_machine: dict[str, list[str]] = {}
    for trial in results.trials:
        if trial.attempts and trial.attempts[-1].hardware:
            last = trial.attempts[-1]
            hosts_by_machine.setdefault(machine_text(last.hardware), []).append(last.node)
    machines = []
    for machine, hosts in sorted(hosts_by_machine.items(), key=lambda item: -len(item[1])):
        trials = f" ({len(hosts)} trials)" if len(hosts_by_machine) > 1 else ""
        names = first_names(sorted({*hosts} - {""}), 4)
        machines.append(f"{names}{': ' if names else ''}{machine}{trials}")
    return machines


def machine_text(hardware: Mapping[str, str]) -> str:
    """Return a machine as text: `EPYC (AVX512), 1 core, 16 GiB; GPU: H200, 140 GiB`."""
    parts = [cpu_kind(hardware), amount(int(hardware["cores"]), "core") if hardware.get("cores") else ""]
    machine = ", ".join(filter(None, [*parts, hardware.get("memory", "")]))
    return f"{machine}; GPU: {hardware['gpu']}" if hardware.get("gpu") else machine
