"""The outcome of a sweep in plain sentences, and the notes on every table."""

from __future__ import annotations

import pandas as pd

from harness.analysis.cells import NOTHING, number
from harness.analysis.collapse import verdict
from harness.analysis.metrics import MetricInfo, mean_over
from harness.analysis.ranking import CONTROL, ERASED_NOTHING, NOTHING_TO_ERASE, RankedTable
from harness.analysis.seeds import ranked_rows, seed_count
from harness.specs import ORIGINAL

LETTERS = (
    "Methods that share a letter in a column do not differ significantly (paired tests over the same items, Holm "
    "within the column)."
)
GROUP_LETTERS = (
    "In brackets: the bounds of 95 % of the ranks in draws of the numbers. Rows that share a letter in Group cannot be "
    "told apart by their average rank; of a single training run nothing can."
)
OTHER_TEXTS = "what other texts would have given, not other training runs"
"""What an interval over items of a single seed says."""
DEFINITIONS = {
    "exact": "the formulas, mended where they slip, on all the evidence",
    "table": "the evaluation that the published tables were almost certainly made with",
}


def caption(table: pd.DataFrame) -> str:
    """Return what a reader of any table must know: the definition behind its numbers, who judged, and the seeds."""
    sentences = []
    for definition in sorted(set(table["definition"])) or [""]:
        meaning = f" ({DEFINITIONS[definition]})" if definition in DEFINITIONS else ""
        sentences.append(f"Definition: {definition or 'not stated'}{meaning}.")
    for roles in sorted(set(table["judged_by_original"]) - {""}):
        sentences.append(f"Judge of {roles}: the original model itself.")
    count = seed_count(table)
    has_items = any(name.endswith("_low") for name in table.columns)
    items = "the items (sequences, prompts, questions)"
    if count > 1:
        sentences.append(f"Means over {count} seeds.")
        sentences.append(f"Small: the 95 % interval, over {count} seeds{f' and {items}' if has_items else ''}.")
    elif has_items:
        sentences.append(f"Small: the 95 % interval over {items}: {OTHER_TEXTS}.")
    return " ".join(sentences)


def outcome(ranked: RankedTable) -> list[tuple[str, list[str]]]:
    """Return for each model a few sentences: who ranks where, what the first one paid, who collapsed."""
    of_models = []
    for model, ranks in ranked.ranking.groupby("model", sort=False):
        rows = ranked.table[ranked.table["model"] == model]
        of_models.append((str(model), _outcome_sentences(rows, ranks, ranked.info)))
    return of_models


def _outcome_sentences(rows: pd.DataFrame, ranks: pd.DataFrame, info: MetricInfo) -> list[str]:
    is_recited = not ranks["recited"].eq(False).any()
    sentences = [] if is_recited else ["Nothing is ranked: there is nothing to erase."]
    unsaid = (CONTROL,) if is_recited else (CONTROL, NOTHING_TO_ERASE)
    order, collapsed, idle, others = [], [], [], []
    for _, row in ranks.iterrows():
        strength = f"{row['strength_name']} {row['strength']}".strip()
        name = f"{row['label']} ({strength})" if strength else str(row["label"])
        if row["collapsed"] is True:
            collapsed.append(f"{row['label']} ({verdict(row['collapse_class'], row['collapse_reason'])})")
        if row["rank_average"] != "":
            low, high = row["rank_average_low"], row["rank_average_high"]
            order.append(
                f"{row['rank_average']}{f' ({low}–{high})' if low else ''}\u00a0{name}".replace(" (", "\u00a0(")
            )
        elif row["collapsed"] is not True and row["unranked"] == ERASED_NOTHING:
            idle.append(name)
        elif row["collapsed"] is not True and row["unranked"] not in unsaid:
            others.append(f"{name} has no average rank: {row['unranked'] or 'a group was not measured'}.")
    if order:
        first = ranks[ranks["rank_average"] != ""].iloc[0]
        if not ranks["recited"].eq(True).any():
            sentences.append("These ranks are provisional: nothing shows that there is anything to erase.")
        sentences.append(f"Average rank: {' · '.join(order)}.")
        sentences.append(f"{first['label']}, from the original model: {_changes(rows, first['variant'], info)}.")
    if collapsed:
        sentences.append(f"Collapsed, so shown and not ranked: {', '.join(collapsed)}.")
    if idle:
        sentences.append(f"Erased nothing beyond noise, so shown and not ranked: {', '.join(idle)}.")
    return sentences + others


def _changes(rows: pd.DataFrame, variant: str, info: MetricInfo) -> str:
    """Return `MA 0.95 → 0.47, …`: from the original to the variant's ranked point."""
    original = rows[rows["method"] == ORIGINAL]
    chosen = ranked_rows(rows[rows["variant"] == variant])
    changes = []
    for metric in info.values():
        if metric.headline:
            before, after = mean_over(original, metric), mean_over(chosen, metric)
            changes.append(f"{metric.title} {number(before, metric)} → {number(after, metric)}")
    return ", ".join(changes) or NOTHING
