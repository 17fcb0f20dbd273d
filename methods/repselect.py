"""RepSelect."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le

from harness import contracts
from harness.contracts import ErasedModel, ErasureTask, Json, LogUniform, Model, NonNegative, Positive, PositiveCount
from harness.toolkit import Epochs, MLPMatrix, ascent, lacks_layers, loss_gradient, mean_nll, mlp_matrices


@dataclass(frozen=True, kw_only=True)
class RepSelect(contracts.Method):
    """Subtracts one gradient of the forget set from every MLP matrix each epoch, damped where most texts share it.

    Low-rank adapters first learn the forget set in one epoch of SGD; the gradient is taken with them in place. Its
    strongest singular directions are shared by most texts and used by relearning: each of the q largest singular values
    s becomes s_q²/s.

    Differs from the paper: q is a share of each matrix's smaller side; the SVD is exact. The gradient is that of the
    mean over all tokens times the number of global batches, where the paper adds up the batches' own means. Neither the
    optimiser nor `training.early_stop` is used.

    Source: Sondej et al., arXiv:2606.17168; filyp/open-unlearning, its simple variant.
    """

    label = "RepSelect"
    source = "Sondej et al. 2026, arXiv:2606.17168"
    reference = "none"
    version = 1
    strength = contracts.Strength("epochs", cumulative=True, off=0)
    searched_training = ()

    epochs: Epochs = 1
    """Number of subtractions of the gradient."""
    step: Annotated[Positive, LogUniform(low=0.005, high=5.0)] = 0.05
    """Factor of the gradient, in place of `training.learning_rate`."""
    damped: Annotated[float, Ge(0.0), Le(1.0), LogUniform(low=0.01, high=0.5)] = 0.125
    """Damped share of a matrix's singular directions, strongest first."""
    adapter_step: Annotated[NonNegative, LogUniform(low=0.005, high=5.0)] = 0.01
    """SGD's learning rate for the adapters; 0: no adapters."""
    adapter_rank: PositiveCount = 8
    """Rank of the adapters, whose update B A is not scaled."""

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        return lacks_layers(str(config.get("model_type")))

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        model = task.load_original()
        matrices = mlp_matrices(model)
        changed = tuple(f"L{matrix.layer}.{kind}" for matrix in matrices for kind in matrix.kinds)
        distance = self.step * -(-len(task.forget) // task.training.global_batch)
        gradients: dict[str, torch.Tensor] = {}
        for number in range(int(max(task.strengths)) + 1):
            if number == 1:
                gradients = self.damped_gradients(task, model, matrices)
            for name, gradient in gradients.items():
                model.get_parameter(name).detach().sub_(gradient, alpha=distance)
            if number in task.strengths:
                yield ErasedModel(number, model, {"epoch": number}, changed_blocks=changed if number else ())

    def damped_gradients(
        self, task: ErasureTask, model: Model, matrices: Sequence[MLPMatrix]
    ) -> dict[str, torch.Tensor]:
        """Return each matrix's gradient with adapters in place, damped."""
        before = {matrix.parameter: model.get_parameter(matrix.parameter).detach().clone() for matrix in matrices}
        if self.adapter_step > 0:
            self.learn(task, model, matrices, before)
        task.progress("the gradient of the forget set")
        gradients = loss_gradient(model, task.forget, matrices, ascent, task.training)
        for matrix in matrices:
            model.get_parameter(matrix.parameter).detach().copy_(before.pop(matrix.parameter))
            gradient = gradients[matrix.parameter]
            for rows in matrix.rows_of_blocks(gradient).values():
                part_OI = matrix.outputs_first(gradient)[rows]
                part_OI.copy_(damp(part_OI, int(self.damped * min(part_OI.shape))))
        return gradients

    def learn(
        self, task: ErasureTask, model: Model, matrices: Sequence[MLPMatrix], before: Mapping[str, torch.Tensor]
    ) -> None:
        """Train W + B A in place for one epoch of SGD; B starts as 0, A random.

        No adapter is attached: with the gradient G in W, that in A is Bᵀ G, and that in B is G Aᵀ.
        """
        generator = torch.Generator().manual_seed(task.seed)
        adapters: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for matrix in matrices:
            weight_OI = matrix.outputs_first(before[matrix.parameter])
            outputs, inputs = weight_OI.shape
            drawn_RI = torch.rand(self.adapter_rank, inputs, generator=generator) * 2 - 1
            inner_RI = drawn_RI.to(weight_OI) / inputs**0.5
            adapters[matrix.parameter] = inner_RI, weight_OI.new_zeros(outputs, self.adapter_rank)
        order = torch.randperm(len(task.forget), generator=generator)
        for rows in order.split(task.training.global_batch):
            task.progress("adapters learn the forget set")
            gradients = loss_gradient(model, task.forget, matrices, mean_nll, task.training, rows)
            for matrix in matrices:
                inner_RI, outer_OR = adapters[matrix.parameter]
                gradient_OI = matrix.outputs_first(gradients[matrix.parameter])
                inner_step, outer_step = outer_OR.T @ gradient_OI, gradient_OI @ inner_RI.T
                inner_RI.sub_(inner_step, alpha=self.adapter_step)
                outer_OR.sub_(outer_step, alpha=self.adapter_step)
                weight_OI = matrix.outputs_first(model.get_parameter(matrix.parameter).detach())
                weight_OI.copy_(matrix.outputs_first(before[matrix.parameter]) + outer_OR @ inner_RI)


def damp(gradient_OI: torch.Tensor, strongest: int) -> torch.Tensor:
    """Return the gradient with each of its q strongest singular values s at s_q²/s, s_q the least of them.

    Example:
        >>> damp(torch.diag(torch.tensor([4.0, 2.0, 1.0])), strongest=2).diag()
        tensor([1., 2., 1.])
    """
    left_OK, values_K, right_KI = torch.linalg.svd(gradient_OI, full_matrices=False)
    values_Q = values_K[:strongest]
    # Where s is 0, s_q is too, and there is nothing to damp.
    damped_Q = torch.where(values_Q > 0, values_Q[-1:] ** 2 / values_Q, 0.0)
    change_OI: torch.Tensor = (left_OK[:, :strongest] * (values_Q - damped_Q)) @ right_KI[:strongest]
    return gradient_OI - change_OI
