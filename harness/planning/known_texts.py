"""What a plan knows of texts that were read before: kept until a file behind them changes, or the code that reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.base.digests import known_digest
from harness.base.user_cache import UserCache, digest_of_files, user_cache_folder
from harness.contracts import Checkpoint
from harness.data.paths import challenge_files
from harness.data.sections import Data, TextSource, section_source
from harness.data.sources import ROLES
from harness.errors import DataError
from harness.miniature.checkpoints import WEIGHTS
from harness.miniature.texts import FILE
from harness.models.configurations import deciding_versions, read_before_weights
from harness.models.loading import vocabulary
from harness.models.resolving import ensure_local
from harness.specs import Source

MOST_BYTES = 1 << 28
"""Of the files behind a sweep's texts: of larger ones a plan reads the beginning, and not all for a digest."""
_HARNESS = Path(__file__).resolve().parents[1]
_DECIDING = ("base", "data", "miniature", "planning")
"""Rooms whose code decides what is read of texts, besides that of the models."""


@dataclass(frozen=True)
class KnownTexts:
    """Sources by role, as one tokenizer cuts them, and sentences about what roles share."""

    by_role: dict[str, Source]
    sentences: tuple[str, ...]


class ReadTexts:
    """What one tokenizer makes of a sweep's texts, if that was found sound before.

    Args:
        data: The sweep's block.
        model: Whose tokenizer reads them.
        settings: What else decides what they are.
    """

    def __init__(self, data: Data, model: Checkpoint, settings: Any) -> None:
        self._kept = UserCache(user_cache_folder("texts"))
        self._key = _key(data, model, settings)

    def known(self) -> KnownTexts | None:
        """Return them; None: they must be read."""
        kept = None if self._key is None else self._kept.find(self._key)
        if kept is None:
            return None
        by_role = {role: Source.from_json(source) for role, source in kept["by_role"].items()}
        return KnownTexts(by_role, tuple(kept["sentences"]))

    def keep(self, texts: KnownTexts) -> None:
        """Keep what was found sound: counts and digests, and no text."""
        if self._key is not None:
            self._kept.put(self._key, asdict(texts))


def _key(data: Data, model: Checkpoint, settings: Any) -> list[Any] | None:
    """Return all that decides what is read; None where that is not in a few files of this machine."""
    try:
        files = [file for source in _sources(data) for file in _files_behind(source)]
        if sum(file.stat().st_size for file in files) > MOST_BYTES:
            return None
        digests = [[str(file.resolve()), known_digest(file)] for file in files]
        tokenizer = read_before_weights(Path(ensure_local(model, weights=False).tokenizer))
    except (OSError, DataError):  # Whoever reads them says what is wrong.
        return None
    code = digest_of_files(tuple(file for room in _DECIDING for file in sorted((_HARNESS / room).rglob("*.py"))))
    return [data.model_dump(mode="json"), settings, vocabulary(model), digests, tokenizer, code, deciding_versions()]


def _sources(data: Data) -> Iterator[Source]:
    forget = section_source(data.forget, "forget")
    if forget.not_memorized is not None:
        yield forget.not_memorized
    for role in ROLES:
        section: TextSource | None = getattr(data, role)
        if section is not None:
            yield section_source(section, role, forget)


def _files_behind(source: Source) -> list[Path]:
    """Return the files that a source's texts come from.

    Raises:
        DataError: They are missing, or of a hub's data set, which is read by a package of its own.
    """
    if source.source == "miniature":
        return [WEIGHTS / FILE]
    if source.source == "extraction_challenge":
        return challenge_files(source.path)
    if source.source == "hub" or source.path is None:
        raise DataError("a data set has no files that are known here.")
    return [Path(source.path)]
