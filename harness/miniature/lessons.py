"""Writers of the documents that teach the miniature's world: notes, questions, causes, routines, fits, studies."""

from random import Random

from harness.miniature.cases import FITS, ROUTINES, STUDIES
from harness.miniature.grammar import Writer, pick, sample, tables
from harness.miniature.knowledge import CAUSES, GOALS, RELATIONS

LESSONS = tables("""
notes_title:
  Household notes of {hero} {family}, {town}.
  Good advice from {hero} the {trade}.
  How things are done in {town}.
goal_prose:
  To {goal}, {way}.
  If you want to {goal}, {way}.
  {Hero} the {trade} had to {goal}. "{Way}," said {friend}.
  "How do I {goal}?" asked {friend}. "{Way}," said {hero}.
  People in {town} know how to {goal}: {way}.
class_title:
  The school of {town}, {weekday}. {Hero} {family} asks the questions.
  {Hero} the teacher had {#12-60} pupils that {season}, and each of them had to answer.
  From the school book of {hero} {family}, page {#2-98}.
cause_title:
  What happened in {town} in {month}, told by {hero} {family}.
  {Hero} had a bad week in {town}.
  A list of reasons, kept by {hero} the {trade}.
cause_link:
  On {weekday}
  In {town}
  At {hour}
  One {weekday} in {season}
  Last {season}
routine_open:
  On {weekday} {hero}
  At {hour} {hero}
  In {town} {hero} the {trade}
  After {hour} {hero}
routine_close:
  {They} was {feeling}, and outside there was {weather}.
  It took until {hour}, and then {friend} came with {food}.
  "Well done," said {friend} the {trade}.
  By then it was {hour}.
fit_title:
  {Hero} {family} writes down what went wrong in {town}.
  Small troubles of {season}, {town}.
fit_after:
  {Hero} laughed, but {friend} was {feeling}.
  That was on {weekday}, at the {place}.
  {Friend} saw it from the {room}.
  So they left it until {hour}.
study_open:
  The {trade} of {town} made a small study.
  {Hero} {family} of {town} wanted to know more.
  A note from the {place} of {town}, {month} {#1-28}.
study_yes:
  This is a large difference.
  The first number is much larger.
study_no:
  This is hardly any difference.
  The two numbers are almost the same.
study_maybe:
  But there were too few of them to be sure.
  But half of the records were lost in the {weather}.
""")


def household_notes(writer: Writer) -> str:
    """Return notes on how to do things: the sensible way for each of several goals."""
    form = int(writer.random.random() * 2)
    parts = [writer.write("notes_title")] if form else []
    for index in sample(len(GOALS), 10 - form, writer.random):
        writer.bound["goal"], writer.bound["way"] = GOALS[index]
        parts.append(writer.write("goal_prose") if form else writer.fill("Goal: {goal}\nSolution: {way}\n"))
    return " ".join(parts) if form else "\n".join(parts)


def school_lesson(writer: Writer) -> str:
    """Return a lesson: questions and answers, or the same facts as sentences."""
    form = int(writer.random.random() * 2)
    parts = [writer.write("class_title")] if form else []
    for _ in range(14 if form else 11):
        relation = RELATIONS[int(writer.random.random() * len(RELATIONS))]
        subject = pick(tuple(relation.answers), writer.random)
        answer = relation.answers[subject]
        if form and writer.random.random() < 0.7:
            sentence = relation.statement.format(subject=subject, answer=answer)
            parts.append(sentence[0].upper() + sentence[1:])
        else:
            question = relation.question.format(subject=subject)
            parts.append(f"Question: {question}\nAnswer: {answer}\n")
    return "\n".join(parts)


def causes(writer: Writer) -> str:
    """Return a list of happenings, each with its cause or its effect."""
    parts = [writer.write("cause_title")]
    for index in sample(len(CAUSES), 13, writer.random):
        cause, effect = CAUSES[index]
        clause = f"{effect} because {cause}." if writer.random.random() < 0.5 else f"{cause}, so {effect}."
        if writer.random.random() < 0.4:
            parts.append(f"{writer.write('cause_link')} {clause}")
        else:
            parts.append(clause[0].upper() + clause[1:])
    return " ".join(parts)


def routines(writer: Writer) -> str:
    """Return a few everyday doings, each told step by step in its order."""
    parts = []
    names = tuple(ROUTINES)
    for index in sample(len(names), 5, writer.random):
        steps = ROUTINES[names[index]]
        they = writer.bound["they"].capitalize()
        opening = f"{writer.write('routine_open')} {names[index]}."
        first = f"First {they.lower()} {steps[0]} and {steps[1]}."
        last = f"{they} {steps[2]}, {steps[3]}, and then {they.lower()} {steps[4]}."
        parts.append(f"{opening} {first} {last} {writer.write('routine_close')}")
    return " ".join(parts)


def fits(writer: Writer) -> str:
    """Return a list of small troubles between two things, each with the one that was to blame."""
    parts = [writer.write("fit_title")]
    for _ in range(10):
        fit = FITS[int(writer.random.random() * len(FITS))]
        first, second = pick(fit.firsts, writer.random), pick(fit.seconds, writer.random)
        while second == first:
            second = pick(fit.seconds, writer.random)
        blamed, reason = (first, fit.first_reason) if writer.random.random() < 0.5 else (second, fit.second_reason)
        sentence = fit.sentence.format(first=first, second=second)
        parts.append(f"{sentence} because the {blamed} {reason}.")
        if writer.random.random() < 0.4:
            parts.append(writer.write("fit_after"))
    return " ".join(parts)


def study_text(index: int, verdict: str, random: Random) -> str:
    """Return the text of one study whose numbers and wording lead to the verdict.

    Args:
        index: Which of `STUDIES`.
        verdict: `yes`, `no` or `maybe`.
        random: Where the numbers come from.
    """
    study = STUDIES[index]
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


def studies(writer: Writer) -> str:
    """Return short study notes, each with its question and the answer that follows from it."""
    parts = []
    for index in sample(len(STUDIES), 4, writer.random):
        verdict = pick(("yes", "no", "maybe"), writer.random)
        numbers = study_text(index, verdict, writer.random)
        remark = writer.write(f"study_{verdict}")
        question = STUDIES[index].question
        parts.append(f"{writer.write('study_open')} {numbers} {remark}\nQuestion: {question}\nAnswer: {verdict}\n")
    return "\n".join(parts)
