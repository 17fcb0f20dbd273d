"""What a study tries next: worked out from its candidates of lower numbers, and from nothing else.

A candidate knows the results of all candidates but the one before it, and of that one only its settings. So two can
run at once, and what is proposed is the same whether they do: on any executor, and after a sweep was killed.
Optuna's sampler gets all of it again for each proposal; a study that searches a strength alone bisects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.base.digests import digest_of
from harness.contracts import Json
from harness.execution.search.sampling import STARTUP, sampled_settings
from harness.plans import StudySpec
from harness.records.bisection import is_bisected
from harness.records.ranges import JUDGED, WIDENED_FROM, space_at
from harness.records.record import Candidate
from harness.records.spending import AT_ONCE
from harness.records.tuned import bisected_settings, dimensions_tried, untried_settings
from harness.search_space import end_of

Settings = Mapping[str, Json]


def results_awaited(study: StudySpec, number: int) -> int:
    """Return below which number all candidates must be over before this one is proposed.

    Example:
        The first five learn from none, so they may all run at once; the sixth waits for the first four. ::

            >>> from types import SimpleNamespace
            >>> study = SimpleNamespace(search="optuna", is_cumulative=True, space={}, cost=None)
            >>> [results_awaited(study, number) for number in range(8)]
            [0, 0, 0, 0, 0, 4, 5, 6]
    """
    learnt = number - AT_ONCE + 1
    if study.cost is not None:  # Whether it is paid for depends on what they cost.
        return max(learnt, 0)
    if study.search == "random":
        return JUDGED if number >= WIDENED_FROM else 0
    return learnt if learnt >= STARTUP else 0


def next_settings(
    study: StudySpec, number: int, known: Sequence[Candidate], others: Mapping[int, Settings] | None = None
) -> dict[str, Json] | None:
    """Return what to try as candidate `number`; None if nothing is left, or nothing before the others are over.

    Args:
        study: The search.
        number: 0 is the method's defaults, and 1 its published recipe where that is something else.
        known: The candidates that are over. Those of numbers that this one must not wait for are not looked at.
        others: The settings of those that run, or whose process died, by number.
    """
    if number == 0:
        return dict(study.defaults)
    unseen: dict[int, Settings] = {}
    for other, of_other in (others or {}).items():
        if other < number:
            unseen[other] = of_other
    if is_bisected(study):
        settings = bisected_settings(study, known)
        return None if settings in unseen.values() else settings
    if number == 1 and study.published:
        return dict(study.published)
    seen = []
    learnt = results_awaited(replace(study, cost=None), number)
    for candidate in known:
        if candidate.number < learnt:
            seen.append(candidate)
        elif candidate.number < number:
            unseen[candidate.number] = candidate.settings
    untried = untried_settings(study, [*unseen.values(), *(candidate.settings for candidate in seen)])
    if untried == []:
        return None
    space, seed = space_at(study, number, seen), int(digest_of([study.study_id, number])[:8], 16)
    searched = dimensions_tried(study)
    sampled = sampled_settings(
        study,
        {name: space[name] for name in searched},
        target=study.targets[number % len(study.targets)],
        seen=seen,
        unseen=[unseen[other] for other in sorted(unseen)],
        seed=seed,
    )
    settings = {**study.defaults, **sampled}
    if untried is not None and settings not in untried:
        settings = untried[seed % len(untried)]
    for name in space.keys() - searched:  # A cumulative strength, of which each candidate goes to the end.
        settings[name] = end_of(space[name])
    return settings
