"""An evaluator that fails and quotes what it works on, each way a setting."""

import math
from dataclasses import dataclass

from hostile.leaks import LEAKS, TEXT

from harness.contracts import Evaluation, Evaluator, Metric


@dataclass(frozen=True, kw_only=True)
class LeakingEvaluator(Evaluator):
    """Fails."""

    version = 1
    leak: str = "message"

    @property
    def metrics(self):
        about = {"better": "lower", "unit": "", "low": 0.0, "high": math.inf, "group": "generation", "source": "none"}
        items = {"items": "sequence", "aggregate": "mean"} if self.leak == "names of items" else {}
        return (Metric(name="leak", title="Leak", **about, **items),)

    def evaluate(self, model, task):
        if self.leak == "names of metrics":
            return Evaluation({TEXT: 0.0})
        if self.leak == "names of items":
            return Evaluation({"leak": 0.0}, per_item={TEXT: [0.0]})
        LEAKS[self.leak]()
