"""The faults of a sweep file's settings: one case a rule, each by its path."""

import numpy as np
import pytest

from harness.planning.evaluators import evaluator_faults
from harness.plugins import EVALUATORS, METHODS
from harness.settings import Collapse

SINGLE = [
    ({"models": None}, "models", "is missing: which models to erase from? For instance models: [miniature-m]."),
    ({"models": "[{id: MODEL, engine: deepsped}]"}, "models.0.engine", "no engine is called 'deepsped'. Did"),
    ({"models": "[{id: MODEL, engine: {torch: , deepspeed: }}]"}, "models.0.engine", "names 2 engines: a model is"),
    (
        {"models": "[{id: MODEL, engine: {deepspeed: {workers: 2}}, resources: {gpus: 0.5}}]"},
        "models.0.engine",
        "to 0 for",
    ),
    ({"models": "[{id: MODEL, retrained: MODEL}]"}, "models.0.retrained", "has the same weights as the model itself"),
    ({"models": "[{id: MODEL, retrained: NONE}]"}, "models.0.retrained", "'NONE' is not a folder, nor a hub id"),
    ({"models": "[miniatur-m]"}, "models.0", "Did you mean 'miniature-m'?"),
    ({"name": "my sweep"}, "name", "must be a name of letters, digits, '-' and '_', or null; got the text 'my"),
    ({"training": "{learning_rate: .inf}"}, "training.learning_rate", "must be a number above 0; got inf."),
    ({"training": "{lora: {rank: 0}}"}, "training.lora.rank", "must be a whole number of at least 1; got 0"),
    ({"training": "{lora: {rank: 4, dropout: 0.1}}"}, "training.lora.dropout", "Known: alpha, rank, targets"),
    ({"training": "{lora: {rank: 4, targets: x}}"}, "training.lora.targets", "all-linear, or a list of names of"),
    ({"training": "{learning_rate: [0.1, 0.2]}"}, "training.learning_rate", "must be a number above 0; got a list"),
    ({"collapse": "{perplexity: [1, 5]}"}, "collapse.perplexity", "one number above 0 and below 1, and one above"),
]


@pytest.mark.parametrize(("replaced", "path", "reason"), SINGLE)
def test_single_faults(fault_at, replaced, path, reason):
    assert reason in fault_at(path, **replaced)


OF_A_METHOD = [
    ("{emso: {epochs: []}}", "epochs", "is an empty list, which asks for no trial: give at least one value."),
    ("{emso: {epochs: [1, 2, 1]}}", "epochs.2", "1 is already in the list."),
    ("{emso: {training: {micro_batch: [1, 2]}}}", "training.micro_batch", "and no number: give one value, no list"),
]


@pytest.mark.parametrize(("methods", "path", "reason"), OF_A_METHOD)
def test_faults_of_a_method(fault_at, methods, path, reason):
    # The ranking of a faulty row is no second fault.
    assert reason in fault_at(f"methods.emso.{path}", methods=methods, ranking="{at: {emso: 3}}")


def test_a_row_needs_a_method_and_a_name(check):
    found = check(methods="{mine: {epochs: 1}, original: {method: emso}, 'a b': {method: emso}}", ranking="{}")
    assert found["methods.mine"].endswith("A row under another name says which: {method: emso, ...}.")
    assert found["methods.original"].startswith("'original' is reserved for a reference row: choose another")
    assert found["methods.a b"].startswith("'a b' cannot name a row: use letters")


SAME_TRIALS = [
    ("emso: {epochs: [1, 2]}", "again: {method: emso, epochs: [3]}"),
    ("emso: ", "again: {method: emso, training: {micro_batch: 1, activation_checkpointing: true}}"),
    ("task_arithmetic: {gamma: [0.04, 0.05]}", "again: {method: task_arithmetic, gamma: 0.05}"),
    ("gradient_ascent: ", "again: {method: gradient_ascent, training: {learning_rate: 0.25}}"),  # The model's own.
]


@pytest.mark.parametrize(("one", "other"), SAME_TRIALS)
def test_two_rows_that_are_the_same_trials(fault_at, one, other):
    own = "[{id: miniature-s, training: {learning_rate: 0.25}}]"
    told = fault_at("methods.again", models=own, methods=f"{{{one}, {other}}}", ranking="{}")
    assert told.startswith(f"asks for the same trials as '{one.partition(':')[0]}'")


def test_two_methods_of_one_label_could_not_be_told_apart(fault_at, monkeypatch):
    monkeypatch.setattr(METHODS.load("npo"), "label", "EMSO")
    told = fault_at("methods.npo", methods="{emso: , npo: }", ranking="{}")
    assert told.startswith("has the label 'EMSO', as 'emso' has")


def test_a_row_of_several_strengths_is_ranked_at_one(check):
    for ranking in ("{}", "{at: {task_arithmetic: 0.1}}"):
        found = check(methods="{task_arithmetic: {gamma: [0.04, 0.08]}}", ranking=ranking)["ranking.at.task_arithmetic"]
        assert "which strength of 'task_arithmetic' is ranked, one of 0.04, 0.08." in found


OF_REASONING = [
    ("{tasks: [piqua]}", "reasoning.tasks.0", "Did you mean 'piqa'?"),
    ("{tasks_path: FOLDER, tasks: [piqa]}", "reasoning", "row 1: its label is None; allowed are 0, 1."),
]


@pytest.mark.parametrize(("settings", "path", "reason"), OF_REASONING)
def test_reasoning_tasks_are_looked_at_before_anything_runs(fault_at, tmp_path, settings, path, reason):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "piqa.jsonl").write_text('{"goal": "g", "sol1": "a", "sol2": "b"}\n')
    settings = settings.replace("FOLDER", str(tmp_path / "tasks"))
    assert reason in fault_at(f"evaluators.{path}", evaluators=f"{{generation: , reasoning: {settings}}}")


MIXED = "{source: miniature, sequences: 3, not_memorized: {source: miniature, %s}}"
OF_TEXTS = [
    (MIXED % "sequences: 0", ".not_memorized.sequences", "must be a whole number of at least 1"),
    (MIXED % "sample_seed: 1", ".not_memorized", "sequences must say of how "),
    ("{source: miniature, path: x}", "", "the source 'miniature' does not read path."),
    ("{source: jsonl}", "", "path is missing: where the texts are."),
    ("{source: miniature, prefix_tokens: 128}", ".prefix_tokens", "must be below sequence_tokens (128)"),
    ("{source: miniature, sequences: 9999}", "", "forget texts: 256 sequences are there, and 9999 are needed."),
]


@pytest.mark.parametrize(("forget", "path", "reason"), OF_TEXTS)
def test_faults_of_texts(fault_at, forget, path, reason):
    assert reason in fault_at(f"data.forget{path}", f"data.forget={forget}")


def test_sequences_that_do_not_fit_the_model(check):
    found = check("data.forget.sequence_tokens=600", "data.utility.reference_tokens=481")
    reason = "sequences of 513 tokens do not fit 'MODEL', which reads 512 at most."
    judged = "'OTHER' reads 512 tokens, and prompt and continuation have 513: name another, or shorten "
    of_judges = dict.fromkeys(("judges.perplexity", "judges.features"), f"{judged}data.utility.reference_tokens.")
    assert found == {"data.utility.reference_tokens": reason, **of_judges}


def test_a_broken_forget_file_is_a_fault_and_shows_no_text(fault_at, tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"text": "Marguerite"}\n\n{"text": "Marguerite' + "x" * 200 + '"}')
    np.save(tmp_path / "ids.npy", np.full((3, 120), 999))
    told = fault_at("data.forget", f"data.forget={{source: jsonl, path: {tmp_path}/mine.jsonl}}")
    assert "line 1 has 10 of at least 101 tokens; line 2 is empty." in told
    assert "Marguerite" not in told
    told = fault_at("data.forget", f"data.forget={{source: npy, path: {tmp_path}/ids.npy}}")
    assert "3 rows with token ids outside the model's vocabulary (0 to 255)" in told


def test_two_evaluators_may_not_report_one_metric():
    evaluator = EVALUATORS.configure("memorization", {})
    reasons = [fault.reason for fault in evaluator_faults({"one": evaluator, "other": evaluator}, Collapse())]
    assert "reports ma, which 'one' reports too: remove one." in reasons
