"""Damage of points: collapsed models, and models that erased more than the forget set.

The paper marks collapsed models red without stating a threshold. MAUVE below a quarter of the original's gives all 10
red cells of its Table 1 and none of the 11 others; perplexity outside 0.5 to 5 times the original's gives nine of them.
Either is enough, since each misses some.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from harness.analysis.evidence import Evidence
from harness.analysis.metrics import MetricInfo, lower_title
from harness.contracts import Metric
from harness.settings import ORIGINAL, REFERENCE_ROWS, RETRAINED, UNSEEN_ROWS, Collapse
from harness.statistics import bootstrap

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


def collapse_bounds(info: MetricInfo, bounds: Collapse) -> list[tuple[Metric, float, float]]:
    """Return the bounded metrics, each with its lowest and highest ratio to the original's."""
    rules = []
    for rule, bound in bounds.model_dump().items():
        low, high = bound if isinstance(bound, tuple) else (bound, math.inf)
        rules += [(metric, low, high) for metric in info.values() if metric.collapse == rule]
    return rules


def repetitions(info: MetricInfo) -> list[str]:
    """Return the names of the metrics that are shares of repeated n-grams."""
    return [metric.name for metric in info.values() if metric.collapse == "repetition"]


def describe_rules(info: MetricInfo, bounds: Collapse) -> str:
    """Return the rules of a collapse: `its MAUVE is below 0.25 times the original's, or ...`."""
    clauses = []
    for metric, low, high in collapse_bounds(info, bounds):
        out = f"below {low:g}" if math.isinf(high) else f"outside {low:g} to {high:g}"
        clauses.append(f"its {lower_title(metric)} is {out} times the original's")
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


def flag(table: pd.DataFrame, info: MetricInfo, bounds: Collapse | None = None) -> pd.DataFrame:
    """Return the table with its collapse columns set on every row.

    `collapse_class` is '' for holdout rows; `collapse_reason` contains the metrics outside their bounds. Each row is
    compared with its model's original of the same seed, else with the mean of all. The retrained model never collapses.
    """
    bounds = bounds or Collapse()
    rules = collapse_bounds(info, bounds)
    names = [metric.name for metric, _, _ in rules]
    is_bounded = type(bounds).model_fields.keys() <= {metric.collapse for metric, _, _ in rules}
    originals = table[table["method"] == ORIGINAL]
    by_seed = originals.groupby(["model", "seed"])[names].mean().to_dict(orient="index")
    by_model = originals.groupby("model")[names].mean().to_dict(orient="index")
    repeated = table[repetitions(info)].astype(float).max(axis=1) if repetitions(info) else math.nan
    flags: list[tuple[bool | None, str, tuple[str, ...]]] = []
    for row in table[["method", "model", "seed", *names]].assign(repeated=repeated).to_dict(orient="records"):
        if row["method"] == RETRAINED:
            # Nothing was erased from it: where it differs from the original it is the better of the two.
            flags.append((False, "healthy", ()))
            continue
        original = by_seed.get((row["model"], row["seed"])) or by_model.get(row["model"]) or {}
        sides: dict[Metric, Side | None] = {}
        for metric, low, high in rules:
            sides[metric] = side(row[metric.name], original.get(metric.name, math.nan), low, high)
        outside = tuple(metric.name for metric, at in sides.items() if at in ("below", "above"))
        # One metric outside its bounds is enough; a healthy row needs all of them measured.
        collapsed = True if outside else False if is_bounded and None not in sides.values() else None
        below = [at == "below" for metric, at in sides.items() if at and metric.better == "lower"]
        if row["method"] in UNSEEN_ROWS:
            flags.append((collapsed, "", ()))
        else:
            kind = collapse_class(collapsed, row["repeated"], any(below) if below else None)
            flags.append((collapsed, kind, outside))
    columns = pd.DataFrame(flags, index=table.index, columns=list(COLUMNS), dtype=object)
    return table.assign(**{name: columns[name] for name in COLUMNS})


def verdict(collapse_class: str, reasons: Sequence[str]) -> str:
    """Return a row's class with the metrics that show it."""
    return f"{collapse_class}: {' and '.join(reasons)}" if reasons else collapse_class


MA, UNSEEN_MA, UNSEEN_NLL, GENERAL_NLL = "ma", "unseen_ma", "unseen_nll", "general_nll"
"""The four compared metrics: without one of the last three, no row of a sweep gets the flag."""
MAX_EXCESS = math.log(1.1)
"""Rise of unseen texts' NLL above general texts' that is allowed, in nats a token: a tenth of their perplexity."""
State = Literal["collapsed", "over-erased", ""]


def over_erased(table: pd.DataFrame, info: MetricInfo, evidence: Evidence) -> list[bool | None]:
    """Return the over-erased flag of each point; None where not measured.

    A point is over-erased if either holds beyond noise (the 95 % interval excludes 0; items drawn by clusters, both
    models paired by text):

    - its MA on the forget set lies below the original's on unseen texts and below the retrained model's, where there is
      one (not under the `table` definition, whose MA is at other positions);
    - the NLL of unseen texts rose more than that of general texts, by more than `MAX_EXCESS`.

    References are never over-erased.
    """
    originals, retrained = _points_by_run(table, ORIGINAL), _points_by_run(table, RETRAINED)
    flags: list[bool | None] = []
    for row in table.to_dict(orient="records"):
        run = row["model"], row["seed"]
        original, twin = (points.get(run, points.get(run[:1])) for points in (originals, retrained))
        if original is None or not {UNSEEN_MA, UNSEEN_NLL, GENERAL_NLL} <= info.keys() or row["method"] in UNSEEN_ROWS:
            flags.append(None)
            continue
        rises = [_rise(row["point_id"], original, info[name], evidence) for name in (UNSEEN_NLL, GENERAL_NLL)]
        clauses = [_is_above(rises[0], rises[1], by=MAX_EXCESS)]
        if row["definition"] == "exact" and MA in info:
            forget_items = evidence.point_values([row["point_id"]], info[MA])
            below = [_is_above(evidence.point_values([original], info[UNSEEN_MA]), forget_items)]
            if twin is not None:
                below.append(_is_above(evidence.point_values([twin], info[MA]), forget_items))
            clauses.append(False if False in below else None if None in below else True)
        if row["method"] in REFERENCE_ROWS:
            clauses = [None if clause is None else False for clause in clauses]
        flags.append(is_any(clauses))
    return flags


def is_any(flags: Iterable[Any]) -> bool | None:
    """Return whether any flag is set; None where none is, and one is not known or there are none."""
    values = [None if flag is None or flag != flag else bool(flag) for flag in flags]
    return True if True in values else None if None in values or not values else False


def _points_by_run(table: pd.DataFrame, method: str) -> dict[tuple[Any, ...], str]:
    points: dict[tuple[Any, ...], str] = {}
    for row in table[table["method"] == method].to_dict(orient="records"):
        points[row["model"], row["seed"]] = row["point_id"]
        points.setdefault((row["model"],), row["point_id"])
    return points


def _rise(point_id: str, original: str, metric: Metric, evidence: Evidence) -> bootstrap.ItemValues | None:
    values = evidence.point_values([point_id, original], metric)
    if values is None:
        return None
    rise_1N = values.values_RN[:1] - values.values_RN[1:]
    return replace(values, values_RN=rise_1N, weights_RN=values.weights_RN[:1], low=-math.inf, high=math.inf)


def _is_above(one: bootstrap.ItemValues | None, other: bootstrap.ItemValues | None, by: float = 0.0) -> bool | None:
    if one is None or other is None or min(one.known_clusters(), other.known_clusters()) < 2:
        return None
    if bootstrap.estimate(one) - bootstrap.estimate(other) <= by:  # An interval contains its estimate: none is drawn.
        return False
    low, _ = bootstrap.interval(bootstrap.draws(one) - bootstrap.draws(other))
    return None if math.isnan(low) else low > by


def are_over_erased(rows: pd.DataFrame) -> bool | None:
    """Return whether most repeats of a point are over-erased; None where not known.

    Of several sound runs one is called over-erased by chance more often than one of one.
    """
    flags, half = rows["over_erased"], len(rows) / 2
    if flags.eq(True).sum() > half:
        return True
    return False if len(rows) and flags.eq(False).sum() >= half else None


def state_of_repeats(rows: pd.DataFrame) -> State:
    """Return the state of a point's repeats: collapsed if any is, over-erased if most are."""
    return "collapsed" if rows["collapsed"].eq(True).any() else "over-erased" if are_over_erased(rows) else ""


def unmeasured_damage(table: pd.DataFrame) -> str:
    """Return a caveat about models without any measured damage; '' where there are none."""
    erased = table[~table["method"].isin(REFERENCE_ROWS)]
    is_known = erased["over_erased"].notna().groupby(erased["model"], sort=False).any()
    models = [str(model) for model in is_known.index[~is_known]]
    where = f" for {', '.join(models)}" if 0 < len(models) < len(is_known) else ""
    return f"Damage to similar texts was not measured{where}: give data.holdout." if models else ""
