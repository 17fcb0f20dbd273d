"""When a model no longer writes: the collapse flag, which rule raised it, and its two classes.

The paper marks collapsed models red and says what they look like, without a threshold. MAUVE below a
quarter of the original's gives all 10 red cells of its Table 1 and none of the 11 others, and perplexity
outside 0.5 to 5 times the original's gives nine of the 10 and none of the others. Each misses what the
other sees: MAUVE takes a model that writes retain text at 12 times the original's perplexity for a
healthy one, and perplexity does not see the tenth, which repeats itself at 0.86 times the original's.
Either is enough. Which metrics the bounds are for stands in their declarations (`Metric.collapse`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import pandas as pd

from harness.analysis.metrics import MetricInfo, in_sentence
from harness.contracts import Metric
from harness.specs import ORIGINAL, RETRAINED, CollapseBounds

CollapseClass = Literal["healthy", "degenerate", "gibberish", "unknown"]
Side = Literal["inside", "below", "above"]
REPEATS = 0.5
"""More repeated n-grams than new ones: text that turns in circles."""
COLUMNS = ("collapsed", "collapse_class", "collapse_reason")
_AND = " and "


def side(value: float, original: float, low: float, high: float = math.inf) -> Side | None:
    """Return on which side of `low` to `high` times the original's a value lies.

    None where it cannot be told: either is NaN, or the original's is infinite.

    Example:
        >>> side(0.137, 0.790, 0.25), side(0.276, 0.702, 0.25), side(math.nan, 0.7, 0.25)
        ('below', 'inside', None)
        >>> side(57.0, 4.6, 0.5, 5.0), side(22.9, 4.6, 0.5, 5.0), side(2.2, 4.6, 0.5, 5.0)
        ('above', 'inside', 'below')
    """
    if math.isnan(value) or not math.isfinite(original):
        return None
    return "below" if value < low * original else "above" if value > high * original else "inside"


def collapse_bounds(info: MetricInfo, bounds: CollapseBounds) -> list[tuple[Metric, float, float]]:
    """Return the metrics that must stay within bounds, times the original's, with the least and the most."""
    limits = {rule: bound if isinstance(bound, tuple) else (bound, math.inf) for rule, bound in asdict(bounds).items()}
    return [(metric, *limit) for rule, limit in limits.items() for metric in info.values() if metric.collapse == rule]


def repetitions(info: MetricInfo) -> list[str]:
    """Return the names of the metrics that are shares of repeated n-grams."""
    return [metric.name for metric in info.values() if metric.collapse == "repetition"]


def rules_in_words(info: MetricInfo, bounds: CollapseBounds) -> str:
    """Return what a collapsed point has: `its MAUVE is below 0.25 times the original's, or ...`."""
    return ", or ".join(
        f"its {in_sentence(metric)} is "
        + (f"below {low:g}" if math.isinf(high) else f"outside {low:g} to {high:g}")
        + " times the original's"
        for metric, low, high in collapse_bounds(info, bounds)
    )


def collapse_class(collapsed: bool | None, repetition: float, too_predictable: bool | None) -> CollapseClass:
    """Return how a model collapsed: it repeats itself (`degenerate`) or writes nonsense (`gibberish`).

    Degenerate text repeats (rep_n above one half) or is far too predictable (better than its bound by a metric
    that is lower the better: perplexity); every other collapse is gibberish. `unknown` is never 'healthy': it
    stands where the collapse itself, or all that would tell its class, could not be measured.

    Source:
        EMSO, section 4.2, "Model collapse".

    Example:
        >>> collapse_class(True, repetition=0.99, too_predictable=True)
        'degenerate'
        >>> collapse_class(True, repetition=0.04, too_predictable=False)
        'gibberish'
    """
    if not collapsed:
        return "unknown" if collapsed is None else "healthy"
    if repetition > REPEATS or too_predictable:
        return "degenerate"
    return "unknown" if math.isnan(repetition) and too_predictable is None else "gibberish"


def flag(table: pd.DataFrame, info: MetricInfo, bounds: CollapseBounds | None = None) -> pd.DataFrame:
    """Return the table with its collapse columns set anew on every row.

    `collapsed` is True, False or None; `collapse_class` is one of the four; `collapse_reason` names the
    metrics that left their bounds (`mauve`, `perplexity`, `mauve and perplexity`, or '').

    Each row is held against its own model's original row: that of its own seed, or, where that
    seed has none, the mean of all. The retrained model, what perfect erasure looks like, has no bounds to keep.
    """
    bounds = bounds or CollapseBounds()
    rules = collapse_bounds(info, bounds)
    is_unbounded = asdict(bounds).keys() > {metric.collapse for metric, _, _ in rules}
    names = [metric.name for metric, _, _ in rules]
    originals = _Originals(table, names)
    repeated = table[repetitions(info)].astype(float).max(axis=1) if repetitions(info) else math.nan
    columns = table[["method", "model", "seed", *names]].assign(repeated=repeated)
    flags = pd.DataFrame(
        [
            _flags(row, originals.of(row["model"], row["seed"]), rules, is_unbounded)
            for row in columns.to_dict(orient="records")
        ],
        index=table.index,
        columns=list(COLUMNS),
        dtype=object,
    )
    flagged: pd.DataFrame = table.assign(**{name: flags[name] for name in COLUMNS})
    return flagged


def _flags(
    row: Mapping[Hashable, Any],
    original: Mapping[Hashable, float],
    rules: Sequence[tuple[Metric, float, float]],
    is_unbounded: bool,
) -> tuple[bool | None, CollapseClass, str]:
    """Return whether a row's model collapsed, how, and what told it.

    One metric that left its bounds is enough, so a model whose MAUVE is NaN has collapsed if its perplexity says
    so, and is healthy only if both were looked at.
    """
    if row["method"] == RETRAINED:
        # Nothing was erased from it: where it differs from the original it is the better of the two.
        return False, "healthy", ""
    sides = {m.name: side(row[m.name], original.get(m.name, math.nan), low, high) for m, low, high in rules}
    outside = [name for name, at in sides.items() if at in ("below", "above")]
    collapsed = True if outside else None if None in sides.values() or is_unbounded else False
    too_predictable = [sides[m.name] == "below" for m, _, _ in rules if m.better == "lower" and sides[m.name]]
    name = collapse_class(collapsed, row["repeated"], any(too_predictable) if too_predictable else None)
    return collapsed, name, _AND.join(outside)


class _Originals:
    """What each model's original has of some metrics, of each seed and on average: looked up once for all rows."""

    def __init__(self, table: pd.DataFrame, names: Sequence[str]) -> None:
        rows = table[table["method"] == ORIGINAL]
        self._of_seed = rows.groupby(["model", "seed"])[list(names)].mean().to_dict(orient="index")
        self._of_model = rows.groupby("model")[list(names)].mean().to_dict(orient="index")

    def of(self, model: str, seed: int) -> Mapping[Hashable, float]:
        return self._of_seed.get((model, seed)) or self._of_model.get(model) or {}


def all_reasons(reasons: Iterable[str]) -> str:
    """Return the reasons of several seeds as one.

    Example:
        >>> all_reasons(["mauve and perplexity", "", "perplexity"]), all_reasons([])
        ('mauve and perplexity', '')
    """
    return _AND.join(sorted({name for reason in reasons if reason for name in reason.split(_AND)}))


def verdict(collapse_class: str, reason: str) -> str:
    """Return a row's class with what told it, as tables print it.

    Example:
        >>> verdict("gibberish", "perplexity"), verdict("healthy", "")
        ('gibberish: perplexity', 'healthy')
    """
    return f"{collapse_class}: {reason}" if reason else collapse_class
