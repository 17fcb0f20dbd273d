"""A plugin that was edited under the same version is noticed before its old numbers are shown as if it were not."""

import importlib
import shutil
import sys

import pytest

from harness.planning import setting_changes
from harness.plugins import EVALUATORS, METHODS, plugin_digest
from harness.records import journal
from harness.running import run_sweep

PLUGIN = '"""A plugin."""\n\nfrom own_plugins import formulas\n\n\nclass Own:\n    """Adds."""\n\n    size = 2\n\n'
PLUGIN += "    def number(self):\n        return formulas.number() + 1\n"
SWEEP = """
name: coded
models: [miniature-s]
data: {forget: {source: miniature, sequences: 4}, utility: {source: miniature, prompts: 4}}
methods: {gradient_ascent: {epochs: 1}}
evaluators: {extraction: {}}
"""
ASCENT, EXTRACTION = METHODS.load("gradient_ascent"), EVALUATORS.load("extraction")
FILES = [("methods/gradient_ascent.py", ASCENT.version), ("evaluators/extraction.py", EXTRACTION.version)]


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """Return a reader of the plugin's digest after its files were changed."""
    folder = tmp_path / "own_plugins"
    folder.mkdir()
    files = {"__init__.py": "", "own.py": PLUGIN, "parts.py": "PART = 1\n", "unrelated.py": "x = 1\n"}
    files["formulas.py"] = "from . import parts\n\n\ndef number():\n    return 1\n"
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def read(file="own.py", old="", new=""):
        path = folder / file
        path.write_text(path.read_text().replace(old, new) if old else path.read_text())
        importlib.invalidate_caches()
        plugin_digest.cache_clear()
        return plugin_digest(importlib.import_module("own_plugins.own").Own)

    yield read
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_plugins"]:
        del sys.modules[name]


EDITS = [
    ("own.py", "+ 1", "+ 2", True),
    ("parts.py", "PART = 1", "PART = 2", True),
    ("own.py", '"""Adds."""', '"""Adds one."""', False),
    ("own.py", "+ 1", "+ 1  # one", False),
    ("unrelated.py", "x = 1", "x = 2", False),
]


@pytest.mark.parametrize(("file", "old", "new", "is_noticed"), EDITS)
def test_code_is_what_decides_and_neither_comments_nor_other_files(digest, file, old, new, is_noticed):
    assert (digest() != digest(file, old, new)) == is_noticed


@pytest.fixture
def sweep(tmp_path, copied_mlflow_tables):
    """Return a runner of a sweep that is measured already."""
    (tmp_path / "coded.yaml").write_text(SWEEP)

    def run(**options):
        return run_sweep(tmp_path / "coded.yaml", executor="inline", results=tmp_path / "results", **options)

    run.journal = journal.Journal(tmp_path / "results" / "coded" / "journal")
    return run


def test_a_sweep_stops_before_old_numbers_pass_for_new_ones(sweep, monkeypatch):
    first = sweep()
    assert setting_changes.changed_code_sentence(first.results) == ""
    lines = {file.name: file.read_bytes() for file in sweep.journal.folder.glob("*.jsonl")}
    monkeypatch.setattr("harness.planning.setting_changes.plugin_digest", lambda plugin: f"edited {plugin.__name__}")
    with pytest.raises(Exception, match="Code has changed since") as refused:
        sweep()
    said = str(refused.value)
    method, evaluator = (f"{name} (version {version}, " for name, version in FILES)
    assert f"but no version: {evaluator}4 measurements), {method}1 point), or their imports." in said
    assert "Raise `version` in a file to make its results again, or add --keep to keep all." in said
    assert sweep(keep=True).table.equals(first.table)
    assert lines == {file.name: file.read_bytes() for file in sweep.journal.folder.glob("*.jsonl")}
    assert method in (first.folder / "report.html").read_text()
    monkeypatch.setattr(ASCENT, "version", 99)
    monkeypatch.setattr(EXTRACTION, "version", 99)
    assert sweep().results.trials[-1].spec.method_version == 99, "measured again under the next version"


def test_a_walk_is_by_its_code_too_and_its_file_is_named_once(sweep, monkeypatch):
    for name, level, counts in (("missed", 0.01, "1 walk"), ("reached", 0.9, "1 point, 1 walk")):
        until = [f"until={{ma: [{level}]}}", f"name={name}"]
        assert sweep(overrides=until).results.trials[-1].walked.reached == (name == "reached")
        with monkeypatch.context() as patch:
            patch.setattr(setting_changes, "plugin_digest", lambda plugin: f"edited {plugin.__name__}")
            with pytest.raises(Exception, match=rf"{FILES[0][0]} \(version {FILES[0][1]}, {counts}\)"):
                sweep(overrides=until)


def test_a_stored_model_is_taken_where_the_journal_has_its_point_and_by_the_code_that_made_it(sweep, monkeypatch):
    def made_and_numbers(*overrides, **options):
        outcome = sweep(overrides=["keep_erased=all", *overrides], **options)
        [point] = [point for point in outcome.results.measured if point.made and not point.spec.is_reference]
        return point.made.notes, point.numbers

    notes, numbers = made_and_numbers()
    assert notes.keys() == made_and_numbers("name=other")[0].keys() != set(), "another sweep has its own record"
    monkeypatch.setattr("harness.execution.trial.plugin_digest", lambda plugin: "edited")
    with_more = "evaluators={extraction: {}, weights: {}}"
    assert made_and_numbers("name=coded", with_more, keep=True)[1].items() > numbers.items()
    shutil.rmtree(sweep.journal.folder.parents[1] / "artifacts" / "erased")
    outcome = sweep(overrides=["evaluators={extraction: {}, language_modelling: {}}"], keep=True)
    [failed] = [trial for trial in outcome.results.trials if trial.failure]
    assert "has changed since epochs 1 was made, and its model was not kept" in failed.failure.reason
