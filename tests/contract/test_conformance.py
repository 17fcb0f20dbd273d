"""The conformance suites find what plugins do wrong: each hostile one fails, for its own reason."""

import math
import runpy
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.contracts import CloserTo, Evaluation, Evaluator, Metric
from harness.errors import TrialError
from harness.plugins import EVALUATORS, METHODS
from harness.records.artifacts import Artifacts
from harness.testing import EvaluatorConformance, MethodConformance
from methods import deliberate_imagination, kl_divergence

HOSTILE = Path(__file__).parents[1] / "hostile_package" / "hostile"
HARMS = runpy.run_path(str(HOSTILE / "harmful_evaluator.py"))
BY_METHOD = {
    "forget": "task.forget",
    "retain": "task.retain",
    "grad": "torch's grad mode",
    "dtype": "torch's default dtype",
    "random": "Python's random state",
    "late": "task.forget",
}
pytestmark = pytest.mark.usefixtures("hostile", "put_back")


class Conformance(MethodConformance):
    """pytest collects only what is called Test."""


def suite(tmp_path, harm):
    checked = Conformance()
    checked.settings = {"harm": harm}
    return lambda test: test(checked, METHODS.load("harmful_method"), "harmful_method", Artifacts(tmp_path))


@pytest.mark.parametrize("harm", BY_METHOD)
def test_a_method_that_harms_what_it_shares_does_not_conform(tmp_path, harm):
    checked = suite(tmp_path, harm)
    with pytest.raises(AssertionError) as failed:
        checked(MethodConformance.test_it_yields_each_strength_and_leaves_all_else_as_it_was)
    assert BY_METHOD[harm] in str(failed.value)


def test_a_method_with_good_manners_conforms(tmp_path):
    suite(tmp_path, "none")(MethodConformance.test_it_yields_each_strength_and_leaves_all_else_as_it_was)


SAYS_WHICH_WAY = ("erasure_loss", "loss", "subtract", "contrast", "lowered")
"""What says which way a method goes: the first of these that it has."""
WITHOUT_SIGN = ("balanced_subnet", "kfac_edit")
"""What takes away weights or directions, and harms whichever it takes. tests/unit/methods has the wrong way round."""


@pytest.mark.parametrize("name", [name for name in METHODS.names() if name not in (*WITHOUT_SIGN, "pdu", "rmu")])
def test_a_method_whose_sign_is_turned_round_does_not_conform(tmp_path, monkeypatch, name):
    plugin = METHODS.load(name)
    if name == "kl_divergence":
        nll = kl_divergence.mean_nll
        monkeypatch.setattr(kl_divergence, "mean_nll", lambda *given: -nll(*given))
    elif name == "deliberate_imagination":
        imagine = deliberate_imagination.imagine
        monkeypatch.setattr(deliberate_imagination, "imagine", lambda *given: imagine(*given[:2], -given[2]))
    else:
        turned = next(attribute for attribute in SAYS_WHICH_WAY if hasattr(plugin, attribute))
        formula = getattr(plugin, turned)
        if "loss" in turned:
            monkeypatch.setattr(plugin, turned, lambda *given: -formula(*given))
        else:
            monkeypatch.setattr(plugin, turned, lambda self, o, other: 2 * o - formula(self, o, other))
    with pytest.raises(AssertionError, match="it memorises"):
        Conformance().test_its_first_step_forgets(plugin, name, Artifacts(tmp_path))


@pytest.mark.parametrize(
    ("changes", "may_keep", "said"),
    [
        ((0.2, -0.1, 0.1), False, None),
        ((1e-4, -3e-4, 1e-4), False, "it does not forget: .* tells no direction"),
        ((1e-4, -3e-4, 1e-4), True, None),
        ((-0.2, -0.1, -0.3), True, "it memorises"),
        ((-1e-4, -1e-4, -1e-4), True, "it memorises"),
        ((0.0, 0.0, 0.0), False, "it does not forget"),
    ],
)
def test_noise_is_told_from_a_wrong_sign(changes, may_keep, said):
    suite = Conformance()
    suite.may_keep_likelihood = may_keep
    before_N = torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64)
    after_N = before_N + torch.tensor(changes, dtype=torch.float64)
    with nullcontext() if said is None else pytest.raises(AssertionError, match=said):
        suite.assert_forgets(before_N, after_N)


@pytest.mark.parametrize("harm", [*HARMS["REFUSED"], *HARMS["PUT_BACK"]])
def test_an_evaluator_that_harms_what_it_shares_does_not_conform(tmp_path, harm):
    with pytest.raises((AssertionError, TrialError)):
        EvaluatorConformance().test_it_leaves_everything_as_it_was(
            EVALUATORS.configure("harmful_evaluator", {"harm": harm}), Artifacts(tmp_path), {}
        )


@pytest.mark.parametrize("harm", ["none", "tokenizer", "an array"])
def test_an_evaluator_with_good_manners_conforms(tmp_path, harm):
    EvaluatorConformance().test_it_leaves_everything_as_it_was(
        EVALUATORS.configure("harmful_evaluator", {"harm": harm}), Artifacts(tmp_path), {}
    )


@dataclass(frozen=True, kw_only=True)
class OneWeight(Evaluator):
    """A metric that is one of the model's weights, or the same for all models."""

    version = 1
    group: str = "privacy"
    better: Any = "lower"
    is_constant: bool = False

    @property
    def metrics(self):
        about = {"unit": "", "low": -math.inf, "high": math.inf, "source": "", "title": "X"}
        return (Metric(name="x", better=self.better, group=self.group, **about),)

    def evaluate(self, model, task):
        weight = sum(float(each.detach().double().sum()) for each in model.parameters())
        return Evaluation({"x": 1.0 if self.is_constant else weight})


@pytest.mark.parametrize(
    ("settings", "test", "message"),
    [
        ({}, "test_worse_models_get_worse_numbers", None),
        (
            {"is_constant": True},
            "test_worse_models_get_worse_numbers",
            "'privacy' cannot distinguish a model from a worse",
        ),
        ({"group": "erasure", "better": CloserTo("retrained")}, "test_worse_models_get_worse_numbers", None),
        (
            {"group": "erasure", "better": CloserTo("retrained"), "is_constant": True},
            "test_worse_models_get_worse_numbers",
            "",
        ),
        ({}, "test_it_reports_what_it_declares", None),
        ({"group": "My privacy"}, "test_it_reports_what_it_declares", "'My privacy' is no name of a group"),
    ],
)
def test_metrics_of_any_group_and_direction_are_tried(tmp_path, settings, test, message):
    suite = EvaluatorConformance()
    evaluator = OneWeight(**settings)
    checked = partial(getattr(suite, test), evaluator, suite.measuring_once(evaluator, Artifacts(tmp_path), {}))
    if message is None:
        checked()
        return
    with pytest.raises(AssertionError) as failed:
        checked()
    assert message in str(failed.value)
