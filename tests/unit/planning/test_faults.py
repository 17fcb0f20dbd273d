"""The faults of a sweep file's settings: one case a rule, each by its path."""

import numpy as np
import pytest

from harness.planning.evaluators import evaluator_faults
from harness.plugins import EVALUATORS
from harness.settings import Collapse


@pytest.mark.parametrize(
    ("replaced", "path", "reason"),
    [
        ({"models": None}, "models", "is missing: which models to erase from? For instance models: [miniature-m]."),
        ({"models": "[{id: MODEL, engine: deepsped}]"}, "models.0.engine", "no engine is called 'deepsped'. Did"),
        ({"models": "[{id: MODEL, engine: {torch: , deepspeed: }}]"}, "models.0.engine", "names 2 engines: a model is"),
        ({"models": "[{id: MODEL, retrained: NONE}]"}, "models.0.retrained", "'NONE' is not a folder, nor a hub id"),
        ({"models": "[miniatur-m]"}, "models.0", "Did you mean 'miniature-m'?"),
        ({"name": "my sweep"}, "name", "must be a name of letters, digits, '-' and '_', or null; got the text 'my"),
        ({"training": "{learning_rate: .inf}"}, "training.learning_rate", "must be a number above 0; got inf."),
        ({"training": "{lora: {rank: 0}}"}, "training.lora.rank", "must be a whole number of at least 1; got 0"),
        ({"training": "{lora: {rank: 4, dropout: 0.1}}"}, "training.lora.dropout", "Known: alpha, rank, targets"),
        ({"training": "{lora: {rank: 4, targets: x}}"}, "training.lora.targets", "all-linear, or a list of names of"),
        ({"training": "{learning_rate: [0.1, 0.2]}"}, "training.learning_rate", "must be a number above 0; got a list"),
        ({"collapse": "{perplexity: [1, 5]}"}, "collapse.perplexity", "one number above 0 and below 1, and one above"),
    ],
)
def test_single_faults(check, replaced, path, reason):
    found = check(**replaced)
    assert list(found) == [path]
    assert reason in found[path]


@pytest.mark.parametrize(
    ("methods", "path", "reason"),
    [
        ("{emso: {epochs: []}}", "epochs", "is an empty list, which asks for no trial: give at least one value."),
        ("{emso: {epochs: [1, 2, 1]}}", "epochs.2", "1 is already in the list."),
        ("{emso: {training: {micro_batch: [1, 2]}}}", "training.micro_batch", "and no number: give one value, no list"),
    ],
)
def test_faults_of_a_method(check, methods, path, reason):
    found = check(methods=methods, ranking="{at: {emso: 3}}")
    assert list(found) == [f"methods.emso.{path}"], "the ranking of a faulty row is no second fault"
    assert reason in found[f"methods.emso.{path}"]


def test_a_row_needs_a_method_and_a_name(check):
    found = check(methods="{mine: {epochs: 1}, original: {method: emso}, 'a b': {method: emso}}", ranking="{}")
    assert found["methods.mine"].endswith("A row under another name says which: {method: emso, ...}.")
    assert found["methods.original"].startswith("'original' is reserved for a reference row: choose another")
    assert found["methods.a b"].startswith("'a b' cannot name a row: use letters")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("emso: {epochs: [1, 2]}", "again: {method: emso, epochs: [3]}"),
        ("emso: ", "again: {method: emso, training: {micro_batch: 1, activation_checkpointing: true}}"),
        ("task_arithmetic: {gamma: [0.04, 0.05]}", "again: {method: task_arithmetic, gamma: 0.05}"),
        ("gradient_ascent: ", "again: {method: gradient_ascent, training: {learning_rate: 0.25}}"),  # The model's own.
    ],
)
def test_two_rows_that_are_the_same_trials(check, one, other):
    own = "[{id: miniature-s, training: {learning_rate: 0.25}}]"
    found = check(models=own, methods=f"{{{one}, {other}}}", ranking="{}")
    assert list(found) == ["methods.again"]
    assert found["methods.again"].startswith(f"asks for the same trials as '{one.partition(':')[0]}'")


def test_a_row_of_several_strengths_is_ranked_at_one(check):
    methods = "{task_arithmetic: {gamma: [0.04, 0.08]}}"
    found = check(methods=methods, ranking="{}")
    assert "which strength of 'task_arithmetic' is ranked, one of 0.04, 0.08." in found["ranking.at.task_arithmetic"]
    found = check(methods=methods, ranking="{at: {task_arithmetic: 0.1}}")
    assert "is ranked, one of 0.04, 0.08." in found["ranking.at.task_arithmetic"]


@pytest.mark.parametrize(
    ("settings", "path", "reason"),
    [
        ("{tasks: [piqua]}", "reasoning.tasks.0", "Did you mean 'piqa'?"),
        ("{tasks_path: FOLDER, tasks: [piqa]}", "reasoning", "row 1: its label is None; allowed are 0, 1."),
    ],
)
def test_reasoning_tasks_are_looked_at_before_anything_runs(check, tmp_path, settings, path, reason):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "piqa.jsonl").write_text('{"goal": "g", "sol1": "a", "sol2": "b"}\n')
    settings = settings.replace("FOLDER", str(tmp_path / "tasks"))
    found = check(evaluators=f"{{generation: , reasoning: {settings}}}")
    assert list(found) == [f"evaluators.{path}"]
    assert reason in found[f"evaluators.{path}"].replace(str(tmp_path / "tasks"), "FOLDER")


@pytest.mark.parametrize(
    ("forget", "path", "reason"),
    [
        ("{source: miniature, path: x}", "", "the source 'miniature' does not read path."),
        ("{source: jsonl}", "", "path is missing: where the texts are."),
        ("{source: miniature, prefix_tokens: 128}", ".prefix_tokens", "must be below sequence_tokens (128)"),
        ("{source: miniature, sequences: 9999}", "", "forget texts: 256 sequences are there, and 9999 are needed."),
    ],
)
def test_faults_of_texts(check, forget, path, reason):
    data = f"{{forget: {forget}, retain: {{source: miniature}}, utility: {{source: miniature, prompts: 4}}}}"
    found = check(data=data)
    assert list(found) == [f"data.forget{path}"]
    assert reason in found[f"data.forget{path}"]


def test_sequences_that_do_not_fit_the_model(check):
    found = check("data.forget.sequence_tokens=600", "data.utility.reference_tokens=481")
    reason = "sequences of 513 tokens do not fit 'MODEL', which reads 512 at most."
    assert found == {"data.utility.reference_tokens": reason}


def test_a_broken_forget_file_is_a_fault_and_shows_no_text(check, tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"text": "Marguerite"}\n\n{"text": "Marguerite' + "x" * 200 + '"}')
    np.save(tmp_path / "ids.npy", np.full((3, 120), 999))
    texts = "retain: {source: miniature}, utility: {source: miniature, prompts: 4}"
    found = check(data=f"{{forget: {{source: jsonl, path: {tmp_path}/mine.jsonl}}, {texts}}}")
    assert list(found) == ["data.forget"]
    assert "line 1 has 10 of at least 101 tokens; line 2 is empty." in found["data.forget"]
    assert "Marguerite" not in found["data.forget"]
    found = check(data=f"{{forget: {{source: npy, path: {tmp_path}/ids.npy}}, {texts}}}")
    assert "3 rows with token ids outside the model's vocabulary (0 to 255)" in found["data.forget"]


def test_two_evaluators_may_not_report_one_metric():
    evaluator = EVALUATORS.configure("memorization", {})
    reasons = [fault.reason for fault in evaluator_faults({"one": evaluator, "other": evaluator}, Collapse())]
    assert "reports ma, which 'one' reports too: remove one." in reasons
