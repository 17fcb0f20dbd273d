"""The report: one HTML page that holds everything, pictures included, and needs nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.records.journal import status
from harness.reporting.collapse import verdict
from harness.reporting.facts import Facts, Records, ranked_metrics
from harness.reporting.judging import human_readings
from harness.reporting.layout import ARROWS, NOTHING, model_tables, number, split_title, strength_text
from harness.reporting.reasoning import answers, signed
from harness.reporting.recitation import said_first
from harness.reporting.seeds import seed_count
from harness.reporting.summary import caption, outcome, warnings
from harness.reporting.table import Reached, failures, reached, reached_all
from harness.specs import HOLDOUT, RETRAINED, STAND_IN, UNSEEN_ROWS, Plan, Started, TrialSpec


def page(
    plan: Plan,
    records: Records,
    table: pd.DataFrame,
    ranking: pd.DataFrame,
    facts: Facts,
    pictures: Mapping[str, bytes],
) -> str:
    """Return the report of a sweep, as far as it has come; one without any finished trial too.

    `pictures` are SVGs: `tradeoff`, and `reasoning` if its tasks were measured.
    """
    loader = PackageLoader(__package__, "")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        arrows=ARROWS,
        number=number,
        signed=signed,
        split_title=split_title,
        strength_text=strength_text,
        verdict=verdict,
    )
    environment.filters.update(duration=duration, memory=memory)
    points = reached_all(plan, records)
    return environment.get_template("report.html.j2").render(
        plan=plan,
        caption=caption(table),
        definition=", ".join(sorted(set(table["definition"]) - {""})) or NOTHING,
        said_first=said_first(table, facts),
        outcome=outcome(table, ranking, facts),
        warnings=warnings(plan, records, table),
        judging=human_readings(points),
        has_retrained=bool((table["method"] == RETRAINED).any()),
        pictures={name: b64encode(svg).decode() for name, svg in pictures.items()},
        tasks=ranked_metrics(facts, "reasoning"),
        answers=answers(table, facts),
        tables=model_tables(table, ranking, facts),
        metrics=list(facts.values()),
        points={str(model): rows for model, rows in table.groupby("model", sort=False)},
        seeds=seed_count(table),
        blocks=_blocks(points),
        samples=_samples(points, table),
        costs=[_cost(spec, records) for spec in plan.trials],
        failures=failures(plan, records),
        versions=_versions(records),
        digests=_digests(plan),
        settings=_settings(plan),
    )


def duration(seconds: float | None) -> str:
    """Return a time that a person can read at a glance.

    Example:
        >>> duration(3.52), duration(130), duration(3700), duration(None)
        ('3.5 s', '2 min 10 s', '1 h 1 min', '–')
    """
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = round(seconds) // 60, round(seconds) // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {round(seconds) % 60} s"


def memory(count: int | None) -> str:
    """Return a number of bytes that a person can read at a glance; none measured is a dash.

    Example:
        >>> memory(912_680_550), memory(3 * 2**30), memory(0)
        ('870 MiB', '3.0 GiB', '–')
    """
    if not count:
        return NOTHING
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _blocks(points: Sequence[Reached]) -> list[dict[str, Any]]:
    """Return, for each trial that chose blocks, those of every strength."""
    found: dict[str, dict[str, Any]] = {}
    for point in points:
        chosen = point.point.notes.get("selected_blocks") if point.point else None
        if isinstance(chosen, list | tuple) and point.strength is not None:
            trial = found.setdefault(point.spec.trial_id, {"spec": point.spec, "rows": []})
            strength = strength_text(point.spec.strength_name, float(point.strength))
            trial["rows"].append((strength, [_block(each) for each in chosen]))
    return list(found.values())


def _block(chosen: Any) -> tuple[str, str]:
    """Return a block's name and its score."""
    if not isinstance(chosen, Mapping):
        return str(chosen), ""
    score = chosen.get("m")
    return str(chosen.get("block", "")), f"M = {score:.2e}" if isinstance(score, float) else ""


def _samples(points: Sequence[Reached], table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what the models wrote, side by side: each prompt once, with every ranked point's text."""
    ranked = set(table.loc[table["ranked"], "point_id"])
    first_seed = min((point.spec.seed for point in points), default=0)
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for point in points:
        spec = point.spec
        is_shown = spec.is_reference or spec.point_id(point.strength) in ranked
        is_shown = is_shown and spec.seed == first_seed and spec.method not in UNSEEN_ROWS
        for measurement in point.measurements if is_shown else ():
            for place, sample in enumerate(measurement.samples):
                key = (spec.model.id, sample["kind"], measurement.evaluator, place)
                group = {"model": spec.model.id, "kind": sample["kind"], "first": sample, "texts": []}
                found.setdefault(key, group)["texts"].append((spec.label, sample["generated"]))
    return list(found.values())


def _cost(spec: TrialSpec, records: Records) -> dict[str, Any]:
    points = reached(spec, records)
    made = [point.point for point in points if point.point]
    return {
        "spec": spec,
        "status": status(spec, records.get(spec.trial_id, ())),
        "points": f"{len(points)} of {len(spec.points())}",
        "erase_seconds": max((point.erase_seconds for point in made), default=None),
        "measure_seconds": sum(each.seconds for point in points for each in point.measurements) if points else None,
        "memory": max((point.peak_memory_bytes for point in made if point.peak_memory_bytes), default=None),
    }


def _versions(records: Records) -> dict[str, list[str]]:
    """Return each package with the versions that the trials ran with: more than one if they changed."""
    found: dict[str, set[str]] = {}
    for started in [each for trial in records.values() for each in trial if isinstance(each, Started)]:
        for package, version in started.versions.items():
            found.setdefault(package, set()).add(version)
    return {package: sorted(found[package]) for package in sorted(found)}


def _digests(plan: Plan) -> list[tuple[str, str, str]]:
    """Return what was read, each thing once: its role, its name and its digest."""
    found = []
    for spec in plan.trials:
        read = {"model": spec.model, "retrained model": spec.retrained}
        read |= {f"judge of {role}": checkpoint for role, checkpoint in spec.judges.items()}
        found += [(role, each.id, each.digest) for role, each in read.items() if each]
        first = {HOLDOUT: "holdout", STAND_IN: "stand-in"}.get(spec.method, "forget")
        texts = {first: spec.forget, "retain": spec.retain, "utility": spec.utility, "validation": spec.validation}
        for role, source in texts.items():
            if source:
                name = " ".join(filter(None, (source.source, source.path, source.name)))
                found.append((f"{role} texts", name, source.digest))
    return list(dict.fromkeys(found))


def _settings(plan: Plan) -> list[tuple[str, str]]:
    """Return every setting, defaults included: each distinct set once."""
    found: set[tuple[str, str]] = set()
    for spec in plan.trials:
        for evaluator in spec.evaluators:
            found.add((f"evaluator {evaluator.name} (version {evaluator.version})", _listed(evaluator.settings)))
        if not spec.is_reference:
            found.add((f"method {spec.variant} (version {spec.method_version})", _listed(spec.settings)))
            found.add(("training", _listed(asdict(spec.training))))
            found.add(("memorized model", _listed(asdict(spec.memorization))))
    return sorted(found)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.items()) or "no settings"
