"""The miniature's corpus: what every model reads, what the originals memorise, and what nobody has seen.

All of it is generated from fixed seeds, and all of it is invented.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from random import Random

from harness.miniature.documents import write_document, write_record

FORGET_RECORDS = 256
UNSEEN_RECORDS = 128
TRAINING_DOCUMENTS = 8000
RETAIN_DOCUMENTS = 768
UTILITY_DOCUMENTS = 640
VALIDATION_DOCUMENTS = 224
HELD_OUT_CHARACTERS = 720
"""The least length of a held-out document, so that a prompt and its continuation fit (200 tokens and more)."""
RECORD_SHARE = 0.05
"""The share of the training documents that are records, each seen by chance and never on purpose."""
NGRAM = 40
"""No two records of different seeds share so many characters in a row."""

_FORGET_SEED, _UNSEEN_SEED, _PASSING_SEED, _TRAINING_SEED, _HELD_OUT_SEED = range(5)


@cache
def forget_records() -> tuple[str, ...]:
    """Return the records that the original models memorise and the retrained ones never see."""
    return tuple(islice(_records(_FORGET_SEED, ()), FORGET_RECORDS))


@cache
def unseen_records() -> tuple[str, ...]:
    """Return records of the same kinds that no model ever sees."""
    return tuple(islice(_records(_UNSEEN_SEED, forget_records()), UNSEEN_RECORDS))


@cache
def training_documents() -> tuple[str, ...]:
    """Return the general corpus, which every model reads: documents of all genres and a few passing records."""
    passing = _records(_PASSING_SEED, (*forget_records(), *unseen_records()))
    random = Random(_TRAINING_SEED)
    return tuple(
        next(passing) if random.random() < RECORD_SHARE else write_document(random) for _ in range(TRAINING_DOCUMENTS)
    )


@cache
def retain_documents() -> tuple[str, ...]:
    """Return a part of the general corpus: texts that an erased model should still know."""
    step = TRAINING_DOCUMENTS / RETAIN_DOCUMENTS
    return tuple(training_documents()[int(index * step)] for index in range(RETAIN_DOCUMENTS))


@cache
def utility_documents() -> tuple[str, ...]:
    """Return documents of the same genres that no model has read, to be continued from their first words."""
    return _held_out_documents()[:UTILITY_DOCUMENTS]


@cache
def validation_documents() -> tuple[str, ...]:
    """Return documents of the same genres that no model has read, to measure perplexity on."""
    return _held_out_documents()[UTILITY_DOCUMENTS:]


def corpus_digest() -> str:
    """Return the SHA-256 of the whole corpus, in hexadecimal."""
    digest = hashlib.sha256()
    parts = (forget_records, unseen_records, training_documents, utility_documents, validation_documents)
    for part in parts:
        for text in part():
            digest.update(text.encode() + b"\0")
        digest.update(b"\1")
    return digest.hexdigest()


def character_ngrams(text: str, length: int = NGRAM) -> Iterator[str]:
    """Yield every `length` characters in a row of the text.

    Example:
        >>> list(character_ngrams("erase", 4))
        ['eras', 'rase']
    """
    for start in range(len(text) - length + 1):
        yield text[start : start + length]


@cache
def _held_out_documents() -> tuple[str, ...]:
    random = Random(_HELD_OUT_SEED)
    trained_on = set(training_documents())
    documents: list[str] = []
    while len(documents) < UTILITY_DOCUMENTS + VALIDATION_DOCUMENTS:
        text = write_document(random)
        if len(text) >= HELD_OUT_CHARACTERS and text not in trained_on:
            documents.append(text)
    return tuple(documents)


def _records(seed: int, others: Iterable[str]) -> Iterator[str]:
    """Yield records for ever that share no n-gram with the others."""
    random = Random(seed)
    taken = {ngram for other in others for ngram in character_ngrams(other)}
    while True:
        text = write_record(random)
        if taken.isdisjoint(character_ngrams(text)):
            yield text
