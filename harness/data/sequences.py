"""Rows of a source as token ids, and as tensors for each role of texts.

Every row of a forget set and its holdout must be usable, or an error names it. Other roles take the first texts that
are long enough.

Tensor letters: N sequences, T tokens.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice, zip_longest
from typing import Any, Literal

import numpy as np
import torch

from harness.base.files import digest_of
from harness.base.messages import amount
from harness.contracts import Checkpoint, Sequences, Tokenizer
from harness.data import overlap, sources
from harness.data.sources import ROLES, TOKEN_SOURCES, Role, TextRow, source_label
from harness.errors import DataError
from harness.models import resolving, tokenizing
from harness.models.loading import load_tokenizer, vocabulary
from harness.settings import Source, replace

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
        kind = "sequences" if role in sources.WHOLE_ROLES else f"texts of at least {least} tokens"
        supply = f"{source_label(source, role)}: {len(rows)} {kind} are there{where}"
        raise DataError(f"{supply}, and {count} are needed. Give more texts, or ask for fewer.")
    return rows


def first_unread(source: Source, role: Role, tokenizer: Tokenizer) -> int:
    """Return the index of the first row after the used utility texts."""
    least, count = source.sequence_tokens, source.sequences or 1
    if source.source in TOKEN_SOURCES:
        return source.start + count
    number, used = source.start, 0
    for row, ids in _tokenized(sources.texts(source, role), tokenizer, source):
        if used == count:
            break
        number += 1
        used += not row.problem and len(ids) >= least
    return number


def text_places(source: Source, role: Role) -> list[str]:
    """Return the place of each used text in its file, `line 12` or `row 11`, for a role that needs every row."""
    if source.source in TOKEN_SOURCES:
        places = [f"row {source.start + number}" for number in used_rows(source, len(sources.token_ids(source)))]
    else:
        places = [row.where for row in _used(source, role)]
    return places if source.not_memorized is None else [*places, *text_places(source.not_memorized, "holdout")]


def check_rows(source: Source, role: Role) -> None:
    """Check a local source without a tokenizer."""
    if source.not_memorized is not None:
        check_rows(source.not_memorized, "holdout")
    if source.source in TOKEN_SOURCES:
        sources.token_ids(source)
    elif source.source in sources.TEXT_FILES:
        # Refuses a file that is not there.
        problems = (f"{row.where} {row.problem}" for row in _used(source, role) if row.problem)
        if role in sources.WHOLE_ROLES and (bad := list(islice(problems, MAX_BAD_ROWS))):
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
        return islice(sources.texts(source, role), source.sequences)
    numbers = {int(number) for number in used_rows(source, sum(1 for _ in sources.texts(source, role)))}
    return (row for number, row in enumerate(sources.texts(source, role)) if number in numbers)


def _from_array(source: Source, vocabulary: int, least: int, cut: int) -> TokenRows:
    whole = sources.token_ids(source)
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
    strict, usable, bad = role in sources.WHOLE_ROLES, TokenRows(), list[str]()
    for row, ids in _tokenized(_used(source, role) if strict else sources.texts(source, role), tokenizer, source):
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
    return tuple(tokenizing.token_lists(tokenizer, batch_texts))


def _refused_rows(source: Source, role: Role, bad: Sequence[str], least: int) -> DataError:
    more = f"; and {len(bad) - NAMED_ROWS} more" if len(bad) > NAMED_ROWS else ""
    rule = f'Each line must be {{"{source.field}": ...}}' if source.source == "jsonl" else "Each row must be text"
    tokens = f" of at least {amount(least, 'token')}" if role in sources.WHOLE_ROLES else ""
    or_more = " or more" if len(bad) >= MAX_BAD_ROWS else ""
    counted = f"{source_label(source, role)} has {amount(len(bad), 'unusable row')}{or_more}"
    remedy = "repair or remove the others, or name another `field`."
    return DataError(f"{counted}: {'; '.join(bad[:NAMED_ROWS])}{more}. {rule}{tokens}: {remedy}")


MIN_TOKENS = 32
"""Shorter retain and validation texts (headings, stubs) are skipped, unless the texts to forget are short too."""


def least_tokens(cut: int) -> int:
    """Return the fewest tokens of a retain or validation text that is cut to so many."""
    return MIN_TOKENS if cut >= MIN_TOKENS else -(-cut // 2)


@dataclass(frozen=True)
class Utility:
    """Human texts, each cut into a prompt and its continuation."""

    prompts_NT: torch.Tensor
    """int64, without padding."""
    references_NT: torch.Tensor
    """int64, N by tokens to generate, without padding."""
    prompt_texts: tuple[str, ...]
    reference_texts: tuple[str, ...]
    digest: str
    """sha256 of the tokens and prompt lengths."""

    def __len__(self) -> int:
        return len(self.prompts_NT)


def load_forget(source: Source, tokenizer: Tokenizer, vocabulary: int) -> Sequences:
    """Return the forget set: rows from `start` on, then those that are not memorised; its digest is checked."""
    least, other = source.prefix_tokens + 1, source.not_memorized
    rows = read_rows(source, "forget", tokenizer, vocabulary, least)
    if other is not None:
        added = read_rows(other, "holdout", tokenizer, vocabulary, least)
        row_bytes = {row.tobytes() for row in rows}
        if shared := sum(row.tobytes() in row_bytes for row in added):
            remedy = "Name texts that the model does not recite (start skips rows)."
            fault = f"{shared} of its {len(added)} sequences are among the forget set's others too"
            raise DataError(f"not_memorized: {fault}. {remedy}")
        rows += added
    whole = _packed(rows, source.prefix_tokens, replace(source, digest=""), "forget")
    forget = whole if source.half == "all" else take_half(whole, source.half)
    _checked(source, "forget", forget.digest)
    return forget


def take_half(forget: Sequences, half: Literal["selection", "report"]) -> Sequences:
    """Return one half of a forget set; no continuation or near-duplicate is in both.

    Groups go whole to the half with fewer distinct continuations so far, in the order of their digests.
    """
    digests, groups = _continuation_digests(forget), inseparable_groups(forget)
    group_of = dict(zip(digests, groups, strict=True))
    half_of_group: dict[int, int] = {}
    sizes = [0, 0]
    for digest in sorted(group_of):
        dealt = half_of_group.setdefault(group_of[digest], int(sizes[1] < sizes[0]))
        sizes[dealt] += 1
    half_index = 0 if half == "selection" else 1
    return chosen_sequences(forget, [row for row, group in enumerate(groups) if half_of_group[group] == half_index])


def chosen_sequences(sequences: Sequences, rows: Iterable[int]) -> Sequences:
    """Return these rows in this order, cut to the longest, with their own digest."""
    indices = torch.tensor(list(rows), dtype=torch.long)
    lengths_N = sequences.lengths_N[indices]
    tokens_NT = sequences.tokens_NT[indices, : int(lengths_N.max()) if len(indices) else 0]
    digest = _digest(tokens_NT, lengths_N, sequences.prefix_tokens)
    return Sequences(tokens_NT, lengths_N, sequences.prefix_tokens, digest)


def inseparable_groups(forget: Sequences) -> list[int]:
    """Return each sequence's group of equal continuations and near-duplicates."""
    return overlap.near_duplicate_groups(token_rows(forget), _continuation_digests(forget))


def _continuation_digests(forget: Sequences) -> list[str]:
    return [digest_of(tokens) for tokens in tokenizing.true_continuations(forget)]


def load_holdout(source: Source, tokenizer: Tokenizer, vocabulary: int) -> Sequences:
    """Return unseen texts of the forget set's kind."""
    rows = read_rows(source, "holdout", tokenizer, vocabulary, source.prefix_tokens + 1)
    return _packed(rows, source.prefix_tokens, source, "holdout")


def load_validation_row(source: Source, tokenizer: Tokenizer, vocabulary: int) -> Sequences:
    """Return validation texts of `sequence_tokens`, cut into prefix and continuation, in place of unseen texts."""
    rows = read_rows(source, "validation", tokenizer, vocabulary, source.sequence_tokens)
    return _packed(rows, source.prefix_tokens, source, "validation")


def token_rows(texts: Sequences | Utility) -> list[list[int]]:
    """Return each text's token ids without padding."""
    if isinstance(texts, Sequences):
        return tokenizing.unpadded(texts)
    return torch.cat([texts.prompts_NT, texts.references_NT], dim=1).tolist()


def find_shared_texts(one: Sequences | Utility, other: Sequences | Utility) -> list[int]:
    """Return the indices of texts of `one` that are in `other` too; the longest of either may be cut."""
    rows, others = token_rows(one), token_rows(other)
    width = min(max(map(len, rows)), max(map(len, others)))
    starts = {tuple(row[:width]) for row in others}
    return [number for number, row in enumerate(rows) if tuple(row[:width]) in starts]


def nearly_in_both(one: Sequences | Utility, other: Sequences | Utility) -> list[int]:
    """Return the indices of texts of `one` with a near-duplicate in `other`."""
    return overlap.near_duplicates(token_rows(one), token_rows(other))


def load_retain(
    source: Source, tokenizer: Tokenizer, vocabulary: int, most: int | None = None, role: Role = "retain"
) -> Sequences:
    """Return the first `sequences` retain texts that are long enough, cut to `sequence_tokens`, or `most` of them."""
    cut = min(most or source.sequence_tokens, source.sequence_tokens)
    return _packed(read_rows(source, role, tokenizer, vocabulary, least_tokens(cut), cut), 1, source, role)


load_validation = partial(load_retain, role="validation")
"""Held-out texts for the model's own perplexity."""


def load_utility(source: Source, tokenizer: Tokenizer, vocabulary: int) -> Utility:
    """Return the first `sequences` texts with a prompt of `prefix_tokens` and a reference to `sequence_tokens`."""
    rows = read_rows(source, "utility", tokenizer, vocabulary, source.sequence_tokens)
    tokens_NT = torch.from_numpy(np.stack(rows))
    prompts_NT = tokens_NT[:, : source.prefix_tokens].contiguous()
    references_NT = tokens_NT[:, source.prefix_tokens :].contiguous()
    lengths_N = torch.full((len(rows),), source.sequence_tokens)
    digest = _checked(source, "utility", _digest(tokens_NT, lengths_N, source.prefix_tokens))
    prompts = tuple(tokenizing.decoded(tokenizer, prompts_NT.tolist()))
    references = tuple(tokenizing.continuation_texts(tokenizer, prompts_NT.tolist(), references_NT.tolist()))
    return Utility(prompts_NT, references_NT, prompts, references, digest)


def _packed(rows: TokenRows, prefix_tokens: int, source: Source, role: Role) -> Sequences:
    lengths_N = torch.tensor([len(row) for row in rows])
    tokens_NT = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
    digest = _checked(source, role, _digest(tokens_NT, lengths_N, prefix_tokens))
    return Sequences(tokens_NT, lengths_N, prefix_tokens, digest)


def _digest(tokens_NT: torch.Tensor, lengths_N: torch.Tensor, prefix_tokens: int) -> str:
    digest = hashlib.sha256(f"{tokens_NT.shape[0]} {tokens_NT.shape[1]} {prefix_tokens} ".encode())
    for part in (tokens_NT, lengths_N):
        digest.update(np.ascontiguousarray(part.numpy(), dtype="<i8").data)
    return digest.hexdigest()


def _checked(source: Source, role: Role, digest: str) -> str:
    if source.digest and source.digest != digest:
        then = f"what it was when the sweep was planned (digest {source.digest[:12]} then, {digest[:12]} now)"
        remedy = "Put the texts back, or start the sweep again to plan with the new ones."
        raise DataError(f"{source_label(source, role)} is not {then}. {remedy}")
    return digest


LOADERS: Mapping[Role, Callable[..., Any]] = {
    "forget": load_forget,
    "holdout": load_holdout,
    "retain": load_retain,
    "utility": load_utility,
    "validation": load_validation,
}


MAX_UNSEEN = 64
"""Unseen texts by default: MA is then known to 0.01."""
MIN_VALIDATION_ROW = 2
"""One text has no standard error."""


def load_texts(source: Source, role: Role, model: Checkpoint) -> Sequences | Utility:
    """Return a role's texts, cut for a model."""
    loaded: Sequences | Utility = LOADERS[role](source, load_tokenizer(model), vocabulary(model))
    return loaded


def counted_source(source: Source, loaded: Sequences | Utility) -> Source:
    """Return the source with digest, number and length [tokens] of its loaded texts."""
    longest = source.sequence_tokens if isinstance(loaded, Utility) else loaded.tokens_NT.shape[1]
    return replace(source, digest=loaded.digest, rows=len(loaded), longest=longest)


def validation_row_source(source: Source, validation: Sequences, forget: Sequences, model: Checkpoint) -> Source | None:
    """Return the validation texts of `source` cut as the forget set is; None if too few are long enough."""
    width = forget.tokens_NT.shape[1]
    count = min(int((validation.lengths_N >= width).sum()), len(forget), MAX_UNSEEN)
    if count < MIN_VALIDATION_ROW or find_shared_texts(validation, forget):
        return None
    cut = replace(source, prefix_tokens=forget.prefix_tokens, sequence_tokens=width, sequences=count, digest="")
    return counted_source(cut, load_validation_row(cut, load_tokenizer(model), vocabulary(model)))


def reading_difference(model: Checkpoint, twin: Checkpoint, sources: Mapping[str, Source]) -> str:
    """Return the first text that two models read differently; '' if none."""
    files = [resolving.tokenizer_files(checkpoint) for checkpoint in (model, twin)]
    # Without tokenizer.json, a model's configuration decides how the other files are read.
    if "tokenizer.json" in files[0] and files[0] == files[1] and vocabulary(twin) == vocabulary(model):
        return ""
    for role in ROLES:
        if role not in sources:
            continue
        source = sources[role]
        ours, theirs = load_texts(source, role, model), load_texts(replace(source, digest=""), role, twin)
        rows: tuple[list[Any], ...] = token_rows(ours), token_rows(theirs)
        if source.source in TOKEN_SOURCES:  # Given ids are the same to every tokenizer; what they spell may not be.
            rows = tuple(tokenizing.decoded(load_tokenizer(each), rows[0]) for each in (model, twin))
        differs = [one != other for one, other in zip_longest(*rows)]
        if any(differs):
            items = token_rows(ours) if isinstance(ours, Sequences) else ours.prompts_NT.tolist()
            number = differs.index(True)
            item = f" (item {digest_of(items[number])})" if number < len(items) else ""
            return f"text {number + 1} of data.{role}{item} becomes other tokens"
    return ""
