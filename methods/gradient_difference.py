"""Gradient difference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from harness.contracts import Model
from harness.toolkit import Batch, RetainWeight, TrainedMethod, mean_nll


@dataclass(frozen=True, kw_only=True)
class GradientDifference(TrainedMethod):
    """Minimises −L_NLL(forget) + L_NLL(retain).

    Source: Liu et al., "Continual Learning and Private Unlearning", arXiv:2203.12817.
    """

    label = "GD"
    source = "Liu et al. 2022, arXiv:2203.12817"
    reference = "retain_data"
    version = 2

    retain_weight: RetainWeight = 1.0
    """Weight of the retain term."""

    def loss(self, model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
        ascent = -mean_nll(model, forget)
        descent = mean_nll(model, retain)
        return ascent + self.retain_weight * descent
