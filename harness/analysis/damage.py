"""Damage beyond the forget set: over-erased and broken points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from harness.analysis.evidence import Evidence
from harness.analysis.metrics import MetricInfo
from harness.specs import ORIGINAL, REFERENCE_ROWS, RETRAINED, UNSEEN_ROWS
from harness.statistics.bootstrap import draws, interval
from harness.statistics.item_values import ItemValues, estimate

MA, UNSEEN_MA, UNSEEN_NLL, GENERAL_NLL = "ma", "unseen_ma", "unseen_nll", "general_nll"
"""Compared metrics; a sweep that lacks one of the last three has no flag."""
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
        original, twin = (
            runs.get((row["model"], row["seed"]), runs.get((row["model"],))) for runs in (originals, retrained)
        )
        if original is None or not {UNSEEN_MA, UNSEEN_NLL, GENERAL_NLL} <= info.keys() or row["method"] in UNSEEN_ROWS:
            flags.append(None)
            continue
        rises = [_rise(row["point_id"], original, name, info, evidence) for name in (UNSEEN_NLL, GENERAL_NLL)]
        clauses = [_is_above(*rises, by=MAX_EXCESS)]
        if row["definition"] == "exact" and MA in info:
            left = evidence.of_points([row["point_id"]], info[MA])
            below = [_is_above(evidence.of_points([original], info[UNSEEN_MA]), left)]
            if twin is not None:
                below.append(_is_above(evidence.of_points([twin], info[MA]), left))
            clauses.append(False if False in below else None if None in below else True)
        if row["method"] in REFERENCE_ROWS:
            clauses = [None if clause is None else False for clause in clauses]
        flags.append(True if True in clauses else None if None in clauses else False)
    return flags


def _points_by_run(table: pd.DataFrame, method: str) -> dict[tuple[Any, ...], str]:
    """Return a reference's point by (model, seed), and its first by (model,)."""
    points: dict[tuple[Any, ...], str] = {}
    for row in table[table["method"] == method].to_dict(orient="records"):
        points[row["model"], row["seed"]] = row["point_id"]
        points.setdefault((row["model"],), row["point_id"])
    return points


def _rise(point_id: str, original: str, name: str, info: MetricInfo, evidence: Evidence) -> ItemValues | None:
    values = evidence.of_points([point_id, original], info[name])
    if values is None:
        return None
    rise_1N = values.values_RN[:1] - values.values_RN[1:]
    return replace(values, values_RN=rise_1N, weights_RN=values.weights_RN[:1], low=-math.inf, high=math.inf)


def _is_above(one: ItemValues | None, other: ItemValues | None, by: float = 0.0) -> bool | None:
    if one is None or other is None or min(one.known_clusters(), other.known_clusters()) < 2:
        return None
    error = math.hypot(*one.standard_errors(), *other.standard_errors())
    if estimate(one) - estimate(other) <= by + error:  # No interval excludes 0: drawing it takes long.
        return False
    low, _ = interval(draws(one) - draws(other))
    return None if math.isnan(low) else low > by


def point_state(row: Mapping[Any, Any]) -> State:
    """Return a point's mark in tables and figures: 'collapsed', 'over-erased' or ''."""
    return "collapsed" if row.get("collapsed") is True else "over-erased" if row.get("over_erased") is True else ""


def state_of_repeats(rows: pd.DataFrame) -> State:
    """Return the worst state of a point's repeats."""
    return point_state({name: bool(rows[name].eq(True).any()) for name in ("collapsed", "over_erased")})


def is_broken(rows: pd.DataFrame) -> pd.Series:
    """Return which points collapsed or are over-erased: they take no rank and are never recommended."""
    return rows["collapsed"].eq(True) | rows["over_erased"].eq(True)


def unmeasured_damage(table: pd.DataFrame) -> str:
    """Return a caveat about models without any measured damage; '' where there are none."""
    erased = table[~table["method"].isin(REFERENCE_ROWS)]
    is_known = erased["over_erased"].notna().groupby(erased["model"], sort=False).any()
    models = [str(model) for model in is_known.index[~is_known]]
    where = f" for {', '.join(models)}" if 0 < len(models) < len(is_known) else ""
    return f"Damage to similar texts was not measured{where}: give data.holdout." if models else ""
