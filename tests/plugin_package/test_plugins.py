"""All that the author of plugins writes to have them checked."""

from harness.testing import EvaluatorConformance, MethodConformance


class TestUnlikelihood(MethodConformance):
    plugin = "unlikelihood"


class TestLossAttack(EvaluatorConformance):
    plugin = "loss_attack"
