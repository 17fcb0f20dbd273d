"""Conversion of token ids to text and back, and digests of texts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.base import hub
from harness.base.hub import Repository
from harness.contracts import Sequences
from harness.miniature import reasoning_rows
from harness.models.tokenizing import token_lists, unpadded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def decoded(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Sequence[int]], *, special: bool = False, clean: bool = False
) -> list[str]:
    """Return each row as text, with special tokens if `special`; see `cleaned` for `clean`."""
    texts = tokenizer.batch_decode(list(rows), skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    return [cleaned(text) for text in texts] if clean else list(texts)


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


def tokenized(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Return each text's token ids, with names of special tokens read as such: the inverse of `decoded(special=True)`.

    Use `token_lists` for texts from outside.
    """
    return token_lists(tokenizer, texts, starts=False, names=True)


def before_end(tokens: Sequence[int], end: int | Collection[int] | None) -> list[int]:
    """Return the tokens before the first of the ends of text; all of them where there is none.

    Example:
        >>> before_end([5, 6, 9, 0], (0, 9)), before_end([5, 6, 0, 7], 0), before_end([5, 0], None)
        ([5, 6], [5, 6], [5, 0])
    """
    ends = () if end is None else (end,) if isinstance(end, int) else end
    return list(takewhile(lambda token: token not in ends, tokens))


def retokenized(tokenizer: PreTrainedTokenizerBase, sequences: Sequences) -> Sequences:
    """Return the sequences decoded, cleaned and tokenised again, at their old lengths.

    Longer ones are cut. Shorter ones start with ends of text; without such a token they stay shorter.
    """
    end = tokenizer.eos_token_id
    texts = decoded(tokenizer, unpadded(sequences), special=True, clean=True)
    tokens_NT, lengths_N = torch.zeros_like(sequences.tokens_NT), sequences.lengths_N.clone()
    for index, read in enumerate(tokenized(tokenizer, texts)):
        length = int(sequences.lengths_N[index])
        padding = [] if end is None else [end] * (length - len(read))
        row = padding + read[:length]
        tokens_NT[index, : len(row)] = torch.tensor(row)
        lengths_N[index] = len(row)
    return replace(sequences, tokens_NT=tokens_NT, lengths_N=lengths_N, digest=f"{sequences.digest}, tokenised again")


def texts_key(*groups: Sequence[str]) -> str:
    """Return a sha256 of these texts, in their order and grouping."""
    return hashlib.sha256(json.dumps([list(group) for group in groups]).encode()).hexdigest()


def data_set_commit(id: str) -> str:
    """Return the commit of a hub data set: the cached one, else the newest.

    Raises:
        DataError: It is neither in the cache nor on the hub, or the hub does not answer.
    """
    return hub.commit(Repository(id, "dataset"))


def data_set_folder(id: str, configuration: str | None) -> Path:
    """Return the folder of a data set's files, from the cache or the hub.

    Raises:
        DataError: They are neither in the cache nor on the hub.
    """
    return hub.fetch_data_set(Repository(id, "dataset"), configuration)


def embedded_task(name: str) -> list[dict[str, Any]]:
    """Return a reasoning task on the embedded corpus, in the schema of the hub's data set."""
    return reasoning_rows(name)
