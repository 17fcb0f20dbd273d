"""Whether there is anything to erase: does the original recite the forget set beyond what it never saw?

A model that recites nothing still gives numbers, and numbers can always be ranked. So before any rank
stands what the original says of the forget set, against a control: what it says of unseen texts, or
what the retrained model says of the forget set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import pandas as pd

from harness.analysis.erasure.recited_texts import LEAST_TOKENS, RecitedTexts, recited_texts
from harness.analysis.evidence import Evidence
from harness.analysis.metrics import MetricInfo, metrics_in
from harness.analysis.table import STANDARD_ERROR
from harness.contracts import Metric
from harness.specs import HOLDOUT, ORIGINAL, RETRAINED, STAND_IN

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

Share = tuple[float, float]
"""A share of what could be recited, and its standard error over the sequences."""


@dataclass(frozen=True)
class Recitation:
    """What is known of one model's original."""

    recites: bool | None
    """None: nothing shows it."""
    said_first: str
    """What a reader must know before any rank; '' where means show that it recites, or no one asks whether it does."""
    by_stand_in: bool = False
    """Whether texts of another kind were all there was to compare with."""
    answer: str = ""
    """The same where nothing is ranked: yes, no or not known, and by which figures; '' where no one asks."""
    ranked_on: frozenset[str] = frozenset()
    """The items that erasure is ranked on, where single texts are recited and means over all do not show it."""

    @property
    def needs_unseen_texts(self) -> bool:
        """Return whether texts of the forget set's kind that the model never saw would make it surer."""
        return self.by_stand_in or self.recites is None


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
    """Return what must be read before any rank, each sentence once, with its models where there are several."""
    sentences: dict[str, list[str]] = {}
    for model, recitation in by_model.items():
        if recitation.said_first:
            sentences.setdefault(recitation.said_first, []).append(model)
    if len(by_model) == 1:
        return list(sentences)
    return [f"{', '.join(models)}: {sentence}" for sentence, models in sentences.items()]


def recitation_answers(by_model: Mapping[str, Recitation]) -> list[str]:
    """Return whether each model recites, for a reader to whom nothing is ranked; with its name where there are several.

    Each ends with what to do where nothing, or only texts of another kind, shows it.
    """
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
            reason += f"; it recites {_word_for_word(texts[ORIGINAL])}"
        doubt = f"Whether there is anything to erase is not known, so the ranks are provisional: {reason}."
        return Recitation(None, f"{doubt} {NAME_A_HOLDOUT}.", answer=f"Not known: {reason}.")
    than = " or ".join(figures[kind] for kind in failed)
    sentence = f"the original does not recite the forget set measurably more than {than}."
    if len(failed) < len(controls):
        others = " and ".join(CONTROLS[kind] for kind in controls if passed[kind])
        sentence += (
            f" It does recite it more than {others}: one of the two comparisons is with the wrong texts or model."
        )
    sentence += f" {_not_single_texts(texts)}"
    first = f"Nothing to erase, so nothing is ranked: {sentence}"
    first = f"{first} {NAME_A_HOLDOUT} to be surer." if by_stand_in else first
    return Recitation(False, first, by_stand_in, f"No: {sentence}")


def _controls(known: Iterable[str]) -> list[str]:
    """Return the controls that count of those that are known: validation texts only where they are all there is."""
    controls = sorted(CONTROLS.keys() & known, key=list(CONTROLS).index)
    return [kind for kind in controls if kind != STAND_IN] or controls


def _single_texts(texts: Mapping[str, RecitedTexts], passed: Set[str], known: Set[str]) -> RecitedTexts | None:
    """Return the texts that the original recites word for word where no control does; None if there are none.

    Of a control that recites some too the share must be measurably smaller. The retrained model is asked of the same
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
    count, least = f"{recited.recited} of {recited.texts} texts", f"word for word for {recited.least:g} tokens or more"
    told = f"{least}, which is more than {_control_counts(texts)}: {recited.named}."
    hidden = "Means over all texts do not show that it recites any"
    first = (
        f"Ranked on the {count} that the original recites {told} Erasure is shown on these alone. {hidden}; "
        "they are in table.csv."
    )
    answer = f"Yes: the original recites {count} {told} {hidden}."
    return Recitation(True, first, _controls(texts.keys() - {ORIGINAL}) == [STAND_IN], answer, recited.ids)


def _not_single_texts(texts: Mapping[str, RecitedTexts]) -> str:
    if ORIGINAL not in texts:
        return (
            "Whether it recites single texts word for word is not known: that takes what each text has, and "
            f"continuations of {LEAST_TOKENS} tokens."
        )
    than = f", which is not measurably more than {counts}" if (counts := _control_counts(texts)) else ""
    return f"It recites {_word_for_word(texts[ORIGINAL])}{than if texts[ORIGINAL].ids else ''}."


def _word_for_word(recited: RecitedTexts) -> str:
    count = recited.recited or "none"
    return f"{count} of the {recited.texts} texts word for word for {recited.least:g} tokens or more"


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
