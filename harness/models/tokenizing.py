"""Texts to token ids and back. Only the model's own start of text is added.

See docs/decisions/0011-reading-texts.md.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import torch

from harness.base import hub
from harness.contracts import Checkpoint, Json, Sequences, Tokenizer
from harness.errors import ModelError
from harness.models import loading, resolving

LOGIT_SCALES = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Settings of Gemma 2, Granite, Cohere."""


def token_lists(
    tokenizer: Tokenizer, texts: Sequence[str], *, starts: bool = True, names: bool = False
) -> list[list[int]]:
    """Return the token ids of whole texts, as every model here reads them.

    The tokenizer's own start comes first (BOS of Llama and Gemma, nothing for GPT-2; none if not `starts`), and no end
    last. Names of special tokens are plain text unless `names`, for `definition: table`.

    Raises:
        ModelError: The tokenizer fails; its message is withheld, since it may quote a text.
    """
    if not texts:
        return []
    # No warning about texts longer than the model's context, since they are cut.
    options = {"add_special_tokens": False, "split_special_tokens": not names, "verbose": False}
    try:
        start = start_tokens(tokenizer) if starts else []
        return [[*start, *ids] for ids in tokenizer(list(texts), **options)["input_ids"]]
    except Exception as error:
        fault = f"cannot read a text ({type(error).__name__}): it is damaged, or another model's."
        raise ModelError(f"the tokenizer in {tokenizer.name_or_path} {fault}") from None


def adds_space(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer begins every text with a space, as Llama 2's does."""
    newline, letter, both = token_lists(tokenizer, ["\n", "a", "\na"], starts=False)
    return both != newline + letter and both[: len(newline)] == newline


def continuation_ids(tokenizer: Tokenizer, texts: Sequence[str], *, names: bool = False) -> list[list[int]]:
    """Return the token ids of texts that continue others, without a space that the tokenizer adds."""
    own_rows = token_lists(tokenizer, texts, starts=False, names=names)
    if not adds_space(tokenizer):
        return own_rows
    [begin] = token_lists(tokenizer, ["\n"], starts=False)
    rows = token_lists(tokenizer, [f"\n{text}" for text in texts], starts=False, names=names)
    # A text that begins with line breaks may become one token with the line break before it.
    return [row[len(begin) :] if row[: len(begin)] == begin else own for row, own in zip(rows, own_rows, strict=True)]


def unpadded(sequences: Sequences) -> list[list[int]]:
    """Return each sequence's token ids without padding."""
    rows = zip(sequences.tokens_NT.tolist(), sequences.lengths_N.tolist(), strict=True)
    return [tokens[:length] for tokens, length in rows]


def true_continuations(sequences: Sequences) -> list[list[int]]:
    """Return the text's own tokens after each prefix."""
    return [row[sequences.prefix_tokens :] for row in unpadded(sequences)]


def start_tokens(tokenizer: Tokenizer) -> list[int]:
    """Return the ids that a tokenizer puts before every text, such as BOS."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    added = takewhile(lambda pair: pair[1], zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True))
    return [token for token, _ in added]


def text_ends(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Return the ids at which a generated text ends, rising: the end of text, and those of a chat's turns.

    Ends in generation_config.json that are no special tokens belong to another tokenizer.
    """
    tokenizer = loading.load_tokenizer(checkpoint)
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    file = Path(resolving.ensure_local(checkpoint, weights=False).location) / "generation_config.json"
    configured = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.is_file() else None
    ends = set(configured if isinstance(configured, list) else [configured])
    return tuple(sorted({tokenizer.eos_token_id} - {None} | special & ends))


def _start_as_text(checkpoint: Checkpoint) -> list[str]:
    tokenizer = loading.load_tokenizer(checkpoint)
    return list(tokenizer.convert_ids_to_tokens(start_tokens(tokenizer)))


def describe_reading(checkpoint: Checkpoint) -> dict[str, Json]:
    """Return a model's way of reading texts, for plan, journal and report; a `context` of None has no limit."""
    most, config = loading.positions(checkpoint), loading.configuration(checkpoint)
    return {
        "starts_with": _start_as_text(checkpoint),
        "ends_at": loading.load_tokenizer(checkpoint).convert_ids_to_tokens(list(text_ends(checkpoint))),
        "context": None if most == loading.UNBOUNDED else most,
        "stored": config.get("dtype") or config.get("torch_dtype") or "",
    }


def judge_facts(judge: Checkpoint) -> list[str]:
    """Return the facts beyond its files that decide a causal judge's numbers."""
    config, start = loading.configuration(judge), start_tokens(loading.load_tokenizer(judge))
    scaled = [f"logits by {name}" for name in LOGIT_SCALES if config.get(name) is not None]
    spaced = ["continues texts without a space"] if adds_space(loading.load_tokenizer(judge)) else []
    return [*(f"starts with {token}" for token in start), *spaced, *scaled]


def judges_start_with(judges: Mapping[str, Checkpoint]) -> dict[str, Json]:
    """Return the tokens that causal judges put before every text, by role."""
    causal = {role: judge for role, judge in judges.items() if role in resolving.CAUSAL_ROLES}
    starts = {role: _start_as_text(judge) for role, judge in causal.items()}
    return {role: tokens for role, tokens in starts.items() if tokens}


def decoded(
    tokenizer: Tokenizer, rows: Sequence[Sequence[int]], *, special: bool = False, clean: bool = False
) -> list[str]:
    """Return each row as text, with special tokens if `special`; see `cleaned` for `clean`."""
    texts = tokenizer.batch_decode(list(rows), skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    return [cleaned(text) for text in texts] if clean else list(texts)


def continuation_texts(
    tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]
) -> list[str]:
    """Return rows as text that continues their prompts, a space at its beginning included."""
    wholes = [[*prompt, *row] for prompt, row in zip(prompts, rows, strict=True)]
    parts = zip(*(decoded(tokenizer, each) for each in (wholes, prompts, rows)), strict=True)
    # A prompt that ends within a character is no beginning of the whole.
    return [whole[len(prompt) :] if whole.startswith(prompt) else text for whole, prompt, text in parts]


def cleaned(text: str) -> str:
    """Return the text without the spaces that transformers before 5 removed whenever it decoded.

    They stand before . ? ! and , and before n't 'm 's 've 're, and around a single quotation mark. The published tables
    were made on such texts.

    Source: transformers 4.33, the default `clean_up_tokenization_spaces`; the logs of dong-river/LLM_unlearning.

    Example:
        >>> cleaned("The game 's battle system , the BliTZ system .")
        "The game's battle system, the BliTZ system."
    """
    text = re.sub(r" (?=[.?!,])", "", text).replace(" ' ", "'")
    return re.sub(r" (?=n't|'m|'s|'ve|'re)", "", text)


def tokenized(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of `decoded(special=True)`; use `token_lists` for texts from outside."""
    return token_lists(tokenizer, texts, starts=False, names=True)


def before_end(tokens: Sequence[int], end: int | Collection[int] | None) -> list[int]:
    """Return the tokens before the first of the ends of text; all of them where there is none.

    Example:
        >>> before_end([5, 6, 9, 0], (0, 9)), before_end([5, 6, 0, 7], 0), before_end([5, 0], None)
        ([5, 6], [5, 6], [5, 0])
    """
    ends = () if end is None else (end,) if isinstance(end, int) else end
    return list(takewhile(lambda token: token not in ends, tokens))


def retokenized(tokenizer: Tokenizer, sequences: Sequences) -> Sequences:
    """Return the sequences decoded, cleaned and tokenised again, at their old lengths.

    Shorter ones start with ends of text; without such a token they stay shorter.
    """
    end = tokenizer.eos_token_id
    texts = decoded(tokenizer, unpadded(sequences), special=True, clean=True)
    tokens_NT, lengths_N = torch.zeros_like(sequences.tokens_NT), sequences.lengths_N.clone()
    for index, ids in enumerate(tokenized(tokenizer, texts)):
        length = int(sequences.lengths_N[index])
        row = ([] if end is None else [end] * (length - len(ids))) + ids[:length]
        tokens_NT[index, : len(row)] = torch.tensor(row)
        lengths_N[index] = len(row)
    return replace(sequences, tokens_NT=tokens_NT, lengths_N=lengths_N, digest=f"{sequences.digest}, tokenised again")


def texts_key(*groups: Sequence[str]) -> str:
    """Return a sha256 of these texts, in their order and grouping."""
    return hashlib.sha256(json.dumps([list(group) for group in groups]).encode()).hexdigest()


def data_set_commit(id: str) -> str:
    """Return the commit of a hub data set: the cached one, else the newest."""
    return hub.commit(hub.Repository(id, "dataset"))


def data_set_folder(id: str, configuration: str | None) -> Path:
    """Return the folder of a data set's files, from the cache or the hub."""
    return hub.fetch_data_set(hub.Repository(id, "dataset"), configuration)
