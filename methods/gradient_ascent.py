"""Gradient ascent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.contracts import Json, Model
from harness.toolkit import Batch, TrainedMethod, mean_nll


@dataclass(frozen=True, kw_only=True)
class GradientAscent(TrainedMethod):
    """Minimises −L_NLL on the forget set.

    Source: Jang et al., arXiv:2210.01504, section 3.1; settings: joeljang/knowledge-unlearning.
    """

    label = "GA"
    source = "Jang et al. 2023, arXiv:2210.01504"
    reference = "none"
    version = 2
    published: ClassVar[Mapping[str, Json]] = {"training.learning_rate": 5e-5}

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        return -mean_nll(model, forget)
