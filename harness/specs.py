"""What crosses a process border: a trial to do, and the records of what happened.

All of it is plain data. A worker gets a `TrialSpec` and loads plugins, models and texts by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from harness.contracts import Checkpoint, Json, Number, Training
from harness.digests import digest_of

ORIGINAL = "original"
RETRAINED = "retrained"
HOLDOUT = "holdout"
STAND_IN = "stand_in"
UNSEEN_ROWS = (HOLDOUT, STAND_IN)
"""The original on texts that it never saw, by what measures erasure alone: texts of the forget set's kind, or
validation texts where the sweep has none of that kind."""
REFERENCE_ROWS = (ORIGINAL, RETRAINED, *UNSEEN_ROWS)
"""Rows that are measured without any erasure: the model before it, the one that never saw the forget set, and what
the first says of texts that are not in it."""


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""Of each class, made when it is first read: that takes milliseconds."""


@dataclass(frozen=True)
class PlainData:
    """A dataclass that JSON can hold; `to_json` and `from_json` are exact inverses."""

    def to_json(self) -> dict[str, Any]:
        """Return dictionaries, lists, strings and numbers."""
        return dict(json.loads(json.dumps(asdict(self))))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote; what an older version did not write has its default.

        Raises:
            ValueError: It is something else, or has a field that would be dropped, leaving a default in its place.
        """
        if cls not in _ADAPTERS:
            _ADAPTERS[cls] = TypeAdapter(cls)
        adapter: TypeAdapter[Self] = _ADAPTERS[cls]
        value = adapter.validate_python(data)
        if dropped := _dropped(data, value.to_json()):
            raise ValueError(f"{cls.__name__} has no field '{dropped[0]}'")
        return value


def _dropped(written: Any, read: Any, path: str = "") -> list[str]:
    """Return the paths of what was written and is not there after reading."""
    if isinstance(written, Mapping):
        pairs = [(f"{path}.{name}", name, value) for name, value in written.items()]
    elif isinstance(written, list | tuple):
        pairs = [(f"{path}.{index}", index, value) for index, value in enumerate(written)]
    else:
        return []
    return [
        lost
        for at, key, value in pairs
        for lost in ([at[1:]] if isinstance(read, dict) and key not in read else _dropped(value, read[key], at))
    ]


@dataclass(frozen=True, kw_only=True)
class Source:
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
    """Rising; empty for the reference rows, which have one point and no strength."""
    seed: int
    model: Checkpoint
    training: Training
    memorization: MemorizedTraining
    engine: Engine
    forget: Source
    """What is erased, and what erasure is measured on; of a row in `UNSEEN_ROWS` the unseen texts."""
    retain: Source | None
    utility: Source
    validation: Source
    evaluators: tuple[EvaluatorSpec, ...]
    judges: Mapping[str, Checkpoint]
    retrained: Checkpoint | None = None
    """The model that the `retrained` row measures; `model` stays the original, which it is compared with."""
    cpus: int = 1
    gpus: float = 0.0
    keep_erased: Literal["none", "patch", "all"] = "patch"
    samples: Literal["redacted", "plain"] = "redacted"

    @property
    def is_reference(self) -> bool:
        """Return whether this is a model measured as it is: nothing is erased from it."""
        return self.method in REFERENCE_ROWS

    def points(self) -> tuple[Number | None, ...]:
        """Return the strengths to be measured; a reference row's single point has none."""
        return self.strengths or (None,)

    def point_id(self, strength: Number | None) -> str:
        """Return the digest that names this trial's model at `strength`."""
        return digest_of([self.trial_id, None if strength is None else float(strength)])


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One evaluator's numbers on one point: the unit of work that is never done twice."""

    trial_id: str
    point_id: str
    strength: Number | None
    evaluator: str
    key: str
    """The evaluator spec's key: with the point's id, the measurement's identity."""
    definition: str
    numbers: Mapping[str, float]
    metrics: tuple[Mapping[str, Json], ...]
    """The declared `Metric`s, so that tables can be made without loading the plugin."""
    samples: tuple[Mapping[str, str], ...]
    notes: Mapping[str, Json]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Point:
    """One erased model of a trial, before any evaluator saw it."""

    trial_id: str
    point_id: str
    strength: Number | None
    erase_seconds: float
    """From the trial's start to this model: a cumulative trial's later points hold the earlier ones."""
    peak_memory_bytes: int | None
    """The most that erasing held of a GPU's memory up to here, of the worker that held most; None on a CPU."""
    notes: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A trajectory that ended early; its later strengths are never tried again."""

    trial_id: str
    strength: Number
    reason: str


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A trial that raised."""

    trial_id: str
    error: str
    """The exception's type and message, without any text of the forget set."""
    log: tuple[str, ...]
    """The last lines of the traceback."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A trial's first record: the spec itself, and the versions it ran with."""

    trial_id: str
    spec: Mapping[str, Json]
    versions: Mapping[str, str] = field(default_factory=dict)


Record = Started | Point | Measurement | Stopped | Failed


@dataclass(frozen=True, kw_only=True)
class Plan(PlainData):
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
    collapse: CollapseBounds
    samples: Literal["redacted", "plain"]
