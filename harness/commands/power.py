"""How many seeds, models and prompts would tell methods apart, from how far what was measured varies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from harness.analysis.analysis import Analysis
from harness.analysis.cells import NOTHING, number
from harness.analysis.matched.verdicts import Judged, VerdictTable, reference_variant, verdict_tables
from harness.base.messages import console, tell
from harness.errors import DataError, unknown
from harness.library import read_folder, refuse_without_results
from harness.metric import exponential
from harness.statistics.contrasts import POWER, paired_contrast
from harness.statistics.power import MOST_REPLICATES, contrast_power, items_to_find, replicates_to_find

HEADS = ("ratio", "deviation", "power_alone", "power", "needed_alone", "needed", "items", "items_needed")


def print_power(folder: Path, reference: str | None, difference: float | None) -> None:
    """Print the power of each method's contrast with the reference, at each erasure limit.

    Raises:
        DataError: There are no results, no such reference, or no two methods can be compared.
    """
    refuse_without_results(folder)
    analysis = Analysis(read_folder(folder))
    plan, tables = analysis.results.plan, analysis.verdicts
    if reference is not None:
        variants = {row.variant: None for table in analysis.matched for row in table.rows}
        known = dict.fromkeys([*variants, *(variant.partition("(")[0] for variant in variants)])
        if reference not in known:
            raise DataError(unknown("row of this sweep", reference, list(known)))
        tables = verdict_tables(analysis.matched, reference_variant(plan, reference), plan.compare.margin)
    tests = sum(judged.contrast is not None for table in tables for judged in table.rows)
    if not tests:
        raise DataError(
            f"{folder} compares no two methods at equal erasure: that takes a method measured at several strengths, or "
            "a tuned one, which reaches the erasure of the reference, and items in common. Measure more strengths, or "
            "name another --reference."
        )
    for table in tables:
        if any(judged.contrast for judged in table.rows):
            _print_table(table, tests, plan.compare.margin, difference)
    for model in dict.fromkeys(table.matched.model for table in tables if table.has_one_replicate):
        tell(
            f"{model} has one seed: seed variance is unknown, so the required number of seeds cannot be estimated. Run "
            "two more: lethe sweep FILE --set 'seeds=[0, 1, 2]'"
        )
    tell(
        f"Seeds and models: how many find the ratio in {POWER:.0%} of tries on the same prompts and sequences, by one "
        "test or among all planned contrasts. Where no number of them does, more items are needed: so many prompts "
        "(there are), and as many times more sequences.\n"
        "A deviation of three replicates is itself known to a factor of about two: read the counts as sizes."
    )


def pair_power(
    judged: Judged, table: VerdictTable, tests: int, margin: float, difference: float | None = None
) -> dict[str, Any]:
    """Return, by `HEADS`, the power of a method's contrast with the reference among so many planned ones.

    Prompts are counted for a difference of the margin, replicates for the given difference or else the measured one.
    """
    contrast = judged.contrast
    assert contrast is not None
    log = contrast.difference if difference is None else math.log1p(difference)
    ours, theirs = (row.prices[table.metric.name].items for row in (judged.row, table.reference))
    shared = paired_contrast(ours, theirs) if ours is not None and theirs is not None else None
    items = shared.clusters if shared is not None else 0
    variance = contrast.replicates_variance * contrast.replicates if contrast.replicates > 1 else math.nan
    powers = [contrast_power(log, contrast, contrast.replicates, count) for count in (1, tests)]
    needed = [replicates_to_find(log, contrast, count) for count in (1, tests)]
    items_needed = items_to_find(math.log1p(margin), contrast.items_variance, items)
    values = exponential(log), math.sqrt(variance), *powers, *needed, items, items_needed
    return dict(zip(HEADS, values, strict=True))


def _print_table(table: VerdictTable, tests: int, margin: float, difference: float | None) -> None:
    price = table.reference.prices.get(table.metric.name)
    kind = "Models" if price is not None and len(np.unique(price.models_R)) > 1 else "Seeds"
    [replicates, *_] = [judged.contrast.replicates for judged in table.rows if judged.contrast]
    missing = ", ".join(judged.row.label for judged in table.rows if judged.contrast is None)
    reference = table.reference.label
    title = f"{table.matched.model}, {table.matched.limit.text}, {table.metric.title}: {replicates} {kind.lower()}"
    title = title.removesuffix("s") if replicates == 1 else title
    terminal = Table(box=SIMPLE_HEAD, show_edge=False, title=Text(title), title_justify="left")
    if missing:
        terminal.caption = Text(f"Not compared with {reference}: {missing}.")
    terminal.add_column(Text(f"against {reference}"), overflow="fold")
    ratio = "Ratio\nas measured" if difference is None else "Ratio\nasked for"
    heads = [ratio, "SD (log)", "Power\nalone", f"Power\namong {tests}", f"{kind}\nalone", f"{kind}\namong {tests}"]
    for head in (*heads, f"Prompts\nfor {margin:.0%}"):
        terminal.add_column(head, justify="right")
    for judged in table.rows:
        if judged.contrast is None:
            continue
        found = pair_power(judged, table, tests, margin, difference)
        cells = [number(found["ratio"]), number(found["deviation"])]
        cells += [NOTHING if replicates == 1 else f"{found[head]:.2f}" for head in ("power_alone", "power")]
        for head in ("needed_alone", "needed"):
            many = NOTHING if replicates == 1 else f"> {MOST_REPLICATES:,}"
            cells.append(many if found[head] is None else f"{found[head]:,}")
        prompts = "no number" if found["items_needed"] is None else f"{found['items_needed']:,}"
        terminal.add_row(Text(judged.row.label), *cells, f"{prompts} ({found['items']:,})")
    console().print(terminal, "")
