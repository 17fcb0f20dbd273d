"""Optuna: its samplers, asked for one candidate after they were told of the others, and what it says of settings.

Decision 0014 says why it is asked itself, and not through the searcher that Ray Tune wraps around it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.contracts import Json
from harness.plans import StudySpec, Target
from harness.records.record import Candidate
from harness.search_space import Choice, Dimension

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

STARTUP = 4
"""Candidates before the search learns from them; the others until then are random."""


@dataclass(frozen=True)
class Objective:
    """What a candidate is to the search for one target."""

    violation: float
    """How far above the target the metric stayed; at most 0 where the target was reached."""
    cost: float
    """The log of the least utility (a perplexity) among the probes that reach the target; infinite where none does."""


def objective(study: StudySpec, target: Target, candidate: Candidate) -> Objective | None:
    """Return what a candidate is to the search for a target; None if it failed before anything was known.

    A probe below the lower bound of utility writes the same word for ever: it is nothing to aim at, and is not seen.
    """
    if not candidate.original:
        return None
    asked, least = candidate.targets[str(target)], study.utility_bounds[0] * candidate.original[study.utility]
    nearest, cost = candidate.original[target.metric], math.inf
    for probe in candidate.probes:
        reached, utility = probe[target.metric], probe[study.utility]
        if not utility >= least or math.isnan(reached):
            continue
        nearest = min(nearest, reached)
        if reached <= asked:
            cost = min(cost, math.log(utility))
    return Objective(nearest - asked, cost)


def sampled_settings(
    study: StudySpec,
    space: Mapping[str, Dimension],
    *,
    target: Target,
    seen: Sequence[Candidate],
    unseen: Sequence[Mapping[str, Json]],
    seed: int,
) -> dict[str, Json]:
    """Return a value for each dimension, as Optuna's sampler chooses them.

    Args:
        study: The search.
        space: Where to look: wide enough for all that was tried.
        target: What the candidate is to reach at the least cost.
        seen: The candidates whose results the sampler gets.
        unseen: The settings of the others, near which it is not to look.
        seed: Of the sampler.
    """
    with warnings.catch_warnings():  # Of what Optuna calls experimental.
        warnings.simplefilter("ignore")
        from optuna.samplers import RandomSampler, TPESampler
        from optuna.trial import TrialState, create_trial

        if study.search == "random":
            asked = _study(RandomSampler(seed=seed))
        else:
            sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP, constant_liar=True)
            asked = _study(sampler)
        distributions = _distributions(space)
        _tell(asked, study, distributions, target, seen)
        for settings in unseen:
            params = {name: settings[name] for name in space}
            asked.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions))
        return dict(asked.ask(distributions).params)


def _study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=sampler)


def _tell(
    asked: optuna.Study,
    study: StudySpec,
    distributions: Mapping[str, BaseDistribution],
    target: Target,
    seen: Sequence[Candidate],
) -> None:
    """Add what is known; the others are ranked by how far they stayed from the target, and not by what they cost."""
    from optuna.trial import TrialState, create_trial

    for candidate in sorted(seen, key=lambda candidate: candidate.number):
        params = {name: candidate.settings[name] for name in distributions}
        result = objective(study, target, candidate)
        told: dict[str, Any] = {"state": TrialState.FAIL}
        if result is not None:
            told = {"value": min(result.cost, _NO_COST), "constraints": {str(target): result.violation}}
        asked.add_trial(create_trial(params=params, distributions=dict(distributions), **told))


_NO_COST = 1e9
"""In place of an infinite cost, which Optuna's estimates cannot hold; what is infeasible is not compared by it."""


def _distributions(space: Mapping[str, Dimension]) -> dict[str, BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    distributions: dict[str, BaseDistribution] = {}
    for name, dimension in space.items():
        if isinstance(dimension, Choice):
            distributions[name] = CategoricalDistribution(dimension.values)
        else:
            of_kind: Any = IntDistribution if isinstance(dimension.low, int) else FloatDistribution
            distributions[name] = of_kind(dimension.low, dimension.high, log=True)
    return distributions
