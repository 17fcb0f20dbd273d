"""The `data` block: which texts are erased, kept, continued and watched, and where they come from."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from harness.contracts import Count, PositiveCount
from harness.data.paths import SOURCE_SETTINGS
from harness.planning.validation import Place, Strict

SourceName = Literal["miniature", "extraction_challenge", "jsonl", "npy", "hub"]


class TextSource(Strict):
    """Where texts come from."""

    source: SourceName
    path: Place | None = None
    name: str | None = None
    split: str | None = None
    field: str | None = None
    start: Count = 0

    @model_validator(mode="after")
    def _is_of_its_source(self) -> Self:
        """Refuse a setting that the source does not read, and a missing path."""
        reads = SOURCE_SETTINGS[self.source]
        reasons: dict[str, str] = {}
        for name in ("path", "name", "split", "field"):
            if getattr(self, name) is not None and name not in reads:
                others = f"; it reads {', '.join(reads)}" if reads else ""
                reasons[name] = f"the source '{self.source}' does not read it{others}."
        if "path" in reads and not self.path:
            of_hub = "the data set's id on the hub, or a local folder of it"
            reasons["path"] = f"is missing: {of_hub if self.source == 'hub' else 'where the texts are'}."
        if reasons:
            kinds = {name: PydanticCustomError("setting_fault", "{it}", {"it": it}) for name, it in reasons.items()}
            findings = [InitErrorDetails(type=kind, loc=(name,), input=None) for name, kind in kinds.items()]
            raise ValidationError.from_exception_data("TextSource", findings)
        return self


class SampledSource(TextSource):
    """Texts that are used as they stand: all of them, the first ones, or a random sample."""

    sequences: PositiveCount | None = None
    sample_seed: Count | None = None

    @model_validator(mode="after")
    def _samples_so_many(self) -> Self:
        """Refuse a sample of unknown size."""
        if self.sample_seed is not None and self.sequences is None:
            raise ValueError("sample_seed draws a random sample, and sequences must say of how many.")
        return self


class HoldoutSource(SampledSource):
    """Unseen texts of the forget set's kind."""

    prefix_tokens: PositiveCount | None = None
    sequence_tokens: PositiveCount | None = None


class ForgetSource(HoldoutSource):
    """The forget set; `not_memorized` are cut as its other texts are."""

    not_memorized: SampledSource | None = None


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

    forget: ForgetSource = Field(description="what to erase?", examples=["forget: {source: miniature}"])
    holdout: HoldoutSource | None = None
    retain: HeldSource | None = None
    utility: UtilitySource = Field(description="what to continue?", examples=["utility: {source: miniature}"])
    validation: HeldSource | None = None
