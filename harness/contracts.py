"""The contracts: what a method, an evaluator and a metric are, and the plain data around them.

Besides this a plugin sees `harness.toolkit`, of which it is built, `harness.errors` and `harness.models.blocks`, and no
more of the harness. The model that `erase` loads is the method's to consume; one that `evaluate` receives is lent.
Tensor letters: N sequences, B batch rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

from harness.metric import CloserTo as CloserTo
from harness.metric import Group as Group
from harness.metric import ItemKind as ItemKind
from harness.metric import Metric as Metric
from harness.metric import exponential as exponential
from harness.search_space import Choice as Choice
from harness.search_space import LogUniform as LogUniform
from harness.training import Count as Count
from harness.training import LoRA as LoRA
from harness.training import LossRegion as LossRegion
from harness.training import NonNegative as NonNegative
from harness.training import Positive as Positive
from harness.training import PositiveCount as PositiveCount
from harness.training import Precision as Precision
from harness.training import Training as Training

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Model: TypeAlias = PreTrainedModel
    """What Hugging Face calls a causal LM."""
else:
    # Importing transformers takes seconds, and planning a sweep needs a plugin's settings only.
    Model = Any

Number = float | int
Json = Any
"""Whatever `json` can write: what crosses a process border or reaches the journal."""
T = TypeVar("T")

Definition = Literal["exact", "table"]
"""`exact`: the mended formulas. `table`: what the published tables were almost certainly made with."""
Reference = Literal["none", "retain_data", "memorized_model"]
"""What a method needs besides the model and the forget set: the paper's three groups."""
RoundingScheme = Literal["int8", "int4", "nf4"]
"""How rounded weights are stored: evenly spaced values of 8 or 4 bits, or the 16 of NF4."""
Lowered = Literal["likelihood", "logits", "hidden_states"]
MoreTexts = Literal["holdout", "retain", "validation"]
Read = Literal["holdout", "retain", "validation", "retrained", "original"]
"""What an evaluator gets besides the forget set and the prompts: unseen texts, retain texts, general texts, the
retrained model, and the original next to every model that it measures."""


@dataclass(frozen=True)
class Strength:
    """The one dial of a method that turns erasure up: a field of its settings."""

    field: str
    cumulative: bool
    """True: one trial goes through the values (epochs); False: a trial for each (gamma)."""
    off: Number
    """The value at which nothing is erased."""
    divisible: bool = False
    """Of epochs: a trial may stop within one, as `train_and_yield` does; 2.25 is after a quarter of the third."""


@dataclass(frozen=True)
class Sequences:
    """Token sequences, right-padded: each a prefix and its continuation."""

    tokens_NT: torch.Tensor
    """int64, padded with 0 after each sequence's end."""
    lengths_N: torch.Tensor
    """int64, the tokens that count; all > `prefix_tokens`."""
    prefix_tokens: int
    """Where the continuation starts."""
    digest: str
    """sha256 of tokens, lengths and prefix: names the data without showing it."""

    def __len__(self) -> int:
        """Return the number of sequences, N."""
        return len(self.lengths_N)


@dataclass(frozen=True)
class ErasedModel:
    """A model after erasure, at one strength."""

    strength: Number
    model: Model
    notes: Mapping[str, Json] = field(default_factory=dict)
    """Plain data for the journal: selected blocks, losses, skipped steps."""
    changed_blocks: tuple[str, ...] | None = None
    """The only blocks that differ from the original, if the method promises so: makes a patch."""
    stop_reason: str | None = None
    """Set on the last model of a trajectory that ended early."""


class TrainingTask(Protocol):
    """What the training loop needs."""

    seed: int
    forget: Sequences
    retain: Sequences | None
    """Given to every method whose reference is `retain_data`."""
    training: Training
    engine: Any
    """How steps are made (`harness.specs.Engine`); methods need not look."""

    def validation_perplexity(self, model: Model) -> float:
        """Return the model's own perplexity on held-out text; NaN without validation text."""

    def progress(self, message: str) -> None:
        """Show what is going on: `epoch 2 of 7`."""


class ErasureTask(TrainingTask, Protocol):
    """What a method may ask for while it erases."""

    strengths: tuple[Number, ...]
    """The strengths to yield, rising. One value, the dial's own, unless the dial is cumulative; whole ones, unless it
    is divisible."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer; a copy, the method's own."""

    def load_original(self) -> Model:
        """Return a fresh copy of the original model, in evaluation mode; it is the caller's."""

    def memorized_model(self) -> Model:
        """Return a fresh copy of the memorised model: the original overfitted on the forget set."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method is its settings: a frozen dataclass whose fields a sweep file may set.

    A trajectory that is cumulative must not depend on later strengths: a constant learning rate,
    and nothing that looks at the last epoch. The task and torch's global state stay as they were.
    """

    label: ClassVar[str]
    """As printed in tables: "EMSO"."""
    source: ClassVar[str]
    version: ClassVar[int]
    """Raised whenever the method's numbers change; part of every trial's identity."""
    strength: ClassVar[Strength]
    searched_training: ClassVar[tuple[str, ...]] = ("learning_rate",)
    """What of `training` a search varies besides the method's own settings; () where nothing is trained."""
    lowers: ClassVar[Lowered] = "likelihood"
    """What of the forget set its loss lowers: one that works on all logits or on hidden states is held to less by the
    conformance suite, not to raise the likelihood beyond noise."""
    drafted: ClassVar[bool] = True
    """Whether `lethe init` proposes it in a first file; it writes others as comments."""
    published: ClassVar[Mapping[str, Json]] = {}
    """What its publication used where that is not the default, by setting (`training.learning_rate`): a search tries it
    beside the defaults."""

    @property
    @abstractmethod
    def reference(self) -> Reference:
        """What it needs besides the model and the forget set.

        `reference = "none"` in a class says so of all settings; a property may look at them.
        """

    @abstractmethod
    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the erased model at each of `task.strengths`, in that order.

        A trajectory that ends early yields once more where it ended, with its `stop_reason`.
        """

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why a model with this `config.json` cannot be erased from, and what to do; None if it can."""
        return None

    def refuses_training(self, training: Training) -> str | None:
        """Return why it cannot be trained so, and what to do; None if it can."""
        return None


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk or on the hub, pinned."""

    id: str
    location: str
    tokenizer: str
    """Both a local folder, or the hub's id; what a judge's `load` gets are folders."""
    digest: str
    """Of weights, configuration, tokenizer and ends of text; for a hub model its commit."""
    revision: str | None = None

    @property
    def short_name(self) -> str:
        """Return the last part of the id: `gpt-neo-125m`."""
        return self.id.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Generations:
    """What a model wrote after each utility prompt, beside what a person wrote there."""

    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    """Continuations alone, up to the first end of text; '' where that came at once."""
    references: tuple[str, ...]
    """The human continuations, of the same length in tokens unless the definition says otherwise."""
    digest: str
    """Names the prompts and references (not the texts): a key for cached reference features."""


@dataclass(frozen=True)
class TextsShape:
    """What a plan knows of a forget set before anything runs."""

    sequences: int
    prefix_tokens: int
    longest: int
    """The tokens of the longest sequence, its prefix counted."""


class EvaluationTask(Protocol):
    """What an evaluator may ask for while it measures. The report shows the first `sample_count` samples."""

    seed: int
    forget: Sequences
    holdout: Sequences | None
    retain: Sequences | None
    validation: Sequences | None
    """General texts, which no training reads."""
    tokenizer: PreTrainedTokenizerBase
    sample_count: int

    def progress(self, message: str) -> None:
        """Show what is going on: `attack 2 of 6`."""

    def generations(self, definition: Definition) -> Generations:
        """Return the model's sampled continuations of the utility prompts: made once, shared."""

    def judge(self, role: str, load: Callable[[Checkpoint], T]) -> T:
        """Return `load(checkpoint)`; let go of one judge before asking for the next: a large one makes room."""

    def cached(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for all that ask with the same key: put the digests that matter into it."""

    def original_digest(self) -> str:
        """Return the digest of the original's weights: a key for what is computed from it."""

    def load_original(self) -> Model:
        """Return a fresh copy of the original model, for an evaluator that `reads` it.

        One that `prepares` may ask for it within `cached` alone, should what it prepared be lost.
        """

    def retrained_digest(self) -> str:
        """Return the digest of the retrained model's weights."""

    def load_retrained(self) -> Model:
        """Return a fresh copy of the retrained model, for an evaluator that `reads` it."""


@dataclass(frozen=True)
class Sample:
    """One text for the report; what comes from the forget set is redacted unless asked for."""

    kind: Literal["forget", "utility"]
    prompt: str
    generated: str
    reference: str


@dataclass(frozen=True)
class MeasuredCurve:
    """Numbers along something, which the report draws for every model: after each step, in each layer."""

    name: str
    """The same for every model: a panel of the figure has all curves of one name."""
    title: str
    x_title: str
    y_title: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    """As many as `xs`; NaN where one could not be measured."""


@dataclass(frozen=True)
class Evaluation:
    """What one evaluator measured on one erased model."""

    numbers: Mapping[str, float]
    """One for each declared metric; NaN where it could not be measured, never 0."""
    samples: tuple[Sample, ...] = ()
    notes: Mapping[str, Json] = field(default_factory=dict)
    per_item: Mapping[str, np.ndarray] = field(default_factory=dict)
    """For each metric that declares `items`, by its name, what each of them has (NaN: not known), and beside them
    the arrays that metrics name as their `weights`. Forget sequences and prompts are in the task's order."""
    item_ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of the metrics whose items are questions: a stable id for each, by the metric's name."""
    curves: tuple[MeasuredCurve, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Evaluator(ABC):
    """An evaluator is its settings. It leaves model, task, judges, torch's global state and random states alone."""

    version: ClassVar[int]
    """Raised whenever its numbers change; part of every measurement's identity."""
    judges: ClassVar[tuple[str, ...]] = ()
    """Of `perplexity`, `features` (MAUVE), `similarity`, `coherence`; their digests are part of its identity."""
    needs_fp32: ClassVar[bool] = False
    """Whether it gets the weights as they were erased whatever `measuring.precision` says: it trains, rounds or reads
    them."""
    reads_if_given: ClassVar[tuple[MoreTexts, ...]] = ()
    """Texts that it also gets if the sweep names them, as part of its identity; else the task has None for them."""
    definition: Definition = "exact"

    @property
    def reads(self) -> tuple[Read, ...]:
        """What more it gets: the task's `holdout`, `retain` and `validation`, `load_retrained` and `load_original`.

        What a sweep may lack is part of its identity, and a sweep that lacks it is refused. `reads = ("holdout",)` in
        a class says so of all settings; a property may look at them.
        """
        return ()

    @property
    def trained_texts(self) -> int:
        """How many texts a step of `trained_briefly` reads: `--plan` counts what that holds. 0: it trains nothing."""
        return 0

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that these settings report, in the order of the table's columns."""

    def inputs(self) -> Mapping[str, str]:
        """Return a digest of every file it reads; a DataError for one it cannot use refuses the sweep."""
        return {}

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why a model with this `config.json` cannot be measured, and what to do; None if it can."""
        return None

    def refuses_texts(self, forget: TextsShape) -> str | None:
        """Return why it cannot measure on such a forget set, and what to do; None if it can."""
        return None

    def data_sets(self) -> Sequence[tuple[str, str | None]]:
        """Return the id and configuration of every data set of the hub that it reads."""
        return ()

    @property
    def prepares(self) -> bool:
        """Whether it has anything to compute of the original alone: whether its class has a `prepare` of its own."""
        return type(self).prepare is not Evaluator.prepare

    def prepare(self, original: Model, task: EvaluationTask) -> None:  # noqa: B027
        """Compute by `task.cached` what is made of the original alone, before any model is measured; else nothing.

        `evaluate` then finds it under the same key, and no second model is loaded beside the one that it measures. Of
        all trials one seed is enough: let no key depend on `task.seed`.
        """

    @abstractmethod
    def evaluate(self, model: Model, task: EvaluationTask) -> Evaluation:
        """Return one number for each metric of this model."""
