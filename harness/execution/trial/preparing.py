"""Reference values of the original only: computed before any model is measured, once for all trials."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.base.digests import digest_of
from harness.base.files import write_whole
from harness.contracts import Checkpoint, Evaluator
from harness.execution.isolate import guarded
from harness.execution.trial.inputs import device_of
from harness.execution.trial.judges import JUDGES
from harness.execution.trial.measured_model import DTYPES, MeasuredModel
from harness.execution.trial.memory import release_free_memory
from harness.execution.trial.tasks import measuring_task
from harness.models.loading import load_model
from harness.plugins import EVALUATORS, prepares
from harness.records.artifacts import ARRAYS, Artifacts
from harness.specs import EvaluatorSpec, TrialSpec

_KIND = "prepared"
_KEYS = "arrays.json"
"""In an artifact of this kind: the keys of the arrays that an evaluator computed."""


def prepared_key(model: Checkpoint, measuring: EvaluatorSpec) -> str:
    """Return the artifact key of the arrays that an evaluator computes of an original."""
    return digest_of([model.digest, measuring.key])


def is_prepared(model: Checkpoint, measuring: EvaluatorSpec, artifacts: Artifacts) -> bool:
    """Return whether an evaluator's arrays of this original are there, undamaged, or it needs none; load nothing."""
    evaluator: Evaluator = EVALUATORS.configure(measuring.name, dict(measuring.settings))
    if not prepares(evaluator):
        return True
    folder = artifacts.find(_KIND, prepared_key(model, measuring))
    return folder is not None and all(artifacts.find(ARRAYS, key) for key in json.loads((folder / _KEYS).read_text()))


def prepare(
    spec: TrialSpec, evaluators: Sequence[EvaluatorSpec], artifacts: Artifacts, progress: Callable[[str], None]
) -> None:
    """Let evaluators compute what they need of the original; load nothing where that is there already.

    Args:
        spec: A trial of the model.
        evaluators: Those of the trial's that are going to measure.
        artifacts: Location of the arrays.
        progress: Called with a sentence for each evaluator.

    Raises:
        TrialError: An evaluator changed its task.
    """
    left = [measuring for measuring in evaluators if not is_prepared(spec.model, measuring, artifacts)]
    for precision in dict.fromkeys(measuring.precision for measuring in left):
        original = MeasuredModel(load_model(spec.model, DTYPES[precision]).to(device_of(spec)))
        for measuring in left:
            if measuring.precision == precision:
                progress(f"{measuring.name} of the original")
                evaluator: Evaluator = EVALUATORS.configure(measuring.name, dict(measuring.settings))
                task = measuring_task(spec, measuring, evaluator, original, artifacts, progress)
                with guarded(task.plugin, task):
                    evaluator.prepare(original.model, task)
                _keep(spec.model, measuring, list(task.cached_keys), artifacts)
        del original
        release_free_memory()
    if left:
        JUDGES.shrink()


def _keep(model: Checkpoint, measuring: EvaluatorSpec, keys: list[str], artifacts: Artifacts) -> None:
    def write(folder: Path) -> None:
        write_whole(folder / _KEYS, json.dumps(keys), "what was computed of the original")

    artifacts.build(_KIND, prepared_key(model, measuring), write)
