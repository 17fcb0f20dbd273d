"""Flag and class of collapsed models.

The paper marks collapsed models red without stating a threshold. MAUVE below a quarter of the original's gives all 10
red cells of its Table 1 and none of the 11 others; perplexity outside 0.5 to 5 times the original's gives nine of the
10 and none of the others. MAUVE misses a model that writes retain text at 12 times the original's perplexity;
perplexity misses one that repeats itself at 0.86 times. Either is enough. `Metric.collapse` names a metric's bounds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import pandas as pd

from harness.analysis.metrics import MetricInfo, in_sentence
from harness.contracts import Metric
from harness.specs import ORIGINAL, RETRAINED, UNSEEN_ROWS, CollapseBounds

CollapseClass = Literal["healthy", "degenerate", "gibberish", "unknown"]
Side = Literal["inside", "below", "above"]
REPEATS = 0.5
"""Share of repeated n-grams above which text is degenerate."""
COLUMNS = ("collapsed", "collapse_class", "collapse_reason")


def side(value: float, original: float, low: float, high: float = math.inf) -> Side | None:
    """Return where a value lies against `low` to `high` times the original's; None where not known."""
    if math.isnan(value) or not math.isfinite(original):
        return None
    return "below" if value < low * original else "above" if value > high * original else "inside"


def collapse_bounds(info: MetricInfo, bounds: CollapseBounds) -> list[tuple[Metric, float, float]]:
    """Return the bounded metrics, each with its lowest and highest ratio to the original's."""
    rules = []
    for rule, bound in asdict(bounds).items():
        low, high = bound if isinstance(bound, tuple) else (bound, math.inf)
        rules += [(metric, low, high) for metric in info.values() if metric.collapse == rule]
    return rules


def repetitions(info: MetricInfo) -> list[str]:
    """Return the names of the metrics that are shares of repeated n-grams."""
    return [metric.name for metric in info.values() if metric.collapse == "repetition"]


def rules_in_words(info: MetricInfo, bounds: CollapseBounds) -> str:
    """Return the rules of a collapse: `its MAUVE is below 0.25 times the original's, or ...`."""
    clauses = []
    for metric, low, high in collapse_bounds(info, bounds):
        out = f"below {low:g}" if math.isinf(high) else f"outside {low:g} to {high:g}"
        clauses.append(f"its {in_sentence(metric)} is {out} times the original's")
    return ", or ".join(clauses)


def collapse_class(collapsed: bool | None, repetition: float, too_predictable: bool | None) -> CollapseClass:
    """Return the class of a collapse: it repeats itself (`degenerate`) or writes nonsense (`gibberish`).

    Degenerate text has rep_n above one half or a perplexity below its bound; every other collapse is gibberish.
    `unknown`: the collapse, or everything that would show its class, was not measured.

    Source:
        EMSO, section 4.2, "Model collapse".
    """
    if not collapsed:
        return "unknown" if collapsed is None else "healthy"
    if repetition > REPEATS or too_predictable:
        return "degenerate"
    return "unknown" if math.isnan(repetition) and too_predictable is None else "gibberish"


def flag(table: pd.DataFrame, info: MetricInfo, bounds: CollapseBounds | None = None) -> pd.DataFrame:
    """Return the table with its collapse columns set on every row.

    `collapsed` is True, False or None; `collapse_class` is one of the four, '' for holdout rows; `collapse_reason`
    contains the names of the metrics outside their bounds. Each row is compared with its model's original of the same
    seed, else with the mean of all seeds. The retrained model is never collapsed.
    """
    bounds = bounds or CollapseBounds()
    rules = collapse_bounds(info, bounds)
    names = [metric.name for metric, _, _ in rules]
    is_bounded = asdict(bounds).keys() <= {metric.collapse for metric, _, _ in rules}
    originals = table[table["method"] == ORIGINAL]
    by_seed = originals.groupby(["model", "seed"])[names].mean().to_dict(orient="index")
    by_model = originals.groupby("model")[names].mean().to_dict(orient="index")
    repeated = table[repetitions(info)].astype(float).max(axis=1) if repetitions(info) else math.nan
    flags = []
    for row in table[["method", "model", "seed", *names]].assign(repeated=repeated).to_dict(orient="records"):
        original = by_seed.get((row["model"], row["seed"])) or by_model.get(row["model"]) or {}
        flags.append(_row_flags(row, original, rules, is_bounded))
    columns = pd.DataFrame(flags, index=table.index, columns=list(COLUMNS), dtype=object)
    flagged: pd.DataFrame = table.assign(**{name: columns[name] for name in COLUMNS})
    return flagged


def _row_flags(
    row: Mapping[Hashable, Any],
    original: Mapping[Hashable, float],
    rules: Sequence[tuple[Metric, float, float]],
    is_bounded: bool,
) -> tuple[bool | None, CollapseClass | Literal[""], tuple[str, ...]]:
    """Return whether a row's model collapsed, its class, and the metrics that show it.

    One metric outside its bounds is enough; a healthy row needs all of them measured.
    """
    if row["method"] == RETRAINED:
        # Nothing was erased from it: where it differs from the original it is the better of the two.
        return False, "healthy", ()
    outside = []
    is_known, is_too_predictable = is_bounded, None
    for metric, low, high in rules:
        at = side(row[metric.name], original.get(metric.name, math.nan), low, high)
        is_known &= at is not None
        if at in ("below", "above"):
            outside.append(metric.name)
        if at and metric.better == "lower":
            is_too_predictable = bool(is_too_predictable) or at == "below"
    collapsed = bool(outside) if outside or is_known else None
    if row["method"] in UNSEEN_ROWS:
        return collapsed, "", ()
    return collapsed, collapse_class(collapsed, row["repeated"], is_too_predictable), tuple(outside)


def verdict(collapse_class: str, reasons: Sequence[str]) -> str:
    """Return a row's class with the metrics that show it."""
    return f"{collapse_class}: {' and '.join(reasons)}" if reasons else collapse_class
