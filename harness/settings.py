"""Settings: the one tree that a sweep file is read into, a trial carries to its worker and the journal records.

First come the blocks of a sweep file, whose keys and meanings are the fields and their texts; then what is resolved
from them. A plugin's own settings are its fields: `harness.planning` checks them. Importing this is cheap.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeVar

from annotated_types import Ge, Gt, Le, Lt, MinLen, doc
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, model_validator

from harness.base.files import digest_of
from harness.base.settings import Place, Strict, quoted
from harness.errors import unknown

T = TypeVar("T")
Number = float | int
Json = Any
"""Plain data that `json` can write."""
MoreTexts = Literal["holdout", "retain", "validation"]
LossRegion = Literal["all", "continuation"]
Precision = Literal["fp32", "bf16"]
Count = Annotated[int, Ge(0)]
PositiveCount = Annotated[int, Ge(1)]
NonNegative = Annotated[float, Ge(0.0)]
Positive = Annotated[float, Gt(0.0)]
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Name = Annotated[str, StringConstraints(pattern=NAME), doc("a name of letters, digits, '-' and '_'")]
ReplicateName = Annotated[str, StringConstraints(pattern=r"\S"), doc("the name that replicates share, a text")]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Fraction = Annotated[float, Gt(0.0), Lt(1.0)]
ORIGINAL = "original"
RETRAINED = "retrained"
HOLDOUT = "holdout"
STAND_IN = "stand_in"
UNSEEN = "unseen"
WALK_VERSION = 1
"""Raised when a walk would find another strength; part of a walked trial's identity."""
MIN_APART = 0.04
"""How far apart two levels of a sweep must be; a walk ends within half of it."""
UNSEEN_ROWS = (HOLDOUT, STAND_IN)
"""The original on texts that it never saw, by what measures erasure alone: texts of the forget set's kind, or
validation texts where the sweep has none of that kind."""
REFERENCE_ROWS = (ORIGINAL, RETRAINED, *UNSEEN_ROWS)
"""Rows that are measured without any erasure: the model before it, the one that never saw the forget set, and what
the first says of texts that are not in it."""
PROBED_ERASURE = "ma"
PROBED_UTILITY = "perplexity"
"""What a probe of two forward passes has: MA on the forget set, and the model's own perplexity on validation texts. A
search and a walk look at nothing else."""
SEARCH_VERSION = 3
"""Raised when a study would propose other candidates from the same records; part of its identity."""
SEARCH_SEEDS = 1_000_000
"""How many values `tune.seed` has. The candidates of the first search train with as many more than it, those of the
second with twice as many more: far from what anyone reports."""
MOST_SAMPLES = 256
"""Every point's journal holds them, and the report shows them on one page."""
MEMORY_SETTINGS = ("micro_batch", "activation_checkpointing")
"""Settings of `Training` that decide how much memory a step takes, and no number."""
ALL_LINEAR: Literal["all-linear"] = "all-linear"
_AT_EDGE = 0.02
OF_TRAINING = "training."
"""What the name of a dimension begins with that is a setting of the training: `training.learning_rate`."""
SOURCE_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "miniature": (),
    "extraction_challenge": ("path",),
    "jsonl": ("path", "field"),
    "npy": ("path",),
    "hub": ("path", "name", "split", "field"),
}
"""Each source, and which of `path`, `name`, `split` and `field` it reads."""
SourceName = Literal["miniature", "extraction_challenge", "jsonl", "npy", "hub"]


def replace(value: T, /, **changes: Any) -> T:
    """Return settings, or a dataclass, with other values of some fields, which are not checked again.

    Raises:
        TypeError: There is no such field.
    """
    if not isinstance(value, BaseModel):
        return dataclasses.replace(value, **changes)  # type: ignore[type-var]
    if unknown_names := changes.keys() - type(value).model_fields.keys():
        raise TypeError(f"{type(value).__name__} has no field {', '.join(sorted(unknown_names))}")
    return value.model_copy(update=changes)


@dataclass(frozen=True, kw_only=True)
class LogUniform:
    """A range that is searched on a logarithmic scale: of whole numbers if both of its ends are.

    Of a cumulative strength only `high` counts: a candidate is erased that far and probed at each step.
    """

    low: float | int
    high: float | int
    """Both ends are included; `low` is above 0 and below `high`."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A few values without an order."""

    values: tuple[Any, ...]


Dimension = LogUniform | Choice


def end_of(dimension: Dimension) -> Any:
    """Return the largest value that may be tried; of choices that cannot be compared, the last.

    Example:
        >>> end_of(LogUniform(low=1, high=12)), end_of(Choice(values=(8, 2))), end_of(Choice(values=("em", "nll")))
        (12, 8, 'nll')
    """
    if isinstance(dimension, LogUniform):
        return dimension.high
    are_numbers = all(type(value) in (int, float) for value in dimension.values)
    return max(dimension.values) if are_numbers else dimension.values[-1]


def edge_of(dimension: LogUniform, value: float) -> Literal["low", "high"] | None:
    """Return the end of a range that a value lies at: within 2 % of its length, in logarithms, or beyond.

    Example:
        >>> dimension = LogUniform(low=1e-6, high=1e-3)
        >>> edge_of(dimension, 1.1e-6), edge_of(dimension, 1e-5), edge_of(dimension, 5e-3)
        ('low', None, 'high')
    """
    place = math.log(value / dimension.low) / math.log(dimension.high / dimension.low)
    if place <= _AT_EDGE:
        return "low"
    return "high" if place >= 1 - _AT_EDGE else None


def nearest(dimension: Dimension, value: Any) -> Any:
    """Return the value that may be tried for this one: itself, the nearest end of a range, the first of other choices.

    Null, which is no number and means no limit, becomes the upper end.

    Example:
        >>> nearest(LogUniform(low=1, high=12), 20), nearest(Choice(values=(8, 2)), 3)
        (12, 8)
    """
    if isinstance(dimension, LogUniform) and value is None:
        return dimension.high
    if isinstance(dimension, Choice):
        return value if value in dimension.values else dimension.values[0]
    return min(max(value, dimension.low), dimension.high)


def _sorted_once(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


class LoRA(Strict):
    """Low-rank adapters: W + alpha / rank · B A, of which A and B alone are trained.

    There is no dropout, as nowhere in the training loop: its masks would depend on how a global batch is cut.

    Source: Hu et al., arXiv:2106.09685, section 4.1.

    Example:
        >>> LoRA(rank=16).alpha, LoRA(rank=16, alpha=16).scaling, LoRA(rank=2, targets=("v", "q")).targets
        (32, 1.0, ('q', 'v'))
    """

    rank: PositiveCount
    """Rank of each update, alpha / rank · B A."""
    alpha: PositiveCount | None = None
    """Null: twice the rank."""
    targets: Annotated[
        Literal["all-linear"] | Annotated[Sequence[str], MinLen(1), AfterValidator(_sorted_once)],
        doc(f"{ALL_LINEAR}, or a list of names of modules"),
    ] = ALL_LINEAR
    """Adapted matrices: all of attention and MLP (`all-linear`), or modules by their names, in every layer."""

    @model_validator(mode="before")
    @classmethod
    def _says_its_alpha(cls, given: Any) -> Any:
        """Say what was left to be said, so that equal adapters have equal settings."""
        is_left = isinstance(given, dict) and given.get("alpha") is None and type(given.get("rank")) is int
        return {**given, "alpha": 2 * given["rank"]} if is_left else given

    @property
    def scaling(self) -> float:
        """Return what B A is multiplied by."""
        assert self.alpha is not None
        return self.alpha / self.rank

    def __str__(self) -> str:
        """Return what tables call it.

        Example:
            >>> str(LoRA(rank=16)), str(LoRA(rank=4, alpha=4, targets=("q_proj", "v_proj")))
            ('LoRA of rank 16 (alpha 32)', 'LoRA of rank 4 (alpha 4, q_proj and v_proj)')
        """
        targets = "" if isinstance(self.targets, str) else f", {' and '.join(self.targets)}"
        return f"LoRA of rank {self.rank} (alpha {self.alpha}{targets})"


class Training(Strict):
    """Training settings, the same for every trained method, so that methods stay comparable."""

    learning_rate: Annotated[Positive, LogUniform(low=1e-6, high=1e-3)] = 1e-5
    """The same for all trained methods, unless a row says otherwise."""
    global_batch: PositiveCount = 64
    """Sequences an optimiser step sees, however they are accumulated."""
    micro_batch: PositiveCount = 16
    """Sequences in one forward pass; changes memory and speed, not the loss."""
    activation_checkpointing: bool = False
    """Keep of each layer only what enters it, and compute the rest again backwards: less memory, a third more
    arithmetic, and the same numbers."""
    weight_decay: NonNegative = 0.0
    """AdamW's."""
    precision: Precision = "fp32"
    """Precision of the forward and backward pass; weights and optimiser state stay fp32."""
    loss_region: LossRegion = "all"
    """Tokens that a loss counts: every predicted one, or only the continuation's."""
    early_stop: Annotated[float, Gt(1.0)] | None = 1.03
    """Stop after the first whole epoch whose validation perplexity exceeds this times the original's."""
    lora: LoRA | None = None
    """Train low-rank adapters instead of the weights; None: the weights."""

    def over(self, other: Training) -> Training:
        """Return this training with what another one sets."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide numbers: all but how a batch is cut, and what of it is kept in memory.

        Example:
            >>> Training(micro_batch=1, activation_checkpointing=True).identity() == Training().identity()
            True
        """
        return self.model_dump(mode="json", exclude={*MEMORY_SETTINGS})

    def in_words(self) -> dict[str, Any]:
        """Return the settings as a report shows them, each of one line; not what is off and was not there at first."""
        settings = {**self.model_dump(), "lora": self.lora and str(self.lora)}
        return {
            name: value for name, value in settings.items() if value or name not in ("activation_checkpointing", "lora")
        }


def _with_id(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


def _with_defaults(value: Any) -> Any:
    """Return `{}` for a name with nothing behind it (`generation:`), which means: all defaults."""
    return {} if value is None else value


Plugins = dict[str, Annotated[dict[str, Any], BeforeValidator(_with_defaults, dict[str, Any] | None)]]


class TextSource(Strict):
    """Where texts come from."""

    source: SourceName
    """Where the texts come from."""
    path: Place | None = None
    """A file or folder, or a data set's id."""
    name: str | None = None
    """The data set's configuration."""
    split: str | None = None
    """The data set's split."""
    field: str | None = None
    """The key that has the text; null: `text`."""
    start: Count = 0
    """The first text that is used."""

    @model_validator(mode="after")
    def _is_of_its_source(self) -> Self:
        reads = SOURCE_SETTINGS[self.source]
        for name in ("path", "name", "split", "field"):
            if getattr(self, name) is not None and name not in reads:
                others = f"; it reads {', '.join(reads)}" if reads else ""
                raise ValueError(f"the source '{self.source}' does not read {name}{others}.")
        if "path" in reads and not self.path:
            of_hub = "the data set's id on the hub, or a local folder of it"
            raise ValueError(f"path is missing: {of_hub if self.source == 'hub' else 'where the texts are'}.")
        return self


class SampledSource(TextSource):
    """Texts that are used as they stand: all of them, the first ones, or a random sample."""

    sequences: PositiveCount | None = None
    """How many texts; null: all, or as many as there are forget sequences (64 at most) for unseen ones."""
    sample_seed: Count | None = None
    """Draws a random sample with this seed instead of the first texts."""

    @model_validator(mode="after")
    def _samples_so_many(self) -> Self:
        if self.sample_seed is not None and self.sequences is None:
            raise ValueError("sample_seed draws a random sample, and sequences must say of how many.")
        return self


class HoldoutSource(SampledSource):
    """Unseen texts of the forget set's kind."""

    prefix_tokens: PositiveCount | None = None
    """Tokens that a model is given of each text."""
    sequence_tokens: PositiveCount | None = None
    """Tokens of each text, prefix included."""


class ForgetSource(HoldoutSource):
    """The forget set; `not_memorized` are cut as its other texts are."""

    not_memorized: SampledSource | None = None
    """Further texts to erase, which the model is not expected to recite."""


class HeldSource(TextSource):
    """Retain data, or validation texts."""

    sequences: PositiveCount | None = None
    """How many texts; null: all."""
    sequence_tokens: PositiveCount | None = None
    """Tokens of each text."""


class UtilitySource(TextSource):
    """Human texts that the models are to continue."""

    prompts: PositiveCount = 256
    """How many texts the models continue."""
    prompt_tokens: PositiveCount = 32
    """Tokens of each prompt."""
    reference_tokens: PositiveCount = 128
    """Tokens of the human continuation."""


class Data(Strict):
    """The texts of a sweep."""

    forget: ForgetSource = Field(description="what to erase?", examples=["forget: {source: miniature}"])
    """What to erase."""
    holdout: HoldoutSource | None = None
    """Unseen texts of the forget set's kind."""
    retain: HeldSource | None = None
    """Texts to train on meanwhile."""
    utility: UtilitySource = Field(description="what to continue?", examples=["utility: {source: miniature}"])
    """Texts to continue."""
    validation: HeldSource | None = None
    """What early stopping watches."""


def _without_axes(value: Any) -> Any:
    """Refuse a list: what holds for several rows is one value, and a grid is of the rows that train."""
    listed = [name for name, it in value.items() if isinstance(it, list)] if isinstance(value, dict) else []
    if listed:
        raise ValueError(
            f"gives a list for '{listed[0]}', and here it is one value for all rows. A list is a grid axis of a row: "
            f"methods: {{emso: {{training: {{{listed[0]}: [...]}}}}}}."
        )
    return _with_defaults(value)


TrainingBlock = Annotated[Training, BeforeValidator(_without_axes, Training | None)]


class JudgeEntry(Strict):
    """A model that judges: its name alone, or with its tokenizer."""

    id: Place
    """A miniature's name, a checkpoint's folder, or a hub id."""
    tokenizer: Place | None = None
    """The tokenizer's folder or hub id, if it is not the model's own."""
    revision: str | None = None
    """A branch, tag or commit on the hub."""


class NoSettings(Strict):
    """An engine without settings."""


class DeepSpeed(Strict):
    """The settings of DeepSpeed."""

    zero_stage: Literal[0, 1, 2, 3] = 2
    """How much DeepSpeed partitions."""
    offload: bool = False
    """Whether the optimiser's state lies in the CPU's memory."""
    workers: PositiveCount = 1
    """Processes that share each batch."""


class Engine(Strict):
    """The one engine that a model is trained with."""

    torch: NoSettings | None = None
    """AdamW in one process, the default."""
    deepspeed: DeepSpeed | None = None
    """The same steps with DeepSpeed."""

    @property
    def name(self) -> Literal["torch", "deepspeed"]:
        """Return the engine's name."""
        return "deepspeed" if self.deepspeed else "torch"

    @property
    def workers(self) -> int:
        """Return how many processes share each batch."""
        return self.deepspeed.workers if self.deepspeed else 1

    def __str__(self) -> str:
        """Return what tables call it.

        Example:
            >>> str(Engine()), str(Engine(deepspeed=DeepSpeed(zero_stage=2)))
            ('torch', 'deepspeed ZeRO-2')
        """
        if self.deepspeed is None:
            return self.name
        offload = " offload" if self.deepspeed.offload else ""
        workers = f", {self.workers} workers" if self.workers > 1 else ""
        return f"{self.name} ZeRO-{self.deepspeed.zero_stage}{offload}{workers}"


def _one_engine(value: Any) -> Any:
    engines = {value: {}} if isinstance(value, str) else value
    if not isinstance(engines, dict):
        return engines
    for name in engines:
        if name not in Engine.model_fields:
            raise ValueError(unknown("engine", str(name), Engine.model_fields))
    if len(engines) != 1:
        raise ValueError(f"names {len(engines)} engines: a model is trained with one.")
    [(name, settings)] = engines.items()
    return {} if name == "torch" and not settings else {name: _with_defaults(settings)}


class Resources(Strict):
    """What one trial occupies."""

    cpus: PositiveCount = 1
    """CPUs of each trial."""
    gpus: NonNegative = 0.0
    """GPUs of each trial."""


class RowLimits(Strict):
    """What a method's row sets besides the method's own settings and its training."""

    timeout_minutes: Positive | None = None


class ModelEntry(JudgeEntry):
    """A model to erase from: its name alone, or with how it is to be read and trained."""

    engine: Annotated[Engine, BeforeValidator(_one_engine, Literal["torch", "deepspeed"] | Engine)] = Engine()
    """What trains: `torch`, or `{deepspeed: {zero_stage, offload, workers}}`."""
    training: TrainingBlock = Training()
    retrained: Place | None = None
    """The same model, trained without the forget set: a name, a folder or a hub id."""
    replicate_of: ReplicateName | None = None
    """The name under which replicates are averaged."""
    resources: Resources | None = None
    """Instead of the sweep's `resources`."""


_NAME_OR_ENTRY = doc("a name, or a mapping with an id: {id: ..., tokenizer: ...}")
Model = Annotated[ModelEntry, BeforeValidator(_with_id, str | ModelEntry), _NAME_OR_ENTRY]
Judge = Annotated[JudgeEntry, BeforeValidator(_with_id, str | JudgeEntry), _NAME_OR_ENTRY]


class MemorizedModel(Strict):
    """How the memorised model is made."""

    epochs: PositiveCount = 10
    """Passes over the forget set at most."""
    learning_rate: Positive | None = None
    """Null: training's."""
    global_batch: PositiveCount | None = None
    """Null: training's."""
    gate: Annotated[float, Ge(0.0), Le(1.0)] = 0.98
    """The MA that it must reach."""


class Judges(Strict):
    """The models that measure others."""

    perplexity: Judge = JudgeEntry(id="miniature")
    """Judges perplexity; `original` is the model before erasure."""
    features: Judge = JudgeEntry(id="miniature")
    """Gives MAUVE its features; `original` too."""
    similarity: Judge = JudgeEntry(id="minilm")
    """Compares texts by meaning."""
    coherence: Judge = JudgeEntry(id="minilm")
    """Compares a prompt with its continuation."""


def _around_one(value: Any) -> tuple[float, float]:
    are_numbers = isinstance(value, list | tuple) and all(type(factor) in (int, float) for factor in value)
    if not are_numbers or len(value) != 2 or not 0 < value[0] < 1 < value[1]:
        raise ValueError(
            "must be two numbers, times the original's perplexity: one above 0 and below 1, and one above 1, "
            f"for instance [0.5, 5]; got {value if are_numbers else quoted(value)}."
        )
    return float(value[0]), float(value[1])


class Measuring(Strict):
    """In which precision models and judges compute while models are measured."""

    precision: Precision = "fp32"
    """Of what is measured: bf16 halves caches and weights, and changes greedy choices that are close."""
    judges: Precision = "fp32"
    """Of the judges of perplexity and features."""


class Collapse(Strict):
    """Outside of which numbers a point has collapsed."""

    mauve: Fraction = 0.25
    """Below this share of the original's MAUVE a point has collapsed."""
    perplexity: Annotated[tuple[float, float], BeforeValidator(_around_one, tuple[float, float])] = (0.5, 5.0)
    """Below the first or above the second, times the original's perplexity, a point has collapsed."""


class Ranking(Strict):
    """Which strength of each row is ranked."""

    at: dict[str, float] = Field(default_factory=dict)
    """The ranked strength of a row: `{emso: 3}`; otherwise the only one, the method's default, or the last epoch."""
    controls: list[str] = Field(default_factory=list)
    """Rows that are shown beside the others and not ranked, such as task arithmetic's `formula: shrink`."""


class Report(Strict):
    """What the report shows."""

    samples: Literal["redacted", "plain"] = "redacted"
    """Whether the report shows forget texts, and the messages of libraries and plugins."""
    sample_count: Annotated[int, Ge(0), Le(MOST_SAMPLES)] = 4
    """How many texts of each kind the report shows of the references and of every ranked point."""


def _levels(value: Any) -> tuple[Number | Literal["unseen", "retrained"], ...]:
    levels = value if isinstance(value, list | tuple) else [value]
    for level in levels:
        is_number = type(level) in (int, float) and 0 <= level < 1
        if not is_number and level not in (UNSEEN, RETRAINED):
            raise ValueError(
                f"must be a number of at least 0 and below 1, {UNSEEN} (what the original has on the holdout) or "
                f"{RETRAINED} (what the retrained model has), or a list of these; got {quoted(level)}."
            )
    if not levels:
        raise ValueError("is an empty list, which asks for nothing: give at least one level, for instance 0.75.")
    if len(set(levels)) < len(levels):
        raise ValueError("names a level twice: remove one.")
    numbers = sorted(level for level in levels if not isinstance(level, str))
    for lower, upper in pairwise(numbers):
        if upper - lower < MIN_APART:
            raise ValueError(
                f"has {lower:g} and {upper:g}, which are closer than {MIN_APART:g}: a walk ends within half of that of "
                "its level, so both may be one model. Remove one."
            )
    return tuple(levels)


At = Number | Literal["unseen", "retrained"]
Levels = Annotated[tuple[At, ...], BeforeValidator(_levels, At | list[At])]


class SearchBudget(Strict):
    """How long the settings of each method are searched, the same for all."""

    trials: Annotated[int, Ge(1), Le(10_000)]
    """Candidates."""


class Tune(Strict):
    """How the settings of each method are searched, instead of given: for the levels of `until`."""

    budget: SearchBudget = Field(description="how long to search?", examples=["budget: {trials: 12}"])
    search: Literal["optuna", "random"] = "optuna"
    """How candidates are proposed."""
    seed: Annotated[int, Ge(0), Lt(SEARCH_SEEDS)] = 0
    """Of the search: another one proposes other candidates, and trains them in another order."""
    per: Literal["seed", "model"] = "seed"
    """What has a search of its own: each `seed`, so that intervals hold the luck of the search, or each `model` for all
    of its seeds."""
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By row: what is searched in addition to, or instead of, what its method declares."""


class Compare(Strict):
    """What verdicts are about."""

    cost: str = PROBED_UTILITY
    """The metric in which methods pay for erasure."""
    reference: str | None = None
    """The row that others are compared with; null: the first in the file's order that reached the level."""
    margin: Fraction = 0.1
    """Methods whose prices differ by less than this share are equivalent."""


class Sweep(Strict):
    """A sweep file."""

    name: Name | None = None
    """The folder below `results/`; null: the file's name."""
    reproduces: str | None = None
    """A published table to compare with: `emso_main_table` ([results.md](results.md#beside-a-published-table))."""
    models: Annotated[list[Model], MinLen(1), doc("a list of models")] = Field(
        description="which models to erase from?", examples=["models: [miniature-m]"]
    )
    seeds: Annotated[list[Seed], MinLen(1)] = Field(
        [0], description="with which seeds?", examples=["seeds: [0], as if it were left out"]
    )
    """Each repeats every trial, with another data order and other samples."""
    data: Data = Field(
        description="which texts?", examples=["data: {forget: {source: miniature}, utility: {source: miniature}}"]
    )
    training: TrainingBlock = Training()
    memorized_model: MemorizedModel = MemorizedModel()
    methods: Annotated[Plugins, doc("a mapping of a row's name to its settings")] = Field(
        description="which methods to run?",
        examples=["methods: {emso: {epochs: [1, 2, 3]}}, or methods: {}, which erases nothing"],
    )
    """A row's name and its settings; `{}` erases nothing."""
    evaluators: Annotated[Plugins, MinLen(1), doc("a mapping of evaluators to their settings")] = Field(
        description="what to measure?", examples=["evaluators: {memorization: {}, generation: {}}"]
    )
    """An evaluator and its settings; `definition` is `exact` or `table`."""
    judges: Judges = Judges()
    measuring: Measuring = Measuring()
    until: dict[str, Levels] = Field(default_factory=dict)
    """Levels that every row is walked to: `{ma: [0.75, unseen]}`; verdicts are about the first."""
    tune: Tune | None = None
    compare: Compare = Compare()
    ranking: Ranking = Ranking()
    collapse: Collapse = Collapse()
    resources: Resources = Resources()
    timeout_minutes: Positive | None = None
    """How long a trial may run."""
    report: Report = Report()
    keep_erased: Literal["none", "patch", "all"] = "patch"
    """Which erased models are kept: `patch` means EMSO's blocks and LoRA's adapters."""


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk or on the hub, pinned."""

    id: str
    location: str
    tokenizer: str
    """Both are folders, or ids of the hub."""
    digest: str
    """Names weights, configuration and tokenizer; the commit of a hub model."""
    revision: str | None = None

    @property
    def short_name(self) -> str:
        """Return the last part of the id: `gpt-neo-125m`."""
        return self.id.rstrip("/").rpartition("/")[2]


class Source(Strict):
    """Where texts come from, resolved: paths are absolute, and the digest is that of the contents."""

    source: str
    """`miniature`, `extraction_challenge`, `jsonl`, `npy` or `hub`."""
    path: str | None = None
    name: str | None = None
    """Of a hub data set's configuration."""
    split: str = "train"
    field: str = "text"
    start: int = 0
    """Rows skipped at the beginning."""
    sequences: int | None = None
    """Rows used; None: all."""
    sequence_tokens: int = 200
    """Longer texts are cut here."""
    prefix_tokens: int = 100
    """Of a forget sequence; of a utility text, the prompt."""
    digest: str = ""
    rows: int = 0
    """How many there are: counted when the sweep is planned."""
    longest: int = 0
    """The most tokens that one of them has."""
    half: Literal["all", "selection", "report"] = "all"
    """Of a forget set: the sequences that a search looks at, or the others; repeats of a continuation stay together."""
    sample_seed: int | None = None
    """The rows used are a random sample, drawn with this seed; None: the first ones."""
    not_memorized: Source | None = None
    """Of a forget set: texts that the model is not expected to recite, erased together with the others."""


class TimeLimit(Strict):
    """How long a trial may run, and who says so."""

    minutes: float
    setting: str
    """In the sweep file: `timeout_minutes`, or `methods.emso.timeout_minutes`."""


class EvaluatorSpec(Strict):
    """One evaluator with its settings, and the identity of what it will measure."""

    name: str
    version: int
    settings: Mapping[str, Json]
    key: str
    """Digest of name, version, settings, and the digests of the texts and judges it sees."""
    texts: Mapping[MoreTexts, Source] = Field(default_factory=dict)
    """What it gets besides the forget set and the utility prompts."""
    retrained: Checkpoint | None = None
    """The retrained model, where it reads that."""
    precision: Precision = "fp32"
    """Of the model's weights while it measures."""
    judge_precision: Precision = "fp32"
    """Of its causal judges' weights."""


class Level(Strict):
    """How far a walked trial erases: a level of MA on the texts that erasure is measured on."""

    metric: Literal["ma"]
    """Teacher-forced, by the definition "exact"."""
    at: Number | Literal["unseen", "retrained"]
    """A number, or the original's MA on the holdout, or the retrained model's on the forget set."""

    def __str__(self) -> str:
        """Return the level for people.

        Example:
            >>> str(Level(metric="ma", at=0.75)), Level(metric="ma", at="unseen").key
            ('MA 0.75', 'ma=unseen')
        """
        return f"{self.metric.upper()} {self._at}"

    @property
    def key(self) -> str:
        """Return the level as tables and records contain it."""
        return f"{self.metric}={self._at}"

    @property
    def _at(self) -> str:
        return self.at if isinstance(self.at, str) else format(self.at, "g")


class TrialSpec(Strict):
    """One trial: one erasure, at one or more strengths, measured by every evaluator."""

    trial_id: str
    """Digest of everything that decides the erased models' numbers."""
    sweep: str
    variant: str
    """The row's name in the sweep file."""
    method: str
    """The plugin's name, or one of `REFERENCE_ROWS`."""
    label: str
    reference: str
    settings: Mapping[str, Json]
    """The method's settings without its strength."""
    method_version: int
    strength_name: str
    strengths: tuple[Number, ...]
    """Rising; empty for the reference rows, which have one point and no strength, and for walked trials."""
    until: Level | None = None
    """The level to which a walked trial raises its strength; None: its strengths are given."""
    walk_to: Number | None = None
    """The largest strength that a walked trial may reach."""
    levels: tuple[Level, ...] = ()
    """All levels of a walked trial's sweep, no two of which may be the same in numbers."""
    unseen: Source | None = None
    """The holdout, where one of them is what the original has on it."""
    seed: int
    model: Checkpoint
    training: Training
    memorization: MemorizedModel
    """As the model's training has it where the file leaves it out."""
    engine: Engine
    forget: Source
    """What is erased, and what erasure is measured on; of a row in `UNSEEN_ROWS` the unseen texts."""
    measured: Source | None = None
    """What erasure is measured on where that is not all of `forget`: the half that tuning never saw."""
    searched: Mapping[str, Json] = Field(default_factory=dict)
    """Of a tuned trial: what the search chose besides the strength."""
    replicate_of: str | None = None
    """The name under which tables average over several models: the same, pretrained from other seeds."""
    retain: Source | None
    utility: Source
    validation: Source
    evaluators: tuple[EvaluatorSpec, ...]
    judges: Mapping[str, Checkpoint]
    retrained: Checkpoint | None = None
    """The model that the `retrained` row measures, or whose MA is a walked trial's level; `model` is the original."""
    cpus: int = 1
    gpus: float = 0.0
    time_limit: TimeLimit | None = None
    """No part of the trial's identity, which is that of its numbers."""
    keep_erased: Literal["none", "patch", "all"] = "patch"
    samples: Literal["redacted", "plain"] = "redacted"
    reading: Mapping[str, Json] = Field(default_factory=dict)
    """How the model and its judges read texts, and the precision that its weights are stored in: recorded for the
    report; no part of any identity, which names the texts' tokens and the tokenizer's files."""
    sample_count: int = 4
    """How many texts an evaluator gives the report; no part of any identity, which is that of the numbers."""

    @property
    def table_model(self) -> str:
        """Return the name under which tables show the model: its own, or the one that replicates share."""
        return self.replicate_of or self.model.id

    @property
    def is_of_unseen(self) -> bool:
        """Return whether erasure is measured on texts that the model never saw."""
        return self.method in UNSEEN_ROWS

    def shows(self, group: Json, items: Json) -> bool:
        """Return whether a metric of this group and of these items is shown of this trial.

        Of unseen texts only those of erasure are, and those that each sequence has.
        """
        return group == "erasure" or items == "sequence" or not self.is_of_unseen

    def texts_behind(self, group: Json) -> tuple[Literal["forget", "utility"], Source] | None:
        """Return what a metric group's numbers are measured on, and its role; None: an evaluator's own questions."""
        if group == "reasoning":
            return None
        return ("utility", self.utility) if group == "generation" else ("forget", self.measured or self.forget)

    @property
    def steps_per_epoch(self) -> int:
        """Return how many steps a pass over the forget set takes."""
        return max(1, -(-self.forget.rows // self.training.global_batch))

    @property
    def is_reference(self) -> bool:
        """Return whether this is a model measured as it is: nothing is erased from it."""
        return self.method in REFERENCE_ROWS

    @property
    def memorized_training(self) -> Training:
        """Return how the memorised model is trained: all of it, whatever the trial trains then."""
        made = self.memorization
        of_model = {
            name: getattr(made, name) or getattr(self.training, name) for name in ("learning_rate", "global_batch")
        }
        return replace(self.training, **of_model, early_stop=None, lora=None)

    def identified(self, *, is_cumulative: bool) -> TrialSpec:
        """Return an erasing trial under its id; values that a cumulative strength or a walk has are no part of it."""
        left_out: dict[str, Any] = dict.fromkeys(OF_NO_NUMBER, True)
        left_out |= dict.fromkeys(("model", "forget", "retain", "validation"), _BUT_DIGEST)
        left_out["training"] = {*MEMORY_SETTINGS}
        if is_cumulative or self.until:
            left_out["strengths"] = True
        if self.reference != "memorized_model":
            left_out["memorization"] = True
        if self.training.early_stop is None:
            left_out["validation"] = True
        version = 0
        if self.until is None:
            left_out |= dict.fromkeys(("until", "walk_to", "measured", "unseen", "retrained"), True)
        else:
            version = WALK_VERSION
            left_out |= dict.fromkeys(("measured", "unseen", "retrained"), _BUT_DIGEST)
            for role in {UNSEEN, RETRAINED} - {self.until.at}:
                left_out[role] = True
        same = replace(
            self,
            strengths=tuple(map(float, self.strengths)),
            walk_to=None if self.walk_to is None else float(self.walk_to),
            measured=self.measured or self.forget,
        )
        return replace(self, trial_id=digest_of([version, same.model_dump(mode="json", exclude=left_out)]))

    def points(self) -> tuple[Number | None, ...]:
        """Return the strengths to be measured; a reference row's single point has none."""
        return self.strengths or (None,)

    def point_id(self, strength: Number | None) -> str:
        """Return the digest that names this trial's model at `strength`; a walked trial has one model."""
        return self.model_id(None if self.until else strength)

    def model_id(self, strength: Number | None) -> str:
        """Return the digest under which an erased model is kept; a walk elsewhere may find another strength."""
        return digest_of([self.trial_id, None if strength is None else float(strength)])

    @property
    def last_strength(self) -> Number:
        """Return the largest strength that an erasing trial may have."""
        return max(self.strengths) if self.walk_to is None else self.walk_to


OF_NO_NUMBER = {
    *("trial_id", "sweep", "variant", "label", "strength_name", "levels", "searched", "replicate_of", "utility"),
    *("evaluators", "judges", "cpus", "gpus", "time_limit", "keep_erased", "samples", "sample_count", "reading"),
}
"""Settings of a trial that decide nothing of its erased models: no part of its identity."""
_BUT_DIGEST = {*Source.model_fields, *Checkpoint.__dataclass_fields__} - {"digest"}


class StudySpec(Strict):
    """A search for the settings with which one method, on one model, reaches the levels at the least perplexity."""

    study_id: str
    """Digest of all that decides the candidates, but not of how many there are to be."""
    trial: TrialSpec
    """What every candidate shares: its settings are those that are not searched, and it has no strengths unless its
    one strength is not searched either."""
    seeds: tuple[int, ...]
    """The chosen settings are run with each; candidates have the trial's own, which is none of them."""
    per: Literal["seed", "model"] = "model"
    """Whether each seed has a search of its own."""
    space: Mapping[str, Dimension]
    """By setting; one of the training's is written `training.learning_rate`, the strength under its field's name."""
    defaults: Mapping[str, Json]
    """A value for each dimension of the space: the first candidate's."""
    is_cumulative: bool
    """Of the strength: a candidate is raised to its range's end and probed at each whole step."""
    is_trained: bool
    """Whether erasing takes optimiser steps."""
    search: Literal["optuna", "random"]
    trials: int
    """Candidates at most, the method's defaults among them."""
    targets: tuple[Level, ...]
    utility_bounds: tuple[float, float]
    """The least and the most, times the original's: outside of them a candidate has collapsed, and goes no further."""
    selection: Source
    """The half of the forget set that probes look at; what is reported is measured on the other."""
    seed: int = 0
    """`tune.seed`: of the proposals, and of the candidates' training."""
    published: Mapping[str, Json] | None = None
    """The second candidate's: what the method was published with, as far as it is searched; None where that is the
    first's."""

    @property
    def seeds_text(self) -> str:
        """Return which seeds it is for, in words: `seed 0`, `seeds 0, 1, 2`."""
        return f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"

    def identified(self, default_id: str) -> StudySpec:
        """Return the study under its id; the trial of the defaults stands for all that every candidate shares."""
        read = {UNSEEN: self.trial.unseen, RETRAINED: self.trial.retrained}
        levels = []
        for level in self.targets:
            of = read.get(str(level.at))
            levels.append([level.key, of.digest if of else ""])
        identity = {
            "search_version": SEARCH_VERSION,
            "seed": self.seed,
            "published": dict(self.published) if self.published else None,
            "default": default_id,
            "space": {name: dataclasses.asdict(dimension) for name, dimension in self.space.items()},
            "defaults": dict(self.defaults),
            "strengths": list(self.trial.strengths),
            "search": self.search,
            "levels": levels,
            "utility": list(self.utility_bounds),
            "selection": self.selection.digest,
            "validation": self.trial.validation.digest,
        }
        study_id = digest_of(identity)
        return replace(self, study_id=study_id, trial=replace(self.trial, trial_id=study_id))

    def strengths(self, settings: Mapping[str, Json]) -> tuple[Number, ...]:
        """Return where a candidate with these settings is probed, rising."""
        name = self.trial.strength_name
        if name not in self.space:
            return self.trial.strengths
        dimension = self.space[name]
        if not self.is_cumulative:
            return (settings[name],)
        if isinstance(dimension, LogUniform):
            return tuple(range(1, int(settings[name]) + 1))
        return tuple(sorted(dimension.values))

    def trial_with(self, settings: Mapping[str, Json], strengths: tuple[Number, ...]) -> TrialSpec:
        """Return the trial that a candidate's settings make, at these strengths and still under the study's id."""
        training = {name.removeprefix(OF_TRAINING): value for name, value in settings.items() if OF_TRAINING in name}
        own = {name: value for name, value in settings.items() if OF_TRAINING not in name}
        own.pop(self.trial.strength_name, None)
        return replace(
            self.trial,
            settings={**self.trial.settings, **own},
            training=replace(self.trial.training, **training),
            strengths=strengths,
        )


class Plan(Strict):
    """A sweep file, resolved: every trial it asks for, and how its results are to be shown."""

    sweep: str
    question: str
    """The first line of the sweep file: what it asks."""
    file: str
    """The sweep file's text, exactly."""
    overrides: tuple[str, ...]
    """What `--set` changed, as typed."""
    trials: tuple[TrialSpec, ...]
    ranked_at: Mapping[str, Number]
    """Variant to the strength that is ranked; cumulative methods are absent: the last one reached."""
    controls: tuple[str, ...] = ()
    """Variants that are shown as the others are and not ranked, since they are no method but a check on one."""
    studies: tuple[StudySpec, ...] = ()
    """What is tuned before anything is measured; the trials that follow from it are among `trials` once it is."""
    until: tuple[Level, ...] = ()
    """The levels to which every row is walked, in the file's order; verdicts are about the first."""
    collapse: Collapse
    samples: Literal["redacted", "plain"]
    sample_count: int = 4
    """How many texts of each kind the report shows of a point."""
    compare: Compare = Compare()
    reproduces: str | None = None
    """The published table that its results stand beside; no part of any trial's identity."""
    shared_texts: tuple[str, ...] = ()
    """A sentence for every two roles of texts that share some, though too few to be a fault."""

    @property
    def erases(self) -> bool:
        """Return whether any method is to erase; if none is, the models are measured as they are."""
        return bool(self.studies) or not all(spec.is_reference for spec in self.trials)

    @property
    def is_tuned(self) -> bool:
        """Return whether no row has a grid of strengths: then the walk to the first level is what is ranked."""
        return self.erases and not any(spec.strengths for spec in self.trials)
