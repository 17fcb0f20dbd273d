"""What tables and figures must know of each metric: which way is better, its group, its title.

A journal carries what the evaluators declared. A table.csv carries names only, so the facts of the
names that every Lethe table knows stand here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from harness.contracts import Group, Metric
from harness.errors import DataError
from harness.specs import Measurement, Plan, Record, TrialSpec

Records = Mapping[str, Sequence[Record]]
"""Trial id to that trial's records, as the journal reads them."""
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
            return Metric(
                name=name,
                better=better,
                unit="",
                low=0.0,
                high=high,
                group=group,
                source="EMSO, Table 1",
                title=title + "".join(re.findall(r"_\d+$", name)),
                ranked=ranked,
            )
    return None


def known_facts(columns: Iterable[str]) -> dict[str, Metric]:
    """Return the facts of those columns that are known metrics; the others are left out.

    Example:
        >>> list(known_facts(["model", "el_10", "mauve", "el_3", "trial_id"]))
        ['el_3', 'mauve', 'el_10']
    """
    return _in_order({name: fact for name in columns if (fact := known_fact(name))})


def metric_facts(plan: Plan, records: Records) -> dict[str, Metric]:
    """Return what the sweep's evaluators declared of every metric that they measured.

    Raises:
        DataError: Two evaluators report a metric of the same name.
    """
    facts: dict[str, Metric] = {}
    reporter: dict[str, str] = {}
    for measurement in [each for spec in plan.trials for each in measurements(spec, records)]:
        for metric in [Metric(**declared) for declared in measurement.metrics]:
            other = reporter.setdefault(metric.name, measurement.evaluator)
            if other != measurement.evaluator:
                raise DataError(
                    f"the evaluators '{other}' and '{measurement.evaluator}' both report '{metric.name}', so a "
                    "table cannot tell which is meant. Rename the metric in one, or take one from the sweep."
                )
            facts[metric.name] = metric
    return _in_order(facts)


def measurements(spec: TrialSpec, records: Records) -> list[Measurement]:
    """Return the trial's measurements by the evaluators, and with the settings, that the sweep asks for now."""
    keys = {evaluator.key for evaluator in spec.evaluators}
    trial = records.get(spec.trial_id, ())
    return [record for record in trial if isinstance(record, Measurement) and record.key in keys]


def ranked_metrics(facts: Facts, *groups: Group) -> list[Metric]:
    """Return the metrics whose ranks count, group by group."""
    return [metric for group in groups for metric in facts.values() if metric.ranked and metric.group == group]


def _in_order(facts: Facts) -> dict[str, Metric]:
    """Return the facts in the order of a table's columns: the nine standard names, then the others."""
    standard = [name for name in METRIC_ORDER if name in facts]
    return {name: facts[name] for name in [*standard, *facts]}
