"""Every evaluator in evaluators/, found by its file, keeps the contract, in both definitions."""

import pytest

from harness.plugins import EVALUATORS
from harness.testing import EvaluatorConformance

QUICK = {
    "generation": {"mauve_seeds": 1},
    "memorization": {"el_sequences": 2, "el_prefixes": 4},
    "reasoning": {"limit": 12},
    "relearning": {"steps": [2], "rates": [5e-4]},
}
"""Settings with which the slow ones do less of the same."""


class TestEveryEvaluator(EvaluatorConformance):
    @pytest.fixture(params=[(name, definition) for name in EVALUATORS.names() for definition in ("exact", "table")])
    def evaluator(self, request):
        name, definition = request.param
        return EVALUATORS.configure(name, {"definition": definition} | QUICK.get(name, {}))
