"""The `data` block to sources: defaults filled in, paths made absolute, contents read once and given a digest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from harness.base.paths import path_of
from harness.contracts import Checkpoint, Sequences
from harness.data.rows import check_rows
from harness.data.sequences import (
    Utility,
    distinct_continuations,
    half_of,
    in_both,
    load_forget,
    load_holdout,
    load_retain,
    load_stand_in,
    load_utility,
    load_validation,
)
from harness.data.sources import AS_THEY_STAND, Role
from harness.errors import DataError, Fault, ModelError
from harness.miniature.corpus import UNSEEN_RECORDS
from harness.models.loading import check_tokenizer, load_tokenizer, positions, vocabulary
from harness.planning.resolve import ResolvedModel
from harness.planning.schema import Data, ForgetSource, HeldSource, HoldoutSource, TextSource
from harness.planning.validation import Checking
from harness.specs import STAND_IN, Source

MINIATURE_TOKENS = (64, 128)
"""Prefix and sequence of the miniature's forget set; its models never memorised more than the first 128 tokens."""
DEFAULT_TOKENS = (100, 200)
"""Prefix and sequence of any other: the Extraction Challenge's."""
VALIDATION_TEXTS = 64
MOST_UNSEEN = 64
"""Unseen texts that the original is measured on, unless the file says how many: MA is then known to 0.01."""
LEAST_STAND_IN = 2
"""One text has no standard error."""
LEAST_HALVED = 4
"""Two distinct continuations in each half: one has no standard error."""
ROLES: tuple[Role, ...] = ("forget", "holdout", "retain", "utility", "validation")
LENGTHS = {
    "forget": "sequence_tokens",
    "retain": "sequence_tokens",
    "utility": "reference_tokens",
    "validation": "sequence_tokens",
}
"""The setting that says how long a role's texts are; a holdout's are never longer than the forget set's."""
NOT_TO_ERASE: Mapping[Role, str] = {
    "holdout": "they are not unseen. Name others of the same kind (start skips rows), or leave it out.",
    "retain": "training would keep what it is to erase. Name others (start skips rows), or leave it out.",
    "utility": "what they say of utility is what was erased. Name others (start skips rows).",
    "validation": "what ends a training early is what it is to erase. Name others (start skips rows).",
}
"""The roles that share no text with the forget set, and what is wrong with one that does."""

Texts = Mapping[str, Source]
"""Sources by role, as one tokenizer cuts them; `retain` is there only if the sweep names it, `holdout` or `stand_in` if
there are such texts, and `selection` and `report` where the forget set is halved."""


def resolve_texts(
    data: Data, models: Sequence[ResolvedModel], *, erases: bool = True, are_halved: bool = False
) -> Checking[dict[str, Texts]]:
    """Return the sweep's texts for each model, by its path in the file; each tokenizer reads them once.

    Where something `erases`, no text may be both erased and kept. With `are_halved` the halves of the forget set are
    among them, as `selection` and `report`.
    Where there is no model, so no tokenizer, only what needs none is checked.
    """
    wrong = list(_length_faults(data))
    yield from wrong
    if wrong or not models:
        for role in ROLES:
            section: TextSource | None = getattr(data, role)
            if section is None or f"data.{role}.prefix_tokens" in [fault.path for fault in wrong]:
                continue
            try:
                check_rows(_section_source(section, role), role)
            except DataError as error:
                yield Fault(f"data.{role}", str(error))
        return {}
    texts: dict[str, Texts] = {}
    known: dict[tuple[str, int], Texts | None] = {}
    for model in models:
        checkpoint = model.checkpoint
        try:
            key = checkpoint.tokenizer, vocabulary(checkpoint)
            check_tokenizer(checkpoint)
            if key not in known:
                known[key] = yield from _read_texts(data, checkpoint, erases, are_halved)
        except ModelError as error:
            yield Fault(model.path, str(error))
            continue
        cut = known[key]
        if cut is not None:
            yield from overlong(cut, checkpoint)
            texts[model.path] = cut
    return texts


def _length_faults(data: Data) -> Iterator[Fault]:
    """Yield where no continuation would be left."""
    forget = _section_source(data.forget, "forget")
    for role in AS_THEY_STAND:
        section: TextSource | None = getattr(data, role)
        if section is not None and section.model_fields_set & {"prefix_tokens", "sequence_tokens"}:
            source = _section_source(section, role, forget)
            prefix, whole = source.prefix_tokens, source.sequence_tokens
            if prefix >= whole:
                reason = f"must be below sequence_tokens ({whole}), so that a continuation is left; got {prefix}."
                yield Fault(f"data.{role}.prefix_tokens", reason)


def _read_texts(data: Data, model: Checkpoint, erases: bool, are_halved: bool) -> Checking[Texts | None]:
    """Return every source with the digest of its contents, or None if any cannot be read.

    Holdout, retain and validation texts are cut where the longest forget sequence ends; unless the file
    says how many, there are as many retain texts as forget sequences, and no more of the holdout. Where no
    holdout is to be had, validation texts stand in for it.
    """
    texts: dict[str, Source] = {}
    loaded: dict[str, Sequences | Utility] = {}
    is_sound = True
    for role in ROLES:
        section: TextSource | None = getattr(data, role) or _default(data, role, texts)
        if section is None:
            continue
        forget = texts.get("forget") or _section_source(data.forget, "forget")
        source = _section_source(section, role, forget)
        if role == "retain":
            source = replace(source, sequences=source.sequences or forget.rows or None)
        try:
            loaded[role] = load_texts(source, role, model)
            if role == "holdout" and source.sequences is None:
                source = replace(source, sequences=min(len(loaded[role]), forget.rows or MOST_UNSEEN, MOST_UNSEEN))
                loaded[role] = load_texts(source, role, model)
        except DataError as error:
            yield Fault(f"data.{role}", str(error))
            is_sound = False
            continue
        texts[role] = _counted_source(source, loaded[role])
    sequences = loaded.get("forget")
    if not is_sound or not isinstance(sequences, Sequences):
        return None
    for role, why in NOT_TO_ERASE.items():
        is_checked = role in loaded and (erases or role == "holdout")
        if is_checked and (shared := in_both(loaded[role], sequences)):
            reason = f"{shared} of its {len(loaded[role])} texts are in the forget set too, so {why}"
            yield Fault(f"data.{role}", reason)
            is_sound = False
    if not is_sound:
        return None
    if are_halved:
        texts |= yield from _halves(texts["forget"], sequences)
    stand_in = None if "holdout" in texts else _stand_in(texts, sequences, loaded["validation"], model)
    return {**texts, STAND_IN: stand_in} if stand_in else texts


def _halves(source: Source, forget: Sequences) -> Checking[dict[str, Source]]:
    if (distinct := distinct_continuations(forget)) < LEAST_HALVED:
        yield Fault(
            "data.forget",
            f"has {distinct} distinct continuation{'' if distinct == 1 else 's'}, and tuning needs {LEAST_HALVED}: "
            "settings are chosen on one half of them and reported on the other. Name more sequences, or remove tune.",
        )
        return {}
    halves: tuple[Literal["selection", "report"], ...] = ("selection", "report")
    return {half: _counted_source(replace(source, half=half), half_of(forget, half)) for half in halves}


def load_texts(source: Source, role: Role, model: Checkpoint) -> Sequences | Utility:
    """Return a role's texts as a model's tokenizer cuts them.

    Raises:
        DataError: They cannot be read, or are not what the source's digest says.
    """
    load: Mapping[Role, Callable[..., Sequences | Utility]] = {
        "forget": load_forget,
        "holdout": load_holdout,
        "retain": load_retain,
        "utility": load_utility,
        "validation": load_validation,
    }
    return load[role](source, load_tokenizer(model), vocabulary(model))


def _counted_source(source: Source, loaded: Sequences | Utility) -> Source:
    longest = source.sequence_tokens if isinstance(loaded, Utility) else loaded.tokens_NT.shape[1]
    return replace(source, digest=loaded.digest, rows=len(loaded), longest=longest)


def _stand_in(texts: Texts, forget: Sequences, validation: Sequences | Utility, model: Checkpoint) -> Source | None:
    """Return validation texts cut as the forget set is, or None if too few of them fill that length."""
    assert isinstance(validation, Sequences)
    width = forget.tokens_NT.shape[1]
    count = min(int((validation.lengths_N >= width).sum()), len(forget), MOST_UNSEEN)
    if count < LEAST_STAND_IN or in_both(validation, forget):
        return None
    source = replace(texts["validation"], prefix_tokens=forget.prefix_tokens, sequence_tokens=width)
    source = replace(source, sequences=count, digest="")
    return _counted_source(source, load_stand_in(source, load_tokenizer(model), vocabulary(model)))


def _default(data: Data, role: Role, texts: Texts) -> TextSource | None:
    """Return the texts of a role that the file leaves out: what no model saw of the miniature, or None.

    What is watched while training is held-out texts of the utility's source, if that could be read.
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


def _section_source(section: TextSource, role: Role, forget: Source | None = None) -> Source:
    """Return a section as a source without a digest; none but utility texts go on where every forget sequence ended."""
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
    return source if other is None else replace(source, not_memorized=_section_source(other, "holdout", source))


def overlong(texts: Texts, model: Checkpoint) -> Iterator[Fault]:
    """Yield the roles whose texts are longer than what a model reads."""
    most = positions(model)
    for role, setting in LENGTHS.items():
        if role in texts and texts[role].longest > most:
            reason = f"sequences of {texts[role].longest} tokens do not fit '{model.id}', which reads {most} at most."
            yield Fault(f"data.{role}.{setting}", reason)
