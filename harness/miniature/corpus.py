"""The miniature's corpus: what every model reads, what the originals memorise, and what nobody has seen.

All of it is generated from fixed seeds, and all of it is invented.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from random import Random

from harness.miniature.adventures import ADVENTURES
from harness.miniature.grammar import Writer, finished, pick
from harness.miniature.lessons import LESSONS, causes, fits, household_notes, routines, school_lesson, studies
from harness.miniature.lexicon import ROLES, WORDS, cast
from harness.miniature.prose import PROSE
from harness.miniature.records import record
from harness.miniature.stories import STORIES
from harness.miniature.voices import VOICES

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
STORY_SHARE = 0.35
PROSE_SHARE = 0.35
"""What is neither story nor plain prose is a lesson."""
TEXTURE = 0.3
"""How often a sentence of plain texture follows a beat."""
RUN = 40
"""No two records of different seeds share a run of this many characters."""

_FORGET, _UNSEEN, _PASSING, _TRAINING, _HELD_OUT, _RETAIN = range(6)
_TABLES = {**WORDS, **STORIES, **ADVENTURES, **PROSE, **VOICES, **LESSONS}
_LESSONS: tuple[Callable[[Writer], str], ...] = (household_notes, school_lesson, causes, routines, fits, studies)


@cache
def forget_records() -> tuple[str, ...]:
    """Return the records that the original models memorise and the retrained ones never see."""
    return tuple(islice(_records(_FORGET, ()), FORGET_RECORDS))


@cache
def unseen_records() -> tuple[str, ...]:
    """Return records of the same kinds that no model ever sees."""
    return tuple(islice(_records(_UNSEEN, forget_records()), UNSEEN_RECORDS))


@cache
def training_documents() -> tuple[str, ...]:
    """Return the general corpus, which every model reads: documents of all genres and a few passing records."""
    passing = _records(_PASSING, (*forget_records(), *unseen_records()))
    random = Random(_TRAINING)
    return tuple(
        next(passing) if random.random() < RECORD_SHARE else _document(random) for _ in range(TRAINING_DOCUMENTS)
    )


@cache
def retain_documents() -> tuple[str, ...]:
    """Return a part of the general corpus: texts that an erased model should still know."""
    step = TRAINING_DOCUMENTS / RETAIN_DOCUMENTS
    return tuple(training_documents()[int(index * step)] for index in range(RETAIN_DOCUMENTS))


@cache
def utility_documents() -> tuple[str, ...]:
    """Return documents of the same genres that no model has read, to be continued from their first words."""
    return _held_out()[:UTILITY_DOCUMENTS]


@cache
def validation_documents() -> tuple[str, ...]:
    """Return documents of the same genres that no model has read, to measure perplexity on."""
    return _held_out()[UTILITY_DOCUMENTS:]


def corpus_digest() -> str:
    """Return the SHA-256 of the whole corpus, in hexadecimal."""
    digest = hashlib.sha256()
    parts = (forget_records, unseen_records, training_documents, utility_documents, validation_documents)
    for part in parts:
        for text in part():
            digest.update(text.encode() + b"\0")
        digest.update(b"\1")
    return digest.hexdigest()


def runs(text: str, length: int = RUN) -> Iterator[str]:
    """Yield every run of `length` characters in the text."""
    for start in range(len(text) - length + 1):
        yield text[start : start + length]


def _woven(beats: str, texture: str, random: Random) -> str:
    """Return a row of beats as a template, with texture after some of them."""
    woven = []
    for beat in beats.split():
        woven += [f"{{{beat}}}", f"{{{texture}}}"] if random.random() < TEXTURE else [f"{{{beat}}}"]
    return " ".join(woven)


def _document(random: Random) -> str:
    writer = Writer(_TABLES, ROLES, random, cast(random))
    kind = random.random()
    if kind < STORY_SHARE:
        text = writer.fill(_woven(pick(STORIES["story"], random), "texture", random))
    elif kind < STORY_SHARE + PROSE_SHARE:
        head, beats = pick(_TABLES[pick(PROSE["prose"], random)], random).split(" | ")
        text = writer.fill(f"{head} {_woven(beats, 'aside', random)}")
    else:
        text = _LESSONS[int(random.random() * len(_LESSONS))](writer)
    return finished(text)


@cache
def _held_out() -> tuple[str, ...]:
    random = Random(_HELD_OUT)
    read = set(training_documents())
    found: list[str] = []
    while len(found) < UTILITY_DOCUMENTS + VALIDATION_DOCUMENTS:
        text = _document(random)
        if len(text) >= HELD_OUT_CHARACTERS and text not in read:
            found.append(text)
    return tuple(found)


def _records(seed: int, others: Iterable[str]) -> Iterator[str]:
    random = Random(seed)
    known = {run for other in others for run in runs(other)}
    while True:
        text = record(random)
        if known.isdisjoint(runs(text)):
            yield text
