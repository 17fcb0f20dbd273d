"""Settings: the one tree that a sweep file is read into, a trial carries to its worker and the journal records.

First come the blocks of a sweep file, whose keys are the fields; then what is resolved from them. A plugin's own
settings are its fields: `harness.planning` checks them.
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
Precision = Literal["fp32", "bf16"]
Count = Annotated[int, Ge(0)]
PositiveCount = Annotated[int, Ge(1)]
NonNegative = Annotated[float, Ge(0.0)]
Positive = Annotated[float, Gt(0.0)]
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Name = Annotated[str, StringConstraints(pattern=NAME), doc("a name of letters, digits, '-' and '_'")]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Fraction = Annotated[float, Gt(0.0), Lt(1.0)]
ORIGINAL = "original"
RETRAINED = "retrained"
HOLDOUT = "holdout"
VALIDATION_ROW = "stand_in"
UNSEEN = "unseen"
WALK_VERSION = 1
"""Raised when a walk would find another strength."""
MIN_APART = 0.04
"""Least distance of two levels; a walk ends within half of it."""
UNSEEN_ROWS = (HOLDOUT, VALIDATION_ROW)
"""The original on unseen texts; without a holdout validation texts stand in."""
REFERENCE_ROWS = (ORIGINAL, RETRAINED, *UNSEEN_ROWS)
PROBED_ERASURE = "ma"
PROBED_UTILITY = "perplexity"
"""Metrics of a probe: MA on the forget set, own perplexity on validation texts."""
SEARCH_VERSION = 3
"""Raised when a study would propose other candidates."""
SEARCH_SEEDS = 1_000_000
"""Candidates of search k train with `tune.seed` plus k times this, far from any reported seed."""
MAX_SAMPLES = 256
"""Samples of a point."""
MEMORY_SETTINGS = ("micro_batch", "activation_checkpointing")
"""Settings of `Training` that change memory and no number."""
ALL_LINEAR: Literal["all-linear"] = "all-linear"
_AT_EDGE = 0.02
TRAINING_PATH = "training."
"""Prefix of dimensions that are settings of the training: `training.learning_rate`."""
SOURCE_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "miniature": (),
    "extraction_challenge": ("path",),
    "jsonl": ("path", "field", "where"),
    "csv": ("path", "field", "where"),
    "text": ("path",),
    "npy": ("path",),
    "hub": ("path", "name", "split", "field", "where"),
}


def replace(value: T, /, **changes: Any) -> T:
    """Return settings, or a dataclass, with other values of some fields, which are not checked again."""
    if not isinstance(value, BaseModel):
        return dataclasses.replace(value, **changes)  # type: ignore[type-var]
    if unknown_names := changes.keys() - type(value).model_fields.keys():
        raise TypeError(f"{type(value).__name__} has no field {', '.join(sorted(unknown_names))}")
    return value.model_copy(update=changes)


@dataclass(frozen=True, kw_only=True)
class LogUniform:
    """A range that is searched on a logarithmic scale; whole numbers if both ends are.

    Only `high` counts for a cumulative strength: a candidate is erased that far and probed at each step.
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
    return "low" if place <= _AT_EDGE else "high" if place >= 1 - _AT_EDGE else None


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


class LoRA(Strict):
    """Low-rank adapters: W + alpha / rank · B A, where only A and B are trained.

    There is no dropout: its masks would depend on how a global batch is cut.

    Source: Hu et al., arXiv:2106.09685, section 4.1.

    Example:
        >>> LoRA(rank=16).alpha, LoRA(rank=16, alpha=16).scaling, LoRA(rank=2, targets=("v", "q")).targets
        (32, 1.0, ('q', 'v'))
    """

    rank: PositiveCount
    """Rank of each update, alpha / rank · B A."""
    alpha: PositiveCount | None = None
    """Scale of the update; null: twice the rank."""
    targets: Annotated[
        Literal["all-linear"] | Annotated[Sequence[str], MinLen(1), AfterValidator(lambda names: (*sorted({*names}),))],
        doc(f"{ALL_LINEAR}, or a list of names of modules"),
    ] = ALL_LINEAR
    """Adapted matrices: all of attention and MLP (`all-linear`), or modules by their names, in every layer."""

    @model_validator(mode="before")
    @classmethod
    def _fill_alpha(cls, value: Any) -> Any:
        rank = value.get("rank") if isinstance(value, dict) and value.get("alpha") is None else None
        return {**value, "alpha": 2 * rank} if type(rank) is int and rank > 0 else value

    @property
    def scaling(self) -> float:
        """Return the factor of B A."""
        assert self.alpha is not None
        return self.alpha / self.rank

    def __str__(self) -> str:
        """Return its name in tables.

        Example:
            >>> str(LoRA(rank=16)), str(LoRA(rank=4, alpha=4, targets=("q_proj", "v_proj")))
            ('LoRA of rank 16 (alpha 32)', 'LoRA of rank 4 (alpha 4, q_proj and v_proj)')
        """
        targets = "" if isinstance(self.targets, str) else f", {' and '.join(self.targets)}"
        return f"LoRA of rank {self.rank} (alpha {self.alpha}{targets})"


class Training(Strict):
    """Training settings, the same for every trained method, so that methods stay comparable."""

    learning_rate: Annotated[Positive, LogUniform(low=1e-6, high=1e-3)] = 1e-5
    """Learning rate of AdamW, the same for all trained methods unless a row sets another."""
    global_batch: PositiveCount = 64
    """Sequences in an optimiser step, accumulated over micro-batches."""
    micro_batch: PositiveCount = 16
    """Sequences in one forward pass; changes memory and speed, not the loss."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more arithmetic, the same numbers."""
    weight_decay: NonNegative = 0.0
    """Weight decay of AdamW."""
    precision: Precision = "fp32"
    """Precision of the forward and backward pass; weights and optimiser state stay fp32."""
    loss_region: Literal["all", "continuation"] = "all"
    """Tokens that a loss counts: every predicted one, or only the continuation's."""
    early_stop: Annotated[float, Gt(1.0)] | None = 1.03
    """Stop after the first whole epoch whose validation perplexity exceeds this times the original's."""
    lora: LoRA | None = None
    """Train low-rank adapters instead of the weights; null: the weights."""

    def over(self, other: Training) -> Training:
        """Return this training with the settings of another one."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide numbers: all but `MEMORY_SETTINGS`.

        Example:
            >>> Training(micro_batch=1, activation_checkpointing=True).identity() == Training().identity()
            True
        """
        return self.model_dump(mode="json", exclude={*MEMORY_SETTINGS})

    def describe(self) -> dict[str, Any]:
        """Return the settings for a report, each in one line, without checkpointing and LoRA where these are off."""
        settings = {**self.model_dump(), "lora": self.lora and str(self.lora)}
        off = {name for name in ("activation_checkpointing", "lora") if not settings[name]}
        return {name: value for name, value in settings.items() if name not in off}


def _with_id(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


def _with_defaults(value: Any) -> Any:
    return {} if value is None else value


Plugins = dict[str, Annotated[dict[str, Any], BeforeValidator(_with_defaults, dict[str, Any] | None)]]


def _asked(question: str, example: str, default: Any = ...) -> Any:
    return Field(default, description=question, examples=[example])


class TextSource(Strict):
    """The origin of texts."""

    source: Literal["miniature", "extraction_challenge", "jsonl", "csv", "text", "npy", "hub"]
    """Where the texts come from."""
    path: Place | None = None
    """A file or folder, or a data set's id."""
    name: str | None = None
    """The data set's configuration."""
    split: str | None = None
    """The data set's split."""
    field: str | None = None
    """The key that has the text; null: `text`."""
    where: dict[str, str | int] | None = None
    """Only rows with these values: {duplicates: 256}."""
    start: Count = 0
    """The first text that is used."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        reads = SOURCE_SETTINGS[self.source]
        for name in ("path", "name", "split", "field", "where"):
            if getattr(self, name) is not None and name not in reads:
                others = f"; it reads {', '.join(reads)}" if reads else ""
                raise ValueError(f"the source '{self.source}' does not read {name}{others}.")
        if "path" in reads and not self.path:
            hub_path = "the data set's id on the hub, or a local folder of it"
            raise ValueError(f"path is missing: {hub_path if self.source == 'hub' else 'where the texts are'}.")
        return self


class SampledSource(TextSource):
    """All texts, the first ones, or a random sample."""

    sequences: PositiveCount | None = None
    """Number of texts; null: all; a holdout has as many as the forget set, 64 at most."""
    sample_seed: Count | None = None
    """Seed of a random sample; null: the first texts."""

    @model_validator(mode="after")
    def _check_sample(self) -> Self:
        if self.sample_seed is not None and self.sequences is None:
            raise ValueError("sample_seed draws a random sample, and sequences must say of how many.")
        return self


class HoldoutSource(SampledSource):
    """Unseen texts of the forget set's kind."""

    prefix_tokens: PositiveCount | None = None
    """Tokens of each prefix."""
    sequence_tokens: PositiveCount | None = None
    """Tokens of each text, prefix included."""


class ForgetSource(HoldoutSource):
    """The forget set; `not_memorized` are cut alike."""

    not_memorized: SampledSource | None = None
    """Further texts to erase, which the model is not expected to recite."""


class HeldSource(TextSource):
    """Retain data, or validation texts."""

    sequences: PositiveCount | None = None
    """Number of texts; null: as many retain texts as texts to forget, all validation texts."""
    sequence_tokens: PositiveCount | None = None
    """Tokens of each text, at most the forget set's longest; null: as many."""


class UtilitySource(TextSource):
    """Human texts for models to continue."""

    prompts: PositiveCount = 256
    """Number of texts."""
    prompt_tokens: PositiveCount = 32
    """Tokens of each prompt."""
    reference_tokens: PositiveCount = 128
    """Tokens of the human continuation."""


class Data(Strict):
    """The texts of a sweep."""

    forget: ForgetSource = _asked("what to erase?", "forget: {source: miniature}")
    """Texts to erase."""
    holdout: HoldoutSource | None = None
    """Unseen texts of the forget set's kind."""
    retain: HeldSource | None = None
    """Texts to train on as well, for methods with retain data."""
    utility: UtilitySource = _asked("what to continue?", "utility: {source: miniature}")
    """Texts to continue."""
    validation: HeldSource | None = None
    """General texts: early stopping, searches and walks read them."""


TrainingBlock = Annotated[Training, BeforeValidator(_with_defaults, Training | None)]


class JudgeEntry(Strict):
    """A model that judges: its name, or a mapping with its tokenizer."""

    id: Place
    """A miniature's name, a checkpoint's folder, or a hub id."""
    tokenizer: Place | None = None
    """The tokenizer's folder or hub id, if it is not the model's own."""
    revision: str | None = None
    """A branch, tag or commit on the hub."""


class NoSettings(Strict):
    """An engine without settings."""


class DeepSpeed(Strict):
    """Settings of DeepSpeed."""

    zero_stage: Literal[0, 1, 2, 3] = 2
    """1: optimiser state is partitioned; 2: gradients too; 3: weights too."""
    offload: bool = False
    """Keep the optimiser's state in the CPU's memory."""
    workers: PositiveCount = 1
    """Processes that share each batch."""


class Engine(Strict):
    """Engine of the training: one of these."""

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
        """Return the number of processes."""
        return self.deepspeed.workers if self.deepspeed else 1

    def __str__(self) -> str:
        """Return its name in tables.

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
    """Resources of one trial."""

    cpus: PositiveCount = 1
    """CPUs of each trial."""
    gpus: NonNegative = 0.0
    """GPUs of each trial."""


class ModelEntry(JudgeEntry):
    """A model to erase from: its name, or a mapping with its settings."""

    engine: Annotated[Engine, BeforeValidator(_one_engine, Literal["torch", "deepspeed"] | Engine)] = Engine()
    """`torch`, or `{deepspeed: {zero_stage, offload, workers}}`."""
    training: TrainingBlock = Training()
    retrained: Place | None = None
    """The same model, trained without the forget set: a name, a folder or a hub id."""
    replicate_of: Annotated[str, MinLen(1)] | None = None
    """The name under which replicates are averaged."""
    resources: Resources | None = None
    """Replace the sweep's `resources`."""


_NAME_OR_ENTRY = doc("a name, or a mapping with an id: {id: ..., tokenizer: ...}")
Model = Annotated[ModelEntry, BeforeValidator(_with_id, str | ModelEntry), _NAME_OR_ENTRY]
Judge = Annotated[JudgeEntry, BeforeValidator(_with_id, str | JudgeEntry), _NAME_OR_ENTRY]


class MemorizedModel(Strict):
    """Training of the memorised model."""

    epochs: PositiveCount = 10
    """Passes over the forget set at most."""
    learning_rate: Positive | None = None
    """Defaults to `training.learning_rate`."""
    global_batch: PositiveCount | None = None
    """Defaults to `training.global_batch`."""
    gate: Annotated[float, Ge(0.0), Le(1.0)] = 0.98
    """MA that it must reach on the forget set."""


class Judges(Strict):
    """Models that measure others."""

    perplexity: Judge = JudgeEntry(id="miniature")
    """Judges perplexity; `original` is the model before erasure."""
    features: Judge = JudgeEntry(id="miniature")
    """Gives MAUVE its features; `original` as well."""
    similarity: Judge = JudgeEntry(id="minilm")
    """Compares texts by meaning."""
    coherence: Judge = JudgeEntry(id="minilm")
    """Compares a prompt with its continuation."""


def _around_one(bounds: tuple[float, float]) -> tuple[float, float]:
    if not 0 < bounds[0] < 1 < bounds[1]:
        raise ValueError(f"must be one number above 0 and below 1, and one above 1, as [0.5, 5]; got {[*bounds]}.")
    return bounds


class Measuring(Strict):
    """Precision while models are measured."""

    precision: Precision = "fp32"
    """Precision of the evaluated models. bf16 halves memory but may flip near-tied greedy tokens."""
    judges: Precision = "fp32"
    """Precision of the judges of perplexity and features."""


class Collapse(Strict):
    """Bounds outside of which a point has collapsed."""

    mauve: Fraction = 0.25
    """Lowest share of the original's MAUVE."""
    perplexity: Annotated[tuple[float, float], AfterValidator(_around_one)] = (0.5, 5.0)
    """Lowest and highest perplexity, times the original's."""


class Ranking(Strict):
    """Ranked strength of each row."""

    at: dict[str, float] = Field(default_factory=dict)
    """Strength by row: `{emso: 3}`; by default the only one, the method's default, or the last epoch."""
    controls: list[str] = Field(default_factory=list)
    """Rows that are shown but not ranked, such as task arithmetic's `formula: shrink`."""


class Report(Strict):
    """Contents of the report."""

    samples: Literal["redacted", "plain"] = "redacted"
    """`plain` shows forget texts, and the messages of libraries and plugins."""
    sample_count: Annotated[int, Ge(0), Le(MAX_SAMPLES)] = 4
    """Texts of each kind that the report shows for the references and every ranked point."""


At = Number | Literal["unseen", "retrained"]
"""A level: MA itself, or that of the original on the holdout, or of the retrained model on the forget set."""


def _levels(value: Any) -> tuple[At, ...]:
    levels = value if isinstance(value, list | tuple) else [value]
    for level in levels:
        is_number = type(level) in (int, float) and 0 <= level < 1
        if not is_number and level not in (UNSEEN, RETRAINED):
            names = f"{UNSEEN} (the original's level on the holdout) or {RETRAINED} (the retrained model's)"
            allowed = f"must be a number of at least 0 and below 1, {names}, or a list of these"
            raise ValueError(f"{allowed}; got {quoted(level)}.")
    if not levels or len(set(levels)) < len(levels):
        raise ValueError("must name at least one level, for instance 0.75, and none twice.")
    for lower, upper in pairwise(sorted(level for level in levels if not isinstance(level, str))):
        if upper - lower < MIN_APART:
            apart = f"has {lower:g} and {upper:g}, which are closer than {MIN_APART:g}"
            raise ValueError(f"{apart}: a walk ends within half of that, so both may be one model. Remove one.")
    return tuple(levels)


Levels = Annotated[tuple[At, ...], BeforeValidator(_levels, At | list[At])]


class SearchBudget(Strict):
    """Budget of each method's search, the same for all."""

    trials: Annotated[int, Ge(1), Le(10_000)]
    """Number of candidates."""


class Tune(Strict):
    """Search for each method's settings, for the levels of `until`."""

    budget: SearchBudget = _asked("how long to search?", "budget: {trials: 12}")
    search: Literal["optuna", "random"] = "optuna"
    """Proposer of candidates."""
    seed: Annotated[int, Ge(0), Lt(SEARCH_SEEDS)] = 0
    """Seed of the search: proposals, and the data order of candidates."""
    per: Literal["seed", "model"] = "seed"
    """`seed`: one search per seed, so intervals include search variance. `model`: one search shared by all seeds."""
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Search space by row, added to what its method declares or in its place."""


class Compare(Strict):
    """Question that verdicts answer."""

    cost: str = PROBED_UTILITY
    """Perplexity in which methods pay for erasure."""
    reference: str | None = None
    """Row that others are compared with; null: the first in the file that gets to the level and is not broken."""
    margin: Fraction = 0.1
    """Price difference, as a share, below which methods are equivalent."""


class Sweep(Strict):
    """A sweep file."""

    name: Name | None = None
    """Folder below `results/`; null: the file's name."""
    reproduces: str | None = None
    """A published table to compare with: `emso_main_table` ([results.md](results.md#next-to-a-published-table))."""
    models: Annotated[list[Model], MinLen(1), doc("a list of models")] = _asked(
        "which models to erase from?", "models: [miniature-m]"
    )
    seeds: Annotated[list[Seed], MinLen(1)] = _asked("with which seeds?", "seeds: [0], as if it were left out", [0])
    """Each repeats every trial, with another data order and other samples."""
    data: Data = _asked("which texts?", "data: {forget: {source: miniature}, utility: {source: miniature}}")
    training: TrainingBlock = Training()
    memorized_model: MemorizedModel = MemorizedModel()
    methods: Annotated[Plugins, doc("a mapping of a row's name to its settings")] = _asked(
        "which methods to run?", "methods: {emso: {epochs: [1, 2, 3]}}, or methods: {}, which erases nothing"
    )
    """A row's name and its settings; `{}` erases nothing."""
    evaluators: Annotated[Plugins, MinLen(1), doc("a mapping of evaluators to their settings")] = _asked(
        "what to measure?", "evaluators: {memorization: {}, generation: {}}"
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
    """Time limit of a trial."""
    report: Report = Report()
    keep_erased: Literal["none", "patch", "all"] = "patch"
    """Which erased models are kept: `patch` means EMSO's blocks and LoRA's adapters."""


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk or on the hub, pinned."""

    id: str
    location: str
    tokenizer: str
    digest: str
    """Digest of weights, configuration and tokenizer; a hub model's commit."""
    revision: str | None = None

    @property
    def short_name(self) -> str:
        """Return the last part of the id: `gpt-neo-125m`."""
        return self.id.rstrip("/").rpartition("/")[2]


class Source(Strict):
    """A resolved source of texts: paths are absolute, and the digest is that of the contents."""

    source: str
    path: str | None = None
    name: str | None = None
    split: str = "train"
    field: str = "text"
    where: tuple[tuple[str, str | int], ...] = ()
    start: int = 0
    sequences: int | None = None
    sequence_tokens: int = 200
    prefix_tokens: int = 100
    """A utility text's prompt."""
    digest: str = ""
    rows: int = 0
    longest: int = 0
    half: Literal["all", "selection", "report"] = "all"
    """Part of a forget set: one for searches, and the rest."""
    sample_seed: int | None = None
    not_memorized: Source | None = None


class EvaluatorSpec(Strict):
    """An evaluator with its settings, and the identity of its measurements."""

    name: str
    version: int
    settings: Mapping[str, Json]
    key: str
    """Digest of name, version, settings, texts and judges."""
    texts: Mapping[MoreTexts, Source] = Field(default_factory=dict)
    retrained: Checkpoint | None = None
    precision: Precision = "fp32"
    judge_precision: Precision = "fp32"


class Level(Strict):
    """A level of MA to which a walked trial erases."""

    metric: Literal["ma"]
    at: At

    def __str__(self) -> str:
        """Return the level for people.

        Example:
            >>> str(Level(metric="ma", at=0.75)), Level(metric="ma", at="unseen").key
            ('MA 0.75', 'ma=unseen')
        """
        return f"{self.metric.upper()} {self.short_name}"

    @property
    def key(self) -> str:
        """Return the level as tables and records contain it."""
        return f"{self.metric}={self.short_name}"

    @property
    def short_name(self) -> str:
        """Return the level without its metric: `0.75`, `unseen`."""
        return self.at if isinstance(self.at, str) else format(self.at, "g")


class Trial(Strict):
    """One trial: one erasure, at one or more strengths, measured by every evaluator."""

    trial_id: str = ""
    """Digest of everything that decides the erased models' numbers."""
    sweep: str
    variant: str
    method: str
    """The plugin's name, or one of `REFERENCE_ROWS`."""
    label: str
    reference: str = "none"
    settings: Mapping[str, Json] = Field(default_factory=dict)
    """The method's settings without its strength."""
    method_version: int = 1
    strength_name: str = ""
    strengths: tuple[Number, ...] = ()
    """Rising; empty for reference rows and walks."""
    until: Level | None = None
    walk_to: Number | None = None
    levels: tuple[Level, ...] = ()
    """All of the sweep."""
    unseen: Source | None = None
    """The holdout, if a level is the original's MA on it."""
    seed: int
    model: Checkpoint
    training: Training
    memorization: MemorizedModel
    engine: Engine
    forget: Source
    """For `UNSEEN_ROWS` the unseen texts."""
    measured: Source | None = None
    """If not all of `forget`: the half that tuning never saw."""
    searched: Mapping[str, Json] = Field(default_factory=dict)
    replicate_of: str | None = None
    retain: Source | None = None
    utility: Source
    validation: Source
    evaluators: tuple[EvaluatorSpec, ...] = ()
    judges: Mapping[str, Checkpoint]
    retrained: Checkpoint | None = None
    """The model of the `retrained` row, or whose MA is the level; `model` is the original."""
    cpus: int = 1
    gpus: float = 0.0
    time_limit: float | None = None
    keep_erased: Literal["none", "patch", "all"] = "patch"
    samples: Literal["redacted", "plain"] = "redacted"
    reading: Mapping[str, Json] = Field(default_factory=dict)
    """For the report only."""
    sample_count: int = 4

    @property
    def table_model(self) -> str:
        """Return the model's name in tables: its own, or the one that replicates share."""
        return self.replicate_of or self.model.id

    @property
    def is_unseen_row(self) -> bool:
        """Return whether erasure is measured on texts that the model never saw."""
        return self.method in UNSEEN_ROWS

    def shows(self, group: Json, items: Json) -> bool:
        """Return whether a metric is shown: on unseen texts only those of erasure or of sequences are."""
        return group == "erasure" or items == "sequence" or not self.is_unseen_row

    @property
    def steps_per_epoch(self) -> int:
        """Return the optimiser steps of an epoch."""
        return max(1, -(-self.forget.rows // self.training.global_batch))

    @property
    def is_reference(self) -> bool:
        """Return whether nothing is erased."""
        return self.method in REFERENCE_ROWS

    @property
    def is_of_original(self) -> bool:
        """Return whether the original is measured."""
        return self.is_reference and self.retrained is None

    @property
    def memorized_training(self) -> Training:
        """Return the training of the memorised model, which trains all weights."""
        rate, batch = self.memorization.learning_rate, self.memorization.global_batch
        return replace(self.training, learning_rate=rate, global_batch=batch, early_stop=None, lora=None)

    def identified(self, *, is_cumulative: bool) -> Trial:
        """Return an erasing trial under its id, which leaves out the values of a cumulative strength or a walk."""
        left_out: dict[str, Any] = dict.fromkeys(FIELDS_WITHOUT_EFFECT, True)
        left_out |= dict.fromkeys(("model", "forget", "retain", "validation"), _BUT_DIGEST)
        left_out["training"] = {*MEMORY_SETTINGS}
        if is_cumulative or self.until:
            left_out["strengths"] = True
        if self.reference != "memorized_model":
            left_out["memorization"] = True
        if self.training.early_stop is None:
            left_out["validation"] = True
        if self.until is None:
            left_out |= dict.fromkeys(("until", "walk_to", "measured", "unseen", "retrained"), True)
        else:
            left_out |= dict.fromkeys(("measured", "unseen", "retrained"), _BUT_DIGEST)
            left_out |= dict.fromkeys({UNSEEN, RETRAINED} - {self.until.at}, True)
        same = replace(
            self,
            strengths=tuple(map(float, self.strengths)),
            walk_to=None if self.walk_to is None else float(self.walk_to),
            measured=self.measured or self.forget,
        )
        version = WALK_VERSION if self.until else 0
        return replace(self, trial_id=digest_of([version, same.model_dump(mode="json", exclude=left_out)]))

    def points(self) -> tuple[Number | None, ...]:
        """Return the strengths to measure; a reference row's single point has None."""
        return self.strengths or (None,)

    def point_id(self, strength: Number | None) -> str:
        """Return the digest of this trial's model at `strength`; a walked trial has one."""
        return self.model_id(None if self.until else strength)

    def model_id(self, strength: Number | None) -> str:
        """Return the digest under which an erased model is kept; other machines may find other strengths."""
        return digest_of([self.trial_id, None if strength is None else float(strength)])

    @property
    def last_strength(self) -> Number:
        """Return the largest strength of an erasing trial."""
        return max(self.strengths) if self.walk_to is None else self.walk_to


FIELDS_WITHOUT_EFFECT = {
    *("trial_id", "sweep", "variant", "label", "strength_name", "levels", "searched", "replicate_of", "utility"),
    *("evaluators", "judges", "cpus", "gpus", "time_limit", "keep_erased", "samples", "sample_count", "reading"),
}
"""Settings that decide nothing about the erased models."""
_BUT_DIGEST = {*Source.model_fields, *Checkpoint.__dataclass_fields__} - {"digest"}


class Study(Strict):
    """A search for the settings with which a method reaches the levels at the least perplexity."""

    study_id: str
    """Digest of all that decides the candidates, without their number."""
    trial: Trial
    """Without strengths if these are searched."""
    seeds: tuple[int, ...]
    """Seeds that the chosen settings run with; candidates have none of them."""
    per: Literal["seed", "model"] = "model"
    space: Mapping[str, Dimension]
    """The strength is under its field's name."""
    defaults: Mapping[str, Json]
    is_cumulative: bool
    """Candidates are raised to the end of the range and probed at each whole step."""
    is_trained: bool
    search: Literal["optuna", "random"]
    trials: int
    targets: tuple[Level, ...]
    utility_bounds: tuple[float, float]
    """At which a candidate goes on, times the original's perplexity."""
    selection: Source
    """Half of the forget set that probes look at; reports use the other."""
    seed: int = 0
    published: Mapping[str, Json] | None = None
    """The second candidate; None where it equals the first."""

    @property
    def seeds_text(self) -> str:
        """Return the seeds as text: `seed 0`, `seeds 0, 1, 2`."""
        return f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"

    def identified(self, default_id: str) -> Study:
        """Return the study under its id, where `default_id` (the trial of the defaults) stands for shared settings."""
        sources = {UNSEEN: self.trial.unseen, RETRAINED: self.trial.retrained}
        digests = {at: source.digest for at, source in sources.items() if source}
        identity = {
            "search_version": SEARCH_VERSION,
            "seed": self.seed,
            "published": dict(self.published) if self.published else None,
            "default": default_id,
            "space": {name: dataclasses.asdict(dimension) for name, dimension in self.space.items()},
            "defaults": dict(self.defaults),
            "strengths": list(self.trial.strengths),
            "search": self.search,
            "levels": [[level.key, digests.get(str(level.at), "")] for level in self.targets],
            "utility": list(self.utility_bounds),
            "selection": self.selection.digest,
            "validation": self.trial.validation.digest,
        }
        study_id = digest_of(identity)
        return replace(self, study_id=study_id, trial=replace(self.trial, trial_id=study_id))

    def strengths(self, settings: Mapping[str, Json]) -> tuple[Number, ...]:
        """Return the rising strengths at which a candidate is probed."""
        name = self.trial.strength_name
        if name not in self.space:
            return self.trial.strengths
        dimension = self.space[name]
        if not self.is_cumulative:
            return (settings[name],)
        if isinstance(dimension, LogUniform):
            return tuple(range(1, int(settings[name]) + 1))
        return tuple(sorted(dimension.values))

    def trial_with(self, settings: Mapping[str, Json], strengths: tuple[Number, ...]) -> Trial:
        """Return a candidate's trial at these strengths, under the study's id."""
        training = {key.removeprefix(TRAINING_PATH): value for key, value in settings.items() if TRAINING_PATH in key}
        own = {name: value for name, value in settings.items() if TRAINING_PATH not in name}
        own.pop(self.trial.strength_name, None)
        return replace(
            self.trial,
            settings={**self.trial.settings, **own},
            training=replace(self.trial.training, **training),
            strengths=strengths,
        )


class Plan(Strict):
    """A resolved sweep file: its trials, and how to show their results."""

    sweep: str
    question: str
    """First line of the sweep file."""
    file: str
    overrides: tuple[str, ...]
    trials: tuple[Trial, ...]
    ranked_at: Mapping[str, Number]
    """By variant; cumulative methods without one are ranked at the last strength reached."""
    controls: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    """Variants in the file's order."""
    studies: tuple[Study, ...] = ()
    """The trials of their choices join `trials` later."""
    until: tuple[Level, ...] = ()
    """In the file's order; verdicts are about the first."""
    collapse: Collapse
    samples: Literal["redacted", "plain"]
    sample_count: int = 4
    compare: Compare = Compare()
    reproduces: str | None = None
    shared_texts: tuple[str, ...] = ()
    """A sentence for every two roles that share a few texts."""
    text_names: Mapping[str, str] = Field(default_factory=dict)
    """Where each text to forget stands in its file, by its item's id."""

    @property
    def erases(self) -> bool:
        """Return whether any method erases."""
        return bool(self.studies) or not all(spec.is_reference for spec in self.trials)

    @property
    def ranks_first_walk(self) -> bool:
        """Return whether no row has a grid of strengths, so that the walk to the first level is ranked."""
        return self.erases and not any(spec.strengths for spec in self.trials)
