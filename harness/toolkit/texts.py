"""Token ids to text and back, as it is and as the code behind the published tables did it; and what names texts."""

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
    """Return each row as text, with its special tokens if `special`, and its spaces as they are unless `clean`."""
    texts = tokenizer.batch_decode(list(rows), skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    return [cleaned(text) for text in texts] if clean else list(texts)


def cleaned(text: str) -> str:
    """Return the text without the spaces that transformers before 5 took away whenever it decoded.

    Those before . ? ! and , and before n't 'm 's 've 're, and both around a single quotation mark. The
    published tables were made on such texts, for instance of Wikitext, which has a space before every comma.

    Source: transformers 4.33, the default `clean_up_tokenization_spaces`; the logs of dong-river/LLM_unlearning.

    Example:
        >>> cleaned("The game 's battle system , the BliTZ system .")
        "The game's battle system, the BliTZ system."
        >>> cleaned("two  , three : four")
        'two , three : four'
    """
    text = re.sub(r" (?=[.?!,])", "", text).replace(" ' ", "'")
    return re.sub(r" (?=n't|'m|'s|'ve|'re)", "", text)


def tokenized(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text, nothing added at either end; the names of special tokens are those tokens.

    So what `decoded` gave with `special` becomes the same ids again. Texts from outside are read by `token_lists`.
    """
    return token_lists(tokenizer, texts, starts=False, names=True)


def before_end(tokens: Sequence[int], end: int | Collection[int] | None) -> list[int]:
    """Return the tokens before the first `end`, or the first of several; all of them where there is none.

    Example:
        >>> before_end([5, 6, 0, 7, 0], 0), before_end([5, 6], 0), before_end([5, 0], None)
        ([5, 6], [5, 6], [5, 0])
        >>> before_end([5, 6, 9, 0], (0, 9))
        [5, 6]
    """
    ends = () if end is None else (end,) if isinstance(end, int) else end
    return list(takewhile(lambda token: token not in ends, tokens))


def retokenized(tokenizer: PreTrainedTokenizerBase, sequences: Sequences) -> Sequences:
    """Return the sequences decoded, cleaned and tokenised again, at the lengths that they had.

    What became longer is cut; what became shorter starts with as many ends of text (a tokenizer without
    one leaves it shorter). Most sequences come back as they were: what differs are cut words, tokens that
    hold a part of a character, and spaces that `cleaned` takes away.
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
    """Return a sha256 that names these texts, in their order and grouping.

    Token ids do not name a text: two tokenizers read them differently.

    Example:
        >>> texts_key(["a", "b"]) == texts_key(["a", "b"]), texts_key(["ab"]) == texts_key(["a", "b"])
        (True, False)
        >>> texts_key(["a"], ["b"]) == texts_key(["a", "b"])
        False
    """
    return hashlib.sha256(json.dumps([list(group) for group in groups]).encode()).hexdigest()


def data_set_commit(id: str) -> str:
    """Return the commit that a data set of the hub is pinned to: the one in the cache, else the hub's newest.

    Raises:
        DataError: It is neither in the cache nor on the hub, or the hub does not answer.
    """
    return hub.commit(Repository(id, "dataset"))


def data_set_folder(id: str, configuration: str | None) -> Path:
    """Return the folder of a data set's files, from the cache or, where it lacks them, from the hub.

    Raises:
        DataError: They are neither in the cache nor on the hub.
    """
    return hub.fetch_data_set(Repository(id, "dataset"), configuration)


def embedded_task(name: str) -> list[dict[str, Any]]:
    """Return the rows of a reasoning task on the embedded corpus, in the schema of the hub's data set of that name."""
    return reasoning_rows(name)
