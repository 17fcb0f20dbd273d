"""Metrics as declared in a journal or next to a table.csv (`<name>.metrics.yaml`), and formats of numbers."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from pydantic import TypeAdapter, ValidationError

from harness import errors, settings
from harness.contracts import CloserTo, Group, Metric, parse_metric
from harness.records.results import Results, measurements
from harness.statistics.bootstrap import Floats, average_by_model

NOTHING = "–"
MetricInfo = Mapping[str, Metric]
"""Declarations by name, in the order of a table's columns."""

RANKED_GROUPS: tuple[Group, ...] = ("erasure", "generation")
"""Groups of the average rank."""
GROUP_TITLES = {"erasure": "Memorisation", "generation": "Language generation", "reasoning": "Reasoning"}
NOISE_DEVIATIONS = 1.5 * math.sqrt(2.0)
"""`Metric.noise` in standard deviations of one value: 1.5 standard deviations of a difference of two."""
_DEFAULTS = {field.name: field.default for field in fields(Metric)}


def metric_info(results: Results) -> dict[str, Metric]:
    """Return the declarations of all measured metrics."""
    metrics: dict[str, Metric] = {}
    for _, measurement in measurements(results.measured):
        for declared in measurement.metrics:
            metrics.setdefault(str(declared["name"]), parse_metric(declared))
    return sort_by_column(metrics.values())


def sort_by_column(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Return metrics by name, in the order of a table's columns: by group, ours first."""
    metrics = list(metrics)
    groups = list(dict.fromkeys([*GROUP_TITLES, *(metric.group for metric in metrics)]))
    return {metric.name: metric for metric in sorted(metrics, key=lambda metric: groups.index(metric.group))}


def select_metrics(info: MetricInfo, *groups: Group) -> list[Metric]:
    """Return the ranked metrics of groups, group by group."""
    return [metric for group in groups for metric in info.values() if metric.ranked and metric.group == group]


def own_groups(info: MetricInfo) -> list[Group]:
    """Return the groups that evaluators declared, in the order of a table's columns."""
    groups = dict.fromkeys(metric.group for metric in info.values() if metric.ranked)
    return [name for name in groups if name not in GROUP_TITLES]


def table_metrics(info: MetricInfo) -> list[Metric]:
    """Return the main table's columns: the ranked metrics of every group but reasoning."""
    return select_metrics(info, *RANKED_GROUPS, *own_groups(info))


def exact_matches(info: MetricInfo) -> tuple[Metric, Metric] | None:
    """Return exact match with the text, and with the original; None if either lacks items."""
    by_reference = {metric.agrees_with: metric for metric in info.values() if metric.agrees_with and metric.items}
    return (by_reference["text"], by_reference["original"]) if len(by_reference) == 2 else None


def group_title(group: Group) -> str:
    """Return a group's title: `Membership inference` for `membership_inference`."""
    return GROUP_TITLES.get(group, group.replace("_", " ").capitalize())


def lower_title(metric: Metric) -> str:
    """Return a metric's title in the case of running text."""
    is_words = metric.title.replace(" ", "").isalpha() and metric.title == metric.title.capitalize()
    return metric.title.lower() if is_words else metric.title


def declarations(info: MetricInfo) -> str:
    """Return metrics as YAML without defaults, for `read_declarations`."""
    entries = []
    for metric in info.values():
        pairs = asdict(metric).items()
        entries.append({name: value for name, value in pairs if name == "name" or value != _DEFAULTS[name]})
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)


def read_declarations(table: Path) -> dict[str, Metric]:
    """Return the metrics of a table.csv from its own `.metrics.yaml`, else from `table.metrics.yaml` next to it."""
    candidates = table.with_suffix(".metrics.yaml"), table.with_name("table.metrics.yaml")
    file = next((path for path in candidates if path.is_file()), None)
    if file is None:
        raise errors.DataError(
            f"{table} does not say what its metrics are: there is no {candidates[0].name} next to it. For a sweep's "
            "table, give its results folder: lethe collate FOLDER writes both files. For any other, "
            "results/published/emso_main_table.metrics.yaml is an example."
        )
    try:
        content: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        metrics = TypeAdapter(list[Metric]).validate_python(content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise errors.DataError(f"{file} cannot be read: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][:2])) or "it"
        reason = "give lower, higher, {aim: 0.5} or {aim: retrained}" if "better" in first["loc"] else first["msg"]
        raise errors.DataError(f"{file} is no list of metrics: {place}: {reason}.") from error
    if unknown := sorted(set().union(*content) - _DEFAULTS.keys()):
        raise errors.DataError(f"{file}: a metric has no {', '.join(unknown)}. It may have {', '.join(_DEFAULTS)}.")
    return sort_by_column(metrics)


def number(value: float, metric: Metric | None = None) -> str:
    """Return a number with three decimals, or two where the metric has no bound.

    Example:
        >>> number(0.61549), number(float("nan")), number(float("inf"))
        ('0.615', '–', '∞')
    """
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    bounded = metric is None or math.isfinite(metric.high)
    return f"{value:.3f}" if bounded else f"{value:.2f}" if abs(value) < 1e5 else f"{value:.1e}"


def split_title(title: str) -> tuple[str, str]:
    """Return a metric's title and its subscript: ("EL", "3") for "EL_3"."""
    parts = re.fullmatch(r"(.+)_(\d+)", title)
    return (parts[1], parts[2]) if parts else (title, "")


def duration_text(seconds: float | None) -> str:
    """Return a duration in two units.

    Example:
        >>> duration_text(3.52), duration_text(130), duration_text(3700), duration_text(None)
        ('3.5 s', '2 min 10 s', '1 h 1 min', '–')
    """
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = round(seconds) // 60, round(seconds) // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {round(seconds) % 60} s"


def arrow(metric: Metric) -> str:
    """Return the mark next to a metric's title: `↓`, `↑` or `→ 0.5`."""
    if isinstance(metric.better, CloserTo):
        return f"→ {metric.better.aim if isinstance(metric.better.aim, str) else format(metric.better.aim, 'g')}"
    return {"lower": "↓", "higher": "↑"}[metric.better]


def deviations(values: Floats, metric: Metric, aims: Floats | float) -> Floats:
    """Return values whose means may be taken, and whose `costs` rank."""
    if isinstance(metric.better, CloserTo):
        return np.asarray(values - aims)
    return values if metric.better == "lower" else -values


def costs(deviations: Floats, metric: Metric) -> Floats:
    """Return costs of deviations or of their means: lower is better."""
    return np.abs(deviations) if isinstance(metric.better, CloserTo) else deviations


class Aims:
    """Aims of rows, for metrics that are better the closer they are to a value."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._retrained = table[table["method"] == settings.RETRAINED]
        self._own = "replicate" if "replicate" in table.columns else "model"
        self._by_metric: dict[str, tuple[Mapping[Hashable, float], Mapping[Hashable, float]]] = {}

    def of(self, rows: Mapping[str, Any] | pd.DataFrame, metric: Metric) -> Floats:
        """Return each row's aim (R,): the retrained model's value at its seed, else its mean over seeds.

        NaN without a retrained model, and for a metric without an aim.
        """
        count = len(rows["seed"])
        aim = metric.better.aim if isinstance(metric.better, CloserTo) else np.nan
        if not isinstance(aim, str):
            return np.full(count, aim)
        aims_by_seed, aims_by_model = self._levels(metric.name)
        keys = zip(rows["model"], rows["seed"], rows[self._own], strict=True)
        return np.array([aims_by_seed.get((model, seed), aims_by_model.get(own, np.nan)) for model, seed, own in keys])

    def deviations(self, rows: Mapping[str, Any] | pd.DataFrame, metric: Metric) -> Floats:
        """Return the deviation of every row (R,)."""
        return deviations(np.asarray(rows[metric.name], dtype=float), metric, self.of(rows, metric))

    def cost(self, rows: pd.DataFrame, metric: Metric) -> float:
        """Return the cost of the mean over rows; NaN where a row has no number or no aim."""
        if isinstance(metric.better, CloserTo):
            return float(costs(self.deviations(rows, metric).mean(), metric)) if len(rows) else np.nan
        return float(deviations(np.array(mean_over(rows, metric)), metric, np.nan))

    def drawn_costs(self, drawn_D: Floats, rows: pd.DataFrame, metric: Metric) -> Floats:
        """Return the cost (D,) of each drawn mean over rows, whose aims are taken as measured."""
        return costs(deviations(drawn_D, metric, float(self.of(rows, metric).mean())), metric)

    def _levels(self, name: str) -> tuple[Mapping[Hashable, float], Mapping[Hashable, float]]:
        if name not in self._by_metric:
            numbers = self._retrained[self._retrained[name].notna()]
            means_by_seed = numbers.groupby(["model", "seed"])[name].mean().to_dict()
            self._by_metric[name] = means_by_seed, numbers.groupby(self._own)[name].mean().to_dict()
        return self._by_metric[name]


def mean_over(rows: pd.DataFrame, metric: Metric) -> float:
    """Return the mean over rows, models counting alike; the geometric mean of an `exp_mean`; NaN without rows."""
    if not len(rows):
        return math.nan
    models_R = pd.factorize(rows["replicate" if "replicate" in rows.columns else "model"])[0]
    numbers_R = rows[metric.name].to_numpy(dtype=float)
    if metric.aggregate == "mean":
        return float(average_by_model(numbers_R, models_R).mean())
    with np.errstate(divide="ignore", over="ignore"):
        return float(np.exp(average_by_model(np.log(numbers_R), models_R).mean()))


def is_within_noise(one: float, other: float, metric: Metric) -> bool:
    """Return whether two values differ by less than the metric's noise (a share of the smaller if unbounded)."""
    return abs(one - other) < (metric.noise or 0.0) * (min(one, other) if math.isinf(metric.high) else 1.0)


def noise_deviation(value: float, metric: Metric) -> float:
    """Return the standard deviation of a value by the metric's declared noise; NaN where it declares none."""
    noise = math.nan if metric.noise is None else metric.noise
    return noise / NOISE_DEVIATIONS * (value if math.isinf(metric.high) else 1.0)


def is_aimless(metric: Metric, aims: Aims, rows: pd.DataFrame) -> bool:
    """Return whether rows lack the retrained model that a metric's aim needs."""
    return isinstance(metric.better, CloserTo) and bool(np.isnan(aims.of(rows, metric)).any())
