"""What a trial gives to its method and to its evaluators: the two tasks of the contracts, for real."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from harness.contracts import Checkpoint, Definition, Generations, Model, Number, Sequences, Training
from harness.data.sequences import (
    Utility,
    load_forget,
    load_holdout,
    load_retain,
    load_stand_in,
    load_utility,
    load_validation,
)
from harness.execution.fingerprint import State, changes, model_state, sequences_state
from harness.execution.guard import refuse_changes
from harness.execution.judges import JUDGES
from harness.execution.memorized import load_memorized
from harness.execution.surroundings import Surroundings
from harness.execution.texts import SharedTexts
from harness.models.loading import load_model, load_tokenizer, vocabulary
from harness.records.artifacts import Artifacts
from harness.specs import HOLDOUT, STAND_IN, Source, TrialSpec
from harness.toolkit.keys import texts_key
from harness.toolkit.perplexity import own_perplexity
from harness.toolkit.sampling import sample
from harness.toolkit.texts import before_end, cleaned, decoded

T = TypeVar("T")
TABLE_NEW_TOKENS = 200
TABLE_TOP_K = 50

forget_of = SharedTexts(load_forget)
retain_of = SharedTexts(load_retain)
validation_of = SharedTexts(load_validation)
utility_of = SharedTexts(load_utility)
UNSEEN_OF: Mapping[str, SharedTexts[Sequences]] = {
    HOLDOUT: SharedTexts(load_holdout),
    STAND_IN: SharedTexts(load_stand_in),
}
"""How the rows of unseen texts read what stands in the forget set's place."""


def drop_shared() -> None:
    """Let go of all that one trial leaves to the next: texts, tokenizers and judges are read again."""
    for texts in (forget_of, retain_of, validation_of, *UNSEEN_OF.values()):
        texts.drop()
    utility_of.drop()
    load_tokenizer.cache_clear()
    JUDGES.clear()


def device_of(spec: TrialSpec) -> torch.device:
    """Return where a trial computes: a GPU only if the sweep gives it one."""
    return torch.device("cuda" if spec.gpus > 0 and torch.cuda.is_available() else "cpu")


def data_of(spec: TrialSpec, load: Callable[..., Sequences], source: Source, *rest: Any) -> Sequences:
    """Return a source's sequences, as this trial's model tokenises them; a copy of what the process keeps."""
    return load(source, load_tokenizer(spec.model), vocabulary(spec.model), *rest)


@dataclass
class ErasingTask:
    """The contracts' `ErasureTask`, and what its trial wants to know afterwards."""

    spec: TrialSpec
    artifacts: Artifacts
    strengths: tuple[Number, ...]
    progress: Callable[[str], None]
    warnings: list[str] = field(default_factory=list)
    surroundings: Surroundings = field(default_factory=Surroundings.now)
    """The trial's own, in which everything is made that a method asks for."""

    def __post_init__(self) -> None:
        """Copy the trial's settings, and the texts, which are read once for all trials of the process."""
        spec = self.spec = TrialSpec.from_json(self.spec.to_json())
        self.seed: int = spec.seed
        self.training: Training = spec.training
        self.engine = spec.engine
        self.forget = data_of(spec, forget_of, spec.forget)
        self.retain: Sequences | None = None
        if spec.reference == "retain_data" and spec.retain is not None:
            self.retain = data_of(spec, retain_of, spec.retain, int(self.forget.lengths_N.max()))
        self._given = self._state()

    def _state(self) -> State:
        own = {(f"task.{name}", ""): repr(getattr(self, name)) for name in ("strengths", "seed", "training", "engine")}
        texts = {**sequences_state("task.forget", self.forget), **sequences_state("task.retain", self.retain)}
        return {**own, **texts, **_spec_state(self.spec)}

    def changes(self) -> list[str]:
        """Return what is not as it was when the task was made."""
        return changes(self._given, self._state())

    def load_original(self) -> Model:
        """Return a fresh copy of the original model on the trial's device."""
        with self.surroundings.in_force():
            return load_model(self.spec.model).to(device_of(self.spec))

    def memorized_model(self) -> Model:
        """Return a fresh copy of the memorised model; one that misses its gate leaves a warning."""
        with self.surroundings.in_force():
            forget = data_of(self.spec, forget_of, self.spec.forget)
            model, accuracy = load_memorized(self.spec, self.artifacts, self.load_original, forget, self.progress)
        if accuracy < self.spec.memorization.gate:
            self.warnings.append(
                f"the memorised model recites the forget set with MA {accuracy:.3f}, below its gate of "
                f"{self.spec.memorization.gate:g}: train it longer (memorized_model.epochs)"
            )
        return model.to(device_of(self.spec))

    def validation_perplexity(self, model: Model) -> float:
        """Return the model's own perplexity on the validation texts."""
        with self.surroundings.in_force():
            return own_perplexity(model, data_of(self.spec, validation_of, self.spec.validation))


@dataclass
class MeasuringTask:
    """The contracts' `EvaluationTask` for one evaluator on one erased model."""

    spec: TrialSpec
    artifacts: Artifacts
    model: Model
    who: str = "the evaluator"
    """As errors call it."""
    made: dict[Definition, Generations] = field(default_factory=dict)
    """The model's generations, which its evaluators share."""
    surroundings: Surroundings = field(default_factory=Surroundings.now)
    """The trial's own, in which everything is made that is shared."""

    def __post_init__(self) -> None:
        """Copy the trial's settings, and texts and tokenizer, which are read once for all trials of the process."""
        self.spec = TrialSpec.from_json(self.spec.to_json())
        self.seed: int = self.spec.seed
        self.forget: Sequences = data_of(self.spec, UNSEEN_OF.get(self.spec.method, forget_of), self.spec.forget)
        self.tokenizer: PreTrainedTokenizerBase = copy.deepcopy(load_tokenizer(self.spec.model))
        self._given = self._state()

    def _state(self) -> State:
        texts = sequences_state("task.forget", self.forget)
        return {("task.seed", ""): self.seed, **texts, **_spec_state(self.spec), **model_state(self.model)}

    def changes(self) -> list[str]:
        """Return what is not as it was when the task was made, the model and the judges that were asked for too."""
        return [*changes(self._given, self._state()), *JUDGES.changes()]

    def generations(self, definition: Definition) -> Generations:
        """Return the sampled continuations of the utility prompts, made at the first call."""
        if definition not in self.made:
            with self.surroundings.in_force():
                self.made[definition] = self._generate(definition)
        return self.made[definition]

    def _generate(self, definition: Definition) -> Generations:
        tokenizer = load_tokenizer(self.spec.model)
        utility: Utility = utility_of(self.spec.utility, tokenizer)
        table = definition == "table"
        room = int(getattr(self.model.config, "max_position_embeddings", 10**9)) - utility.prompts_NT.shape[1]
        new_tokens = min(TABLE_NEW_TOKENS if table else utility.references_NT.shape[1], room)
        rows = sample(self.model, utility.prompts_NT, new_tokens, seed=self.seed, top_k=TABLE_TOP_K if table else None)
        ended = [before_end(row, tokenizer.eos_token_id) for row in rows.tolist()]
        written = utility.prompt_texts, tuple(decoded(tokenizer, ended)), utility.reference_texts
        prompts, texts, references = (tuple(map(cleaned, part)) for part in written) if table else written
        return Generations(prompts, texts, references, texts_key(prompts, references))

    def judge(self, role: str, load: Callable[[Checkpoint], T]) -> T:
        """Return the judge for `role`; a large one goes when the next is asked for."""
        with self.surroundings.in_force():
            return cast(T, JUDGES.get(load, self.spec.judges[role]))

    def cached(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for all trials of all sweeps.

        Raises:
            TrialError: The evaluator has changed what it was lent: others must not get what it makes of that.
        """

        def sound() -> Mapping[str, np.ndarray]:
            with self.surroundings.in_force():
                arrays = make()
                refuse_changes(self.who, self)
                return arrays

        return self.artifacts.arrays(tuple(key), sound)

    def original_digest(self) -> str:
        """Return the digest of the original's weights."""
        return self.spec.model.digest

    def load_original(self) -> Model:
        """Return a fresh copy of the original model on the trial's device."""
        with self.surroundings.in_force():
            return load_model(self.spec.model).to(device_of(self.spec))


def _spec_state(spec: TrialSpec) -> State:
    return {("the trial's", name): json.dumps(value, sort_keys=True) for name, value in spec.to_json().items()}
