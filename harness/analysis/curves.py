"""Curves of a trade-off figure: one for each variant, through its strengths."""

import math
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pandas as pd

from harness import contracts, settings
from harness.analysis.damage import State, state_of_repeats
from harness.analysis.evidence import REPLICATE
from harness.analysis.metrics import MetricInfo, select_metrics
from harness.analysis.seeds import mean_and_interval, repeats_of_points, strengths
from harness.contracts import exponential
from harness.statistics.bootstrap import average_by_model

COLOURS = ("#0072B2", "#CC79A7", "#E69F00", "#009E73", "#8C6D31", "#7A5195", "#56B4E9", "#5A6B7B")
"""Colours that are distinct for the colour-blind, none of them red (collapse)."""
MARKERS = ("o", "v", "s", "^", "p", "X", "P", "h")
SHIPPED = (
    "task_arithmetic", "contrastive_decoding", "emso", "deliberate_imagination", "gradient_ascent",
    "gradient_difference", "kl_divergence", "npo", "simnpo", "rmu", "altpo", "npo_sam", "sga", "gru", "ihl", "satimp",
    "sugd", "memfree", "balanced_subnet", "pdu", "ceu", "kfac_edit", "repselect",
)  # fmt: skip
"""Methods whose place sets their style for life: new ones are appended."""


class CurvePoint(NamedTuple):
    """One strength or level of a variant: the mean over its seeds."""

    strength: float
    strength_range: str
    """`1.5`, or `1–1.5` where the seeds differ."""
    x: float
    y: float
    x_ends: tuple[float, float]
    """95 % interval over the seeds; NaN for one seed."""
    y_ends: tuple[float, float]
    state: State
    """The worst of all seeds."""


class Curve(NamedTuple):
    """A variant's points by rising strength; a reference row's single point."""

    method: str
    variant: str
    label: str
    points: tuple[CurvePoint, ...]

    @property
    def is_reference(self) -> bool:
        """True for a reference row."""
        return self.method in settings.REFERENCE_ROWS


def curves(table: pd.DataFrame, model: str, x: contracts.Metric, y: contracts.Metric) -> list[Curve]:
    """Return a model's curves in the plane of two metrics, without points that lack either."""
    model_curves = []
    for variant, rows in table[table["model"] == model].groupby("variant", sort=False):
        points = []
        for seeds in repeats_of_points(rows):
            (x_mean, x_ends), (y_mean, y_ends) = _mean_and_ends(seeds, x), _mean_and_ends(seeds, y)
            if math.isfinite(x_mean) and math.isfinite(y_mean):
                mean, text = float(seeds["strength"].mean()), strengths(list(seeds["strength"]))
                points.append(CurvePoint(mean, text, x_mean, y_mean, x_ends, y_ends, state_of_repeats(seeds)))
        if points:
            method, label = str(rows["method"].iloc[0]), str(rows["label"].iloc[0])
            points.sort(key=lambda point: point.strength)  # Walked points are rows of their own.
            model_curves.append(Curve(method, str(variant), label, tuple(points)))
    return model_curves


def _mean_and_ends(seeds: pd.DataFrame, metric: contracts.Metric) -> tuple[float, tuple[float, float]]:
    values_R, models_R = seeds[metric.name].to_numpy(dtype=float), pd.factorize(seeds.get(REPLICATE, seeds["model"]))[0]
    if metric.aggregate == "mean":
        mean, half = mean_and_interval(list(average_by_model(values_R, models_R)))
        return mean, (mean - half, mean + half)
    with np.errstate(divide="ignore"):
        mean, half = mean_and_interval(list(average_by_model(np.log(values_R), models_R)))
    return exponential(mean), (exponential(mean - half), exponential(mean + half))


def panels(info: MetricInfo) -> list[tuple[contracts.Metric, contracts.Metric]]:
    """Return the (x, y) metrics of a figure's panels: each erasure axis against each generation axis."""
    metrics = [metric for metric in select_metrics(info, "erasure", "generation") if metric.axis is not None]
    by_axis = sorted(metrics, key=lambda metric: metric.axis or 0)
    ys, xs = ([metric for metric in by_axis if metric.group == group] for group in ("erasure", "generation"))
    return [(x, y) for y in ys for x in xs]


def styles(table: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Return each variant's colour and marker: its method's, or those of its own name where the method has several."""
    rows = table[~table["method"].isin(settings.REFERENCE_ROWS)][["variant", "method"]].drop_duplicates().astype(str)
    looks: dict[str, tuple[str, str]] = {}
    for variant, method in sorted(rows.itertuples(index=False)):
        name = variant if rows["method"].eq(method).sum() > 1 else method
        candidates = [method_style(name + "'" * turn) for turn in range(99)]  # Other variants may have the first ones.
        looks[variant] = next((look for look in candidates if look not in looks.values()), candidates[0])
    return looks


def method_style(name: str) -> tuple[str, str]:
    """Return a method's colour and marker, set by its name; a plugin from outside never has a shipped method's.

    Example:
        >>> method_style("emso"), method_style("my_method")
        (('#E69F00', 's'), ('#7A5195', 'h'))
    """
    hashed, size = int(sha256(name.encode()).hexdigest(), 16), len(COLOURS)
    slot = SHIPPED.index(name) if name in SHIPPED else 32 + hashed % 32
    return COLOURS[slot % size], MARKERS[(slot + 3 * (slot // size)) % size]
