"""How far each metric can be believed, by the meta-evaluation that Lethe carries: a file that `lethe meta` wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.analysis.cells import number
from harness.analysis.meta.evaluation import JudgedMetric, MetaEvaluation
from harness.contracts import Json

CARRIED = Path(__file__).with_name("carried.json")
"""`meta.json` of the sweep that docs/results/meta_evaluation.md is about, as `lethe meta` wrote it."""
PAGE = "docs/results/meta_evaluation.md"


def belief_file(evaluation: MetaEvaluation, provenance: Mapping[str, Json]) -> str:
    """Return meta.json: what was found of each metric, and where that comes from."""
    metrics = {row.metric.name: _plain(row, evaluation.models) for row in evaluation.rows}
    return json.dumps({"provenance": dict(provenance), "metrics": metrics}, indent=1) + "\n"


def _plain(row: JudgedMetric, models: int) -> dict[str, float | int | bool | None]:
    auc, kept = row.faithfulness.models, row.robustness
    numbers = {
        "auc": auc.value,
        "auc_low": auc.low,
        "auc_high": auc.high,
        "relearning": kept.relearning.value,
        "rounding": kept.rounding.value,
        "robustness": kept.both.value,
        "robustness_low": kept.both.low,
        "robustness_high": kept.both.high,
    }
    plain: dict[str, float | int | bool | None] = {"models": models, "points": kept.rounded_points}
    plain["is_circular"] = row.is_circular
    for name, value in numbers.items():
        plain[name] = None if math.isnan(value) else round(value, 4)
    return plain


@cache
def carried_beliefs() -> Mapping[str, Mapping[str, Any]]:
    """Return what Lethe's own meta-evaluation found of each metric, by its name."""
    metrics: Mapping[str, Mapping[str, Any]] = json.loads(CARRIED.read_text(encoding="utf-8"))["metrics"]
    return metrics


def belief(metric: str) -> str:
    """Return how far a metric can be believed, in a sentence without its full stop.

    Example:
        >>> belief("no_such_metric")
        'not yet known: no meta-evaluation has it'
    """
    known = carried_beliefs().get(metric)
    return in_words(known) if known else "not yet known: no meta-evaluation has it"


def in_words(known: Mapping[str, Any]) -> str:
    """Return an entry of meta.json as words.

    Example:
        >>> about = {"models": 5, "points": 12, "is_circular": False, "auc": 1.0, "auc_low": 0.643, "auc_high": 1.0}
        >>> kept = {"robustness": 0.8, "robustness_low": 0.7, "robustness_high": 0.9}
        >>> in_words(about | kept)  # doctest: +NORMALIZE_WHITESPACE
        'it tells 5 models with the forget set from 5 without it with an AUC of 1.000 (0.643–1.000), and keeps 0.800
        (0.700–0.900) of itself over 12 erased models that are relearned or rounded'
        >>> in_words(about | kept | {"is_circular": True, "robustness": None})  # doctest: +NORMALIZE_WHITESPACE
        'it compares a model with the original and the retrained one, so it cannot be asked to tell those apart, and no
        erased model showed whether relearning and rounding change it'
    """
    models = known["models"]
    faithful = (
        "it compares a model with the original and the retrained one, so it cannot be asked to tell those apart"
        if known["is_circular"]
        else f"it tells {models} models with the forget set from {models} without it with an AUC of "
        f"{_with_interval(known, 'auc')}"
    )
    if known["robustness"] is None:
        return f"{faithful}, and no erased model showed whether relearning and rounding change it"
    kept = _with_interval(known, "robustness")
    return f"{faithful}, and keeps {kept} of itself over {known['points']} erased models that are relearned or rounded"


def _with_interval(known: Mapping[str, Any], name: str) -> str:
    if known[name] is None:
        return number(math.nan)
    if known[f"{name}_low"] is None:
        return number(known[name])
    return f"{number(known[name])} ({number(known[f'{name}_low'])}–{number(known[f'{name}_high'])})"
