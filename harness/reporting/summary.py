"""The outcome of a sweep in plain sentences, and what stands under every table."""

from __future__ import annotations

import pandas as pd

from harness.analysis.cells import NOTHING, number
from harness.analysis.collapse import verdict
from harness.analysis.metrics import MetricInfo
from harness.analysis.ranking import CONTROL, ERASED_NOTHING, NOTHING_TO_ERASE, RankedTable
from harness.analysis.seeds import ranked_rows, seed_count
from harness.specs import ORIGINAL

LETTERS = "Methods that share a letter in a column cannot be told apart (paired tests over the same items, Holm)."
DEFINITIONS = {
    "exact": "the formulas, mended where they slip, on all the evidence",
    "table": "the evaluation that the published tables were almost certainly made with",
}


def caption(table: pd.DataFrame) -> str:
    """Return what a reader of any table must know: the definition behind its numbers, who judged, and the seeds."""
    stated = [_stated(name) for name in sorted(set(table["definition"])) or [""]]
    count = seed_count(table)
    over = [f"{count} seeds"] if count > 1 else []
    over += (
        ["the items (sequences, prompts, questions)"] if any(name.endswith("_low") for name in table.columns) else []
    )
    intervals = f" Small: the 95 % interval, over {' and '.join(over)}." if over else ""
    seeds = f" Means over {count} seeds; rank intervals from resampled seeds." if count > 1 else ""
    judged = [
        f" Judge of {roles}: the original model itself." for roles in sorted(set(table["judged_by_original"])) if roles
    ]
    return " ".join(stated) + "".join(judged) + seeds + intervals


def _stated(definition: str) -> str:
    meaning = DEFINITIONS.get(definition)
    return f"Definition: {definition or 'not stated'}{f' ({meaning})' if meaning else ''}."


def outcome(ranked: RankedTable) -> list[tuple[str, list[str]]]:
    """Return for each model a few sentences: who ranks where, what the first one paid, who collapsed."""
    return [
        (str(model), _sentences(ranked.table[ranked.table["model"] == model], ranks, ranked.info))
        for model, ranks in ranked.ranking.groupby("model", sort=False)
    ]


def _sentences(rows: pd.DataFrame, ranks: pd.DataFrame, info: MetricInfo) -> list[str]:
    has_rank, has_collapsed = ranks["rank_average"] != "", ranks["collapsed"].eq(True)
    is_other = ~has_rank & ~has_collapsed & (ranks["unranked"] != CONTROL)
    ranked, collapsed, others = ranks[has_rank], ranks[has_collapsed], ranks[is_other]
    sentences = []
    if ranks["recited"].eq(False).any():
        sentences.append("Nothing is ranked: there is nothing to erase.")
        others = others[others["unranked"] != NOTHING_TO_ERASE]
    is_idle = others["unranked"] == ERASED_NOTHING
    idle, others = others[is_idle], others[~is_idle]
    if len(ranked):
        order = [f"{row['rank_average']}\u00a0{_named(row)}" for _, row in ranked.iterrows()]
        first = ranked.iloc[0]
        if not ranks["recited"].eq(True).any():
            sentences.append("The ranks stand under a reserve: nothing shows that there is anything to erase.")
        sentences.append(f"Average rank: {' · '.join(order)}.")
        sentences.append(f"{first['label']}, from the original model: {_change(rows, first['variant'], info)}.")
    if len(collapsed):
        names = [
            f"{row['label']} ({verdict(row['collapse_class'], row['collapse_reason'])})"
            for _, row in collapsed.iterrows()
        ]
        sentences.append(f"Collapsed, so shown and not ranked: {', '.join(names)}.")
    if len(idle):
        names = [_named(row) for _, row in idle.iterrows()]
        sentences.append(f"Erased nothing beyond noise, so shown and not ranked: {', '.join(names)}.")
    for _, row in others.iterrows():
        sentences.append(f"{_named(row)} has no average rank: {row['unranked'] or 'a group was not measured'}.")
    return sentences


def _named(row: pd.Series) -> str:
    strength = f"{row['strength_name']} {row['strength']}".strip()
    return f"{row['label']} ({strength})" if strength else str(row["label"])


def _change(rows: pd.DataFrame, variant: str, info: MetricInfo) -> str:
    """Return `MA 0.95 → 0.47, …`: from the original to the variant's ranked point."""
    original = rows[rows["method"] == ORIGINAL]
    chosen = ranked_rows(rows[rows["variant"] == variant])
    changes = []
    for metric in [metric for metric in info.values() if metric.headline]:
        before, after = (number(seeds[metric.name].mean(skipna=False), metric) for seeds in (original, chosen))
        changes.append(f"{metric.title} {before} → {after}")
    return ", ".join(changes) or NOTHING
