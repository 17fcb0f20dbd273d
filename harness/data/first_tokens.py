"""The first tokens of a text, from no more of it than decides them: a tokenizer takes 200 bytes for a character."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.models.tokenizing import token_lists

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CHARACTERS_PER_TOKEN = 64
"""Few tokens are longer, except runs of blanks: so much of a long text is read first."""
SPARE_CHARACTERS = 4096
SPARE_TOKENS = 256
"""Between the last token that is used and where the text was cut: a word cut in two is no more tokens than that."""
MOST_CHARACTERS = 2_000_000
"""Given to a tokenizer at once."""


def is_long(text: str, tokens: int) -> bool:
    """Return whether a text is read by `first_tokens`, rather than whole."""
    return len(text) > _beginning(tokens)


def first_tokens(tokenizer: PreTrainedTokenizerBase, text: str, tokens: int) -> list[int] | None:
    """Return the first `tokens` ids of a long text (all, where it has fewer), as reading it whole would give them.

    What follows a cut can change tokens before it. So two beginnings of different lengths, both cut at a blank where
    there is one and both with `SPARE_TOKENS` to spare, must agree.

    Returns:
        None if no beginning of up to `MOST_CHARACTERS` decides them.
    """
    length, shorter = _beginning(tokens), list[int]()
    while length < len(text):
        # About the first `length` characters, up to a blank if there is one in the second half of them.
        blank = max(text.rfind(character, length // 2, length) for character in " \n\t")
        [ids] = token_lists(tokenizer, [text[: blank if blank > 0 else length]])
        if len(shorter) >= tokens + SPARE_TOKENS and shorter[:tokens] == ids[:tokens]:
            return ids[:tokens]
        if length == MOST_CHARACTERS:
            return None
        length, shorter = min(2 * length, MOST_CHARACTERS), ids
    [ids] = token_lists(tokenizer, [text])
    return ids[:tokens]


def _beginning(tokens: int) -> int:
    return min(CHARACTERS_PER_TOKEN * tokens + SPARE_CHARACTERS, MOST_CHARACTERS)
