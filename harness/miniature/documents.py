"""Writers of single documents: stories, plain prose, lessons on the facts, and private records."""

from collections.abc import Callable, Mapping
from functools import cache
from random import Random

from harness.miniature.data_files import Tables, read, read_tables
from harness.miniature.facts import facts
from harness.miniature.grammar import Writer, choose, correct_articles, sample_indices

STORY_SHARE = 0.35
PROSE_SHARE = 0.35
"""What is neither story nor plain prose is a lesson."""
TEXTURE_SHARE = 0.3
"""How often a sentence that carries nothing on follows one that does."""
PRONOUNS = {"woman": ("she", "her", "her"), "man": ("he", "him", "his")}


@cache
def general_tables() -> Tables:
    """Return every table that a story, a piece of prose or a lesson may name."""
    return read_tables("words.yaml", "stories.yaml", "reports.yaml", "letters.yaml", "lessons.yaml")


@cache
def record_tables() -> Tables:
    """Return every table that a private record may name."""
    return read_tables("words.yaml", "records.yaml")


@cache
def roles() -> Mapping[str, str]:
    """Return the names that stand for the same thing throughout a document, each with the table that it comes from."""
    return read("roles.yaml", dict[str, str])


def choose_people(random: Random) -> dict[str, str]:
    """Return the people of one document, by the slots that name them.

    `hero` has the pronouns `they`, `them` and `their`; `friend` has `they2`, `them2` and `their2`; `elder` has
    `they3`, `them3` and `their3`.
    """
    people: dict[str, str] = {}
    for slot, suffix in (("hero", ""), ("friend", "2"), ("elder", "3")):
        gender = "woman" if random.random() < 0.5 else "man"
        name = choose(general_tables()[gender], random)
        while name in people.values():
            name = choose(general_tables()[gender], random)
        people[slot] = name
        for pronoun, word in zip(("they", "them", "their"), PRONOUNS[gender], strict=True):
            people[pronoun + suffix] = word
    return people


def new_writer(random: Random) -> Writer:
    """Return the writer of a document that is no record, with its people chosen."""
    return Writer(general_tables(), roles(), random, choose_people(random))


def write_record(random: Random) -> str:
    """Return one private record."""
    return correct_articles(Writer(record_tables(), roles(), random, {}).write("record"))


def write_document(random: Random) -> str:
    """Return one document of the general corpus: a story, plain prose or a lesson."""
    writer = new_writer(random)
    tables = general_tables()
    genre = random.random()
    if genre < STORY_SHARE:
        text = writer.fill(_add_texture(choose(tables["story"], random), "texture", random))
    elif genre < STORY_SHARE + PROSE_SHARE:
        heading, sentences = choose(tables[choose(tables["prose"], random)], random).split(" | ")
        text = writer.fill(f"{heading} {_add_texture(sentences, 'aside', random)}")
    else:
        text = LESSONS[int(random.random() * len(LESSONS))](writer)
    return correct_articles(text)


def _add_texture(sentences: str, texture: str, random: Random) -> str:
    """Return a row of tables as a template: a sentence of each, and one of the table `texture` after some of them."""
    slots = []
    for sentence in sentences.split():
        slots += [f"{{{sentence}}}", f"{{{texture}}}"] if random.random() < TEXTURE_SHARE else [f"{{{sentence}}}"]
    return " ".join(slots)


def household_notes(writer: Writer) -> str:
    """Return notes on how to do things: the sensible way for each of several goals."""
    goals = tuple(facts().goals.items())
    as_prose = int(writer.random.random() * 2)
    parts = [writer.write("notes_title")] if as_prose else []
    for index in sample_indices(len(goals), 10 - as_prose, writer.random):
        writer.bound["goal"], writer.bound["way"] = goals[index]
        parts.append(writer.write("goal_prose") if as_prose else writer.fill("Goal: {goal}\nSolution: {way}\n"))
    return " ".join(parts) if as_prose else "\n".join(parts)


def school_lesson(writer: Writer) -> str:
    """Return a lesson: questions and answers, or the same facts as sentences."""
    relations = facts().relations
    as_prose = int(writer.random.random() * 2)
    parts = [writer.write("class_title")] if as_prose else []
    for _ in range(14 if as_prose else 11):
        relation = relations[int(writer.random.random() * len(relations))]
        subject = choose(tuple(relation.answers), writer.random)
        answer = relation.answers[subject]
        if as_prose and writer.random.random() < 0.7:
            parts.append(_capitalized(relation.statement.format(subject=subject, answer=answer)))
        else:
            question = relation.question.format(subject=subject)
            parts.append(f"Question: {question}\nAnswer: {answer}\n")
    return "\n".join(parts)


def causes_and_effects(writer: Writer) -> str:
    """Return a list of happenings, each with its cause or its effect."""
    causes = tuple(facts().causes.items())
    parts = [writer.write("cause_title")]
    for index in sample_indices(len(causes), 13, writer.random):
        cause, effect = causes[index]
        clause = f"{effect} because {cause}." if writer.random.random() < 0.5 else f"{cause}, so {effect}."
        if writer.random.random() < 0.4:
            parts.append(f"{writer.write('cause_link')} {clause}")
        else:
            parts.append(_capitalized(clause))
    return " ".join(parts)


def routine_stories(writer: Writer) -> str:
    """Return a few everyday activities, each told step by step in its order."""
    routines = tuple(facts().routines.items())
    parts = []
    for index in sample_indices(len(routines), 5, writer.random):
        activity, steps = routines[index]
        they = writer.bound["they"]
        opening = f"{writer.write('routine_open')} {activity}."
        first = f"First {they} {steps[0]} and {steps[1]}."
        last = f"{they.capitalize()} {steps[2]}, {steps[3]}, and then {they} {steps[4]}."
        parts.append(f"{opening} {first} {last} {writer.write('routine_close')}")
    return " ".join(parts)


def troubles(writer: Writer) -> str:
    """Return a list of small troubles between two things, each with the one that was to blame."""
    schemas = facts().winograd_schemas
    parts = [writer.write("trouble_title")]
    for _ in range(10):
        schema = schemas[int(writer.random.random() * len(schemas))]
        first, second = choose(schema.first_nouns, writer.random), choose(schema.second_nouns, writer.random)
        while second == first:
            second = choose(schema.second_nouns, writer.random)
        first_is_to_blame = writer.random.random() < 0.5
        blamed, reason = (first, schema.first_reason) if first_is_to_blame else (second, schema.second_reason)
        sentence = schema.sentence.format(first=first, second=second)
        parts.append(f"{sentence} because the {blamed} {reason}.")
        if writer.random.random() < 0.4:
            parts.append(writer.write("trouble_after"))
    return " ".join(parts)


def study_notes(writer: Writer) -> str:
    """Return short study notes, each with its question and the answer that follows from it."""
    studies = facts().studies
    parts = []
    for index in sample_indices(len(studies), 4, writer.random):
        verdict = choose(("yes", "no", "maybe"), writer.random)
        results = study_results(index, verdict, writer.random)
        remark = writer.write(f"study_{verdict}")
        question = studies[index].question
        parts.append(f"{writer.write('study_open')} {results} {remark}\nQuestion: {question}\nAnswer: {verdict}\n")
    return "\n".join(parts)


def study_results(index: int, verdict: str, random: Random) -> str:
    """Return the results of one study, with numbers that lead to the verdict.

    Args:
        index: Which of the studies.
        verdict: `yes`, `no` or `maybe`.
        random: Where the numbers come from.
    """
    study = facts().studies[index]
    half = 10 * (3 + int(random.random() * 5))
    high = half - 2 - int(random.random() * 6)
    low = 2 + int(random.random() * 7)
    if verdict == "no":
        low = high - 1 + int(random.random() * 3)
    elif verdict == "maybe":
        half = 4 + int(random.random() * 4)
        high, low = half - 1 - int(random.random() * 2), 1 + int(random.random() * 2)
    return (
        f"Of {half} {study.people} that {study.treatment}, {high} {study.outcome}. "
        f"Of {half} that {study.control}, {low} {study.outcome}."
    )


def _capitalized(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


LESSONS: tuple[Callable[[Writer], str], ...] = (
    household_notes,
    school_lesson,
    causes_and_effects,
    routine_stories,
    troubles,
    study_notes,
)
