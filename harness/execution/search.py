"""Proposals of a study, which depend only on its candidates of lower numbers.

A proposal knows the results of all earlier candidates except the last, whose settings it knows. So two can run at once,
and every executor proposes the same, also after a killed sweep.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.base.files import digest_of
from harness.contracts import Json
from harness.records.record import Candidate
from harness.records.tuned import sampled_dimensions, untried_settings
from harness.settings import PROBED_ERASURE, PROBED_UTILITY, Choice, Dimension, Level, StudySpec, end_of

Settings = Mapping[str, Json]


def results_awaited(study: StudySpec, number: int) -> int:
    """Return the number below which all candidates must be finished before this proposal.

    Example:
        The first five run at once; the sixth waits for the first four. ::

            >>> from types import SimpleNamespace
            >>> [results_awaited(SimpleNamespace(search="optuna"), number) for number in range(8)]
            [0, 0, 0, 0, 0, 4, 5, 6]
    """
    return number - 1 if study.search == "optuna" and number > STARTUP else 0


def next_settings(
    study: StudySpec, number: int, candidates: Sequence[Candidate], others: Mapping[int, Settings] | None = None
) -> dict[str, Json] | None:
    """Return the settings of candidate `number`; None if nothing is left, or if others must finish first.

    Args:
        study: The search.
        number: 0 is the method's defaults, 1 its published recipe if that differs.
        candidates: Finished candidates; those that this one must not wait for are ignored.
        others: Settings of running and died ones, by number.
    """
    if number == 0:
        return dict(study.defaults)
    if number == 1 and study.published:
        return dict(study.published)
    unfinished = {other: settings for other, settings in (others or {}).items() if other < number}
    finished, bound = [], results_awaited(study, number)
    for candidate in candidates:
        if candidate.number < bound:
            finished.append(candidate)
        elif candidate.number < number:
            unfinished[candidate.number] = candidate.settings
    untried = untried_settings(study, [*unfinished.values(), *(candidate.settings for candidate in finished)])
    if untried == []:
        return None
    seed, searched = int(digest_of([study.study_id, number])[:8], 16), sampled_dimensions(study)
    sampled = sampled_settings(
        study,
        searched,
        target=study.targets[number % len(study.targets)],
        finished=finished,
        unfinished=[unfinished[other] for other in sorted(unfinished)],
        seed=seed,
    )
    settings = {**study.defaults, **sampled}
    if untried is not None and settings not in untried:
        settings = untried[seed % len(untried)]
    for name in study.space.keys() - searched:  # A cumulative strength, of which each candidate goes to the end.
        settings[name] = end_of(study.space[name])
    return settings


if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

STARTUP = 4
"""Random candidates before the search learns."""


def objective(study: StudySpec, target: Level, candidate: Candidate) -> tuple[float, float] | None:
    """Return a candidate's distance from a level and its cost; None without a probe of the original.

    The distance is the smallest MA less the level. The cost is the log of the lowest perplexity at or below the level,
    or infinite. Probes below the lower bound of perplexity repeat one word and are ignored.
    """
    if not candidate.original:
        return None
    level, min_perplexity = candidate.targets[target.key], study.utility_bounds[0] * candidate.original[PROBED_UTILITY]
    nearest, cost = candidate.original[PROBED_ERASURE], math.inf
    for probe in candidate.probes:
        ma, perplexity = probe[PROBED_ERASURE], probe[PROBED_UTILITY]
        if not perplexity >= min_perplexity or math.isnan(ma):
            continue
        nearest = min(nearest, ma)
        if ma <= level:
            cost = min(cost, math.log(perplexity))
    return nearest - level, cost


def sampled_settings(
    study: StudySpec,
    space: Mapping[str, Dimension],
    *,
    target: Level,
    finished: Sequence[Candidate],
    unfinished: Sequence[Mapping[str, Json]],
    seed: int,
) -> dict[str, Json]:
    """Return a value for each dimension, drawn by Optuna's sampler.

    Args:
        study: The search.
        space: Ranges that contain all tried values.
        target: Level to reach at the least cost.
        finished: Candidates with results.
        unfinished: Settings of other candidates, to keep away from.
        seed: Seed of the sampler.
    """
    with warnings.catch_warnings():  # Of what Optuna calls experimental.
        warnings.simplefilter("ignore")
        from optuna.samplers import RandomSampler, TPESampler
        from optuna.trial import TrialState, create_trial

        if study.search == "random":
            optuna_study = _new_study(RandomSampler(seed=seed))
        else:
            sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP, constant_liar=True)
            optuna_study = _new_study(sampler)
        distributions = _distributions(space)
        _add_results(optuna_study, study, distributions, target, finished)
        for settings in unfinished:
            params = {name: settings[name] for name in space}
            optuna_study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions))
        return dict(optuna_study.ask(distributions).params)


def _new_study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=sampler)


def _add_results(
    optuna_study: optuna.Study,
    study: StudySpec,
    distributions: Mapping[str, BaseDistribution],
    target: Level,
    finished: Sequence[Candidate],
) -> None:
    """Add the results; candidates above the target rank by their distance only."""
    from optuna.trial import TrialState, create_trial

    for candidate in sorted(finished, key=lambda candidate: candidate.number):
        params = {name: candidate.settings[name] for name in distributions}
        result = objective(study, target, candidate)
        outcome: dict[str, Any] = {"state": TrialState.FAIL}
        if result is not None:
            violation, cost = result
            outcome = {"value": min(cost, _NO_COST), "constraints": {target.key: violation}}
        optuna_study.add_trial(create_trial(params=params, distributions=dict(distributions), **outcome))


_NO_COST = 1e9
"""Replaces an infinite cost, which Optuna cannot estimate with."""


def _distributions(space: Mapping[str, Dimension]) -> dict[str, BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    distributions: dict[str, BaseDistribution] = {}
    for name, dimension in space.items():
        if isinstance(dimension, Choice):
            distributions[name] = CategoricalDistribution(dimension.values)
        else:
            distribution: Any = IntDistribution if isinstance(dimension.low, int) else FloatDistribution
            distributions[name] = distribution(dimension.low, dimension.high, log=True)
    return distributions
