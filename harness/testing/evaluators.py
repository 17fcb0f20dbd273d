"""What every evaluator must keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.contracts import Evaluation, Evaluator, Metric, Model
from harness.execution.inputs import forget_set, utility_texts
from harness.execution.items import metric_items
from harness.execution.small import MODEL, one_word_model, small_spec
from harness.execution.tasks import MeasuringTask
from harness.models.loading import load_model
from harness.models.resolving import resolve_model
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.testing.shared import Conformance, left_alone


class EvaluatorConformance(Conformance):
    """Inherit, name the plugin, and pytest does the rest."""

    plugin: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture
    def evaluator(self) -> Evaluator:
        """Return the evaluator, configured."""
        return EVALUATORS.configure(self.plugin, dict(self.settings))

    def measure(self, evaluator: Evaluator, model: Model, artifacts: Artifacts) -> Evaluation:
        """Return what the evaluator measures on the small trial."""
        return evaluator.evaluate(model, MeasuringTask(small_spec(), artifacts, model))

    def test_it_reports_what_it_declares(self, evaluator: Evaluator, artifacts: Artifacts) -> None:
        """It reports each declared metric, inside its range or NaN, and as the aggregate of its items if it has any."""
        evaluation = self.measure(evaluator, load_model(resolve_model(MODEL)), artifacts)
        numbers = evaluation.numbers
        assert set(numbers) == {metric.name for metric in evaluator.metrics}
        for metric in evaluator.metrics:
            value = numbers[metric.name]
            assert np.isnan(value) or metric.low - 1e-6 <= value <= metric.high + 1e-6, metric.name
        assert not all(np.isnan(value) for value in numbers.values())
        items = metric_items(evaluation, evaluator.metrics, forget_set(small_spec()), utility_texts(small_spec()))
        declared = {metric.name for metric in evaluator.metrics if metric.items}
        assert set(items) == declared, f"without a value for any item: {', '.join(declared - set(items))}"

    def test_it_leaves_everything_as_it_was(self, evaluator: Evaluator, artifacts: Artifacts) -> None:
        """Model, task, judges, torch's modes and defaults and every random state are untouched."""
        model = load_model(resolve_model(MODEL))
        task = MeasuringTask(small_spec(), artifacts, model, "the evaluator")
        with left_alone(task):
            evaluator.evaluate(model, task)

    def test_the_same_model_gets_the_same_numbers(self, evaluator: Evaluator, artifacts: Artifacts) -> None:
        """Measuring twice gives the same numbers, with a fresh cache or a filled one."""
        model = load_model(resolve_model(MODEL))
        fresh = Artifacts(artifacts.root / "fresh")
        first, again = (self.measure(evaluator, model, cache).numbers for cache in (artifacts, fresh))
        assert first == pytest.approx(again, rel=0, abs=0, nan_ok=True)

    def test_worse_models_get_worse_numbers(self, evaluator: Evaluator, artifacts: Artifacts) -> None:
        """Reciting the forget set, or writing the same word for ever, shows in the ranked metrics."""
        erasure = _ranked(evaluator, "erasure")
        if erasure:
            recites = self.measure(evaluator, load_model(resolve_model(MODEL)), artifacts).numbers
            never_saw = self.measure(evaluator, load_model(resolve_model(f"{MODEL}-retrained")), artifacts).numbers
            assert all(_is_better(metric, never_saw, recites) for metric in erasure)
        generation = _ranked(evaluator, "generation")
        if generation:
            healthy = self.measure(evaluator, load_model(resolve_model(MODEL)), artifacts).numbers
            stuck = self.measure(evaluator, one_word_model(), artifacts).numbers
            # A judge is not surprised by the same word again: perplexity alone would call it good.
            assert all(_is_better(m, healthy, stuck) for m in generation if m.name != "perplexity")
        reasoning = _ranked(evaluator, "reasoning")
        if reasoning:
            healthy = self.measure(evaluator, load_model(resolve_model(MODEL)), artifacts).numbers
            stuck = self.measure(evaluator, one_word_model(), artifacts).numbers
            # A single task may be guessed.
            assert sum(healthy[m.name] for m in reasoning) > sum(stuck[m.name] for m in reasoning)
        if not (erasure or generation or reasoning):
            pytest.skip("no ranked metric to compare")


def _ranked(evaluator: Evaluator, group: str) -> list[Metric]:
    return [metric for metric in evaluator.metrics if metric.group == group and metric.ranked]


def _is_better(metric: Metric, numbers: Mapping[str, float], others: Mapping[str, float]) -> bool:
    ours, theirs = numbers[metric.name], others[metric.name]
    return (ours < theirs) if metric.better == "lower" else (ours > theirs)
