"""The words of a report that this sweep really has: metrics, methods, rows, verdicts and definitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from harness.analysis.collapse import rules_in_words
from harness.analysis.main_table import NEEDS
from harness.analysis.ranking import RankedTable
from harness.contracts import Metric
from harness.errors import PluginError
from harness.plans import Plan
from harness.plugins import METHODS
from harness.reporting.section import Section
from harness.reporting.summary import DEFINITIONS
from harness.specs import HOLDOUT, ORIGINAL, RETRAINED, STAND_IN

Entry = tuple[str, str]
"""A word as the report prints it, and what it means."""
Glossary = dict[str, list[Entry]]
"""Entries by the title of their part; parts without any are left out."""

_REFERENCES = {
    ORIGINAL: "the model before anything is erased",
    RETRAINED: "a model trained alike, without the forget set: what perfect erasure would look like",
    HOLDOUT: "the original on texts of the forget set's kind that it never saw",
    STAND_IN: "the original on validation texts, which it never saw",
}
_CLASSES = {
    "healthy": "writes as before, within the bounds",
    "degenerate": "collapsed: it repeats itself, or is far too predictable",
    "gibberish": "collapsed: what it writes is no language",
    "unknown": "what would tell it could not be measured",
}
_WORDS = (
    ("forget set", "the texts to be erased; a sequence is a prefix and its continuation"),
    ("strength", "a method's one dial: the further up, the more is erased"),
    ("trial", "one erasure, with one method, its settings and a seed; it is measured at one strength or several"),
    ("point", "one strength of a trial: one erased model, one row of a table"),
    ("=2", "two or more that have this rank together"),
    ("–", "not measured, or not measurable; never 0"),
    ("1 (1–4)", "a rank, and the bounds of 95 % of the ranks that it has in draws of the numbers"),
    (
        "a, b, c",
        "letters: rows that share one in a column do not differ significantly; in Group, by their average rank",
    ),
    (
        "noise of the metric",
        "the interval of a number of one seed without items: 1.96 standard deviations, as declared",
    ),
)


class Words(Section):
    """What the words of this report mean."""

    def context(self) -> dict[str, Any]:
        """Return the entries by the title of their part."""
        return {"glossary": glossary(self.analysis.results.plan, self.analysis.head)}


def glossary(plan: Plan, ranked: RankedTable) -> Glossary:
    """Return what stands in this sweep's report and is not said there."""
    erasing = [spec for spec in plan.trials if not spec.is_reference]
    metrics = [(metric.title, _metric_meaning(metric, is_ranking=plan.erases)) for metric in ranked.info.values()]
    methods: dict[str, str] = {}
    for spec in [*(study.trial for study in plan.studies), *erasing]:
        if spec.label not in methods:
            methods[spec.label] = f"{spec.method}, {_method_source(spec.method)}strength: {spec.strength_name}"
    needed = {spec.reference for spec in erasing}
    groups = [(title, f"methods that {meaning}") for name, (title, meaning) in NEEDS.items() if name in needed]
    labels = dict(zip(ranked.table["method"], ranked.table["label"], strict=True))
    states = []
    if plan.erases:
        rule = rules_in_words(ranked.info, plan.collapse)
        states = [("collapsed", rule)] if rule else []
        states += _present(_CLASSES, ranked.table["collapse_class"])
    parts = {
        "Words": list(_WORDS) if plan.erases else list(_WORDS[:1]),
        "Metrics": metrics,
        "Methods": list(methods.items()),
        "Groups of methods": groups,
        "Reference rows": [(str(labels[name]), meaning) for name, meaning in _present(_REFERENCES, labels)],
        "State": states,
        "Definitions": _present(DEFINITIONS, ranked.table["definition"]),
    }
    return {title: entries for title, entries in parts.items() if entries}


def _present(meanings: Mapping[str, str], words: Iterable[str]) -> list[Entry]:
    present = set(words)
    return [(word, meaning) for word, meaning in meanings.items() if word in present]


def _metric_meaning(metric: Metric, *, is_ranking: bool) -> str:
    """Return a metric's declaration in words.

    Example:
        >>> about = dict(better="lower", unit="fraction", low=0.0, group="erasure", source="Li 2020", title="MA")
        >>> _metric_meaning(Metric(name="ma", high=1.0, meaning="what is recited", **about), is_ranking=True)
        'what is recited; fraction, 0 to 1, lower is better; erasure (Li 2020)'
    """
    limits = f"from {metric.low:g}" if math.isinf(metric.high) else f"{metric.low:g} to {metric.high:g}"
    kind = metric.group + ("" if metric.ranked or not is_ranking else ", not ranked")
    means = f"{metric.meaning}; " if metric.meaning else ""
    return f"{means}{metric.unit}, {limits}, {metric.better} is better; {kind} ({metric.source})"


def _method_source(method: str) -> str:
    try:
        return f"{METHODS.load(method).source}; "
    except PluginError:
        return ""
