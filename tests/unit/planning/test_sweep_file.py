"""A sweep file: its YAML, its overrides, and faults that come together, each at its place."""

import pytest

from harness.errors import ConfigError, DataError
from harness.planning.plan import plan
from harness.planning.sweep_file import parse, read_sweep_file


def test_all_faults_of_substance_are_reported_together(check):
    faults = check(
        models="[MODEL, NOWHERE, {id: MODEL, engine: {deepspeed: {workers: 999}}}]",
        seeds="[0, 0]",
        data="{forget: {source: jsonl, path: none.jsonl}, utility: {source: miniature, prompts: 4}}",
        methods="{emso: {epochs: [1, 2]}, kl_divergence: }",
        evaluators="{memorization: {}, reasoning: {tasks_path: NOTHING}}",
        judges="{similarity: NOBODY}",
        ranking="{at: {emsos: 1, emso: 3}}",
        name="published\nreproduces: emso_ablaton",
    )
    expected = {
        "models.1": "'NOWHERE' is not a folder, nor a hub id (owner/name, such as",
        "models.2": "has the same weights as models.0, so its trials would be the same: remove one.",
        "seeds.1": "0 is already in the list",
        "data.forget": "none.jsonl. Looked for a file with one",
        "methods.kl_divergence": "needs retain data, and the sweep has none: add data.retain",
        "evaluators.reasoning": "NOTHING is not a folder.",
        "judges.similarity": "'NOBODY' is not a folder",
        "ranking.at.emsos": "no row of this sweep is called 'emsos'. Did you mean 'emso'? Known: emso, kl_divergence.",
        "ranking.at.emso": "must say which strength of 'emso' is ranked, one of 1, 2.",
        "collapse.mauve": "no evaluator of this sweep reports 'mauve'.",
        "name": "'published' names a folder that all sweeps share: choose another.",
        "reproduces": "no published table is called 'emso_ablaton'. Did you mean 'emso_ablation'?",
    }
    assert sorted(faults) == sorted(expected)
    for path, reason in expected.items():
        assert reason in faults[path], path


def test_substance_is_looked_at_only_where_the_form_is_right(check):
    assert set(check(models="[NOWHERE]", keep_erased="some")) == {"keep_erased"}


def test_a_fault_has_the_line_of_the_value_also_where_an_alias_repeats_it(check, tmp_path, sound):
    written = "  emso:\n    epochs: &them\n      - 1\n      - two\n  again: {method: emso, epochs: *them}\n"
    assert check(text=sound.replace("  emso: {epochs: [1, 2, 3]}\n", written))
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path / "file.yaml")
    lines = (tmp_path / "file.yaml").read_text().splitlines()
    origins = {fault.path: lines[int(fault.origin.removeprefix("line ")) - 1].strip() for fault in caught.value.faults}
    assert origins == {"methods.emso.epochs.1": "- two", "methods.again.epochs.1": "- two"}


def test_yaml_reads_numbers_and_words_as_meant():
    text = "a: 1e-3\nb: off\nd: 2024-01-01\ne: .5\nf: -7\ng: TRUE\nh: ~\ni: &yes true\nj: {<<: {k: 1}, l: *yes}\n"
    value = {"a": 0.001, "b": "off", "d": "2024-01-01", "e": 0.5, "f": -7, "g": True, "h": None, "i": True}
    assert parse(text) == value | {"j": {"k": 1, "l": True}}
    assert type(parse(text)["i"]) is bool


NO_SWEEP_FILES = [
    ("a: [1", r"is not valid YAML \(line 1, column 6\): expected ',' or ']'"),
    ("a: 1\nb: 2\na: 3", r"is not valid YAML \(line 3, column 1\): found duplicate key \"a\""),
    ("a: 1\n---\nb: 2", r"line 2.*another document"),
]


@pytest.mark.parametrize(("text", "reason"), NO_SWEEP_FILES)
def test_text_that_is_no_sweep_file(text, reason):
    with pytest.raises(DataError, match=reason):
        parse(text)


def test_a_file_that_cannot_be_read(check, tmp_path):
    def reason(name, content=None):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            plan(tmp_path / name)
        return caught.value.faults[0].reason

    assert reason("tradeoff.yaml", b"\xff") == "is not UTF-8 (byte 1): save it as UTF-8."
    assert reason("tradeof.yaml").endswith(f"No such file or directory. Did you mean '{tmp_path}/tradeoff.yaml'?")
    assert "Is a directory" in reason(".")
    assert reason("empty.yaml", b"").startswith("is empty.")
    assert reason("list.yaml", b"- a").startswith("must be a mapping (name: value); got a list.")


def test_the_question_is_the_first_line(tmp_path):
    def question(text):
        (tmp_path / "file.yaml").write_text(text)
        return read_sweep_file(tmp_path / "file.yaml").question

    assert question("# Why?\nname: x") == "Why?"
    assert question("name: x\n# Why?") == ""


OVERRIDES = [
    ("seeds", "--set seeds", "is not path=value. For example: --set data.forget.sequences=64."),
    ("seeds.5=1", "--set seeds.5", "leads to nothing: the entries of a list are numbered from 0"),
    ("nmae=x", "nmae", "no setting is called 'nmae'. Did you mean 'name'?"),
    ("methods.emso.epochs.1=-2", "methods.emso.epochs.1", "must be a whole number of at least 0; got -2."),
]


@pytest.mark.parametrize(("change", "path", "reason"), OVERRIDES)
def test_override_faults(fault_at, change, path, reason):
    assert fault_at(path, change).startswith(reason)


ONLY = [
    ("method=emsi", "no method of this sweep is called 'emsi'. Did you mean 'emso'? Known: emso, holdout, "),
    ("emsi", "no variant of this sweep is called 'emsi'. Did you mean 'emso'? Known: emso, "),
    ("emso --only method=task_arithmetic", "no trial of this sweep is all of these: leave one out."),
    ("colour=red", "does not say which trials to run. Say method=, model=, variant= or seed="),
]


@pytest.mark.parametrize(("only", "reason"), ONLY)
def test_only_faults(fault_at, only, reason):
    assert fault_at(f"--only {only}", only=only.split(" --only ")).startswith(reason)
