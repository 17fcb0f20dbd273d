"""The report: one HTML page that holds everything, pictures included, and needs nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from harness.records.journal import status
from harness.reporting.facts import Facts
from harness.reporting.layout import ARROWS, NOTHING, ModelTable, Row, model_tables, number, split_title, strength_text
from harness.reporting.reached import Reached, Records, failures, reached, reached_all, versions
from harness.reporting.summary import caption, outcome, warnings
from harness.specs import RETRAINED, Plan, TrialSpec


@dataclass(frozen=True)
class Drawing:
    """A picture of the page, and what it shows for those who cannot see it."""

    svg: bytes
    description: str

    @property
    def uri(self) -> str:
        """Return the picture as an address that holds it."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg).decode()}"


def page(
    plan: Plan, records: Records, table: pd.DataFrame, ranking: pd.DataFrame, facts: Facts, tradeoff_svg: bytes
) -> str:
    """Return the report of a sweep, as far as it has come; one without any finished trial too."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(arrows=ARROWS, split_title=split_title)
    environment.filters.update(duration=duration, memory=memory)
    template = environment.from_string(files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8"))
    tables = model_tables(table, ranking, facts)
    points = reached_all(plan, records)
    return template.render(
        plan=plan,
        caption=caption(table),
        chips=_chips(plan, records, table),
        outcome=outcome(table, ranking, facts),
        warnings=warnings(plan, records, table),
        has_retrained=bool((table["method"] == RETRAINED).any()),
        drawing=Drawing(tradeoff_svg, "Trade-off curves: memorization against fluency, a curve for each method."),
        tables=tables,
        best_first={each.model: _best_first(each, ranking) for each in tables},
        metrics=list(facts.values()),
        points={str(model): _points(rows, facts) for model, rows in table.groupby("model", sort=False)},
        seeds=table["seed"].nunique(),
        blocks=_blocks(points),
        samples=_samples(points, table),
        costs=[_cost(spec, records) for spec in plan.trials],
        failures=failures(plan, records),
        versions=versions(records),
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


def _chips(plan: Plan, records: Records, table: pd.DataFrame) -> list[tuple[str, str]]:
    done = sum(status(spec, records.get(spec.trial_id, ())) == "done" for spec in plan.trials)
    seeds = sorted({spec.seed for spec in plan.trials})
    return [
        ("sweep", plan.sweep),
        ("models", ", ".join(dict.fromkeys(spec.model.id for spec in plan.trials))),
        ("seeds", ", ".join(map(str, seeds))),
        ("trials", f"{done} of {len(plan.trials)} done"),
        ("points", str(len(table))),
        ("definition", ", ".join(sorted(set(table["definition"]) - {""})) or NOTHING),
    ]


def _best_first(table: ModelTable, ranking: pd.DataFrame) -> list[tuple[Row, str]]:
    """Return the model's rows in the ranking's order, each with its note, or else its collapse class."""
    rows = {row.variant: row for row in table.rows()}
    ranks = ranking[ranking["model"] == table.model]
    return [(rows[each["variant"]], each["unranked"] or each["collapse_class"]) for _, each in ranks.iterrows()]


def _points(rows: pd.DataFrame, facts: Facts) -> list[dict[str, Any]]:
    return [
        {
            "label": row["label"],
            "strength": strength_text(row["strength_name"], row["strength"]),
            "seed": row["seed"],
            "numbers": [number(row[name], metric) for name, metric in facts.items()],
            "collapsed": row["collapsed"] is True,
            "collapse_class": row["collapse_class"],
            "ranked": row["ranked"],
            "stop_reason": row["stop_reason"],
        }
        for _, row in rows.iterrows()
    ]


def _blocks(points: Sequence[Reached]) -> list[dict[str, Any]]:
    """Return, for each trial that chose blocks, those of every strength."""
    found: dict[str, dict[str, Any]] = {}
    for point in points:
        chosen = point.point.notes.get("selected_blocks") if point.point else None
        if isinstance(chosen, Sequence) and not isinstance(chosen, str) and point.strength is not None:
            spec = point.spec
            trial = {"label": spec.label, "model": spec.model.id, "seed": spec.seed, "rows": []}
            strength = strength_text(spec.strength_name, float(point.strength))
            found.setdefault(spec.trial_id, trial)["rows"].append((strength, [_block(each) for each in chosen]))
    return list(found.values())


def _block(chosen: Any) -> tuple[str, str]:
    """Return a block's name and its score."""
    if isinstance(chosen, Mapping):
        score = chosen.get("m")
        return str(chosen.get("block", "")), f"M = {score:.2e}" if isinstance(score, float) else ""
    return str(chosen), ""


def _samples(points: Sequence[Reached], table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what the models wrote, side by side: each prompt once, with every ranked point's text."""
    ranked = set(table.loc[table["ranked"], "point_id"])
    first_seed = min((point.spec.seed for point in points), default=0)
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for point in points:
        spec = point.spec
        shown = spec.is_reference or spec.point_id(point.strength) in ranked
        if spec.seed != first_seed or not shown:
            continue
        for measurement in point.measurements:
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
        "memory": max((point.peak_memory_bytes for point in made), default=None),
    }


def _digests(plan: Plan) -> list[tuple[str, str, str]]:
    """Return what was read, each thing once: its role, its name and its digest."""
    found: dict[tuple[str, str, str], None] = {}
    for spec in plan.trials:
        found["model", spec.model.id, spec.model.digest] = None
        if spec.retrained:
            found["retrained model", spec.retrained.id, spec.retrained.digest] = None
        for role, checkpoint in spec.judges.items():
            found[f"judge of {role}", checkpoint.id, checkpoint.digest] = None
        texts = {"forget": spec.forget, "retain": spec.retain, "utility": spec.utility, "validation": spec.validation}
        for role, source in texts.items():
            if source:
                name = " ".join(filter(None, (source.source, source.path, source.name)))
                found[f"{role} texts", name, source.digest] = None
    return list(found)


def _settings(plan: Plan) -> list[tuple[str, str]]:
    """Return the settings that the sweep file leaves to defaults: each distinct set once."""
    found: dict[tuple[str, str], None] = {}
    for spec in plan.trials:
        for evaluator in spec.evaluators:
            found[f"evaluator {evaluator.name} (version {evaluator.version})", _listed(evaluator.settings)] = None
        if not spec.is_reference:
            found[f"method {spec.variant} (version {spec.method_version})", _listed(spec.settings)] = None
            found["training", _listed(asdict(spec.training))] = None
            found["memorized model", _listed(asdict(spec.memorization))] = None
    return sorted(found)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.items()) or "no settings"
