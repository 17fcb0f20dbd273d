"""What a search has spent of its budget, and whether another candidate is paid for.

A budget is a number of candidates, or seconds or floating-point operations of them. Then each method is charged with
all that it takes: every step and probe of its candidates, as its own inference costs them, and the memorised model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.plans import Cost, StudySpec
from harness.records.record import Candidate

AT_ONCE = 2
"""Candidates of a study that may run at once while it learns from them. More would make it wait less and know less;
a constant, since another number would propose others."""
LEAST_SHARE = 0.01
"""Of a budget that is no count, each candidate is charged at least this: one that fails at once is not free."""
MOST_CANDIDATES = round(1 / LEAST_SHARE) + AT_ONCE - 1
"""How many a budget that is no count can pay for."""


def is_paid(study: StudySpec, number: int, known: Sequence[Candidate]) -> bool:
    """Return whether a study's budget pays for candidate `number`.

    It does if those before the one before it, which may still run, have left something of it: so the last ones may cost
    more than what is left, as little of that as a candidate is.
    """
    if number >= study.trials or study.cost is None:
        return number < study.trials
    before = [candidate for candidate in known if candidate.number <= number - AT_ONCE]
    return spent(study.cost, before) < study.cost.most


def share_spent(cost: Cost, known: Sequence[Candidate]) -> str:
    """Return how much of a budget candidates have spent, in words: `23% of 90 seconds`."""
    return f"{spent(cost, known) / cost.most:.0%} of {cost.most:g} {cost.unit}"


def spent(cost: Cost, known: Sequence[Candidate]) -> float:
    """Return what candidates have cost, with the memorised model that they share.

    Example:
        Two candidates of 5 s, on a memorised model of 30 s; one that failed at once counts as 6 of 600 s.

        >>> about = dict(trial_id="", settings={}, probes=(), targets={}, original={}, end="whole")
        >>> slow = [Candidate(number=number, seconds=5.0, memorized={"seconds": 30.0}, **about) for number in (0, 1)]
        >>> failed = Candidate(number=0, seconds=0.1, **about)
        >>> spent(Cost("seconds", 100.0), slow), spent(Cost("seconds", 600.0), [failed])
        (40.0, 6.0)
    """
    memorized = max((candidate.memorized.get(cost.unit, 0.0) for candidate in known), default=0.0)
    charged = []
    for candidate in known:
        own = candidate.seconds if cost.unit == "seconds" else candidate.flops
        charged.append(max(own, LEAST_SHARE * cost.most))
    return memorized + math.fsum(charged)
