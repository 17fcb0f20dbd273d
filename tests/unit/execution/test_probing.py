"""Probes: the numbers that the table has, from two forward passes, and once for what all candidates compare with."""

from dataclasses import replace

import pytest
import torch

from harness.execution.trial.candidates import probe, selection_set
from harness.execution.trial.inputs import forget_set, measured_set, validation_set
from harness.execution.trial.tasks import MeasuringTask
from harness.models.loading import load_model
from harness.models.resolving import resolve_model
from harness.plans import StudySpec, Target
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.testing import small_spec
from harness.toolkit.scoring import own_perplexity


@pytest.fixture(scope="module")
def study():
    spec = small_spec()
    return StudySpec(
        study_id="study",
        trial=spec,
        seeds=(0,),
        space={},
        defaults={},
        is_cumulative=True,
        is_trained=True,
        search="optuna",
        trials=1,
        targets=(Target(metric="ma", at_most=0.5),),
        utility="perplexity",
        utility_bounds=(0.5, 5.0),
        selection=replace(spec.forget, half="selection", digest=""),
        retrained=resolve_model("miniature-s-retrained"),
    )


def test_a_probe_is_what_the_evaluator_and_the_early_stop_measure(study, tmp_path):
    spec, model = study.trial, load_model(study.trial.model)
    seen = probe(model, forget_set(spec), validation_set(spec))
    evaluator = EVALUATORS.configure("memorization", {"el_sequences": 1, "el_prefixes": 1})
    measured = evaluator.evaluate(model, MeasuringTask(spec, Artifacts(tmp_path), model, prepares=True)).numbers
    assert seen == {"ma": measured["ma"], "perplexity": own_perplexity(model, validation_set(spec))}


def test_it_looks_at_the_selection_half_alone(study):
    model = load_model(study.trial.model)
    report = measured_set(replace(study.trial, measured=replace(study.selection, half="report")))
    on_selection, on_report, on_all = (
        probe(model, texts, validation_set(study.trial))["ma"]
        for texts in (selection_set(study), report, forget_set(study.trial))
    )
    counts = len(selection_set(study)), len(report)
    assert sum(counts) == 24
    assert on_selection != on_report
    assert (on_selection * counts[0] + on_report * counts[1]) / 24 == pytest.approx(on_all)


def test_where_a_model_is_broken_nothing_is_known(study):
    model = load_model(study.trial.model)
    with torch.no_grad():
        model.base_model.ln_f.weight.fill_(float("nan"))
    seen = probe(model, selection_set(study), validation_set(study.trial))
    assert set(map(str, seen.values())) == {"nan"}
