"""An edit without training: the last layer's MLP moves up the forget gradient, away from inputs of general text."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.contracts import ErasedModel, ErasureTask
from harness.toolkit import loss_gradient, mean_nll, mlp_matrices, second_moments


def erase(task: ErasureTask, step: float) -> Iterator[ErasedModel]:
    """Yield the edited model; `methods/kfac_edit.py` and `methods/repselect.py` are complete methods."""
    model = task.load_original()
    matrices = mlp_matrices(model)
    last = [matrix for matrix in matrices if matrix.layer == matrices[-1].layer]
    moments = second_moments(model, task.retain, last, task.training)
    gradients = loss_gradient(model, task.forget, last, mean_nll, task.training)
    for matrix in last:
        gradient_OI = matrix.outputs_first(gradients[matrix.parameter])
        _, directions_II = torch.linalg.eigh(moments[matrix.parameter].inputs_II)
        rarely_used = directions_II[:, : len(directions_II) // 2].to(gradient_OI)  # the least come first
        weight_OI = matrix.outputs_first(model.get_parameter(matrix.parameter).detach())
        weight_OI += step * gradient_OI @ rarely_used @ rarely_used.T
    yield ErasedModel(step, model)
