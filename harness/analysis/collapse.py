"""When a model no longer writes: the collapse flag, which rule raised it, and its two classes.

The paper marks collapsed models red and says what they look like, without a threshold. MAUVE below a
quarter of the original's gives all 10 red cells of its Table 1 and none of the 11 others, and perplexity
outside 0.5 to 5 times the original's gives nine of the 10 and none of the others. Each misses what the
other sees: MAUVE takes a model that writes retain text at 12 times the original's perplexity for a
healthy one, and perplexity does not see the tenth, which repeats itself at 0.86 times the original's.
Either is enough. The metrics' declarations say which of them the bounds are for (`Metric.collapse`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from harness.analysis.metrics import MetricInfo, in_sentence
from harness.contracts import Metric
from harness.settings import ORIGINAL, RETRAINED, UNSEEN_ROWS, Collapse

CollapseClass = Literal["healthy", "degenerate", "gibberish", "unknown"]
Side = Literal["inside", "below", "above"]
REPEATS = 0.5
"""More repeated n-grams than new ones: text that turns in circles."""
COLUMNS = ("collapsed", "collapse_class", "collapse_reason")


def side(value: float, original: float, low: float, high: float = math.inf) -> Side | None:
    """Return on which side of `low` to `high` times the original's a value lies.

    None where that is not known: either is NaN, or the original's is infinite.
    """
    if math.isnan(value) or not math.isfinite(original):
        return None
    return "below" if value < low * original else "above" if value > high * original else "inside"


def collapse_bounds(info: MetricInfo, bounds: Collapse) -> list[tuple[Metric, float, float]]:
    """Return the metrics that must stay within bounds, times the original's, with the least and the most."""
    rules = []
    for rule, bound in bounds.model_dump().items():
        low, high = bound if isinstance(bound, tuple) else (bound, math.inf)
        rules += [(metric, low, high) for metric in info.values() if metric.collapse == rule]
    return rules


def repetitions(info: MetricInfo) -> list[str]:
    """Return the names of the metrics that are shares of repeated n-grams."""
    return [metric.name for metric in info.values() if metric.collapse == "repetition"]


def rules_in_words(info: MetricInfo, bounds: Collapse) -> str:
    """Return what a collapsed point has: `its MAUVE is below 0.25 times the original's, or ...`."""
    clauses = []
    for metric, low, high in collapse_bounds(info, bounds):
        out = f"below {low:g}" if math.isinf(high) else f"outside {low:g} to {high:g}"
        clauses.append(f"its {in_sentence(metric)} is {out} times the original's")
    return ", or ".join(clauses)


def collapse_class(collapsed: bool | None, repetition: float, too_predictable: bool | None) -> CollapseClass:
    """Return how a model collapsed: it repeats itself (`degenerate`) or writes nonsense (`gibberish`).

    Degenerate text repeats (rep_n above one half) or is far too predictable (better than its bound by a metric
    that is lower the better: perplexity); every other collapse is gibberish. `unknown` is never 'healthy': it
    stands where the collapse itself, or all that would show its class, could not be measured.

    Source:
        EMSO, section 4.2, "Model collapse".
    """
    if not collapsed:
        return "unknown" if collapsed is None else "healthy"
    if repetition > REPEATS or too_predictable:
        return "degenerate"
    return "unknown" if math.isnan(repetition) and too_predictable is None else "gibberish"


def flag(table: pd.DataFrame, info: MetricInfo, bounds: Collapse | None = None) -> pd.DataFrame:
    """Return the table with its collapse columns set again on every row.

    `collapsed` is True, False or None; `collapse_class` is one of the four; `collapse_reason` has the names of the
    metrics that left their bounds: `("mauve", "perplexity")`. A row of unseen texts has no class.

    Each row is compared with its own model's original row: that of its own seed, or, where that
    seed has none, the mean of all. The retrained model, what perfect erasure looks like, has no bounds to keep.
    """
    bounds = bounds or Collapse()
    rules = collapse_bounds(info, bounds)
    names = [metric.name for metric, _, _ in rules]
    is_bounded = type(bounds).model_fields.keys() <= {metric.collapse for metric, _, _ in rules}
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
    """Return whether a row's model collapsed, how, and which metrics show it.

    One metric that left its bounds is enough, so a model whose MAUVE is NaN has collapsed if its perplexity says
    so, and is healthy only if both were looked at.
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
    """Return a row's class with the metrics that show it, as tables print it."""
    return f"{collapse_class}: {' and '.join(reasons)}" if reasons else collapse_class
