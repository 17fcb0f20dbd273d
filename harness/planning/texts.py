"""The `data` block to sources: defaults filled in, paths made absolute, contents read once and given a digest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contracts import Sequences
from harness.data.paths import SOURCE_SETTINGS, check_path
from harness.data.rows import check_rows
from harness.data.sequences import (
    Utility,
    in_both,
    load_forget,
    load_holdout,
    load_retain,
    load_stand_in,
    load_utility,
    load_validation,
)
from harness.data.sources import AS_THEY_STAND, Role
from harness.errors import DataError
from harness.planning.config import Data, ForgetSource, HeldSource, TextSource
from harness.planning.faults import Faults
from harness.specs import STAND_IN, Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MINIATURE_TOKENS = (64, 128)
"""Prefix and sequence of the miniature's forget set; its models never memorised more than the first 128 tokens."""
DEFAULT_TOKENS = (100, 200)
"""Prefix and sequence of any other: the Extraction Challenge's."""
VALIDATION_TEXTS = 64
MOST_UNSEEN = 64
"""Unseen texts that the original is measured on, unless the file says how many: MA is then known to 0.01."""
LEAST_STAND_IN = 2
"""One text has no standard error."""
ROLES: tuple[Role, ...] = ("forget", "holdout", "retain", "utility", "validation")


@dataclass(frozen=True)
class Texts:
    """A sweep's sources, as one tokenizer cuts them."""

    sources: Mapping[str, Source]
    """By role; `retain` is there only if the sweep names it, and `holdout` or `stand_in` if there are such texts."""


def check_section(data: Data, raw: Mapping[str, Any], faults: Faults) -> None:
    """Add what is wrong with the `data` block that no single setting's type tells."""
    written = raw.get("data") or {}
    for role in ("forget", "utility"):
        if isinstance(written, dict) and written.get(role) is None:
            faults.add(f"data.{role}", f"is missing. For instance {role}: {{source: miniature}}.")
    for role in ROLES:
        section: TextSource | None = getattr(data, role)
        if section is not None:
            _check_settings(section, f"data.{role}", faults)
    forget = _source(data.forget, "forget") if data.forget is not None else None
    for role in AS_THEY_STAND:
        section = getattr(data, role)
        if section is not None and section.model_fields_set & {"prefix_tokens", "sequence_tokens"}:
            source = _source(section, role, forget)
            prefix, whole = source.prefix_tokens, source.sequence_tokens
            if prefix >= whole:
                reason = f"must be below sequence_tokens ({whole}), so that a continuation is left; got {prefix}."
                faults.add(f"data.{role}.prefix_tokens", reason)


def _check_settings(section: TextSource, path: str, faults: Faults) -> None:
    reads = SOURCE_SETTINGS[section.source]
    for name in ("path", "name", "split", "field"):
        if getattr(section, name) is not None and name not in reads:
            others = f"; it reads {', '.join(reads)}" if reads else ""
            faults.add(f"{path}.{name}", f"the source '{section.source}' does not read it{others}.")
    if "path" in reads and not section.path:
        of_hub = "the data set's id on the hub, or a local folder of it"
        faults.add(f"{path}.path", f"is missing: {of_hub if section.source == 'hub' else 'where the texts are'}.")


def check_texts(data: Data, unsound: Collection[str], faults: Faults) -> None:
    """Add faults for missing and broken files; where no tokenizer is at hand, or settings are faulty."""
    for role in ROLES:
        section: TextSource | None = getattr(data, role)
        if section is None or (section.path is None and "path" in SOURCE_SETTINGS[section.source]):
            continue
        source = _source(section, role)
        try:
            check_path(source) if role in unsound else check_rows(source, role)
        except DataError as error:
            faults.add(f"data.{role}", str(error))


def read_texts(data: Data, tokenizer: PreTrainedTokenizerBase, vocabulary: int, faults: Faults) -> Texts | None:
    """Return every source with the digest of its contents, or None if any cannot be read.

    Holdout, retain and validation texts are cut where the longest forget sequence ends; unless the file
    says how many, there are as many retain texts as forget sequences, and no more of the holdout. Where no
    holdout is to be had, validation texts stand in for it.
    """
    sources: dict[str, Source] = {}
    loaded: dict[str, Sequences | Utility] = {}
    known = len(faults)
    assert data.forget is not None
    for role in ROLES:
        section: TextSource | None = getattr(data, role) or _default(data, role, sources)
        if section is None:
            continue
        forget = sources.get("forget") or _source(data.forget, "forget")
        source = _source(section, role, forget)
        if role == "retain":
            source = replace(source, sequences=source.sequences or forget.rows or None)
        try:
            loaded[role] = _load(source, role, tokenizer, vocabulary)
            if role == "holdout" and source.sequences is None:
                source = replace(source, sequences=min(len(loaded[role]), forget.rows or MOST_UNSEEN, MOST_UNSEEN))
                loaded[role] = _load(source, role, tokenizer, vocabulary)
        except DataError as error:
            faults.add(f"data.{role}", str(error))
            continue
        sources[role] = _counted(source, loaded[role])
    if len(faults) > known:
        return None
    if "holdout" in sources:
        _refuse_seen(loaded, faults)
    elif (stand_in := _stand_in(sources, loaded, tokenizer, vocabulary)) is not None:
        sources[STAND_IN] = stand_in
    return Texts(sources) if len(faults) == known else None


def _load(source: Source, role: Role, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> Sequences | Utility:
    if role == "utility":
        return load_utility(source, tokenizer)
    loaders = {
        "forget": load_forget,
        "holdout": load_holdout,
        "retain": load_retain,
        "validation": load_validation,
    }
    return loaders[role](source, tokenizer, vocabulary)


def _counted(source: Source, loaded: Sequences | Utility) -> Source:
    longest = source.sequence_tokens if isinstance(loaded, Utility) else loaded.tokens_NT.shape[1]
    return replace(source, digest=loaded.digest, rows=len(loaded), longest=longest)


def _refuse_seen(loaded: Mapping[str, Sequences | Utility], faults: Faults) -> None:
    """Add a fault if any text of the holdout is in the forget set."""
    holdout, forget = loaded["holdout"], loaded["forget"]
    assert isinstance(holdout, Sequences)
    assert isinstance(forget, Sequences)
    shared = in_both(holdout, forget)
    if shared:
        reason = f"{shared} of its {len(holdout)} texts are in the forget set too, so they are not unseen. "
        faults.add("data.holdout", f"{reason}Name others of the same kind (start skips rows), or leave it out.")


def _stand_in(
    sources: Mapping[str, Source],
    loaded: Mapping[str, Sequences | Utility],
    tokenizer: PreTrainedTokenizerBase,
    vocabulary: int,
) -> Source | None:
    """Return validation texts cut as the forget set is, or None if too few of them fill that length."""
    forget, validation = loaded["forget"], loaded["validation"]
    assert isinstance(forget, Sequences)
    assert isinstance(validation, Sequences)
    width = forget.tokens_NT.shape[1]
    count = min(int((validation.lengths_N >= width).sum()), len(forget), MOST_UNSEEN)
    if count < LEAST_STAND_IN or in_both(validation, forget):
        return None
    source = replace(sources["validation"], prefix_tokens=forget.prefix_tokens, sequence_tokens=width)
    source = replace(source, sequences=count, digest="")
    return _counted(source, load_stand_in(source, tokenizer, vocabulary))


def _default(data: Data, role: Role, sources: Mapping[str, Source]) -> TextSource | None:
    """Return the texts of a role that the file leaves out: what no model saw of the miniature, or None."""
    if role == "holdout" and data.forget is not None and data.forget.source == "miniature":
        return ForgetSource(source="miniature")
    return _default_validation(data) if role == "validation" and "utility" in sources else None


def _default_validation(data: Data) -> TextSource:
    """Return what is watched while training unless the file says so: held-out texts of the utility's source."""
    assert data.utility is not None
    shared = data.utility.model_dump(include=set(TextSource.model_fields))
    # The miniature has enough, so that the number of prompts has no say in when training stops.
    texts = VALIDATION_TEXTS if data.utility.source == "miniature" else min(VALIDATION_TEXTS, data.utility.prompts)
    return HeldSource(**shared, sequences=texts)


def _source(section: TextSource, role: Role, forget: Source | None = None) -> Source:
    """Return a section as a source without a digest; none but utility texts go on where every forget sequence ended."""
    cut = (forget.longest or forget.sequence_tokens) if forget is not None else DEFAULT_TOKENS[1]
    settings = section.model_dump(exclude_none=True)
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
        place = Path(section.path).expanduser()
        settings["path"] = section.path if section.source == "hub" and not place.is_dir() else str(place.resolve())
    return Source(**settings)
