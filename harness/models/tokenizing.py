"""Texts to token ids, the same everywhere: the model's own start of text goes before each, and nothing else is added.

docs/decisions/0011-reading-texts.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from harness.contracts import Sequences
from harness.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ANY_TEXT = "a"


def token_lists(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, starts: bool = True, names: bool = False
) -> list[list[int]]:
    """Return the token ids of whole texts, as every model here reads them.

    Before each stands what the tokenizer itself puts there (Llama's and Gemma's BOS; of GPT-2's nothing). Nothing
    stands after it, since a text that is cut would not have it. What a text spells is text: `</s>` in it ends nothing.

    Args:
        tokenizer: Of the model or the judge that reads them.
        texts: Any.
        starts: False for what follows another text: nothing is put before it.
        names: True where `definition: table` reads: there the name of a special token in a text is that token.

    Raises:
        ModelError: The tokenizer fails at them; its own message is withheld, since it may quote a text.
    """
    if not texts:
        return []
    try:
        start = start_tokens(tokenizer) if starts else []
        encoded = tokenizer(
            list(texts),
            add_special_tokens=False,
            split_special_tokens=not names,
            return_attention_mask=False,
            verbose=False,  # No warning about texts longer than the model's context, since they are cut.
        )
        return [[*start, *ids] for ids in encoded["input_ids"]]
    except Exception as error:
        raise ModelError(
            f"the tokenizer in {tokenizer.name_or_path} cannot read a text ({type(error).__name__}): it is damaged, or "
            "another model's."
        ) from None


def unpadded(sequences: Sequences) -> list[list[int]]:
    """Return each sequence's token ids, whole and without padding."""
    rows = zip(sequences.tokens_NT.tolist(), sequences.lengths_N.tolist(), strict=True)
    return [tokens[:length] for tokens, length in rows]


def true_continuations(sequences: Sequences) -> list[list[int]]:
    """Return what follows each sequence's prefix in the text itself."""
    return [row[sequences.prefix_tokens :] for row in unpadded(sequences)]


def start_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids that a tokenizer puts before every text of its own accord, such as BOS; none for most."""
    encoded = tokenizer(_ANY_TEXT, return_special_tokens_mask=True)
    added = takewhile(lambda pair: pair[1], zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True))
    return [token for token, _ in added]


def end_tokens(tokenizer: PreTrainedTokenizerBase, configured: Sequence[int]) -> tuple[int, ...]:
    """Return the ids at which a generated text ends, rising: the tokenizer's end of text, and those of a chat's turns.

    Args:
        tokenizer: Of the model.
        configured: The ends in the checkpoint's generation_config.json. Those that are no special token of the
            tokenizer are another tokenizer's.
    """
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    own = {tokenizer.eos_token_id} - {None}
    return tuple(sorted(own | (special & set(configured))))
