"""The sweep file's grammar: which settings there are, and what each may be.

Whatever a plugin declares (the `methods` and `evaluators` blocks, `training`) stays plain here and
is checked against the plugin itself.
"""

from __future__ import annotations

import copy
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, doc
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from harness.contracts import Count, NonNegative, Positive, PositiveCount
from harness.errors import unknown
from harness.planning.faults import Faults, Place, faults_in, place_of
from harness.planning.words import shown
from harness.specs import CollapseBounds

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Name = Annotated[str, StringConstraints(pattern=NAME), doc("a name of letters, digits, '-' and '_'")]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Fraction = Annotated[float, Gt(0.0), Lt(1.0)]
SourceName = Literal["miniature", "extraction_challenge", "jsonl", "npy", "hub"]


def _named(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


def _filled(value: Any) -> Any:
    """Return `{}` for a name with nothing behind it (`generation:`), which means: all defaults."""
    return {} if value is None else value


Plain = Annotated[dict[str, Any], BeforeValidator(_filled)]


class Strict(BaseModel):
    """Settings of which none may be unknown, and none of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JudgeEntry(Strict):
    """A model that judges: its name alone, or with its tokenizer."""

    id: str
    tokenizer: str | None = None
    revision: str | None = None


class NoSettings(Strict):
    """An engine without settings."""


class DeepSpeedEntry(Strict):
    """How DeepSpeed partitions, and where it keeps the optimiser's state."""

    zero_stage: Literal[0, 1, 2, 3] = 2
    offload: bool = False
    workers: PositiveCount = 1


class EngineEntry(Strict):
    """The one engine that a model is trained with."""

    torch: Annotated[NoSettings | None, BeforeValidator(_filled)] = None
    deepspeed: Annotated[DeepSpeedEntry | None, BeforeValidator(_filled)] = None


def _engine(value: Any) -> Any:
    """Return an engine's name as settings; a name that is none, or more than one, is refused here."""
    named = {value: {}} if isinstance(value, str) else value
    if isinstance(named, dict):
        for name in named:
            if name not in EngineEntry.model_fields:
                raise ValueError(unknown("engine", str(name), EngineEntry.model_fields))
        if len(named) != 1:
            raise ValueError(f"names {len(named)} engines: a model is trained with one.")
    return named


class Resources(Strict):
    """What one trial occupies."""

    cpus: PositiveCount = 1
    gpus: NonNegative = 0.0


class ModelEntry(JudgeEntry):
    """A model to erase from: its name alone, or with how it is to be read and trained."""

    engine: Annotated[EngineEntry, BeforeValidator(_engine)] = EngineEntry()
    training: Plain = Field(default_factory=dict)
    retrained: str | None = None
    resources: Resources | None = None


def _around_one(value: Any) -> tuple[float, float]:
    """Return two factors, one below 1 and one above."""
    numbers = isinstance(value, list | tuple) and all(type(each) in (int, float) for each in value)
    if not numbers or len(value) != 2 or not 0 < value[0] < 1 < value[1]:
        raise ValueError(
            "must be two numbers, times the original's perplexity: one above 0 and below 1, and one above 1, "
            f"for instance [0.5, 5]; got {value if numbers else shown(value)}."
        )
    return float(value[0]), float(value[1])


_ENTRY = doc("a name, or settings with an id: {id: ..., tokenizer: ...}")
Model = Annotated[ModelEntry, BeforeValidator(_named), _ENTRY]
Judge = Annotated[JudgeEntry, BeforeValidator(_named), _ENTRY]


class TextSource(Strict):
    """Where texts come from."""

    source: SourceName
    path: str | None = None
    name: str | None = None
    split: str | None = None
    field: str | None = None
    start: Count = 0


class ForgetSource(TextSource):
    """The forget set, or unseen texts of its kind."""

    sequences: PositiveCount | None = None
    prefix_tokens: PositiveCount | None = None
    sequence_tokens: PositiveCount | None = None


class HeldSource(TextSource):
    """Retain data, or validation texts."""

    sequences: PositiveCount | None = None
    sequence_tokens: PositiveCount | None = None


class UtilitySource(TextSource):
    """Human texts that the models are to continue."""

    prompts: PositiveCount = 256
    prompt_tokens: PositiveCount = 32
    reference_tokens: PositiveCount = 128


class Data(Strict):
    """The texts of a sweep."""

    forget: ForgetSource | None = None
    holdout: ForgetSource | None = None
    retain: HeldSource | None = None
    utility: UtilitySource | None = None
    validation: HeldSource | None = None


class MemorizedModel(Strict):
    """How the memorised model is made."""

    epochs: PositiveCount = 10
    learning_rate: Positive | None = None
    global_batch: PositiveCount | None = None
    gate: Annotated[float, Ge(0.0), Le(1.0)] = 0.98


class Judges(Strict):
    """The models that measure others."""

    perplexity: Judge = JudgeEntry(id="miniature")
    features: Judge = JudgeEntry(id="miniature")
    similarity: Judge = JudgeEntry(id="minilm")
    coherence: Judge = JudgeEntry(id="minilm")


class Collapse(Strict):
    """Outside of which numbers a point has collapsed."""

    mauve: Fraction = CollapseBounds.mauve
    perplexity: Annotated[tuple[float, float], BeforeValidator(_around_one)] = CollapseBounds.perplexity


class Ranking(Strict):
    """Which strength of each row is ranked."""

    at: dict[str, float] = Field(default_factory=dict)


class Report(Strict):
    """What the report shows."""

    samples: Literal["redacted", "plain"] = "redacted"


class Sweep(Strict):
    """A sweep file. What must be there is checked apart, so that a part of a faulty file can be looked at."""

    name: Name | None = None
    models: Annotated[dict[str, Model], doc("a list of models")] = Field(default_factory=dict)
    """By their numbers in the list, so that a faulty one can go and the others keep their paths."""
    seeds: list[Seed] = Field(default_factory=lambda: [0])
    data: Data = Data()
    training: Plain = Field(default_factory=dict)
    memorized_model: MemorizedModel = MemorizedModel()
    methods: Annotated[dict[str, Plain], doc("settings by method")] = Field(default_factory=dict)
    evaluators: Annotated[dict[str, Plain], doc("settings by evaluator")] = Field(default_factory=dict)
    judges: Judges = Judges()
    ranking: Ranking = Ranking()
    collapse: Collapse = Collapse()
    resources: Resources = Resources()
    report: Report = Report()
    keep_erased: Literal["none", "patch", "all"] = "patch"


def read_sweep(raw: dict[str, Any], faults: Faults) -> Sweep:
    """Return the sound part of a sweep file."""
    sound = copy.deepcopy(raw)
    models = sound.pop("models", [])
    if isinstance(models, dict):
        faults.add("models", "must be a list of models; got settings (name: value).")
    else:
        sound["models"] = {str(at): each for at, each in enumerate(models)} if isinstance(models, list) else models
    reported: set[str] = set()
    while True:
        try:
            return Sweep.model_validate(sound)
        except ValidationError as error:
            # What was dropped because it is wrong is not missing as well.
            found = [each for each in faults_in(error, Sweep, sound, "") if each.path not in reported]
            faults += found
            reported |= {each.path for each in found}
            places = [(each["type"], place_of(each["type"], each["loc"], sound)) for each in error.errors()]
            for kind, place in places:
                _drop(sound, place[:-1] if kind == "missing" else place)


def _drop(sound: dict[str, Any], place: Place) -> None:
    """Remove what is at `place`; from a list, the whole list, so that no other entry changes its number."""
    if not place:
        sound.clear()
    inside: Any = sound
    for depth, part in enumerate(place):
        if part not in inside:
            return
        if depth + 1 == len(place) or isinstance(inside[part], list):
            del inside[part]
            return
        inside = inside[part]
