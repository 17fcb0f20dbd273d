"""The contracts of methods and evaluators.

Plugins import this, `harness.toolkit`, `harness.errors`, `harness.models.blocks`. Letters: N sequences, T tokens.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

from harness.settings import Checkpoint, Choice, Count, Json, LogUniform, LoRA, MoreTexts, NonNegative, Number

# isort: split
from harness.settings import Positive, PositiveCount, Precision, Training

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Model: TypeAlias = PreTrainedModel
    Tokenizer: TypeAlias = PreTrainedTokenizerBase
else:
    Model = Tokenizer = Any  # Importing transformers takes seconds, and a plan needs only a plugin's settings.

T = TypeVar("T")

Definition = Literal["exact", "table"]
"""The corrected formulas, or those of the published tables, almost certainly."""
Reference = Literal["none", "retain_data", "memorized_model"]
RoundingScheme = Literal["int8", "int4", "nf4"]
Read = Literal["holdout", "retain", "retrained", "original"]
Group: TypeAlias = str
"""`erasure`, `generation`, `reasoning` or an evaluator's own."""
ItemKind = Literal["sequence", "prompt", "question", "sequence_and_holdout", "holdout", "validation"]
"""Texts or questions; `sequence_and_holdout` is all forget sequences, then all unseen texts (`toolkit.auc_items`)."""


@dataclass(frozen=True)
class Strength:
    """The dial of a method that turns erasure up, a field of its settings; `off` erases nothing."""

    field: str
    cumulative: bool
    """One trial goes through the values (epochs); otherwise each value is a trial."""
    off: Number
    divisible: bool = False
    """May stop within an epoch: 2.25 is after a quarter of the third."""


@dataclass(frozen=True)
class Sequences:
    """Prefixes with their continuations."""

    tokens_NT: torch.Tensor
    """int64, padded on the right with 0."""
    lengths_N: torch.Tensor
    """int64; all > `prefix_tokens`."""
    prefix_tokens: int
    digest: str

    def __len__(self) -> int:
        return len(self.lengths_N)


@dataclass(frozen=True)
class ErasedModel:
    """A model after erasure; `stop_reason` is set if a trajectory ended early."""

    strength: Number
    model: Model
    notes: Mapping[str, Json] = field(default_factory=dict)
    changed_blocks: tuple[str, ...] | None = None
    """The only blocks that differ from the original; None promises nothing."""
    stop_reason: str | None = None


class TrainingTask(Protocol):
    """Input of the training loop; `engine` is a `harness.settings.Engine`."""

    seed: int
    forget: Sequences
    retain: Sequences | None
    training: Training
    engine: Any

    def validation_perplexity(self, model: Model) -> float:
        """Return perplexity on held-out text, which only `training.early_stop` reads; NaN without any."""

    def progress(self, message: str) -> None: ...


class ErasureTask(TrainingTask, Protocol):
    """Input of a method, which owns models it loads: the original, and the original overfitted on the forget set."""

    strengths: tuple[Number, ...]
    """Rising; one unless the dial is cumulative."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    def load_original(self) -> Model: ...
    def memorized_model(self) -> Model: ...


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A frozen dataclass of settings that a sweep file may set.

    A cumulative trajectory must not depend on later strengths. Task and global state must not change.
    """

    label: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[int]
    """Raise it when numbers change."""
    strength: ClassVar[Strength]
    searched_training: ClassVar[tuple[str, ...]] = ("learning_rate",)
    """Settings of `training` that a search varies."""
    published: ClassVar[Mapping[str, Json]] = {}
    """Settings that a search tries next to the defaults."""

    @property
    @abstractmethod
    def reference(self) -> Reference:
        """Need in addition to model and forget set."""

    @abstractmethod
    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model at each of `task.strengths`; at an early end a last one with the reason.

        It is closed before the last is measured.
        """

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why a model with this `config.json` is refused, and what to do."""
        return None

    def refuses_training(self, training: Training) -> str | None:
        """Return why this training is refused, and what to do."""
        return None


@dataclass(frozen=True)
class Generations:
    """Continuations of the utility prompts, up to the first end of text."""

    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    references: tuple[str, ...]
    """By humans; of equal token lengths under `exact`."""
    digest: str


@dataclass(frozen=True)
class TextsShape:
    """Sizes of a forget set."""

    sequences: int
    prefix_tokens: int
    longest: int


class EvaluationTask(Protocol):
    """Input of an evaluator, which loads only models that it `reads`, or the original within `cached`."""

    seed: int
    forget: Sequences
    holdout: Sequences | None
    retain: Sequences | None
    validation: Sequences | None
    """General texts that no training reads."""
    tokenizer: Tokenizer
    sample_count: int
    is_original: bool
    """Whether the measured model is the original."""

    def progress(self, message: str) -> None: ...
    def generations(self, definition: Definition) -> Generations: ...
    def judge(self, role: str, load: Callable[[Checkpoint], T]) -> T:
        """Return `load(checkpoint)`; drop one judge before the next."""

    def cached(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for each key of all digests that matter."""

    def original_digest(self) -> str: ...
    def load_original(self) -> Model: ...
    def retrained_digest(self) -> str: ...
    def load_retrained(self) -> Model: ...


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


@dataclass(frozen=True)
class Evaluation:
    """Measurements of one model: a number for each metric, NaN if not measured."""

    numbers: Mapping[str, float]
    samples: tuple[Sample, ...] = ()
    notes: Mapping[str, Json] = field(default_factory=dict)
    per_item: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Values of metrics with `items` in the task's order; NaN: unknown."""
    item_weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Weights of a metric's mean; equal by default."""
    item_ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Stable ids of a metric's questions."""
    curves: tuple[MeasuredCurve, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Evaluator(ABC):
    """A frozen dataclass of settings. Model, task, judges and global state must not change."""

    version: ClassVar[int]
    judges: ClassVar[tuple[str, ...]] = ()
    """Among `perplexity`, `features` (MAUVE), `similarity` and `coherence`."""
    needs_fp32: ClassVar[bool] = False
    """Ignores `measuring.precision`, to train, round or read weights."""
    reads_if_given: ClassVar[tuple[MoreTexts, ...]] = ()
    """None in the task if the sweep has none, and in holdout rows."""
    definition: Definition = "exact"

    @property
    def reads(self) -> tuple[Read, ...]:
        """Required parts of the task."""
        return ()

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics under these settings."""

    def inputs(self) -> Mapping[str, str]:
        """Return a digest of every file it reads; a DataError refuses the sweep."""
        return {}

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why a model with this `config.json` is refused, and what to do."""
        return None

    def refuses_texts(self, forget: TextsShape) -> str | None:
        """Return why such a forget set is refused, and what to do."""
        return None

    def prepare(self, original: Model, task: EvaluationTask) -> None:  # noqa: B027
        """Compute by `task.cached` what depends only on the original, and on no seed."""

    @abstractmethod
    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return one number for each metric."""
