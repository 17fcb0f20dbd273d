"""The words of a report that this sweep really has: metrics, methods, rows, verdicts and definitions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from harness.analysis.collapse import rules_in_words
from harness.analysis.layout import SECTIONS
from harness.analysis.metrics import MetricInfo
from harness.analysis.ranking import RankedTable
from harness.contracts import Metric
from harness.errors import PluginError
from harness.plans import Plan
from harness.plugins import METHODS
from harness.reporting.section import Section
from harness.reporting.summary import DEFINITIONS
from harness.specs import HOLDOUT, ORIGINAL, RETRAINED, STAND_IN, TrialSpec

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
    ("a, b, c", "letters of what cannot be told apart: two that share one in a column"),
)


class Words(Section):
    """What the words of this report mean."""

    template = "glossary.html.j2"

    def context(self) -> dict[str, Any]:
        """Return the entries by the title of their part."""
        return {"glossary": glossary(self.analysis.shown.plan, self.analysis.shown_table.ranked)}


def glossary(plan: Plan, ranked: RankedTable) -> Glossary:
    """Return what stands in this sweep's report and is not said there."""
    table = ranked.table
    parts = {
        "Words": list(_WORDS) if plan.erases else list(_WORDS[:1]),
        "Metrics": [(metric.title, _metric(metric, is_ranking=plan.erases)) for metric in ranked.info.values()],
        "Methods": list(_methods(plan)),
        "Groups of methods": _groups(plan),
        "Reference rows": _references(table),
        "State": _states(plan, table, ranked.info) if plan.erases else [],
        "Definitions": [(name, meaning) for name, meaning in DEFINITIONS.items() if name in set(table["definition"])],
    }
    return {title: entries for title, entries in parts.items() if entries}


def _metric(metric: Metric, *, is_ranking: bool) -> str:
    """Return a metric's declaration in words.

    Example:
        >>> about = dict(better="lower", unit="fraction", low=0.0, group="erasure", source="Li 2020", title="MA")
        >>> _metric(Metric(name="ma", high=1.0, meaning="what is recited", **about), is_ranking=True)
        'what is recited; fraction, 0 to 1, lower is better; erasure (Li 2020)'
    """
    limits = f"from {metric.low:g}" if math.isinf(metric.high) else f"{metric.low:g} to {metric.high:g}"
    kind = metric.group + ("" if metric.ranked or not is_ranking else ", not ranked")
    means = f"{metric.meaning}; " if metric.meaning else ""
    return f"{means}{metric.unit}, {limits}, {metric.better} is better; {kind} ({metric.source})"


def _methods(plan: Plan) -> Iterator[Entry]:
    specs = [study.trial for study in plan.studies] + [spec for spec in plan.trials if not spec.is_reference]
    by_label: dict[str, TrialSpec] = {}
    for spec in specs:
        by_label.setdefault(spec.label, spec)
    for label, spec in by_label.items():
        yield label, f"{spec.method}, {_source(spec)}strength: {spec.strength_name}"


def _source(spec: TrialSpec) -> str:
    try:
        return f"{METHODS.load(spec.method).source}; "
    except PluginError:
        return ""


def _groups(plan: Plan) -> list[Entry]:
    needs = {spec.reference for spec in plan.trials if not spec.is_reference}
    return [(title, f"methods that {meaning}") for name, (title, meaning) in SECTIONS.items() if name in needs]


def _references(table: pd.DataFrame) -> list[Entry]:
    labels = dict(zip(table["method"], table["label"], strict=True))
    return [(str(labels[name]), meaning) for name, meaning in _REFERENCES.items() if name in labels]


def _states(plan: Plan, table: pd.DataFrame, info: MetricInfo) -> list[Entry]:
    rule = rules_in_words(info, plan.collapse)
    found = set(table["collapse_class"])
    classes = [(name, meaning) for name, meaning in _CLASSES.items() if name in found]
    return [("collapsed", rule), *classes] if rule else classes
