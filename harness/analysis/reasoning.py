"""Reasoning before and after: each row's accuracies, and how they changed."""

from __future__ import annotations

import pandas as pd

from harness.analysis.metrics import mean_over, metrics_in
from harness.analysis.ranking import RankedTable
from harness.analysis.seeds import ranked_rows, strengths
from harness.specs import ORIGINAL, REFERENCE_ROWS, UNSEEN_ROWS


def reasoning_frame(ranked: RankedTable) -> pd.DataFrame:
    """Return a row for each model's references and ranked variants; no rows if the sweep measured no reasoning task.

    Each task is a mean over seeds with its 95 % interval, `NAME_low` and `NAME_high`; `NAME_change` is its difference
    from the original's mean.
    """
    tasks, rows = metrics_in(ranked.info, "reasoning"), []
    table = ranked.table[~ranked.table["method"].isin(UNSEEN_ROWS)]
    for model, of_model in table.groupby("model", sort=False) if tasks else ():
        originals = of_model[of_model["method"] == ORIGINAL]
        is_reference = of_model["method"].isin(REFERENCE_ROWS)
        shown = pd.concat([of_model[is_reference], ranked_rows(of_model[~is_reference])])
        for variant, seeds in shown.groupby("variant", sort=False):
            first = seeds.iloc[0]
            strength = f"{first['strength_name']} {strengths(list(seeds['strength']))}".strip()
            row = {"model": model, "variant": variant, "label": first["label"], "strength": strength}
            row["collapsed"] = bool(seeds["collapsed"].eq(True).any())
            for task in tasks:
                mean, (low, high) = mean_over(seeds, task), ranked.evidence.interval(seeds, task)
                row |= {task.name: mean, f"{task.name}_low": low, f"{task.name}_high": high}
                if variant != ORIGINAL:
                    row[f"{task.name}_change"] = mean - mean_over(originals, task)
            rows.append(row)
    return pd.DataFrame(rows)
