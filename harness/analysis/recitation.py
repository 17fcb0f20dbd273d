"""Whether there is anything to erase, and whether a method erased it.

A model that recites nothing still gives numbers, and numbers can always be ranked. So before any answer stands what
the original recites of the forget set, against a control: unseen texts, or the retrained model on the forget set. Means
over many texts hide a few, so single texts that are recited word for word count too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from harness.analysis.evidence import Evidence, chosen_items, interval_columns, split_rows
from harness.analysis.metrics import Aims, MetricInfo, exact_matches, metrics_in
from harness.analysis.seeds import originals_of
from harness.analysis.table import STANDARD_ERROR
from harness.base.messages import first_names
from harness.contracts import CloserTo, Metric
from harness.records.items import MetricItems, aggregated
from harness.settings import HOLDOUT, ORIGINAL, RETRAINED, STAND_IN, UNSEEN_ROWS
from harness.statistics.contrasts import LEVEL, holm, paired_p

FLOOR = 0.05
"""A smaller difference between two shares is no recitation, however certain it is."""
STANDARD_ERRORS = 2.0
"""Nor is one that chance gives to one model in twenty."""
CONTROLS = {
    RETRAINED: "the retrained model, which never saw it, does",
    HOLDOUT: "unseen texts of its kind",
    STAND_IN: "validation texts, which are of another kind",
}
NAME_A_HOLDOUT = "Name texts of the forget set's kind that the model never saw as data.holdout in the sweep file"
TOKENS = 50
"""A text is recited where its continuation is said for so many tokens to the letter, or wholly where it is shorter.

Source: Carlini et al., "Quantifying Memorization Across Neural Language Models", 2022, arXiv:2202.07646.
"""
MIN_TOKENS = 32
"""Tokens of a continuation that is to show anything: shorter ones are guessed too often.

Source: Biderman et al., "Emergent and Predictable Memorization in Large Language Models", 2023, arXiv:2304.11158.
"""
MAX_NAMES = 8
"""Ids of texts that a sentence lists."""
MIN_TEXTS = 8
"""Fewer texts show nothing: not even that they all changed alike (a sign test of seven, by three metrics)."""

Share = tuple[float, float]
"""A share of what could be recited, and its standard error over the sequences."""


@dataclass(frozen=True)
class Recitation:
    """What is known of one model's original."""

    recites: bool | None
    """None: nothing shows it."""
    said_first: str
    """What a reader must know before any answer; '' where means show that it recites, or no one asks."""
    by_stand_in: bool = False
    """Whether texts of another kind were all there was to compare with."""
    answer: str = ""
    """The same where nothing is erased: yes, no or not known, and by which figures; '' where no one asks."""
    ranked_on: frozenset[str] = frozenset()
    """The items on which erasure is ranked, where single texts are recited and means over all do not show it."""

    @property
    def needs_unseen_texts(self) -> bool:
        """Return whether texts of the forget set's kind that the model never saw would make it surer."""
        return self.by_stand_in or self.recites is None


@dataclass(frozen=True)
class RecitedTexts:
    """What one model recites of some texts; copies of a text are one."""

    clusters: Mapping[str, str]
    """The text that each item is, or is a copy of; items that are too short are left out."""
    ids: frozenset[str]
    """The items that it recites."""
    least: float
    """The tokens for which it recites each, at least."""

    @property
    def texts(self) -> int:
        """Return how many texts there are."""
        return len(set(self.clusters.values()))

    @property
    def recited(self) -> int:
        """Return how many of them it recites."""
        return len({self.clusters[id] for id in self.ids})

    @property
    def share(self) -> Share:
        """Return the share that it recites; the standard error is NaN for a single text."""
        share = self.recited / self.texts
        return share, math.sqrt(share * (1 - share) / (self.texts - 1)) if self.texts > 1 else math.nan

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.recited or 'none'} of the {self.texts} texts word for word for {self.least:g} tokens or more"


def is_beyond(original: Share, control: Share) -> bool:
    """Return whether one share exceeds another by more than the floor and by more than chance.

    The standard error of the difference is that of independent shares; where both are of the same texts
    (the retrained model's), it is an upper bound.

    Example:
        >>> is_beyond((0.95, 0.01), (0.31, 0.01)), is_beyond((0.09, 0.01), (0.10, 0.01))
        (True, False)
        >>> is_beyond((0.14, 0.001), (0.10, 0.001)), is_beyond((0.40, 0.10), (0.20, 0.10))
        (False, False)
    """
    difference = original[0] - control[0]
    return difference > FLOOR and difference > STANDARD_ERRORS * math.hypot(original[1], control[1])


def recitations(table: pd.DataFrame, info: MetricInfo, evidence: Evidence | None = None) -> dict[str, Recitation]:
    """Return for each model of a table whether its original recites the forget set.

    It does if any ranked erasure metric that is lower the better, and that comes with a standard error, is
    beyond the same metric of every control. Validation texts count only where there is no other control.
    It also does if it recites a single text word for word, and no control does: see `recited_texts`.
    """
    asked = [metric for metric in metrics_in(info, "erasure") if metric.better == "lower"]
    by_model = {}
    for model, rows in table.groupby("model", sort=False):
        by_model[str(model)] = Recitation(None, "")
        if asked:
            by_model[str(model)] = _recitation(rows, asked, recited_texts(rows, info, evidence or Evidence()))
    return by_model


def said_first(by_model: Mapping[str, Recitation]) -> list[str]:
    """Return what must be read before any answer, each sentence once, with its models where there are several."""
    sentences: dict[str, list[str]] = {}
    for model, recitation in by_model.items():
        if recitation.said_first:
            sentences.setdefault(recitation.said_first, []).append(model)
    if len(by_model) == 1:
        return list(sentences)
    return [f"{', '.join(models)}: {sentence}" for sentence, models in sentences.items()]


def recitation_answers(by_model: Mapping[str, Recitation]) -> list[str]:
    """Return whether each model recites, where nothing was erased, and what would make that surer."""
    answers = []
    for model, recitation in by_model.items():
        if recitation.answer:
            remedy = f" {NAME_A_HOLDOUT}." if recitation.needs_unseen_texts else ""
            answers.append(f"{f'{model}: ' if len(by_model) > 1 else ''}{recitation.answer}{remedy}")
    return answers


def _recitation(rows: pd.DataFrame, asked: Sequence[Metric], texts: Mapping[str, RecitedTexts]) -> Recitation:
    original = _shares(rows, ORIGINAL, asked)
    figures: dict[str, str] = {}
    passed: dict[str, bool] = {}
    for kind in CONTROLS:
        pairs = []
        shares = _shares(rows, kind, asked)
        for metric in asked:
            if metric.name in original and metric.name in shares:
                ours, theirs = original[metric.name], shares[metric.name]
                pairs.append(f"{metric.title} {ours[0]:.3f} against {theirs[0]:.3f}")
                passed[kind] = passed.get(kind, False) or is_beyond(ours, theirs)
        figures[kind] = f"{CONTROLS[kind]} ({', '.join(pairs)})"
    controls = _controls(passed)
    failed = [kind for kind in controls if not passed[kind]]
    by_stand_in = controls == [STAND_IN]
    if controls and not failed:
        than = " and ".join(figures[kind] for kind in controls)
        answer = f"Yes: the original recites the forget set measurably more than {than}."
        return Recitation(True, "", by_stand_in, answer)
    if recited := _single_texts(texts, {kind for kind in controls if passed[kind]}, set(controls)):
        return _ranked_on_single_texts(recited, texts)
    if not controls:
        reason = _reason_unknown(set(rows["method"]))
        if ORIGINAL in texts and texts[ORIGINAL].ids:
            reason += f"; it recites {texts[ORIGINAL]}"
        doubt = f"Whether there is anything to erase is not known, so the ranks are provisional: {reason}."
        return Recitation(None, f"{doubt} {NAME_A_HOLDOUT}.", answer=f"Not known: {reason}.")
    than = " or ".join(figures[kind] for kind in failed)
    sentence = f"the original does not recite the forget set measurably more than {than}."
    if len(failed) < len(controls):
        others = " and ".join(CONTROLS[kind] for kind in controls if passed[kind])
        sentence += f" It does recite it more than {others}: one of the two comparisons is with wrong texts or models."
    sentence += f" {_not_single_texts(texts)}"
    first = f"Nothing to erase, so nothing is ranked: {sentence}"
    return Recitation(False, f"{first} {NAME_A_HOLDOUT}." if by_stand_in else first, by_stand_in, f"No: {sentence}")


def _controls(known: Iterable[str]) -> list[str]:
    """Return the controls that count of those that are known: validation texts only where they are all there is."""
    controls = sorted(CONTROLS.keys() & known, key=list(CONTROLS).index)
    return [kind for kind in controls if kind != STAND_IN] or controls


def _single_texts(texts: Mapping[str, RecitedTexts], passed: Set[str], known: Set[str]) -> RecitedTexts | None:
    """Return the texts that the original recites word for word where no control does; None if there are none.

    Where a control recites some too, its share must be measurably smaller. The retrained model is asked of the same
    texts, so what it recites can be guessed and does not count. A control of a single text shows nothing.

    Args:
        texts: What each reference row recites.
        passed: The controls whose means show that the original recites more.
        known: All whose means show anything.
    """
    telling = {kind for kind in CONTROLS if kind in texts and texts[kind].texts > 1}
    controls = _controls(telling | known)
    if ORIGINAL not in texts or telling.isdisjoint(controls):
        return None
    guessed = texts[RETRAINED].ids if RETRAINED in texts else frozenset()
    own = replace(texts[ORIGINAL], ids=texts[ORIGINAL].ids - guessed)
    for kind in set(controls) - passed:
        is_clean = kind in telling and (kind == RETRAINED or not texts[kind].ids)
        if not is_clean and not (kind in telling and is_beyond(own.share, texts[kind].share)):
            return None
    return own if own.ids else None


def _ranked_on_single_texts(recited: RecitedTexts, texts: Mapping[str, RecitedTexts]) -> Recitation:
    firsts: dict[str, str] = {}
    for id, cluster in recited.clusters.items():
        if id in recited.ids:
            firsts.setdefault(cluster, id)
    count, names = f"{recited.recited} of {recited.texts} texts", first_names(sorted(firsts.values()), MAX_NAMES)
    told = f"word for word for {recited.least:g} tokens or more, which is more than {_control_counts(texts)}: {names}."
    hidden = "Means over all texts do not show that it recites any"
    first = (
        f"Ranked on the {count} that the original recites {told} Erasure is shown on these only. {hidden}; "
        "they are in table.csv."
    )
    answer = f"Yes: the original recites {count} {told} {hidden}."
    return Recitation(True, first, _controls(texts.keys() - {ORIGINAL}) == [STAND_IN], answer, recited.ids)


def _not_single_texts(texts: Mapping[str, RecitedTexts]) -> str:
    if ORIGINAL not in texts:
        return f"Whether it recites single texts is not known: that takes continuations of {MIN_TOKENS} tokens."
    counts = _control_counts(texts) if texts[ORIGINAL].ids else ""
    return f"It recites {texts[ORIGINAL]}{f', which is not measurably more than {counts}' if counts else ''}."


def _control_counts(texts: Mapping[str, RecitedTexts]) -> str:
    controls = _controls(texts.keys() & CONTROLS.keys())
    return " and ".join(f"{CONTROLS[kind]} ({texts[kind].recited} of {texts[kind].texts})" for kind in controls)


def _shares(rows: pd.DataFrame, method: str, asked: Sequence[Metric]) -> dict[str, Share]:
    """Return a row's mean of each metric over the seeds, and of its standard errors: seeds share the texts."""
    of_method = rows[rows["method"] == method]
    shares = {}
    for metric in asked:
        error = STANDARD_ERROR.format(metric.name)
        if error in rows.columns:
            share = float(of_method[metric.name].mean(skipna=False)), float(of_method[error].mean(skipna=False))
            if all(map(math.isfinite, share)):
                shares[metric.name] = share
    return shares


def _reason_unknown(methods: set[str]) -> str:
    if methods & CONTROLS.keys():
        return (
            "the original and what it is to be compared with have no figure in common that has a standard error "
            "(copies of a text count as one, and one text has none)"
        )
    return "nothing shows what the original says of texts that it never saw"


def recited_texts(rows: pd.DataFrame, info: MetricInfo, evidence: Evidence) -> dict[str, RecitedTexts]:
    """Return what each reference row of one model recites; without those whose items do not show it.

    Seeds, and replicates, of a row count together: a text is recited if any of them recites it.
    """
    metrics = exact_matches(info)
    if metrics is None or not any(evidence.by_point.values()):
        return {}
    by_text, by_original = metrics
    points = {}
    for kind in (ORIGINAL, RETRAINED, HOLDOUT, STAND_IN):
        points[kind] = list(rows.loc[rows["method"] == kind, "point_id"])
    lengths: dict[str, float] = {}
    for point_id in [*points[ORIGINAL], *points[HOLDOUT], *points[STAND_IN]]:
        # The original agrees with itself as long as a continuation is.
        items = evidence.items(point_id, by_original)
        lengths |= items.by_id() if items else {}
    recited = {}
    for kind, point_ids in points.items():
        texts = _recited(filter(None, (evidence.items(point_id, by_text) for point_id in point_ids)), lengths)
        if texts.clusters:
            recited[kind] = texts
    return recited


def _recited(of_rows: Iterable[MetricItems], lengths: Mapping[str, float]) -> RecitedTexts:
    clusters: dict[str, str] = {}
    recited: set[str] = set()
    least = math.inf
    for items in of_rows:
        for id, cluster, tokens in zip(items.ids, items.clusters, items.values_N, strict=True):
            if lengths.get(id, 0.0) >= MIN_TOKENS:
                clusters[id] = cluster
                least = min(least, TOKENS, lengths[id])
                if tokens >= min(TOKENS, lengths[id]):
                    recited.add(id)
    return RecitedTexts(clusters, frozenset(recited), least)


def on_texts(
    table: pd.DataFrame, info: MetricInfo, evidence: Evidence, ids_by_model: Mapping[str, frozenset[str]]
) -> tuple[pd.DataFrame, Evidence]:
    """Return a table and its evidence with the ranked metrics of erasure measured on some texts of each model only.

    Rows of unseen texts are of other texts, and stay as they are. A metric is NaN that is not known of any of the
    texts, has no items, or compares all texts with unseen ones: what a text adds to that depends on all others.
    """
    metrics = {metric.name: metric for metric in metrics_in(info, "erasure")}
    is_chosen = table["model"].isin([*ids_by_model]) & ~table["method"].isin(UNSEEN_ROWS)
    chosen = table[is_chosen]
    by_point = dict(evidence.by_point)
    columns: dict[str, list[float]] = {name: [] for name in metrics}
    for point_id, model in zip(chosen["point_id"], chosen["model"], strict=True):
        kept = dict(evidence.by_point.get(point_id, {}))
        for name, metric in metrics.items():
            whole = kept.pop(name, None)
            is_of_text = metric.items == "sequence"
            items = chosen_items(whole, ids_by_model[model]) if whole and is_of_text else None
            columns[name].append(math.nan)
            if items and items.ids:
                kept[name] = items
                columns[name][-1] = aggregated(items.values_N, items.weights_N, metric.aggregate)
        by_point[point_id] = kept
    restricted = Evidence(by_point)
    bounds = interval_columns(list(chosen["point_id"]), metrics, restricted)
    shown = {}
    for name, values in {**columns, **bounds}.items():
        if name in table.columns:
            shown[name] = table[name].where(~is_chosen, pd.Series(values, chosen.index, dtype=float))
    return table.assign(**shown), restricted


def has_erased_nothing(
    rows: pd.DataFrame, originals: pd.DataFrame, metrics: Sequence[Metric], evidence: Evidence, aims: Aims
) -> bool:
    """Return whether no metric shows that a variant erased anything; False where that is not known.

    A metric shows it where it is better than the original's, and the paired test over texts (copies are one; the mean
    of the seeds of each) gives p < 0.05, corrected for the number of metrics (Holm). There is no floor: it is the same
    texts and the same model, so that only chance stands between a difference and an erasure. With fewer than eight
    texts any improvement counts, and on the other side of what it should be close to nothing is known.

    Args:
        rows: The points that stand for the variant, one for each seed of a model.
        originals: The rows of the original.
        metrics: The ranked ones of erasure.
        evidence: The items behind both.
        aims: What metrics are to be close to.
    """
    starts = originals_of(rows, originals)
    if starts is None or not metrics:
        return False
    both, p_values = pd.concat([rows, starts]), []
    for metric in metrics:
        values = evidence.of(both, metric) if metric.items else None
        if values is None:
            return False
        erased, original = (half.averaged() for half in split_rows(values, len(rows)))
        p, texts = 1.0, min(erased.known_clusters(), original.known_clusters())
        if aims.cost(rows, metric) < aims.cost(starts, metric):
            sides = [np.sign(aims.deviations(of, metric).mean()) for of in (rows, starts)]
            is_across = isinstance(metric.better, CloserTo) and sides[0] * sides[1] <= 0
            p = math.nan if texts < MIN_TEXTS or is_across else paired_p(erased, original)
        if math.isnan(p):
            return False
        p_values.append(p)
    return min(holm(p_values)) >= LEVEL
