"""The `data` block of a sweep file, and the source of each section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Self

from pydantic import Field, model_validator

from harness.base.files import path_of
from harness.base.settings import Place, Strict
from harness.contracts import Count, PositiveCount
from harness.data.sources import SOURCE_SETTINGS, Role
from harness.miniature import UNSEEN_RECORDS
from harness.specs import Source

MINIATURE_TOKENS = (64, 128)
"""Prefix and sequence of the miniature, whose models memorised only 128 tokens."""
DEFAULT_TOKENS = (100, 200)
"""Prefix and sequence of the Extraction Challenge."""
VALIDATION_TEXTS = 64
SourceName = Literal["miniature", "extraction_challenge", "jsonl", "npy", "hub"]


class TextSource(Strict):
    """Where texts come from."""

    source: SourceName
    """Where the texts come from."""
    path: Place | None = None
    """A file or folder, or a data set's id."""
    name: str | None = None
    """The data set's configuration."""
    split: str | None = None
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
            hub_place = "the data set's id on the hub, or a local folder of it"
            raise ValueError(f"path is missing: {hub_place if self.source == 'hub' else 'where the texts are'}.")
        return self


class SampledSource(TextSource):
    """All texts, the first ones, or a random sample."""

    sequences: PositiveCount | None = None
    """Number of texts; null: all; unseen ones as many as the forget set, 64 at most."""
    sample_seed: Count | None = None
    """Draws a random sample instead of the first texts."""

    @model_validator(mode="after")
    def _samples_so_many(self) -> Self:
        if self.sample_seed is not None and self.sequences is None:
            raise ValueError("sample_seed draws a random sample, and sequences must say of how many.")
        return self


class HoldoutSource(SampledSource):
    """Unseen texts of the forget set's kind."""

    prefix_tokens: PositiveCount | None = None
    """Tokens of each prompt."""
    sequence_tokens: PositiveCount | None = None
    """Tokens of each text, prefix included."""


class ForgetSource(HoldoutSource):
    """The forget set; `not_memorized` are cut alike."""

    not_memorized: SampledSource | None = None
    """Further texts to erase, which the model need not recite."""


class HeldSource(TextSource):
    """Retain data, or validation texts."""

    sequences: PositiveCount | None = None
    """Number of texts; null: all."""
    sequence_tokens: PositiveCount | None = None
    """Tokens of each text."""


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

    forget: ForgetSource = Field(description="what to erase?", examples=["forget: {source: miniature}"])
    """What to erase."""
    holdout: HoldoutSource | None = None
    """Unseen texts of the forget set's kind."""
    retain: HeldSource | None = None
    """Texts to train on as well."""
    utility: UtilitySource = Field(description="what to continue?", examples=["utility: {source: miniature}"])
    """Texts to continue."""
    validation: HeldSource | None = None
    """Texts for early stopping."""


def default_section(data: Data, role: Role, texts: Mapping[str, Source]) -> TextSource | None:
    """Return the miniature's unseen texts for a role that the file leaves out, or None.

    Validation texts default to held-out texts of the utility's source, if readable.
    """
    if role == "holdout" and data.forget.source == "miniature":
        other, start = data.forget.not_memorized, 0
        if other is not None and other.source == "miniature":  # It may be made of all unseen records.
            is_beginning = other.sequences is not None and other.sample_seed is None
            start = other.start + (other.sequences or 0) if is_beginning else UNSEEN_RECORDS
        return HoldoutSource(source="miniature", start=start) if start < UNSEEN_RECORDS else None
    if role != "validation" or "utility" not in texts:
        return None
    shared = data.utility.model_dump(include=set(TextSource.model_fields))
    # The miniature has enough, so that the number of prompts has no say in when training stops.
    count = VALIDATION_TEXTS if data.utility.source == "miniature" else min(VALIDATION_TEXTS, data.utility.prompts)
    return HeldSource(**shared, sequences=count)


def section_source(section: TextSource, role: Role, forget: Source | None = None) -> Source:
    """Return a section's source without a digest; only utility texts continue after the forget set's last row."""
    cut = (forget.longest or forget.sequence_tokens) if forget is not None else DEFAULT_TOKENS[1]
    settings = section.model_dump(exclude_none=True, exclude={"not_memorized"})
    if role == "forget":
        prefix, whole = MINIATURE_TOKENS if section.source == "miniature" else DEFAULT_TOKENS
        settings = {"prefix_tokens": prefix, "sequence_tokens": whole, **settings}
    elif role == "utility":
        prompt, prompts = settings.pop("prompt_tokens"), settings.pop("prompts")
        whole = prompt + settings.pop("reference_tokens")
        settings |= {"sequences": prompts, "prefix_tokens": prompt, "sequence_tokens": whole}
    else:
        prefix = 1 if role != "holdout" else forget.prefix_tokens if forget is not None else DEFAULT_TOKENS[0]
        whole = min(cut, settings.get("sequence_tokens", cut))
        settings = {"prefix_tokens": prefix, **settings, "sequence_tokens": whole}
    if section.path is not None:
        folder = path_of(section.path)
        settings["path"] = section.path if section.source == "hub" and not folder.is_dir() else str(folder.resolve())
    source = Source(**settings)
    other = section.not_memorized if isinstance(section, ForgetSource) else None
    return source if other is None else replace(source, not_memorized=section_source(other, "holdout", source))
