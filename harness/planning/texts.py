"""The `data` block to sources: defaults filled in, contents read once and given a digest, roles kept apart."""

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
    lossy_sentences,
    nearly_in_both,
    stand_in_source,
)
from harness.data.sources import AS_THEY_STAND, ROLES, Role
from harness.errors import DataError, Fault, Faults, ModelError
from harness.models.loading import check_tokenizer, load_tokenizer, positions, vocabulary
from harness.planning.resolve import ResolvedModel
from harness.settings import STAND_IN, Data, Source, TextSource, replace

LEAST_HALVED = 4
"""Two continuations or more in each half: one has no standard error."""
LENGTHS = {
    "forget": "sequence_tokens",
    "retain": "sequence_tokens",
    "utility": "reference_tokens",
    "validation": "sequence_tokens",
}
"""The setting that says how long a role's texts are; a holdout's are never longer than the forget set's."""
NEXT_TEXTS = (
    "is left out, so what follows data.utility's texts is taken: what ends trainings or chooses settings must not be "
    "what is reported. Name other texts, lower data.utility.prompts, or end no training early "
    "(training.early_stop: null). "
)
"""What stands before the reason why those cannot be used."""
Texts = Mapping[str, Source]
"""Sources by role, as one tokenizer cuts them; `retain` is there only if the sweep names it, `holdout` or `stand_in` if
there are such texts, and `selection` and `report` where the forget set is halved."""


@dataclass(frozen=True)
class TextUse:
    """What a sweep does with its texts, so far as it decides which they are and what they may share."""

    erases: bool = True
    is_halved: bool = False
    """Whether settings are chosen on one half of the forget set and reported on the other."""
    is_steered: bool = False
    """Whether validation texts end a training early, or choose settings."""


@dataclass(frozen=True)
class ResolvedTexts:
    """A sweep's texts for each model."""

    by_model: Mapping[str, Texts]
    """By the model's path in the file."""
    shared: tuple[str, ...] = ()
    """A sentence for every two roles that share texts, but too few to be a fault."""


def resolve_texts(data: Data, models: Sequence[ResolvedModel], use: TextUse, faults: Faults) -> ResolvedTexts:
    """Return the sweep's texts for each model; each tokenizer reads them once.

    Where the forget set is halved, the halves are among them, as `selection` and `report`. Without a model, so without
    a tokenizer, only what needs none is checked.
    """
    wrong = list(_length_faults(data))
    faults += wrong
    if wrong or not models:
        for role in ROLES:
            section: TextSource | None = getattr(data, role)
            if section is None or f"data.{role}.prefix_tokens" in [fault.path for fault in wrong]:
                continue
            try:
                check_rows(section_source(section, role), role)
            except DataError as error:
                faults.add(f"data.{role}", str(error))
        return ResolvedTexts({})
    texts: dict[str, Texts] = {}
    shared: list[str] = []
    known: dict[tuple[str, int], Texts | None] = {}
    for model in models:
        checkpoint = model.checkpoint
        try:
            key = checkpoint.tokenizer, vocabulary(checkpoint)
            if key not in known:
                check_tokenizer(checkpoint)
                known[key], sentences = _read_texts(data, checkpoint, use, faults)
                shared += sentences
        except ModelError as error:
            faults.add(model.path, str(error))
            continue
        cut = known[key]
        if cut is not None:
            faults += overlong(cut, checkpoint)
            texts[model.path] = cut
    return ResolvedTexts(texts, tuple(dict.fromkeys(shared)))


def _length_faults(data: Data) -> Iterator[Fault]:
    forget = section_source(data.forget, "forget")
    for role in AS_THEY_STAND:
        section: TextSource | None = getattr(data, role)
        if section is not None and section.model_fields_set & {"prefix_tokens", "sequence_tokens"}:
            source = section_source(section, role, forget)
            prefix, whole = source.prefix_tokens, source.sequence_tokens
            if prefix >= whole:
                reason = f"must be below sequence_tokens ({whole}), so that a continuation is left; got {prefix}."
                yield Fault(f"data.{role}.prefix_tokens", reason)


def _read_texts(data: Data, model: Checkpoint, use: TextUse, faults: Faults) -> tuple[Texts | None, tuple[str, ...]]:
    """Return every source with the digest of its contents, or None if any cannot be read; and what roles share.

    Holdout, retain and validation texts are cut where the longest forget sequence ends; unless the file
    says how many, there are as many retain texts as forget sequences, and no more of the holdout. Where no
    holdout is to be had, validation texts stand in for it.
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
        if is_default and use.is_steered:  # What steers must not be what is reported: the next texts are taken.
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
    mixed = Faults()
    sentences = split_faults(loaded, mixed, erases=use.erases, is_steered=use.is_steered)
    sentences += tuple(lossy_sentences(texts, load_tokenizer(model)))
    faults += mixed
    if mixed:
        return None, ()
    if use.is_halved:
        texts |= _halves(texts["forget"], sequences, faults)
    validation = loaded["validation"]
    assert isinstance(validation, Sequences)
    stand_in = None if "holdout" in texts else stand_in_source(texts["validation"], validation, sequences, model)
    return {**texts, **({STAND_IN: stand_in} if stand_in else {})}, sentences


def _halves(source: Source, forget: Sequences, faults: Faults) -> dict[str, Source]:
    if (distinct := len(set(inseparable_groups(forget)))) < LEAST_HALVED:
        faults.add(
            "data.forget",
            f"has {distinct} distinct continuation{'' if distinct == 1 else 's'} (near-duplicates count as one), and "
            f"tuning needs {LEAST_HALVED}: settings are chosen on one half of them and reported on the other. Name "
            "more sequences, or remove tune.",
        )
        return {}
    halves: tuple[Literal["selection", "report"], ...] = ("selection", "report")
    return {half: counted_source(replace(source, half=half), half_of(forget, half)) for half in halves}


def overlong(texts: Texts, model: Checkpoint) -> Iterator[Fault]:
    """Yield the roles whose texts are longer than what a model reads."""
    most = positions(model)
    for role, setting in LENGTHS.items():
        if role in texts and texts[role].longest > most:
            reason = f"sequences of {texts[role].longest} tokens do not fit '{model.id}', which reads {most} at most."
            yield Fault(f"data.{role}.{setting}", reason)


MOST_ERASED = 0.01
"""The share of texts that may be in the forget set and be no fault: the loss of an erased text may rise by some five
nats, so one in a hundred moves a perplexity by 5 %, half of what counts as equivalent."""
MOST_SEEN = 0.05
"""The same of texts that training or a search has seen: it may lower their loss by some one nat."""
NAMED_TEXTS = 5
NOT_TO_ERASE: Mapping[Role, str] = {
    "holdout": "they are not unseen. Name others of the same kind (start skips rows), or leave it out.",
    "retain": "training would keep what it is to erase. Name others (start skips rows), or leave it out.",
    "utility": "what they say of utility is what was erased. Name others (start skips rows).",
    "validation": "what ends a training early is what it is to erase. Name others (start skips rows).",
}
"""The roles that share no text with the forget set, and what is wrong with one that does."""
NEARLY_SEEN = "what the original recites of them may be what it knows of those"
"""What follows of a holdout with near-duplicates: nothing looks better by it, so it is no fault."""
APART: Mapping[tuple[Role, Role], str] = {
    ("retain", "utility"): "training learns what utility is measured on",
    ("retain", "validation"): "training learns what it is stopped or chosen by",
    ("validation", "utility"): "what trainings are stopped or chosen by is what is reported",
}
"""Other roles that are to be apart, and what follows where they are not."""
STEERED = ("retain", "validation"), ("validation", "utility")
"""Those that matter only where validation texts end a training or steer a search."""


@dataclass(frozen=True)
class _Overlap:
    """Texts of two roles that are the same, or nearly."""

    role: Role
    other: Role
    numbers: tuple[int, ...]
    """Which of the role's texts, counted from 0."""
    count: int
    """How many the role has."""
    other_numbers: tuple[int, ...]
    other_count: int
    has_same: bool
    """Whether any is the same to the last token."""
    consequence: str

    @property
    def allowed(self) -> float:
        """Return which share of either role's texts may be in the other."""
        return MOST_ERASED if self.other == "forget" else MOST_SEEN

    @property
    def is_fault(self) -> bool:
        """Return whether more is shared than may be; a single near-duplicate may be chance."""
        shares = len(self.numbers) / self.count, len(self.other_numbers) / self.other_count
        is_chance = not self.has_same and 1 in (len(self.numbers), len(self.other_numbers))
        return self.role != "holdout" and not is_chance and max(shares) > self.allowed

    def __str__(self) -> str:
        """Return what a person reads: counts and numbers from 1, and never a text."""
        named = first_names([str(number + 1) for number in self.numbers], NAMED_TEXTS)
        verb = "is" if len(self.numbers) == 1 else "are"
        return (
            f"{len(self.numbers)} of its {amount(self.count, 'text')} (number {named}) {verb} in data.{self.other} "
            f"too, or nearly ({len(self.other_numbers)} of the {self.other_count} there): {self.consequence}."
        )


def split_faults(
    loaded: Mapping[Role, Sequences | Utility], faults: Faults, *, erases: bool, is_steered: bool
) -> tuple[str, ...]:
    """Return a sentence for every two roles that share a few texts; those that share more are faults.

    Texts are known by their tokens, and numbered, from 1, as they are used.

    Args:
        loaded: Each role's texts, as one tokenizer cuts them.
        faults: Extended by a fault for every two roles that are not apart.
        erases: Whether anything is erased; if not, only unseen texts must not be in the forget set.
        is_steered: Whether validation texts end a training early, or choose settings.
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
            continue  # A fault already.
        numbers = {*same, *nearly_in_both(texts, others)}
        if numbers:
            other_numbers = {*in_both(others, texts), *nearly_in_both(others, texts)}
            ordered = tuple(sorted(numbers)), len(texts), tuple(sorted(other_numbers)), len(others)
            yield _Overlap(role, other, *ordered, bool(same), consequence)
