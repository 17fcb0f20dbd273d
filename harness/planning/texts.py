"""The `data` block to sources: defaults filled in, contents read once and digested, roles checked for overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.base.messages import amount, first_names
from harness.contracts import Checkpoint, Sequences
from harness.data.rows import check_rows, first_unread
from harness.data.sections import default_section, section_source
from harness.data.sequences import (
    MAX_UNSEEN,
    Utility,
    counted_source,
    half_of,
    in_both,
    inseparable_groups,
    load_texts,
    nearly_in_both,
    stand_in_source,
)
from harness.data.sources import AS_THEY_STAND, ROLES, Role
from harness.errors import DataError, Fault, Faults, ModelError
from harness.models.loading import check_tokenizer, load_tokenizer, positions, vocabulary
from harness.planning.resolve import ResolvedModel
from harness.settings import STAND_IN, Data, Source, TextSource, replace

MIN_HALVED = 4
"""At least two continuations in each half, for a standard error."""
LENGTHS = {
    "forget": "sequence_tokens",
    "retain": "sequence_tokens",
    "utility": "reference_tokens",
    "validation": "sequence_tokens",
}
"""Setting of the length of a role's texts; a holdout's are never longer than the forget set's."""
NEXT_TEXTS = (
    "is left out, so what follows data.utility's texts is taken: what ends trainings or chooses settings must not be "
    "what is reported. Name other texts, lower data.utility.prompts, or end no training early "
    "(training.early_stop: null). "
)
"""Prefix of the reason why those cannot be used."""
Texts = Mapping[str, Source]
"""Sources by role, as one tokenizer cuts them: `retain`, `holdout` and `stand_in` where they exist, `selection` and
`report` where the forget set is halved."""


@dataclass(frozen=True)
class TextUse:
    """A sweep's use of its texts, which decides their choice and allowed overlaps."""

    erases: bool = True
    is_halved: bool = False
    """Settings are chosen on one half of the forget set and reported on the other."""
    is_steered: bool = False
    """Validation texts stop trainings early or choose settings."""


@dataclass(frozen=True)
class ResolvedTexts:
    """A sweep's texts for each model."""

    by_model: Mapping[str, Texts]
    """Texts by the model's path in the file."""
    shared: tuple[str, ...] = ()
    """A sentence for every two roles that share a few texts."""


def resolve_texts(data: Data, models: Sequence[ResolvedModel], use: TextUse, faults: Faults) -> ResolvedTexts:
    """Return the sweep's texts for each model; each tokenizer reads them once.

    Without a model, hence a tokenizer, only rows and lengths are checked.
    """
    length_faults = list(_length_faults(data))
    faults += length_faults
    if length_faults or not models:
        for role in ROLES:
            section: TextSource | None = getattr(data, role)
            if section is None or f"data.{role}.prefix_tokens" in [fault.path for fault in length_faults]:
                continue
            try:
                check_rows(section_source(section, role), role)
            except DataError as error:
                faults.add(f"data.{role}", str(error))
        return ResolvedTexts({})
    texts: dict[str, Texts] = {}
    shared: list[str] = []
    texts_by_tokenizer: dict[tuple[str, int], Texts | None] = {}
    for model in models:
        checkpoint = model.checkpoint
        try:
            key = checkpoint.tokenizer, vocabulary(checkpoint)
            if key not in texts_by_tokenizer:
                check_tokenizer(checkpoint)
                texts_by_tokenizer[key], sentences = _read_texts(data, checkpoint, use, faults)
                shared += sentences
        except ModelError as error:
            faults.add(model.path, str(error))
            continue
        model_texts = texts_by_tokenizer[key]
        if model_texts is not None:
            faults += length_limit_faults(model_texts, checkpoint)
            texts[model.path] = model_texts
    return ResolvedTexts(texts, tuple(dict.fromkeys(shared)))


def _length_faults(data: Data) -> Iterator[Fault]:
    forget = section_source(data.forget, "forget")
    for role in AS_THEY_STAND:
        section: TextSource | None = getattr(data, role)
        if section is not None and section.model_fields_set & {"prefix_tokens", "sequence_tokens"}:
            source = section_source(section, role, forget)
            prefix, length = source.prefix_tokens, source.sequence_tokens
            if prefix >= length:
                reason = f"must be below sequence_tokens ({length}), so that a continuation is left; got {prefix}."
                yield Fault(f"data.{role}.prefix_tokens", reason)


def _read_texts(data: Data, model: Checkpoint, use: TextUse, faults: Faults) -> tuple[Texts | None, tuple[str, ...]]:
    """Return every source with its digest, None if any cannot be read, and a sentence for each overlap.

    Holdout, retain and validation texts are cut to the longest forget sequence. By default there are as many retain
    texts as forget sequences, and at most as many holdout texts. Validation texts replace a missing holdout.
    """
    texts: dict[str, Source] = {}
    loaded: dict[Role, Sequences | Utility] = {}
    is_sound = True
    for role in ROLES:
        section: TextSource | None = getattr(data, role) or default_section(data, role, texts)
        if section is None:
            continue
        forget = texts.get("forget") or section_source(data.forget, "forget")
        source = section_source(section, role, forget)
        if role == "retain":
            source = replace(source, sequences=source.sequences or forget.rows or None)
        is_default = role == "validation" and data.validation is None and source.source != "miniature"
        if is_default and use.is_steered:  # Reported texts must not steer: take the next ones.
            source = replace(source, start=first_unread(texts["utility"], "utility", load_tokenizer(model)))
        try:
            loaded[role] = load_texts(source, role, model)
            if role == "holdout" and source.sequences is None:
                source = replace(source, sequences=min(len(loaded[role]), forget.rows or MAX_UNSEEN, MAX_UNSEEN))
                loaded[role] = load_texts(source, role, model)
        except DataError as error:
            faults.add(f"data.{role}", f"{NEXT_TEXTS if is_default and use.is_steered else ''}{error}")
            is_sound = False
            continue
        texts[role] = counted_source(source, loaded[role])
    sequences = loaded.get("forget")
    if not is_sound or not isinstance(sequences, Sequences):
        return None, ()
    overlap_faults = Faults()
    sentences = split_faults(loaded, overlap_faults, erases=use.erases, is_steered=use.is_steered)
    faults += overlap_faults
    if overlap_faults:
        return None, ()
    if use.is_halved:
        texts |= _halves(texts["forget"], sequences, faults)
    validation = loaded["validation"]
    assert isinstance(validation, Sequences)
    stand_in = None if "holdout" in texts else stand_in_source(texts["validation"], validation, sequences, model)
    return {**texts, **({STAND_IN: stand_in} if stand_in else {})}, sentences


def _halves(source: Source, forget: Sequences, faults: Faults) -> dict[str, Source]:
    if (distinct := len(set(inseparable_groups(forget)))) < MIN_HALVED:
        faults.add(
            "data.forget",
            f"has {distinct} distinct continuation{'' if distinct == 1 else 's'} (near-duplicates count as one), and "
            f"tuning needs {MIN_HALVED}: settings are chosen on one half of them and reported on the other. Name "
            "more sequences, or remove tune.",
        )
        return {}
    halves: tuple[Literal["selection", "report"], ...] = ("selection", "report")
    return {half: counted_source(replace(source, half=half), half_of(forget, half)) for half in halves}


def length_limit_faults(texts: Texts, model: Checkpoint) -> Iterator[Fault]:
    """Yield the roles whose texts are longer than a model's context."""
    context = positions(model)
    for role, setting in LENGTHS.items():
        if role in texts and texts[role].longest > context:
            longest = f"sequences of {texts[role].longest} tokens"
            reason = f"{longest} do not fit '{model.id}', which reads {context} at most."
            yield Fault(f"data.{role}.{setting}", reason)


MAX_ERASED_SHARE = 0.01
"""Allowed share of texts in the forget set: the loss of an erased text may rise by some five nats, so one in a hundred
changes a perplexity by 5 %, half the margin of equivalence."""
MAX_SEEN_SHARE = 0.05
"""Allowed share of texts seen in training or a search, which may lower their loss by about one nat."""
NAMED_TEXTS = 5
NOT_TO_ERASE: Mapping[Role, str] = {
    "holdout": "they are not unseen. Name others of the same kind (start skips rows), or leave it out.",
    "retain": "training would keep what it is to erase. Name others (start skips rows), or leave it out.",
    "utility": "what they say of utility is what was erased. Name others (start skips rows).",
    "validation": "what ends a training early is what it is to erase. Name others (start skips rows).",
}
"""Roles that may share no text with the forget set, and the reason."""
NEARLY_SEEN = "what the original recites of them may be what it knows of those"
"""Consequence of a holdout with near-duplicates; no method gains by it, so it is no fault."""
APART: Mapping[tuple[Role, Role], str] = {
    ("retain", "utility"): "training learns what utility is measured on",
    ("retain", "validation"): "training learns what it is stopped or chosen by",
    ("validation", "utility"): "what trainings are stopped or chosen by is what is reported",
}
"""Other pairs of roles that must be apart, and the consequence of overlap."""
STEERED = ("retain", "validation"), ("validation", "utility")
"""Pairs that matter only where validation texts stop a training or steer a search."""


@dataclass(frozen=True)
class _Overlap:
    """Identical or nearly identical texts of two roles."""

    role: Role
    other: Role
    numbers: tuple[int, ...]
    """Indices of the role's texts, from 0."""
    count: int
    """Number of the role's texts."""
    other_numbers: tuple[int, ...]
    other_count: int
    has_same: bool
    """Any two are equal in all tokens."""
    consequence: str

    @property
    def allowed(self) -> float:
        return MAX_ERASED_SHARE if self.other == "forget" else MAX_SEEN_SHARE

    @property
    def is_fault(self) -> bool:
        """Return True if more is shared than allowed; a single near-duplicate may be chance."""
        shares = len(self.numbers) / self.count, len(self.other_numbers) / self.other_count
        is_chance = not self.has_same and 1 in (len(self.numbers), len(self.other_numbers))
        return self.role != "holdout" and not is_chance and max(shares) > self.allowed

    def __str__(self) -> str:
        """Return counts and numbers from 1, and never a text."""
        listed = first_names([str(number + 1) for number in self.numbers], NAMED_TEXTS)
        verb = "is" if len(self.numbers) == 1 else "are"
        return (
            f"{len(self.numbers)} of its {amount(self.count, 'text')} (number {listed}) {verb} in data.{self.other} "
            f"too, or nearly ({len(self.other_numbers)} of the {self.other_count} there): {self.consequence}."
        )


def split_faults(
    loaded: Mapping[Role, Sequences | Utility], faults: Faults, *, erases: bool, is_steered: bool
) -> tuple[str, ...]:
    """Return a sentence for every two roles that share a few texts, by their tokens; more are a fault.

    Args:
        loaded: Each role's texts, as one tokenizer cuts them.
        faults: Extended by a fault for every two roles that share too many.
        erases: False: only holdout texts must not be in the forget set.
        is_steered: As `TextUse.is_steered`.
    """
    sentences: list[str] = []
    forget = loaded["forget"]
    for role, why in NOT_TO_ERASE.items():
        if role not in loaded or not (erases or role == "holdout"):
            continue
        texts = loaded[role]
        if shared := in_both(texts, forget):
            faults.add(f"data.{role}", f"{len(shared)} of its {len(texts)} texts are in the forget set too, so {why}")
    for overlap in _overlaps(loaded, erases=erases, is_steered=is_steered):
        if overlap.is_fault:
            allowed = f"At most {overlap.allowed:.0%} of either may be."
            reason = f"{overlap} {allowed} Name others (start skips rows), or remove these from the file."
            faults.add(f"data.{overlap.role}", reason)
        else:
            sentences.append(f"data.{overlap.role}: {overlap}")
    return tuple(sentences)


def _overlaps(loaded: Mapping[Role, Sequences | Utility], *, erases: bool, is_steered: bool) -> Iterator[_Overlap]:
    consequences: dict[tuple[Role, Role], str] = {("holdout", "forget"): NEARLY_SEEN}
    if erases:
        for role in ("retain", "utility", "validation"):
            consequences[role, "forget"] = NOT_TO_ERASE[role].partition(".")[0]
        for pair, consequence in APART.items():
            if is_steered or pair not in STEERED:
                consequences[pair] = consequence
    for (role, other), consequence in consequences.items():
        if role not in loaded:
            continue
        texts, others = loaded[role], loaded[other]
        same = in_both(texts, others)
        if other == "forget" and same:
            continue  # Already a fault.
        numbers = {*same, *nearly_in_both(texts, others)}
        if numbers:
            other_numbers = {*in_both(others, texts), *nearly_in_both(others, texts)}
            ordered = tuple(sorted(numbers)), len(texts), tuple(sorted(other_numbers)), len(others)
            yield _Overlap(role, other, *ordered, bool(same), consequence)
