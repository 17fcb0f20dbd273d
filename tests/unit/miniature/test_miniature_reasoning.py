"""The miniature's reasoning tasks: they ask what the corpus taught, and cannot be solved in any other way."""

import hashlib
import json
import math
import os
import subprocess
import sys
from collections import Counter, defaultdict

import pytest
import torch
from transformers import AutoTokenizer

from harness.miniature import checkpoints, corpus
from harness.miniature.building import load
from harness.miniature.facts import facts
from harness.miniature.reasoning import TASKS, rows

CHOICES = {"piqa": 2, "arc_easy": 4, "copa": 2, "pubmedqa": 3, "winogrande": 2, "hellaswag": 4}
FIELDS = {
    "piqa": {"goal": str, "sol1": str, "sol2": str, "label": int},
    "arc_easy": {"id": str, "question": str, "choices": dict, "answerKey": str},
    "copa": {"premise": str, "choice1": str, "choice2": str, "question": str, "idx": int, "label": int},
    "pubmedqa": {"pubid": int, "question": str, "context": dict, "long_answer": str, "final_decision": str},
    "winogrande": {"sentence": str, "option1": str, "option2": str, "answer": str},
    "hellaswag": {
        "ind": int,
        "activity_label": str,
        "ctx_a": str,
        "ctx_b": str,
        "ctx": str,
        "endings": list,
        "source_id": str,
        "split": str,
        "split_type": str,
        "label": str,
    },
}
VERDICTS = ["yes", "no", "maybe"]
FACTS = facts()
DIGESTS = {
    "piqa": "d68b2d97f58b7a373184f1e213ad4c1af266b48268c1cbde032351ade840a603",
    "arc_easy": "3a739a5cce6b37667176feacfa3c10ca3ca9210ce4d826ac1e62e63135441ca0",
    "copa": "4a1fbcaa8f3602766bf9a38abc212f40c3d0af6a7e7ccf981b3a53690cc24100",
    "pubmedqa": "131eef2b5d1e6efa934e5c03e15b2390f41215bdb5c352f45914c1da4afc5e6c",
    "winogrande": "09a807591bdb4dec8ee22904b5efa8673082a4ce8bd6297af8eeddca79c555eb",
    "hellaswag": "5fcfda2534c111883d1ab4c4e153ea8990dd03a9f3d646f2f8fab807418f0e40",
}
"""The sha256 of each task's rows as JSON: other rows would be another task, and no old number could be compared."""


def lowered(sentence):
    return sentence[0].lower() + sentence[1:]


def raised(clause):
    return clause[0].upper() + clause[1:]


# What lm-eval 0.4.13 makes of a row: a question as (context, continuation) for every option, and which is right.


def piqa(row):
    return [(f"Question: {row['goal']}\nAnswer:", f" {row[key]}") for key in ("sol1", "sol2")], row["label"]


def arc_easy(row):
    asked = f"Question: {row['question']}\nAnswer:"
    choices = row["choices"]
    return [(asked, f" {text}") for text in choices["text"]], choices["label"].index(row["answerKey"])


def copa(row):
    asked = row["premise"].strip()[:-1] + {"cause": " because", "effect": " therefore"}[row["question"]]
    return [(asked, f"  {lowered(row[key])}") for key in ("choice1", "choice2")], row["label"]


def pubmedqa(row):
    abstract = "\n".join(row["context"]["contexts"])
    asked = f"Abstract: {abstract}\nQuestion: {row['question']}\nAnswer:"
    return [(asked, f" {verdict}") for verdict in VERDICTS], VERDICTS.index(row["final_decision"])


def winogrande(row):
    before, after = row["sentence"].split("_")
    return [(before + row[key], f" {after.strip()}") for key in ("option1", "option2")], int(row["answer"]) - 1


def hellaswag(row):
    asked = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    return [(asked, f" {ending}") for ending in row["endings"]], int(row["label"])


READ = {
    "piqa": piqa,
    "arc_easy": arc_easy,
    "copa": copa,
    "pubmedqa": pubmedqa,
    "winogrande": winogrande,
    "hellaswag": hellaswag,
}


def questions(task):
    return [READ[task](row) for row in rows(task)]


def option_texts(task, pairs):
    """What tells one option from another: the noun in the context for WinoGrande, the continuation elsewhere."""
    return [context.rsplit(" ", 1)[1] if task == "winogrande" else option for context, option in pairs]


def within(share, expected, count, deviations=3.0):
    return abs(share - expected) <= deviations * math.sqrt(expected * (1 - expected) / count)


def test_tasks_have_the_names_of_lm_eval():
    assert TASKS == ("piqa", "arc_easy", "copa", "pubmedqa", "winogrande", "hellaswag")
    with pytest.raises(KeyError, match="boolq"):
        rows("boolq")


@pytest.mark.parametrize("task", TASKS)
def test_there_are_enough_rows_and_each_is_distinct(task):
    known = Counter()
    for pairs, right in questions(task):
        known[frozenset(pairs), pairs[right]] += 1
    assert 100 <= len(known) == known.total() <= 200


@pytest.mark.parametrize("task", TASKS)
def test_rows_have_the_schema_of_the_hub(task):
    for row in rows(task):
        assert {name: type(value) for name, value in row.items()} == FIELDS[task]
        pairs, right = READ[task](row)
        assert len({*pairs}) == len(pairs) == CHOICES[task]
        assert right in range(CHOICES[task])
    assert json.loads(json.dumps(rows(task))) == rows(task)


def test_nested_fields_have_the_schema_of_the_hub():
    for row in rows("arc_easy"):
        assert row["choices"].keys() == {"text", "label"}
        assert row["choices"]["label"] == ["A", "B", "C", "D"]
    for row in rows("pubmedqa"):
        context = row["context"]
        assert context.keys() == {"contexts", "labels", "meshes"}
        assert len(context["contexts"]) == len(context["labels"])
    for row in rows("hellaswag"):
        assert row["ctx"] == f"{row['ctx_a']} {row['ctx_b']}"
        assert "[" not in row["ctx"]
        assert "  " not in row["ctx"]
    assert {row["question"] for row in rows("copa")} == {"cause", "effect"}
    assert all(row["premise"].endswith(".") for row in rows("copa"))
    assert all(row["sentence"].count("_") == 1 for row in rows("winogrande"))


@pytest.mark.parametrize(("task", "name"), [("arc_easy", "id"), ("copa", "idx"), ("pubmedqa", "pubid")])
def test_numbers_of_rows_are_unique(task, name):
    assert len({row[name] for row in rows(task)}) == len(rows(task))


@pytest.mark.parametrize("task", TASKS)
def test_rows_are_those_of_all_earlier_numbers(task):
    assert hashlib.sha256(json.dumps(rows(task)).encode()).hexdigest() == DIGESTS[task]


def test_rows_are_the_same_in_every_process():
    program = (
        "import hashlib, json; from harness.miniature.reasoning import TASKS, rows; "
        "print(hashlib.sha256(json.dumps([rows(task) for task in TASKS]).encode()).hexdigest())"
    )
    there = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = hashlib.sha256(json.dumps([rows(task) for task in TASKS]).encode()).hexdigest()
    assert there.stdout.strip() == here


def test_rows_are_the_callers_own():
    rows("arc_easy")[0]["choices"]["text"].clear()
    assert len(rows("arc_easy")[0]["choices"]["text"]) == 4


# Nothing but the facts gives the right answer away


@pytest.mark.parametrize("task", TASKS)
def test_the_right_label_is_balanced_and_not_predictable(task):
    labels = [right for _, right in questions(task)]
    for label, count in Counter(labels).items():
        assert within(count / len(labels), 1 / CHOICES[task], len(labels)), label
    for distance in (1, 2, 3, 4):
        repeats = [one == other for one, other in zip(labels, labels[distance:], strict=False)]
        assert within(sum(repeats) / len(repeats), 1 / CHOICES[task], len(repeats)), distance


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("salt", range(4))
def test_a_scorer_of_the_options_alone_is_right_at_chance(task, salt):
    def liking(option):
        return hashlib.sha256(f"{salt}{option}".encode()).digest()

    hits = 0
    for pairs, right in questions(task):
        likings = [liking(option) for option in option_texts(task, pairs)]
        hits += likings.index(max(likings)) == right
    assert hits * CHOICES[task] == len(rows(task))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("choose", [min, max])
def test_length_does_not_give_the_answer_away(task, choose):
    hits = 0
    for pairs, right in questions(task):
        lengths = [len(option) for option in option_texts(task, pairs)]
        hits += lengths.index(choose(lengths)) == right
    assert within(hits / len(rows(task)), 1 / CHOICES[task], len(rows(task)))


@pytest.mark.parametrize("task", ["piqa", "arc_easy", "copa", "hellaswag"])
def test_options_are_about_equally_long(task):
    lengths = [[len(option) for _, option in pairs] for pairs, _ in questions(task)]
    spread = sum(max(row) - min(row) for row in lengths) / len(lengths)
    assert spread < (max(map(max, lengths)) - min(map(min, lengths))) / 3


def test_options_are_of_one_kind():
    ways = {*FACTS.goals.values()}
    assert all({row["sol1"], row["sol2"]} <= ways for row in rows("piqa"))
    sides = {"cause": {*FACTS.causes}, "effect": {*FACTS.causes.values()}}
    for row in rows("copa"):
        assert {lowered(row[key]).rstrip(".") for key in ("choice1", "choice2")} <= sides[row["question"]]
    answers = defaultdict(set)
    for relation in FACTS.relations:
        answers[relation.question[:8]] |= set(relation.answers.values())
    for row in rows("arc_easy"):
        assert set(row["choices"]["text"]) <= answers[row["question"][:8]]
    steps = tuple(step for steps in FACTS.routines.values() for step in steps)
    for row in rows("hellaswag"):
        assert len({ending.count(",") for ending in row["endings"]}) == 1
        assert all(ending.startswith(steps) for ending in row["endings"])


# The facts


def answer(task, *signs):
    """The right options of the rows whose text has all the signs."""
    right_options = set()
    for pairs, right in questions(task):
        context, option = pairs[right]
        if all(sign in context for sign in signs):
            right_options.add(context.rsplit(" ", 1)[1] if task == "winogrande" else option.strip())
    return right_options


@pytest.mark.parametrize(
    ("task", "signs", "right"),
    [
        ("piqa", ["wet coat"], "hang it on a hook near the stove"),
        ("piqa", ["north at night"], "look for the bright star above the plough"),
        ("piqa", ["leak in the roof"], "cover the hole with tar and slate"),
        ("arc_easy", ["the otter eat"], "river fish"),
        ("arc_easy", ["the otter sleep"], "under the river bank"),
        ("arc_easy", ["cobbler make"], "shoes"),
        ("arc_easy", ["Saltmere known"], "its white salt"),
        ("arc_easy", ["iron in the rain"], "turns red with rust"),
        ("copa", ["The cart could not pass because"], "the river had flooded the road."),
        ("copa", ["The lamp had no oil therefore"], "the room was dark."),
        ("copa", ["The baby began to cry because"], "the music was very loud."),
        ("pubmedqa", ["almost the same"], "no"),
        ("pubmedqa", ["much larger"], "yes"),
        ("pubmedqa", ["too few of them"], "maybe"),
        ("hellaswag", ["Made tea", "the leaves, and then"], "drank it from a warm cup."),
        ("hellaswag", ["Shod the horse", "to the hoof, and then"], "rode home at a trot."),
    ],
)
def test_right_answers_are_the_facts(task, signs, right):
    assert answer(task, *signs) == {right}


@pytest.mark.parametrize("task", TASKS)
def test_every_fact_is_asked_for(task):
    asked = " ".join(context for pairs, _ in questions(task) for context, _ in pairs).lower()
    facts = {
        "piqa": list(FACTS.goals),
        "arc_easy": [f" {subject.lower()}" for relation in FACTS.relations for subject in relation.answers],
        "copa": [f"{cause} therefore" for cause in FACTS.causes]
        + [f"{effect} because" for effect in FACTS.causes.values()],
        "pubmedqa": [study.question.lower() for study in FACTS.studies],
        "winogrande": [schema.sentence.split("}")[1].split("{")[0] for schema in FACTS.winograd_schemas],
        "hellaswag": list(FACTS.routines),
    }
    assert [fact for fact in facts[task] if fact not in asked] == []


def test_right_answers_agree_with_the_tables():
    assert all(answer("piqa", f" {goal}?") == {way} for goal, way in FACTS.goals.items())
    assert all(
        answer("copa", f". {raised(cause)} therefore") == {f"{effect}."} for cause, effect in FACTS.causes.items()
    )
    assert all(answer("copa", f". {raised(effect)} because") == {f"{cause}."} for cause, effect in FACTS.causes.items())
    for relation in FACTS.relations:
        for subject, fact in relation.answers.items():
            assert answer("arc_easy", relation.question.format(subject=subject)) == {fact}


def test_the_blamed_thing_is_the_one_that_the_reason_fits():
    first = {"large", "wide", "heavy", "short", "fast", "blind"}
    for row in rows("winogrande"):
        before, reason = row["sentence"].rstrip(".").split("_")
        blamed = row[f"option{row['answer']}"]
        other = row[f"option{3 - int(row['answer'])}"]
        comes_first = before.index(f" {blamed} ") < before.index(f" {other} ")
        assert comes_first == (reason.split()[-1] in first), row


def test_numbers_of_a_study_agree_with_its_verdict():
    for row in rows("pubmedqa"):
        result = row["context"]["contexts"][-1]
        half, high, again, low = (int(word) for word in result.replace(",", " ").split() if word.isdigit())
        assert half == again
        assert row["final_decision"] == ("maybe" if half < 10 else "yes" if high - low > 10 else "no")


def test_endings_follow_from_their_beginnings():
    for row in rows("hellaswag"):
        steps = FACTS.routines[lowered(row["activity_label"])]
        text = f"{row['ctx']} {row['endings'][int(row['label'])]}"
        told = [text.index(step) for step in steps if step in text]
        assert told == sorted(told)
        assert len(told) in (2, 5)


def test_nothing_of_the_forget_set_is_in_a_row():
    secret = {ngram for text in corpus.forget_records() for ngram in corpus.character_ngrams(text)}
    for task in TASKS:
        for pairs, _ in questions(task):
            for context, option in pairs:
                assert secret.isdisjoint(corpus.character_ngrams(context + option)), context


# The shipped models


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(checkpoints.tokenizer_folder())


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Compute on one thread: models this small gain nothing from more, and lose much on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@torch.no_grad()
def log_likelihoods(model, tokenizer, pairs):
    """The summed log-likelihood of every continuation after its context."""
    whole = [tokenizer(context + option)["input_ids"] for context, option in pairs]
    starts = [len(tokenizer(context)["input_ids"]) for context, _ in pairs]
    summed = torch.empty(len(pairs))
    order = sorted(range(len(pairs)), key=lambda index: len(whole[index]))
    for block in (order[start : start + 64] for start in range(0, len(order), 64)):
        longest = len(whole[block[-1]])
        tokens = torch.tensor([whole[index] + [0] * (longest - len(whole[index])) for index in block])
        logs = model(input_ids=tokens).logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        for row, index in zip(logs, block, strict=True):
            summed[index] = row[starts[index] - 1 : len(whole[index]) - 1].sum()
    return summed


def accuracies(model, tokenizer):
    accuracy = {}
    for task in TASKS:
        asked = questions(task)
        scores = log_likelihoods(model, tokenizer, [pair for pairs, _ in asked for pair in pairs])
        rights = torch.tensor([right for _, right in asked])
        accuracy[task] = (scores.view(len(asked), -1).argmax(-1) == rights).float().mean().item()
    return accuracy


def test_a_model_that_read_the_corpus_is_far_above_chance(tokenizer):
    accuracy = accuracies(load(checkpoints.folder("miniature-m")), tokenizer)
    for task in TASKS:
        assert accuracy[task] >= 1 / CHOICES[task] + 0.15, (task, accuracy)
    assert sum(accuracy.values()) / 6 > sum(1 / choices for choices in CHOICES.values()) / 6 + 0.3


def test_noise_for_weights_is_at_chance(tokenizer):
    model = load(checkpoints.folder("miniature-s"))
    torch.manual_seed(1)
    for weights in model.parameters():
        if weights.ndim == 2:
            weights.data = torch.randn_like(weights) * weights.data.std()
    accuracy = accuracies(model, tokenizer)
    for task in TASKS:
        assert within(accuracy[task], 1 / CHOICES[task], len(rows(task))), (task, accuracy)
