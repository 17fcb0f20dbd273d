"""Probes: the numbers that the table has, from two forward passes."""

import torch

from harness.execution.erasing import probe
from harness.execution.tasks import EvaluatingTask, forget_set, validation_set
from harness.models.loading import load_model
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.testing import small_spec
from harness.toolkit.scoring import own_perplexity


def test_a_probe_is_what_the_evaluator_and_the_early_stop_measure(tmp_path):
    spec = small_spec()
    model = load_model(spec.model)
    seen = probe(model, forget_set(spec), validation_set(spec))
    evaluator = EVALUATORS.configure("memorization", {"el_sequences": 1, "el_prefixes": 1})
    measured = evaluator.evaluate(model, EvaluatingTask(spec, Artifacts(tmp_path), model, prepares=True)).numbers
    assert seen == {"ma": measured["ma"], "perplexity": own_perplexity(model, validation_set(spec))}


def test_where_a_model_is_broken_nothing_is_known():
    spec = small_spec()
    model = load_model(spec.model)
    with torch.no_grad():
        model.base_model.ln_f.weight.fill_(float("nan"))
    assert set(map(str, probe(model, forget_set(spec), validation_set(spec)).values())) == {"nan"}
