"""A model while it is measured: in each precision that an evaluator asks for, with what it has written so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from harness.contracts import Definition, Generations, Json, Model, Precision, Sequences
from harness.models.loading import copied_in
from harness.toolkit.decoding import greedy_choices

DTYPES: Mapping[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class MeasuredModel:
    """A model, with what its evaluators share."""

    model: Model
    """As it was erased, in fp32."""
    generations: dict[Definition, Generations] = field(default_factory=dict)
    """What it has written so far."""
    _lowered: dict[Precision, MeasuredModel] = field(default_factory=dict)

    def in_precision(self, precision: Precision) -> MeasuredModel:
        """Return the model with weights in this precision: itself in fp32, else a copy, made at the first call."""
        if precision == "fp32":
            return self
        if precision not in self._lowered:
            self._lowered[precision] = MeasuredModel(copied_in(self.model, DTYPES[precision]))
        return self._lowered[precision]

    def changed_choices(self, precision: Precision, sequences: Sequences) -> dict[str, Json]:
        """Return how many greedy choices over texts, each after the true text before it, the precision changes.

        Returns:
            `precision`; `choices`, how many there are; `changed`, how many are another token than in fp32.
        """
        exact_NT = greedy_choices(self.model, sequences)
        lowered_NT = greedy_choices(self.in_precision(precision).model, sequences)
        positions = torch.arange(exact_NT.shape[1])
        counted_NT = (positions > 0) & (positions < sequences.lengths_N[:, None])
        changed = int((exact_NT != lowered_NT)[counted_NT].sum())
        return {"precision": precision, "choices": int(counted_NT.sum()), "changed": changed}
