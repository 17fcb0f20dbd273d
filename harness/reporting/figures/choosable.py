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
from harness.analysis.metrics import MetricInfo, arrow, group_title
from harness.analysis.seeds import seed_count
from harness.analysis.tradeoff.curves import panels, styles
from harness.base.digests import digest_of
from harness.contracts import Json, Metric
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
    differ in strength alone, by rising strength. `scales` has, for each metric, an axis for all models together
    and then for each one, both with and without collapsed points; None where there is nothing to draw.
    """
    numbers = {name: [_plain(value) for value in table[name]] for name in info}
    metrics = [info[name] for name, of_points in numbers.items() if any(value is not None for value in of_points)]
    if not metrics:
        return None
    models = [str(model) for model in table["model"].unique()]
    specs = [trial.spec for trial in results.trials]
    x, y = _first_axes(metrics, numbers)
    return {
        "metrics": [_metric(metric) for metric in metrics],
        "x": x,
        "y": y,
        "models": models,
        "variants": _variants(table),
        "collapsed_colour": RED,
        "points": _points(table, metrics, numbers, settings_in_words(specs)),
        "lines": _lines(table, specs),
        "scales": [
            [_scales(table, numbers[metric.name], metric, model) for model in (None, *models)] for metric in metrics
        ],
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
    erasing = [spec for spec in specs if not spec.is_reference]
    trainings = {spec.trial_id: spec.training.in_words() for spec in erasing}
    names = dict.fromkeys(name for each in trainings.values() for name in each)
    apart = [name for name in names if len({each.get(name) for each in trainings.values()}) > 1]
    words = {}
    for spec in erasing:
        training = {f"training.{name}": trainings[spec.trial_id].get(name) for name in apart}
        words[spec.trial_id] = ", ".join(f"{name}: {value}" for name, value in {**spec.settings, **training}.items())
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
        pairs = zip(corners[::2], -corners[1::2], strict=True)
        places = [f"{round(x * scale, 2) + 0.0:g} {round(y * scale, 2) + 0.0:g}" for x, y in pairs]
        path += _COMMANDS[code] + ("" if code == Outline.CLOSEPOLY else " ".join(places))
    return path


def _plain(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if abs(value) < _LARGEST else None


def _first_axes(metrics: Sequence[Metric], numbers: Numbers) -> tuple[int, int]:
    """Return the axes of the static figure's first panel that has a point, or else of any that would have one."""
    names = [metric.name for metric in metrics]
    pairs = [(x.name, y.name) for x, y in panels({metric.name: metric for metric in metrics})]
    pairs += [(x, y) for y in names for x in names if x != y]
    for x, y in pairs:
        if any(None not in point for point in zip(numbers[x], numbers[y], strict=True)):
            return names.index(x), names.index(y)
    return len(names) - 1, 0


def _metric(metric: Metric) -> dict[str, Json]:
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


def _points(
    table: pd.DataFrame, metrics: Sequence[Metric], numbers: Numbers, settings: Mapping[str, str]
) -> list[dict[str, Json]]:
    models, variants = list(table["model"].unique()), list(table["variant"].unique())
    has_seeds = seed_count(table) > 1
    points: list[dict[str, Json]] = []
    for index, (_, row) in enumerate(table.iterrows()):
        intervals = [[_plain(row.get(end.format(metric.name), math.nan)) for end in (LOW, HIGH)] for metric in metrics]
        points.append(
            {
                "id": row["point_id"],
                "model": models.index(row["model"]),
                "variant": variants.index(row["variant"]),
                "is_collapsed": row["collapsed"] is True,
                "words": [line for line in _words(row, settings, has_seeds) if line],
                "numbers": [numbers[metric.name][index] for metric in metrics],
                "intervals": [None if None in ends else ends for ends in intervals],
                "texts": [_text(row, metric) for metric in metrics],
            }
        )
    return points


def _words(row: pd.Series[Any], settings: Mapping[str, str], has_seeds: bool) -> list[str]:
    """Return what is said of a point beside its label and numbers; '' where there is nothing to say."""
    return [
        strength_text(row["strength_name"], row["strength"]),
        f"seed {row['seed']}" if has_seeds else "",
        settings.get(row["trial_id"], ""),
        f"collapsed: {verdict(row['collapse_class'], row['collapse_reason'])}" if row["collapsed"] is True else "",
        f"stopped: {row['stop_reason']}" if row["stop_reason"] else "",
    ]


def _text(row: pd.Series[Any], metric: Metric) -> str:
    """Return a point's number as tables print it, with its interval where the table has one."""
    low, high = (row.get(end.format(metric.name), math.nan) for end in (LOW, HIGH))
    has_interval = not (math.isnan(low) or math.isnan(high))
    return number(row[metric.name], metric) + (
        f" ({number(low, metric)} to {number(high, metric)})" if has_interval else ""
    )


def _lines(table: pd.DataFrame, specs: Sequence[TrialSpec]) -> list[list[int]]:
    """Return the rows of each trajectory by rising strength: of trials that differ in strength alone."""
    trajectories = {
        spec.trial_id: digest_of([spec.model.id, spec.variant, spec.seed, spec.setting_digest])
        for spec in specs
        if not spec.is_reference
    }
    numbered = table.reset_index(drop=True)
    keys = numbered["trial_id"].map(trajectories)
    rising = numbered.sort_values("strength", kind="stable")
    return [[int(index) for index in rows.index] for _, rows in rising.groupby(keys, sort=False) if len(rows) > 1]


def _scales(
    table: pd.DataFrame, values: Sequence[float | None], metric: Metric, model: str | None
) -> list[dict[str, Json] | None]:
    """Return an axis for what a model's points have of a metric: with those that collapsed, and without."""
    rows = zip(values, table["model"], table["collapsed"], strict=True)
    shown = [(value, collapsed is True) for value, of, collapsed in rows if value is not None and model in (None, of)]
    scales: list[dict[str, Json] | None] = []
    for drawn in (shown, [pair for pair in shown if not pair[1]]):
        scales.append(asdict(axis_scale([value for value, _ in drawn], metric)) if drawn else None)
    return scales
