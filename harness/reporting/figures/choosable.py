"""The report's choosable trade-off figure as plain data: all its numbers and words, which a script only places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as Outline

from harness.analysis.cells import number, split_title, strength_text
from harness.analysis.collapse import verdict
from harness.analysis.evidence import HIGH, LOW
from harness.analysis.metrics import MetricInfo, arrow, first_axes, group_title
from harness.analysis.seeds import seed_count
from harness.analysis.tradeoff.curves import panels, styles
from harness.base.digests import digest_of
from harness.contracts import Json, Metric
from harness.plans import Compare
from harness.records.results import Results
from harness.reporting.figures.axis_scale import axis_scale
from harness.reporting.figures.style import RED, REFERENCE_STYLES
from harness.specs import ORIGINAL, REFERENCE_ROWS, TrialSpec

Numbers = Mapping[str, Sequence[float | None]]
"""Metric name to a number for each row of the table; None where nothing can be drawn."""

_DIGITS = 6
_LARGEST = 1e300
"""Beyond it the difference of two numbers may be infinite, so that no axis holds both."""
_PIXELS_PER_POINT = 1.35
_MARKER_POINTS = 6.5
_UNSEEN_STYLE = ("d", 8.0)
_COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}


def choosable_figure(results: Results, table: pd.DataFrame, info: MetricInfo) -> dict[str, Json] | None:
    """Return what the figure shows of a sweep's points, or None if no metric has a number that can be drawn.

    Points, metrics, models and variants are lists, and name one another by the place there. A point has a number
    for each metric, to 6 digits, or None where it was not measured or is infinite. `lines` are the points that
    differ in strength alone, by rising strength, the original first. `scales` has, for each metric, an axis for all
    models together and then for each one, both with and without collapsed points; None where there is nothing to draw.
    """
    metrics: dict[str, Metric] = {}
    numbers: dict[str, list[float | None]] = {}
    for name, metric in info.items():
        of_points = [_drawn_number(value) for value in table[name]]
        if of_points.count(None) < len(of_points):
            metrics[name], numbers[name] = metric, of_points
    if not metrics:
        return None
    models = list(map(str, table["model"].unique()))
    specs = [trial.spec for trial in results.trials]
    x, y = _first_axes(metrics, numbers, results.plan.compare)
    scales = []
    for name, metric in metrics.items():
        scales.append([_axis_scales(table, numbers[name], metric, model) for model in (None, *models)])
    return {
        "metrics": [_metric_words(metric) for metric in metrics.values()],
        "x": x,
        "y": y,
        "models": models,
        "variants": _variants(table),
        "collapsed_colour": RED,
        "points": _point_entries(table, metrics, numbers, settings_in_words(specs)),
        "lines": _trajectory_lines(table, specs),
        "scales": scales,
    }


def embedded(data: Mapping[str, Json]) -> Markup:
    r"""Return JSON that may stand in a page's script element, whatever its texts are.

    Example:
        >>> print(embedded({"label": "</script>&"}))
        {"label":"\u003c/script\u003e\u0026"}
    """
    return htmlsafe_json_dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def settings_in_words(specs: Sequence[TrialSpec]) -> dict[str, str]:
    """Return each trial's settings by its id: its method's, and what of the training is not the same for all."""
    trainings = {spec.trial_id: spec.training.in_words() for spec in specs if not spec.is_reference}
    names: dict[str, None] = {}
    for training in trainings.values():
        names |= dict.fromkeys(training)
    differing = [name for name in names if len({training.get(name) for training in trainings.values()}) > 1]
    words = {}
    for spec in specs:
        if not spec.is_reference:
            settings = dict(spec.settings)
            for name in differing:
                settings[f"training.{name}"] = trainings[spec.trial_id].get(name)
            words[spec.trial_id] = ", ".join(f"{name}: {value}" for name, value in settings.items())
    return words


def outline(marker: str, size: float) -> str:
    """Return one of matplotlib's markers as an SVG path around (0, 0), in pixels; `size` is in points.

    Example:
        >>> outline("^", 10.0)
        'M0 -6.75L-6.75 6.75L6.75 6.75Z'
    """
    style, scale = MarkerStyle(marker), size * _PIXELS_PER_POINT
    path = ""
    for corners, code in style.get_path().transformed(style.get_transform()).iter_segments():
        path += _COMMANDS[code]
        if code != Outline.CLOSEPOLY:
            pairs = zip(corners[::2], -corners[1::2], strict=True)
            path += " ".join(f"{round(x * scale, 2) + 0.0:g} {round(y * scale, 2) + 0.0:g}" for x, y in pairs)
    return path


def _drawn_number(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if abs(value) < _LARGEST else None


def _first_axes(metrics: MetricInfo, numbers: Numbers, compare: Compare) -> tuple[int, int]:
    """Return the axes that methods are compared by, else of a panel of the static figure, else any with a point."""
    names = list(metrics)
    erasure, utility = first_axes(metrics, compare)
    pairs = [(utility.name, erasure.name)] if erasure and utility else []
    pairs += [(x.name, y.name) for x, y in panels(metrics)]
    pairs += [(x, y) for y in names for x in names if x != y]
    for x, y in pairs:
        if any(None not in point for point in zip(numbers[x], numbers[y], strict=True)):
            return names.index(x), names.index(y)
    return len(names) - 1, 0


def _metric_words(metric: Metric) -> dict[str, Json]:
    name, subscript = split_title(metric.title)
    unit = "" if metric.unit.lower() in metric.title.lower() else f"{metric.unit}, "
    words = {"title": name, "subscript": subscript, "arrow": arrow(metric)}
    return {**words, "about": f"{unit}{metric.better} is better", "group": group_title(metric.group)}


def _variants(table: pd.DataFrame) -> list[dict[str, Json]]:
    """Return each variant's label, colour and marker: the static figure's, but references in the page's own ink."""
    of_variant, variants = styles(table), []
    for variant, rows in table.groupby("variant", sort=False):
        first = rows.iloc[0]
        is_reference = first["method"] in REFERENCE_ROWS
        if is_reference:
            marker, size = REFERENCE_STYLES.get(first["method"], _UNSEEN_STYLE)[:2]
            colour = "var(--ink)" if first["method"] == ORIGINAL else "var(--soft)"
        else:
            (colour, marker), size = of_variant[str(variant)], _MARKER_POINTS
        drawn = {"colour": colour, "marker": outline(marker, size), "is_reference": is_reference}
        variants.append({"label": str(first["label"]), **drawn})
    return variants


def _point_entries(
    table: pd.DataFrame, metrics: MetricInfo, numbers: Numbers, settings: Mapping[str, str]
) -> list[dict[str, Json]]:
    models, variants = list(table["model"].unique()), list(table["variant"].unique())
    has_seeds = seed_count(table) > 1
    points: list[dict[str, Json]] = []
    for index, (_, row) in enumerate(table.iterrows()):
        of_point, intervals, texts = [], [], []
        for name, metric in metrics.items():
            low, high = row.get(LOW.format(name), math.nan), row.get(HIGH.format(name), math.nan)
            text, ends = number(row[name], metric), [_drawn_number(low), _drawn_number(high)]
            if not math.isnan(low) and not math.isnan(high):
                text += f" ({number(low, metric)} to {number(high, metric)})"
            of_point.append(numbers[name][index])
            intervals.append(None if None in ends else ends)
            texts.append(text)
        points.append(
            {
                "id": row["point_id"],
                "model": models.index(row["model"]),
                "variant": variants.index(row["variant"]),
                "is_collapsed": row["collapsed"] is True,
                "words": _point_words(row, settings, has_seeds),
                "strength": "" if pd.isna(row["strength"]) else f"{row['strength']:.3g}",
                "numbers": of_point,
                "intervals": intervals,
                "texts": texts,
            }
        )
    return points


def _point_words(row: pd.Series[Any], settings: Mapping[str, str], has_seeds: bool) -> list[str]:
    """Return what is said of a point beside its label and numbers."""
    words = [strength_text(row["strength_name"], row["strength"])]
    if has_seeds:
        words.append(f"seed {row['seed']}")
    words.append(settings.get(row["trial_id"], ""))
    if row["collapsed"] is True:
        words.append(f"collapsed: {verdict(row['collapse_class'], row['collapse_reason'])}")
    if row["stop_reason"]:
        words.append(f"stopped: {row['stop_reason']}")
    return list(filter(None, words))


def _trajectory_lines(table: pd.DataFrame, specs: Sequence[TrialSpec]) -> list[list[int]]:
    """Return the rows of each trajectory by rising strength, the original first: of trials that differ in it alone."""
    trajectories = {}
    for spec in specs:
        if not spec.is_reference:
            trajectories[spec.trial_id] = digest_of([spec.model.id, spec.variant, spec.seed, spec.setting_digest])
    numbered = table.reset_index(drop=True)
    keys = numbered["trial_id"].map(trajectories)
    rising = numbered.sort_values("strength", kind="stable")
    originals = numbered[numbered["method"] == ORIGINAL]
    lines = []
    for _, rows in rising.groupby(keys, sort=False):
        first = rows.iloc[0]
        of_model = originals[(originals["model"] == first["model"]) & (originals["replicate"] == first["replicate"])]
        of_seed = of_model[of_model["seed"] == first["seed"]]
        line = [*(of_model if of_seed.empty else of_seed).index[:1], *rows.index]
        if len(line) > 1:
            lines.append(line)
    return lines


def _axis_scales(
    table: pd.DataFrame, values: Sequence[float | None], metric: Metric, model: str | None
) -> list[dict[str, Json] | None]:
    """Return an axis for what a model's points have of a metric: with those that collapsed, and without."""
    shown, healthy = [], []
    for value, of, collapsed in zip(values, table["model"], table["collapsed"], strict=True):
        if value is not None and model in (None, of):
            shown.append(value)
            if collapsed is not True:
                healthy.append(value)
    return [asdict(axis_scale(drawn, metric)) if drawn else None for drawn in (shown, healthy)]
