"""A sweep file: what is read of it, and that its faults come together, soon, and each at its place."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.yaml_text import parse
from harness.errors import ConfigError
from harness.planning.plan import plan
from harness.planning.sweep_file import read_sweep_file
from harness.plugins import METHODS


def test_a_right_file_has_no_fault(check):
    assert check() == {}


def test_all_faults_of_form_are_reported_together(check):
    faults = check(
        models="[MODEL, NOWHERE]",
        seeds="[0, true]",
        data="{forget: {source: jsonl, path: none.jsonl, sequencess: 3}, utility: {source: miniature, prompts: 0}}",
        training="{learning_rate: fast, micro_bach: 3}",
        methods="{emsoo: {epochs: 1}, emso: {epochs: [-1, 2, '3'], k: 0}, kl_divergence: {epochs: []}}",
        evaluators="{memorisation: {}, generation: {definition: tabel}}",
        judges="{perplexity: OTHER, feature: OTHER}",
        collapse="{mauve: 2, rep_2: 0.5}",
        report="{samples: plan}",
        keep_erased="pach\nmodles: []",
    )
    known = ", ".join(METHODS.names())
    expected = {
        "seeds.1": "must be a whole number of at least 0 and at most 4294967295; got true.",
        "data.forget.sequencess": "no setting is called 'sequencess'. Did you mean 'sequences'? Known: field, name, ",
        "data.utility.prompts": "must be a whole number of at least 1; got 0.",
        "training.learning_rate": "must be a number above 0; got the text 'fast'.",
        "training.micro_bach": "no setting is called 'micro_bach'. Did you mean 'micro_batch'? Known: activation",
        "methods.emsoo": f"no method is called 'emsoo'. Did you mean 'emso'? Known: {known}.",
        "methods.emso.epochs.0": "must be a whole number of at least 0; got -1.",
        "methods.emso.epochs.2": "must be a whole number of at least 0; got the text '3'.",
        "methods.emso.k": "must be a whole number of at least 1; got 0.",
        "methods.kl_divergence.epochs": "is an empty list, which asks for no trial: give at least one value.",
        "evaluators.memorisation": "no evaluator is called 'memorisation'. Did you mean 'memorization'? Known: depth",
        "evaluators.generation.definition": "must be exact or table; got the text 'tabel'. Did you mean 'table'?",
        "judges.feature": "no setting is called 'feature'. Did you mean 'features'? Known: coherence, features, ",
        "collapse.mauve": "must be a number above 0 and below 1; got 2.",
        "collapse.rep_2": "no setting is called 'rep_2'. Known: mauve, perplexity.",
        "report.samples": "must be redacted or plain; got the text 'plan'. Did you mean 'plain'?",
        "keep_erased": "must be none, patch or all; got the text 'pach'. Did you mean 'patch'?",
        "modles": "no setting is called 'modles'. Did you mean 'models'? Known: collapse, compare, data, ",
    }
    assert sorted(faults) == sorted(expected)
    for path, reason in expected.items():
        assert reason in faults[path], path


def test_all_faults_of_substance_are_reported_together(check, tmp_path):
    faults = check(
        models="[MODEL, NOWHERE, {id: MODEL, engine: {deepspeed: {workers: 999}}}]",
        seeds="[0, 0]",
        data="{forget: {source: jsonl, path: none.jsonl}, utility: {source: miniature, prompts: 4}}",
        methods="{emso: {epochs: [1, 2]}, kl_divergence: }",
        evaluators="{memorization: {}, reasoning: {tasks_path: NOTHING}}",
        judges="{similarity: NOBODY}",
        ranking="{at: {emsos: 1, emso: 3}}",
        name="published",
    )
    expected = {
        "models.1": "'NOWHERE' is not a folder, nor a hub id (owner/name)",
        "models.2": "is models.0, so its trials would be the same: remove one.",
        "models.2.engine.deepspeed.workers": "999 workers with resources.cpus: 2 need 1998 CPUs",
        "seeds.1": "0 is already in the list",
        "data.forget": "none.jsonl. Looked for a file with one",
        "methods.kl_divergence": "needs retain data, and the sweep has none: add data.retain",
        "evaluators.reasoning": "NOTHING is not a folder.",
        "judges.similarity": "'NOBODY' is not a folder",
        "ranking.at.emsos": "no row of this sweep is called 'emsos'. Did you mean 'emso'? Known: emso, kl_divergence.",
        "ranking.at.emso": "3 is not among the strengths of 'emso': 1, 2.",
        "collapse.mauve": "no evaluator of this sweep reports 'mauve'.",
        "name": "'published' names a folder that all sweeps share: choose another.",
    }
    assert sorted(faults) == sorted(expected)
    for path, reason in expected.items():
        assert reason in faults[path], path


def test_substance_is_looked_at_only_where_the_form_is_right(check):
    assert set(check(models="[NOWHERE]", keep_erased="some")) == {"keep_erased"}
    assert set(check(models="[NOWHERE]")) == {"models.0"}


def test_the_message_names_file_and_lines_in_the_files_order(check, tmp_path):
    check("data.forget.sequences=-1", seeds="[]", keep_erased="some", methods=None)
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path / "file.yaml", ["data.forget.sequences=-1"])
    assert str(caught.value).splitlines() == [
        f"{tmp_path}/file.yaml has 4 faults:",
        "  line 4   seeds                  is empty: with which seeds? For instance seeds: [0], as if it were left "
        "out.",
        "  --set    data.forget.sequences  must be a whole number of at least 1, or null; got -1.",
        "  line 16  keep_erased            must be none, patch or all; got the text 'some'.",
        "           methods                is missing: which methods to run? For instance methods: "
        "{emso: {epochs: [1, 2, 3]}}, or methods: {}, which erases nothing.",
    ]


def test_a_fault_inside_a_setting_has_the_line_of_what_is_written(check, tmp_path, sound):
    check(text=sound.replace("  emso: {epochs: [1, 2, 3]}\n", "  emso:\n    epochs:\n      - 1\n      - two\n"))
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path / "file.yaml")
    [fault] = caught.value.faults
    line = int(fault.origin.removeprefix("line "))
    assert (tmp_path / "file.yaml").read_text().splitlines()[line - 1].strip() == "- two"


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        (
            "a: [1",
            "line 2, column 1",
            "is not valid YAML: while parsing a flow sequence, did not find expected ',' or",
        ),
        ("a: 1\n\tb: 2", "line 2, column 1", "is indented with a tab, which YAML does not take: use spaces."),
        ("a:\n \tb: 2", "line 2, column 2", "is indented with a tab, which YAML does not take: use spaces."),
        ("a: &x [*x]", "a.0", "refers to itself."),
        ("a: !!python/object:os.system x", "line 1, column 4", "is not valid YAML: could not determine a constructor"),
        ("a: !!binary aGk=", "line 1, column 4", "is not valid YAML: could not determine a constructor"),
        ("a: 1e999", "line 1, column 4", "is not valid YAML: '1e999' is not a finite number."),
        ("a: !!float .nan", "line 1, column 4", "is not valid YAML: '.nan' is not a finite number."),
        ("a: !!int 'x'", "(file)", "holds a value that cannot be read: invalid literal for int()"),
        ("1: b", "1", "has a key that is not a name but int: put it in quotes."),
        ("a: 1\n---\nb: 2", "line 2, column 1", "is not valid YAML: expected a single document in the stream"),
        ("a: \x00", "(file)", "is not valid YAML: control characters are not allowed."),
    ],
)
def test_text_that_is_no_sweep_file(text, path, reason):
    _, faults = parse(text)
    assert [fault.path for fault in faults] == [path]
    assert faults[0].reason.startswith(reason)


def test_keys_written_twice_are_faults_with_both_lines(check, sound):
    text = (
        sound.replace("  kl_divergence:\n", "  kl_divergence:\n  emso: {epochs: 1}\n")
        + "collapse: {mauve: 0.5, mauve: 1}\n"
    )
    assert check(text=text) == {
        "methods.emso": "is written twice, in lines 11 and 14. Keep one of them.",
        "collapse": "is written twice, in lines 19 and 23. Keep one of them.",
        "collapse.mauve": "is written twice, in lines 23 and 23. Keep one of them.",
    }


def test_yaml_reads_numbers_and_words_as_meant():
    value, faults = parse("a: 1e-3\nb: off\nc: 010\nd: 2024-01-01\ne: .5\nf: -7\ng: TRUE\nh: ~\ni: 1.\n")
    assert faults == []
    assert value == {
        "a": 0.001, "b": "off", "c": "010", "d": "2024-01-01", "e": 0.5, "f": -7, "g": True, "h": None, "i": 1.0,
    }  # fmt: skip


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), PLAIN, min_size=1, max_size=4))
def test_what_another_program_writes_as_yaml_is_read_as_it_was(data):
    assert parse(yaml.safe_dump(data)) == (data, [])


def test_the_question_is_the_first_line(tmp_path):
    def question(text):
        (tmp_path / "file.yaml").write_text(text)
        return read_sweep_file(tmp_path / "file.yaml").question

    assert question("# Why?\nname: x") == "Why?"
    assert question("name: x\n# Why?") == ""


@pytest.mark.parametrize(
    ("text", "reason"), [("", "is empty."), ("- a", "must be a mapping (name: value); got a list.")]
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
        (
            "learning_rate=1",
            "learning_rate",
            "no setting is called 'learning_rate' here. Did you mean 'training.learning_rate'?",
        ),
        ("engine=torch", "engine", "no setting is called 'engine' here. Did you mean 'models[].engine'?"),
        (
            "data.forget.text_column=body",
            "data.forget.text_column",
            "no setting is called 'text_column' here. Did you mean 'field'?",
        ),
        ("methods.emso.epochs.1=-2", "methods.emso.epochs.1", "must be a whole number of at least 0; got -2."),
    ],
)
def test_override_faults(check, change, path, reason):
    found = check(change)
    assert list(found) == [path]
    assert found[path].startswith(reason)


@pytest.mark.parametrize(
    ("only", "reason"),
    [
        ("method=emsi", "no method of this sweep is called 'emsi'. Did you mean 'emso'? Known: emso, holdout, "),
        ("seed=7", "no seed of this sweep is called '7'. Known: 0, 1."),
        (
            "emso",
            "does not say which trials to run. Say method=, model=, variant= or seed=, for instance --only ",
        ),
        ("colour=red", "does not say which trials to run."),
    ],
)
def test_only_faults(check, only, reason):
    found = check(only=[only])
    assert list(found) == [f"--only {only}"]
    assert found[f"--only {only}"].startswith(reason)
