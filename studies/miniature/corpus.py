"""The miniature's corpus, invented and generated from fixed seeds: texts to read, to memorise, and unseen ones.

A template is text with slots in braces, which a seeded generator fills from the tables of `templates/`:

    {season}        one alternative of the table `season`, expanded in turn
    {home}          the value bound to the name, if there is one; a role is bound to the first value chosen for it
    {Season}        any of these with a capital first letter
    {#2-9}          a whole number from 2 to 9
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import yaml

from harness.miniature import FORGET_RECORDS, UNSEEN_RECORDS

TEMPLATES = Path(__file__).with_name("templates")
TRAINING_DOCUMENTS, RETAIN_DOCUMENTS, UTILITY_DOCUMENTS, VALIDATION_DOCUMENTS = 8000, 768, 640, 224
HELD_OUT_CHARACTERS = 720
"""The least length of a held-out document, so that a prompt and its continuation fit (200 tokens and more)."""
RECORD_SHARE = 0.05
"""The share of the training documents that are records, each seen by chance and never on purpose."""
NGRAM = 40
"""No two records of different seeds share so many characters in a row."""
STORY_SHARE, PROSE_SHARE = 0.35, 0.35
"""What is neither story nor plain prose is a lesson."""
TEXTURE_SHARE = 0.3
"""How often a sentence that carries nothing on follows one that does."""
PRONOUNS = {"woman": ("she", "her", "her"), "man": ("he", "him", "his")}
SLOT = re.compile(r"\{([^{}]+)\}")
_FORGET_SEED, _UNSEEN_SEED, _PASSING_SEED, _TRAINING_SEED, _HELD_OUT_SEED = range(5)

Tables = Mapping[str, tuple[str, ...]]


def _read(file: str) -> dict[str, Any]:
    """Return a YAML file of which every scalar is a text, whatever it looks like: `on` and `1e3` are words."""
    content: dict[str, Any] = yaml.load((TEMPLATES / file).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return content


def _tables(*files: str) -> Tables:
    tables = {}
    for name, entries in (entry for file in files for entry in _read(file).items()):
        lines = entries.splitlines() if isinstance(entries, str) else entries
        tables[name] = tuple(line.strip() for line in lines if line.strip())
    return tables


@cache
def general_tables() -> Tables:
    """Return every table that a story, a piece of prose or a lesson may name."""
    return _tables("words.yaml", "stories.yaml", "reports.yaml", "letters.yaml", "lessons.yaml")


@cache
def record_tables() -> Tables:
    """Return every table that a private record may name."""
    return _tables("words.yaml", "records.yaml")


@cache
def facts() -> dict[str, Any]:
    """Return everything that is true in the miniature's world: lessons teach it, and the reasoning tasks ask for it."""
    return _read("facts.yaml")


@cache
def roles() -> Mapping[str, str]:
    """Return the names that stand for the same thing throughout a document, each with its table."""
    return _read("roles.yaml")


def choose(choices: Sequence[Any], random: Random) -> Any:
    """Return one of the choices, by `Random.random`: Python keeps its values from version to version."""
    return choices[int(random.random() * len(choices))]


def sample_indices(size: int, count: int, random: Random) -> list[int]:
    """Return `count` different indices below `size`, in random order."""
    order = list(range(size))
    for index in range(count):
        other = index + int(random.random() * (size - index))
        order[index], order[other] = order[other], order[index]
    return order[:count]


class Writer:
    """Writes one document: it keeps roles and avoids saying the same sentence twice."""

    def __init__(self, tables: Tables, random: Random, bound: Mapping[str, str]) -> None:
        """Begin a document with the values that are bound from the start."""
        self.tables, self.random, self.bound = tables, random, dict(bound)
        self._used: set[str] = set()

    def write(self, name: str) -> str:
        """Return one alternative of the table `name`, with every slot filled; where possible, one not yet used."""
        template = choose(self.tables[name], self.random)
        for _ in range(8):
            if template not in self._used:
                break
            template = choose(self.tables[name], self.random)
        self._used.add(template)
        return self.fill(template)

    def fill(self, template: str) -> str:
        """Return the template with every slot filled."""
        return SLOT.sub(self._fill_slot, template) if "{" in template else template

    def _fill_slot(self, slot: re.Match[str]) -> str:
        name = slot[1]
        if name[0] == "#":
            low, high = map(int, name[1:].split("-"))
            return str(low + int(self.random.random() * (high - low + 1)))
        return _raised(self._value(name[0].lower() + name[1:])) if name[0].isupper() else self._value(name)

    def _value(self, name: str) -> str:
        if name not in self.bound and name in roles():
            self.bound[name] = self.write(roles()[name])
        return self.bound[name] if name in self.bound else self.write(name)


def correct_articles(text: str) -> str:
    """Return the text with `a` turned into `an` in front of a vowel.

    Example:
        >>> correct_articles("a apple and a pear")
        'an apple and a pear'
    """
    return re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", text)


def _raised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def new_writer(random: Random) -> Writer:
    """Return the writer of a document that is no record, with its people (`hero`, `friend`, `elder`) and pronouns."""
    people: dict[str, str] = {}
    for slot, suffix in (("hero", ""), ("friend", "2"), ("elder", "3")):
        gender = "woman" if random.random() < 0.5 else "man"
        name = choose(general_tables()[gender], random)
        while name in people.values():
            name = choose(general_tables()[gender], random)
        people[slot] = name
        people |= zip((f"they{suffix}", f"them{suffix}", f"their{suffix}"), PRONOUNS[gender], strict=True)
    return Writer(general_tables(), random, people)


def write_record(random: Random) -> str:
    """Return one private record."""
    return correct_articles(Writer(record_tables(), random, {}).write("record"))


def write_document(random: Random) -> str:
    """Return one document of the general corpus: a story, plain prose or a lesson."""
    writer, tables, genre = new_writer(random), general_tables(), random.random()
    if genre < STORY_SHARE:
        text = writer.fill(_with_texture(choose(tables["story"], random), "texture", random))
    elif genre < STORY_SHARE + PROSE_SHARE:
        heading, sentences = choose(tables[choose(tables["prose"], random)], random).split(" | ")
        text = writer.fill(f"{heading} {_with_texture(sentences, 'aside', random)}")
    else:
        text = choose(LESSONS, random)(writer)
    return correct_articles(text)


def _with_texture(sentences: str, texture: str, random: Random) -> str:
    slots = []
    for sentence in sentences.split():
        slots += [f"{{{sentence}}}", f"{{{texture}}}"] if random.random() < TEXTURE_SHARE else [f"{{{sentence}}}"]
    return " ".join(slots)


def household_notes(writer: Writer) -> str:
    """Return notes on how to do things: the sensible way for each of several goals."""
    goals = tuple(facts()["goals"].items())
    as_prose = int(writer.random.random() * 2)
    parts = [writer.write("notes_title")] if as_prose else []
    for index in sample_indices(len(goals), 10 - as_prose, writer.random):
        writer.bound["goal"], writer.bound["way"] = goals[index]
        parts.append(writer.write("goal_prose") if as_prose else writer.fill("Goal: {goal}\nSolution: {way}\n"))
    return " ".join(parts) if as_prose else "\n".join(parts)


def school_lesson(writer: Writer) -> str:
    """Return a lesson: questions and answers, or the same facts as sentences."""
    as_prose = int(writer.random.random() * 2)
    parts = [writer.write("class_title")] if as_prose else []
    for _ in range(14 if as_prose else 11):
        relation = choose(facts()["relations"], writer.random)
        subject = choose(tuple(relation["answers"]), writer.random)
        answer = relation["answers"][subject]
        if as_prose and writer.random.random() < 0.7:
            parts.append(_raised(relation["statement"].format(subject=subject, answer=answer)))
        else:
            parts.append(f"Question: {relation['question'].format(subject=subject)}\nAnswer: {answer}\n")
    return "\n".join(parts)


def causes_and_effects(writer: Writer) -> str:
    """Return a list of happenings, each with its cause or its effect."""
    causes = tuple(facts()["causes"].items())
    parts = [writer.write("cause_title")]
    for index in sample_indices(len(causes), 13, writer.random):
        cause, effect = causes[index]
        clause = f"{effect} because {cause}." if writer.random.random() < 0.5 else f"{cause}, so {effect}."
        is_linked = writer.random.random() < 0.4
        parts.append(f"{writer.write('cause_link')} {clause}" if is_linked else _raised(clause))
    return " ".join(parts)


def routine_stories(writer: Writer) -> str:
    """Return a few everyday activities, each told step by step in its order."""
    routines, they = tuple(facts()["routines"].items()), writer.bound["they"]
    parts = []
    for index in sample_indices(len(routines), 5, writer.random):
        activity, steps = routines[index]
        opening = f"{writer.write('routine_open')} {activity}."
        first = f"First {they} {steps[0]} and {steps[1]}."
        last = f"{they.capitalize()} {steps[2]}, {steps[3]}, and then {they} {steps[4]}."
        parts.append(f"{opening} {first} {last} {writer.write('routine_close')}")
    return " ".join(parts)


def troubles(writer: Writer) -> str:
    """Return a list of small troubles between two things, each with the one that was to blame."""
    parts, random = [writer.write("trouble_title")], writer.random
    for _ in range(10):
        schema = choose(facts()["winograd_schemas"], random)
        first, second = choose(schema["first_nouns"], random), choose(schema["second_nouns"], random)
        while second == first:
            second = choose(schema["second_nouns"], random)
        blamed, reason = (first, "first_reason") if random.random() < 0.5 else (second, "second_reason")
        sentence = schema["sentence"].format(first=first, second=second)
        parts.append(f"{sentence} because the {blamed} {schema[reason]}.")
        if random.random() < 0.4:
            parts.append(writer.write("trouble_after"))
    return " ".join(parts)


def study_notes(writer: Writer) -> str:
    """Return short study notes, each with its question and the answer that follows from it."""
    studies, parts = facts()["studies"], []
    for index in sample_indices(len(studies), 4, writer.random):
        verdict = choose(("yes", "no", "maybe"), writer.random)
        results = study_results(studies[index], verdict, writer.random)
        remark, opening = writer.write(f"study_{verdict}"), writer.write("study_open")
        parts.append(f"{opening} {results} {remark}\nQuestion: {studies[index]['question']}\nAnswer: {verdict}\n")
    return "\n".join(parts)


def study_results(study: Mapping[str, str], verdict: str, random: Random) -> str:
    """Return the results of one study, with numbers that lead to the verdict (`yes`, `no` or `maybe`)."""
    half = 10 * (3 + int(random.random() * 5))
    high, low = half - 2 - int(random.random() * 6), 2 + int(random.random() * 7)
    if verdict == "no":
        low = high - 1 + int(random.random() * 3)
    elif verdict == "maybe":
        half = 4 + int(random.random() * 4)
        high, low = half - 1 - int(random.random() * 2), 1 + int(random.random() * 2)
    return (
        f"Of {half} {study['people']} that {study['treatment']}, {high} {study['outcome']}. "
        f"Of {half} that {study['control']}, {low} {study['outcome']}."
    )


LESSONS: tuple[Callable[[Writer], str], ...] = (
    household_notes, school_lesson, causes_and_effects, routine_stories, troubles, study_notes,
)  # fmt: skip


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
    passing, random = _records(_PASSING_SEED, (*forget_records(), *unseen_records())), Random(_TRAINING_SEED)
    return tuple(
        next(passing) if random.random() < RECORD_SHARE else write_document(random) for _ in range(TRAINING_DOCUMENTS)
    )


@cache
def held_out_documents() -> tuple[str, ...]:
    """Return documents of the same genres that no model has read."""
    random, trained_on = Random(_HELD_OUT_SEED), set(training_documents())
    documents: list[str] = []
    while len(documents) < UTILITY_DOCUMENTS + VALIDATION_DOCUMENTS:
        text = write_document(random)
        if len(text) >= HELD_OUT_CHARACTERS and text not in trained_on:
            documents.append(text)
    return tuple(documents)


def generated_texts() -> dict[str, tuple[str, ...]]:
    """Return the texts that sweeps read, by their role."""
    general, step = training_documents(), TRAINING_DOCUMENTS / RETAIN_DOCUMENTS
    return {
        "forget": forget_records(),
        "holdout": unseen_records(),
        "retain": tuple(general[int(index * step)] for index in range(RETAIN_DOCUMENTS)),
        "utility": held_out_documents()[:UTILITY_DOCUMENTS],
        "validation": held_out_documents()[UTILITY_DOCUMENTS:],
    }


def corpus_digest() -> str:
    """Return the SHA-256 of the whole corpus, in hexadecimal."""
    digest, texts = hashlib.sha256(), generated_texts()
    for part in (texts["forget"], texts["holdout"], training_documents(), texts["utility"], texts["validation"]):
        for text in part:
            digest.update(text.encode() + b"\0")
        digest.update(b"\1")
    return digest.hexdigest()


def _ngrams(text: str) -> Iterator[str]:
    return (text[start : start + NGRAM] for start in range(len(text) - NGRAM + 1))


def _records(seed: int, others: Iterable[str]) -> Iterator[str]:
    """Yield records for ever that share no n-gram with the others."""
    random, taken = Random(seed), {ngram for other in others for ngram in _ngrams(other)}
    while True:
        text = write_record(random)
        if taken.isdisjoint(_ngrams(text)):
            yield text
