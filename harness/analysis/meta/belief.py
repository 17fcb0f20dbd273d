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
        "text_auc": row.faithfulness.texts.value,
        "text_auc_low": row.faithfulness.texts.low,
        "text_auc_high": row.faithfulness.texts.high,
        "relearning": kept.relearning.value,
        "relearning_low": kept.relearning.low,
        "relearning_high": kept.relearning.high,
        "rounding": kept.rounding.value,
        "rounding_low": kept.rounding.low,
        "rounding_high": kept.rounding.high,
    }
    plain: dict[str, float | int | bool | None] = {
        "models": models,
        "points": kept.rounded_points,
        "unmoved": kept.unmoved_points,
    }
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
        >>> about = {"models": 5, "points": 12, "unmoved": 0, "is_circular": False}
        >>> told = {"auc": 1.0, "auc_low": 0.643, "auc_high": 1.0, "text_auc": None}
        >>> kept = {"relearning": 0.25, "relearning_low": 0.2, "relearning_high": 0.3, "rounding": 0.9}
        >>> in_words(about | told | kept | {"rounding_low": None})  # doctest: +NORMALIZE_WHITESPACE
        'it tells 5 models with the forget set from 5 without it with an AUC of 1.000 (0.643–1.000); over 12 erased
        models R is 0.250 (0.200–0.300) after relearning, and Q 0.900 after rounding'
        >>> in_words(about | told | {"is_circular": True, "points": 0})  # doctest: +NORMALIZE_WHITESPACE
        'it compares a model with the original and the retrained one, so it cannot be asked to tell those apart; by
        this metric no model was erased at a fair price, so R and Q are not known'
    """
    models, points = known["models"], known["points"]
    if known["is_circular"]:
        said = "it compares a model with the original and the retrained one, so it cannot be asked to tell those apart"
    else:
        apart = f"{models} models with the forget set from {models} without it"
        said = f"it tells {apart} with an AUC of {_with_interval(known, 'auc')}"
        if known["text_auc"] is not None:
            said += f", text by text of {_with_interval(known, 'text_auc')}"
    if not points:
        return f"{said}; by this metric no model was erased at a fair price, so R and Q are not known"
    relearning, rounding = _with_interval(known, "relearning"), _with_interval(known, "rounding")
    said += f"; over {points} erased models R is {relearning} after relearning, and Q {rounding} after rounding"
    return f"{said}; on {known['unmoved']} of them it shows nothing at all" if known["unmoved"] else said


def _with_interval(known: Mapping[str, Any], name: str) -> str:
    if known[name] is None:
        return number(math.nan)
    if known[f"{name}_low"] is None:
        return number(known[name])
    return f"{number(known[name])} ({number(known[f'{name}_low'])}–{number(known[f'{name}_high'])})"
