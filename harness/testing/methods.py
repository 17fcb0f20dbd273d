"""The requirements on every method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from pydantic import ValidationError

from harness.contracts import ErasedModel, Method, Model, Number
from harness.execution.trial.inputs import forget_set
from harness.execution.trial.memorized import build_memorized
from harness.execution.trial.tasks import ErasingTask
from harness.models.loading import configuration, load_model
from harness.planning.tuning import declared_faults
from harness.plugins import METHODS, declared_space
from harness.records.artifacts import Artifacts
from harness.search_space import end_of
from harness.testing.shared import Conformance, assert_unchanged, left_alone
from harness.testing.small import MODEL, forget_nll, small_spec

FIRST_STEP_RATE = 1e-5
"""The learning rate at which an epoch is a small step: the loss moves as its gradient says."""


NOISE = 2.0
"""How many standard errors over the sequences a change must have to tell a direction."""


class MethodConformance(Conformance):
    """Inherit, name the plugin, and pytest does the rest."""

    plugin: ClassVar[str] = ""
    """The method's name."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings besides the strength, if the defaults are too slow for a test."""
    strengths: ClassVar[tuple[Number, ...]] = ()
    """Two or more strengths to try; chosen by the dial's kind unless given."""
    gentle: ClassVar[Number | None] = None
    """A strength small enough to be a first step; from `strengths` unless given."""
    model: str = MODEL
    """What is erased from: a folder or a hub id, with the miniature's tokenizer."""

    @pytest.fixture
    def name(self) -> str:
        """Return the plugin's name."""
        return self.plugin

    @pytest.fixture
    def method(self, name: str) -> type[Method]:
        """Return the plugin's class."""
        return METHODS.load(name)

    def dial(self, method: type[Method]) -> tuple[Number, ...]:
        """Return the strengths that the tests try; of a dial that ends below 3, its end and a tenth of that."""
        if self.strengths or method.strength.cumulative:
            return self.strengths or (1, 2)
        searched = declared_space(method).get(method.strength.field)
        strongest = min(3.0, end_of(searched)) if searched else 3.0
        return strongest / 10, strongest

    def erase(
        self, method: type[Method], name: str, artifacts: Artifacts, strengths: tuple[Number, ...], seed: int = 0
    ) -> Iterator[ErasedModel]:
        """Yield what the method yields, on the small trial."""
        configured = self.configured(method, name, max(strengths))
        yield from configured.erase(self.task(configured, artifacts, strengths, seed))

    def task(self, method: Method, artifacts: Artifacts, strengths: tuple[Number, ...], seed: int = 0) -> ErasingTask:
        """Return the small trial's task, with the memorised model if the method needs it."""
        spec = small_spec(method.reference, seed, self.model)
        if method.reference == "memorized_model":
            build_memorized(spec, artifacts, print)
        return ErasingTask(spec, artifacts, strengths, print)

    def original(self) -> Model:
        """Return the model to erase from, as it is."""
        return load_model(small_spec(model=self.model).model)

    def configured(self, method: type[Method], name: str, strength: Number) -> Method:
        """Return the method at a strength, and otherwise quick."""
        quick = {"epochs": 1} if "epochs" in method.__dataclass_fields__ and method.strength.field != "epochs" else {}
        return METHODS.configure(name, {**quick, **self.settings, method.strength.field: strength})

    def logits(self, model: Model) -> torch.Tensor:
        """Return the model's logits on the forget set."""
        with torch.inference_mode():
            logits: torch.Tensor = model(input_ids=forget_set(small_spec()).tokens_NT).logits
        return logits

    def only(
        self, method: type[Method], name: str, artifacts: Artifacts, strength: Number, seed: int = 0
    ) -> torch.Tensor:
        """Return the logits of the model erased at one strength."""
        return self.logits(next(self.erase(method, name, artifacts, (strength,), seed)).model)

    def test_it_introduces_itself(self, method: type[Method], name: str) -> None:
        """It has a label, a source, a version, a strength that is one of its settings, and erases from the model."""
        assert all((method.label, method.source, method.version >= 1, method.__doc__))
        assert method.strength.field in method.__dataclass_fields__
        configured = METHODS.configure(name, dict(self.settings))
        assert configured.refuses(configuration(small_spec(model=self.model).model)) is None

    def test_what_it_declares_can_be_searched(self, method: type[Method]) -> None:
        """A search may vary its strength, and every value that it may try is one that the setting allows."""
        assert method.strength.field in declared_space(method)
        assert list(declared_faults(method)) == []

    def test_off_changes_nothing(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """At the off strength the logits are the original's, to the last bit."""
        off = self.only(method, name, artifacts, method.strength.off)
        assert torch.equal(off, self.logits(self.original()))

    def test_on_changes_something(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """Any other strength moves the logits, a stronger one moves them elsewhere, and none recites better.

        A trajectory that has ended, because nothing is left to erase, may stay where it is.
        """
        original = self.logits(self.original())
        weak = self.only(method, name, artifacts, self.dial(method)[0])
        stronger = next(self.erase(method, name, artifacts, self.dial(method)[1:]))
        strong = self.logits(stronger.model)
        assert not torch.equal(weak, original)
        assert stronger.stop_reason or not torch.equal(weak, strong)
        for logits in (weak, strong):
            assert_forgets(method, forget_nll(original), forget_nll(logits))

    def test_its_first_step_forgets(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """A small step makes the forget set less likely: a method with the wrong sign memorises.

        A large step could hide that, since it does harm in either direction. A method that lowers something else than
        likelihood may leave it as it is, within noise.
        """
        first = self.dial(method)[0]
        strength = self.gentle or (first if method.strength.cumulative else first / 30)
        configured = self.configured(method, name, strength)
        task = self.task(configured, artifacts, (strength,))
        task.training = replace(task.training, learning_rate=FIRST_STEP_RATE)
        erased = next(configured.erase(task)).model
        assert_forgets(method, forget_nll(self.logits(self.original())), forget_nll(self.logits(erased)))

    def test_the_same_seed_gives_the_same_model(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """Erasing twice with one seed gives the same logits to the last bit."""
        first = self.only(method, name, artifacts, self.dial(method)[0])
        again = self.only(method, name, artifacts, self.dial(method)[0])
        assert torch.equal(first, again)

    def test_later_strengths_change_no_earlier_one(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """A cumulative trajectory is the same whether or not it goes on."""
        if not method.strength.cumulative:
            pytest.skip("the dial is not cumulative: each strength is a trial of its own")
        strengths = self.dial(method)
        alone = self.only(method, name, artifacts, strengths[0])
        first_of_several = self.logits(next(self.erase(method, name, artifacts, strengths)).model)
        assert torch.equal(alone, first_of_several)

    def test_a_stop_within_an_epoch_changes_no_later_point(
        self, method: type[Method], name: str, artifacts: Artifacts
    ) -> None:
        """Where its dial is divisible a trial may stop within an epoch: another point, and the next one is the same."""
        if not method.strength.divisible:
            pytest.skip("the dial is not divisible: a trial stops at its whole values")
        configured = self.configured(method, name, 1)
        task = self.task(configured, artifacts, (0.5, 1))
        task.training = replace(task.training, global_batch=max(1, task.training.global_batch // 2))
        half, whole = (self.logits(erased.model) for erased in configured.erase(task))
        task.strengths = (1,)
        [undivided] = (self.logits(erased.model) for erased in configured.erase(task))
        assert torch.equal(whole, undivided)
        assert not torch.equal(half, whole)

    def test_it_yields_each_strength_and_leaves_all_else_as_it_was(
        self, method: type[Method], name: str, artifacts: Artifacts
    ) -> None:
        """It yields what the task asks for, in order; its task and what the process shares are untouched meanwhile."""
        wanted = self.dial(method) if method.strength.cumulative else self.dial(method)[:1]
        configured = self.configured(method, name, max(wanted))
        task = self.task(configured, artifacts, wanted)
        with left_alone(task):
            yielded = []
            for erased in configured.erase(task):
                assert_unchanged(task.process_state.changed())
                yielded.append(erased.strength)
        assert yielded == list(wanted)

    def test_it_keeps_its_promise_about_blocks(self, method: type[Method], name: str, artifacts: Artifacts) -> None:
        """If it names the blocks it changed, every other weight is the original's, to the last bit."""
        from harness.models.blocks import blocks

        erased = list(self.erase(method, name, artifacts, self.dial(method)[:1]))[-1]
        if erased.changed_blocks is None:
            pytest.skip("the method makes no promise about blocks")
        original = self.original()
        weights, changed = dict(erased.model.named_parameters()), dict(original.named_parameters())
        named = [block for block in blocks(original) if block.name in erased.changed_blocks]
        assert any(not torch.equal(b.of(weights[b.parameter]), b.of(changed[b.parameter])) for b in named)
        with torch.no_grad():
            for block in named:
                block.of(changed[block.parameter]).copy_(block.of(weights[block.parameter]))
        assert all(torch.equal(weights[key], changed[key]) for key in weights)

    def test_a_wrong_setting_is_named(self, method: type[Method], name: str) -> None:
        """A setting that does not exist, or a strength below its range, is refused by name."""
        with pytest.raises(ValidationError, match="no_such_setting"):
            METHODS.configure(name, {"no_such_setting": 1})
        with pytest.raises(ValidationError, match=method.strength.field):
            METHODS.configure(name, {method.strength.field: -1})


def assert_forgets(method: type[Method], before_N: torch.Tensor, after_N: torch.Tensor) -> None:
    """Fail if the forget set's sequences got likelier, or no less likely where the method lowers that.

    Args:
        method: What erased.
        before_N: Each sequence's mean NLL with the original.
        after_N: The same with the erased model.
    """
    change_N = (after_N - before_N).double()
    change, noise = float(change_N.mean()), NOISE * float(change_N.std()) / math.sqrt(len(change_N))
    said = f"the forget set's mean NLL was {float(before_N.mean()):.6g}, and then {change:+.3g} (noise: ±{noise:.2g})"
    assert change >= -noise, f"it memorises: {said}"
    if method.lowers == "likelihood":
        assert change > 0, (
            f"it does not forget: {said}, which tells no direction. If it works on all logits or on hidden states "
            'say `lowers = "logits"` or `"hidden_states"`; else try a larger `gentle`.'
        )
