"""Reasoning: our task files against lm-eval's own, its numbers against a naive oracle and its command line."""

import copy
import json
import math
from pathlib import Path
from types import SimpleNamespace

import lm_eval.tasks
import numpy as np
import pytest
import torch
import yaml
from datasets import Dataset
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from evaluators import reasoning
from evaluators.reasoning import FOLDER, TITLES, Reasoning, read_questions
from harness.errors import DataError
from harness.settings import replace

ROWS = {
    "piqa": [
        {"goal": "How do I open a tin?", "sol1": "With an opener.", "sol2": "With a spoon of soup.", "label": 0},
        {"goal": "How do I dry a shirt?", "sol1": "In the lake.", "sol2": "In the sun.", "label": 1},
        {"goal": "How do I cut bread?", "sol1": "With a knife.", "sol2": "With a sock.", "label": 0},
    ],
    "arc_easy": [
        {"question": "Melts?", "choices": {"text": ["ice", "rock", "tree"], "label": list("ABC")}, "answerKey": "A"},
        {"question": "Flies?", "choices": {"text": ["a cup", "a gull"], "label": ["1", "2"]}, "answerKey": "2"},
    ],
    "copa": [
        {"premise": "The man ran. ", "choice1": "It's late.", "choice2": "\"No\".", "question": "cause", "label": 0},
        {"premise": "The cup fell.", "choice1": "It sang.", "choice2": "It broke.", "question": "effect", "label": 1},
    ],
    "pubmedqa": [
        {"question": "Is it so?", "context": {"contexts": ["One.", "Two."]}, "final_decision": "maybe"},
        {"question": "Does it help?", "context": {"contexts": ["It did."]}, "final_decision": "yes"},
    ],
    "winogrande": [
        {"sentence": "Tom thanked Bob because _ had helped.", "option1": "Tom", "option2": "Bob", "answer": "2"},
        {"sentence": "The jar, not the box, broke: _ fell.", "option1": "jar", "option2": "box", "answer": "1"},
    ],
    "hellaswag": [
        {"activity_label": "Roof  shingles", "ctx_a": "A man [title] sits [header] there.", "ctx_b": "he Goes",
         "endings": ["  on [step] and on.", "up [title] down", "it's \"off\"", "in"], "label": "3"},
    ],
}  # fmt: skip
THEIRS = {name: f"{name}/{name}.yaml" for name in ("piqa", "pubmedqa", "hellaswag")}
THEIRS |= {"arc_easy": "arc/arc_easy.yaml", "copa": "super_glue/copa/default.yaml"}
THEIRS |= {"winogrande": "winogrande/default.yaml"}


@pytest.fixture(autouse=True)
def forgetful():
    reasoning.lm_eval_task.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The rows of all tasks, as a user would lay them out."""
    place = tmp_path_factory.mktemp("tasks")
    for task, rows in ROWS.items():
        (place / f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.fixture(scope="module")
def asked(tokenizer):
    ended = copy.deepcopy(tokenizer)
    ended.eos_token = "~"
    return SimpleNamespace(tokenizer=ended)


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(vocabulary=256)


def built(config, rows):
    splits = {"training_split": None, "validation_split": None, "test_split": "rows", "dataset_kwargs": {}}
    config = {key: value for key, value in config.items() if key != "tag"}
    config |= {**splits, "custom_dataset": lambda **_: {"rows": Dataset.from_list(rows)}}
    [task] = lm_eval.tasks.TaskManager(include_defaults=False).load([config])["tasks"].values()
    task.set_config(key="num_fewshot", value=0)
    task.build_all_requests()
    return task


@pytest.mark.parametrize("name", TITLES)
def test_our_task_asks_and_scores_as_lm_evals_own(name):
    rows = ROWS[name]
    if name == "pubmedqa":  # lm-eval's file has the names of a data set that can't be read any more.
        rows = [{**row, "QUESTION": row["question"], "CONTEXTS": row["context"]["contexts"]} for row in rows]
    ours = built(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), rows)
    theirs = built(load_yaml(Path(lm_eval.tasks.__file__).parent / THEIRS[name], resolve_func=True), rows)
    assert [request.args for request in ours.instances] == [request.args for request in theirs.instances]
    assert ours.VERSION == theirs.VERSION
    for number, (one, other) in enumerate(zip(ours.eval_docs, theirs.eval_docs, strict=True)):
        choices = range(sum(request.doc_id == number for request in ours.instances))
        scores = [
            [task.process_results(doc, [(-5.0 * (choice != best), False) for choice in choices]) for best in choices]
            for task, doc in ((ours, one), (theirs, other))
        ]
        assert scores[0] == scores[1]
        assert sorted(score["acc"] for score in scores[0])[-2:] == [0.0, 1.0]


def log_likelihood(model, tokenizer, context, continuation):
    whole = tokenizer(context + continuation)["input_ids"]
    start = len(tokenizer(context)["input_ids"])
    with torch.no_grad():
        log_p = model(torch.tensor([whole])).logits[0].log_softmax(-1)
    return sum(float(log_p[position - 1, whole[position]]) for position in range(start, len(whole)))


def test_accuracies_equal_a_naive_oracle(model, asked, folder):
    found = Reasoning(tasks_path=str(folder)).evaluate(model, asked).numbers
    hits, by_length = [], []
    for row in ROWS["piqa"]:
        context = f"Question: {row['goal']}\nAnswer:"
        choices = (f" {row[key]}" for key in ("sol1", "sol2"))
        log_p = np.array([log_likelihood(model, asked.tokenizer, context, choice) for choice in choices])
        hits.append(float(np.argmax(log_p) == row["label"]))
        by_length.append(float(np.argmax(log_p / [len(row["sol1"]), len(row["sol2"])]) == row["label"]))
    assert found["piqa"] == pytest.approx(np.mean(hits))
    assert found["piqa_norm"] == pytest.approx(np.mean(by_length))
    assert found["piqa_stderr"] == pytest.approx(np.std(hits, ddof=1) / math.sqrt(len(hits)))
    assert found["reasoning"] == pytest.approx(np.mean([found[task] for task in TITLES]))
    contexts = (f"Tom thanked Bob because {name}" for name in ("Tom", "Bob"))
    sides = [log_likelihood(model, asked.tokenizer, context, " had helped.") for context in contexts]
    one = Reasoning(tasks=("winogrande",), tasks_path=str(folder), limit=1).evaluate(model, asked)
    assert one.numbers["winogrande"] == float(np.argmax(sides) == 1)
    assert one.notes["rows"]["winogrande"] == 1


def test_a_model_of_nan_answers_nothing(make_model, asked, folder):
    model = make_model(vocabulary=256)
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = float("nan")
    found = Reasoning(tasks=("piqa",), tasks_path=str(folder)).evaluate(model, asked)
    assert math.isnan(found.numbers["piqa"])
    assert "are NaN, so it has no likelihood" in found.notes["failed"]["piqa"]


def test_a_token_that_spans_the_border_is_the_choices(model):
    """`answer:` and `a` become one token: lm-eval's own split leaves nothing of the choice, and has no likelihood."""
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, ":": 2, ":a": 3, "Ġ": 4}, merges=[(":", "a")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    merging = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="b")
    theirs = HFLM(pretrained=model, tokenizer=copy.deepcopy(merging), backend="causal")
    assert theirs._encode_pair("b:", "a")[1] == []
    assert reasoning.encoded_pair(merging, "b:", "a") == ([1], [3])
    for context, choice in (("b:", " a"), ("b: ", "a"), ("ab", "ab:a"), ("a:", "b")):
        assert reasoning.encoded_pair(merging, context, choice) == theirs._encode_pair(context, choice)
    request = ("b:", "a"), *reasoning.encoded_pair(merging, "b:", "a")
    [(log_p, _)] = theirs._loglikelihood_tokens([request], disable_tqdm=True)
    with torch.no_grad():
        assert log_p == pytest.approx(float(model(torch.tensor([[1]])).logits[0, -1].log_softmax(-1)[3]), abs=1e-5)


def test_the_digest_of_the_files_is_an_input(folder, tmp_path):
    evaluator = Reasoning(tasks=("piqa",), tasks_path=str(tmp_path))
    (tmp_path / "piqa.jsonl").write_bytes((folder / "piqa.jsonl").read_bytes())
    before = evaluator.inputs()
    assert before == Reasoning(tasks=("piqa",), tasks_path=str(folder)).inputs()
    with (tmp_path / "piqa.jsonl").open("a") as file:
        file.write(json.dumps({**ROWS["piqa"][0], "goal": "How?"}) + "\n")
    assert evaluator.inputs() != before
    assert replace(evaluator, tasks_path="miniature").inputs() == {"piqa": "miniature, version 1.0"}


def test_files_are_read_as_their_authors_publish_them(tmp_path):
    (tmp_path / "piqa_dev.jsonl").write_text(json.dumps({"id": "x", "goal": "g", "sol1": "a", "sol2": "b"}))
    (tmp_path / "piqa_dev_labels.lst").write_text("1\n")
    assert [row["label"] for row in read_questions("piqa", tmp_path)] == [1]
    answered = {"123": {"QUESTION": "Q?", "CONTEXTS": ["A.", "B."], "final_decision": "no"}}
    (tmp_path / "pubmedqa_labeled.json").write_text(json.dumps(answered))
    [row] = read_questions("pubmedqa", tmp_path)
    assert row == {"question": "Q?", "context": {"contexts": ["A.", "B."]}, "final_decision": "no"}
    (tmp_path / "piqa_dev_labels.lst").write_text("1\n0\n")
    with pytest.raises(DataError, match="has 2 labels for the 1 rows"):
        read_questions("piqa", tmp_path)
