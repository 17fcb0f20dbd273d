"""What crosses a process border: a trial to do, and the records of what happened.

All of it is plain data. A worker gets a `TrialSpec` and loads plugins, models and texts by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from harness.base.files import digest_of
from harness.base.settings import PlainData
from harness.contracts import Checkpoint, Json, MoreTexts, Number, Precision, Training

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


@dataclass(frozen=True, kw_only=True)
class Source(PlainData):
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


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What turns a model's losses into steps."""

    name: Literal["torch", "deepspeed"] = "torch"
    zero_stage: int = 0
    """0 to 3: DeepSpeed partitions nothing, the optimiser's state, gradients too, weights too."""
    offload: bool = False
    """Keep the optimiser's state in the CPU's memory."""
    workers: int = 1
    """Processes that share each global batch."""

    def __str__(self) -> str:
        """Return what tables call it.

        Example:
            >>> str(Engine()), str(Engine(name="deepspeed", zero_stage=2))
            ('torch', 'deepspeed ZeRO-2')
        """
        if self.name == "torch":
            return self.name
        offload = " offload" if self.offload else ""
        workers = f", {self.workers} workers" if self.workers > 1 else ""
        return f"{self.name} ZeRO-{self.zero_stage}{offload}{workers}"


@dataclass(frozen=True, kw_only=True)
class MemorizedTraining:
    """How the memorised model is trained, and when it counts as one."""

    epochs: int
    learning_rate: float
    global_batch: int
    gate: float
    """The least MA on the forget set; below it every trial that used the model says so."""


@dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """How long a trial may run, and who says so."""

    minutes: float
    setting: str
    """In the sweep file: `timeout_minutes`, or `methods.emso.timeout_minutes`."""


@dataclass(frozen=True, kw_only=True)
class CollapseBounds:
    """What of the original's numbers a point must keep: outside of any of them it has collapsed."""

    mauve: float = 0.25
    """The least fraction of the original's MAUVE."""
    perplexity: tuple[float, float] = (0.5, 5.0)
    """The least and the most, times the original's perplexity."""


@dataclass(frozen=True, kw_only=True)
class EvaluatorSpec:
    """One evaluator with its settings, and the identity of what it will measure."""

    name: str
    version: int
    settings: Mapping[str, Json]
    key: str
    """Digest of name, version, settings, and the digests of the texts and judges it sees."""
    texts: Mapping[MoreTexts, Source] = field(default_factory=dict)
    """What it gets besides the forget set and the utility prompts."""
    retrained: Checkpoint | None = None
    """The retrained model, where it reads that."""
    precision: Precision = "fp32"
    """Of the model's weights while it measures."""
    judge_precision: Precision = "fp32"
    """Of its causal judges' weights."""


@dataclass(frozen=True, kw_only=True)
class Level:
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


@dataclass(frozen=True, kw_only=True)
class TrialSpec(PlainData):
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
    memorization: MemorizedTraining
    engine: Engine
    forget: Source
    """What is erased, and what erasure is measured on; of a row in `UNSEEN_ROWS` the unseen texts."""
    measured: Source | None = None
    """What erasure is measured on where that is not all of `forget`: the half that tuning never saw."""
    searched: Mapping[str, Json] = field(default_factory=dict)
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
    reading: Mapping[str, Json] = field(default_factory=dict)
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
        return replace(
            self.training, learning_rate=made.learning_rate, global_batch=made.global_batch, early_stop=None, lora=None
        )

    def identified(self, *, is_cumulative: bool) -> TrialSpec:
        """Return an erasing trial under its id; values that a cumulative strength or a walk has are no part of it."""
        strength = None if is_cumulative or self.until else float(self.strengths[0])
        identity = erasure_identity(self.method, self.method_version, self.settings, strength, self.training)
        identity |= {
            "model": self.model.digest,
            "seed": self.seed,
            "engine": str(self.engine),
            "forget": self.forget.digest,
            "retain": self.retain.digest if self.retain else None,
            "memorization": asdict(self.memorization) if self.reference == "memorized_model" else None,
            "validation": self.validation.digest if self.training.early_stop is not None else None,
        }
        if self.until is not None:
            read = {UNSEEN: self.unseen, RETRAINED: self.retrained}.get(str(self.until.at))
            measured, at = (self.measured or self.forget).digest, read.digest if read else ""
            identity["walk"] = [WALK_VERSION, self.until.key, at, float(self.walk_to or 0), measured]
        return replace(self, trial_id=digest_of(identity))

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


def erasure_identity(
    method: str, version: int, settings: Mapping[str, Json], strength: Number | None, training: Training
) -> dict[str, Any]:
    """Return what a row of a sweep adds to the identity of its trials: rows with the same ask for the same trials."""
    return {
        "method": method,
        "version": version,
        "settings": dict(settings),
        "strength": strength,
        "training": training.identity(),
    }
