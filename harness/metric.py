"""Declarations of metrics: all that rankings, tables, figures and reports know of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Group: TypeAlias = str
"""`erasure`, `generation` and `reasoning` are ours. Any other is an evaluator's own, such as `membership`: tables show
its metrics below a heading of their own and rank them among themselves; the other ranks do not look at them."""
ItemKind = Literal["sequence", "prompt", "question", "sequence_and_holdout", "holdout", "validation"]
"""A sequence of the forget set, a utility prompt, a question of a reasoning task, an unseen text or a validation text.
`sequence_and_holdout` is each sequence of the forget set and then each unseen one, for metrics that compare the two
sets, such as an AUC (`harness.toolkit.auc_items`)."""


def exponential(log: float) -> float:
    """Return e to the power of `log`; infinite where that is more than a float can hold.

    Example:
        >>> exponential(0.0), exponential(710.0), exponential(-1000.0)
        (1.0, inf, 0.0)
    """
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class CloserTo:
    """The better a number, the closer it is to another.

    Example:
        >>> f"{CloserTo(0.5)} is better, {CloserTo('retrained')} is better"
        'closer to 0.5 is better, closer to the retrained model is better'
    """

    aim: float | Literal["retrained"]
    """A number, such as the 0.5 of an attack that guesses; or what the retrained model has, with the same seed."""

    def __post_init__(self) -> None:
        """Refuse an aim that no number can be close to."""
        if self.aim != "retrained" and not (isinstance(self.aim, int | float) and math.isfinite(self.aim)):
            raise ValueError(f"a metric cannot be closer to {self.aim!r}: give a finite number, or 'retrained'.")

    def __str__(self) -> str:
        """Return what comes before `is better`."""
        return "closer to the retrained model" if isinstance(self.aim, str) else f"closer to {self.aim:g}"


Better: TypeAlias = Literal["lower", "higher"] | CloserTo


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that an evaluator reports; what is left out of it has a default that fits most."""

    name: str
    better: Better
    unit: str
    low: float
    high: float
    """`inf` where there is no bound."""
    group: Group
    source: str
    """Paper and equation."""
    title: str
    """As a figure's axis says it: `EL_3`, `Perplexity`."""
    meaning: str = ""
    """A sentence for readers of a report; '' where the title says enough."""
    ranked: bool = True
    """False: shown beside the ranked metrics of its group, and not counted again."""
    axis: int | None = None
    """Drawn in trade-off figures, in this order: erasure upwards, generation across. The terminal shows these alone."""
    noise: float | None = None
    """The difference that one seed cannot distinguish from none: a number, or a share where there is no upper bound.

    It is 1.5 standard deviations of a difference of two values that chance alone sets apart, and so 2.12 of one value.
    """
    trusted_from: int = 0
    """Generated texts that it needs; the report warns where there were fewer."""
    judge: str | None = None
    """The role of the judge that it comes from, one of `Evaluator.judges`."""
    items: ItemKind | None = None
    """Items that it aggregates, each with a value in `Evaluation.per_item`; None if it has none."""
    attack: str = ""
    """The attack that it measures, as the head of a column in the table of attacks: `4 bits`. '' where the metric has
    none there."""
    aggregate: Literal["mean", "exp_mean"] = "mean"
    """The aggregate of its parts: `exp_mean` is the exponential of their mean, and is interpolated by logarithms."""
    weights: str | None = None
    """The array of `Evaluation.per_item` by which that mean is weighted: tokens, of a perplexity."""

    @property
    def collapse(self) -> Literal["mauve", "perplexity", "repetition"] | None:
        """Return the sign of a collapse that its values show: each bound of a sweep file is its metric's name."""
        if self.name.startswith("rep_"):
            return "repetition"
        return self.name if self.name in ("mauve", "perplexity") else None  # type: ignore[return-value]

    @property
    def agrees_with(self) -> Literal["text", "original"] | None:
        """Return what exact match compares a continuation with: the sequence's own text, or the original's."""
        return {"exact_match": "text", "exact_match_original": "original"}.get(self.name)  # type: ignore[return-value]


def check_group(group: Group) -> Group:
    """Return a group's name, which is that of a column of ranks and of a folder of metrics in MLflow too.

    Raises:
        ValueError: It cannot be.
    """
    if group == "average" or not re.fullmatch(r"[a-z][a-z0-9_]*", group):
        raise ValueError(
            f"'{group[:60]}' is no name of a group of metrics: use lower-case letters, digits and _ alone, and not "
            "'average', which is the rank of two groups together."
        )
    return group


def metric_of(declared: Mapping[str, Any]) -> Metric:
    """Return the metric that `dataclasses.asdict` made plain data of, without what metrics no longer declare.

    Raises:
        TypeError: Something that has no default is missing.
    """
    better = declared.get("better")
    revived = {"better": CloserTo(**better)} if isinstance(better, Mapping) else {}
    known = {name: value for name, value in declared.items() if name in Metric.__dataclass_fields__}
    return Metric(**{**known, **revived})
