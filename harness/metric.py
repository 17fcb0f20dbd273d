"""Declarations of metrics, and samples and curves next to them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Group: TypeAlias = str
"""`erasure`, `generation`, `reasoning` or an evaluator's own."""
ItemKind = Literal["sequence", "prompt", "question", "sequence_and_holdout", "holdout", "validation"]
"""Texts or questions; `sequence_and_holdout` is all forget sequences, then all unseen texts (`toolkit.auc_items`)."""


def exponential(log: float) -> float:
    """Return e to the power of `log`, or infinity."""
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class CloserTo:
    """Better means closer to a target value."""

    aim: float | Literal["retrained"]
    """A number, or the retrained model's value with the same seed."""

    def __post_init__(self) -> None:
        if self.aim != "retrained" and not (isinstance(self.aim, int | float) and math.isfinite(self.aim)):
            raise ValueError(f"a metric cannot be closer to {self.aim!r}: give a finite number, or 'retrained'.")

    def __str__(self) -> str:
        return "closer to the retrained model" if isinstance(self.aim, str) else f"closer to {self.aim:g}"


Better: TypeAlias = Literal["lower", "higher"] | CloserTo


NOISE = {"EMSO paper, appendix E": 0.06, "Pillutla et al., arXiv:2102.01454": 0.07}
"""Noise of perplexity and MAUVE over ten samplings of a 1.3B model (logs of dong-river/LLM_unlearning), by source.

A number from a published table has another source, and no known noise.
"""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number that an evaluator reports."""

    name: str
    better: Better
    unit: str
    low: float
    high: float
    group: Group
    source: str
    """Paper and equation."""
    title: str
    """On axes: `EL_3`, `Perplexity`."""
    ranked: bool = True
    """False: shown next to ranked metrics."""
    items: ItemKind | None = None
    """Items with values in `Evaluation.per_item`."""
    aggregate: Literal["mean", "exp_mean"] = "mean"
    """From items to the number."""
    attack: str = ""
    """Column in the table of attacks: `4 bits`."""

    @property
    def axis(self) -> int | None:
        """Return its place among trade-off axes: erasure upwards, generation across."""
        is_el = self.group == "erasure" and self.name.startswith("el_")
        return 2 if is_el else {"ma": 1, "mauve": 1, "perplexity": 2}.get(self.name)

    @property
    def judge(self) -> str | None:
        """Return the role of its judge, one of `Evaluator.judges`."""
        roles = {"ss": "similarity", "perplexity": "perplexity", "coherence": "coherence", "mauve": "features"}
        return roles.get(self.name)

    @property
    def noise(self) -> float | None:
        """Return 1.5 standard deviations of a difference by chance; a share if there is no upper bound."""
        return NOISE.get(self.source)

    @property
    def collapse(self) -> Literal["mauve", "perplexity", "repetition"] | None:
        """Return the sign of collapse that it shows."""
        if self.name.startswith("rep_"):
            return "repetition"
        return self.name if self.name in ("mauve", "perplexity") else None  # type: ignore[return-value]

    @property
    def agrees_with(self) -> Literal["text", "original"] | None:
        """Return the texts that exact match compares with."""
        return {"exact_match": "text", "exact_match_original": "original"}.get(self.name)  # type: ignore[return-value]


@dataclass(frozen=True)
class Sample:
    """A text for the report, redacted if `forget`."""

    kind: Literal["forget", "utility"]
    prompt: str
    generated: str
    reference: str


@dataclass(frozen=True)
class MeasuredCurve:
    """Numbers by step or layer; curves of one name share a panel."""

    name: str
    title: str
    x_title: str
    y_title: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]


def parse_metric(declared: Mapping[str, Any]) -> Metric:
    """Return a metric from `dataclasses.asdict`, without unknown fields.

    Raises:
        TypeError: A field without a default is missing.
    """
    better = declared.get("better")
    revived = {"better": CloserTo(**better)} if isinstance(better, Mapping) else {}
    fields = {name: value for name, value in declared.items() if name in Metric.__dataclass_fields__}
    return Metric(**{**fields, **revived})
