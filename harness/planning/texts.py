"""The `data` block to sources: defaults filled in, paths made absolute, contents read once and given a digest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contracts import Sequences
from harness.data.places import SETTINGS, check_place
from harness.data.rows import check_rows
from harness.data.sequences import load_forget, load_retain, load_utility, load_validation
from harness.data.sources import Role
from harness.errors import DataError, Fault
from harness.planning.config import Data, HeldSource, TextSource
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
    """A sweep's sources, as one tokenizer cuts them."""

    forget: Source
    retain: Source | None
    utility: Source
    validation: Source
    longest: Mapping[str, int]
    """The most tokens that a sequence of each role has."""


def section_faults(data: Data, raw: Mapping[str, Any]) -> list[Fault]:
    """Return what is wrong with the `data` block that no single setting's type tells."""
    faults = []
    written = raw.get("data") or {}
    for role in ("forget", "utility"):
        if isinstance(written, dict) and written.get(role) is None:
            faults.append(Fault(f"data.{role}", f"is missing. For instance {role}: {{source: miniature}}."))
    for role in ROLES:
        section: TextSource | None = getattr(data, role)
        if section is not None:
            faults += _setting_faults(section, f"data.{role}")
    if data.forget is not None:
        source = _source(data.forget, "forget")
        if source.prefix_tokens >= source.sequence_tokens:
            reason = (
                f"must be below sequence_tokens ({source.sequence_tokens}), so that a continuation is left; "
                f"got {source.prefix_tokens}."
            )
            faults.append(Fault("data.forget.prefix_tokens", reason))
    return faults


def _setting_faults(section: TextSource, path: str) -> list[Fault]:
    reads = SETTINGS[section.source]
    faults = [
        Fault(f"{path}.{name}", f"the source '{section.source}' does not read it{_reads(reads)}.")
        for name in ("path", "name", "split", "field")
        if getattr(section, name) is not None and name not in reads
    ]
    if "path" in reads and not section.path:
        what = (
            "the data set's id on the hub, or a local folder of it"
            if section.source == "hub"
            else "where the texts are"
        )
        faults.append(Fault(f"{path}.path", f"is missing: {what}."))
    return faults


def _reads(names: tuple[str, ...]) -> str:
    return f"; it reads {', '.join(names)}" if names else ""


def check_texts(data: Data, unsound: Collection[str], faults: list[Fault]) -> None:
    """Add faults for missing and broken files; where no tokenizer is at hand, or settings are faulty."""
    for role in ROLES:
        section: TextSource | None = getattr(data, role)
        if section is None or (section.path is None and "path" in SETTINGS[section.source]):
            continue
        source = _source(section, role)
        try:
            check_place(source) if role in unsound else check_rows(source, role)
        except DataError as error:
            faults.append(Fault(f"data.{role}", str(error)))


def read_texts(data: Data, tokenizer: PreTrainedTokenizerBase, vocabulary: int, faults: list[Fault]) -> Texts | None:
    """Return every source with the digest of its contents, or None with what is wrong added to `faults`.

    Retain and validation texts are cut where the longest forget sequence ends; unless the file says
    how many, there are as many retain texts as forget sequences.
    """
    found: dict[str, Source] = {}
    longest: dict[str, int] = {}

    def read(role: Role, source: Source, load: Callable[[Source], Any], tokens: Callable[[Any], int]) -> int:
        """Return how many rows there are; 0 if they cannot be read."""
        try:
            loaded = load(source)
        except DataError as error:
            faults.append(Fault(f"data.{role}", str(error)))
            return 0
        found[role], longest[role] = replace(source, digest=loaded.digest), tokens(loaded)
        return len(loaded)

    def width(loaded: Sequences) -> int:
        return loaded.tokens_NT.shape[1]

    forget = _source(data.forget, "forget")
    count = read("forget", forget, lambda it: load_forget(it, tokenizer, vocabulary), width)
    cut = longest.get("forget", forget.sequence_tokens)
    if data.retain is not None:
        retain = _source(data.retain, "retain", cut)
        retain = replace(retain, sequences=retain.sequences or count or None)
        read("retain", retain, lambda it: load_retain(it, tokenizer, vocabulary), width)
    utility = _source(data.utility, "utility")
    prompts = read("utility", utility, lambda it: load_utility(it, tokenizer), lambda _: utility.sequence_tokens)
    if data.validation is not None or prompts:
        validation = _source(_validation(data), "validation", cut)
        read("validation", validation, lambda it: load_validation(it, tokenizer, vocabulary), width)
    if found.keys() != {"forget", "utility", "validation"} | ({"retain"} if data.retain is not None else set()):
        return None
    return Texts(found["forget"], found.get("retain"), found["utility"], found["validation"], longest)


def _validation(data: Data) -> TextSource:
    """Return the validation section: held-out text that is watched while training, by default the utility source's."""
    if data.validation is not None:
        return data.validation
    assert data.utility is not None
    shared = data.utility.model_dump(include=set(TextSource.model_fields))
    # The miniature has enough, so that the number of prompts has no say in when training stops.
    is_miniature = data.utility.source == "miniature"
    return HeldSource(
        **shared, sequences=VALIDATION_TEXTS if is_miniature else min(VALIDATION_TEXTS, data.utility.prompts)
    )


def _source(section: TextSource | None, role: Role, cut: int = DEFAULT_TOKENS[1]) -> Source:
    """Return a section as a source without a digest.

    Args:
        section: What the file says.
        role: What the texts are for.
        cut: Where retain and validation texts end at the latest.
    """
    assert section is not None
    settings = {name: value for name, value in section.model_dump().items() if value is not None}
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
        settings["path"] = _absolute(section.path, section.source)
    return Source(**settings)


def _absolute(path: str, source: str) -> str:
    place = Path(path).expanduser()
    return path if source == "hub" and not place.is_dir() else str(place.resolve())
