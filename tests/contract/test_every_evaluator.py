"""Every evaluator in evaluators/, found by its file, keeps the contract, in both definitions."""

import pytest

from harness.plugins import EVALUATORS
from harness.testing import EvaluatorConformance


class TestEveryEvaluator(EvaluatorConformance):
    @pytest.fixture(params=[(name, definition) for name in EVALUATORS.names() for definition in ("exact", "table")])
    def evaluator(self, request):
        name, definition = request.param
        return EVALUATORS.configure(name, {"definition": definition})
