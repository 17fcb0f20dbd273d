"""Conformance suites: the requirements on every method and every evaluator, ours and yours.

A plugin author's whole test file:

    from harness.testing import MethodConformance

    class TestUnlikelihood(MethodConformance):
        plugin = "unlikelihood"

pytest collects the inherited tests. They run the plugin on the smallest miniature model, through the
same tasks that a trial gives it. A property is checked together with its opposite: the off strength
changes nothing, and another strength does.
"""

from harness.testing.evaluators import EvaluatorConformance as EvaluatorConformance
from harness.testing.methods import MethodConformance as MethodConformance
