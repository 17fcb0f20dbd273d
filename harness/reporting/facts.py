"""What tables and figures must know of each metric: which way is better, its group, its title.

A journal carries the facts that the evaluators declared. A table.csv read alone carries names
only, so the facts of the names that every Lethe table knows stand here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

from harness.contracts import Group, Metric
from harness.errors import DataError
from harness.specs import Measurement, Plan, Record, TrialSpec

Facts = Mapping[str, Metric]
"""Metric name to what was declared of it, in the order of a table's columns."""

METRIC_ORDER = ("el_3", "ma", "ss", "exact_match", "perplexity", "rep_2", "div_3", "coherence", "mauve")
RANKED_GROUPS: tuple[Group, ...] = ("erasure", "generation")

_KNOWN: tuple[tuple[str, Literal["lower", "higher"], Group, str, float, bool], ...] = (
    (r"el_\d+", "lower", "erasure", "EL", 1.0, True),
    (r"ma", "lower", "erasure", "MA", 1.0, True),
    (r"ma_all", "lower", "erasure", "MA (all positions)", 1.0, False),
    (r"ss", "lower", "erasure", "SS", 1.0, True),
    (r"exact_match", "lower", "erasure", "Exact match", math.inf, False),
    (r"exact_match_original", "lower", "erasure", "Exact match with the original", math.inf, False),
    (r"perplexity", "lower", "generation", "Perplexity", math.inf, True),
    (r"rep_\d+", "lower", "generation", "Rep", 1.0, True),
    (r"div_\d+", "higher", "generation", "Div", 1.0, True),
    (r"coherence", "higher", "generation", "Coherence", 1.0, True),
    (r"mauve", "higher", "generation", "MAUVE", 1.0, True),
)


def known_fact(name: str) -> Metric | None:
    """Return the facts of a metric whose name every Lethe table knows, or None.

    Example:
        >>> known_fact("el_10").title, known_fact("mauve").better, known_fact("piqa")
        ('EL_10', 'higher', None)
    """
    for pattern, better, group, title, high, ranked in _KNOWN:
        if re.fullmatch(pattern, name):
            number = re.search(r"_\d+$", name)
            return Metric(
                name=name,
                better=better,
                unit="",
                low=0.0,
                high=high,
                group=group,
                source="EMSO, Table 1",
                title=title + (number[0] if number else ""),
                ranked=ranked,
            )
    return None


def known_facts(columns: Iterable[str]) -> dict[str, Metric]:
    """Return the facts of those columns that are known metrics; the others are left out.

    Example:
        >>> list(known_facts(["model", "mauve", "ma", "trial_id"]))
        ['ma', 'mauve']
    """
    found = {name: fact for name in columns if (fact := known_fact(name)) is not None}
    return in_order(found)


def in_order(facts: Facts) -> dict[str, Metric]:
    """Return `facts` in the order of a table's columns: the nine standard names, then the others.

    Example:
        >>> list(in_order(known_facts(["el_10", "mauve", "el_3"])))
        ['el_3', 'mauve', 'el_10']
    """
    names = [name for name in METRIC_ORDER if name in facts]
    return {name: facts[name] for name in [*names, *(name for name in facts if name not in names)]}


def metric_facts(plan: Plan, records: Mapping[str, Sequence[Record]]) -> dict[str, Metric]:
    """Return what the sweep's evaluators declared of every metric that they measured.

    Raises:
        DataError: Two evaluators report a metric of the same name.
    """
    facts: dict[str, Metric] = {}
    reporter: dict[str, str] = {}
    for measurement in chain.from_iterable(measurements(spec, records) for spec in plan.trials):
        for metric in map(from_json, measurement.metrics):
            other = reporter.setdefault(metric.name, measurement.evaluator)
            if other != measurement.evaluator:
                raise DataError(
                    f"the evaluators '{other}' and '{measurement.evaluator}' both report '{metric.name}', so a "
                    "table cannot tell which is meant. Rename the metric in one, or take one from the sweep."
                )
            facts[metric.name] = metric
    return in_order(facts)


def measurements(spec: TrialSpec, records: Mapping[str, Sequence[Record]]) -> list[Measurement]:
    """Return the trial's measurements by the evaluators that the sweep asks for now.

    A journal may also hold those of evaluators, or of settings, that the sweep file has dropped.
    """
    keys = {evaluator.key for evaluator in spec.evaluators}
    trial = records.get(spec.trial_id, ())
    return [record for record in trial if isinstance(record, Measurement) and record.key in keys]


def from_json(declared: Mapping[str, Any]) -> Metric:
    """Return a declared metric from plain data, in which a missing bound stands for no bound."""
    bounds = {"low": -math.inf, "high": math.inf}
    return Metric(**{**declared, **{name: bounds[name] for name in bounds if declared.get(name) is None}})


def ranked_metrics(facts: Facts, group: Group) -> list[Metric]:
    """Return the metrics whose ranks count in `group`."""
    return [metric for metric in facts.values() if metric.ranked and metric.group == group]


def shown_metrics(facts: Facts) -> list[Metric]:
    """Return the metrics of the paper's table: the ranked ones by group, then reasoning tasks."""
    reasoning = [metric for metric in facts.values() if metric.group == "reasoning"]
    return [metric for group in RANKED_GROUPS for metric in ranked_metrics(facts, group)] + reasoning
