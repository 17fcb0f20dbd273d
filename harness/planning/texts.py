"""The `data` block to sources: defaults filled in, paths made absolute, contents read once and given a digest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contracts import Sequences
from harness.data.places import SETTINGS, check_place
from harness.data.rows import check_rows
from harness.data.sequences import Utility, load_forget, load_retain, load_utility, load_validation
from harness.data.sources import Role
from harness.errors import DataError
from harness.planning.config import Data, HeldSource, TextSource
from harness.planning.faults import Faults
from harness.specs import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MINIATURE_TOKENS = (64, 128)
"""Prefix and sequence of the miniature's forget set; its models never memorised more than the first 128 tokens."""
DEFAULT_TOKENS = (100, 200)
"""Prefix and sequence of any other: the Extraction Challenge's."""
VALIDATION_TEXTS = 64
ROLES: tuple[Role, ...] = ("forget", "retain", "utility", "validation")


@dataclass(frozen=True)
class Texts:
    """A sweep's sources, as one tokenizer cuts them; `retain` is there only if the sweep names it."""

    sources: Mapping[str, Source]


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
    if data.forget is not None:
        source = _source(data.forget, "forget")
        prefix, whole = source.prefix_tokens, source.sequence_tokens
        if prefix >= whole:
            reason = f"must be below sequence_tokens ({whole}), so that a continuation is left; got {prefix}."
            faults.add("data.forget.prefix_tokens", reason)


def _check_settings(section: TextSource, path: str, faults: Faults) -> None:
    reads = SETTINGS[section.source]
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
        if section is None or (section.path is None and "path" in SETTINGS[section.source]):
            continue
        source = _source(section, role)
        try:
            check_place(source) if role in unsound else check_rows(source, role)
        except DataError as error:
            faults.add(f"data.{role}", str(error))


def read_texts(data: Data, tokenizer: PreTrainedTokenizerBase, vocabulary: int, faults: Faults) -> Texts | None:
    """Return every source with the digest of its contents, or None if any cannot be read.

    Retain and validation texts are cut where the longest forget sequence ends; unless the file says
    how many, there are as many retain texts as forget sequences.
    """
    found: dict[str, Source] = {}
    known, forgotten, cut = len(faults), None, DEFAULT_TOKENS[1]
    for role in ROLES:
        section: TextSource | None = getattr(data, role)
        if role == "validation" and section is None and "utility" in found:
            section = _default_validation(data)
        if section is None:
            continue
        source = _source(section, role, cut)
        if role == "retain":
            source = replace(source, sequences=source.sequences or forgotten)
        if role == "forget":
            cut = source.sequence_tokens
        try:
            loaded = _load(source, role, tokenizer, vocabulary)
        except DataError as error:
            faults.add(f"data.{role}", str(error))
            continue
        longest = source.sequence_tokens if isinstance(loaded, Utility) else loaded.tokens_NT.shape[1]
        found[role] = replace(source, digest=loaded.digest, rows=len(loaded), longest=longest)
        if role == "forget":
            forgotten, cut = len(loaded), longest
    return Texts(found) if len(faults) == known else None


def _load(source: Source, role: Role, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> Sequences | Utility:
    if role == "utility":
        return load_utility(source, tokenizer)
    load = {"forget": load_forget, "retain": load_retain, "validation": load_validation}[role]
    return load(source, tokenizer, vocabulary)


def _default_validation(data: Data) -> TextSource:
    """Return what is watched while training unless the file says so: held-out texts of the utility's source."""
    assert data.utility is not None
    shared = data.utility.model_dump(include=set(TextSource.model_fields))
    # The miniature has enough, so that the number of prompts has no say in when training stops.
    texts = VALIDATION_TEXTS if data.utility.source == "miniature" else min(VALIDATION_TEXTS, data.utility.prompts)
    return HeldSource(**shared, sequences=texts)


def _source(section: TextSource, role: Role, cut: int = DEFAULT_TOKENS[1]) -> Source:
    """Return a section as a source without a digest; retain and validation texts end at `cut` at the latest."""
    settings = section.model_dump(exclude_none=True)
    if role == "forget":
        prefix, whole = MINIATURE_TOKENS if section.source == "miniature" else DEFAULT_TOKENS
        settings = {"prefix_tokens": prefix, "sequence_tokens": whole, **settings}
    elif role == "utility":
        prompt, prompts = settings.pop("prompt_tokens"), settings.pop("prompts")
        whole = prompt + settings.pop("reference_tokens")
        settings |= {"sequences": prompts, "prefix_tokens": prompt, "sequence_tokens": whole}
    else:
        settings |= {"prefix_tokens": 1, "sequence_tokens": min(cut, settings.get("sequence_tokens", cut))}
    if section.path is not None:
        place = Path(section.path).expanduser()
        settings["path"] = section.path if section.source == "hub" and not place.is_dir() else str(place.resolve())
    return Source(**settings)
