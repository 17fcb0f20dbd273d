"""Models that are disturbed and measured again: trained on the forget set, or rounded; each number is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from harness.base.digests import digest_of
from harness.contracts import Model, Number, RoundingScheme
from harness.errors import TrialError
from harness.execution.trial.inputs import measured_set
from harness.execution.trial.measured_model import MeasuredModel
from harness.execution.trial.run import evaluated, models_of
from harness.records.artifacts import ARRAYS, Artifacts
from harness.specs import EvaluatorSpec, TrialSpec
from harness.toolkit.decoding.pair import PairModel
from harness.toolkit.rounding import rounded_copy, rounding_to
from harness.toolkit.short_training import trained_briefly

DISTURBED_VERSION = 1
"""Raised when the numbers of disturbed models change; part of their keys."""
Disturbance = Literal["relearned", "rounded"]
DISTURBANCES: tuple[Disturbance, ...] = get_args(Disturbance)


@dataclass(frozen=True, kw_only=True)
class DisturbanceSettings:
    """How models are disturbed, all of them alike."""

    learning_rate: float = 1e-4
    """AdamW's, of one epoch on the whole forget set."""
    batch: int = 8
    """Forget sequences in one step."""
    scheme: RoundingScheme = "nf4"
    """To what linear layers are rounded."""

    def of(self, disturbance: Disturbance) -> dict[str, float | int | str]:
        """Return those of one disturbance: the others do not change what it makes of a model."""
        return (
            {"scheme": self.scheme}
            if disturbance == "rounded"
            else {name: value for name, value in asdict(self).items() if name != "scheme"}
        )


@dataclass(frozen=True, kw_only=True)
class DisturbedTask:
    """A trial whose models are disturbed and measured: plain data, for another process."""

    spec: TrialSpec
    strengths: tuple[Number | None, ...]
    """Those that were measured; None of a reference row."""
    evaluators: tuple[str, ...]
    """The names of those that measure again."""
    disturbances: tuple[Disturbance, ...]
    settings: DisturbanceSettings
    artifacts: str
    """The folder of all sweeps' artifacts."""

    @property
    def measuring(self) -> list[EvaluatorSpec]:
        """Return the trial's evaluators that measure again."""
        return [evaluator for evaluator in self.spec.evaluators if evaluator.name in self.evaluators]

    def key(self, strength: Number | None, disturbance: Disturbance, evaluator: EvaluatorSpec) -> tuple[str, ...]:
        """Return what decides the numbers of one evaluator on one disturbed model: an artifact's key."""
        settings = digest_of(self.settings.of(disturbance))
        texts = (self.spec.measured or self.spec.forget).digest
        point = self.spec.point_id(strength), self.spec.model.digest, texts
        return "disturbed", str(DISTURBED_VERSION), disturbance, settings, *point, evaluator.key

    def missing(self, artifacts: Artifacts) -> dict[Number | None, list[tuple[Disturbance, EvaluatorSpec]]]:
        """Return what is still to be measured, by the strength; nothing of one that is measured whole."""
        by_strength: dict[Number | None, list[tuple[Disturbance, EvaluatorSpec]]] = {}
        for strength in self.strengths:
            for disturbance in self.disturbances:
                for evaluator in self.measuring:
                    if not artifacts.has(ARRAYS, digest_of(list(self.key(strength, disturbance, evaluator)))):
                        by_strength.setdefault(strength, []).append((disturbance, evaluator))
        return by_strength

    def numbers(self, strength: Number | None, disturbance: Disturbance, artifacts: Artifacts) -> dict[str, float]:
        """Return what was measured of a disturbed model, by metric; nothing of what is missing."""
        numbers: dict[str, float] = {}
        for evaluator in self.measuring:
            key = self.key(strength, disturbance, evaluator)
            if artifacts.find(ARRAYS, digest_of(list(key))) is not None:
                numbers |= {name: float(value[0]) for name, value in artifacts.arrays(key, dict).items()}
        return numbers


def measure_disturbed(task: DisturbedTask) -> list[str]:
    """Measure what is missing of a trial's disturbed models, and keep it.

    Returns:
        Why something could not be measured, in sentences. Two models that are decoded together have no weights that
        relearning could change, which is no failure: nothing is kept of them there.
    """
    torch.set_num_threads(max(1, task.spec.cpus))
    artifacts = Artifacts(Path(task.artifacts))
    missing = task.missing(artifacts)
    if not missing:
        return []
    strengths = [strength for strength in missing if strength is not None]
    failures: list[str] = []
    with closing(models_of(task.spec, artifacts, strengths, _ignored)) as erasures:
        for erasure in erasures:
            strength = None if task.spec.is_reference else erasure.erased.strength
            wanted = missing.pop(strength, [])
            for disturbance in DISTURBANCES:
                measuring = [evaluator for kind, evaluator in wanted if kind == disturbance]
                try:
                    _measure(task, strength, disturbance, measuring, erasure.erased.model.eval(), artifacts)
                except TrialError as error:
                    failures.append(f"{task.spec.label} at {strength}, {disturbance}: {error}")
            if not missing:
                break
    return failures


def _measure(
    task: DisturbedTask,
    strength: Number | None,
    disturbance: Disturbance,
    measuring: Sequence[EvaluatorSpec],
    model: Model,
    artifacts: Artifacts,
) -> None:
    if not measuring or (disturbance == "relearned" and isinstance(model, PairModel)):
        return
    disturbed = MeasuredModel(disturbed_model(task.spec, model, disturbance, task.settings))
    for evaluator in measuring:

        def make(evaluator: EvaluatorSpec = evaluator) -> Mapping[str, np.ndarray]:
            numbers = evaluated(task.spec, evaluator, disturbed, artifacts, _ignored).numbers
            return {name: np.array([float(value)]) for name, value in numbers.items()}

        artifacts.arrays(task.key(strength, disturbance, evaluator), make)


def disturbed_model(spec: TrialSpec, model: Model, disturbance: Disturbance, settings: DisturbanceSettings) -> Model:
    """Return a copy of a model after one epoch on a trial's forget set, or with its linear layers rounded.

    Raises:
        TrialError: A loss is not a number, or the model has nothing that could be rounded.
    """
    if disturbance == "rounded":
        return rounded_copy(model, rounding_to(settings.scheme))[0].eval()
    forget = measured_set(spec)
    steps = -(-len(forget) // settings.batch)
    train = partial(trained_briefly, learning_rate=settings.learning_rate, batch=settings.batch, seed=0)
    [(_, trained)] = train(model, forget, steps=[steps])
    return trained


def _ignored(message: str) -> None:
    """Take a message that nobody waits for."""
