"""The requirements on every evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.analysis.metrics import costs, deviations
from harness.contracts import CloserTo, Evaluation, Evaluator, Metric, Model
from harness.execution.trial.inputs import forget_set, more_texts, utility_texts
from harness.execution.trial.items import metric_items
from harness.execution.trial.tasks import MeasuringTask
from harness.models.loading import load_model
from harness.models.resolving import resolve_model
from harness.planning.evaluators import group_faults
from harness.plugins import EVALUATORS
from harness.records.artifacts import Artifacts
from harness.testing.shared import Conformance, left_alone
from harness.testing.small import MODEL, MORE_TEXTS, RETRAINED_MODEL, one_word_model, small_spec, small_task

STUCK = "one word for ever"
AGAIN = f"{MODEL}, measured again"


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
        return evaluator.evaluate(model, self.task(evaluator, model, artifacts))

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls) -> dict[tuple[str, str], Evaluation]:
        """Return what the class's tests have measured so far, by evaluator and model."""
        return {}

    @pytest.fixture
    def measured(
        self, evaluator: Evaluator, artifacts: Artifacts, kept: dict[tuple[str, str], Evaluation]
    ) -> Callable[[str], Evaluation]:
        """Return a function that measures a model by its name, once for all of the class's tests."""
        return self.measuring_once(evaluator, artifacts, kept)

    def measuring_once(
        self, evaluator: Evaluator, artifacts: Artifacts, kept: dict[tuple[str, str], Evaluation]
    ) -> Callable[[str], Evaluation]:
        """Return a function from a model's name to its measurement, which is taken once and put into `kept`."""

        def of_model(name: str) -> Evaluation:
            key = repr(evaluator), name
            if key not in kept:
                model = one_word_model() if name == STUCK else load_model(resolve_model(name))
                kept[key] = self.measure(evaluator, model, artifacts)
            return kept[key]

        return of_model

    def task(self, evaluator: Evaluator, model: Model, artifacts: Artifacts) -> MeasuringTask:
        """Return the small trial's task, with the texts that the evaluator reads."""
        return small_task(evaluator, model, artifacts)

    def test_it_reports_what_it_declares(self, evaluator: Evaluator, measured: Callable[[str], Evaluation]) -> None:
        """It reports each declared metric, inside its range or NaN, and as the aggregate of its items if it has any."""
        faults = list(group_faults(evaluator))
        assert not faults, faults[0]
        evaluation = measured(MODEL)
        numbers = evaluation.numbers
        assert set(numbers) == {metric.name for metric in evaluator.metrics}
        with_items = set()
        for metric in evaluator.metrics:
            if metric.items:
                with_items.add(metric.name)
            value = numbers[metric.name]
            assert np.isnan(value) or metric.low - 1e-6 <= value <= metric.high + 1e-6, metric.name
        assert not all(np.isnan(value) for value in numbers.values())
        spec = small_spec()
        more = more_texts(spec, MORE_TEXTS)
        items = metric_items(evaluation, evaluator.metrics, forget_set(spec), utility_texts(spec), more)
        assert set(items) == with_items, f"without a value for any item: {', '.join(with_items - set(items))}"

    def test_it_leaves_everything_as_it_was(
        self, evaluator: Evaluator, artifacts: Artifacts, kept: dict[tuple[str, str], Evaluation]
    ) -> None:
        """Model, task, judges, torch's modes and defaults and every random state are untouched."""
        model = load_model(resolve_model(MODEL))
        task = self.task(evaluator, model, artifacts)
        with left_alone(task):
            kept[repr(evaluator), AGAIN] = evaluator.evaluate(model, task)

    def test_the_same_model_gets_the_same_numbers(
        self,
        evaluator: Evaluator,
        artifacts: Artifacts,
        measured: Callable[[str], Evaluation],
        kept: dict[tuple[str, str], Evaluation],
    ) -> None:
        """Measuring twice gives the same numbers, with a fresh cache or a filled one."""
        first = measured(MODEL).numbers
        if (repr(evaluator), AGAIN) not in kept:  # The test above measures a second time, if it is run too.
            kept[repr(evaluator), AGAIN] = self.measure(evaluator, load_model(resolve_model(MODEL)), artifacts)
        again = kept[repr(evaluator), AGAIN].numbers
        assert first == pytest.approx(again, rel=0, abs=0, nan_ok=True)

    def test_what_it_prepares_is_found_again(
        self, evaluator: Evaluator, measured: Callable[[str], Evaluation], tmp_path: Path
    ) -> None:
        """What it computes of the original alone is what it asks for later, and changes neither task nor numbers."""
        if not evaluator.prepares:
            pytest.skip("it prepares nothing of the original")
        artifacts, original = Artifacts(tmp_path), load_model(resolve_model(MODEL))
        preparing, measuring = (self.task(evaluator, original, artifacts) for _ in range(2))
        with left_alone(preparing):
            evaluator.prepare(original, preparing)
        numbers = evaluator.evaluate(original, measuring).numbers
        assert preparing.cached_keys, "it caches nothing in `prepare`"
        assert set(preparing.cached_keys) <= set(measuring.cached_keys), "it prepares what it never asks for"
        assert numbers == pytest.approx(measured(MODEL).numbers, rel=0, abs=0, nan_ok=True)

    def test_worse_models_get_worse_numbers(self, evaluator: Evaluator, measured: Callable[[str], Evaluation]) -> None:
        """Reciting the forget set, or writing the same word for ever, shows in the ranked metrics.

        In a group of the evaluator's own, it is enough that one of the two shows.
        """
        by_group: dict[str, list[Metric]] = {}
        for metric in evaluator.metrics:
            if metric.ranked:
                by_group.setdefault(metric.group, []).append(metric)
        if not by_group:
            pytest.skip("no ranked metric to compare")

        def numbers(model: str) -> Mapping[str, float]:
            return measured(model).numbers

        def cost(metric: Metric, model: str) -> float:
            aim = metric.better.aim if isinstance(metric.better, CloserTo) else math.nan
            value = numbers(RETRAINED_MODEL)[metric.name] if isinstance(aim, str) else aim
            return float(costs(deviations(np.array(numbers(model)[metric.name]), metric, value), metric))

        def all_differ(metrics: list[Metric], other: str) -> bool:
            return all(numbers(MODEL)[metric.name] != numbers(other)[metric.name] for metric in metrics)

        for group, metrics in by_group.items():
            if group == "erasure":
                assert all(cost(metric, RETRAINED_MODEL) < cost(metric, MODEL) for metric in metrics)
            elif group == "generation":
                # A judge is not surprised by the same word again: perplexity alone would call it good.
                for metric in metrics:
                    assert metric.name == "perplexity" or cost(metric, MODEL) < cost(metric, STUCK)
            elif group == "reasoning":
                # A single task may be guessed.
                assert sum(numbers(MODEL)[m.name] for m in metrics) > sum(numbers(STUCK)[m.name] for m in metrics)
            else:
                shows = all_differ(metrics, RETRAINED_MODEL) or all_differ(metrics, STUCK)
                assert shows, f"its metrics of the group '{group}' cannot distinguish a model from a worse one"
