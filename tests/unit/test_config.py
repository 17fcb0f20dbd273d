"""A sweep file's faults: each by its path and its exact sentence, and all of them at once."""

import re
import time

import numpy as np
import pytest

from harness.errors import ConfigError
from harness.planning.document import parse, question
from harness.planning.plan import plan

SOUND = """
# What is right?
name: sound
models: [{id: MODEL, retrained: OTHER}]
seeds: [0, 1]
data:
  forget: {source: miniature, sequences: 4}
  retain: {source: miniature}
  utility: {source: miniature, prompts: 4}
training: {learning_rate: 1e-3, global_batch: 16, early_stop: null}
methods:
  emso: {epochs: [1, 2, 3]}
  task_arithmetic: {gamma: [0.04, 0.05]}
  kl_divergence:
  full_em: {method: emso, selection: all, training: {micro_batch: 2}}
evaluators: {memorization: {el_sequences: 4}, generation: }
judges: {perplexity: OTHER, features: {id: OTHER, tokenizer: MODEL}, similarity: OTHER, coherence: OTHER}
ranking: {at: {task_arithmetic: 0.04}}
collapse: {mauve: 0.3}
resources: {cpus: 2, gpus: 0}
report: {samples: plain}
keep_erased: none
"""


@pytest.fixture
def check(world, tmp_path):
    """Return a checker: text in, the faults by path out; none if the file is right."""

    def run(text=SOUND, *changes, only=(), **replaced):
        """`replaced`: top-level settings by name, as YAML; None removes one."""
        for name, value in replaced.items():
            pattern = rf"(?m)^{name}:.*\n(?:[ -].*\n)*"
            assert re.search(pattern, text), name
            text = re.sub(pattern, lambda _: "" if value is None else f"{name}: {value}\n", text)  # noqa: B023
        file = tmp_path / "file.yaml"
        file.write_text(text.lstrip().replace("MODEL", str(world / "MODEL")).replace("OTHER", str(world / "OTHER")))
        try:
            plan(file, changes, only)
        except ConfigError as error:
            faults = error.faults
        else:
            return {}
        assert len(set(faults)) == len(faults), "no fault twice"
        return {fault.path: fault.reason.replace(f"{world}/", "") for fault in faults}

    return run


def test_a_right_file_has_no_fault(check):
    assert check() == {}


def test_ten_faults_are_reported_together(check):
    found = check(
        models="[MODEL, NOWHERE]",
        seeds="[0, true]",
        data="{forget: {source: jsonl, path: none.jsonl, sequencess: 3}, utility: {source: miniature, prompts: 0}}",
        training="{learning_rate: fast, micro_bach: 3}",
        methods="{emsoo: {epochs: 1}, emso: {epochs: [-1, 2, '3'], k: 0}, kl_divergence: {epochs: []}}",
        evaluators="{memorisation: {}, generation: {definition: tabel}}",
        judges="{perplexity: OTHER, feature: OTHER}",
        ranking="{at: {emsos: 1}}",
        collapse="{mauve: 2, rep_2: 0.5}",
        report="{samples: plan}",
        keep_erased="pach\nmodles: []",
    )
    known = "contrastive_decoding, deliberate_imagination, emso, gradient_ascent, gradient_difference, kl_divergence"
    expected = {
        "models.1": "'NOWHERE' is not a folder, nor a hub id (owner/name)",
        "seeds.1": "must be a whole number of at least 0 and at most 4294967295; got true.",
        "data.forget": "none.jsonl. Looked for a file with one",
        "data.forget.sequencess": "no setting is called 'sequencess'. Did you mean 'sequences'? Known: field, name, ",
        "data.utility.prompts": "must be a whole number of at least 1; got 0.",
        "training.learning_rate": "must be a number above 0; got the text 'fast'.",
        "training.micro_bach": "no setting is called 'micro_bach'. Did you mean 'micro_batch'? Known: early_stop, ",
        "methods.emsoo": f"no method is called 'emsoo'. Did you mean 'emso'? Known: {known}, task_arithmetic.",
        "methods.emso.epochs.0": "must be a whole number of at least 0; got -1.",
        "methods.emso.epochs.2": "must be a whole number of at least 0; got the text '3'.",
        "methods.emso.k": "must be a whole number of at least 1; got 0.",
        "methods.kl_divergence": "needs retain data, and the sweep has none: add data.retain",
        "methods.kl_divergence.epochs": "is an empty list, which asks for no trial: give at least one value.",
        "evaluators.memorisation": "no evaluator is called 'memorisation'. Did you mean 'memorization'? Known: gen",
        "evaluators.generation.definition": "must be exact or table; got the text 'tabel'. Did you mean 'table'?",
        "judges.feature": "no setting is called 'feature'. Did you mean 'features'? Known: coherence, features, ",
        "ranking.at.emsos": "no row of this sweep is called 'emsos'. Did you mean 'emso'? Known: emso, emsoo, ",
        "collapse.mauve": "must be a number above 0 and below 1; got 2.",
        "collapse.rep_2": "no collapse metric is called 'rep_2'. Known: mauve.",
        "report.samples": "must be redacted or plain; got the text 'plan'. Did you mean 'plain'?",
        "keep_erased": "must be none, patch or all; got the text 'pach'. Did you mean 'patch'?",
        "modles": "no setting is called 'modles'. Did you mean 'models'? Known: collapse, data, evaluators, ",
    }
    assert sorted(found) == sorted(expected)
    for path, reason in expected.items():
        assert reason in found[path], path


def test_the_report_names_the_file_and_keeps_its_order(check, tmp_path):
    check(seeds="[]", keep_erased="some")
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path / "file.yaml")
    assert str(caught.value).splitlines() == [
        f"{tmp_path}/file.yaml has 2 faults:",
        "  seeds        is empty: give at least one, seeds: [0], or leave it out.",
        "  keep_erased  must be none, patch or all; got the text 'some'.",
    ]


def test_faults_come_within_seconds(check):
    began = time.perf_counter()
    assert check(keep_erased="some")
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("replaced", "path", "reason"),
    [
        ({"models": None}, "models", "is missing: which models to erase from? For instance models: [miniature-m]."),
        ({"models": "[]"}, "models", "is empty: which models to erase from? For instance models: [miniature-m]."),
        ({"models": "MODEL"}, "models", "must be a list of models; got the text "),
        ({"models": "{id: MODEL}"}, "models", "must be a list of models; got settings (name: value)."),
        ({"models": "[3]"}, "models.0", "must be a name, or settings with an id: {id: ..., tokenizer: ...}; got 3."),
        ({"models": "[{tokenizer: MODEL}]"}, "models.0.id", "is missing; it must be text."),
        ({"models": "[{id: MODEL, engine: deepspeed}]"}, "models.0.engine", "no engine is called 'deepspeed'. Known: "),
        (
            {"models": "[{id: MODEL, training: {precision: fp8}}]"},
            "models.0.training.precision",
            "must be fp32 or bf16",
        ),
        ({"models": "[{id: MODEL, retrained: NONE}]"}, "models.0.retrained", "'NONE' is not a folder, nor a hub id"),
        ({"models": "[MODEL, MODEL]"}, "models.1", "'MODEL' is models.0, so its trials would be the same: remove one."),
        ({"models": "[miniatur-m]"}, "models.0", "Did you mean 'miniature-m'?"),
        (
            {"methods": "{}", "ranking": "{}"},
            "methods",
            "is empty: which methods to run? For instance methods: {emso: {epochs: [",
        ),
        ({"evaluators": None}, "evaluators", "is missing: what to measure? For instance evaluators: {memorization: "),
        ({"evaluators": "{}"}, "evaluators", "is empty: what to measure?"),
        ({"evaluators": "[memorization]"}, "evaluators", "must be settings by evaluator; got a list."),
        ({"seeds": "[0, 1, 0]"}, "seeds.2", "0 is already in the list: its trials would be the same."),
        ({"seeds": "7"}, "seeds", "must be a list of a whole number of at least 0"),
        ({"name": "my sweep"}, "name", "must be a name of letters, digits, '-' and '_', or null; got the text 'my"),
        ({"name": "artifacts"}, "name", "'artifacts' names a folder that all sweeps share: choose another."),
        (
            {"judges": "{perplexity: OTHER, features: miniature-judg}"},
            "judges.features",
            "Did you mean 'miniature-judge'",
        ),
        ({"resources": "{cpus: 0.5}"}, "resources.cpus", "must be a whole number of at least 1; got 0.5."),
        ({"collapse": "{mauve: 1}"}, "collapse.mauve", "must be a number above 0 and below 1; got 1."),
        ({"training": "{learning_rate: .inf}"}, "training.learning_rate", "must be a finite number; got inf."),
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
        ("{emso: {training: fast}}", "training", "must be settings (name: value): learning_rate, global_batch, "),
        ("{emso: 3}", "", "must be settings (name: value); got 3."),
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
    assert found["methods.original"].startswith("'original' names a row that every sweep has: use letters")
    assert found["methods.a b"].startswith("'a b' is no name for a row: use letters")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("emso: {epochs: [1, 2]}", "again: {method: emso, epochs: [3]}"),
        ("emso: ", "again: {method: emso, selection: contrastive}"),
        ("emso: ", "again: {method: emso, training: {micro_batch: 1}}"),
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
        "collapse.rep_2": "no collapse metric is called 'rep_2'. Known: mauve. Collapse is read from mauve alone."
    }


def test_definitions_are_never_mixed(check):
    found = check(evaluators="{memorization: {definition: table}, generation: }")
    assert found == {
        "evaluators.generation.definition": "is 'exact' here and 'table' in 'memorization'. The two definitions "
        "measure different things and are never mixed in one sweep: use one for all."
    }


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
        ("{source: miniature, sequences: 9999}", "data.forget", "has 256 sequences, and 9999 are needed."),
        (
            "{source: extraction_challenge, path: nowhere}",
            "data.forget",
            "nowhere. Looked for train_preprefix.npy",
        ),
        ("{source: miniature, sequence_tokens: 9999}", "", ""),
        ("{source: miniature, start: -1}", "data.forget.start", "must be a whole number of at least 0; got -1."),
        ("miniature", "data.forget", "must be settings (name: value): source, path, name, split, field, start, "),
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
    assert set(check(data=None)) == {"data.forget", "data.utility", "methods.kl_divergence"}
    assert check(data="{retain: {source: miniature}}") == {
        "data.forget": "is missing. For instance forget: {source: miniature}.",
        "data.utility": "is missing. For instance utility: {source: miniature}.",
    }


def test_sequences_that_do_not_fit_the_model(check):
    found = check(SOUND, "data.forget.sequence_tokens=600", "data.utility.reference_tokens=481")
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
    assert "half/config.json is not a model's configuration (KeyError)." in found["models.0"]


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("a: [1", "line 1, column 6", "is not valid YAML: while parsing a flow sequence, expected ',' or ']', but got"),
        ("a: 1\n\tb: 2", "line 2, column 1", "is not valid YAML: while scanning for the next token, found character"),
        ("a: &x [*x]", "a.0", "refers to itself."),
        ("a: !!python/object:os.system x", "line 1, column 4", "is not valid YAML: could not determine a constructor"),
        ("a: !!binary aGk=", "a", "must be text, a number, true, false, null, a list or settings; got bytes."),
        ("1: b", "1", "has a key that is not a name but int: put it in quotes."),
        ("a: 1\n---\nb: 2", "line 2, column 1", "is not valid YAML: expected a single document in the stream"),
        ("a: \x00", "(file)", "is not valid YAML: special characters are not allowed."),
    ],
)
def test_text_that_is_no_sweep_file(text, path, reason):
    _, faults = parse(text)
    assert [fault.path for fault in faults] == [path]
    assert faults[0].reason.startswith(reason)


def test_keys_written_twice_are_faults_with_both_lines(check):
    text = (
        SOUND.replace("  kl_divergence:\n", "  kl_divergence:\n  emso: {epochs: 1}\n")
        + "collapse: {mauve: 0.5, mauve: 1}\n"
    )
    assert check(text) == {
        "methods.emso": "is written twice, in lines 11 and 14. Keep one of them.",
        "collapse": "is written twice, in lines 19 and 23. Keep one of them.",
        "collapse.mauve": "is written twice, in lines 23 and 23. Keep one of them.",
    } | {key: value for key, value in check(text).items() if key == "collapse.mauve"}


def test_yaml_reads_numbers_and_words_as_meant():
    value, faults = parse("a: 1e-3\nb: off\nc: 010\nd: 2024-01-01\ne: .5\nf: -7\ng: TRUE\nh: ~\ni: 1.\n")
    assert faults == []
    assert value == {
        "a": 0.001, "b": "off", "c": "010", "d": "2024-01-01", "e": 0.5, "f": -7, "g": True, "h": None, "i": 1.0,
    }  # fmt: skip


def test_the_question_is_the_first_line():
    assert question("# Why?\nname: x") == "Why?"
    assert question("name: x\n# Why?") == question("") == ""


@pytest.mark.parametrize(
    ("text", "reason"), [("", "is empty."), ("- a", "must be settings (name: value); got a list.")]
)
def test_a_file_that_holds_no_settings(tmp_path, text, reason):
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path / "file.yaml")
    assert caught.value.faults[0].reason.startswith(reason)


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "tradeoff.yaml").write_bytes(b"\xff")

    def reason(path):
        with pytest.raises(ConfigError) as caught:
            plan(path)
        return caught.value.faults[0].reason

    assert reason(tmp_path / "tradeof.yaml") == (
        f"cannot be read: there is no such file. Did you mean '{tmp_path}/tradeoff.yaml'?"
    )
    assert reason(tmp_path / "tradeoff.yaml") == "is not UTF-8 (byte 1): save it as UTF-8."
    assert reason(tmp_path) == "is a folder: give one of the files in it."


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ("seeds", "--set seeds", "is not path=value. For example: --set data.forget.sequences=64."),
        ("seeds..a=1", "--set seeds..a=1", "is not path=value."),
        ("seeds.5=1", "--set seeds.5", "'seeds' has no entry '5': it is numbered 0 to 1."),
        ("name.x.y=1", "--set name.x.y", "'name' is the text 'sound', which has no 'x'."),
        ("name=[", "--set name", "is not valid YAML: while parsing a flow node"),
        ("data.forget.sequencess=3", "data.forget.sequencess", "no setting is called 'sequencess'. Did you mean"),
        ("nmae=x", "nmae", "no setting is called 'nmae'. Did you mean 'name'?"),
        ("methods.emso.epochs.1=-2", "methods.emso.epochs.1", "must be a whole number of at least 0; got -2."),
    ],
)
def test_override_faults(check, change, path, reason):
    found = check(SOUND, change)
    assert list(found) == [path]
    assert found[path].startswith(reason)


@pytest.mark.parametrize(
    ("only", "reason"),
    [
        ("method=emsi", "no method of this sweep is called 'emsi'. Did you mean 'emso'? Known: emso, kl_divergence, "),
        ("seed=7", "no seed of this sweep is called '7'. Known: 0, 1."),
        ("emso", "chooses by nothing that a trial has. Say method=, model=, variant= or seed=, for instance --only "),
        ("colour=red", "chooses by nothing that a trial has."),
    ],
)
def test_only_faults(check, only, reason):
    found = check(only=[only])
    assert list(found) == [f"--only {only}"]
    assert found[f"--only {only}"].startswith(reason)
