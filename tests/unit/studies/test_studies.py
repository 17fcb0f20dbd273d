"""The studies below studies/ still run: what they make is what the papers' formulas and the shipped files say."""

import gzip
import json
import math

import pandas as pd
import pytest
import torch

from harness.execution import jobs, trial
from harness.miniature import WEIGHTS, manifest
from harness.planning import published
from harness.planning.plan import plan
from harness.records import results
from harness.records.journal import Journal
from harness.toolkit.losses import token_negative_entropy, token_nll
from studies import meta_evaluation, paper_figures
from studies.miniature import __main__ as miniature, corpus
from studies.miniature.pretraining import SIZES

SWEEP = """# Which metric tells?
name: tiny
models: [{{id: {0}/m0, retrained: {0}/m1}}, {{id: {0}/m2, retrained: {0}/m3}}]
data:
  forget: {{source: miniature, sequences: 6, prefix_tokens: 8, sequence_tokens: 24}}
  utility: {{source: miniature, prompts: 4, prompt_tokens: 8, reference_tokens: 8}}
training: {{learning_rate: 1.0e-3, global_batch: 4, early_stop: null}}
memorized_model: {{epochs: 1, gate: 0.0}}
methods: {{gradient_ascent: {{epochs: [1, 2]}}, contrastive_decoding: {{gamma: 1}}}}
evaluators: {{sampled: {{tries: [1], tokens: [2], top_k: null}}, language_modelling: {{}}}}
compare: {{cost: own_perplexity}}
keep_erased: all
"""


def test_the_gradients_of_the_losses_are_autograds(tmp_path):
    assert paper_figures.main(["losses", "--out", str(tmp_path / "losses.png")]) == 0
    curves = paper_figures.loss_curves(7)
    for loss, column in ((token_negative_entropy, "negative_entropy_gradient_l1"), (token_nll, "nll_gradient_l1")):
        for _, row in curves.iloc[::80].iterrows():
            probabilities = torch.tensor([row.p, *[(1 - row.p) / 6] * 6], dtype=torch.double)
            leaf = probabilities.log()[None, None].requires_grad_()
            loss(leaf, *([torch.tensor([[0]])] if loss is token_nll else [])).sum().backward()
            assert row[column] == pytest.approx(leaf.grad.abs().sum().item(), rel=1e-6, abs=1e-9)


def test_the_meta_evaluation_of_a_tiny_sweep(make_model, tokenizer, tmp_path, monkeypatch):
    for seed in range(4):
        model = make_model(seed, layers=2, hidden=8, heads=2, vocabulary=256, positions=64)
        model.save_pretrained(tmp_path / f"m{seed}")
        tokenizer.save_pretrained(tmp_path / f"m{seed}")
    (tmp_path / "tiny.yaml").write_text(SWEEP.format(tmp_path))
    planned, folders = plan(tmp_path / "tiny.yaml"), jobs.Folders.locate(tmp_path / "results", "tiny")
    journal = Journal(folders.results / "journal")
    journal.write_plan(planned)
    assert meta_evaluation.main([str(folders.results)]) == 2, "nothing is measured yet"
    trial.run_inline(jobs.missing_jobs(results.read_results(planned, journal), folders, lambda event: None))
    assert meta_evaluation.main([str(folders.results)]) == 0
    table = pd.read_csv(folders.results / "meta.csv").set_index("metric")
    row = table.loc["log_p_at_2"]
    assert (row.all_rounded_points, row.all_relearned_points) == (6, 4), "two models decoded together have no weights"
    assert row.robustness == pytest.approx(2 / (1 / row.relearning + 1 / row.rounding))
    assert "own_perplexity" not in table.index
    monkeypatch.setattr(meta_evaluation, "disturbed_model", None)  # Kept numbers are not measured again.
    assert meta_evaluation.main([str(folders.results)]) == 0


def test_the_published_robustness_is_the_harmonic_mean_of_r_and_q_and_nothing_known_is_no_zero():
    rows = pd.read_csv(published.PUBLISHED / "metric_meta_evaluation.csv")
    assert len(rows) == 22
    means = list(map(meta_evaluation.harmonic_mean, rows["relearning"], rows["rounding"]))
    assert means == pytest.approx(rows["robustness"].tolist(), abs=2e-4)
    assert math.isnan(meta_evaluation.robustness([], "")["robustness"])


def test_the_shipped_texts_and_rows_are_made_again_to_the_digest():
    assert corpus.corpus_digest() == manifest()["corpus"]["sha256"]
    for name, made in miniature.generated_files().items():
        shipped = (WEIGHTS / name).read_bytes()
        assert gzip.decompress(made) == gzip.decompress(shipped), "another zlib packs the same text otherwise"
    assert json.loads(json.dumps(SIZES["s"]._asdict())) == manifest()["models"]["miniature-s"]["size"]
