"""Tests for recitation before erasure, and for erasure.

The original's recitation of the forget set is compared with a control: unseen texts, or the retrained model on the
forget set. Means over many texts hide a few, so single texts that are recited word for word count too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from harness.analysis.evidence import Evidence, chosen_items, interval_columns, split_rows
from harness.analysis.metrics import Aims, MetricInfo, exact_matches, select_metrics
from harness.analysis.seeds import match_originals
from harness.analysis.table import STANDARD_ERROR
from harness.base.messages import amount, first_names
from harness.contracts import CloserTo, Metric
from harness.records.items import aggregated
from harness.settings import HOLDOUT, ORIGINAL, RETRAINED, UNSEEN_ROWS, VALIDATION_ROW
from harness.statistics.contrasts import LEVEL, holm, paired_p

FLOOR = 0.05
"""Smallest difference of shares that counts."""
STANDARD_ERRORS = 2.0
"""Standard errors that a difference must exceed."""
CONTROLS = {RETRAINED: "the retrained model, which never saw it, does", HOLDOUT: "unseen texts of its kind"}
CONTROLS |= {VALIDATION_ROW: "validation texts, which are of another kind"}
NAME_A_HOLDOUT = "Name texts of the forget set's kind that the model never saw (data.holdout; audit: --unseen)"
TOKENS = 50
"""Tokens of a continuation that must be recited word for word; a shorter one wholly.

Source: Carlini et al., "Quantifying Memorization Across Neural Language Models", 2022, arXiv:2202.07646.
"""
MIN_TOKENS = 32
"""Tokens of the shortest continuation that counts: shorter ones are guessed too often.

Source: Biderman et al., "Emergent and Predictable Memorization in Large Language Models", 2023, arXiv:2304.11158.
"""
MAX_NAMES = 8
MIN_TEXTS = 8
"""Texts of the smallest test: a sign test of seven cannot reach 5 % by three metrics."""
TOO_FEW = "no metric has a standard error on both, which takes two different texts on each."

Share = tuple[float, float]
"""A share of the recitable tokens, and its standard error over the sequences."""


class Recitation(NamedTuple):
    """Result of the test on one model's original."""

    recites: bool | None
    """True, False, or None where nothing shows it."""
    reason: str = ""
    """With figures; '' where nothing was measured."""
    is_by_validation: bool = False
    """Whether the only control was texts of another kind."""
    ranked_on: frozenset[str] = frozenset()
    """Items on which erasure is ranked where means hide the recited texts."""

    @property
    def needs_unseen_texts(self) -> bool:
        """Return whether unseen texts would make it surer."""
        return self.is_by_validation or (self.recites is None and self.reason != TOO_FEW)

    @property
    def answer(self) -> str:
        """Answer of a sweep without erasure: yes, no or not known."""
        word = {True: "Yes", False: "No", None: "Not known"}[self.recites]
        # An audited model may be an erased one.
        return f"{word}: {self.reason.replace('the original', 'the model')}{self._remedy}" if self.reason else ""

    @property
    def warning(self) -> str:
        """Warning to print before any answer; '' where means show that the model recites."""
        if self.ranked_on:
            return f"Ranked only on these texts: {self.reason} Means over all texts are in table.csv."
        if self.recites or not self.reason:
            return ""
        first = "Nothing to erase, so nothing is ranked"
        if self.recites is None:
            first = "Whether there is anything to erase is not known, so the ranks are provisional"
        return f"{first}: {self.reason}{self._remedy}"

    @property
    def _remedy(self) -> str:
        return f" {NAME_A_HOLDOUT}." if self.needs_unseen_texts else ""


class RecitedTexts(NamedTuple):
    """Texts that one model recites; copies of a text count once."""

    clusters: Mapping[str, str]
    """Text of each item, or the text that it copies; items that are too short are left out."""
    ids: frozenset[str]

    @property
    def texts(self) -> int:
        """Return their number."""
        return len(set(self.clusters.values()))

    @property
    def recited(self) -> int:
        """Return the recited ones' number."""
        return len({self.clusters[id] for id in self.ids})

    @property
    def share(self) -> Share:
        """Share of recited texts; its standard error is NaN for a single text."""
        share = self.recited / self.texts
        return share, math.sqrt(share * (1 - share) / (self.texts - 1)) if self.texts > 1 else math.nan

    def names(self, text_names: Mapping[str, str]) -> list[str]:
        """Return where the recited texts stand in their file, or their ids; of copies the first."""
        first_ids = {self.clusters[id]: id for id in reversed([*self.clusters]) if id in self.ids}
        return sorted((text_names.get(id, id) for id in first_ids.values()), key=lambda name: (len(name), name))

    def __str__(self) -> str:
        return f"{self.recited or 'none'} of {amount(self.texts, 'text')} word for word ({TOKENS} tokens, or all)"


def is_beyond(original: Share, control: Share) -> bool:
    """Return whether one share exceeds another by more than the floor and by more than chance.

    The standard error is that of independent shares; where both share their texts, it is an upper bound.

    Example:
        >>> is_beyond((0.95, 0.01), (0.31, 0.01)), is_beyond((0.09, 0.01), (0.10, 0.01))
        (True, False)
        >>> is_beyond((0.14, 0.001), (0.10, 0.001)), is_beyond((0.40, 0.10), (0.20, 0.10))
        (False, False)
    """
    difference = original[0] - control[0]
    return difference > FLOOR and difference > STANDARD_ERRORS * math.hypot(original[1], control[1])


def recitations(table: pd.DataFrame, info: MetricInfo, evidence: Evidence | None = None) -> dict[str, Recitation]:
    """Return for each model whether its original recites the forget set.

    It recites if a ranked erasure metric that is lower the better and has a standard error is beyond the same metric of
    every control, or if it recites a single text word for word and no control does (`recited_texts`). Validation texts
    are a control only where there is no other.
    """
    metrics, evidence = [m for m in select_metrics(info, "erasure") if m.better == "lower"], evidence or Evidence()
    by_model = {}
    for model, rows in table.groupby("model", sort=False):
        by_model[str(model)] = Recitation(None)
        if metrics:
            by_model[str(model)] = _recitation(rows, metrics, recited_texts(rows, info, evidence), evidence.text_names)
    return by_model


def recitation_sentences(by_model: Mapping[str, Recitation], kind: Literal["warning", "answer"]) -> list[str]:
    """Return the warnings or the answers, each once, with its models where there are several."""
    models_by_sentence: dict[str, list[str]] = {}
    for model, recitation in by_model.items():
        models_by_sentence.setdefault(getattr(recitation, kind), []).append(model)
    models_by_sentence.pop("", None)
    named = [f"{', '.join(models)}: {sentence}" for sentence, models in models_by_sentence.items()]
    return named if len(by_model) > 1 else [*models_by_sentence]


def _recitation(
    rows: pd.DataFrame, metrics: Sequence[Metric], texts: Mapping[str, RecitedTexts], text_names: Mapping[str, str]
) -> Recitation:
    original = _shares(rows, ORIGINAL, metrics)
    figures: dict[str, str] = {}
    passed: dict[str, bool] = {}
    for kind, about in CONTROLS.items():
        shares = _shares(rows, kind, metrics)
        if common := [metric for metric in metrics if metric.name in original and metric.name in shares]:
            pairs = (f"{m.title} {original[m.name][0]:.3f} against {shares[m.name][0]:.3f}" for m in common)
            figures[kind] = f"{about} ({', '.join(pairs)})"
            passed[kind] = any(is_beyond(original[metric.name], shares[metric.name]) for metric in common)
    controls = _controls(passed)
    failed = [kind for kind in controls if not passed[kind]]
    is_by_validation = controls == [VALIDATION_ROW]
    if controls and not failed:
        than = " and ".join(figures[kind] for kind in controls)
        return Recitation(True, f"the original recites the forget set measurably more than {than}.", is_by_validation)
    if recited := _single_texts(texts, {kind for kind in controls if passed[kind]}, set(controls)):
        names = first_names(recited.names(text_names), MAX_NAMES)
        reason = f"the original recites {recited}, more than {_control_counts(texts)}: {names}."
        is_by_validation = _controls(texts.keys() - {ORIGINAL}) == [VALIDATION_ROW]
        return Recitation(True, f"{reason} Means over all texts do not show it.", is_by_validation, recited.ids)
    if not controls:
        reason = "the original was not measured on texts that it never saw."
        if rows["method"].isin(CONTROLS).any():
            reason = TOO_FEW
        return Recitation(None, reason)
    than = " or ".join(figures[kind] for kind in failed)
    reason = f"the original does not recite the forget set measurably more than {than}."
    if len(failed) < len(controls):
        others = " and ".join(CONTROLS[kind] for kind in controls if passed[kind])
        reason += f" It does recite it more than {others}: one of the two comparisons is with wrong texts or models."
    if ORIGINAL in texts:
        counts = f", not measurably more than {_control_counts(texts)}" if texts[ORIGINAL].ids else ""
        reason += f" It recites {texts[ORIGINAL]}{counts}."
    return Recitation(False, reason, is_by_validation)


def _controls(methods: Iterable[str]) -> list[str]:
    controls = sorted(CONTROLS.keys() & methods, key=list(CONTROLS).index)
    return [kind for kind in controls if kind != VALIDATION_ROW] or controls


def _single_texts(texts: Mapping[str, RecitedTexts], passed: Set[str], measured: Set[str]) -> RecitedTexts | None:
    """Return the texts that the original recites word for word and no control does; None if there are none.

    Where a control recites some, its share must be measurably smaller. Texts that the retrained model recites can be
    guessed and do not count. A control of a single text shows nothing. `measured` are the controls whose means are
    known, `passed` those below the original's.
    """
    telling = {kind for kind in CONTROLS if kind in texts and texts[kind].texts > 1}
    controls = _controls(telling | measured)
    if ORIGINAL not in texts or telling.isdisjoint(controls):
        return None
    guessed = texts[RETRAINED].ids if RETRAINED in texts else frozenset()
    own = texts[ORIGINAL]._replace(ids=texts[ORIGINAL].ids - guessed)
    for kind in set(controls) - passed:
        is_clean = kind in telling and (kind == RETRAINED or not texts[kind].ids)
        if not is_clean and not (kind in telling and is_beyond(own.share, texts[kind].share)):
            return None
    return own if own.ids else None


def _control_counts(texts: Mapping[str, RecitedTexts]) -> str:
    controls = _controls(texts.keys() & CONTROLS.keys())
    return " and ".join(f"{CONTROLS[kind]} ({texts[kind].recited} of {texts[kind].texts})" for kind in controls)


def _shares(rows: pd.DataFrame, method: str, metrics: Sequence[Metric]) -> dict[str, Share]:
    method_rows = rows[rows["method"] == method]
    shares = {}
    for metric in metrics:
        names = [metric.name, STANDARD_ERROR.format(metric.name)]
        if names[1] in rows.columns:
            share, error = method_rows[names].mean(skipna=False)
            if math.isfinite(share + error):
                shares[metric.name] = float(share), float(error)
    return shares


def recited_texts(
    rows: pd.DataFrame, info: MetricInfo, evidence: Evidence, by: str = "method", least: int = MIN_TOKENS
) -> dict[str, RecitedTexts]:
    """Return the recited texts of each method or `variant` whose items show them; of seeds and replicates, the union.

    Continuations of fewer than `least` tokens are left out.
    """
    metrics = exact_matches(info)
    if metrics is None or not any(evidence.by_point.values()):
        return {}
    by_text, by_original = metrics
    lengths: dict[str, float] = {}
    for point_id in rows.loc[rows["method"].isin((ORIGINAL, HOLDOUT, VALIDATION_ROW)), "point_id"]:
        # The original agrees with itself as long as a continuation is.
        items = evidence.items(point_id, by_original)
        lengths |= items.by_id() if items else {}
    recited = {}
    for name, point_ids in rows.groupby(by, sort=False)["point_id"]:
        clusters: dict[str, str] = {}
        ids: set[str] = set()
        for items in filter(None, (evidence.items(point_id, by_text) for point_id in point_ids)):
            for id, cluster, tokens in zip(items.ids, items.clusters, items.values_N, strict=True):
                if lengths.get(id, 0.0) >= least:
                    clusters[id] = cluster
                    ids |= {id} if tokens >= min(TOKENS, lengths[id]) else set()
        if clusters:
            recited[str(name)] = RecitedTexts(clusters, frozenset(ids))
    return recited


def restrict_to_texts(
    table: pd.DataFrame, info: MetricInfo, evidence: Evidence, ids_by_model: Mapping[str, frozenset[str]]
) -> tuple[pd.DataFrame, Evidence]:
    """Return a table and its evidence with the ranked metrics of erasure on some texts of each model only.

    Holdout rows stay as they are. A metric is NaN if it has no items, is not known of any of the texts, or compares all
    texts with unseen ones.
    """
    metrics = {metric.name: metric for metric in select_metrics(info, "erasure")}
    is_chosen = table["model"].isin([*ids_by_model]) & ~table["method"].isin(UNSEEN_ROWS)
    model_rows, by_point = table[is_chosen], dict(evidence.by_point)
    columns: dict[str, Any] = {name: [] for name in metrics}
    for point_id, model in zip(model_rows["point_id"], model_rows["model"], strict=True):
        others = {name: items for name, items in by_point.get(point_id, {}).items() if name not in metrics}
        for name, metric in metrics.items():
            whole = evidence.items(point_id, metric)
            items = chosen_items(whole, ids_by_model[model]) if whole and metric.items == "sequence" else None
            columns[name].append(math.nan)
            if items and items.ids:
                others[name] = items
                columns[name][-1] = aggregated(items.values_N, items.weights_N, metric.aggregate)
        by_point[point_id] = others
    restricted = Evidence(by_point)
    columns |= interval_columns(list(model_rows["point_id"]), metrics, restricted)
    numbers = pd.DataFrame(columns, index=model_rows.index, dtype=float)
    numbers = numbers[numbers.columns.intersection(table.columns)]
    return table.assign(**{str(name): table[name].where(~is_chosen, numbers[name]) for name in numbers}), restricted


def has_erased_nothing(
    rows: pd.DataFrame, originals: pd.DataFrame, metrics: Sequence[Metric], evidence: Evidence, aims: Aims
) -> bool:
    """Return whether no metric shows that a variant erased anything; False where not known.

    A metric shows it where it is better than the original's and the paired test over texts (copies count once; mean of
    seeds) gives p < 0.05, Holm-corrected over the metrics. There is no floor: texts and model are the same. With fewer
    than eight texts any improvement counts.
    """
    starts = match_originals(rows, originals)
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
