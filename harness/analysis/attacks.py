"""Text that attacks recover from a model, against a model that never saw it, with the attacks' curves."""

import math
from typing import Any

import pandas as pd

from harness.analysis import damage, ranking
from harness.analysis.evidence import REPLICATE, Evidence, split_rows
from harness.analysis.metrics import MetricInfo, mean_over
from harness.analysis.seeds import points_by_target, ranked_rows, strength_text
from harness.contracts import MeasuredCurve, Metric
from harness.records.results import Results
from harness.settings import ORIGINAL, RETRAINED
from harness.statistics import contrasts

COLUMNS = (
    "model", "target", "variant", "label", "strength", "attack", "metric", "value", "value_low", "value_high",
    "retrained", "excess", "excess_low", "excess_high", "p", "collapsed", "over_erased", "point_ids",
)  # fmt: skip
NOT_IN_CSV = ["label", "value_low", "value_high", "p", "over_erased", "point_ids"]
ONE_RUN = "Where there is one training run, another seed's numbers are not known."


def attack_metrics(info: MetricInfo) -> list[Metric]:
    """Return the metrics of the attack table: those of attacks, next to recitation of the erased texts."""
    metrics = [metric for metric in info.values() if metric.attack]
    return metrics if any(metric.group != "erasure" for metric in metrics) else []


def attack_frame(ranked: ranking.RankedTable) -> pd.DataFrame:
    """Return a row for each model, level, variant and attack metric; the original first, then variants by rank.

    `excess` is above 0 where an attack recovers more than from the retrained model, and NaN without one. Bounds are
    95 % over items and seeds; `p` tests for no difference over the same items.
    """
    metrics, rows = attack_metrics(ranked.info), []
    for model, model_rows in ranked.table.groupby("model", sort=False) if metrics else ():
        twins, originals = (model_rows[model_rows["method"] == name] for name in (RETRAINED, ORIGINAL))
        order = list(ranked.ranking.loc[ranked.ranking["model"] == model, "variant"])
        for target, points in (points_by_target(model_rows) or {"": ranked_rows(model_rows)}).items():
            by_variant = dict(iter(points.groupby("variant", sort=False)))
            in_order = sorted(by_variant, key=lambda name: order.index(name) if name in order else len(order))
            for seeds in [originals, *(by_variant[name] for name in in_order)]:
                for metric in metrics if len(seeds) else ():
                    about = {"model": str(model), "target": target_text(target, ranked.info)}
                    rows.append(about | _attacked(seeds, twins, metric, ranked.evidence))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def target_text(target: str, info: MetricInfo) -> str:
    """Return a level's title: `MA retrained` for `ma=retrained`."""
    name, _, level = target.partition("=")
    return f"{info[name].title if name in info else name.upper()} {level}" if target else ""


def _attacked(rows: pd.DataFrame, twins: pd.DataFrame, metric: Metric, evidence: Evidence) -> dict[str, Any]:
    first, repeats = rows.iloc[0], [REPLICATE, "seed"]
    low, high = evidence.interval(rows, metric)
    row: dict[str, Any] = {"variant": str(first["variant"]), "label": str(first["label"]), "attack": metric.attack}
    row |= {"strength": strength_text(first["strength_name"], *rows["strength"]), "metric": metric.name}
    row |= {"value": mean_over(rows, metric), "value_low": low, "value_high": high}
    row |= {"collapsed": bool(rows["collapsed"].eq(True).any()), "over_erased": damage.are_over_erased(rows) is True}
    row |= {"retrained": mean_over(twins, metric), "point_ids": tuple(rows["point_id"])}
    row |= dict.fromkeys(("excess", "excess_low", "excess_high", "p"), math.nan)
    shared = rows[repeats].merge(twins[repeats]).sort_values(repeats)
    if not len(shared):
        return row
    own, twin = shared.merge(rows, how="left"), shared.merge(twins, how="left")
    sign = -1.0 if metric.better == "higher" else 1.0
    row["excess"] = sign * (mean_over(own, metric) - mean_over(twin, metric))
    both = evidence.of(pd.concat([own, twin]), metric)
    if both is not None and (contrast := contrasts.paired_contrast(*split_rows(both, len(own)))) is not None:
        row["excess_low"], row["excess_high"] = sorted(sign * end for end in contrast.interval())
        row["p"] = contrast.p
    return row


def recovery_sentences(frame: pd.DataFrame, info: MetricInfo, target: str) -> list[str]:
    """Return sentences about the methods whose texts an attack recovers at a level beyond chance (Holm over the frame).

    Only attacks that make a model recite count (metrics that are better lower).
    """
    recites = frame["metric"].map(lambda name: info[name].better == "lower" and info[name].group != "erasure")
    tests = frame[recites & frame["strength"].ne("") & ~frame["collapsed"]]
    if tests.empty:
        return []
    is_back = pd.Series(contrasts.holm(list(tests["p"])), index=tests.index) < contrasts.LEVEL
    nothing = f"none of these attacks is found to recover more (Holm over {len(tests)} tests), which proves nothing"
    tests = tests[tests["target"] == target]
    sentences, quiet = [], []
    for (_, label), row_tests in tests.groupby(["variant", "label"], sort=False):
        names = row_tests.loc[is_back[row_tests.index] & row_tests["excess"].gt(0), "attack"].str.lower()
        if len(names):
            sentences.append(f"{label}: attacks recover more than from the retrained model ({', '.join(names)}).")
        elif row_tests["p"].notna().all():
            quiet.append(str(label))
    sentences += [f"{', '.join(quiet)}: {nothing}."] if quiet else []
    return [*sentences, ONE_RUN] if sentences and min(map(len, tests["point_ids"])) == 1 else sentences


def attack_curves(results: Results, table: pd.DataFrame, info: MetricInfo) -> pd.DataFrame:
    """Return the curves that evaluators measured, as means over seeds: a row for each x of a curve.

    Only references and ranked points have theirs returned; with levels, those of the last one.
    """
    places: dict[str, tuple[str, str]] = {}
    for model, rows in table.groupby("model", sort=False):
        target, rows_at_target = list((points_by_target(rows) or {"": rows[rows["ranked"]]}).items())[-1]
        ids = [*rows.loc[rows["method"].isin((ORIGINAL, RETRAINED)), "point_id"], *rows_at_target["point_id"]]
        places |= dict.fromkeys(ids, (str(model), target_text(target, info)))
    curves = []
    for point in results.measured:
        spec, place = point.spec, places.get(point.spec.point_id(point.strength))
        for measurement in point.measurements if place else ():
            for curve in [MeasuredCurve(**note) for note in measurement.notes.get("curves", ())]:
                titles = curve.name, curve.title, curve.x_title, curve.y_title
                row = (*(place or ()), *titles, spec.method, spec.variant, spec.label)
                curves += [(*row, x, y) for x, y in zip(curve.xs, curve.ys, strict=True)]
    names = ["model", "target", "name", "title", "x_title", "y_title", "method", "variant", "label", "x"]
    repeats = pd.DataFrame(curves, columns=[*names, "y"]).groupby(names, sort=False, as_index=False)
    return repeats.agg(y=("y", lambda values: values.mean(skipna=False)))
