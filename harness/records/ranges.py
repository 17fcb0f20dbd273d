"""A study's ranges: each is widened once where what was chosen lies at an end, by a rule that is fixed beforehand.

The rule (docs/decisions/0014): the first six candidates are the judges. Where the best of them at any target has a
value within 2 % of an end of its range, in logarithms, the range is longer by a third of its length at that end from
the eighth candidate on. A bisected study that has nothing left to learn sooner is judged then. The widened part is
searched within the budget, which stays equal for all methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.contracts import Number
from harness.plans import StudySpec, Target
from harness.records.bisection import bisected_strength, is_bisected
from harness.records.record import Candidate
from harness.records.results import StudyResults, study_results
from harness.search_space import Dimension, LogUniform, edge_of

JUDGED = 6
"""How many of the first candidates say whether a range is widened."""
WIDENED_FROM = 7
"""The number of the first candidate in a widened range; when it is proposed, all the judges are over."""


@dataclass(frozen=True)
class ChosenAtEdge:
    """A chosen value at an end of its range: a better one may lie beyond."""

    target: Target
    name: str
    """The dimension: a setting, or the strength's field."""
    value: Number
    edge: Literal["low", "high"]

    def __str__(self) -> str:
        """Return it in words.

        Example:
            >>> str(ChosenAtEdge(Target(metric="ma", at_most=0.9), "gamma", 0.005, "low"))
            'ma <= 0.9: gamma 0.005 is at the lower end of its range'
        """
        end = "lower" if self.edge == "low" else "upper"
        return f"{self.target}: {self.name} {self.value:.3g} is at the {end} end of its range"


def chosen_at_edges(study: StudyResults, space: Mapping[str, Dimension]) -> list[ChosenAtEdge]:
    """Return what a study chose at the ends of ranges; the least strength of a trajectory is no end.

    Choices have no order, and so no ends.
    """
    strength = study.spec.trial.strength_name
    at_edges = []
    for result in study.targets:
        for name, dimension in space.items():
            if result.chosen is None or not isinstance(dimension, LogUniform):
                continue
            value = result.chosen.probe["strength"] if name == strength else result.chosen.candidate.settings[name]
            edge = edge_of(dimension, value)
            if edge == "high" or (edge == "low" and not (name == strength and study.spec.is_cumulative)):
                at_edges.append(ChosenAtEdge(result.target, name, value, edge))
    return at_edges


def space_at(study: StudySpec, number: int, known: Sequence[Candidate]) -> dict[str, Dimension]:
    """Return the space that candidate `number` is searched in, given those that are over: widened or not."""
    judges = _judges(study, number, known)
    space = dict(study.space)
    for chosen in chosen_at_edges(study_results(study, judges), study.space) if judges else ():
        dimension, widest = space[chosen.name], study.widest.get(chosen.name)
        if isinstance(dimension, LogUniform) and isinstance(widest, LogUniform):
            low = widest.low if chosen.edge == "low" else dimension.low
            high = widest.high if chosen.edge == "high" else dimension.high
            space[chosen.name] = LogUniform(low=low, high=high)
    return space


def widened_ranges(study: StudyResults) -> dict[str, LogUniform]:
    """Return the ranges of a study that its last candidates were searched in, as far as they were widened."""
    if not study.candidates:
        return {}
    space = space_at(study.spec, study.candidates[-1].number, study.candidates)
    ranges: dict[str, LogUniform] = {}
    for name, dimension in space.items():
        if dimension != study.spec.space[name] and isinstance(dimension, LogUniform):
            ranges[name] = dimension
    return ranges


def edges_reached(study: StudyResults) -> list[ChosenAtEdge]:
    """Return what a study chose at the ends of its ranges, as wide as they were in the end."""
    return chosen_at_edges(study, {**study.spec.space, **widened_ranges(study)})


def _judges(study: StudySpec, number: int, known: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that say which ranges are wider for this one; [] where none is yet."""
    first = sorted((candidate for candidate in known if candidate.number < JUDGED), key=lambda judge: judge.number)
    if is_bisected(study):
        dimension = study.space[study.trial.strength_name]
        assert isinstance(dimension, LogUniform)
        for count in range(1, min(len(first), number) + 1):
            if bisected_strength(study, dimension, first[:count]) is None:
                return first[:count]
    return first if number >= WIDENED_FROM else []
