"""Which way of a metric is the better one: its arrow, and its numbers turned round so that lower is better.

A mean is taken before a number's distance from its aim: what stands in a table is the mean over seeds, and a method is
as close as that is. Array letters: R rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.contracts import CloserTo, Metric
from harness.specs import RETRAINED

Floats = NDArray[np.float64]


def arrow(metric: Metric) -> str:
    """Return what stands beside a metric's title.

    Example:
        >>> about = dict(name="auc", unit="", low=0.0, high=1.0, group="membership", source="", title="AUC")
        >>> [arrow(Metric(better=better, **about)) for better in ("lower", "higher", CloserTo(0.5))]
        ['↓', '↑', '→ 0.5']
    """
    if isinstance(metric.better, CloserTo):
        return f"→ {metric.better.aim if isinstance(metric.better.aim, str) else format(metric.better.aim, 'g')}"
    return {"lower": "↓", "higher": "↑"}[metric.better]


def deviations(values: Floats, metric: Metric, aims: Floats | float) -> Floats:
    """Return values of which means may be taken and whose `costs` say which is better.

    Example:
        >>> about = dict(name="auc", unit="", low=0.0, high=1.0, group="membership", source="", title="AUC")
        >>> deviations(np.array([0.75, 0.25]), Metric(better=CloserTo(0.5), **about), aims=0.5).tolist()
        [0.25, -0.25]
        >>> deviations(np.array([0.75, 0.25]), Metric(better="higher", **about), aims=np.nan).tolist()
        [-0.75, -0.25]
    """
    if isinstance(metric.better, CloserTo):
        return np.asarray(values - aims)
    return values if metric.better == "lower" else -values


def costs(deviations: Floats, metric: Metric) -> Floats:
    """Return what deviations, or means of them, cost: lower is better."""
    return np.abs(deviations) if isinstance(metric.better, CloserTo) else deviations


class Aims:
    """What rows of a table are to be close to, for metrics that are the better the closer they are to something."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._retrained = table[table["method"] == RETRAINED]
        self._own = "replicate" if "replicate" in table.columns else "model"
        self._by_metric: dict[str, tuple[Mapping[Hashable, float], Mapping[Hashable, float]]] = {}

    def of(self, rows: Mapping[str, Any] | pd.DataFrame, metric: Metric) -> Floats:
        """Return each row's aim (R,): what the retrained model has at its seed, or else as the mean of all seeds.

        NaN where there is no retrained model, and for a metric that has no aim.
        """
        count = len(rows["seed"])
        aim = metric.better.aim if isinstance(metric.better, CloserTo) else np.nan
        if not isinstance(aim, str):
            return np.full(count, aim)
        of_seed, of_model = self._levels(metric.name)
        keys = zip(rows["model"], rows["seed"], rows[self._own], strict=True)
        return np.array([of_seed.get((model, seed), of_model.get(own, np.nan)) for model, seed, own in keys])

    def deviations(self, rows: Mapping[str, Any] | pd.DataFrame, metric: Metric) -> Floats:
        """Return the deviation of every row (R,)."""
        return deviations(np.asarray(rows[metric.name], dtype=float), metric, self.of(rows, metric))

    def cost(self, rows: pd.DataFrame, metric: Metric) -> float:
        """Return what the mean over rows costs; NaN where a row has no number, or no aim."""
        return float(costs(self.deviations(rows, metric).mean(), metric)) if len(rows) else np.nan

    def _levels(self, name: str) -> tuple[Mapping[Hashable, float], Mapping[Hashable, float]]:
        if name not in self._by_metric:
            numbers = self._retrained[self._retrained[name].notna()]
            of_seed = numbers.groupby(["model", "seed"])[name].mean().to_dict()
            self._by_metric[name] = of_seed, numbers.groupby(self._own)[name].mean().to_dict()
        return self._by_metric[name]


def is_aimless(metric: Metric, aims: Aims, rows: pd.DataFrame) -> bool:
    """Return whether rows cannot be ranked by a metric: it asks for what a retrained model has, and there is none."""
    return isinstance(metric.better, CloserTo) and bool(np.isnan(aims.of(rows, metric)).any())
