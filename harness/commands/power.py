"""How many runs would tell methods apart, from a pilot's prices."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from harness.analysis.analysis import Analysis
from harness.analysis.answer import Answer
from harness.base.messages import console, tell
from harness.errors import DataError, unknown
from harness.library import read_folder, refuse_without_results
from harness.metric import exponential
from harness.reporting.render import Column, render
from harness.settings import Level, replace
from harness.statistics import protocol

EARLIER_DEVIATIONS = (0.10, 0.32)
"""Of log prices from run to run in earlier sweeps: what is known before a method has three runs of its own."""
MORE = 2
"""Runs that are asked about."""


def print_power(folder: Path, reference: str | None, difference: float | None) -> None:
    """Print what more runs would tell of each method, at the first level.

    Raises:
        DataError: There are no results, no such reference, or no two methods can be compared.
    """
    refuse_without_results(folder)
    results = read_folder(folder)
    plan = results.plan
    if reference is not None:
        variants = [trial.variant for trial in plan.trials if not trial.is_reference]
        if reference not in (known := [*variants, *(variant.partition("(")[0] for variant in variants)]):
            raise DataError(unknown("row of this sweep", reference, list(dict.fromkeys(known))))
        results = replace(results, plan=replace(plan, compare=replace(plan.compare, reference=reference)))
    answer = Analysis(results).answer
    said = False
    for model in answer.heads if plan.until else ():
        frame = power_frame(answer, model, plan.until[0], difference)
        if len(frame):
            said = True
            runs = f"With {MORE} more runs\nfound in (share of tries)", "Runs that find it\nin 8 of 10 tries"
            columns = [Column("label", f"Against {frame.attrs['reference']}"), Column("runs", "Runs", "count")]
            columns += [Column("ratio", "Ratio", "ratio"), Column("deviation", "Deviation (log)", "number")]
            console().print(f"\n{model}, {plan.until[0]}")
            console().print(render(frame, [*columns, Column("found", runs[0]), Column("needed", runs[1])], "terminal"))
    if not said:
        raise DataError(
            f"{folder} compares no two methods: that takes a level (until: {{ma: [0.75]}}) that two of them reached in "
            "the same run. Give the sweep a level that is reached, or name another --reference."
        )
    tell(
        "A range is what the deviation's own uncertainty leaves (80 %). With fewer than three runs the deviation is"
        " that of earlier sweeps, and a ratio below ×1.5 may be luck. A run is a training seed with its search: --set "
        "'seeds=[0, 1, 2, 3, 4]'. Where no number of runs is enough, the difference is too small for these prompts."
    )


def power_frame(answer: Answer, model: str, level: Level, difference: float | None = None) -> pd.DataFrame:
    """Return what more runs would tell of each method next to the reference, at its ratio or at a difference."""
    logs, rows = answer.log_prices[model, level.key], answer.at(model, level).set_index("variant")
    rows["label"] = rows["label"].where(~rows["label"].duplicated(keep=False), rows.index)
    compared = rows[rows["ratio"].notna() & ~rows["is_reference"].astype(bool)]
    [reference] = rows.index[rows["is_reference"].astype(bool)] if len(compared) else [""]
    differences = {str(name): (logs[name] - logs[reference]).to_numpy() for name in compared.index}
    variances = {str(name): float(variance) for name, variance in compared["item_variance"].fillna(0.0).items()}
    judged = protocol.judge_methods(differences, variances, 0.0)
    shown = []
    for name, one in judged.items():
        items = variances[name]
        low, high = EARLIER_DEVIATIONS
        if not math.isnan(one.deviation):
            low, high = protocol.deviation_bounds(one.deviation, protocol.degrees_of_freedom(one.runs, len(judged)))
        log = one.difference if difference is None else math.log1p(difference)
        found = [protocol.power(log, bound, one.runs + MORE, len(judged), items) for bound in (high, low)]
        needed = [protocol.runs_needed(log, bound, len(judged), items) for bound in (low, high)]
        shown.append(
            {
                "variant": name, "label": rows.at[name, "label"], "runs": one.runs, "ratio": exponential(log),
                "deviation": one.deviation, "deviation_low": low, "deviation_high": high,
                "found": _range([f"{share:.2f}" for share in found]),
                "needed": _range([f"> {protocol.MAX_RUNS}" if count is None else str(count) for count in needed]),
            }
        )  # fmt: skip
    frame = pd.DataFrame(shown)
    frame.attrs["reference"] = rows.at[reference, "label"] if shown else ""
    return frame


def _range(ends: list[str]) -> str:
    return "–".join(dict.fromkeys(ends))
