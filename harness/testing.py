"""Conformance suites: the requirements on every method and every evaluator, ours and yours.

A plugin author's whole test file:

    from harness.testing import MethodConformance

    class TestUnlikelihood(MethodConformance):
        plugin = "unlikelihood"

The inherited tests run the plugin on the smallest miniature, through a trial's own tasks.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from harness.analysis.metrics import costs, deviations
from harness.contracts import CloserTo, ErasedModel, Evaluation, Evaluator, Method, Metric, Model
from harness.execution import erasing, tasks, trial
from harness.models import adapters, loading, resolving
from harness.planning import evaluators, tuning
from harness.plugins import EVALUATORS, METHODS, declared_space, plain_settings, prepares
from harness.records.artifacts import Artifacts
from harness.settings import Engine, MemorizedModel, MoreTexts, Number, Source, Training, Trial, end_of, replace
from harness.toolkit.cached_models import PairModel
from harness.toolkit.losses import token_nll

MODEL = "miniature-s"
RETRAINED_MODEL = f"{MODEL}-retrained"
FORGET = Source(source="miniature", sequences=24, sequence_tokens=128, prefix_tokens=64)
RETAIN = Source(source="miniature", sequences=24, sequence_tokens=128, prefix_tokens=1)
UTILITY = Source(source="miniature", sequences=24, sequence_tokens=160, prefix_tokens=32)
VALIDATION = replace(RETAIN, sequences=8)
MORE_TEXTS: Mapping[MoreTexts, Source] = {"holdout": FORGET, "retain": RETAIN, "validation": VALIDATION}
"""Sources from the embedded corpus; the holdout's records were never seen."""
TRAINING = Training(learning_rate=1e-3, global_batch=8, micro_batch=8, early_stop=None)


def small_spec(reference: str = "none", seed: int = 0, model: str = MODEL) -> Trial:
    """Return a trial with a few texts on the smallest miniature."""
    names: Any = {"trial_id": "conformance", "sweep": "conformance", "variant": "plugin", "label": "plugin"}
    names |= {"method": "plugin", "strength_name": "strength"}
    texts: Any = {"forget": FORGET, "retain": RETAIN, "utility": UTILITY, "validation": VALIDATION}
    memorization = MemorizedModel(epochs=3, learning_rate=1e-3, global_batch=8, gate=0.0)
    trained: Any = {"training": TRAINING, "memorization": memorization, "engine": Engine()}
    judges = {role: resolving.resolve_judge(role, name) for role, name in resolving.DEFAULT_JUDGES.items()}
    measured: Any = {"reference": reference, "seed": seed, "model": resolving.resolve_model(model)}
    return Trial(**names, **texts, **trained, **measured, judges=judges)


def small_task(evaluator: Evaluator, model: Model, artifacts: Artifacts) -> tasks.EvaluatingTask:
    """Return the small trial's task for an evaluator."""
    roles = {*evaluator.reads, *evaluator.reads_if_given}
    texts = {role: source for role, source in MORE_TEXTS.items() if role in roles}
    twin = resolving.resolve_model(RETRAINED_MODEL) if "retrained" in evaluator.reads else None
    fields: Any = {"texts": texts, "retrained": twin, "reads": evaluator.reads, "prepares": prepares(type(evaluator))}
    return tasks.EvaluatingTask(small_spec(), artifacts, model, "the evaluator", **fields)


def one_word_model() -> Model:
    """Return a collapsed model that repeats one token."""
    model = loading.load_model(resolving.resolve_model(MODEL))
    with torch.no_grad():
        final = model.base_model.ln_f
        final.weight.zero_()
        final.bias.copy_(100.0 * model.get_output_embeddings().weight[300])
    return model


def forget_nll(logits_NTV: torch.Tensor) -> torch.Tensor:
    """Return each forget sequence's mean NLL under these logits."""
    return token_nll(logits_NTV[:, :-1], tasks.forget_set(small_spec()).tokens_NT[:, 1:]).mean(dim=1)


def forget_logits(model: Model) -> torch.Tensor:
    """Return a model's logits on the forget set."""
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=tasks.forget_set(small_spec()).tokens_NT).logits
    return logits


@lru_cache(maxsize=1)
def original_logits(model: str) -> torch.Tensor:
    """Return the original's logits on the forget set."""
    return forget_logits(loading.load_model(small_spec(model=model).model))


class Conformance:
    """Base of both suites."""

    plugin: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings in addition to a method's strength, if the defaults are slow."""

    @pytest.fixture(scope="class")
    @classmethod
    def artifacts(cls, tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
        """Return an empty artifact folder, shared by a class's tests."""
        return Artifacts(tmp_path_factory.mktemp("artifacts"))


@contextmanager
def left_alone(task: tasks.ErasingTask | tasks.EvaluatingTask) -> Iterator[None]:
    """Assert that the block leaves its task and the process unchanged."""
    try:
        yield
        assert_unchanged([*task.process_state.changed(), *task.changes()])
    finally:
        task.process_state.restore()  # The next test is no neighbour to harm.
        tasks.clear_shared()


def assert_unchanged(changed: list[str]) -> None:
    """Fail if anything changed."""
    assert not changed, f"it leaves changed: {', '.join(changed)}"


FIRST_STEP_RATE = 1e-5
"""Learning rate at which an epoch is a small step."""
NOISE = 2.0
"""Standard errors that a change must exceed."""


class MethodConformance(Conformance):
    """Inherit and name the plugin."""

    strengths: ClassVar[tuple[Number, ...]] = ()
    """Two or more strengths to try; default: by the dial's kind."""
    gentle: ClassVar[Number | None] = None
    """Strength of a first step; default: from `strengths`."""
    may_keep_likelihood: ClassVar[bool] = False
    """For a method that lowers logits or changes hidden states: likelihood may stay within noise."""
    model: str = MODEL
    """A folder or hub id, with the miniature's tokenizer."""

    @pytest.fixture
    def name(self) -> str:
        """Return the plugin's name."""
        return self.plugin

    @pytest.fixture
    def method(self, name: str) -> type[Method]:
        """Return the plugin's class."""
        return METHODS.load(name)

    def dial(self, method: type[Method]) -> tuple[Number, ...]:
        """Return the strengths to try; a dial that ends below 3 has its end and a tenth of it."""
        if self.strengths or method.strength.cumulative:
            return self.strengths or (1, 2)
        searched = declared_space(method).get(method.strength.field)
        strongest = min(3.0, end_of(searched)) if searched else 3.0
        return strongest / 10, strongest

    def erase(
        self, method: type[Method], name: str, artifacts: Artifacts, strengths: tuple[Number, ...]
    ) -> Iterator[ErasedModel]:
        """Yield the method's erased models on the small trial."""
        configured = self.configured(method, name, max(strengths))
        yield from configured.erase(self.task(configured, artifacts, strengths))

    def task(self, method: Method, artifacts: Artifacts, strengths: tuple[Number, ...]) -> tasks.ErasingTask:
        """Return the small trial's task."""
        spec = small_spec(method.reference, model=self.model)
        if method.reference == "memorized_model":
            tasks.build_memorized(spec, artifacts, print)
        return tasks.ErasingTask(spec, artifacts, strengths, print)

    def configured(self, method: type[Method], name: str, strength: Number) -> Method:
        """Return a quick method at a strength."""
        quick = {"epochs": 1} if "epochs" in method.__dataclass_fields__ and method.strength.field != "epochs" else {}
        return METHODS.configure(name, {**quick, **self.settings, method.strength.field: strength})

    def only(self, method: type[Method], name: str, artifacts: Artifacts, strength: Number) -> torch.Tensor:
        """Return the logits after erasure at one strength."""
        return forget_logits(next(self.erase(method, name, artifacts, (strength,))).model)

    def test_it_introduces_itself(self, method: type[Method], name: str) -> None:
        """It declares label, source, version and strength."""
        assert all((method.label, method.source, method.version >= 1, method.__doc__))
        assert method.strength.field in method.__dataclass_fields__
        configured = METHODS.configure(name, plain_settings(METHODS.configure(name, dict(self.settings))))
        assert configured.refuses(loading.configuration(small_spec(model=self.model).model)) is None

    def test_what_it_declares_can_be_searched(self, method: type[Method]) -> None:
        """A search may vary its strength, within allowed values."""
        assert method.strength.field in declared_space(method)
        assert list(tuning.declared_faults(method)) == []

    def test_off_changes_nothing(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """At the off strength the logits are the original's, bit for bit."""
        assert torch.equal(self.only(method, name, artifacts, method.strength.off), original_logits(self.model))

    def test_on_changes_something(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """Other strengths move the logits, and none recites better."""
        original = original_logits(self.model)
        weak = self.only(method, name, artifacts, self.dial(method)[0])
        stronger = next(self.erase(method, name, artifacts, self.dial(method)[1:]))
        strong = forget_logits(stronger.model)
        assert not torch.equal(weak, original)
        assert stronger.stop_reason or not torch.equal(weak, strong)
        for logits in (weak, strong):
            self.assert_forgets(forget_nll(original), forget_nll(logits))

    def test_its_first_step_forgets(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """A small step makes the forget set less likely; a large one could hide a wrong sign."""
        first = self.dial(method)[0]
        strength = self.gentle or (first if method.strength.cumulative else first / 30)
        configured = self.configured(method, name, strength)
        task = self.task(configured, artifacts, (strength,))
        task.training = replace(task.training, learning_rate=FIRST_STEP_RATE)
        erased = next(configured.erase(task)).model
        self.assert_forgets(forget_nll(original_logits(self.model)), forget_nll(forget_logits(erased)))

    def test_the_same_seed_gives_the_same_model(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """One seed gives bit-identical logits."""
        first = self.only(method, name, artifacts, self.dial(method)[0])
        assert torch.equal(first, self.only(method, name, artifacts, self.dial(method)[0]))

    def test_later_strengths_change_no_earlier_one(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """A cumulative trajectory does not depend on its end."""
        if not method.strength.cumulative:
            pytest.skip("the dial is not cumulative: each strength is a trial of its own")
        strengths = self.dial(method)
        alone = self.only(method, name, artifacts, strengths[0])
        assert torch.equal(alone, forget_logits(next(self.erase(method, name, artifacts, strengths)).model))

    def test_a_stop_within_an_epoch_changes_no_later_point(
        self, method: type[Method], name: str, artifacts: Artifacts
    ) -> None:
        """Such a stop changes nothing later."""
        if not method.strength.divisible:
            pytest.skip("the dial is not divisible: a trial stops at its whole values")
        configured = self.configured(method, name, 1)
        task = self.task(configured, artifacts, (0.5, 1))
        task.training = replace(task.training, global_batch=max(1, task.training.global_batch // 2))
        half, whole = (forget_logits(erased.model) for erased in configured.erase(task))
        task.strengths = (1,)
        [undivided] = (forget_logits(erased.model) for erased in configured.erase(task))
        assert torch.equal(whole, undivided)
        assert not torch.equal(half, whole)

    def test_it_yields_each_strength_and_leaves_all_else_as_it_was(
        self, method: type[Method], name: str, artifacts: Artifacts
    ) -> None:
        """It yields the requested strengths in order; task and process stay unchanged."""
        strengths = self.dial(method) if method.strength.cumulative else self.dial(method)[:1]
        configured = self.configured(method, name, max(strengths))
        task = self.task(configured, artifacts, strengths)
        with left_alone(task):
            yielded = []
            for erased in configured.erase(task):
                assert_unchanged(task.process_state.changed())
                yielded.append(erased.strength)
        assert yielded == list(strengths)

    def test_it_keeps_its_promise_about_blocks(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """Weights outside the named blocks are bit-identical to the original's."""
        from harness.models.blocks import blocks

        erased = list(self.erase(method, name, artifacts, self.dial(method)[:1]))[-1]
        if erased.changed_blocks is None:
            pytest.skip("the method makes no promise about blocks")
        original = loading.load_model(small_spec(model=self.model).model)
        weights, changed = dict(erased.model.named_parameters()), dict(original.named_parameters())
        named_blocks = [block for block in blocks(original) if block.name in erased.changed_blocks]
        assert any(not torch.equal(b.of(weights[b.parameter]), b.of(changed[b.parameter])) for b in named_blocks)
        with torch.no_grad():
            for block in named_blocks:
                block.of(changed[block.parameter]).copy_(block.of(weights[block.parameter]))
        assert all(torch.equal(weights[key], changed[key]) for key in weights)

    def test_what_is_stored_is_what_it_made(
        self, method: type[Method], name: str, artifacts: Artifacts, tmp_path: Path
    ) -> None:
        """A stored model has the erased one's logits, so that a changed forward pass needs a `PairModel`."""
        original = small_spec(model=self.model).model
        erased = next(self.erase(method, name, artifacts, self.dial(method)[:1]))
        if isinstance(erased.model, PairModel):
            pytest.skip("two models that decode together are not stored")
        erasing.write_erased(erased, original, tmp_path / "erased")
        stored = adapters.load_erased(original, tmp_path / "erased")
        assert torch.equal(forget_logits(stored), forget_logits(erased.model))

    def test_a_wrong_setting_is_named(self, method: type[Method], name: str) -> None:
        """Unknown settings and strengths below range are refused by name."""
        with pytest.raises(ValidationError, match="no_such_setting"):
            METHODS.configure(name, {"no_such_setting": 1})
        with pytest.raises(ValidationError, match=method.strength.field):
            METHODS.configure(name, {method.strength.field: -1})

    def assert_forgets(self, before_N: torch.Tensor, after_N: torch.Tensor) -> None:
        """Fail if a sequence's mean NLL fell, or stayed where it may not."""
        change_N = (after_N - before_N).double()
        change, noise = float(change_N.mean()), NOISE * float(change_N.std()) / math.sqrt(len(change_N))
        mean_before = float(before_N.mean())
        clause = f"the forget set's mean NLL was {mean_before:.6g}, and then {change:+.3g} (noise: ±{noise:.2g})"
        assert change >= -noise, f"it memorises: {clause}"
        if not self.may_keep_likelihood:
            remedy = "say `may_keep_likelihood = True` if it works on all logits or hidden states, or a larger `gentle`"
            assert change > 0, f"it does not forget: {clause}, which tells no direction: {remedy}"


STUCK = "one word for ever"
AGAIN = f"{MODEL}, measured again"
Kept = dict[tuple[str, str], Evaluation]
Measure = Callable[[str], Evaluation]


class EvaluatorConformance(Conformance):
    """Inherit and name the plugin."""

    @pytest.fixture
    def evaluator(self) -> Evaluator:
        """Return the evaluator, configured."""
        return EVALUATORS.configure(self.plugin, dict(self.settings))

    def measure(self, evaluator: Evaluator, model: Model, artifacts: Artifacts) -> Evaluation:
        """Measure a model on the small trial."""
        return evaluator.evaluate(model, small_task(evaluator, model, artifacts))

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls) -> Kept:
        """Return the class's evaluations, by evaluator and model."""
        return {}

    @pytest.fixture
    def measured(self, evaluator: Evaluator, artifacts: Artifacts, kept: Kept) -> Measure:
        """Return a function that measures a named model once."""
        return self.measuring_once(evaluator, artifacts, kept)

    def measuring_once(self, evaluator: Evaluator, artifacts: Artifacts, kept: Kept) -> Measure:
        """Return a function that measures a named model once, and stores it in `kept`."""

        def measure_model(name: str) -> Evaluation:
            key = repr(evaluator), name
            if key not in kept:
                model = one_word_model() if name == STUCK else loading.load_model(resolving.resolve_model(name))
                kept[key] = self.measure(evaluator, model, artifacts)
            return kept[key]

        return measure_model

    def test_it_reports_what_it_declares(self, evaluator: Evaluator, measured: Measure) -> None:
        """Each metric is in its range or NaN, and the aggregate of its items."""
        faults = list(evaluators.group_faults(evaluator))
        assert not faults, faults[0]
        evaluation = measured(MODEL)
        numbers = evaluation.numbers
        assert set(numbers) == {metric.name for metric in evaluator.metrics}
        with_items = {metric.name for metric in evaluator.metrics if metric.items}
        for metric in evaluator.metrics:
            value = numbers[metric.name]
            assert np.isnan(value) or metric.low - 1e-6 <= value <= metric.high + 1e-6, metric.name
        assert not all(np.isnan(value) for value in numbers.values())
        spec = small_spec()
        texts = tasks.forget_set(spec), tasks.utility_texts(spec), tasks.more_texts(spec, MORE_TEXTS)
        item_metrics = trial.metric_items(evaluation, evaluator.metrics, *texts).keys()
        assert item_metrics == with_items, f"without a value for any item: {', '.join(with_items - item_metrics)}"

    def test_it_leaves_everything_as_it_was(self, evaluator: Evaluator, artifacts: Artifacts, kept: Kept) -> None:
        """Model, task, judges and torch's state are unchanged."""
        model = loading.load_model(resolving.resolve_model(MODEL))
        task = small_task(evaluator, model, artifacts)
        with left_alone(task):
            kept[repr(evaluator), AGAIN] = evaluator.evaluate(model, task)

    def test_the_same_model_gets_the_same_numbers(
        self, evaluator: Evaluator, artifacts: Artifacts, measured: Measure, kept: Kept
    ) -> None:
        """Measuring twice gives the same numbers, with a fresh or filled cache."""
        first = measured(MODEL).numbers
        if (repr(evaluator), AGAIN) not in kept:  # The test above measures a second time, if it is run too.
            model = loading.load_model(resolving.resolve_model(MODEL))
            kept[repr(evaluator), AGAIN] = self.measure(evaluator, model, artifacts)
        assert first == pytest.approx(kept[repr(evaluator), AGAIN].numbers, rel=0, abs=0, nan_ok=True)

    def test_what_it_prepares_is_found_again(self, evaluator: Evaluator, measured: Measure, tmp_path: Path) -> None:
        """Prepared arrays are found later, and change neither task nor numbers."""
        if not prepares(type(evaluator)):
            pytest.skip("it prepares nothing of the original")
        artifacts, original = Artifacts(tmp_path), loading.load_model(resolving.resolve_model(MODEL))
        preparing, measuring = (small_task(evaluator, original, artifacts) for _ in range(2))
        with left_alone(preparing):
            evaluator.prepare(original, preparing)
        numbers = evaluator.evaluate(original, measuring).numbers
        assert preparing.cached_keys, "it caches nothing in `prepare`"
        assert set(preparing.cached_keys) <= set(measuring.cached_keys), "it prepares arrays that it never asks for"
        assert numbers == pytest.approx(measured(MODEL).numbers, rel=0, abs=0, nan_ok=True)

    def test_worse_models_get_worse_numbers(self, evaluator: Evaluator, measured: Measure) -> None:
        """Reciting or repeating shows in the ranked metrics; in an evaluator's own group one of them suffices."""
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
                # A judge is not surprised by the same word again: perplexity by itself would call it good.
                for metric in metrics:
                    assert metric.name == "perplexity" or cost(metric, MODEL) < cost(metric, STUCK)
            elif group == "reasoning":
                # A single task may be guessed.
                assert sum(numbers(MODEL)[m.name] for m in metrics) > sum(numbers(STUCK)[m.name] for m in metrics)
            else:
                shows = all_differ(metrics, RETRAINED_MODEL) or all_differ(metrics, STUCK)
                assert shows, f"its metrics of the group '{group}' cannot distinguish a model from a worse one"
