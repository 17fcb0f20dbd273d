"""Declarations of metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Group: TypeAlias = str
"""`erasure`, `generation` and `reasoning`, or an evaluator's own, with its own heading and ranks."""
ItemKind = Literal["sequence", "prompt", "question", "sequence_and_holdout", "holdout", "validation"]
"""A forget sequence, utility prompt, reasoning question, unseen or validation text.

`sequence_and_holdout` is each forget sequence, then each unseen text, as for an AUC (`harness.toolkit.auc_items`)."""


def exponential(log: float) -> float:
    """Return e to the power of `log`; infinite on overflow."""
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class CloserTo:
    """Better means closer to a target value."""

    aim: float | Literal["retrained"]
    """A number, such as 0.5 of a guessing attack, or the retrained model's value with the same seed."""

    def __post_init__(self) -> None:
        """Refuse an aim that is not finite."""
        if self.aim != "retrained" and not (isinstance(self.aim, int | float) and math.isfinite(self.aim)):
            raise ValueError(f"a metric cannot be closer to {self.aim!r}: give a finite number, or 'retrained'.")

    def __str__(self) -> str:
        """Return the words before `is better`."""
        return "closer to the retrained model" if isinstance(self.aim, str) else f"closer to {self.aim:g}"


Better: TypeAlias = Literal["lower", "higher"] | CloserTo


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that an evaluator reports."""

    name: str
    better: Better
    unit: str
    low: float
    high: float
    """`inf` without a bound."""
    group: Group
    source: str
    """Paper and equation."""
    title: str
    """On a figure's axis: `EL_3`, `Perplexity`."""
    meaning: str = ""
    """A sentence for readers; '' if the title suffices."""
    ranked: bool = True
    """False: shown next to the ranked metrics of its group."""
    axis: int | None = None
    """Place among trade-off axes: erasure upwards, generation across."""
    noise: float | None = None
    """1.5 standard deviations of a difference by chance: a number, or a share where there is no upper bound."""
    trusted_from: int = 0
    """Generated texts below which the report warns."""
    judge: str | None = None
    """Role of its judge, one of `Evaluator.judges`."""
    items: ItemKind | None = None
    """Aggregated items, with values in `Evaluation.per_item`."""
    attack: str = ""
    """Column head in the table of attacks: `4 bits`; '' for none."""
    aggregate: Literal["mean", "exp_mean"] = "mean"
    """Mean of the items, or its exponential."""
    weights: str | None = None
    """Array of `Evaluation.per_item` that weights the mean, such as tokens."""

    @property
    def collapse(self) -> Literal["mauve", "perplexity", "repetition"] | None:
        """Return the sign of collapse that it shows, as in a sweep file."""
        if self.name.startswith("rep_"):
            return "repetition"
        return self.name if self.name in ("mauve", "perplexity") else None  # type: ignore[return-value]

    @property
    def agrees_with(self) -> Literal["text", "original"] | None:
        """Return what exact match compares a continuation with."""
        return {"exact_match": "text", "exact_match_original": "original"}.get(self.name)  # type: ignore[return-value]


def check_group(group: Group) -> Group:
    """Return a group's name, also a column of ranks and a folder in MLflow.

    Raises:
        ValueError: It is not a name.
    """
    if group == "average" or not re.fullmatch(r"[a-z][a-z0-9_]*", group):
        raise ValueError(
            f"'{group[:60]}' is no name of a group of metrics: use lower-case letters, digits and _ alone, and not "
            "'average', which is the rank of two groups together."
        )
    return group


def metric_of(declared: Mapping[str, Any]) -> Metric:
    """Revive a metric from `dataclasses.asdict`; ignore unknown fields.

    Raises:
        TypeError: A field without a default is missing.
    """
    better = declared.get("better")
    revived = {"better": CloserTo(**better)} if isinstance(better, Mapping) else {}
    known = {name: value for name, value in declared.items() if name in Metric.__dataclass_fields__}
    return Metric(**{**known, **revived})
