"""What a search was worth: the price against its budget, which settings mattered, and what lies at an edge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.analysis.cells import duration_text
from harness.execution.search.sampling import objective, setting_importances
from harness.plans import Cost, StudySpec
from harness.records.ranges import edges_reached, widened_ranges
from harness.records.results import StudyResults
from harness.records.spending import spent
from harness.records.tuned import dimensions_tried
from harness.statistics.budget import expected_best, expected_best_at_cost
from harness.statistics.item_values import Floats

FEWEST_DRAWN, FEWEST_WEIGHED = 3, 8
"""Candidates that a study needs for a curve, and for a word on its settings."""
SECONDS = Cost("seconds", 0.0)
"""Of which no share is charged at least."""
_STEPS = 24


@dataclass(frozen=True)
class BudgetCurve:
    """The expected price of one method at rising budgets, over all of its searches."""

    variant: str
    label: str
    budgets: tuple[float, ...]
    prices: tuple[float, ...]
    """The least utility at the target, times the original's: the median of the searches; NaN where that one's draws
    reach the target in fewer than half of the cases."""
    least: tuple[float, ...]
    """That of the luckiest search."""
    most: tuple[float, ...]
    """That of the unluckiest."""
    search: str
    """How candidates were proposed: `optuna` or `random`."""
    searches: int
    """With other seeds, and on models that are replicates of each other."""


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
    search: str
    """`optuna` or `random`."""
    seeds: str
    """Those it was made for."""
    spent: str
    """How many candidates it tried, and how long they and the memorised model took."""
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
    repeated: dict[tuple[str, str, str], list[StudyResults]] = {}
    for study in studies:
        if len(study.candidates) >= FEWEST_DRAWN:
            trial = study.spec.trial
            repeated.setdefault((trial.table_model, trial.variant, study.spec.search), []).append(study)
    for (model, *_), searches in repeated.items():
        for place, result in enumerate(searches[0].targets):
            panel = panels.setdefault((model, str(result.target)), BudgetPanel(model, str(result.target)))
            _add_curves(panel, searches, place)
    notes = [_notes(study) for study in studies]
    return SearchWorth([panel for panel in panels.values() if panel.by_candidates], notes)


def _notes(study: StudyResults) -> SearchNotes:
    spec = study.spec
    importances: tuple[tuple[str, float], ...] = ()
    if len(study.candidates) >= FEWEST_WEIGHED and len(dimensions_tried(spec)) > 1:
        importances = tuple(setting_importances(spec, study.targets[0].target, study.candidates).items())
    return SearchNotes(
        model=spec.trial.model.id,
        label=spec.trial.label,
        search=spec.search,
        seeds=", ".join(map(str, spec.seeds)),
        spent=f"{len(study.candidates)} candidates, {duration_text(spent(SECONDS, study.candidates))}",
        widened=tuple(f"{name} to {wide.low:.3g} to {wide.high:.3g}" for name, wide in widened_ranges(study).items()),
        at_edges=tuple(str(chosen) for chosen in edges_reached(study)),
        importances=importances,
    )


def _add_curves(panel: BudgetPanel, searches: Sequence[StudyResults], place: int) -> None:
    """Add a method's curves to its target's panel; none where no candidate of any search reaches the target."""
    values = [_log_prices(study, place) for study in searches]
    if not any(math.isfinite(value) for of_search in values for value in of_search):
        return
    seconds = [[candidate.seconds for candidate in study.candidates] for study in searches]
    most = max(map(len, values))
    totals = [spent(SECONDS, study.candidates) for study in searches]
    budgets = np.geomspace(min(map(min, seconds)), max(totals), _STEPS)
    by_count, by_cost = [], []
    for of_search, costs, total in zip(values, seconds, totals, strict=True):
        best = expected_best(of_search)
        # One that had nothing left to learn has found what it will find.
        by_count.append(np.pad(best.known(), (0, most - len(of_search)), mode="edge"))
        by_cost.append(expected_best_at_cost(of_search, costs, budgets.tolist(), total - sum(costs)).known())
    panel.by_candidates.append(_curve(searches[0].spec, np.arange(1.0, most + 1), np.array(by_count)))
    panel.by_seconds.append(_curve(searches[0].spec, budgets, np.array(by_cost)))


def _log_prices(study: StudyResults, place: int) -> list[float]:
    """Return each candidate's log price at a target; infinite where it only collapses, misses it, or is not known."""
    prices = []
    for candidate in study.candidates:
        result = objective(study.spec, study.targets[place].target, candidate)
        price = result.cost - math.log(candidate.original[study.spec.utility]) if result else math.inf
        prices.append(price if price <= math.log(study.spec.utility_bounds[1]) else math.inf)
    return prices


def _curve(spec: StudySpec, budgets_B: Floats, log_prices_SB: Floats) -> BudgetCurve:
    """Return the curve of several searches; infinite prices are those of a target that is not reached."""
    ends = []
    with np.errstate(invalid="ignore"):
        for prices_B in (np.median(log_prices_SB, axis=0), log_prices_SB.min(axis=0), log_prices_SB.max(axis=0)):
            ends.append(tuple(np.where(np.isfinite(prices_B), np.exp(prices_B), np.nan).tolist()))
    prices, least, most = ends
    return BudgetCurve(
        variant=spec.trial.variant,
        label=spec.trial.label,
        budgets=tuple(budgets_B.tolist()),
        prices=prices,
        least=least,
        most=most,
        search=spec.search,
        searches=len(log_prices_SB),
    )
