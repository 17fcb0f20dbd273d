"""The `data` block of a sweep file, and the source of each section."""

from collections.abc import Mapping

from harness.base.files import parse_path
from harness.data.sources import Role
from harness.miniature import UNSEEN_RECORDS
from harness.settings import Data, ForgetSource, HeldSource, HoldoutSource, Source, TextSource, replace

MINIATURE_TOKENS = (64, 128)
"""Prefix and sequence of the miniature, whose models memorised only 128 tokens."""
DEFAULT_TOKENS = (100, 200)
"""Prefix and sequence of the Extraction Challenge."""
VALIDATION_TEXTS = 64


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
    # The miniature has enough texts: the number of prompts does not decide when training stops.
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
    if section.where is not None:
        settings["where"] = tuple(sorted(section.where.items()))
    if section.path is not None:
        folder = parse_path(section.path)
        settings["path"] = section.path if section.source == "hub" and not folder.is_dir() else str(folder.resolve())
    source = Source(**settings)
    other = section.not_memorized if isinstance(section, ForgetSource) else None
    return source if other is None else replace(source, not_memorized=section_source(other, "holdout", source))
