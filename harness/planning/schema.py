"""The sweep file's schema: which settings there are, and what each may be.

The `data` block is that of `harness.data.sections`. What a plugin declares (its settings in the `methods` and
`evaluators` blocks) is checked against the plugin itself, by `harness.planning.grid` and `harness.planning.evaluators`.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen, doc
from pydantic import BeforeValidator, Field, StringConstraints, create_model

from harness.base.settings import Place, Strict, quoted
from harness.contracts import NonNegative, Number, Positive, PositiveCount, Precision, Training
from harness.data.sections import Data
from harness.errors import unknown
from harness.plans import SEARCH_SEEDS, Compare
from harness.specs import MIN_APART, RETRAINED, UNSEEN, CollapseBounds

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Name = Annotated[str, StringConstraints(pattern=NAME), doc("a name of letters, digits, '-' and '_'")]
ReplicateName = Annotated[str, StringConstraints(pattern=r"\S"), doc("the name that replicates share, a text")]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Fraction = Annotated[float, Gt(0.0), Lt(1.0)]
MOST_SAMPLES = 256
"""Every point's journal holds them, and the report shows them on one page."""


def _with_id(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


def _with_defaults(value: Any) -> Any:
    """Return `{}` for a name with nothing behind it (`generation:`), which means: all defaults."""
    return {} if value is None else value


Plugins = dict[str, Annotated[dict[str, Any], BeforeValidator(_with_defaults)]]


if TYPE_CHECKING:

    class TrainingSettings(Strict):
        """What `training` may set: at the top for all, of a model, of a method's row."""

else:
    _HINTS = get_type_hints(Training, include_extras=True)
    _FIELDS = {field.name: (_HINTS[field.name], field.default) for field in fields(Training)}
    TrainingSettings = create_model("TrainingSettings", __base__=Strict, **_FIELDS)


def _without_axes(value: Any) -> Any:
    """Refuse a list: what holds for several rows is one value, and a grid is of the rows that train."""
    listed = [name for name, it in value.items() if isinstance(it, list)] if isinstance(value, dict) else []
    if listed:
        raise ValueError(
            f"gives a list for '{listed[0]}', and here it is one value for all rows. A list is a grid axis of a row: "
            f"methods: {{emso: {{training: {{{listed[0]}: [...]}}}}}}."
        )
    return _with_defaults(value)


TrainingBlock = Annotated[TrainingSettings, BeforeValidator(_without_axes)]


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


class DeepSpeedEntry(Strict):
    """How DeepSpeed partitions, and where it keeps the optimiser's state."""

    zero_stage: Literal[0, 1, 2, 3] = 2
    """How much DeepSpeed partitions."""
    offload: bool = False
    """Whether the optimiser's state lies in the CPU's memory."""
    workers: PositiveCount = 1
    """Processes that share each batch."""


class EngineEntry(Strict):
    """The one engine that a model is trained with."""

    torch: Annotated[NoSettings | None, BeforeValidator(_with_defaults)] = None
    """AdamW in one process, the default."""
    deepspeed: Annotated[DeepSpeedEntry | None, BeforeValidator(_with_defaults)] = None
    """The same steps with DeepSpeed."""


def _one_engine(value: Any) -> Any:
    engines = {value: {}} if isinstance(value, str) else value
    if isinstance(engines, dict):
        for name in engines:
            if name not in EngineEntry.model_fields:
                raise ValueError(unknown("engine", str(name), EngineEntry.model_fields))
        if len(engines) != 1:
            raise ValueError(f"names {len(engines)} engines: a model is trained with one.")
    return engines


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

    engine: Annotated[EngineEntry, BeforeValidator(_one_engine)] = EngineEntry()
    """What trains: `torch`, or `{deepspeed: {zero_stage, offload, workers}}`."""
    training: TrainingBlock = TrainingSettings()
    retrained: Place | None = None
    """The same model, trained without the forget set: a name, a folder or a hub id."""
    replicate_of: ReplicateName | None = None
    """The name under which replicates are averaged."""
    resources: Resources | None = None
    """Instead of the sweep's `resources`."""


_NAME_OR_ENTRY = doc("a name, or a mapping with an id: {id: ..., tokenizer: ...}")
Model = Annotated[ModelEntry, BeforeValidator(_with_id), _NAME_OR_ENTRY]
Judge = Annotated[JudgeEntry, BeforeValidator(_with_id), _NAME_OR_ENTRY]


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

    mauve: Fraction = CollapseBounds.mauve
    """Below this share of the original's MAUVE a point has collapsed."""
    perplexity: Annotated[tuple[float, float], BeforeValidator(_around_one)] = CollapseBounds.perplexity
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


Levels = Annotated[tuple[Number | Literal["unseen", "retrained"], ...], BeforeValidator(_levels)]


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


class CompareBlock(Strict):
    """What verdicts are about."""

    cost: str = Compare.cost
    """The metric in which methods pay for erasure."""
    reference: str | None = None
    """The row that others are compared with; null: the first in the file's order that reached the level."""
    margin: Fraction = Compare.margin
    """Rows whose prices differ by less than this share are equivalent."""


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
    training: TrainingBlock = TrainingSettings()
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
    compare: CompareBlock = CompareBlock()
    ranking: Ranking = Ranking()
    collapse: Collapse = Collapse()
    resources: Resources = Resources()
    timeout_minutes: Positive | None = None
    """How long a trial may run."""
    report: Report = Report()
    keep_erased: Literal["none", "patch", "all"] = "patch"
    """Which erased models are kept: `patch` means EMSO's blocks and LoRA's adapters."""
