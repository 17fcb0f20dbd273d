"""lethe meta: tiny models that are erased, disturbed and measured; what is kept; and what is refused."""

import json
import math

import pandas as pd
import pytest

from harness.cli import main as lethe
from harness.commands.meta import disturbed_tasks, measured_numbers
from harness.execution.inline import run_inline
from harness.execution.job import Folders
from harness.execution.jobs import jobs_for
from harness.execution.trial import disturbed
from harness.execution.trial.disturbed import DisturbanceSettings, measure_disturbed
from harness.library import read_folder
from harness.models.loading import load_model
from harness.planning.plan import plan
from harness.records.artifacts import Artifacts
from harness.records.journal import Journal
from harness.records.results import read_results
from harness.toolkit import greedy_choices, rounded_copy, rounding_to, trained_briefly

SWEEP = """# Which metric tells?
name: tiny
models: [{{id: {0}/m0, retrained: {0}/m1}}, {{id: {0}/m2, retrained: {0}/m3}}]
data:
  forget: {{source: miniature, sequences: 6, prefix_tokens: 8, sequence_tokens: 24}}
  utility: {{source: miniature, prompts: 4, prompt_tokens: 8, reference_tokens: 8}}
training: {{learning_rate: 1.0e-3, global_batch: 4, early_stop: null}}
memorized_model: {{epochs: 1, gate: 0.0}}
methods:
  gradient_ascent: {{epochs: [1, 2]}}
  contrastive_decoding: {{gamma: 1}}
evaluators:
  extraction: {{tokens: 4}}
  sampled: {{tries: [1], tokens: [2], top_k: null}}
  language_modelling: {{}}
compare: {{utility: own_perplexity, erasure: extraction_strength}}
keep_erased: all
"""


@pytest.fixture(scope="module")
def folder(make_model, tokenizer, tmp_path_factory):
    """A finished sweep of two tiny models with their twins, all of weights that nobody trained."""
    world = tmp_path_factory.mktemp("meta")
    for seed in range(4):
        model = make_model(seed, layers=2, hidden=8, heads=2, vocabulary=256, positions=64)
        model.save_pretrained(world / f"m{seed}")
        tokenizer.save_pretrained(world / f"m{seed}")
    file = world / "tiny.yaml"
    file.write_text(SWEEP.format(world))
    planned, folders = plan(file), Folders.of_sweep(world / "results", "tiny")
    journal = Journal(folders.results / "journal")
    journal.write_plan(planned)
    run_inline(jobs_for(read_results(planned, journal), folders), folders, lambda event: None)
    return folders.results


@pytest.fixture
def said(capsys):
    """Return a runner: exit code, and what is printed with single spaces."""

    def run(*arguments):
        code = lethe(["meta", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, " ".join((printed.out + printed.err).split())

    return run


def test_it_disturbs_every_point_once_and_writes_what_it_found(folder, said, monkeypatch):
    code, printed = said(folder, "--jobs", "1")
    assert code == 0, printed
    assert "2 models with the forget set, 2 without, 6 erased" in printed
    table = pd.read_csv(folder / "meta.csv").set_index("metric")
    assert {"extraction_strength", "recited_4", "leak_1_at_2", "log_p_at_2"} <= set(table.index)
    assert "own_perplexity" not in table.index
    assert table.loc["log_p_at_2", "all_rounded_points"] == 6
    assert table.loc["log_p_at_2", "all_relearned_points"] == 4, "of two models that are decoded together nothing is"
    carried = json.loads((folder / "meta.json").read_text())
    assert set(carried["metrics"]) == set(table.index)
    assert carried["provenance"]["rounded"] == "nf4"
    text = (folder / "meta.md").read_text()
    assert text.startswith("# Which metric tells?")
    assert "Extraction strength" in text
    assert "0.891" in text, "the public study's AUC of it"

    # What is measured is not measured again; a metric alone asks for nothing more.
    monkeypatch.setattr(disturbed, "disturbed_model", None)
    again, _reprinted = said(folder, "--jobs", "1")
    assert again == 0
    assert (folder / "meta.md").read_text() == text
    assert said(folder, "--jobs", "1", "--metrics", "extraction_strength")[0] == 0
    assert pd.read_csv(folder / "meta.csv")["metric"].tolist() == ["extraction_strength"]


def test_the_numbers_are_those_of_the_relearned_and_the_rounded_model(folder):
    results = read_folder(folder)
    tasks = disturbed_tasks(results, folder.parent / "artifacts", DisturbanceSettings())
    for task in tasks:
        assert measure_disturbed(task) == []
    numbers = measured_numbers(tasks)
    task = next(task for task in tasks if task.spec.method == "gradient_ascent")
    spec, artifacts = task.spec, Artifacts(folder.parent / "artifacts")
    point = spec.point_id(1)
    forget = disturbed.measured_set(spec)
    erased = disturbed.models_of(spec, artifacts, [1], print)
    model = next(erased).erased.model
    [(_, relearned)] = trained_briefly(model, forget, steps=[1], learning_rate=1e-4, batch=8, seed=0)
    rounded, _ = rounded_copy(model, rounding_to("nf4"))
    for kind, expected in (("relearned", relearned), ("rounded", rounded)):
        right = greedy_choices(expected, forget) == forget.tokens_NT
        recited = right[:, 8:12].all(dim=1).float().mean()
        assert numbers[point][kind]["recited_4"] == pytest.approx(float(recited))
        again = disturbed.disturbed_model(spec, model, kind, DisturbanceSettings())
        for weight, other in zip(again.parameters(), expected.parameters(), strict=True):
            assert bool((weight == other).all())
    assert numbers[point]["relearned"]["log_p_at_2"] != numbers[point]["rounded"]["log_p_at_2"]
    twin = next(task for task in tasks if task.spec.is_reference)
    assert twin.disturbances == ("relearned",)
    assert twin.spec.retrained is not None
    assert load_model(twin.spec.retrained).config.vocab_size == 256


def test_another_rate_is_another_measurement_and_rounding_stays(folder):
    [task, *_] = disturbed_tasks(read_folder(folder), folder.parent / "artifacts", DisturbanceSettings())
    [other, *_] = disturbed_tasks(
        read_folder(folder), folder.parent / "artifacts", DisturbanceSettings(learning_rate=0.1)
    )
    evaluator = task.measuring[0]
    assert task.key(None, "relearned", evaluator) != other.key(None, "relearned", evaluator)
    assert task.key(None, "rounded", evaluator) == other.key(None, "rounded", evaluator)


def test_a_model_that_cannot_be_relearned_is_said_and_the_others_are_measured(folder, said):
    code, printed = said(folder, "--jobs", "1", "--rate", "1e30")
    assert code == 1
    assert "not measured: GA at 1, relearned:" in printed
    table = pd.read_csv(folder / "meta.csv").set_index("metric")
    assert math.isnan(table.loc["log_p_at_2", "all_relearning"])
    assert table.loc["log_p_at_2", "all_rounded_points"] == 6


def test_what_cannot_be_judged_is_refused_in_a_sentence(folder, said, tmp_path, simulate_sweep):
    code, printed = said(tmp_path)
    assert (code, "holds no results of a sweep" in printed) == (2, True)
    code, printed = said(folder, "--metrics", "extraction_strenght")
    assert code == 2
    assert "Did you mean 'extraction_strength'?" in printed
    code, printed = said(simulate_sweep(tmp_path / "no_twin", {"ga": 1.0}, seeds=1))
    assert code == 2
    assert "measured no retrained model" in printed
    for argument, value in (("--rate", "0"), ("--jobs", "none")):
        with pytest.raises(SystemExit):
            said(folder, argument, value)


def test_a_sweep_that_is_not_finished_is_refused(folder, said, tmp_path):
    unfinished = tmp_path / "unfinished"
    (unfinished / "journal").mkdir(parents=True)
    (unfinished / "journal" / "plan.json").write_bytes((folder / "journal" / "plan.json").read_bytes())
    code, printed = said(unfinished)
    assert code == 2
    assert "are not finished" in printed
    assert "Run the sweep again" in printed
