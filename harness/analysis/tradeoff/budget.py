"""What a search was worth: the price against its budget, which settings mattered, and what lies at an edge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.execution.search.sampling import objective, setting_importances
from harness.records.ranges import edges_reached, widened_ranges
from harness.records.results import StudyResults
from harness.records.tuned import dimensions_tried
from harness.statistics.budget import BestAtBudget, expected_best, expected_best_at_cost

FEWEST_DRAWN, FEWEST_WEIGHED = 3, 8
"""Candidates that a study needs for a curve, and for a word on its settings."""
_STEPS = 24


@dataclass(frozen=True)
class BudgetCurve:
    """The expected price of one method at rising budgets."""

    variant: str
    label: str
    budgets: tuple[float, ...]
    prices: tuple[float, ...]
    """The least utility at the target, times the original's; NaN where fewer than half of all draws reach it."""


@dataclass(frozen=True)
class BudgetPanel:
    """All methods on one model, at one target."""

    model: str
    target: str
    by_candidates: list[BudgetCurve] = field(default_factory=list)
    by_seconds: list[BudgetCurve] = field(default_factory=list)


@dataclass(frozen=True)
class SearchNotes:
    """What is to be known of one study's ranges and settings."""

    model: str
    label: str
    widened: tuple[str, ...]
    """Each range that was widened, in words."""
    at_edges: tuple[str, ...]
    """Each chosen value that lies at an end of its range, in words."""
    importances: tuple[tuple[str, float], ...]
    """Each setting's share at the first target, the most important first; () with few candidates, or one setting."""


@dataclass(frozen=True)
class SearchWorth:
    """What the searches of a sweep were worth."""

    panels: list[BudgetPanel]
    """Without those in which no method has a curve."""
    notes: list[SearchNotes]


def search_worth(studies: Sequence[StudyResults]) -> SearchWorth:
    """Return what the searches of a sweep were worth; of studies with fewer than three candidates nothing is drawn."""
    panels: dict[tuple[str, str], BudgetPanel] = {}
    notes = []
    for study in studies:
        model = study.spec.trial.model.id
        if len(study.candidates) >= FEWEST_DRAWN:
            for place, result in enumerate(study.targets):
                panel = panels.setdefault((model, str(result.target)), BudgetPanel(model, str(result.target)))
                _add_curves(panel, study, place)
        ranges = tuple(f"{name} to {wide.low:.3g} to {wide.high:.3g}" for name, wide in widened_ranges(study).items())
        at_edges = tuple(str(chosen) for chosen in edges_reached(study))
        importances: tuple[tuple[str, float], ...] = ()
        if len(study.candidates) >= FEWEST_WEIGHED and len(dimensions_tried(study.spec)) > 1:
            shares = setting_importances(study.spec, study.targets[0].target, study.candidates)
            importances = tuple(shares.items())
        notes.append(SearchNotes(model, study.spec.trial.label, ranges, at_edges, importances))
    return SearchWorth([panel for panel in panels.values() if panel.by_candidates], notes)


def _add_curves(panel: BudgetPanel, study: StudyResults, place: int) -> None:
    """Add a study's curves to its target's panel; none where no candidate reaches the target."""
    values, seconds = [], []
    for candidate in study.candidates:
        result = objective(study.spec, study.targets[place].target, candidate)
        # Where it is not reached the cost is infinite; where nothing is known, too.
        values.append(result.cost - math.log(candidate.original[study.spec.utility]) if result else math.inf)
        seconds.append(candidate.seconds)
    if not any(map(math.isfinite, values)):
        return
    variant, label = study.spec.trial.variant, study.spec.trial.label
    counts = tuple(float(count) for count in range(1, len(values) + 1))
    panel.by_candidates.append(BudgetCurve(variant, label, counts, _prices(expected_best(values))))
    budgets = tuple(np.geomspace(min(seconds), sum(seconds), _STEPS).tolist())
    by_cost = _prices(expected_best_at_cost(values, seconds, budgets))
    panel.by_seconds.append(BudgetCurve(variant, label, budgets, by_cost))


def _prices(expected: BestAtBudget) -> tuple[float, ...]:
    prices = []
    for best, chance in zip(expected.best, expected.chance, strict=True):
        prices.append(math.exp(best) if chance >= 0.5 else math.nan)
    return tuple(prices)
