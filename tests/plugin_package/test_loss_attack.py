"""What the author of an evaluator writes to have it checked."""

from harness.testing import EvaluatorConformance


class TestLossAttack(EvaluatorConformance):
    plugin = "loss_attack"
