"""Verbs on finished results: collate, verify, diff and power."""

import math
import os
import shlex
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from harness.analysis import caveats, damage, metrics, ranking
from harness.analysis.analysis import Analysis
from harness.analysis.answer import Answer, values_by_run
from harness.analysis.table import csv_text, read_table
from harness.base.files import write_whole
from harness.base.messages import console, shown, tell
from harness.base.settings import flatten_texts
from harness.contracts import exponential
from harness.errors import DataError, unknown
from harness.library import SweepResults, find_point, load_results, read_folder
from harness.planning import published
from harness.planning.setting_changes import Change, find_differences, setting_changes
from harness.records import journal, mlflow
from harness.records.results import PointResults, Results, read_sweep_results
from harness.reporting import sections, summary
from harness.reporting.files import point_tags, write, write_tables, written_files
from harness.reporting.render import Column, render
from harness.reporting.sections.repeat import versions
from harness.settings import HOLDOUT, Level, Plan, replace
from harness.statistics import contrasts


def tell_outcome(outcome: SweepResults, part: Plan) -> int:
    """Tell a sweep's answer and its unfinished work; return the exit code."""
    print_ranking(outcome.analysis)
    is_unfinished = tell_unfinished(read_sweep_results(part, journal.Journal(outcome.folder / "journal")))
    tell(f"The report: {outcome.report}", *check_of_export(outcome.analysis))
    return int(is_unfinished)


def print_ranking(analysis: Analysis) -> None:
    """Print the answer and the ranked rows."""
    erases = analysis.results.plan.erases
    if erases:
        console().print(summary.answer_on_terminal(analysis), "")
    console().print(sections.main_table.ranking_table(analysis.ranked, is_below_answer=erases))
    if erases:
        console().print(*sections.attacks.attacks_on_terminal(analysis.attacks, analysis.info), sep="\n")
    if len(analysis.published):
        console().print(render(*sections.main_table.published_table(analysis.published), "terminal"))


def tell_unfinished(results: Results) -> bool:
    """Tell unfinished and failed trials; return whether there are any."""
    for trial in results.unfinished:
        spec, reason = trial.spec, f": {shown(trial.failure.reason)}" if trial.failure else ""
        tell(f"{trial.status}: {spec.variant} on {spec.model.id}, seed {spec.seed} ({spec.trial_id}){reason}")
    studies = results.unfinished_studies
    for study in studies:
        spec, progress = study.spec.trial, f"{len(study.candidates)} of {study.spec.trials} candidates are tried"
        name = f"{spec.variant} on {spec.model.id}, {study.spec.seeds_text}, {study.spec.search} search"
        tell(f"missing: {name}: {progress}, and none is chosen until the search is over ({spec.trial_id})")
    failed = [study for study in results.studies if study.is_failed]
    for study in failed:
        spec, failure = study.spec.trial, study.failure or "no candidate gave a number"
        remedy = f"Give it another range (tune.space.{spec.variant.partition('(')[0]})"
        tell(f"failed: {spec.variant} on {spec.model.id}, {study.spec.seeds_text}: {shown(failure)} {remedy}.")
    return bool(results.unfinished or studies or failed)


def collate_folder(folder: Path, out: Path | None) -> int:
    """Write a sweep's report again; return the exit code."""
    analysis = Analysis(read_folder(folder))
    files = write(analysis, out or folder)
    print_ranking(analysis)
    tell(*files)
    return 0 if out else copy_to_mlflow(analysis, folder.resolve())


def copy_to_mlflow(analysis: Analysis, folder: Path) -> int:
    """Write the missing runs of a sweep to MLflow; return the exit code."""
    tags = point_tags(analysis.ranked.table, analysis.attacks)
    try:
        mlflow.copy_sweep(folder, analysis.results, tags, written_files(folder), summary.answer_markdown(analysis))
    except Exception as error:
        reason = mlflow.describe_failure(error, folder.parent)
        tell(f"{reason} Fix that and run this again: it continues where it stopped.", is_error=True)
        return 1
    tell(f"MLflow at {mlflow.describe_store(folder.parent)} holds what the journal of {folder.name} holds.")
    return 0


def collate_table(path: Path, out: Path | None) -> int:
    """Rank a table; collapse flags are computed unless it has their classes. Return the exit code."""
    table, info = read_table(path)
    has_classes = table["collapse_class"].any()
    ranked = ranking.rank(table if has_classes else damage.flag(table, info), info)
    console().print(sections.main_table.ranking_table(ranked))
    tell(*caveats.unranked_metrics(ranked))
    if not has_classes:
        both = table.merge(ranked.ranking, on=["model", "variant"], suffixes=("", "_ours"))
        names = [name for name in ranking.rank_names(ranked.info) if name in table.columns]
        ranks = [one == our for name in names for one, our in zip(both[name], both[f"{name}_ours"], strict=True) if one]
        flags = ranked.table["collapsed"].eq(table["collapsed"])[table["collapsed"].notna()]
        for what, same in (("ranks", ranks), ("collapse flags", list(flags))):
            if same:
                tell(f"{sum(same)} of the {len(same)} {what} that the file states agree with these.")
    if out:
        tell(*write_tables(ranked, path.stem, out))
    return 0


def verify_table(folder: Path) -> int:
    """Print the published table next to ours; return the exit code."""
    cells = complete_tables(folder)
    console().print(sections.main_table.verified_table(cells), "")
    inside, outside = (int(cells["is_inside"].eq(side).sum()) for side in (True, False))
    set_aside = int(cells["is_set_aside"].sum())
    unlike = len(cells) - inside - outside - set_aside
    tell(f"{inside + outside} of {len(cells)} cells can be compared: {inside} inside, {outside} outside.")
    if set_aside:
        tell(f"{set_aside} are set aside: their published figures cannot be compared.")
    if unlike:
        tell(f"The table is not verified: {unlike} of its cells cannot be compared, for the reasons above.")
    return 0 if inside and not outside + unlike else 1


def complete_tables(folder: Path) -> pd.DataFrame:
    """Return the published table next to ours; all its rows must be in the results."""
    outcome = load_results(folder)
    plan = outcome.results.plan
    if plan.reproduces is None:
        raise DataError(
            f"the sweep '{plan.sweep}' reproduces no published table. If it should, add to its sweep file reproduces: "
            f"NAME, one of {', '.join(published.published_conditions())}, and run it again: nothing is measured twice."
        )
    frame = outcome.analysis.published
    names = frame["label"] + " on " + frame["model"]
    lacking = frame["lacking"].ne("")
    if missing := list(dict.fromkeys(names[lacking] + ": " + frame["lacking"][lacking])):
        present = ", ".join(dict.fromkeys(names[~lacking]))
        raise DataError(
            f"{folder} lacks rows of the published table:\n  " + "\n  ".join(missing) + "\n"
            f"It has: {present or 'none'}. Add the missing evaluators to the sweep file, or run the sweep again."
        )
    return frame


def check_of_export(analysis: Analysis) -> list[str]:
    """Return the command that audits the model that the card exports, if its texts are in a file."""
    results, models = analysis.results, analysis.answer.heads if analysis.results.plan.until else ()
    commands = []
    for point in filter(None, (summary.recommended_point(model, analysis) for model in models)):
        spec = point.spec
        sources = [spec.forget, *(each.spec.forget for each in results.trials if each.spec.method == HOLDOUT)]
        files = [os.path.relpath(source.path) for source in sources if source.path and source.source in FILE_SOURCES]
        if spec.forget.source in FILE_SOURCES and not (spec.forget.sequences or spec.forget.start or spec.forget.where):
            options = ["--unseen", files[1]] if len(files) > 1 else []
            options += ["--field", spec.forget.field] if spec.forget.field != "text" else []
            lengths = f"--prefix-tokens {spec.forget.prefix_tokens} --sequence-tokens {spec.forget.sequence_tokens}"
            folder = summary.export_folder(spec, analysis)
            audit = ["lethe", "audit", folder, files[0], *options, *lengths.split(), "--original", spec.model.id]
            commands.append(f"To check {spec.label}'s model, once it is exported: {shlex.join(audit)}")
    return commands


MAX_ROWS = 60
FILE_SOURCES = ("jsonl", "csv", "text", "npy")
"""Sources that `lethe audit` reads from a file."""
Points = dict[str, PointResults]
PLAN_FIELDS = ("question", "overrides", "ranked_at", "controls", "collapse", "compare", "reproduces", "samples")
COLUMNS = ("kind", "point", "what", "a", "b", "difference", "verdict")


def print_differences(names: tuple[str, str], root: Path, csv: Path | None) -> int:
    """Print the differences of two results folders, or of two points below a root; return the exit code."""
    are_points = [not Path(name).exists() and "/" not in name for name in names]
    if are_points[0] != are_points[1]:
        raise DataError(f"there is no folder '{names[are_points.index(True)]}'. Name two folders, or two points.")
    locations = [find_point(name, root) if are_points[0] else (Path(name), "") for name in names]
    a, b = (read_folder(folder) for folder, _ in locations)
    points_a, points_b = (_named_points(side, point_id) for side, (_, point_id) in zip((a, b), locations, strict=True))
    if are_points[0]:
        points_b = dict(zip(points_a, points_b.values(), strict=True))
    rows = differences(a, points_a, b, points_b)
    if csv:
        write_whole(csv, csv_text(rows), "the differences")
    for side, name in zip("AB", names, strict=True):
        tell(f"{side}: {name}")
    unlike = rows[rows["verdict"] != "identical"]
    if unlike.empty:
        tell(f"Nothing differs: {len(rows):,} numbers are the same to the last bit.")
        return 0
    unlike = unlike.sort_values("verdict", key=lambda verdicts: verdicts == "within noise", kind="stable")
    texts = unlike.head(MAX_ROWS).map(lambda value: f"{value:.6g}" if isinstance(value, float) else value)
    titles = {"what": "What", "point": "Point", "a": "A", "b": "B", "verdict": ""}
    console().print(render(texts, [Column(name, title, "note") for name, title in titles.items()], "terminal"))
    if len(unlike) > MAX_ROWS:
        tell(f"and {len(unlike) - MAX_ROWS:,} more: --csv FILE writes all of them.")
    tell(", ".join(f"{verdict}: {count:,}" for verdict, count in rows["verdict"].value_counts().items()) + ".")
    return 1


def differences(a: Results, points_a: Points, b: Results, points_b: Points) -> pd.DataFrame:
    """Return a row for each setting, version and point that differs, and for each number."""
    plans = [flatten_texts({name: getattr(side.plan, name) for name in PLAN_FIELDS}) for side in (a, b)]
    packages = _packages(a), _packages(b)
    changes: defaultdict[tuple[str, Change], list[str]] = defaultdict(list)
    changes |= {("setting", change): [] for change in find_differences(*plans)}
    changes |= {("version", change): [] for change in find_differences(*packages) if all(packages)}
    info, numbers = metrics.metric_info(b) | metrics.metric_info(a), list[tuple[Any, ...]]()
    for name in [name for name in points_a if name in points_b]:
        one, other = points_a[name], points_b[name]
        strengths = (flatten_texts({"strength": point.strength}) for point in (one, other))
        for change in setting_changes(one.spec, other.spec) + find_differences(*strengths):
            changes["setting", change].append(name)
        ours, theirs = _numbers(one), _numbers(other)
        for metric in [metric for metric in info if metric in ours or metric in theirs]:
            (left, definition), (right, defined) = ours.get(metric, (math.nan, "")), theirs.get(metric, (math.nan, ""))
            verdict = "within noise" if metrics.is_within_noise(left, right, info[metric]) else "differs"
            if definition and defined and definition != defined:
                verdict = f"not comparable: definition {definition} against {defined}"
            elif left == right or (math.isnan(left) and math.isnan(right)):
                verdict = "identical"
            elif math.isnan(left) or math.isnan(right):
                verdict = "only in B" if math.isnan(left) else "only in A"
            numbers.append(("number", name, metric, left, right, right - left, verdict))
    rows: list[tuple[Any, ...]] = []
    for (kind, change), names in changes.items():
        where = names[0] if len(names) == 1 else f"{len(names)} points" if names else ""
        rows.append((kind, where, *change, "", "differs"))
    for side, points, others in (("A", points_a, points_b), ("B", points_b, points_a)):
        rows += [("point", name, "", "", "", "", f"only in {side}") for name in points if name not in others]
    return pd.DataFrame(rows + numbers, columns=COLUMNS)


def _named_points(results: Results, point_id: str) -> Points:
    points, counts = Points(), Counter[str]()
    for point in results.measured:
        spec, strength = point.spec, point.strength
        at = f" at {spec.until}" if spec.until else "" if strength is None else f"@{strength:g}"
        name = f"{spec.variant}{at} on {Path(spec.model.id).name}, seed {spec.seed}"
        counts[name] += 1
        points[name if counts[name] == 1 else f"{name} ({counts[name]})"] = point
    return {name: point for name, point in points.items() if point_id in ("", point.spec.point_id(point.strength))}


def _numbers(point: PointResults) -> dict[str, tuple[float, str]]:
    return {name: (value, each.definition) for each in point.measurements for name, value in each.numbers.items()}


def _packages(results: Results) -> dict[str, str]:
    kinds = {journal.cpu_kind(attempt.hardware) for trial in results.trials for attempt in trial.attempts}
    return dict(versions(results)) | ({"processor": ", ".join(sorted(kinds))} if kinds else {})


EARLIER_DEVIATIONS = (0.10, 0.48)
"""Range of the deviations of log prices over runs in earlier sweeps, for methods with fewer than three runs."""
MORE = 2
"""Additional runs that are considered."""


def print_power(folder: Path, reference: str | None, difference: float | None) -> None:
    """Print the effect of more runs on each method's verdict, at the first level."""
    results = read_folder(folder)
    plan = results.plan
    if reference is not None:
        variants = [trial.variant for trial in plan.trials if not trial.is_reference]
        if reference not in (names := [*variants, *(variant.partition("(")[0] for variant in variants)]):
            raise DataError(unknown("row of this sweep", reference, list(dict.fromkeys(names))))
        results = replace(results, plan=replace(plan, compare=replace(plan.compare, reference=reference)))
    answer = Analysis(results).answer
    frames = {model: power_frame(answer, model, plan.until[0], difference) for model in answer.heads if plan.until}
    if not any(map(len, frames.values())):
        raise DataError(
            f"{folder} compares no two methods: two must reach its first level (until: {{ma: [0.75]}}) in the same "
            "run, and neither may be broken there. Give the sweep such a level, or name another --reference."
        )
    columns = [Column("runs", "Runs", "count"), Column("ratio", "Ratio", "ratio")]
    columns += [Column("deviation", "Deviation (log)", "number")]
    columns += [Column("found", f"With {MORE} more runs\nfound in (share of tries)")]
    columns += [Column("needed", "Runs that find it\nin 8 of 10 tries")]
    for model, frame in frames.items():
        if len(frame):
            first = Column("label", f"Against {frame.attrs['reference']}")
            level = summary.level_text(plan.until[0], answer.heads[model])
            console().print(f"\n{model}, {level}", render(frame, [first, *columns], "terminal"), sep="\n")
    tell(
        "A range is due to the deviation's own uncertainty (80 %). With fewer than three runs the deviation is"
        " that of earlier sweeps, and a ratio below ×1.5 may be luck. A run is another training seed: --set "
        "'seeds=[0, 1, 2, 3, 4]'. Where no number of runs is enough, the difference is too small for these prompts."
    )


def power_frame(answer: Answer, model: str, level: Level, difference: float | None = None) -> pd.DataFrame:
    """Return the power of more runs for each method, at its measured ratio or at a given difference."""
    logs, rows = answer.log_prices[model, level.key], answer.at(model, level).set_index("variant")
    rows["label"] = rows["label"].where(~rows["label"].duplicated(keep=False), rows.index)
    compared = rows[rows["ratio"].notna() & ~rows["is_reference"].astype(bool)]
    [reference] = rows.index[rows["is_reference"].astype(bool)] if len(compared) else [""]
    differences = {str(name): values_by_run(logs[name] - logs[reference]) for name in compared.index}
    variances = {str(name): float(variance) for name, variance in compared["item_variance"].fillna(0.0).items()}
    judged = contrasts.judge_methods(differences, variances, 0.0)
    records = []
    for name, one in judged.items():
        items, is_guess = variances[name], math.isnan(one.deviation)
        low, high = EARLIER_DEVIATIONS if is_guess else contrasts.deviation_bounds(one.deviation, one.runs - 1)
        log = one.difference if difference is None else math.log1p(difference)
        chances = [contrasts.power(log, bound, one.runs + MORE, len(judged), items) for bound in (low, high)]
        powers = [f"{chance:.2f}" for chance in sorted(chances)]
        counts = [contrasts.runs_needed(log, bound, len(judged), items) for bound in (low, high)]
        run_counts = [f"> {contrasts.MAX_RUNS}" if count is None else str(count) for count in counts]
        label, ratio = rows.at[name, "label"], exponential(log)
        records.append((name, label, one.runs, ratio, one.deviation, low, high, _range(powers), _range(run_counts)))
    columns = ["variant", "label", "runs", "ratio", "deviation", "deviation_low", "deviation_high", "found", "needed"]
    frame = pd.DataFrame(records, columns=columns)
    frame.attrs["reference"] = rows.at[reference, "label"] if records else ""
    return frame


def _range(ends: list[str]) -> str:
    return "–".join(dict.fromkeys(ends))
