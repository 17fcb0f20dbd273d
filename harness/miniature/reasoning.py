"""The miniature's reasoning tasks: what its corpus taught, asked in the formats of six published data sets.

Every row asks for a fact of `knowledge.py` or `cases.py`, in words close to those of `lessons.py` once lm-eval has put
them into its own templates. Facts come in groups of similar length that share their options, and each option is right
exactly once in its group: a scorer that looks at the options alone is right at chance.

The facts are fewer than the rows, so most of them are asked more than once, each time among other options or in another
setting: 40 goals in 144 rows of `piqa`, 112 answers in 144 of `arc_easy`, 36 causes in 144 of `copa` (half of them for
the cause, half for the effect), 14 studies in 126 of `pubmedqa`, 6 fits in 144 of `winogrande` and 14 routines in 144
of `hellaswag`.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from harness.miniature.cases import FITS, ROUTINES, STUDIES
from harness.miniature.grammar import Writer, finished, sample
from harness.miniature.knowledge import CAUSES, GOALS, RELATIONS
from harness.miniature.lessons import LESSONS, study_text
from harness.miniature.lexicon import ROLES, WORDS, cast

TASKS: tuple[str, ...] = ("piqa", "arc_easy", "copa", "pubmedqa", "winogrande", "hellaswag")
"""The tasks, by lm-eval's names."""

VERDICTS = ("yes", "no", "maybe")
"""What `pubmedqa` chooses from, as lm-eval orders it."""
GOAL_PAIRS = 72
CAUSE_PAIRS = 36
"""How many pairs of causes are asked for, and as many pairs of effects."""
STUDY_TURNS = 3
"""How often every study comes with every verdict, each time with other numbers."""
FIT_PAIRS = 12
"""How many pairs of things every fit is asked of, each pair with both reasons."""
CUTS = 4
"""The places at which a routine is cut into a beginning and an ending."""
CUT_GROUPS = 9
UNEVEN = 0.3
"""By what part a text may count as longer than it is when its like is looked for, so that it meets several others."""

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
    made = list(_MAKERS[task](random))
    order = sample(len(made), len(made), random)
    return [_numbered(task, number, made[index]) for number, index in enumerate(order)]


def _numbered(task: str, number: int, row: _Row) -> _Row:
    numbers: dict[str, _Row] = {
        "arc_easy": {"id": f"miniature_{number}"},
        "copa": {"idx": number},
        "pubmedqa": {"pubid": number},
        "hellaswag": {"ind": number},
    }
    return numbers.get(task, {}) | row


def _alike(texts: Sequence[str], size: int, count: int, random: Random) -> list[list[int]]:
    """Return `count` different groups of `size` texts of similar length, by index; all texts come about as often."""
    groups: dict[frozenset[int], list[int]] = {}
    per_round = -(-len(texts) // size)
    while len(groups) < count:
        weights = [len(text) * (1 + UNEVEN * random.random()) for text in texts]
        order = sorted(range(len(texts)), key=weights.__getitem__)
        # Neighbours overlap where the size does not divide the number of texts, so that nothing is left out.
        starts = [turn * (len(texts) - size) // max(1, per_round - 1) for turn in range(per_round)]
        for turn in sample(per_round, per_round, random):
            group = order[starts[turn] : starts[turn] + size]
            groups.setdefault(frozenset(group), group)
    return list(groups.values())[:count]


def _asked(questions: Sequence[str], answers: Sequence[str], random: Random) -> Iterator[tuple[str, list[str], int]]:
    """Yield every question with all the answers as options, and where its own is: each time in another place."""
    for own, place in enumerate(sample(len(answers), len(answers), random)):
        others = [answer for index, answer in enumerate(answers) if index != own]
        options = [others[index] for index in sample(len(others), len(others), random)]
        options.insert(place, answers[own])
        yield questions[own], options, place


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _writer(random: Random) -> Writer:
    return Writer({**WORDS, **LESSONS}, ROLES, random, cast(random))


def _piqa(random: Random) -> Iterator[_Row]:
    questions = [f"How do I {goal}?" for goal, _ in GOALS]
    ways = [way for _, way in GOALS]
    for group in _alike(ways, 2, GOAL_PAIRS, random):
        for question, options, right in _asked([questions[i] for i in group], [ways[i] for i in group], random):
            yield {"goal": question, "sol1": options[0], "sol2": options[1], "label": right}


def _arc_easy(random: Random) -> Iterator[_Row]:
    # How a question begins tells what kind of thing answers it: a place, a thing, a change.
    kinds: dict[str, list[tuple[str, str]]] = {}
    for relation in RELATIONS:
        kind = " ".join(relation.question.split()[:2])
        for subject, answer in relation.answers.items():
            kinds.setdefault(kind, []).append((relation.question.format(subject=subject), answer))
    for facts in kinds.values():
        for group in _alike([answer for _, answer in facts], 4, len(facts) // 3, random):
            questions, answers = zip(*(facts[index] for index in group), strict=True)
            for question, options, right in _asked(questions, answers, random):
                choices = {"text": options, "label": list("ABCD")}
                yield {"question": question, "choices": choices, "answerKey": "ABCD"[right]}


def _copa(random: Random) -> Iterator[_Row]:
    for asks, premise, choice in (("cause", 1, 0), ("effect", 0, 1)):
        for group in _alike([pair[choice] for pair in CAUSES], 2, CAUSE_PAIRS, random):
            # In the corpus no such list begins without a title.
            title = _writer(random).write("cause_title")
            premises = [f"{title} {_sentence(CAUSES[index][premise])}" for index in group]
            choices = [_sentence(CAUSES[index][choice]) for index in group]
            for text, options, right in _asked(premises, choices, random):
                yield {"premise": text, "choice1": options[0], "choice2": options[1], "question": asks, "label": right}


def _pubmedqa(random: Random) -> Iterator[_Row]:
    for index, study in enumerate(STUDIES):
        for verdict in VERDICTS * STUDY_TURNS:
            writer = _writer(random)
            opening = finished(writer.write("study_open"))
            remark = writer.write(f"study_{verdict}")
            results = f"{study_text(index, verdict, random)} {remark}"
            yield {
                "question": study.question,
                "context": {"contexts": [opening, results], "labels": ["BACKGROUND", "RESULTS"], "meshes": []},
                "long_answer": remark,
                "final_decision": verdict,
            }


def _winogrande(random: Random) -> Iterator[_Row]:
    for fit in FITS:
        pairs = [(first, second) for first in fit.firsts for second in fit.seconds if first != second]
        for index in sample(len(pairs), FIT_PAIRS, random):
            first, second = pairs[index]
            title = _writer(random).write("fit_title")
            start = f"{title} {fit.sentence.format(first=first, second=second)} because the _"
            sentences = [f"{start} {reason}." for reason in (fit.first_reason, fit.second_reason)]
            for sentence, options, right in _asked(sentences, pairs[index], random):
                yield {"sentence": sentence, "option1": options[0], "option2": options[1], "answer": str(right + 1)}


def _hellaswag(random: Random) -> Iterator[_Row]:
    names = tuple(ROUTINES)
    for cut in range(CUTS):
        lengths = [_cut(ROUTINES[name], "she", cut)[2] for name in names]
        for group in _alike(lengths, 4, CUT_GROUPS, random):
            writer = _writer(random)
            told = [_cut(ROUTINES[names[index]], writer.bound["they"], cut) for index in group]
            endings = [ending for _, _, ending in told]
            for member, (own, options, right) in enumerate(_asked([names[index] for index in group], endings, random)):
                before, begun, _ = told[member]
                context = f"{finished(writer.write('routine_open'))} {own}.{before}"
                yield {
                    "activity_label": _sentence(own)[:-1],
                    "ctx_a": context,
                    "ctx_b": begun,
                    "ctx": f"{context} {begun}",
                    "endings": options,
                    "source_id": f"miniature~{group[member]}",
                    "split": "val",
                    "split_type": "indomain",
                    "label": str(right),
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


_MAKERS: dict[str, Callable[[Random], Iterator[_Row]]] = {
    "piqa": _piqa,
    "arc_easy": _arc_easy,
    "copa": _copa,
    "pubmedqa": _pubmedqa,
    "winogrande": _winogrande,
    "hellaswag": _hellaswag,
}
