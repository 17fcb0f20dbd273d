"""The conformance suites find what plugins do wrong: each hostile one fails, for its own reason."""

import math
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch

from harness.contracts import CloserTo, Evaluation, Evaluator, Metric
from harness.plugins import METHODS
from harness.records.artifacts import Artifacts
from harness.testing import EvaluatorConformance, MethodConformance
from harness.toolkit import mean_nll, npo_loss
from methods import deliberate_imagination

pytestmark = pytest.mark.usefixtures("hostile", "put_back")


class Conformance(MethodConformance):
    """pytest collects only what is called Test."""


@pytest.mark.parametrize(("harm", "said"), [("late", "task.forget"), ("random", "Python's random state")])
def test_a_method_that_harms_what_it_shares_does_not_conform(tmp_path, harm, said):
    suite = Conformance()
    suite.settings = {"harm": harm}
    check = suite.test_it_yields_each_strength_and_leaves_all_else_as_it_was
    with pytest.raises(AssertionError, match=said):
        check(METHODS.load("harmful_method"), "harmful_method", Artifacts(tmp_path))


SAYS_WHICH_WAY = ("erasure_loss", "loss", "subtract", "contrast", "lowered")
"""What says which way a method goes: the first of these that it has."""
WITHOUT_SIGN = ("balanced_subnet", "kfac_edit")
"""What takes away weights or directions, and harms whichever it takes. tests/unit/methods has the wrong way round."""


@pytest.mark.parametrize("name", [name for name in METHODS.names() if name not in (*WITHOUT_SIGN, "pdu", "rmu")])
def test_a_method_whose_sign_is_turned_round_does_not_conform(tmp_path, monkeypatch, name):
    plugin = METHODS.load(name)
    if name == "gradient_ascent":
        monkeypatch.setattr(plugin, "loss", staticmethod(lambda model, forget, *more: mean_nll(model, forget)))
    elif name == "npo_sam":
        monkeypatch.setattr("methods.npo_sam.npo_loss", lambda *given, beta: -npo_loss(*given, beta=beta))
    elif name == "deliberate_imagination":
        imagine = deliberate_imagination.imagine
        monkeypatch.setattr(deliberate_imagination, "imagine", lambda *given: imagine(*given[:2], -given[2]))
    elif name in ("gru", "kl_divergence", "repselect", "sga"):
        monkeypatch.setattr(f"methods.{name}.ascent", lambda model, forget, *more: mean_nll(model, forget))
    else:
        turned = next(attribute for attribute in SAYS_WHICH_WAY if hasattr(plugin, attribute))
        formula = getattr(plugin, turned)
        if "loss" in turned:
            monkeypatch.setattr(plugin, turned, lambda *given: -formula(*given))
        else:
            monkeypatch.setattr(plugin, turned, lambda self, o, other: 2 * o - formula(self, o, other))
    with pytest.raises(AssertionError, match="it memorises"):
        Conformance().test_its_first_step_forgets(plugin, name, Artifacts(tmp_path))


CHANGES = [
    ((0.2, -0.1, 0.1), False, None),
    ((1e-4, -3e-4, 1e-4), False, "it does not forget: .* tells no direction"),
    ((1e-4, -3e-4, 1e-4), True, None),
    ((-0.2, -0.1, -0.3), True, "it memorises"),
    ((-1e-4, -1e-4, -1e-4), True, "it memorises"),
    ((0.0, 0.0, 0.0), False, "it does not forget"),
]


@pytest.mark.parametrize(("changes", "may_keep", "said"), CHANGES)
def test_noise_is_told_from_a_wrong_sign(changes, may_keep, said):
    suite = Conformance()
    suite.may_keep_likelihood = may_keep
    before_N = torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64)
    after_N = before_N + torch.tensor(changes, dtype=torch.float64)
    with nullcontext() if said is None else pytest.raises(AssertionError, match=said):
        suite.assert_forgets(before_N, after_N)


@dataclass(frozen=True, kw_only=True)
class OneWeight(Evaluator):
    """A metric that is one of the model's weights, or the same for all models."""

    version = 1
    group: str = "erasure"
    is_constant: bool = False

    @property
    def metrics(self):
        about = {"unit": "", "low": -math.inf, "high": math.inf, "source": "", "title": "X"}
        return (Metric(name="x", better=CloserTo("retrained"), group=self.group, **about),)

    def evaluate(self, model, task):
        weight = sum(float(each.detach().double().sum()) for each in model.parameters())
        return Evaluation({"x": 1.0 if self.is_constant else weight})


OF_ANY_GROUP = [
    ({}, "test_worse_models_get_worse_numbers", None),
    ({"is_constant": True}, "test_worse_models_get_worse_numbers", "^$"),
    ({"group": "My privacy"}, "test_it_reports_what_it_declares", "'My privacy' is no name of a group"),
]


@pytest.mark.parametrize(("settings", "test", "said"), OF_ANY_GROUP)
def test_metrics_of_any_group_and_direction_are_tried(tmp_path, settings, test, said):
    suite, evaluator = EvaluatorConformance(), OneWeight(**settings)
    with nullcontext() if said is None else pytest.raises(AssertionError, match=said):
        getattr(suite, test)(evaluator, suite.measuring_once(evaluator, Artifacts(tmp_path), {}))
