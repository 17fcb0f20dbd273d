"""Texts to token ids, the same everywhere: the model's own start of text goes before each, and nothing else is added.

docs/decisions/0011-reading-texts.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from tokenizers import pre_tokenizers

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


def count_lossy_texts(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> int:
    """Return how many texts have characters that the vocabulary cannot spell, so that they vanish or become unknown.

    Example:
        >>> from transformers import AutoTokenizer
        >>> from harness.miniature.checkpoints import tokenizer_folder
        >>> count_lossy_texts(AutoTokenizer.from_pretrained(tokenizer_folder()), ["a", "naïve 🙂"])
        0
    """
    missing = _missing_bytes(tokenizer)
    if missing is not None:
        return sum(not missing.isdisjoint(_as_bytes(tokenizer, text)) for text in texts) if missing else 0
    unknown = tokenizer.unk_token_id
    return 0 if unknown is None else sum(unknown in ids for ids in token_lists(tokenizer, list(texts), starts=False))


def _missing_bytes(tokenizer: PreTrainedTokenizerBase) -> frozenset[str] | None:
    """Return the bytes that a byte-level vocabulary lacks, in its own alphabet; None where it is of another kind."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or "ByteLevel" not in str(backend.pre_tokenizer):
        return None
    vocabulary: dict[str, int] = backend.get_vocab()
    return frozenset(pre_tokenizers.ByteLevel.alphabet()).difference(vocabulary)


def _as_bytes(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    normalizer = tokenizer.backend_tokenizer.normalizer
    normalized = text if normalizer is None else normalizer.normalize_str(text)
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    return "".join(part for part, _ in spell(normalized))


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
