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
from harness.records.tracking.runs import legal

View = dict[str, Json]

_PREFIX = "mlflow.sharedViewState."
_RUN_NAME = "attributes.`Run Name`"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Without it MLflow asks whether these are runs or chat traces."""


def points_view(results: Results) -> View:
    """Return the view of a sweep's points: sorted by name, with their settings and ranked metrics, and their charts."""
    declared = {
        f"{metric['group']}/{legal(metric['name'])}": metric
        for point in results.measured
        for measurement in point.measurements
        for metric in measurement.metrics
    }
    ranked = sorted(
        (name for name, metric in declared.items() if metric.get("ranked", True)),
        key=lambda name: (declared[name]["group"], declared[name].get("column", 100)),
    )
    models, seeds = ({spec.model.id for spec in results.plan.trials}, {spec.seed for spec in results.plan.trials})
    several = [name for name, values in (("model", models), ("seed", seeds)) if len(values) > 1]
    params = [*several, "variant", "strength", "training.learning_rate"]
    columns = [
        *(f"params.`{name}`" for name in params),
        *(f"metrics.`{name}`" for name in ranked),
        *(f"tags.`{name}`" for name in ("collapse_class", "ranked")),
    ]
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
        "compareRunSections": [_section("tradeoff", "Trade-off", 2), _section("parallel", "Parallel coordinates", 1)],
        "compareRunCharts": [*_scatters(declared), _parallel_coordinates(declared)],
        "isAccordionReordered": True,
    }


def _scatters(declared: Mapping[str, Mapping[str, Json]]) -> list[dict[str, Any]]:
    """Return the trade-off figure's panels: erasure upwards, generation across."""
    erasure, generation = (_axes(declared, group) for group in ("erasure", "generation"))
    return [
        {
            **_chart("SCATTER", f"scatter-{number}", "tradeoff"),
            "xaxis": {"key": x, "type": "METRIC"},
            "yaxis": {"key": y, "type": "METRIC"},
            "runsCountToCompare": 1000,
        }
        for number, (x, y) in enumerate(zip(generation, erasure, strict=False))
    ]


def _axes(declared: Mapping[str, Mapping[str, Json]], group: str) -> list[str]:
    drawn = {name: metric["axis"] for name, metric in declared.items() if metric.get("axis") is not None}
    return sorted((name for name in drawn if declared[name]["group"] == group), key=lambda name: drawn[name])


def _parallel_coordinates(declared: Mapping[str, Mapping[str, Json]]) -> dict[str, Any]:
    """Return a line for each point, through its variant, and what it forgot and kept; coloured by the last.

    A metric without bounds (perplexity) is left out: one collapsed model would take its axis, and squeeze all others.
    """
    drawn = [*_axes(declared, "erasure"), *_axes(declared, "generation")]
    return {
        **_chart("PARALLEL", "parallel-0", "parallel"),
        "selectedParams": ["variant"],
        "selectedMetrics": [name for name in drawn if math.isfinite(declared[name].get("high", math.inf))],
        "showAllRuns": True,
        "runsCountToCompare": 1000,
    }


def _section(uuid: str, name: str, columns: int) -> dict[str, Any]:
    shown = {"display": True, "isReordered": True, "deleted": False, "isGenerated": False}
    return {"uuid": uuid, "name": name, "columns": columns, "cardHeight": 420, **shown}


def _chart(kind: str, uuid: str, section: str) -> dict[str, Any]:
    return {"type": kind, "uuid": uuid, "metricSectionId": section, "deleted": False, "isGenerated": False}


def view_tag(sweep: str, state: View, made_ms: int) -> dict[str, str]:
    """Return the experiment's tag that keeps a sweep's view under the sweep's name."""
    kept = {"name": f"{sweep}: points", "createdAt": made_ms, "updatedAt": made_ms, "state": json.dumps(state)}
    return {f"{_PREFIX}{legal(sweep)}": json.dumps(kept)}


def addresses(experiment: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the page of each sweep's points, by the sweep's name: what follows the server's address.

    Where no view is kept yet, because an earlier version tracked these runs, it is the page of all runs.

    Args:
        experiment: Its id.
        tags: The experiment's, as `view_tag` made them.
    """
    page = f"#/experiments/{experiment}/runs?workflowType=machine_learning"
    names = sorted(name.removeprefix(_PREFIX) for name in tags if name.startswith(_PREFIX))
    views = {name: f"{page}&compareRunsMode=CHART&viewStateShareKey={quote(name)}" for name in names}
    return views or {"All runs": page}
