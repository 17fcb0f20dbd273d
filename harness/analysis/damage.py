"""Damage beyond the forget set: points that erased more than they were to, and points that no longer count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from harness.analysis.evidence import Evidence
from harness.analysis.metrics import MetricInfo
from harness.settings import ORIGINAL, REFERENCE_ROWS, UNSEEN_ROWS
from harness.statistics.bootstrap import draws, interval
from harness.statistics.item_values import ItemValues, estimate

MA, UNSEEN_MA, UNSEEN_NLL, GENERAL_NLL = "ma", "unseen_ma", "unseen_nll", "general_nll"
"""The metrics that are compared; a sweep that lacks one of the last three has no flag."""
State = Literal["collapsed", "over-erased", ""]


def over_erased(table: pd.DataFrame, info: MetricInfo, evidence: Evidence) -> list[bool | None]:
    """Return for each point whether it erased more than it was to; None where that was not measured.

    Over-erased is a point whose MA on the forget set lies below the original's on unseen texts of the same kind, or by
    which the NLL of such texts rose more than that of general texts did. Either must be beyond noise: the 95 % interval
    of the difference, with items drawn by clusters and both models paired by text, excludes 0. Under the `table`
    definition MA is of other positions, and only the NLLs are compared. References are not over-erased.
    """
    originals: dict[tuple[Any, ...], str] = {}
    for row in table[table["method"] == ORIGINAL].to_dict(orient="records"):
        originals[row["model"], row["seed"]] = row["point_id"]
        originals.setdefault((row["model"],), row["point_id"])
    flags: list[bool | None] = []
    for row in table.to_dict(orient="records"):
        original = originals.get((row["model"], row["seed"]), originals.get((row["model"],)))
        if original is None or not {UNSEEN_MA, UNSEEN_NLL, GENERAL_NLL} <= info.keys() or row["method"] in UNSEEN_ROWS:
            flags.append(None)
            continue
        rises = [_rise(row["point_id"], original, name, info, evidence) for name in (UNSEEN_NLL, GENERAL_NLL)]
        clauses = [_is_above(*rises)]
        if row["definition"] == "exact" and MA in info:
            unseen = evidence.of_points([original], info[UNSEEN_MA])
            clauses.append(_is_above(unseen, evidence.of_points([row["point_id"]], info[MA])))
        if row["method"] in REFERENCE_ROWS:
            clauses = [None if clause is None else False for clause in clauses]
        flags.append(True if True in clauses else None if None in clauses else False)
    return flags


def _rise(point_id: str, original: str, name: str, info: MetricInfo, evidence: Evidence) -> ItemValues | None:
    """Return by how much each text's value of a metric rose over the original's."""
    values = evidence.of_points([point_id, original], info[name])
    if values is None:
        return None
    rise_1N = values.values_RN[:1] - values.values_RN[1:]
    return replace(values, values_RN=rise_1N, weights_RN=values.weights_RN[:1], low=-math.inf, high=math.inf)


def _is_above(one: ItemValues | None, other: ItemValues | None) -> bool | None:
    """Return whether one mean is above the other beyond noise; None where either is not known."""
    if one is None or other is None or min(one.known_clusters(), other.known_clusters()) < 2:
        return None
    error = math.hypot(*one.standard_errors(), *other.standard_errors())
    if estimate(one) - estimate(other) <= error:  # No interval excludes 0: drawing it takes long.
        return False
    low, _ = interval(draws(one) - draws(other))
    return None if math.isnan(low) else low > 0


def point_state(row: Mapping[Any, Any]) -> State:
    """Return how a point is broken, as it is marked in every table, figure and card; '' for one that is not.

    Example:
        >>> point_state({"collapsed": True, "over_erased": True}), point_state({"collapsed": None, "over_erased": True})
        ('collapsed', 'over-erased')
    """
    return "collapsed" if row.get("collapsed") is True else "over-erased" if row.get("over_erased") is True else ""


def state_of_repeats(rows: pd.DataFrame) -> State:
    """Return the state of a point that several rows repeat: the worst of theirs."""
    return point_state({name: bool(rows[name].eq(True).any()) for name in ("collapsed", "over_erased")})


def is_broken(rows: pd.DataFrame) -> pd.Series:
    """Return which points collapsed or are over-erased: they take no rank and are never recommended."""
    return rows["collapsed"].eq(True) | rows["over_erased"].eq(True)


def unmeasured_damage(table: pd.DataFrame) -> str:
    """Return the caveat of models of which no erased point has its damage measured; '' where each has."""
    erased = table[~table["method"].isin(REFERENCE_ROWS)]
    is_known = erased["over_erased"].notna().groupby(erased["model"], sort=False).any()
    models = [str(model) for model in is_known.index[~is_known]]
    where = f" for {', '.join(models)}" if 0 < len(models) < len(is_known) else ""
    return f"Damage to similar texts was not measured{where}: give data.holdout." if models else ""
