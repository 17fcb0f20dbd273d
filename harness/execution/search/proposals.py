"""What a study tries next: worked out from what it has tried so far, and from nothing else.

So a sweep that was killed goes on with the candidates that it would have had. Each suggestion comes from a new
`OptunaSearch` of Ray, which is given all that is known; a study that searches a strength alone bisects it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.base.digests import digest_of
from harness.contracts import Json
from harness.execution.ray_settings import set_ray_environment
from harness.plans import StudySpec, Target
from harness.records.record import Candidate
from harness.records.results import reaching_probes
from harness.records.tuned import bisected_settings, dimensions_tried, is_bisected, untried_settings
from harness.search_space import Choice, Dimension

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

STARTUP = 4
"""Candidates before the search learns from them; the others until then are random."""
Settings = Mapping[str, Json]


def next_settings(
    study: StudySpec, number: int, known: Sequence[Candidate], running: Sequence[Settings] = ()
) -> dict[str, Json] | None:
    """Return what to try as candidate `number`; None if nothing is left, or nothing before the running ones are over.

    Args:
        study: The search.
        number: 0 is the method's defaults.
        known: The candidates that are over, by number.
        running: What is being tried meanwhile.
    """
    if number == 0:
        return dict(study.defaults)
    if is_bisected(study):
        settings = bisected_settings(study, known)
        return None if settings in running else settings
    tried = list(running)
    for candidate in known:
        tried.append(candidate.settings)
    untried = untried_settings(study, tried)
    if untried == []:
        return None
    suggested = {**study.defaults, **_suggested(study, number, known)}
    if untried is not None and suggested not in untried:
        return untried[_candidate_seed(study, number) % len(untried)]
    return suggested


def objectives(study: StudySpec, candidate: Candidate) -> dict[str, float] | None:
    """Return what the search minimises: for each target, what it costs this candidate to reach it.

    That is the log of the least utility (a perplexity) among the probes that reach the target. Where none does it is
    the log of the greatest utility that is no collapse, and how far the metric stayed above the target besides.

    Returns:
        By target; None for a candidate that failed before anything was known.
    """
    if not candidate.original:
        return None
    return {str(target): _objective(study, target, candidate) for target in study.targets}


def _objective(study: StudySpec, target: Target, candidate: Candidate) -> float:
    original = candidate.original[study.utility]
    least, most = study.utility_bounds[0] * original, study.utility_bounds[1] * original
    reaching: list[float] = [probe[study.utility] for probe in reaching_probes(study, target, candidate)]
    # Below the lower bound it writes the same word for ever, and is nothing to aim at.
    cheapest = min((cost for cost in reaching if cost >= least), default=None)
    if cheapest is not None:
        return math.log(cheapest)
    nearest = candidate.original[target.metric]
    for probe in candidate.probes:
        nearest = probe[target.metric] if probe[target.metric] < nearest else nearest
    return math.log(most) + max(0.0, nearest - candidate.targets[str(target)])


def _suggested(study: StudySpec, number: int, known: Sequence[Candidate]) -> dict[str, Json]:
    """Return what Ray's search suggests after it is given the known candidates in their order."""
    set_ray_environment()  # A later sweep of this process may start Ray.
    with warnings.catch_warnings():  # Of what Optuna calls experimental, and of what its imports deprecate.
        warnings.simplefilter("ignore")
        import optuna
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        seed, searched = _candidate_seed(study, number), dimensions_tried(study)
        sampler = (
            optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
            if study.search == "optuna"
            else optuna.samplers.RandomSampler(seed=seed)
        )
        tried = []
        for candidate in known:
            tried.append({name: value for name, value in candidate.settings.items() if name in searched})
        search = OptunaSearch(
            space={name: _distribution(dimension) for name, dimension in searched.items()},
            metric=[str(target) for target in study.targets],
            mode=["min"] * len(study.targets),
            sampler=sampler,
            points_to_evaluate=tried,
        )
        for candidate in known:
            # Its own `evaluated_rewards` know one objective only; asked for, each point comes back as it was.
            search.suggest(str(candidate.number))
            result = objectives(study, candidate)
            search.on_trial_complete(str(candidate.number), result, error=result is None)
        suggested: dict[str, Json] = search.suggest(str(number))
    return suggested


def _distribution(dimension: Dimension) -> BaseDistribution:
    from optuna import distributions

    if isinstance(dimension, Choice):
        return distributions.CategoricalDistribution(dimension.values)
    of_kind: Any = distributions.IntDistribution if isinstance(dimension.low, int) else distributions.FloatDistribution
    distribution: BaseDistribution = of_kind(dimension.low, dimension.high, log=True)
    return distribution


def _candidate_seed(study: StudySpec, number: int) -> int:
    return int(digest_of([study.study_id, number])[:8], 16)
