"""Price of each method at each level, with its uncertainty and damage.

A row is one method, walked to one level on one model. Its price is its cost divided by the original's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.analysis import damage, ranking, seeds
from harness.analysis.evidence import HIGH, LOW, REPLICATE, Evidence, split_rows
from harness.contracts import Metric, exponential
from harness.records.results import PointResults, Results, StudyResults, TrialResults, find_points, point_name
from harness.settings import ORIGINAL, RETRAINED, UNSEEN_ROWS, Level, Plan, Trial
from harness.statistics import bootstrap, contrasts

BAND = 1.5
"""Ratio below which the prices of two single runs may differ by luck.

Runs of earlier sweeps deviated by .10 to .48 in the logarithm, mostly by less than .25.
"""
COLUMNS = (
    "model", "level", "variant", "label", "gets_there", "reached", "runs", "strength", "setting", "nearest",
    "nearest_at", "reason", "ma", "price", "price_low", "price_high", "unseen_ma", "unseen_ma_before",
    "unseen_nll_rise", "collapsed", "over_erased", "broken", "collapsed_seeds", "over_erased_seeds", "is_reference",
    "ratio", "ratio_low", "ratio_high", "verdict", "item_variance", "comes_back", "budget", "points",
)  # fmt: skip
_RUN = [REPLICATE, "replicate_seed"]


class Answer(NamedTuple):
    """Prices and verdicts of a sweep."""

    frame: pd.DataFrame
    """A row for each model, level and method, with the columns of `answer.csv`.

    Methods that reached the level come first, by share of runs, then price; then broken ones; then the others.
    """
    heads: Mapping[str, Mapping[str, Any]]
    """By model: `texts`, `runs`, `replicates`, `recited` (before), `unseen_ma`, `retrained_ma`, `retrained_price` and
    `levels` (by key: value, low, high).
    """
    cost: Metric | None
    """Metric of the price; None where it was not measured."""
    log_prices: Mapping[tuple[str, str], pd.DataFrame]
    """Log price of every method (column) with every seed (row), by model and level."""
    seconds_per_run: float
    """Expected duration of one more run; NaN where not recorded."""

    def at(self, model: str, level: Level) -> pd.DataFrame:
        """Return a model's rows at a level."""
        return self.frame[(self.frame["model"] == model) & (self.frame["level"] == level.key)]


def answer(results: Results, ranked: ranking.RankedTable) -> Answer:
    """Return the price of each method at each level, with verdicts at the first."""
    cost = ranked.info.get(results.plan.compare.cost)
    rows: list[dict[str, Any]] = []
    heads, log_prices = {}, {}
    for model, table in ranked.table.groupby("model", sort=False):
        model_cost = None if ranked.recitations[str(model)].recites is False else cost  # Nothing to erase has no price.
        heads[str(model)] = _head(str(model), table, results, model_cost)
        for level in results.plan.until:
            level_rows, logs = _level_rows(str(model), level, table, results, model_cost, ranked.evidence)
            rows, log_prices[str(model), level.key] = rows + level_rows, logs
    return Answer(pd.DataFrame(rows, columns=list(COLUMNS)), heads, cost, log_prices, seeds.seconds_per_seed(results))


def _head(model: str, table: pd.DataFrame, results: Results, cost: Metric | None) -> dict[str, Any]:
    originals, retrained = (table[table["method"] == method] for method in (ORIGINAL, RETRAINED))
    erasing = [trial for trial in results.trials if trial.spec.table_model == model and not trial.spec.is_reference]
    paid = list(_log_prices(retrained, originals, cost).values())
    levels: dict[str, tuple[float, float, float]] = {}
    for level in results.plan.until:
        rows, name = {"unseen": (originals, "unseen_ma")}.get(str(level.at), (retrained, "ma"))
        means = _mean(rows, name), _mean(rows, LOW.format(name)), _mean(rows, HIGH.format(name))
        levels[level.key] = means if isinstance(level.at, str) else (float(level.at), math.nan, math.nan)
    of_model = [trial.spec for trial in results.trials if trial.spec.table_model == model]
    texts = next(((spec.measured or spec.forget).rows for spec in of_model if spec.method not in UNSEEN_ROWS), 0)
    replicates = {trial.spec.model.id for trial in erasing}
    head = {"texts": texts, "runs": _count_runs(erasing), "replicates": len(replicates), "levels": levels}
    head |= {"recited": _mean(originals, "ma"), "unseen_ma": _mean(originals, "unseen_ma")}
    price = math.exp(np.mean(paid)) if paid else math.nan
    return head | {"retrained_ma": _mean(retrained, "ma"), "retrained_price": price}


def _level_rows(
    model: str, level: Level, table: pd.DataFrame, results: Results, cost: Metric | None, evidence: Evidence
) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    originals = table[table["method"] == ORIGINAL]
    rows: dict[str, dict[str, Any]] = {}
    points: dict[str, pd.DataFrame] = {}
    specs = [study.spec.trial for study in results.studies] + list(results.plan.trials)
    rows_in_file = list(results.plan.rows)
    specs = sorted(specs, key=lambda spec: rows_in_file.index(spec.variant) if spec.variant in rows_in_file else 0)
    labels = {spec.variant: spec.label for spec in specs if spec.table_model == model and not spec.is_reference}
    at_level = [trial for trial in results.trials if trial.spec.until and trial.spec.until.key == level.key]
    for variant, label in labels.items():
        walks = [trial for trial in at_level if (trial.spec.table_model, trial.spec.variant) == (model, variant)]
        missed = {_run(trial.spec) for trial in walks if trial.walked and not trial.walked.reached}
        measured = [point for trial in walks if _run(trial.spec) not in missed for point in trial.measured]
        points[variant] = table[table["point_id"].isin([point.spec.point_id(point.strength) for point in measured])]
        rows[variant] = {"model": model, "level": level.key, "variant": variant, "label": label}
        studies = [study for study in results.studies if study.spec.trial.table_model == model]
        rows[variant] |= _walk(walks, measured, [study for study in studies if study.spec.trial.variant == variant])
        rows[variant] |= _damage(points[variant], originals)
        rows[variant]["comes_back"] = _steps_back(measured, results)
    reference = _reference(rows, results.plan)
    prices = {variant: _log_prices(points_at_level, originals, cost) for variant, points_at_level in points.items()}
    logs = pd.DataFrame({name: pd.Series(by_run) for name, by_run in prices.items() if by_run}, dtype=float)
    paid, differences, variances = {}, {}, {}
    for name in map(str, logs):
        paid[name] = _item_variance(points[name], seeds.match_originals(points[name], originals), cost, evidence)
        are_sound = reference in logs and True not in (rows[name]["broken"], rows[reference]["broken"])
        if are_sound and name != reference:
            differences[name] = values_by_run(logs[name] - logs[reference])
            variances[name] = _item_variance(points[name], points[reference], cost, evidence)
    margin = math.log1p(results.plan.compare.margin)
    unpaired = contrasts.judge_methods({name: values_by_run(logs[name]) for name in paid}, paid, margin)
    judged = contrasts.judge_methods(differences, variances, margin)
    for name, row in rows.items():
        for column, judgements in (("price", unpaired), ("ratio", judged)):
            ends = judgements[name][:3] if name in judgements else (math.nan,) * 3
            row |= zip((column, LOW.format(column), HIGH.format(column)), map(exponential, ends), strict=True)
        is_judged = name in judged and not math.isnan(judged[name].p) and level == results.plan.until[0]
        row |= {"verdict": judged[name].verdict if is_judged else "", "is_reference": name == reference}
        row["item_variance"] = variances.get(name, math.nan)
    return sorted(rows.values(), key=_place), logs


def _place(row: Mapping[str, Any]) -> tuple[int, float, float]:
    price = math.inf if math.isnan(row["price"]) else row["price"]
    return (int(row["broken"] is True), -row["reached"] / row["runs"], price) if row["reached"] else (2, 0.0, 0.0)


def _count_runs(trials: Iterable[TrialResults]) -> int:
    return len({_run(each.spec) for each in trials if each.measured or (each.walked and not each.walked.reached)})


def _run(spec: Trial) -> str | int:
    """Return a trial's replicate if there are several, since seeds of one say nothing about others; else its seed."""
    return spec.model.id if spec.replicate_of else spec.seed


def values_by_run(values: pd.Series) -> bootstrap.Floats:
    """Return the mean of each run's seeds, from values by run and seed."""
    means: bootstrap.Floats = values.groupby(level=0, sort=False).mean().to_numpy()
    return means


def _walk(
    walks: Sequence[TrialResults], measured: Sequence[PointResults], studies: Sequence[StudyResults]
) -> dict[str, Any]:
    missed = [trial.walked for trial in walks if trial.walked and not trial.walked.reached]
    nearest = min(missed, key=lambda walked: abs(walked.nearest["ma"] - walked.level), default=None)
    candidates, steps = sum(len(study.candidates) for study in studies), sum(study.optimiser_steps for study in studies)
    settings = []
    for searched in [trial.spec.searched for trial in walks]:
        texts = {name: f"{value:.3g}" if isinstance(value, float) else str(value) for name, value in searched.items()}
        settings.append(", ".join(f"{name.rpartition('.')[2].replace('_', ' ')} {texts[name]}" for name in texts))
    name = walks[0].spec.strength_name if walks else ""
    failed = [study for study in studies if study.is_failed]
    row: dict[str, Any] = {"gets_there": "yes" if measured else "no" if missed or failed else "not run"}
    row["reached"] = len({_run(point.spec) for point in measured})
    row["runs"] = _count_runs(walks) + sum(len(study.spec.seeds) for study in failed)
    strengths = seeds.strengths([float(point.strength or 0) for point in measured])
    row |= {"strength": f"{name} {strengths}" if measured else "", "setting": "; ".join(dict.fromkeys(settings))}
    row |= {"nearest": math.nan, "nearest_at": "", "reason": failed[0].failure.rstrip(".") if failed else ""}
    if nearest:
        row |= {"nearest": float(nearest.nearest["ma"]), "reason": nearest.reason}
        row["nearest_at"] = f"{name} {nearest.nearest['strength']:.4g}"
    row |= {"budget": f"{candidates} candidates, {steps} steps" if candidates else ""}
    return row | {"points": tuple(point.spec.point_id(point.strength) for point in measured)}


def _damage(points: pd.DataFrame, originals: pd.DataFrame) -> dict[str, Any]:
    """Return the numbers of unseen texts, and whether any run collapsed or most are over-erased; None: not known."""
    flags = {"collapsed": damage.is_any(points["collapsed"]), "over_erased": damage.are_over_erased(points)}
    starts = seeds.match_originals(points, originals) if len(points) else originals
    means = {"ma": _mean(points, "ma"), "unseen_ma": _mean(points, "unseen_ma")}
    means |= {"unseen_ma_before": _mean(starts, "unseen_ma")}
    means |= {"unseen_nll_rise": _mean(points, "unseen_nll") - _mean(starts, "unseen_nll")}
    means |= {f"{name}_seeds": int(points[name].eq(True).sum()) for name in flags}
    return {**means, **flags, "broken": damage.is_any(flags.values())}


def _reference(rows: Mapping[str, Mapping[str, Any]], plan: Plan) -> str:
    for variant, row in rows.items():
        is_named = plan.compare.reference in (variant, variant.partition("(")[0])
        is_first = plan.compare.reference is None and row["reached"] and row["broken"] is not True
        if is_named or (is_first and variant not in plan.controls):
            return variant
    return ""


def _item_variance(points: pd.DataFrame, others: pd.DataFrame | None, cost: Metric | None, evidence: Evidence) -> float:
    if others is None or cost is None:
        return math.nan
    ours, theirs = (one.merge(other[_RUN]).sort_values(_RUN) for one, other in ((points, others), (others, points)))
    both = evidence.of(pd.concat([ours, theirs]), cost) if len(ours) else None
    contrast = contrasts.paired_contrast(*split_rows(both, len(ours))) if both else None
    return contrast.items_variance if contrast else math.nan


def _mean(rows: pd.DataFrame | None, name: str) -> float:
    return float(rows[name].mean()) if rows is not None and name in rows.columns and len(rows) else math.nan


def _log_prices(points: pd.DataFrame, originals: pd.DataFrame, cost: Metric | None) -> dict[tuple[Any, int], float]:
    """Return the log prices by run and seed."""
    starts = seeds.match_originals(points, originals) if cost and len(points) else None
    if cost is None or starts is None:
        return {}
    with np.errstate(divide="ignore", invalid="ignore"):
        prices_R = np.log(points[cost.name].to_numpy()) - np.log(starts[cost.name].to_numpy())
    run_names = points[REPLICATE].where(points["replicate_of"] != "", points["seed"])
    runs = zip(run_names, points["replicate_seed"], strict=True)
    return {run: float(price) for run, price in zip(runs, prices_R, strict=True) if not math.isnan(price)}


def _steps_back(measured: Sequence[PointResults], results: Results) -> float:
    """Return the relearning steps after which half of the erased text is back, as the lower median over runs.

    By the fastest attack, MA on texts that are not relearned is then halfway to the original's. inf: after none of the
    measured steps; NaN: not measured.
    """
    originals: dict[tuple[str, str], float] = {}
    for point in results.measured:
        if point.spec.method == ORIGINAL:
            for curve in _relearning_curves(point):
                originals.setdefault((point.spec.model.id, curve["name"]), curve["ys"][0])
    runs = []
    for point in measured:
        steps = []
        for curve in _relearning_curves(point):
            halfway = (curve["ys"][0] + originals.get((point.spec.model.id, curve["name"]), math.nan)) / 2
            if not math.isnan(halfway):
                back = [x for x, y in zip(curve["xs"], curve["ys"], strict=True) if x > 0 and y >= halfway]
                steps.append(min(back, default=math.inf))
        runs += [min(steps)] if steps else []
    return sorted(runs)[(len(runs) - 1) // 2] if runs else math.nan


def _relearning_curves(point: PointResults) -> list[Mapping[str, Any]]:
    curves = [curve for measurement in point.measurements for curve in measurement.notes.get("curves", ())]
    return [curve for curve in curves if curve["x_title"] == "steps"]


def export_name(point: PointResults, results: Results) -> str:
    """Return a point's name for `lethe export`: `letters:emso@3`, or its id where that name is ambiguous."""
    name = point_name(point)
    is_only = len(find_points(name, results.measured)) == 1
    return f"{results.name}:{name if is_only else point.spec.point_id(point.strength)}"
