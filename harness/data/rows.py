"""A source's rows as token ids, cut and checked against the vocabulary.

Every row of a forget set and its holdout must be usable, or an error names it. Other roles take the first texts that
are long enough.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np

from harness.base.messages import amount
from harness.contracts import Tokenizer
from harness.data.sources import TEXT_FILES, TOKEN_SOURCES, WHOLE_ROLES, Role, TextRow, source_label, texts, token_ids
from harness.errors import DataError
from harness.models.tokenizing import token_lists
from harness.settings import Source

NAMED_ROWS = 5
"""In one message."""
MAX_BAD_ROWS = 1000
"""Unusable rows after which reading stops."""
TEXTS_AT_ONCE = 128

TokenRows = list[np.ndarray]


def read_rows(
    source: Source, role: Role, tokenizer: Tokenizer, vocabulary: int, least: int, cut: int | None = None
) -> TokenRows:
    """Return the used rows, cut, each of at least `least` known token ids."""
    cut = cut or source.sequence_tokens
    if source.source in TOKEN_SOURCES:
        rows = _from_array(source, vocabulary, least, cut)
    else:
        rows = _from_texts(source, role, tokenizer, vocabulary, least, cut)
    count = source.sequences or 1
    if len(rows) < count:
        where = f" from row {source.start} on" if source.start else ""
        kind = "sequences" if role in WHOLE_ROLES else f"texts of at least {least} tokens"
        supply = f"{source_label(source, role)}: {len(rows)} {kind} are there{where}"
        raise DataError(f"{supply}, and {count} are needed. Give more texts, or ask for fewer.")
    return rows


def first_unread(source: Source, role: Role, tokenizer: Tokenizer) -> int:
    """Return the index of the first row after the used utility texts."""
    least, count = source.sequence_tokens, source.sequences or 1
    if source.source in TOKEN_SOURCES:
        return source.start + count
    number, used = source.start, 0
    for row, ids in _tokenized(texts(source, role), tokenizer, source):
        if used == count:
            break
        number += 1
        used += not row.problem and len(ids) >= least
    return number


def text_places(source: Source, role: Role) -> list[str]:
    """Return the place of each used text in its file, `line 12` or `row 11`, for a role that needs every row."""
    if source.source in TOKEN_SOURCES:
        places = [f"row {source.start + number}" for number in used_rows(source, len(token_ids(source)))]
    else:
        places = [row.where for row in _used(source, role)]
    return places if source.not_memorized is None else [*places, *text_places(source.not_memorized, "holdout")]


def check_rows(source: Source, role: Role) -> None:
    """Check a local source without a tokenizer."""
    if source.not_memorized is not None:
        check_rows(source.not_memorized, "holdout")
    if source.source in TOKEN_SOURCES:
        token_ids(source)
    elif source.source in TEXT_FILES:
        # Refuses a file that is not there.
        problems = (f"{row.where} {row.problem}" for row in _used(source, role) if row.problem)
        if role in WHOLE_ROLES and (bad := list(islice(problems, MAX_BAD_ROWS))):
            raise _refused_rows(source, role, bad, source.prefix_tokens + 1)


def used_rows(source: Source, available: int) -> np.ndarray:
    """Return the used rows after `start`, rising: the first ones, or a random sample.

    Example:
        >>> used_rows(Source(source="npy", sequences=3, sample_seed=0), 9)
        array([2, 4, 5])
    """
    numbers = np.arange(available)
    if source.sample_seed is not None:
        numbers = np.random.default_rng(source.sample_seed).permutation(available)
    return np.sort(numbers[: source.sequences])


def _used(source: Source, role: Role) -> Iterator[TextRow]:
    if source.sample_seed is None:
        return islice(texts(source, role), source.sequences)
    numbers = {int(number) for number in used_rows(source, sum(1 for _ in texts(source, role)))}
    return (row for number, row in enumerate(texts(source, role)) if number in numbers)


def _from_array(source: Source, vocabulary: int, least: int, cut: int) -> TokenRows:
    whole = token_ids(source)
    numbers = used_rows(source, len(whole))
    array = whole[numbers, :cut]
    if array.shape[1] < least:
        needs = f"at least {least} are needed. Lower the number of prefix or prompt tokens."
        raise DataError(f"{source.path} has rows of {array.shape[1]} tokens, and {needs}")
    bad = np.flatnonzero(((array < 0) | (array >= vocabulary)).any(axis=1))
    if len(bad):
        bad_rows = f"{amount(len(bad), 'row')} with token ids outside the model's vocabulary (0 to {vocabulary - 1})"
        first = f"the first is row {source.start + numbers[bad[0]]}. Is the array for another tokenizer?"
        raise DataError(f"{source.path} has {bad_rows}, {first}")
    return list(array.astype(np.int64))


def _from_texts(source: Source, role: Role, tokenizer: Tokenizer, vocabulary: int, least: int, cut: int) -> TokenRows:
    strict, usable, bad = role in WHOLE_ROLES, TokenRows(), list[str]()
    for row, ids in _tokenized(_used(source, role) if strict else texts(source, role), tokenizer, source):
        if row.problem:
            bad.append(f"{row.where} {row.problem}")
        elif len(ids) < least:
            if strict:
                bad.append(f"{row.where} has {len(ids)} of at least {least} tokens")
        elif unknown := [id for id in ids[:cut] if not 0 <= id < vocabulary]:
            bad.append(f"{row.where} has the token id {unknown[0]}, and the model knows 0 to {vocabulary - 1}")
        else:
            usable.append(np.asarray(ids[:cut], dtype=np.int64))
        if len(bad) >= MAX_BAD_ROWS or (not strict and len(usable) == source.sequences):
            break
    if bad:
        raise _refused_rows(source, role, bad, least)
    return usable


def _tokenized(
    rows: Iterator[TextRow], tokenizer: Tokenizer, source: Source
) -> Iterator[tuple[TextRow, Sequence[int]]]:
    while batch := list(islice(rows, min(TEXTS_AT_ONCE, source.sequences or TEXTS_AT_ONCE))):
        encoded = iter(_token_ids(tokenizer, tuple(row.text for row in batch if not row.problem and not row.ids)))
        for row in batch:
            yield row, row.ids or (() if row.problem else next(encoded))


@lru_cache(maxsize=64)  # A plan and each of its trials in this process read the same texts.
def _token_ids(tokenizer: Tokenizer, batch_texts: tuple[str, ...]) -> tuple[list[int], ...]:
    return tuple(token_lists(tokenizer, batch_texts))


def _refused_rows(source: Source, role: Role, bad: Sequence[str], least: int) -> DataError:
    more = f"; and {len(bad) - NAMED_ROWS} more" if len(bad) > NAMED_ROWS else ""
    rule = f'Each line must be {{"{source.field}": ...}}' if source.source == "jsonl" else "Each row must be text"
    tokens = f" of at least {amount(least, 'token')}" if role in WHOLE_ROLES else ""
    or_more = " or more" if len(bad) >= MAX_BAD_ROWS else ""
    counted = f"{source_label(source, role)} has {amount(len(bad), 'unusable row')}{or_more}"
    remedy = "repair or remove the others, or name another `field`."
    return DataError(f"{counted}: {'; '.join(bad[:NAMED_ROWS])}{more}. {rule}{tokens}: {remedy}")
