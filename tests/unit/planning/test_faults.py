"""The faults of a sweep file's settings: each by its path and its exact sentence."""

import subprocess
import sys

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("replaced", "path", "reason"),
    [
        ({"models": None}, "models", "is missing: which models to erase from? For instance models: [miniature-m]."),
        ({"models": "[]"}, "models", "is empty: which models to erase from? For instance models: [miniature-m]."),
        ({"models": "MODEL"}, "models", "must be a list of models; got the text "),
        ({"models": "{id: MODEL}"}, "models", "must be a list of models; got a mapping (name: value)."),
        ({"models": "[3]"}, "models.0", "must be a name, or a mapping with an id: {id: ..., tokenizer: ...}; got 3."),
        ({"models": "[{tokenizer: MODEL}]"}, "models.0.id", "is missing; it must be text."),
        (
            {"models": "[{id: MODEL, engine: deepsped}]"},
            "models.0.engine",
            "no engine is called 'deepsped'. Did",
        ),
        ({"models": "[{id: MODEL, engine: {torch: , deepspeed: }}]"}, "models.0.engine", "names 2 engines: a model is"),
        ({"models": "[{id: MODEL, engine: {torch: {k: 1}}}]"}, "models.0.engine.torch.k", "no setting is called 'k'."),
        (
            {"models": "[{id: MODEL, engine: {deepspeed: {workers: 999}}}]", "resources": "{cpus: 2}"},
            "models.0.engine.deepspeed.workers",
            "999 workers with resources.cpus: 2 need 1998 CPUs, and this machine has ",
        ),
        (
            {"models": "[{id: MODEL, engine: {deepspeed: {zero_stage: 4}}}]"},
            "models.0.engine.deepspeed.zero_stage",
            "must be 0, 1, 2 or 3; got 4.",
        ),
        (
            {"models": "[{id: MODEL, training: {precision: fp8}}]"},
            "models.0.training.precision",
            "must be fp32 or bf16",
        ),
        ({"models": "[{id: MODEL, retrained: NONE}]"}, "models.0.retrained", "'NONE' is not a folder, nor a hub id"),
        ({"models": "[MODEL, MODEL]"}, "models.1", "'MODEL' is models.0, so its trials would be the same: remove one."),
        ({"models": "[miniatur-m]"}, "models.0", "Did you mean 'miniature-m'?"),
        ({"models": "[gpt2]"}, "models.0", "Did you mean 'openai-community/gpt2'?"),
        (
            {"methods": "", "ranking": "{}"},
            "methods",
            "is missing: which methods to run? For instance methods: {emso: {epochs: [1, 2, 3]}}, or methods: {}",
        ),
        ({"evaluators": None}, "evaluators", "is missing: what to measure? For instance evaluators: {memorization: "),
        ({"evaluators": "{}"}, "evaluators", "is empty: what to measure?"),
        (
            {"evaluators": "[memorization]"},
            "evaluators",
            "must be a mapping of evaluators to their settings; got a list.",
        ),
        ({"seeds": "[0, 1, 0]"}, "seeds.2", "0 is already in the list: its trials would be the same."),
        ({"seeds": "7"}, "seeds", "must be a list of whole numbers, each at least 0"),
        ({"name": "my sweep"}, "name", "must be a name of letters, digits, '-' and '_', or null; got the text 'my"),
        (
            {"name": "sound\nreproduces: emso_ablaton"},
            "reproduces",
            "no published table is called 'emso_ablaton'. Did you mean 'emso_ablation'? Known: di_original",
        ),
        ({"name": "artifacts"}, "name", "'artifacts' names a folder that all sweeps share: choose another."),
        (
            {"judges": "{perplexity: OTHER, features: miniature-judg}"},
            "judges.features",
            "Did you mean 'miniature-judge'",
        ),
        ({"resources": "{cpus: 0.5}"}, "resources.cpus", "must be a whole number of at least 1; got 0.5."),
        ({"collapse": "{mauve: 1}"}, "collapse.mauve", "must be a number above 0 and below 1; got 1."),
        (
            {"training": "{learning_rate: .inf}"},
            "training.learning_rate",
            "must be a number above 0; got the text '.inf'.",
        ),
        ({"training": "{learning_rate: [0.1, 0.2]}"}, "training", "A list is a grid axis of a row: methods: {emso: "),
        ({"ranking": "{controls: [gentle]}"}, "ranking.controls.0", "no row of this sweep is called 'gentle'."),
        ({"training": "{early_stop: 0.9}"}, "training.early_stop", "must be a number above 1, or null; got 0.9."),
        (
            {"training": "{global_batch: 2.5}"},
            "training.global_batch",
            "must be a whole number of at least 1; got 2.5.",
        ),
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
        ("{emso: {epochs: -1}}", "epochs", "must be a whole number of at least 0; got -1."),
        ("{emso: {epochs: true}}", "epochs", "must be a whole number of at least 0; got true."),
        ("{emso: {epochs: [1, '2']}}", "epochs.1", "must be a whole number of at least 0; got the text '2'."),
        ("{emso: {epochs: 1.5}}", "epochs", "must be a whole number of at least 0; got 1.5."),
        (
            "{emso: {epoch: 1}}",
            "epoch",
            "no setting is called 'epoch'. Did you mean 'epochs'? Known: epochs, k, ",
        ),
        ("{emso: {loss: entropy}}", "loss", "must be em or nll; got the text 'entropy'."),
        ("{emso: {training: {global_batch: 0}}}", "training.global_batch", "must be a whole number of at least 1"),
        (
            "{emso: {training: {learning_rate: [0.1, 0]}}}",
            "training.learning_rate.1",
            "must be a number above 0; got 0.",
        ),
        ("{emso: {training: {learning_rate: []}}}", "training.learning_rate", "is an empty list, which asks for no"),
        ("{emso: {training: {precision: [bf16, bf16]}}}", "training.precision.1", "the text 'bf16' is already in the"),
        (
            "{emso: {training: {micro_batch: [1, 2]}}}",
            "training.micro_batch",
            "and no number: give one value, no list.",
        ),
        (
            "{emso: {training: {activation_checkpointing: [true, false]}}}",
            "training.activation_checkpointing",
            "and no number: give one value, no list.",
        ),
        ("{emso: {training: fast}}", "training", "must be a mapping (name: value) of learning_rate, global_batch, "),
        ("{emso: 3}", "", "must be a mapping (name: value); got 3."),
        ("{emso: {method: emsi}}", "method", "no method is called 'emsi'. Did you mean 'emso'?"),
        ("{emso: {method: [emso]}}", "method", "no method is called '['emso']'."),
    ],
)
def test_faults_of_a_method(check, methods, path, reason):
    found = check(methods=methods, ranking="{}")
    path = "methods.emso" + (f".{path}" if path else "")
    assert list(found) == [path]
    assert reason in found[path]


def test_a_row_needs_a_method_and_a_name(check):
    found = check(methods="{mine: {epochs: 1}, original: {method: emso}, 'a b': {method: emso}}", ranking="{}")
    assert found["methods.mine"].endswith("A row under a name of its own says which: {method: emso, ...}.")
    assert found["methods.original"].startswith("'original' is the name of a row that every sweep has: use letters")
    assert found["methods.a b"].startswith("'a b' cannot name a row: use letters")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("emso: {epochs: [1, 2]}", "again: {method: emso, epochs: [3]}"),
        ("emso: ", "again: {method: emso, selection: contrastive}"),
        ("emso: ", "again: {method: emso, training: {micro_batch: 1, activation_checkpointing: true}}"),
        ("task_arithmetic: {gamma: [0.04, 0.05]}", "again: {method: task_arithmetic, gamma: 0.05}"),
    ],
)
def test_two_rows_that_are_the_same_trials(check, one, other):
    found = check(methods=f"{{{one}, {other}}}", ranking="{}")
    name = one.partition(":")[0]
    assert found == {
        "methods.again": f"asks for the same trials as '{name}': the same method, settings and training. "
        "Change a setting, or remove one of the two."
    }
    unresolved = check(methods=f"{{{one}, {other}}}", ranking="{}", models="[NOWHERE]")
    assert set(unresolved) == {"methods.again", "models.0"}


def test_models_with_the_same_weights(check, world, tmp_path):
    (tmp_path / "copy").symlink_to(world / "MODEL")
    found = check(models=f"[MODEL, {tmp_path}/copy]")
    assert found["models.1"].endswith("has the same weights as models.0, so its trials would be the same: remove one.")


@pytest.mark.parametrize(
    ("ranking", "gamma", "path", "reason"),
    [
        (
            "{at: {emsi: 1}}",
            "0.04",
            "emsi",
            "no row of this sweep is called 'emsi'. Did you mean 'emso'? Known: ",
        ),
        ("{at: {task_arithmetic: 0.1}}", "[0.04, 0.05]", "task_arithmetic", "0.1 is not among the strengths of 'task"),
        ("{at: {emso: 9}}", "0.04", "emso", "9 is not among the strengths of 'emso': 1, 2, 3."),
        ("{}", "[0.04, 0.08]", "task_arithmetic", "is missing: 'task_arithmetic' has several strengths (0.04, 0.08), "),
        ("{at: {emso: high}}", "0.04", "emso", "must be a number; got the text 'high'."),
    ],
)
def test_ranking_faults(check, ranking, gamma, path, reason):
    methods = f"{{emso: {{epochs: [1, 2, 3]}}, task_arithmetic: {{gamma: {gamma}}}}}"
    found = check(methods=methods, ranking=ranking)
    assert list(found) == [f"ranking.at.{path}"]
    assert reason in found[f"ranking.at.{path}"]


def test_ranking_of_a_faulty_row_is_no_second_fault(check):
    assert list(check(methods="{emso: {epochs: [-1]}}", ranking="{at: {emso: 3}}")) == ["methods.emso.epochs.0"]


def test_collapse_needs_its_metric(check):
    assert check(evaluators="{memorization: {}}", collapse="{}") == {}
    assert check(evaluators="{memorization: {}}")["collapse.mauve"].startswith(
        "no evaluator of this sweep reports 'mauve'. Reported: el_3, ma, ss"
    )
    assert check(collapse="{rep_2: 0.5}") == {
        "collapse.rep_2": "no setting is called 'rep_2'. Known: mauve, perplexity."
    }
    assert check(evaluators="{memorization: {}}", collapse="{perplexity: [0.4, 6]}")["collapse.perplexity"].startswith(
        "no evaluator of this sweep reports 'perplexity'. Reported: el_3, ma, ss"
    )
    assert check(collapse="{perplexity: [0.4, 6]}") == {}


@pytest.mark.parametrize(
    "bounds", ["5", "[0.5]", "[5, 0.5]", "[0.5, 1]", "[1, 5]", "[0, 5]", "[0.5, 5, 9]", "['a', 5]", "{}"]
)
def test_collapse_bounds_lie_around_1(check, bounds):
    (reason,) = check(collapse=f"{{perplexity: {bounds}}}").values()
    assert reason.startswith("must be two numbers, times the original's perplexity: one above 0 and below 1"), reason
    assert "[0.5, 5]; got " in reason


def test_definitions_are_never_mixed(check):
    found = check(evaluators="{memorization: {definition: table}, generation: }")
    assert found == {
        "evaluators.generation.definition": "is 'exact' here and 'table' in 'memorization'. The two definitions "
        "measure different things and are never mixed in one sweep: use one for all."
    }
    assert check(evaluators="{memorization: {definition: table}, generation: {definition: table}, reasoning: }") == {}


@pytest.mark.parametrize(
    ("settings", "path", "reason"),
    [
        ("{tasks: [piqua]}", "reasoning.tasks.0", "Did you mean 'piqa'?"),
        ("{tasks: []}", "reasoning", "tasks is []: name at least one"),
        ("{tasks: [piqa, piqa]}", "reasoning", "and each only once"),
        ("{limit: 0}", "reasoning.limit", "at least 1"),
        ("{tasks_path: NOWHERE}", "reasoning", "NOWHERE is not a folder."),
        ("{tasks_path: FOLDER}", "reasoning", "the task 'arc_easy' has no file in FOLDER: looked for arc_easy.jsonl, "),
        ("{tasks_path: FOLDER, tasks: [piqa]}", "reasoning", "row 1: its label is None; allowed are 0, 1."),
    ],
)
def test_reasoning_tasks_are_looked_at_before_anything_runs(check, tmp_path, settings, path, reason):
    (tmp_path / "tasks" / "piqa").mkdir(parents=True)
    (tmp_path / "tasks" / "piqa" / "piqa.jsonl").write_text('{"goal": "g", "sol1": "a", "sol2": "b"}\n')
    (tmp_path / "tasks" / "arc_easy.txt").touch()
    if "piqa" not in settings:
        (tmp_path / "tasks" / "piqa.jsonl").write_text('{"goal": "g", "sol1": "a", "sol2": "b", "label": 1}\n')
    settings = settings.replace("FOLDER", str(tmp_path / "tasks"))
    found = check(evaluators=f"{{generation: , reasoning: {settings}}}")
    assert list(found) == [f"evaluators.{path}"]
    assert reason in found[f"evaluators.{path}"].replace(str(tmp_path / "tasks"), "FOLDER")


@pytest.mark.parametrize(
    ("forget", "path", "reason"),
    [
        ("{source: minature}", "data.forget.source", "got the text 'minature'. Did you mean 'miniature'?"),
        (
            "{sequences: 3}",
            "data.forget.source",
            "is missing; it must be miniature, extraction_challenge, jsonl, ",
        ),
        ("{source: miniature, path: x}", "data.forget.path", "the source 'miniature' does not read it."),
        (
            "{source: npy, path: MODEL/config.json, field: y}",
            "data.forget.field",
            "the source 'npy' does not read it; it reads pat",
        ),
        ("{source: jsonl}", "data.forget.path", "is missing: where the texts are."),
        ("{source: hub}", "data.forget.path", "is missing: the data set's id on the hub, or a local folder of it."),
        ("{source: miniature, prefix_tokens: 128}", "data.forget.prefix_tokens", "must be below sequence_tokens (128)"),
        (
            "{source: miniature, sequences: 9999}",
            "data.forget",
            "forget texts: 256 sequences are there, and 9999 are needed.",
        ),
        (
            "{source: extraction_challenge, path: nowhere}",
            "data.forget",
            "nowhere. Looked for train_preprefix.npy",
        ),
        ("{source: miniature, sequence_tokens: 9999}", "", ""),
        ("{source: miniature, start: -1}", "data.forget.start", "must be a whole number of at least 0; got -1."),
        ("miniature", "data.forget", "must be a mapping (name: value) of source, path, name, split, field, start, "),
    ],
)
def test_faults_of_texts(check, forget, path, reason):
    found = check(
        data=f"{{forget: {forget}, retain: {{source: miniature}}, utility: {{source: miniature, prompts: 4}}}}"
    )
    if path:
        assert reason in found.pop(path)
    assert found == {}


def test_missing_texts(check):
    assert check(data=None) == {
        "data": "is missing: which texts? For instance data: {forget: {source: miniature}, utility: {source: "
        "miniature}}."
    }
    assert check(data="{retain: {source: miniature}}") == {
        "data.forget": "is missing: what to erase? For instance forget: {source: miniature}.",
        "data.utility": "is missing: what to continue? For instance utility: {source: miniature}.",
    }


def test_sequences_that_do_not_fit_the_model(check):
    found = check("data.forget.sequence_tokens=600", "data.utility.reference_tokens=481")
    assert found == {
        "data.utility.reference_tokens": "sequences of 513 tokens do not fit 'MODEL', which reads 512 at most."
    }


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
    without_model = check(models="[NO]", data=f"{{forget: {{source: jsonl, path: {tmp_path}/mine.jsonl}}, {texts}}}")
    assert "line 2 is empty" in without_model["data.forget"]


def test_a_checkpoint_folder_that_lacks_a_file(check, world, tmp_path):
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")
    assert "half lacks model.safetensors" in check(models=f"[{tmp_path}/half]")["models.0"]
    (tmp_path / "half" / "model.safetensors").write_text("")
    assert "no tokenizer in" in check(models=f"[{tmp_path}/half]")["models.0"]
    found = check(models=f"[{{id: {tmp_path}/half, tokenizer: MODEL}}]")
    assert "half/config.json is not a model's configuration (ValueError)." in found["models.0"]


def test_what_is_no_yaml_is_said_before_torch_is_imported(tmp_path):
    (tmp_path / "broken.yaml").write_text("models: [miniature-s\nmethods: {}\n")
    code = (
        "import sys; from harness.cli import main; status = main(['sweep', 'broken.yaml']);"
        "print(status, [name for name in ('torch', 'transformers', 'numpy', 'ray') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "2 []\n", done.stderr
    assert "is not valid YAML" in done.stderr
