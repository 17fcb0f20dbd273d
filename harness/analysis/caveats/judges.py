"""What the judges of a sweep make of human text: whether their word can be taken for anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.metrics import MetricInfo, in_sentence
from harness.contracts import Metric
from harness.records.results import PointResults
from harness.specs import ORIGINAL

UNKNOWN_LANGUAGE = 1000.0
"""Perplexity of human text from which on a judge knows no more of it than how frequent its tokens are."""
UNLIKE_HUMANS = 10.0
"""Times the perplexity of what the original wrote: the judge then knows its habits better than human ones."""


@dataclass(frozen=True)
class HumanReading:
    """What one judge makes of the human continuations that one model's are compared with."""

    model: str
    role: str
    judge: str
    metric: Metric | None
    """What comes from this judge, if it was measured."""
    perplexity: float
    """Of the human continuations, by the formula of the role's metric."""
    original: float
    """Of what the original model wrote, by the same; NaN where it is not measured."""

    def __str__(self) -> str:
        """Return what a report says of it."""
        said = f"{self.model}: the judge of {self.role} ({self.judge}) gives the human continuations a perplexity of "
        own = "" if math.isnan(self.original) else f", and what the original wrote one of {_rounded(self.original)}"
        return f"{said}{_rounded(self.perplexity)}{own}."


def human_readings(points: Sequence[PointResults], info: MetricInfo) -> list[HumanReading]:
    """Return what each model's judges make of human text, as evaluators noted it under `human_perplexity`.

    The note is a mapping of a judge's role to a perplexity. It is the same for every point of a model,
    so each comes back once.
    """
    readings: dict[tuple[str, str], HumanReading] = {}
    for point in sorted(points, key=lambda point: point.spec.method != ORIGINAL):
        for measurement in point.measurements:
            noted = measurement.notes.get("human_perplexity")
            for role, perplexity in noted.items() if isinstance(noted, dict) else ():
                if role not in point.spec.judges:
                    continue
                judged = [metric for metric in info.values() if metric.judge == role]
                own = [metric.name for metric in judged if metric.unit == "perplexity"]
                is_original = own and point.spec.method == ORIGINAL
                readings.setdefault(
                    (point.spec.model.id, role),
                    HumanReading(
                        model=point.spec.model.id,
                        role=role,
                        judge=point.spec.judges[role].id,
                        metric=judged[0] if judged else None,
                        perplexity=float(perplexity),
                        original=measurement.numbers.get(own[0], math.nan) if is_original else math.nan,
                    ),
                )
    return [reading for reading in readings.values() if not math.isnan(reading.perplexity)]


def judge_warnings(readings: Sequence[HumanReading]) -> list[str]:
    """Return a warning for each judge whose reading of human text is out of reason.

    A judge that knows a language gives human text a perplexity of some tens (the embedded one, of its own
    small corpus, 3 to 5). Two bounds, neither of which a fitting judge comes near:

    - 1,000: what the frequencies of English tokens alone give. Above it the judge does not know the language:
      its perplexity ranks noise, and its features put all texts in one place, so that MAUVE calls anything healthy.
    - 10 times what the original wrote: such a judge knows how the original writes, and not how people do, so
      that a lower perplexity is no better text. Seen for perplexity alone; MAUVE has no such number.
    """
    warned = []
    for reading in readings:
        if reading.perplexity > UNKNOWN_LANGUAGE:
            reason = "It does not know this language"
        elif reading.perplexity > UNLIKE_HUMANS * reading.original:
            reason = "It knows how the original writes, and not how people do"
        else:
            continue
        metric = in_sentence(reading.metric) if reading.metric else "what it judges"
        remedy = f"Name one that does in the sweep file (judges.{reading.role})"
        warned.append(f"{reading} {reason}, so {metric} says little here. {remedy}.")
    return warned


def _rounded(perplexity: float) -> str:
    return f"{perplexity:,.1f}" if perplexity < 1000 else f"{perplexity:,.0f}".replace("inf", "∞")
