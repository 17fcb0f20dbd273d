"""Texts to token ids, the same everywhere: only the model's own start of text is added.

See docs/decisions/0011-reading-texts.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import pre_tokenizers

from harness.contracts import Checkpoint, Json, Sequences
from harness.errors import ModelError
from harness.models.loading import UNBOUNDED, configuration, load_tokenizer, positions
from harness.models.resolving import CAUSAL_ROLES, ensure_local, is_local

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LOGIT_SCALES = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Settings of Gemma 2, Granite and Cohere that change logits."""
DTYPES = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16", "F8_E4M3": "fp8", "F8_E5M2": "fp8"}


def token_lists(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, starts: bool = True, names: bool = False
) -> list[list[int]]:
    """Return the token ids of whole texts, as every model here reads them.

    The tokenizer's own start comes first (BOS of Llama and Gemma, nothing for GPT-2), and no end last. Names of special
    tokens are plain text.

    Args:
        tokenizer: Tokenizer of the model or judge.
        texts: Any texts.
        starts: False for the continuation of another text.
        names: Read names of special tokens as tokens, for `definition: table`.

    Raises:
        ModelError: The tokenizer fails; its message is withheld, since it may quote a text.
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
    """Return the number of texts with characters that the vocabulary lacks."""
    missing = _missing_bytes(tokenizer)
    if missing is not None:
        return sum(not missing.isdisjoint(_as_bytes(tokenizer, text)) for text in texts) if missing else 0
    unknown = tokenizer.unk_token_id
    return 0 if unknown is None else sum(unknown in ids for ids in token_lists(tokenizer, list(texts), starts=False))


def _missing_bytes(tokenizer: PreTrainedTokenizerBase) -> frozenset[str] | None:
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
    """Return each sequence's token ids without padding."""
    rows = zip(sequences.tokens_NT.tolist(), sequences.lengths_N.tolist(), strict=True)
    return [tokens[:length] for tokens, length in rows]


def true_continuations(sequences: Sequences) -> list[list[int]]:
    """Return the text's own tokens after each prefix."""
    return [row[sequences.prefix_tokens :] for row in unpadded(sequences)]


def start_tokens(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids that a tokenizer puts before every text, such as BOS."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    added = takewhile(lambda pair: pair[1], zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True))
    return [token for token, _ in added]


def text_start(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the ids before every text that the model reads, such as BOS.

    Raises:
        ModelError: The tokenizer cannot be loaded.
    """
    return tuple(start_tokens(load_tokenizer(checkpoint)))


def text_ends(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the ids at which a generated text ends, rising: the end of text, and those of a chat's turns.

    Ends in generation_config.json that are no special tokens belong to another tokenizer.

    Raises:
        ModelError: The tokenizer cannot be loaded.
    """
    tokenizer = load_tokenizer(checkpoint)
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    file = Path(ensure_local(checkpoint, weights=False).location) / "generation_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    configured = settings.get("eos_token_id")
    ends = set(configured if isinstance(configured, list) else [configured])
    return tuple(sorted({tokenizer.eos_token_id} - {None} | special & ends))


def _tokens_as_text(checkpoint: Checkpoint, ids: Iterable[int]) -> list[str]:
    tokens: list[str] = load_tokenizer(checkpoint).convert_ids_to_tokens(list(ids))
    return tokens


def stored_precision(checkpoint: Checkpoint) -> str:
    """Return the precision of most stored weights; they are loaded in fp32."""
    from safetensors import safe_open

    weights: Counter[str] = Counter()
    for file in Path(ensure_local(checkpoint).location).glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            for part in map(tensors.get_slice, tensors.keys()):
                weights[part.get_dtype()] += math.prod(part.get_shape())
    [(most, _)] = weights.most_common(1)
    return DTYPES.get(most, most)


def how_it_reads(checkpoint: Checkpoint) -> dict[str, Json]:
    """Return a model's way of reading texts, for plan, journal and report.

    Tokens of `starts_with` and `ends_at` are text, `context` is a number of tokens (None: no limit), `stored` the
    files' precision ('' if not local).
    """
    most = positions(checkpoint)
    return {
        "starts_with": _tokens_as_text(checkpoint, text_start(checkpoint)),
        "ends_at": _tokens_as_text(checkpoint, text_ends(checkpoint)),
        "context": None if most == UNBOUNDED else most,
        "stored": stored_precision(checkpoint) if is_local(checkpoint) else "",
    }


def judge_facts(judge: Checkpoint) -> list[str]:
    """Return what decides a causal judge's numbers besides its files: starts and scales."""
    config = configuration(judge)
    scaled = [name for name in LOGIT_SCALES if config.get(name) is not None]
    return [*(f"starts with {token}" for token in text_start(judge)), *(f"logits by {name}" for name in scaled)]


def judges_start_with(judges: Mapping[str, Checkpoint]) -> dict[str, Json]:
    """Return the tokens, as text, that causal judges put before every text, by role."""
    causal = {role: judge for role, judge in judges.items() if role in CAUSAL_ROLES}
    starts = {role: _tokens_as_text(judge, text_start(judge)) for role, judge in causal.items()}
    return {role: tokens for role, tokens in starts.items() if tokens}
