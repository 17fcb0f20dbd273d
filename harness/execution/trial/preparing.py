"""What evaluators need of the original alone: computed before any model is measured, once for all trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.contracts import Evaluator
from harness.execution.isolate import guarded
from harness.execution.prepared import is_prepared, keep_prepared
from harness.execution.trial.inputs import device_of
from harness.execution.trial.judges import JUDGES
from harness.execution.trial.measured_model import DTYPES, MeasuredModel
from harness.execution.trial.memory import release_free_memory
from harness.execution.trial.tasks import measuring_task
from harness.models.loading import load_model
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.specs import EvaluatorSpec, TrialSpec


def prepare(
    spec: TrialSpec, evaluators: Sequence[EvaluatorSpec], artifacts: Artifacts, progress: Callable[[str], None]
) -> None:
    """Let evaluators compute what they need of the original alone; nothing is loaded where that is there already.

    Args:
        spec: A trial of the model.
        evaluators: Of its evaluators those that are going to measure.
        artifacts: Where the arrays are.
        progress: Is told what is going on.

    Raises:
        TrialError: An evaluator changed what it was lent.
    """
    left = [measuring for measuring in evaluators if not is_prepared(spec.model, measuring, artifacts)]
    for precision in dict.fromkeys(measuring.precision for measuring in left):
        original = MeasuredModel(load_model(spec.model, DTYPES[precision]).to(device_of(spec)))
        for measuring in left:
            if measuring.precision == precision:
                progress(f"{measuring.name} of the original")
                _prepare(spec, measuring, original, artifacts, progress)
        del original
        release_free_memory()
    if left:
        JUDGES.shrink()


def _prepare(
    spec: TrialSpec,
    measuring: EvaluatorSpec,
    original: MeasuredModel,
    artifacts: Artifacts,
    progress: Callable[[str], None],
) -> None:
    evaluator: Evaluator = EVALUATORS.configure(measuring.name, dict(measuring.settings))
    task = measuring_task(spec, measuring, evaluator, original, artifacts, progress)
    with guarded(task.plugin, task):
        evaluator.prepare(original.model, task)
    keep_prepared(spec.model, measuring, task.cached_keys, artifacts)
