"""The outcome of a sweep in plain sentences, and what a reader must be warned of."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.records.journal import status
from harness.reporting.collapse import REPEATS, repetitions, verdict
from harness.reporting.facts import Facts, Records, metric_facts
from harness.reporting.judging import doubtful, human_readings
from harness.reporting.layout import NOTHING, number, strength_text
from harness.reporting.limits import limits
from harness.reporting.ranking import NOTHING_TO_ERASE
from harness.reporting.seeds import ranked_rows, seed_count
from harness.reporting.table import Reached, failures, reached_all
from harness.specs import ORIGINAL, UNSEEN_ROWS, Plan, TrialSpec

TRUSTED_PROMPTS = 256
"""MAUVE from fewer generations is not trusted."""

DEFINITIONS = {
    "exact": "Definition: exact (the formulas, mended where they slip, on all the evidence).",
    "table": "Definition: table (the evaluation that the published tables were almost certainly made with).",
    "": "Definition: not stated.",
}


def caption(table: pd.DataFrame) -> str:
    """Return what a reader of any table must know: the definition behind its numbers, who judged, and the seeds."""
    stated = [DEFINITIONS.get(name, f"Definition: {name}.") for name in sorted(set(table["definition"]))]
    count = seed_count(table)
    seeds = f" Mean ± 95 % interval over {count} seeds; rank intervals from resampled seeds." if count > 1 else ""
    judged = [
        f" Judge of {roles}: the original model itself." for roles in sorted(set(table["judged_by_original"])) if roles
    ]
    return " ".join(stated or [DEFINITIONS[""]]) + "".join(judged) + seeds


def outcome(table: pd.DataFrame, ranking: pd.DataFrame, facts: Facts) -> list[tuple[str, list[str]]]:
    """Return for each model a few sentences: who ranks where, what the first one paid, who collapsed."""
    by_model = ranking.groupby("model", sort=False)
    return [(str(model), _of_model(table[table["model"] == model], ranks, facts)) for model, ranks in by_model]


def _of_model(rows: pd.DataFrame, ranks: pd.DataFrame, facts: Facts) -> list[str]:
    has_rank, has_collapsed = ranks["rank_average"] != "", ranks["collapsed"].eq(True)
    ranked, collapsed, others = ranks[has_rank], ranks[has_collapsed], ranks[~has_rank & ~has_collapsed]
    sentences = []
    if ranks["recited"].eq(False).any():
        sentences.append("Nothing is ranked: there is nothing to erase.")
        others = others[others["unranked"] != NOTHING_TO_ERASE]
    if len(ranked):
        places = [f"{row['rank_average']}\u00a0{_named(row)}" for _, row in ranked.iterrows()]
        first = ranked.iloc[0]
        if not ranks["recited"].eq(True).any():
            sentences.append("The ranks stand under a reserve: nothing shows that there is anything to erase.")
        sentences.append(f"Average rank: {' · '.join(places)}.")
        sentences.append(f"{first['label']}, from the original model: {_change(rows, first['variant'], facts)}.")
    if len(collapsed):
        names = [
            f"{row['label']} ({verdict(row['collapse_class'], row['collapse_reason'])})"
            for _, row in collapsed.iterrows()
        ]
        sentences.append(f"Collapsed, so shown and not ranked: {', '.join(names)}.")
    for _, row in others.iterrows():
        sentences.append(f"{_named(row)} has no average rank: {row['unranked'] or 'a group was not measured'}.")
    return sentences


def _named(row: pd.Series) -> str:
    strength = f"{row['strength_name']} {row['strength']}".strip()
    return f"{row['label']} ({strength})" if strength else str(row["label"])


def _change(rows: pd.DataFrame, variant: str, facts: Facts) -> str:
    """Return `MA 0.95 → 0.47, …`: from the original to the variant's ranked point."""
    original = rows[rows["method"] == ORIGINAL]
    chosen = ranked_rows(rows[rows["variant"] == variant])
    changes = []
    for metric in [metric for metric in facts.values() if metric.name in ("ma", "mauve", "perplexity")]:
        before, after = (number(each[metric.name].mean(skipna=False), metric) for each in (original, chosen))
        changes.append(f"{metric.title} {before} → {after}")
    return ", ".join(changes) or NOTHING


def warnings(plan: Plan, records: Records, table: pd.DataFrame) -> list[str]:
    """Return everything that limits what the numbers can carry; `table` is that of the same records."""
    points = reached_all(plan, records)
    missing = [spec for spec in plan.trials if status(spec, records.get(spec.trial_id, ())) == "missing"]
    return [
        *(f"{_trial(spec)} failed: {failed.error}" for spec, failed in failures(plan, records)),
        *([f"{len(missing)} of {len(plan.trials)} trials are not finished."] if missing else []),
        *_untrusted_mauve(points),
        *doubtful(human_readings(points)),
        *_unknown_health(table[~table["method"].isin(UNSEEN_ROWS)]),
        *_doubtful_health(table),
        *limits(points, table, metric_facts(plan, records)),
        *_noted(points),
    ]


def _trial(spec: TrialSpec) -> str:
    return f"{spec.label} on {spec.model.id}, seed {spec.seed},"


def _untrusted_mauve(points: Sequence[Reached]) -> list[str]:
    counts = set()
    for point in points:
        for measurement in point.measurements:
            if "mauve" in measurement.numbers:
                counts.add(measurement.notes.get("prompts", point.spec.utility.sequences))
    few = [count for count in counts if isinstance(count, int) and count < TRUSTED_PROMPTS]
    if not few:
        return []
    return [
        f"MAUVE comes from {min(few)} prompts: under {TRUSTED_PROMPTS} it is not to be trusted, nor are collapse flags."
    ]


def _unknown_health(table: pd.DataFrame) -> list[str]:
    """Return how many points cannot be called healthy or collapsed, and what they lack."""
    unknown = table[table["collapsed"].isna()]
    titles = {"mauve": "MAUVE", "perplexity": "perplexity"}
    lacking = [title for name, title in titles.items() if name not in table or unknown[name].isna().any()]
    lack = f"have no {' or '.join(lacking)}" if lacking else "have no original to be held against"
    return [f"{len(unknown)} of {len(table)} points {lack}: whether they collapsed is unknown."] if len(unknown) else []


def _doubtful_health(table: pd.DataFrame) -> list[str]:
    """Return the ranked points that are called healthy and repeat themselves: neither rule looks at rep_n."""
    healthy = ranked_rows(table[table["collapse_class"] == "healthy"])
    return [
        f"{row['label']} ({strength_text(row['strength_name'], row['strength'])}) on {row['model']}, seed "
        f"{row['seed']}, has a {name} of {number(value)}, yet neither MAUVE nor perplexity calls it collapsed."
        for name, values in repetitions(healthy).items()
        for (_, row), value in zip(healthy.iterrows(), values, strict=True)
        if value > REPEATS
    ]


def _noted(points: Sequence[Reached]) -> list[str]:
    """Return what methods and evaluators warned of (the notes' key `warnings`): each once, with its trials."""
    found: dict[str, dict[str, None]] = {}
    for point in points:
        for notes in [point.point.notes if point.point else {}, *(each.notes for each in point.measurements)]:
            for warning in notes.get("warnings", ()):
                found.setdefault(str(warning), {})[f"{point.spec.label} on {point.spec.model.id}"] = None
    return [f"{'; '.join(trials)}: {warning}" for warning, trials in found.items()]
