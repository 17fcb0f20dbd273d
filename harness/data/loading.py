"""Texts of each role under a model's tokenizer, and comparisons of two tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from harness.base.digests import digest_of
from harness.base.messages import amount
from harness.contracts import Checkpoint, Sequences
from harness.data.rows import first_texts
from harness.data.sequences import LOADERS, Utility, in_both, load_stand_in, token_rows
from harness.data.sources import ROLES, TOKEN_SOURCES, Role
from harness.models.loading import load_tokenizer, vocabulary
from harness.models.tokenizing import count_lossy_texts
from harness.settings import Source, replace

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_UNSEEN = 64
"""Default of unseen texts for the original: MA is then known to 0.01."""
LEAST_STAND_IN = 2
"""One text has no standard error."""


def load_texts(source: Source, role: Role, model: Checkpoint) -> Sequences | Utility:
    """Return a role's texts, cut for a model.

    Raises:
        DataError: They cannot be read, or do not have the source's digest.
    """
    loaded: Sequences | Utility = LOADERS[role](source, load_tokenizer(model), vocabulary(model))
    return loaded


def lossy_sentences(sources: Mapping[str, Source], tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yield a sentence for each role with characters that the tokenizer lacks."""
    for role in ROLES:
        source = sources.get(role)
        if source is None or source.source in TOKEN_SOURCES:
            continue
        strings = [row.text for row in first_texts(source, role)]
        if lossy := count_lossy_texts(tokenizer, strings):
            yield (
                f"data.{role}: {lossy} of its first {amount(len(strings), 'text')} have characters that the model's "
                "vocabulary cannot spell. The model reads those texts without them."
            )


def counted_source(source: Source, loaded: Sequences | Utility) -> Source:
    """Return the source with digest, number and length [tokens] of its loaded texts."""
    longest = source.sequence_tokens if isinstance(loaded, Utility) else loaded.tokens_NT.shape[1]
    return replace(source, digest=loaded.digest, rows=len(loaded), longest=longest)


def stand_in_source(source: Source, validation: Sequences, forget: Sequences, model: Checkpoint) -> Source | None:
    """Return the validation texts of `source` cut as the forget set is; None if too few are long enough."""
    width = forget.tokens_NT.shape[1]
    count = min(int((validation.lengths_N >= width).sum()), len(forget), MOST_UNSEEN)
    if count < LEAST_STAND_IN or in_both(validation, forget):
        return None
    cut = replace(source, prefix_tokens=forget.prefix_tokens, sequence_tokens=width, sequences=count, digest="")
    return counted_source(cut, load_stand_in(cut, load_tokenizer(model), vocabulary(model)))


def reading_difference(model: Checkpoint, twin: Checkpoint, sources: Mapping[str, Source]) -> str:
    """Return the first place where two models read a text differently; '' if none."""
    if (twin.tokenizer, vocabulary(twin)) == (model.tokenizer, vocabulary(model)):
        return ""
    for role in ROLES:
        if role not in sources:
            continue
        source = sources[role]
        theirs = load_texts(replace(source, digest=""), role, twin)
        if theirs.digest != source.digest:
            ours = load_texts(source, role, model)
            our_rows, their_rows = token_rows(ours), token_rows(theirs)
            number = _first_difference(our_rows, their_rows)
            is_in_both = number < min(len(our_rows), len(their_rows))
            at = _first_difference(our_rows[number], their_rows[number]) if is_in_both else 0
            return f"{_named_text(role, ours, number)} becomes other tokens, from the {at + 1}. on"
        if source.source in TOKEN_SOURCES:  # Given ids are the same to every tokenizer; what they spell may not be.
            spelt: list[list[str]] = []
            for checkpoint in (model, twin):
                decode = load_tokenizer(checkpoint).batch_decode
                texts = decode(token_rows(theirs), skip_special_tokens=True, clean_up_tokenization_spaces=False)
                spelt.append(list(texts))
            if spelt[0] != spelt[1]:
                return f"the tokens of {_named_text(role, theirs, _first_difference(*spelt))} spell another text"
    return ""


def _first_difference(ours: Sequence[object], theirs: Sequence[object]) -> int:
    return next(number for number, pair in enumerate(zip_longest(ours, theirs)) if pair[0] != pair[1])


def _named_text(role: str, texts: Sequences | Utility, number: int) -> str:
    rows = token_rows(texts) if isinstance(texts, Sequences) else texts.prompts_NT.tolist()
    return f"text {number + 1} of data.{role}" + (f" (item {digest_of(rows[number])})" if number < len(rows) else "")
