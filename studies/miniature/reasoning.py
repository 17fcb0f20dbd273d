"""The miniature's reasoning tasks: questions on its corpus in the formats of six published data sets.

Facts come in groups of similar length that share their options, and each option is right exactly once in its group: a
scorer that looks only at the options is right at chance. Rows are in the schema of the hub data set that lm-eval reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from studies.miniature.corpus import correct_articles, facts, new_writer, sample_indices, study_results

TASKS = ("piqa", "arc_easy", "copa", "pubmedqa", "winogrande", "hellaswag")
"""By lm-eval's names."""
GOAL_PAIRS, CAUSE_PAIRS, PAIRS_PER_SCHEMA = 72, 36, 12
"""How many pairs of goals, of causes (and as many of effects), and of things for each Winograd schema are asked for."""
VERDICTS, ROWS_PER_VERDICT = ("yes", "no", "maybe"), 3
CUTS, GROUPS_PER_CUT = 4, 9
"""The points at which a routine is cut into a beginning and an ending."""
LENGTH_NOISE = 0.3
"""By what part a text may count as longer than it is when similar ones are looked for, so that it meets several."""

Row = dict[str, Any]


def rows(task: str) -> list[Row]:
    """Return the validation rows of a task, the same in every call."""
    random = Random(TASKS.index(task))
    unordered = list(_BUILDERS[task](random))
    identifiers = {"arc_easy": "id", "copa": "idx", "pubmedqa": "pubid", "hellaswag": "ind"}
    ordered = []
    for number, index in enumerate(sample_indices(len(unordered), len(unordered), random)):
        value = f"miniature_{number}" if task == "arc_easy" else number
        ordered.append(({identifiers[task]: value} if task in identifiers else {}) | unordered[index])
    return ordered


def _similar_groups(texts: Sequence[str], size: int, count: int, random: Random) -> list[list[int]]:
    """Return `count` different groups of `size` texts of similar length, by index; all texts come about as often."""
    groups: dict[frozenset[int], list[int]] = {}
    per_round = -(-len(texts) // size)
    while len(groups) < count:
        lengths = [len(text) * (1 + LENGTH_NOISE * random.random()) for text in texts]
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        # Neighbours overlap where the size does not divide the number of texts, so that nothing is left out.
        starts = [turn * (len(texts) - size) // max(1, per_round - 1) for turn in range(per_round)]
        for turn in sample_indices(per_round, per_round, random):
            group = order[starts[turn] : starts[turn] + size]
            groups.setdefault(frozenset(group), group)
    return list(groups.values())[:count]


def _with_options(
    questions: Sequence[str], answers: Sequence[str], random: Random
) -> Iterator[tuple[str, list[str], int]]:
    """Yield every question with all the answers as options, and the index of its own: a different one each time."""
    for question, label in enumerate(sample_indices(len(answers), len(answers), random)):
        others = [answer for index, answer in enumerate(answers) if index != question]
        options = [others[index] for index in sample_indices(len(others), len(others), random)]
        options.insert(label, answers[question])
        yield questions[question], options, label


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _piqa(random: Random) -> Iterator[Row]:
    goals = [(f"How do I {goal}?", way) for goal, way in facts()["goals"].items()]
    for group in _similar_groups([way for _, way in goals], 2, GOAL_PAIRS, random):
        questions, ways = zip(*(goals[index] for index in group), strict=True)
        for question, options, label in _with_options(questions, ways, random):
            yield {"goal": question, "sol1": options[0], "sol2": options[1], "label": label}


def _arc_easy(random: Random) -> Iterator[Row]:
    # How a question begins tells what kind of thing answers it: a place, a thing, a change.
    kinds: dict[str, list[tuple[str, str]]] = {}
    for relation in facts()["relations"]:
        pairs = kinds.setdefault(" ".join(relation["question"].split()[:2]), [])
        pairs += [(relation["question"].format(subject=each), answer) for each, answer in relation["answers"].items()]
    for pairs in kinds.values():
        for group in _similar_groups([answer for _, answer in pairs], 4, len(pairs) // 3, random):
            questions, answers = zip(*(pairs[index] for index in group), strict=True)
            for question, options, label in _with_options(questions, answers, random):
                choices = {"text": options, "label": list("ABCD")}
                yield {"question": question, "choices": choices, "answerKey": "ABCD"[label]}


def _copa(random: Random) -> Iterator[Row]:
    causes, effects = list(facts()["causes"]), list(facts()["causes"].values())
    for question, clues, answers in (("cause", effects, causes), ("effect", causes, effects)):
        for group in _similar_groups(answers, 2, CAUSE_PAIRS, random):
            title = new_writer(random).write("cause_title")  # In the corpus no such list begins without one.
            premises = [f"{title} {_sentence(clues[index])}" for index in group]
            choices = [_sentence(answers[index]) for index in group]
            for premise, (first, second), label in _with_options(premises, choices, random):
                yield {"premise": premise, "choice1": first, "choice2": second, "question": question, "label": label}


def _pubmedqa(random: Random) -> Iterator[Row]:
    for study in facts()["studies"]:
        for verdict in VERDICTS * ROWS_PER_VERDICT:
            writer = new_writer(random)
            opening, remark = correct_articles(writer.write("study_open")), writer.write(f"study_{verdict}")
            contexts = [opening, f"{study_results(study, verdict, random)} {remark}"]
            yield {
                "question": study["question"],
                "context": {"contexts": contexts, "labels": ["BACKGROUND", "RESULTS"], "meshes": []},
                "long_answer": remark,
                "final_decision": verdict,
            }


def _winogrande(random: Random) -> Iterator[Row]:
    for schema in facts()["winograd_schemas"]:
        nouns = schema["first_nouns"], schema["second_nouns"]
        pairs = [(first, second) for first in nouns[0] for second in nouns[1] if first != second]
        for index in sample_indices(len(pairs), PAIRS_PER_SCHEMA, random):
            first, second = pairs[index]
            title = new_writer(random).write("trouble_title")
            start = f"{title} {schema['sentence'].format(first=first, second=second)} because the _"
            sentences = [f"{start} {schema[reason]}." for reason in ("first_reason", "second_reason")]
            for sentence, options, label in _with_options(sentences, pairs[index], random):
                yield {"sentence": sentence, "option1": options[0], "option2": options[1], "answer": str(label + 1)}


def _hellaswag(random: Random) -> Iterator[Row]:
    routines = list(facts()["routines"].items())
    for cut in range(CUTS):
        endings = [_cut(steps, "she", cut)[2] for _, steps in routines]
        for group in _similar_groups(endings, 4, GROUPS_PER_CUT, random):
            writer = new_writer(random)
            parts = [_cut(routines[index][1], writer.bound["they"], cut) for index in group]
            activities = [routines[index][0] for index in group]
            questions = _with_options(activities, [ending for _, _, ending in parts], random)
            for index, (lead, stem, _), (activity, options, label) in zip(group, parts, questions, strict=True):
                context = f"{correct_articles(writer.write('routine_open'))} {activity}.{lead}"
                row = {"activity_label": _sentence(activity)[:-1], "ctx_a": context, "ctx_b": stem}
                row |= {"ctx": f"{context} {stem}", "endings": options, "source_id": f"miniature~{index}"}
                yield row | {"split": "val", "split_type": "indomain", "label": str(label)}


def _cut(steps: Sequence[str], they: str, cut: int) -> tuple[str, str, str]:
    """Return the told part of a routine, the sentence that has begun, and how it goes on."""
    first = f" First {they} {steps[0]} and {steps[1]}."
    return (
        ("", f"first {they}", f"{steps[0]} and {steps[1]}."),
        ("", f"first {they} {steps[0]} and", f"{steps[1]}."),
        (first, they, f"{steps[2]}, {steps[3]}, and then {they} {steps[4]}."),
        (first, f"{they} {steps[2]}, {steps[3]}, and then {they}", f"{steps[4]}."),
    )[cut]


_BUILDERS: dict[str, Callable[[Random], Iterator[Row]]] = {
    "piqa": _piqa, "arc_easy": _arc_easy, "copa": _copa, "pubmedqa": _pubmedqa, "winogrande": _winogrande,
    "hellaswag": _hellaswag,
}  # fmt: skip
