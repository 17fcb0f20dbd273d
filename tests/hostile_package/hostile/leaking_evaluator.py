"""An evaluator that fails and quotes what it works on, each way a setting."""

import math
from dataclasses import dataclass

from hostile.leaks import LEAKS, PROCESS

from harness.contracts import Evaluator, Metric


@dataclass(frozen=True, kw_only=True)
class LeakingEvaluator(Evaluator):
    """Fails."""

    version = 1
    leak: str = "message"

    @property
    def metrics(self):
        about = {"better": "lower", "unit": "", "low": 0.0, "high": math.inf, "group": "generation", "source": "none"}
        return (Metric(name="leak", title="Leak", **about),)

    def evaluate(self, model, task):
        (LEAKS | PROCESS)[self.leak]()
