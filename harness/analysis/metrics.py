"""What tables and figures know of each metric: what its evaluator declared, and nothing else.

A journal carries the declarations in each measurement. A table.csv has them beside it, in `<name>.metrics.yaml`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from harness.contracts import CloserTo, Group, Metric
from harness.errors import DataError
from harness.metric import metric_of
from harness.plans import Compare
from harness.records.results import Results
from harness.specs import RETRAINED
from harness.statistics.item_values import by_model

MetricInfo = Mapping[str, Metric]
"""Metric name to its declaration, in the order of a table's columns."""

RANKED_GROUPS: tuple[Group, ...] = ("erasure", "generation")
"""Those of which the average rank is made."""
GROUP_TITLES = {"erasure": "Memorization", "generation": "Language generation", "reasoning": "Reasoning"}
NOISE_DEVIATIONS = 1.5 * math.sqrt(2.0)
"""Standard deviations of one value that `Metric.noise` is: 1.5 of those that a difference of two has."""
_DEFAULTS = {field.name: field.default for field in fields(Metric)}


def metric_info(results: Results) -> dict[str, Metric]:
    """Return what the sweep's evaluators declared of every metric that they measured.

    Raises:
        DataError: Two evaluators report a metric of the same name.
    """
    metrics: dict[str, Metric] = {}
    reporter: dict[str, str] = {}
    for point in results.measured:
        for measurement in point.measurements:
            for declared in measurement.metrics:
                name, evaluator = str(declared["name"]), measurement.evaluator
                if reporter.setdefault(name, evaluator) != evaluator:
                    raise DataError(
                        f"the evaluators '{reporter[name]}' and '{evaluator}' both report '{name}', so a "
                        "table cannot tell which is meant. Rename the metric in one, or take one from the sweep."
                    )
                if name not in metrics:
                    metrics[name] = metric_of(declared)
    return in_column_order(metrics.values())


def in_column_order(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Return metrics by name, in the order of a table's columns: by group, ours first."""
    metrics = list(metrics)
    groups = list(dict.fromkeys([*GROUP_TITLES, *(metric.group for metric in metrics)]))
    return {metric.name: metric for metric in sorted(metrics, key=lambda metric: groups.index(metric.group))}


def metrics_in(info: MetricInfo, *groups: Group) -> list[Metric]:
    """Return the metrics whose ranks count, group by group."""
    return [metric for group in groups for metric in info.values() if metric.ranked and metric.group == group]


def own_groups(info: MetricInfo) -> list[Group]:
    """Return the groups of ranked metrics that are evaluators' own, in the order of a table's columns."""
    groups = dict.fromkeys(metric.group for metric in info.values() if metric.ranked)
    return [name for name in groups if name not in GROUP_TITLES]


def table_metrics(info: MetricInfo) -> list[Metric]:
    """Return the main table's columns: the ranked metrics of every group but reasoning, which has its own table."""
    return metrics_in(info, *RANKED_GROUPS, *own_groups(info))


def exact_matches(info: MetricInfo) -> tuple[Metric, Metric] | None:
    """Return exact match with the text, and with the original; None if either was not measured item by item."""
    by_reference = {metric.agrees_with: metric for metric in info.values() if metric.agrees_with and metric.items}
    return (by_reference["text"], by_reference["original"]) if len(by_reference) == 2 else None


def group_title(group: Group) -> str:
    """Return what tables call a group.

    Example:
        >>> group_title("erasure"), group_title("membership_inference")
        ('Memorization', 'Membership inference')
    """
    return GROUP_TITLES.get(group, group.replace("_", " ").capitalize())


def first_axes(info: MetricInfo, compare: Compare) -> tuple[Metric | None, Metric | None]:
    """Return the metrics of erasure and of cost that a sweep compares by, where it has measured them."""
    return next((info[name] for name in ("ma", "el_3") if name in info), None), info.get(compare.cost)


def in_sentence(metric: Metric) -> str:
    """Return a metric's title as it stands within a sentence."""
    is_words = metric.title.replace(" ", "").isalpha() and metric.title == metric.title.capitalize()
    return metric.title.lower() if is_words else metric.title


def declarations(info: MetricInfo) -> str:
    """Return metrics as the YAML that `read_declarations` reads; what is a default is left out."""
    stated = []
    for metric in info.values():
        fields_of = asdict(metric).items()
        stated.append({name: value for name, value in fields_of if name == "name" or value != _DEFAULTS[name]})
    return yaml.safe_dump(stated, sort_keys=False, allow_unicode=True)


def read_declarations(table: Path) -> dict[str, Metric]:
    """Return the metrics of a table.csv from the file beside it: its own, or else that of a sweep's table.

    Raises:
        DataError: There is none, or it does not declare metrics.
    """
    beside = table.with_suffix(".metrics.yaml"), table.with_name("table.metrics.yaml")
    files = [path for path in beside if path.is_file()]
    if not files:
        raise DataError(
            f"{table} does not say what its metrics are: there is no {beside[0].name} beside it. For a sweep's table, "
            "give its results folder: python -m harness.collate FOLDER writes both files. For any other, write one "
            "after the model of results/published/emso_main_table.metrics.yaml."
        )
    file = files[0]
    try:
        given: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        metrics = TypeAdapter(list[Metric]).validate_python(given)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        path, reason = ".".join(map(str, first["loc"])), first["msg"]
        if "better" in first["loc"]:
            path, reason = f"{first['loc'][0]}.better", "give lower, higher, {aim: 0.5} or {aim: retrained}"
        raise DataError(f"{file} is no list of metrics: {path or 'it'}: {reason}.") from error
    if unknown := sorted(set().union(*given) - _DEFAULTS.keys()):
        raise DataError(f"{file}: a metric has no {', '.join(unknown)}. It may have {', '.join(_DEFAULTS)}.")
    return in_column_order(metrics)


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
    """Return values of which means may be taken and whose `costs` say which is better."""
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
        if isinstance(metric.better, CloserTo):
            return float(costs(self.deviations(rows, metric).mean(), metric)) if len(rows) else np.nan
        return float(deviations(np.array(mean_over(rows, metric)), metric, np.nan))

    def _levels(self, name: str) -> tuple[Mapping[Hashable, float], Mapping[Hashable, float]]:
        if name not in self._by_metric:
            numbers = self._retrained[self._retrained[name].notna()]
            of_seed = numbers.groupby(["model", "seed"])[name].mean().to_dict()
            self._by_metric[name] = of_seed, numbers.groupby(self._own)[name].mean().to_dict()
        return self._by_metric[name]


def metric_mean(numbers_R: Floats, metric: Metric, models_R: NDArray[np.int64] | None = None) -> float:
    """Return the mean of a metric over replicates, models counting alike: of an `exp_mean` the geometric one."""
    if metric.aggregate == "mean":
        return float(by_model(numbers_R, models_R).mean())
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.exp(by_model(np.log(numbers_R), models_R).mean()))


def mean_over(rows: pd.DataFrame, metric: Metric) -> float:
    """Return what a table has of a metric over rows: `metric_mean`, models counting alike; NaN without a number."""
    if not len(rows):
        return math.nan
    own = "replicate" if "replicate" in rows.columns else "model"
    return metric_mean(rows[metric.name].to_numpy(dtype=float), metric, pd.factorize(rows[own])[0])


def is_within_noise(one: float, other: float, metric: Metric) -> bool:
    """Return whether two values differ by less than one seed can show: a share of the smaller where it has no bound."""
    if metric.noise is None:
        return False
    allowed = metric.noise * min(one, other) if math.isinf(metric.high) else metric.noise
    return abs(one - other) < allowed


def noise_deviation(value: float, metric: Metric) -> float:
    """Return the standard deviation of a value by the noise that its metric declares; NaN where it declares none."""
    if metric.noise is None:
        return math.nan
    return metric.noise / NOISE_DEVIATIONS * (value if math.isinf(metric.high) else 1.0)


def is_aimless(metric: Metric, aims: Aims, rows: pd.DataFrame) -> bool:
    """Return whether rows cannot be ranked by a metric: it asks for what a retrained model has, and there is none."""
    return isinstance(metric.better, CloserTo) and bool(np.isnan(aims.of(rows, metric)).any())
