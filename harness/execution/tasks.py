"""What a trial gives to its method and to its evaluators: the two tasks of the contracts, for real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
from harness.execution.judges import JUDGES
from harness.execution.memorized import load_memorized
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

forget_of = lru_cache(maxsize=2)(load_forget)
retain_of = lru_cache(maxsize=2)(load_retain)
validation_of = lru_cache(maxsize=2)(load_validation)
utility_of = lru_cache(maxsize=2)(load_utility)
UNSEEN_OF: Mapping[str, Callable[..., Sequences]] = {
    HOLDOUT: lru_cache(maxsize=2)(load_holdout),
    STAND_IN: lru_cache(maxsize=2)(load_stand_in),
}
"""How the rows of unseen texts read what stands in the forget set's place."""


def device_of(spec: TrialSpec) -> torch.device:
    """Return where a trial computes: a GPU only if the sweep gives it one."""
    return torch.device("cuda" if spec.gpus > 0 and torch.cuda.is_available() else "cpu")


def data_of(spec: TrialSpec, load: Callable[..., Sequences], source: Source, *rest: Any) -> Sequences:
    """Return a source's sequences, as this trial's model tokenises them; kept for the process's next trial."""
    return load(source, load_tokenizer(spec.model), vocabulary(spec.model), *rest)


@dataclass
class ErasingTask:
    """The contracts' `ErasureTask`, and what its trial wants to know afterwards."""

    spec: TrialSpec
    artifacts: Artifacts
    strengths: tuple[Number, ...]
    progress: Callable[[str], None]
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Load the texts, once for all trials of the process."""
        spec = self.spec
        self.seed: int = spec.seed
        self.training: Training = spec.training
        self.engine = spec.engine
        self.forget = data_of(spec, forget_of, spec.forget)
        self.retain: Sequences | None = None
        if spec.reference == "retain_data" and spec.retain is not None:
            self.retain = data_of(spec, retain_of, spec.retain, int(self.forget.lengths_N.max()))

    def load_original(self) -> Model:
        """Return a fresh copy of the original model on the trial's device."""
        return load_model(self.spec.model).to(device_of(self.spec))

    def memorized_model(self) -> Model:
        """Return a fresh copy of the memorised model; one that misses its gate leaves a warning."""
        model, accuracy = load_memorized(self.spec, self.artifacts, self.load_original, self.forget, self.progress)
        if accuracy < self.spec.memorization.gate:
            self.warnings.append(
                f"the memorised model recites the forget set with MA {accuracy:.3f}, below its gate of "
                f"{self.spec.memorization.gate:g}: train it longer (memorized_model.epochs)"
            )
        return model.to(device_of(self.spec))

    def validation_perplexity(self, model: Model) -> float:
        """Return the model's own perplexity on the validation texts."""
        return own_perplexity(model, data_of(self.spec, validation_of, self.spec.validation))


@dataclass
class MeasuringTask:
    """The contracts' `EvaluationTask` for one erased model."""

    spec: TrialSpec
    artifacts: Artifacts
    model: Model

    def __post_init__(self) -> None:
        """Load the texts and the tokenizer, once for all trials of the process."""
        self.seed: int = self.spec.seed
        self.forget: Sequences = data_of(self.spec, UNSEEN_OF.get(self.spec.method, forget_of), self.spec.forget)
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(self.spec.model)
        self._generations: dict[Definition, Generations] = {}

    def generations(self, definition: Definition) -> Generations:
        """Return the sampled continuations of the utility prompts, made at the first call."""
        if definition not in self._generations:
            self._generations[definition] = self._generate(definition)
        return self._generations[definition]

    def _generate(self, definition: Definition) -> Generations:
        utility: Utility = utility_of(self.spec.utility, self.tokenizer)
        table = definition == "table"
        room = int(getattr(self.model.config, "max_position_embeddings", 10**9)) - utility.prompts_NT.shape[1]
        new_tokens = min(TABLE_NEW_TOKENS if table else utility.references_NT.shape[1], room)
        rows = sample(self.model, utility.prompts_NT, new_tokens, seed=self.seed, top_k=TABLE_TOP_K if table else None)
        ended = [before_end(row, self.tokenizer.eos_token_id) for row in rows.tolist()]
        written = utility.prompt_texts, tuple(decoded(self.tokenizer, ended)), utility.reference_texts
        prompts, texts, references = (tuple(map(cleaned, part)) for part in written) if table else written
        return Generations(prompts, texts, references, texts_key(prompts, references))

    def judge(self, role: str, load: Callable[[Checkpoint], T]) -> T:
        """Return the judge for `role`; a large one goes when the next is asked for."""
        return cast(T, JUDGES.get(load, self.spec.judges[role]))

    def cached(self, key: Sequence[str], make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return `make()`, computed once for all trials of all sweeps."""
        return self.artifacts.arrays(tuple(key), make)

    def original_digest(self) -> str:
        """Return the digest of the original's weights."""
        return self.spec.model.digest

    def load_original(self) -> Model:
        """Return a fresh copy of the original model on the trial's device."""
        return load_model(self.spec.model).to(device_of(self.spec))
