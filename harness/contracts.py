"""The contracts: methods, evaluators and metrics, and the plain data around them.

A plugin imports this, `harness.toolkit`, `harness.errors` and `harness.models.blocks`. It owns the model that `erase`
loads; the one that `evaluate` receives must stay as it is. Tensor letters: N sequences, T tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

from harness.metric import CloserTo, Group, ItemKind, Metric, exponential
from harness.settings import (
    Checkpoint,
    Choice,
    Count,
    Json,
    LogUniform,
    LoRA,
    LossRegion,
    MoreTexts,
    NonNegative,
    Number,
    Positive,
    PositiveCount,
    Precision,
    Training,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Model: TypeAlias = PreTrainedModel
else:
    Model = Any  # Importing transformers takes seconds, and a plan needs only a plugin's settings.

T = TypeVar("T")

Definition = Literal["exact", "table"]
"""`exact`: the corrected formulas. `table`: those that the published tables were almost certainly made with."""
Reference = Literal["none", "retain_data", "memorized_model"]
RoundingScheme = Literal["int8", "int4", "nf4"]
Read = Literal["holdout", "retain", "retrained", "original"]


@dataclass(frozen=True)
class Strength:
    """The one dial of a method that turns erasure up: a field of its settings."""

    field: str
    cumulative: bool
    """True: one trial goes through the values (epochs). False: each value is a trial (gamma)."""
    off: Number
    """The value at which nothing is erased."""
    divisible: bool = False
    """True: a trial may stop within an epoch; 2.25 is after a quarter of the third."""


@dataclass(frozen=True)
class Sequences:
    """Token sequences, each a prefix and its continuation."""

    tokens_NT: torch.Tensor
    """int64, padded on the right with 0."""
    lengths_N: torch.Tensor
    """int64; all > `prefix_tokens`."""
    prefix_tokens: int
    digest: str
    """sha256 of tokens, lengths and prefix."""

    def __len__(self) -> int:
        """Return N."""
        return len(self.lengths_N)


@dataclass(frozen=True)
class ErasedModel:
    """A model after erasure, at one strength."""

    strength: Number
    model: Model
    notes: Mapping[str, Json] = field(default_factory=dict)
    """Selected blocks, losses, skipped steps: for the journal."""
    changed_blocks: tuple[str, ...] | None = None
    """The only blocks that differ from the original, where the method promises that."""
    stop_reason: str | None = None
    """Set where a trajectory ended early."""


class TrainingTask(Protocol):
    """Input of the training loop."""

    seed: int
    forget: Sequences
    retain: Sequences | None
    """Set for every method whose reference is `retain_data`."""
    training: Training
    engine: Any
    """A `harness.settings.Engine`."""

    def validation_perplexity(self, model: Model) -> float:
        """Return the model's own perplexity on held-out text; NaN without validation text."""

    def progress(self, message: str) -> None:
        """Show a message: `epoch 2 of 7`."""


class ErasureTask(TrainingTask, Protocol):
    """Input of a method."""

    strengths: tuple[Number, ...]
    """The strengths to yield, rising; one unless the dial is cumulative."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer, a copy."""

    def load_original(self) -> Model:
        """Return a fresh copy of the original model, in evaluation mode."""

    def memorized_model(self) -> Model:
        """Return a fresh copy of the original overfitted on the forget set."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method is its settings: a frozen dataclass whose fields a sweep file may set.

    A cumulative trajectory must not depend on later strengths. Task and torch's global state must stay as they were.
    """

    label: ClassVar[str]
    """The name in tables: "EMSO"."""
    source: ClassVar[str]
    version: ClassVar[int]
    """Raise it whenever the method's numbers change."""
    strength: ClassVar[Strength]
    searched_training: ClassVar[tuple[str, ...]] = ("learning_rate",)
    """Settings of `training` that a search varies too; () where nothing is trained."""
    published: ClassVar[Mapping[str, Json]] = {}
    """Published settings that are not the default (`training.learning_rate`): a search tries them too."""

    @property
    @abstractmethod
    def reference(self) -> Reference:
        """The need besides model and forget set; a class attribute if it is the same for all settings."""

    @abstractmethod
    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the erased model at each of `task.strengths`; where it ends early, a last one with the reason."""

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why a model with this `config.json` cannot be erased from, and what to do; None if it can."""
        return None

    def refuses_training(self, training: Training) -> str | None:
        """Return why it cannot be trained so, and what to do; None if it can."""
        return None


@dataclass(frozen=True)
class Generations:
    """Continuations of the utility prompts, by the model and by people."""

    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    """Up to the first end of text."""
    references: tuple[str, ...]
    """The human continuations, as long in tokens under `exact`."""
    digest: str
    """Names prompts and references: a key for cached features."""


@dataclass(frozen=True)
class TextsShape:
    """A forget set as a plan knows it."""

    sequences: int
    prefix_tokens: int
    longest: int
    """Tokens of the longest sequence with its prefix."""


class EvaluationTask(Protocol):
    """Input of an evaluator; the report shows the first `sample_count` samples."""

    seed: int
    forget: Sequences
    holdout: Sequences | None
    retain: Sequences | None
    validation: Sequences | None
    """General texts, which no training reads."""
    tokenizer: PreTrainedTokenizerBase
    sample_count: int

    def progress(self, message: str) -> None:
        """Show a message: `attack 2 of 6`."""

    def generations(self, definition: Definition) -> Generations:
        """Return the model's sampled continuations, made once."""

    def judge(self, role: str, load: Callable[[Checkpoint], T]) -> T:
        """Return `load(checkpoint)`; drop one judge before asking for the next."""

    def cached(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for each key; put all digests that matter into the key."""

    def original_digest(self) -> str:
        """Return the digest of the original's weights."""

    def load_original(self) -> Model:
        """Return a fresh copy of the original, for an evaluator that `reads` it, or within `cached` if it prepares."""

    def retrained_digest(self) -> str:
        """Return the digest of the retrained model's weights."""

    def load_retrained(self) -> Model:
        """Return a fresh copy of the retrained model, for an evaluator that `reads` it."""


@dataclass(frozen=True)
class Sample:
    """One text for the report; forget texts are redacted by default."""

    kind: Literal["forget", "utility"]
    prompt: str
    generated: str
    reference: str


@dataclass(frozen=True)
class MeasuredCurve:
    """Numbers by step or layer; the report draws all curves of one name in one panel."""

    name: str
    title: str
    x_title: str
    y_title: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """Measurements of one model by one evaluator."""

    numbers: Mapping[str, float]
    """One for each declared metric; NaN where it could not be measured."""
    samples: tuple[Sample, ...] = ()
    notes: Mapping[str, Json] = field(default_factory=dict)
    per_item: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Values of each metric that declares `items`, in the task's order (NaN: not known), and arrays for `weights`."""
    item_ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """A stable id for each question, by metric."""
    curves: tuple[MeasuredCurve, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Evaluator(ABC):
    """An evaluator is its settings. It changes neither model, task, judges nor torch's global and random states."""

    version: ClassVar[int]
    """Raise it whenever its numbers change."""
    judges: ClassVar[tuple[str, ...]] = ()
    """Among `perplexity`, `features` (MAUVE), `similarity` and `coherence`."""
    needs_fp32: ClassVar[bool] = False
    """True where it trains, rounds or reads weights: `measuring.precision` does not apply then."""
    reads_if_given: ClassVar[tuple[MoreTexts, ...]] = ()
    """Texts that it gets where the sweep names them; the task has None where not, and in rows of unseen texts."""
    definition: Definition = "exact"

    @property
    def reads(self) -> tuple[Read, ...]:
        """Parts of the task that it needs, without which a sweep is refused; a class attribute if always the same."""
        return ()

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics under these settings."""

    def inputs(self) -> Mapping[str, str]:
        """Return a digest of every file it reads; a DataError refuses the sweep."""
        return {}

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why a model with this `config.json` cannot be measured, and what to do; None if it can."""
        return None

    def refuses_texts(self, forget: TextsShape) -> str | None:
        """Return why it cannot measure on such a forget set, and what to do; None if it can."""
        return None

    def prepare(self, original: Model, task: EvaluationTask) -> None:  # noqa: B027
        """Compute by `task.cached`, before any model is measured, what depends only on the original, and on no seed."""

    @abstractmethod
    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return one number for each metric."""
