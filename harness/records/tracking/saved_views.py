"""What MLflow's page shows of a sweep when its address is opened: which runs, which columns, and which charts.

MLflow keeps a view as a tag of the experiment, in the form that its page itself writes when a view is saved; the
address names it. Which metrics are drawn follows from what they declare (`Metric.axis`, `column`, `ranked`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from harness.contracts import Json
from harness.records.results import Results
from harness.records.tracking.run_contents import LOG
from harness.records.tracking.runs import legal

_PREFIX = "mlflow.sharedViewState."
_RUN_NAME = "attributes.`Run Name`"
_ALL_RUNS = {"runsCountToCompare": 1000}
_SHOWN = {"deleted": False, "isGenerated": False}


def experiment_tags(results: Results, made_ms: int) -> dict[str, str]:
    """Return the experiment's tags: its kind, and the view of a sweep's points under the sweep's name.

    Without its kind MLflow asks whether these are runs or chat traces.

    Args:
        results: Of the sweep.
        made_ms: When the sweep's run began, in milliseconds since 1970.
    """
    sweep, state = results.plan.sweep, json.dumps(_points_view(results))
    view = {"name": f"{sweep}: points", "createdAt": made_ms, "updatedAt": made_ms, "state": state}
    return {"mlflow.experimentKind": "custom_model_development", f"{_PREFIX}{legal(sweep)}": json.dumps(view)}


def _points_view(results: Results) -> dict[str, Json]:
    """Return the view of a sweep's points: sorted by name, with their settings and ranked metrics, and their charts."""
    declared: dict[str, Mapping[str, Json]] = {}
    for point in results.measured:
        for measurement in point.measurements:
            for metric in measurement.metrics:
                declared[f"{metric['group']}/{legal(metric['name'])}"] = metric
    ranked = [name for name, metric in declared.items() if metric.get("ranked", True)]
    ranked.sort(key=lambda name: (declared[name]["group"], declared[name].get("column", 100)))
    trials = results.plan.trials
    columns = ["params.`model`"] if len({spec.model.id for spec in trials}) > 1 else []
    columns += ["params.`seed`"] if len({spec.seed for spec in trials}) > 1 else []
    columns += ["params.`variant`", "params.`strength`", "params.`training.learning_rate`"]
    columns += [f"metrics.`{name}`" for name in ranked]
    columns += ["tags.`collapse_class`", "tags.`ranked`"]
    return {
        "searchFilter": f"tags.kind = 'point' AND tags.sweep = '{results.plan.sweep}'",
        "orderByKey": "tags.`mlflow.runName`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": columns,
        "columnOrder": [_RUN_NAME, *columns],
        "columnWidths": {_RUN_NAME: 330},
        "runsHiddenMode": "SHOW_ALL",
        "compareRunSections": [_section("tradeoff", "Trade-off", 1), _section("parallel", "Parallel coordinates", 1)],
        "compareRunCharts": _charts(declared),
        "isAccordionReordered": True,
    }


def _section(uuid: str, name: str, columns: int) -> dict[str, Any]:
    shown = {"display": True, "isReordered": True, **_SHOWN}
    return {"uuid": uuid, "name": name, "columns": columns, "cardHeight": 420, **shown}


def _charts(declared: Mapping[str, Mapping[str, Json]]) -> list[dict[str, Any]]:
    """Return the trade-off figure's panels, erasure upwards and generation across, and the parallel coordinates.

    These are a line for each point, through its variant, and what it forgot and kept; coloured by the last. Of a metric
    without an upper bound (perplexity) the logarithm is drawn: one collapsed model would squeeze all others.
    """
    erasure, generation = _axes(declared, "erasure"), _axes(declared, "generation")
    charts: list[dict[str, Any]] = []
    # What methods are compared by, perplexity, comes first.
    generation.sort(key=lambda name: _is_bounded(declared[name]))
    drawn = [name if _is_bounded(declared[name]) else _log_name(name) for name in generation]
    for number, (x, y) in enumerate(zip(drawn, erasure, strict=False)):
        chart = {"type": "SCATTER", "uuid": f"scatter-{number}", "metricSectionId": "tradeoff", **_SHOWN}
        axes = {"xaxis": {"key": x, "type": "METRIC"}, "yaxis": {"key": y, "type": "METRIC"}}
        charts.append({**chart, **axes, **_ALL_RUNS})
    parallel = {"type": "PARALLEL", "uuid": "parallel-0", "metricSectionId": "parallel", **_SHOWN}
    bounded = [name if _is_bounded(declared[name]) else _log_name(name) for name in [*erasure, *generation]]
    lines = {"selectedParams": ["variant"], "selectedMetrics": bounded, "showAllRuns": True}
    return [*charts, {**parallel, **lines, **_ALL_RUNS}]


def _is_bounded(metric: Mapping[str, Json]) -> bool:
    return math.isfinite(metric.get("high", math.inf))


def _log_name(name: str) -> str:
    group, _, metric = name.rpartition("/")
    return f"{group}/{LOG.format(metric)}"


def _axes(declared: Mapping[str, Mapping[str, Json]], group: str) -> list[str]:
    drawn = [name for name, metric in declared.items() if metric["group"] == group and metric.get("axis") is not None]
    return sorted(drawn, key=lambda name: declared[name]["axis"])


def addresses(experiment: str, tags: Mapping[str, str], *, has_models: bool) -> dict[str, str]:
    """Return the page of each sweep's points by the sweep's name, and that of kept models: what follows the server's.

    Where no view is kept yet, because an earlier version tracked these runs, it is the page of all runs.

    Args:
        experiment: Its id.
        tags: The experiment's, as `experiment_tags` made them.
        has_models: Whether MLflow lists any kept model.
    """
    training = "workflowType=machine_learning"
    page = f"#/experiments/{experiment}/runs?{training}"
    names = sorted(name.removeprefix(_PREFIX) for name in tags if name.startswith(_PREFIX))
    views = {name: f"{page}&compareRunsMode=CHART&viewStateShareKey={quote(name)}" for name in names}
    models = {"Kept models": f"#/experiments/{experiment}/models?{training}"} if has_models else {}
    return (views or {"All runs": page}) | models
