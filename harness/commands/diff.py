"""Two results next to each other: settings, versions and numbers that are not the same."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis.metrics import is_within_noise, metric_info
from harness.base.csv_text import csv_text
from harness.base.files import write_whole
from harness.base.messages import console, tell
from harness.errors import DataError
from harness.library import find_point, read_folder, refuse_without_results
from harness.records.record import cpu_kind
from harness.records.results import PointResults, Results
from harness.records.setting_changes import Change, flat_texts, setting_changes, unequal
from harness.reporting.render import Column, render

MAX_ROWS = 60
OF_PLAN = ("question", "overrides", "ranked_at", "controls", "collapse", "compare", "reproduces", "samples")
COLUMNS = ("kind", "point", "what", "a", "b", "difference", "verdict")


def print_differences(names: tuple[str, str], root: Path, csv: Path | None) -> int:
    """Print the differences of two results folders, or of two points below a root, and return the exit code."""
    are_points = [not Path(name).exists() and "/" not in name for name in names]
    if are_points[0] != are_points[1]:
        raise DataError(f"there is no folder '{names[are_points.index(True)]}'. Name two folders, or two points.")
    found = [find_point(name, root) if are_points[0] else (Path(name), "") for name in names]
    for folder, _ in found:
        refuse_without_results(folder)
    a, b = (read_folder(folder) for folder, _ in found)
    points_a, points_b = (_named_points(side, point_id) for side, (_, point_id) in zip((a, b), found, strict=True))
    if are_points[0]:
        points_b = dict(zip(points_a, points_b.values(), strict=True))
    rows = differences(a, points_a, b, points_b)
    if csv:
        write_whole(csv, csv_text(rows), "the differences")
    kinds = [_cpus(side) for side in (a, b)]
    for side, name, kind in zip("AB", names, kinds, strict=True):
        tell(f"{side}: {name}{kind and f' (on {kind})'}")
    if all(kinds) and kinds[0] != kinds[1]:
        tell("The CPUs are of different kinds: the last bits of whatever is trained differ, and so do digits.")
    unlike = rows[rows["verdict"] != "identical"]
    if unlike.empty:
        tell(f"Nothing differs: {len(rows):,} numbers are the same to the last bit.")
        return 0
    _print_rows(unlike)
    tell(", ".join(f"{count:,} {verdict}" for verdict, count in rows["verdict"].value_counts().items()) + ".")
    return 1


def differences(
    a: Results, points_a: dict[str, PointResults], b: Results, points_b: dict[str, PointResults]
) -> pd.DataFrame:
    """Return a row for each setting, version and point that is not the same, and for each number that either has."""
    plans = [flat_texts(side.plan.model_dump(mode="json", include={*OF_PLAN})) for side in (a, b)]
    packages = _packages(a), _packages(b)
    changes: defaultdict[tuple[str, Change], list[str]] = defaultdict(list)
    changes |= {("setting", change): [] for change in unequal(*plans)}
    changes |= {("version", change): [] for change in unequal(*packages) if all(packages)}
    numbers: list[tuple[Any, ...]] = []
    info = metric_info(b) | metric_info(a)
    for name in [name for name in points_a if name in points_b]:
        one, other = points_a[name], points_b[name]
        renewed = unequal(_plugins(one), _plugins(other))
        explained = [f"evaluators.{what.removeprefix('evaluator ')}.identity" for what, _, _ in renewed]
        strengths = (flat_texts({"strength": point.strength}) for point in (one, other))
        for change in renewed:
            changes["version", change].append(name)
        for change in setting_changes(one.spec, other.spec) + unequal(*strengths):
            if change[0] not in explained:
                changes["setting", change].append(name)
        ours, theirs = _numbers(one), _numbers(other)
        for metric in [metric for metric in info if metric in ours or metric in theirs]:
            (left, definition), (right, defined) = ours.get(metric, (math.nan, "")), theirs.get(metric, (math.nan, ""))
            verdict = "within noise" if is_within_noise(left, right, info[metric]) else "differs"
            if definition and defined and definition != defined:
                verdict = f"not comparable: definition {definition} against {defined}"
            elif left == right or (math.isnan(left) and math.isnan(right)):
                verdict = "identical"
            elif math.isnan(left) or math.isnan(right):
                verdict = "only in B" if math.isnan(left) else "only in A"
            numbers.append(("number", name, metric, left, right, right - left, verdict))
    rows: list[tuple[Any, ...]] = []
    for (kind, (what, left_text, right_text)), names in changes.items():
        where = names[0] if len(names) == 1 else f"{len(names)} points" if names else ""
        rows.append((kind, where, what, left_text, right_text, "", "differs"))
    for side, points, others in (("A", points_a, points_b), ("B", points_b, points_a)):
        rows += [("point", name, "", "", "", "", f"only in {side}") for name in points if name not in others]
    return pd.DataFrame(rows + numbers, columns=COLUMNS)


def _named_points(results: Results, point_id: str) -> dict[str, PointResults]:
    """Return measured points by what both sweeps call them: `emso@3 on miniature-m, seed 0`; if asked only one."""
    named: dict[str, PointResults] = {}
    for point in results.measured:
        spec, strength = point.spec, point.strength
        at = f" at {spec.until}" if spec.until else "" if strength is None else f"@{strength:g}"
        name = first = f"{spec.variant}{at} on {Path(spec.model.id).name}, seed {spec.seed}"
        repeat = 1
        while name in named:
            repeat += 1
            name = f"{first} ({repeat})"
        named[name] = point
    return {name: point for name, point in named.items() if point_id in ("", point.spec.point_id(point.strength))}


def _numbers(point: PointResults) -> dict[str, tuple[float, str]]:
    return {name: (value, each.definition) for each in point.measurements for name, value in each.numbers.items()}


def _plugins(point: PointResults) -> dict[str, str]:
    evaluators = {f"evaluator {evaluator.name}": str(evaluator.version) for evaluator in point.spec.evaluators}
    return {f"method {point.spec.method}": str(point.spec.method_version), **evaluators}


def _packages(results: Results) -> dict[str, str]:
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for attempt in [attempt for trial in results.trials for attempt in trial.versions]:
        for name, version in attempt.items():
            versions[name].add(version)
    return {name: ", ".join(sorted(of_package)) for name, of_package in versions.items()}


def _cpus(results: Results) -> str:
    kinds = [cpu_kind(attempt.hardware) for trial in results.trials for attempt in trial.attempts]
    return ", ".join(dict.fromkeys(filter(None, kinds)))


def _print_rows(rows: pd.DataFrame) -> None:
    rows = rows.sort_values("verdict", key=lambda verdicts: verdicts == "within noise", kind="stable")
    left_out = len(rows) - MAX_ROWS
    shown = rows.head(MAX_ROWS)
    for name in ("a", "b"):
        texts = shown[name].map(lambda value: f"{value:.6g}" if isinstance(value, float) else value)
        shown = shown.assign(**{name: texts})
    titles = {"what": "What", "point": "Point", "a": "A", "b": "B", "verdict": ""}
    console().print(render(shown, [Column(name, title, "note") for name, title in titles.items()], "terminal"))
    if left_out > 0:
        tell(f"and {left_out:,} more: --csv FILE writes all of them.")
