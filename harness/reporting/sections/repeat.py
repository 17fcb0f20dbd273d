"""Section on reproduction: points, trials, glossary, sweep file, digests, versions and machines."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from harness.analysis.analysis import Analysis
from harness.analysis.damage import describe_rules, verdict
from harness.analysis.metrics import NOTHING, MetricInfo, duration_text
from harness.analysis.seeds import seed_count, strength_text, work_seconds
from harness.contracts import Metric
from harness.errors import PluginError
from harness.plugins import METHODS
from harness.records.record import DIRTY, cpu_kind, parse_time
from harness.records.results import Results, TrialResults
from harness.reporting.plan import describe_readings
from harness.reporting.render import Column, render
from harness.reporting.section import PageContext, Section
from harness.settings import HOLDOUT, STAND_IN, Plan

MAX_POINTS = MAX_TRIALS = 2000
"""Largest numbers of listed points of a model, and of trials of a sweep."""
MAX_FAILURES = 40
_COMMIT_DIGITS = 10
_MAX_MACHINES = 4


class Repeat(Section):
    """Everything that another laboratory needs."""

    def html(self, page: PageContext) -> Markup:
        analysis, results = self.analysis, self.analysis.results
        points = point_frame(analysis)
        has_points = results.plan.erases and len(points) > 0
        parts = [page.section_heading("Every point"), _point_table(points, analysis)] if has_points else []
        parts += [page.section_heading("Trials, time and memory"), _trial_table(results)]
        for trial in [trial for trial in results.trials if trial.failure][:MAX_FAILURES]:
            spec, failure = trial.spec, trial.failure
            assert failure is not None
            sentence = f"{spec.label} on {spec.model.id}, seed {spec.seed}, failed: {failure.reason}"
            parts.append(_details(sentence, Markup("<pre>{}</pre>").format("\n".join(failure.log))))
        parts.append(page.section_heading("How to repeat this"))
        overrides = "".join(f" --set {override}" for override in results.plan.overrides)
        exactly = f"The sweep file, exactly{f'; overridden with{overrides}' if overrides else ''}:"
        parts.append(Markup("<p>{}</p>\n<pre>{}</pre>\n").format(exactly, results.plan.file))
        tables = {
            "What the words mean": (glossary(results.plan, analysis.info), "Word", "Meaning"),
            "Settings, defaults included": (all_settings(results.plan), "Of", "Settings"),
            "Models, texts and judges, with their digests": (list_inputs(results.plan), "What", "Name and digest"),
            "Versions": (versions(results), "Package", "Version"),
        }
        for title, (rows, *heads) in tables.items():
            columns = [Column(heads[0], heads[0]), Column(heads[1], heads[1], "note")]
            parts.append(_details(title, render(pd.DataFrame(rows, columns=heads), columns, "html")))
        return Markup("").join(parts)


def _details(summary: str, text: Markup) -> Markup:
    return Markup("<details>\n<summary>{}</summary>\n{}</details>\n").format(summary, text)


def point_frame(analysis: Analysis) -> pd.DataFrame:
    """Return the listed points, with `at`, `state` and `mark` for the reader."""
    points = analysis.points.groupby("model", sort=False).head(MAX_POINTS)
    rows = points.to_dict("records")
    return points.assign(
        mark=["●" if row["ranked"] else "" for row in rows],
        at=[strength_text(row["strength_name"], row["strength"]) for row in rows],
        state=[verdict(row["collapse_class"], row["collapse_reason"]) for row in rows],
    )


def _point_table(points: pd.DataFrame, analysis: Analysis) -> Markup:
    columns = [Column("model", "Model", "heading"), Column("label", "Method"), Column("mark", "", "rank")]
    columns += [Column("at", "Strength"), Column("until", "Until")]
    columns += [Column("seed", "Seed", "count")] if seed_count(points) > 1 else []
    columns += [Column(metric.name, metric.title, "number", metric) for metric in analysis.info.values()]
    columns += [Column("state", "State", "note"), Column("stop_reason", "Stopped because", "note")]
    table_columns = [column for column in columns if column.kind == "number" or points[column.name].astype(bool).any()]
    bounds = [name for name in points.columns if str(name).endswith(("_low", "_high"))]
    about = Markup('<p class="soft">● marks the point that stands for its method in the ranking.</p>\n')
    return about + render(points.drop(columns=bounds), table_columns, "html")


def _trial_table(results: Results) -> Markup:
    rows = []
    for trial in results.trials[:MAX_TRIALS]:
        spec, made = trial.spec, [point.made for point in trial.measured if point.made]
        seconds = [measurement.seconds for point in trial.measured for measurement in point.measurements]
        rows.append(
            {
                "label": spec.label,
                "model": spec.model.id,
                "seed": spec.seed,
                "status": trial.status,
                "points": f"{len(trial.measured)} of {len(trial.points)}",
                "erasing": max((point.erase_seconds for point in made), default=math.nan),
                "measuring": sum(seconds) if seconds else math.nan,
                "memory": max((point.peak_memory_bytes or 0 for point in made), default=0) or math.nan,
                "engine": f"{spec.engine}, {spec.training.precision}",
                "place": describe_machines(trial),
                "trial": spec.trial_id,
                "collapsed": trial.status == "failed",
            }
        )
    columns = [
        *(Column("label", "Method"), Column("model", "Model"), Column("seed", "Seed", "count")),
        *(Column("status", "State"), Column("points", "Points"), Column("erasing", "Erasing", "seconds")),
        *(Column("measuring", "Measuring", "seconds"), Column("memory", "Peak memory", "bytes")),
        *(Column("engine", "Engine"), Column("place", "Ran on"), Column("trial", "Trial", "code")),
    ]
    return render(pd.DataFrame(rows, columns=[*(column.name for column in columns), "collapsed"]), columns, "html")


def glossary(plan: Plan, info: MetricInfo) -> list[tuple[str, str]]:
    """Return the meanings of this sweep's metrics and methods."""
    words = [(metric.title, _metric_meaning(metric)) for metric in info.values()]
    methods: dict[str, str] = {}
    for spec in [*(study.trial for study in plan.studies), *plan.trials]:
        if not spec.is_reference and spec.label not in methods:
            methods[spec.label] = f"{spec.method}, {_method_source(spec.method)}strength: {spec.strength_name}"
    rule = describe_rules(info, plan.collapse) if plan.erases else ""
    return [*words, *methods.items(), *([("collapsed", rule)] if rule else [])]


def _metric_meaning(metric: Metric) -> str:
    limits = f"from {metric.low:g}" if math.isinf(metric.high) else f"{metric.low:g} to {metric.high:g}"
    kind = metric.group + ("" if metric.ranked else ", not ranked")
    source = f" ({metric.source})" if metric.source else ""
    return f"{metric.unit}, {limits}, {metric.better} is better; {kind}{source}"


def _method_source(method: str) -> str:
    try:
        return f"{METHODS.load(method).source}; "
    except PluginError:
        return ""


def versions(results: Results) -> list[tuple[str, str]]:
    """Return each package with the versions of all trials."""
    versions_by_package: dict[str, set[str]] = {}
    for trial in results.trials:
        for packages in trial.versions:
            for package, version in packages.items():
                versions_by_package.setdefault(package, set()).add(version)
    return [(package, ", ".join(sorted(versions_by_package[package]))) for package in sorted(versions_by_package)]


def list_inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return the role of each input, and its name with its digest."""
    inputs = []
    for spec in plan.trials:
        read = {"model": spec.model, "retrained model": spec.retrained}
        read |= {f"judge of {role}": judge for role, judge in spec.judges.items()}
        inputs += [(role, f"{checkpoint.id} {checkpoint.digest}") for role, checkpoint in read.items() if checkpoint]
        first = {HOLDOUT: "holdout", STAND_IN: "stand-in"}.get(spec.method, "forget")
        texts = {first: spec.forget, "retain": spec.retain, "utility": spec.utility, "validation": spec.validation}
        for role, source in texts.items():
            if source:
                name = " ".join(filter(None, (source.source, source.path, source.name, source.digest)))
                inputs.append((f"{role} texts", name))
    return list(dict.fromkeys(inputs))


def all_settings(plan: Plan) -> list[tuple[str, str]]:
    """Return the settings of evaluators, methods, training and memorised models, defaults included."""
    settings: list[tuple[str, Mapping[str, Any]]] = []
    for spec in plan.trials:
        for evaluator in spec.evaluators:
            settings.append((f"evaluator {evaluator.name} (version {evaluator.version})", evaluator.settings))
        if not spec.is_reference:
            settings.append((f"method {spec.variant} (version {spec.method_version})", spec.settings))
            settings.append(("training", spec.training.in_words()))
            settings.append(("memorized model", spec.memorization.model_dump()))
    lines = set()
    for name, values in settings:
        text = ", ".join(f"{key}: {value}" for key, value in values.items())
        lines.add((name, text or "no settings"))
    return sorted(lines)


def provenance(results: Results) -> dict[str, Any]:
    """Return the origin of a sweep's numbers, from its journal, as text.

    `measured` is the time from the journal's first line to its last, `work` the summed time of all trials; `machines`
    has the most frequent first; `readings` is how each model reads texts; `lethe` is the version and commit.
    """
    plan = results.plan
    builds = []
    for trial in results.trials:
        for attempt in trial.attempts:
            if "lethe" in attempt.versions:
                changed = ", with changes" if attempt.commit.endswith(DIRTY) else ""
                commit = f" (commit {attempt.commit[:_COMMIT_DIGITS]}{changed})" if attempt.commit else ""
                builds.append(f"{attempt.versions['lethe']}{commit}")
    return {
        "measured": _period(results),
        "work": duration_text(work_seconds(results.measured) or None),
        "machines": _machines(results),
        "readings": describe_readings(trial.spec for trial in results.trials),
        "lethe": ", ".join(dict.fromkeys(builds)),
        "sweep_command": " ".join(
            [f"lethe sweep {plan.sweep}.yaml", *(f"--set {shlex.quote(override)}" for override in plan.overrides)]
        ),
        "collate_command": f"lethe collate results/{plan.sweep}",
    }


def _period(results: Results) -> str:
    moments = sorted(moment for trial in results.trials for moment in trial.written)
    if not moments:
        return NOTHING
    first, last = parse_time(moments[0]), parse_time(moments[-1])
    elapsed = duration_text(round((last - first).total_seconds()))
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {end} UTC ({elapsed} from the first record to the last)"


def _machines(results: Results) -> tuple[str, ...]:
    hosts: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for trial in results.trials:
        if trial.attempts and trial.attempts[-1].hardware:
            machine = machine_text(trial.attempts[-1].hardware)
            hosts.setdefault(machine, set()).add(trial.attempts[-1].node)
            counts[machine] += 1
    machines = []
    for machine, count in counts.most_common():
        named = ", ".join(_shorten(sorted(hosts[machine] - {""})))
        trials = f" ({count} trials)" if len(counts) > 1 else ""
        machines.append(f"{named}: {machine}{trials}" if named else f"{machine}{trials}")
    return tuple(_shorten(machines))


def _shorten(names: Sequence[str]) -> list[str]:
    first, more = list(names[:_MAX_MACHINES]), len(names) - _MAX_MACHINES
    return [*first, f"and {more} others"] if more > 0 else first


def describe_machines(trial: TrialResults) -> str:
    """Return the hosts and hardware of a trial's attempts; '' if not recorded."""
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
    """Return a machine as text.

    Example:
        >>> hardware = {"processor": "EPYC", "instructions": "AVX512", "cores": "1", "memory": "16 GiB"}
        >>> machine_text({**hardware, "gpu": "H200, 140 GiB"})
        'EPYC (AVX512), 1 core, 16 GiB; GPU: H200, 140 GiB'
    """
    cores = hardware.get("cores", "")
    parts = [cpu_kind(hardware), cores and f"{cores} core{'' if cores == '1' else 's'}"]
    machine = ", ".join(filter(None, [*parts, hardware.get("memory", "")]))
    return f"{machine}; GPU: {hardware['gpu']}" if hardware.get("gpu") else machine
