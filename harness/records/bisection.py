"""Bisection: what a study tries next where all that it searches is a strength, each value an erasure of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from harness.contracts import Number
from harness.plans import StudySpec
from harness.records.record import Candidate
from harness.records.results import reaching_probes
from harness.search_space import LogUniform

NARROW = 1.02
"""A bracket whose ends differ by less than 2 % is not halved any more."""


def is_bisected(study: StudySpec) -> bool:
    """Return whether a study searches a strength alone, each value of which is an erasure of its own."""
    return (
        not study.is_cumulative
        and list(study.space) == [study.trial.strength_name]
        and isinstance(study.space[study.trial.strength_name], LogUniform)
    )


def bisected_strength(study: StudySpec, dimension: LogUniform, known: Sequence[Candidate]) -> Number | None:
    """Return the strength of a range that a bisected study tries next; None if nothing is left to learn in it."""
    name = study.trial.strength_name
    reached: dict[Number, list[bool]] = {}
    for candidate in known:
        # One that failed has gone too far, whatever it would have reached.
        has_failed = candidate.error is not None
        reaches = [has_failed or bool(reaching_probes(study, target, candidate)) for target in study.targets]
        reached[candidate.settings[name]] = reaches
    first = [study.defaults[name]]
    if study.published:
        first.append(study.published[name])
    return next_strength(dimension, first, reached)


def next_strength(
    dimension: LogUniform, first: Sequence[Number], reached: Mapping[Number, Sequence[bool]]
) -> Number | None:
    """Return the strength to try next: those named, both ends, then the widest bracket's geometric middle.

    A target's bracket lies between the least strength that reached it and the greatest below that did not. A target
    that no strength reaches, up to the upper end, has none, and neither has one that the lower end reaches.

    Args:
        dimension: Where to search.
        first: What is tried first: the method's own strength, and the published one.
        reached: Of each strength tried, whether it reached each of the targets.

    Returns:
        A strength that was not tried; None if there is nothing left to learn.

    Example:
        >>> next_strength(LogUniform(low=1.0, high=16.0), [2.0], {2.0: [False], 16.0: [True], 1.0: [False]})
        5.656854249492381
    """
    for strength in (*first, dimension.high, dimension.low):
        if strength not in reached:
            return strength
    brackets = []
    rising = sorted(reached)
    for target in range(len(reached[first[0]])):
        upper = next((strength for strength in rising if reached[strength][target]), None)
        if upper is not None and upper > rising[0]:
            lower = rising[rising.index(upper) - 1]
            if upper / lower > NARROW:
                brackets.append((upper / lower, lower, upper))
    for _, lower, upper in sorted(brackets, reverse=True):
        middle = math.sqrt(lower * upper)
        if isinstance(dimension.low, int):
            middle = round(middle)
        if middle not in reached:
            return middle
    return None
