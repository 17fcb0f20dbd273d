"""Proposals of a study, which depend only on its candidates of lower numbers.

A proposal knows the results of all earlier candidates but the last, whose settings it knows: two can run at once.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from harness.base.files import digest_of
from harness.records import journal
from harness.records.results import ROUNDING, sampled_dimensions, untried_settings
from harness.settings import PROBED_ERASURE, PROBED_UTILITY, Choice, Dimension, Json, Level, Study, end_of

Settings = Mapping[str, Json]


def results_awaited(study: Study, number: int) -> int:
    """Return the number below which all candidates must be finished before this proposal.

    Example:
        The first five run at once; the sixth waits for the first four. ::

            >>> from types import SimpleNamespace
            >>> [results_awaited(SimpleNamespace(search="optuna"), number) for number in range(8)]
            [0, 0, 0, 0, 0, 4, 5, 6]
    """
    return number - 1 if study.search == "optuna" and number > STARTUP else 0


def next_settings(
    study: Study, number: int, candidates: Sequence[journal.Candidate], others: Mapping[int, Settings] | None = None
) -> dict[str, Json] | None:
    """Return the settings of candidate `number`; None if nothing is left.

    0 is the method's defaults, 1 its published recipe if that differs. `others`: settings of running and died ones.
    """
    if number == 0:
        return dict(study.defaults)
    if number == 1 and study.published:
        return dict(study.published)
    bound = results_awaited(study, number)
    finished = sorted((one for one in candidates if one.number < bound), key=lambda one: one.number)
    running = {**(others or {}), **{one.number: one.settings for one in candidates if one.number >= bound}}
    unfinished = [running[other] for other in sorted(running) if other < number]
    untried = untried_settings(study, [*unfinished, *(one.settings for one in finished)])
    if untried == []:
        return None
    seed = int(digest_of([study.study_id, number])[:8], 16)
    sampled = sampled_settings(study, study.targets[number % len(study.targets)], finished, unfinished, seed)
    settings = {**study.defaults, **sampled}
    if untried is not None and settings not in untried:
        settings = untried[seed % len(untried)]
    # A cumulative strength, of which each candidate goes to the end.
    return {**settings, **{name: end_of(study.space[name]) for name in study.space if name not in sampled}}


STARTUP = 4
"""Random candidates before the search learns."""


def objective(study: Study, target: Level, candidate: journal.Candidate) -> tuple[float, float] | None:
    """Return a candidate's smallest MA less the level, and the log of its lowest perplexity there or infinity.

    Probes below the lower bound of perplexity repeat one word and are ignored. None without a probe of the original.
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
        if ma <= level + ROUNDING:
            cost = min(cost, math.log(perplexity))
    return nearest - level, cost


def sampled_settings(
    study: Study, target: Level, finished: Sequence[journal.Candidate], unfinished: Sequence[Settings], seed: int
) -> dict[str, Json]:
    """Return a value for each dimension, drawn by Optuna's sampler.

    Finished candidates above the target rank by their distance only; others are kept away from.
    """
    with warnings.catch_warnings(action="ignore"):  # Optuna warns of its experimental parts.
        import optuna
        from optuna.trial import TrialState, create_trial

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler: Any = optuna.samplers.RandomSampler(seed=seed)
        if study.search == "optuna":
            options: dict[str, Any] = {"multivariate": True, "n_startup_trials": STARTUP, "constant_liar": True}
            sampler = optuna.samplers.TPESampler(seed=seed, **options)
        optuna_study = optuna.create_study(sampler=sampler)
        distributions = {name: _distribution(dimension) for name, dimension in sampled_dimensions(study).items()}

        def add(settings: Settings, **outcome: Any) -> None:
            params = {name: settings[name] for name in distributions}
            optuna_study.add_trial(create_trial(params=params, distributions=distributions, **outcome))

        for candidate in finished:
            if (result := objective(study, target, candidate)) is None:
                add(candidate.settings, state=TrialState.FAIL)
            else:
                violation, cost = result  # Optuna gets 1e9 for an infinite cost.
                add(candidate.settings, value=min(cost, 1e9), constraints={target.key: violation})
        for settings in unfinished:
            add(settings, state=TrialState.RUNNING)
        return dict(optuna_study.ask(distributions).params)


def _distribution(dimension: Dimension) -> Any:
    from optuna import distributions

    if isinstance(dimension, Choice):
        return distributions.CategoricalDistribution(dimension.values)
    kind: Any = distributions.IntDistribution if isinstance(dimension.low, int) else distributions.FloatDistribution
    return kind(dimension.low, dimension.high, log=True)
