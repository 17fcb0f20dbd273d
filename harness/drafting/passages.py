"""Passages of a corpus that a model recites, as a forget set."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.progress import track
from torch.nn.utils.rnn import pad_sequence

from harness.analysis.recitation import MIN_TOKENS, TOKENS
from harness.base.files import digest_of, write_whole
from harness.base.messages import amount
from harness.contracts import Checkpoint, Sequences
from harness.data import overlap, sources
from harness.drafting.given_texts import Given, named_source
from harness.errors import DataError, TrialError
from harness.models import loading, resolving, tokenizing
from harness.settings import Source
from harness.toolkit import device, scoring

PASSAGE_TOKENS = 100
"""Default length: 50 tokens are given, and 50 must follow."""
PASSAGES_AT_ONCE = 32


class Passage(NamedTuple):
    """A part of a text."""

    where: str
    """`line 12`."""
    place: tuple[int, int]
    """Number of its text, and its position there in halves of a passage."""
    text: str
    ids: tuple[int, ...]
    recited: int = 0
    """Right tokens after the prefix, before the first mistake."""


def write_recited(given: Given, file: Path) -> str:
    """Write the passages that a model recites, and others next to them; return a sentence about both.

    A passage is recited if each of the 50 tokens after the prefix, or all of a shorter rest, is the model's first
    choice. Only the first of overlapping or nearly equal passages is taken.

    Raises:
        DataError: The corpus has no passage that is long enough, or a file exists.
        TrialError: The model recites none.
    """
    rest = file.with_name(f"{file.stem}.others{file.suffix}")
    taken = [path for path in (file, rest) if path.exists()]
    if taken or file.suffix != ".jsonl":
        raise DataError(f"{(taken or [file])[0]}: nothing is overwritten: give a new name that ends with .jsonl.")
    model = resolving.resolve_original(given.model, given.tokenizer)
    loading.check_model(model)
    loading.check_tokenizer(model)
    length = min(given.sequence_tokens or PASSAGE_TOKENS, loading.positions(model))
    prefix = given.prefix_tokens or max(1, min(length // 2, length - MIN_TOKENS))
    rows = list(sources.texts(Source(**named_source(given.texts, given.field)), "retain"))
    unread = [f"{row.where} {row.problem}" for row in rows if row.problem]
    not_read = f" {amount(len(unread), 'text')} could not be read ({unread[0]})." if unread else ""
    passages = list(_passages(rows, model, length, prefix))
    if not passages:
        least = f"{prefix + MIN_TOKENS} tokens (a prefix of {prefix}, and {MIN_TOKENS} that follow)"
        raise DataError(f"{given.texts} has no text of at least {least}: set --prefix-tokens lower.{not_read}")
    measured = _measured(model, passages, prefix)
    recited = _distinct([each for each in measured if each.recited >= min(TOKENS, len(each.ids) - prefix)])
    if not recited:
        longest = max(measured, key=lambda passage: passage.recited)
        most = f"the longest recited part has {amount(longest.recited, 'token')} ({longest.where})"
        raise TrialError(f"{given.model} recites none of {amount(len(passages), 'passage')} of {given.texts}: {most}.")
    touched = {(number, at + step) for number, at in (each.place for each in recited) for step in (-1, 0, 1)}
    unknown = [each for each in measured if each.place not in touched and each.recited < MIN_TOKENS]
    others = _distinct([*recited, *unknown])[len(recited) :]
    for path, group in ((file, recited), (rest, others)):
        lines = [{"text": each.text, "from": each.where, "recited_tokens": each.recited} for each in group]
        write_whole(path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), "passages")
    clause = f"{file} has {amount(len(recited), 'passage')} of {given.texts} that {given.model} recites"
    return f"{clause}; {rest} has {len(others)} others: candidates for unseen texts, if it never read them.{not_read}"


def _passages(rows: Sequence[sources.TextRow], model: Checkpoint, length: int, prefix: int) -> Iterator[Passage]:
    tokenizer, half = loading.load_tokenizer(model), length // 2
    for number, row in enumerate(row for row in rows if not row.problem):
        (ids,) = [list(row.ids)] if row.ids else tokenizing.token_lists(tokenizer, [row.text], starts=False)
        for at, start in enumerate(range(0, max(1, len(ids) - half), half)):
            (text,) = tokenizing.decoded(tokenizer, [ids[start : start + length]])
            # As a sweep will read it: a text that begins within a word has other tokens.
            (tokens,) = tokenizing.token_lists(tokenizer, [text])
            if len(tokens) >= prefix + MIN_TOKENS:
                yield Passage(row.where, (number, at), text, tuple(tokens[:length]))


def _measured(model: Checkpoint, passages: Sequence[Passage], prefix: int) -> list[Passage]:
    loaded, measured = loading.load_model(model).to(device.device_for(1)), []
    for start in track(range(0, len(passages), PASSAGES_AT_ONCE), description="passages", transient=True):
        batch = passages[start : start + PASSAGES_AT_ONCE]
        rows = [torch.tensor(passage.ids) for passage in batch]
        texts = Sequences(pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows]), prefix, "")
        recited = scoring.recited_lengths(texts, scoring.score_tokens(loaded, texts)[0])
        measured += [passage._replace(recited=int(tokens)) for passage, tokens in zip(batch, recited, strict=True)]
    return measured


def _distinct(passages: Sequence[Passage]) -> list[Passage]:
    rows = [passage.ids for passage in passages]
    groups, first_by_group = overlap.near_duplicate_groups(rows, [digest_of(row) for row in rows]), dict[int, Passage]()
    places = set[tuple[int, int]]()
    for group, passage in zip(groups, passages, strict=True):
        number, at = passage.place
        if group not in first_by_group and (number, at - 1) not in places:
            first_by_group[group] = passage
            places.add(passage.place)
    return list(first_by_group.values())
