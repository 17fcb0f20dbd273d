"""The miniature's reasoning tasks: what its corpus taught, asked in the formats of six published data sets.

Every row asks for a fact of `facts.yaml`, in words close to those of the lessons in `documents.py` once lm-eval has put
them into its own templates. Facts come in groups of similar length that share their options, and each option is right
exactly once in its group: a scorer that looks at the options alone is right at chance.

The facts are fewer than the rows, so most of them are asked more than once, each time among other options or in another
setting: 40 goals in 144 rows of `piqa`, 112 answers in 144 of `arc_easy`, 36 causes in 144 of `copa` (half of them for
the cause, half for the effect), 14 studies in 126 of `pubmedqa`, 6 Winograd schemas in 144 of `winogrande` and 14
routines in 144 of `hellaswag`.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from harness.miniature.documents import new_writer, study_results
from harness.miniature.facts import facts
from harness.miniature.grammar import correct_articles, sample_indices

TASKS: tuple[str, ...] = ("piqa", "arc_easy", "copa", "pubmedqa", "winogrande", "hellaswag")
"""The tasks, by lm-eval's names."""

VERDICTS = ("yes", "no", "maybe")
"""What `pubmedqa` chooses from, as lm-eval orders it."""
GOAL_PAIRS = 72
CAUSE_PAIRS = 36
"""How many pairs of causes are asked for, and as many pairs of effects."""
ROWS_PER_VERDICT = 3
"""How often every study comes with every verdict, each time with other numbers."""
PAIRS_PER_SCHEMA = 12
"""How many pairs of things every Winograd schema is asked of, each pair with both reasons."""
CUTS = 4
"""The points at which a routine is cut into a beginning and an ending."""
GROUPS_PER_CUT = 9
LENGTH_NOISE = 0.3
"""By what part a text may count as longer than it is when similar ones are looked for, so that it meets several."""

_Row = dict[str, Any]


def rows(task: str) -> list[dict[str, Any]]:
    """Return the validation rows of a task, in the schema of the hub data set that lm-eval reads.

    They are the same in every call. `pubmedqa` is laid out as in `qiaojin/PubMedQA`.

    Args:
        task: One of `TASKS`.

    Raises:
        KeyError: There is no such task.

    Example:
        >>> row = rows("piqa")[0]
        >>> row["goal"]
        'How do I clean a dirty window?'
        >>> row["sol1"], row["sol2"], row["label"]
        ('draw it over a wet grinding stone', 'wipe it with vinegar and old paper', 1)
    """
    if task not in TASKS:
        raise KeyError(f"no task of the miniature is called {task!r}; there are {', '.join(TASKS)}")
    random = Random(TASKS.index(task))
    unordered = list(_BUILDERS[task](random))
    order = sample_indices(len(unordered), len(unordered), random)
    return [_identifier(task, number) | unordered[index] for number, index in enumerate(order)]


def _identifier(task: str, number: int) -> _Row:
    """Return the field by which a task's data set numbers its rows; not every one has it."""
    identifiers: dict[str, _Row] = {
        "arc_easy": {"id": f"miniature_{number}"},
        "copa": {"idx": number},
        "pubmedqa": {"pubid": number},
        "hellaswag": {"ind": number},
    }
    return identifiers.get(task, {})


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


def _piqa(random: Random) -> Iterator[_Row]:
    questions = [f"How do I {goal}?" for goal in facts().goals]
    ways = list(facts().goals.values())
    for group in _similar_groups(ways, 2, GOAL_PAIRS, random):
        group_questions, group_ways = [questions[index] for index in group], [ways[index] for index in group]
        for question, options, label in _with_options(group_questions, group_ways, random):
            yield {"goal": question, "sol1": options[0], "sol2": options[1], "label": label}


def _arc_easy(random: Random) -> Iterator[_Row]:
    # How a question begins tells what kind of thing answers it: a place, a thing, a change.
    kinds: dict[str, list[tuple[str, str]]] = {}
    for relation in facts().relations:
        kind = " ".join(relation.question.split()[:2])
        for subject, answer in relation.answers.items():
            kinds.setdefault(kind, []).append((relation.question.format(subject=subject), answer))
    for pairs in kinds.values():
        for group in _similar_groups([answer for _, answer in pairs], 4, len(pairs) // 3, random):
            questions, answers = zip(*(pairs[index] for index in group), strict=True)
            for question, options, label in _with_options(questions, answers, random):
                choices = {"text": options, "label": list("ABCD")}
                yield {"question": question, "choices": choices, "answerKey": "ABCD"[label]}


def _copa(random: Random) -> Iterator[_Row]:
    causes, effects = list(facts().causes), list(facts().causes.values())
    for asked, given, wanted in (("cause", effects, causes), ("effect", causes, effects)):
        for group in _similar_groups(wanted, 2, CAUSE_PAIRS, random):
            # In the corpus no such list begins without a title.
            title = new_writer(random).write("cause_title")
            premises = [f"{title} {_sentence(given[index])}" for index in group]
            choices = [_sentence(wanted[index]) for index in group]
            for premise, (first, second), label in _with_options(premises, choices, random):
                yield {"premise": premise, "choice1": first, "choice2": second, "question": asked, "label": label}


def _pubmedqa(random: Random) -> Iterator[_Row]:
    for index, study in enumerate(facts().studies):
        for verdict in VERDICTS * ROWS_PER_VERDICT:
            writer = new_writer(random)
            opening = correct_articles(writer.write("study_open"))
            remark = writer.write(f"study_{verdict}")
            results = f"{study_results(index, verdict, random)} {remark}"
            yield {
                "question": study.question,
                "context": {"contexts": [opening, results], "labels": ["BACKGROUND", "RESULTS"], "meshes": []},
                "long_answer": remark,
                "final_decision": verdict,
            }


def _winogrande(random: Random) -> Iterator[_Row]:
    for schema in facts().winograd_schemas:
        pairs = [(first, second) for first in schema.first_nouns for second in schema.second_nouns if first != second]
        for index in sample_indices(len(pairs), PAIRS_PER_SCHEMA, random):
            first, second = pairs[index]
            title = new_writer(random).write("trouble_title")
            start = f"{title} {schema.sentence.format(first=first, second=second)} because the _"
            sentences = [f"{start} {reason}." for reason in (schema.first_reason, schema.second_reason)]
            for sentence, options, label in _with_options(sentences, pairs[index], random):
                yield {"sentence": sentence, "option1": options[0], "option2": options[1], "answer": str(label + 1)}


def _hellaswag(random: Random) -> Iterator[_Row]:
    activities, routines = list(facts().routines), list(facts().routines.values())
    for cut in range(CUTS):
        for group in _similar_groups([_cut(steps, "she", cut)[2] for steps in routines], 4, GROUPS_PER_CUT, random):
            writer = new_writer(random)
            parts = [_cut(routines[index], writer.bound["they"], cut) for index in group]
            group_activities = [activities[index] for index in group]
            questions = _with_options(group_activities, [ending for _, _, ending in parts], random)
            for index, (before, begun, _), (activity, options, label) in zip(group, parts, questions, strict=True):
                context = f"{correct_articles(writer.write('routine_open'))} {activity}.{before}"
                yield {
                    "activity_label": _sentence(activity)[:-1],
                    "ctx_a": context,
                    "ctx_b": begun,
                    "ctx": f"{context} {begun}",
                    "endings": options,
                    "source_id": f"miniature~{index}",
                    "split": "val",
                    "split_type": "indomain",
                    "label": str(label),
                }


def _cut(steps: Sequence[str], they: str, cut: int) -> tuple[str, str, str]:
    """Return what has been told of a routine, the sentence that has begun, and how it goes on."""
    first = f" First {they} {steps[0]} and {steps[1]}."
    return (
        ("", f"first {they}", f"{steps[0]} and {steps[1]}."),
        ("", f"first {they} {steps[0]} and", f"{steps[1]}."),
        (first, they, f"{steps[2]}, {steps[3]}, and then {they} {steps[4]}."),
        (first, f"{they} {steps[2]}, {steps[3]}, and then {they}", f"{steps[4]}."),
    )[cut]


_BUILDERS: dict[str, Callable[[Random], Iterator[_Row]]] = {
    "piqa": _piqa,
    "arc_easy": _arc_easy,
    "copa": _copa,
    "pubmedqa": _pubmedqa,
    "winogrande": _winogrande,
    "hellaswag": _hellaswag,
}
