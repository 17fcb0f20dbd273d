"""K-FAC edit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le, Lt

from harness.contracts import Choice, ErasedModel, ErasureTask, Json, LogUniform, Method, PositiveCount, Strength
from harness.toolkit import SecondMoments, lacks_layers, mlp_matrices, second_moments


@dataclass(frozen=True, kw_only=True)
class KFACEdit(Method):
    """Keeps the directions of each MLP matrix W that general text (the retain set) needs most, without training.

    K-FAC's curvature of the loss in W is G ⊗ A, with A = E[a aᵀ] of W's inputs and G = E[g gᵀ] of the gradients in its
    outputs. In the eigenvectors of both, U_Gᵀ W U_A, the coefficient i, j has the curvature λ_i μ_j. The least become 0
    as long as they hold less than the erased mass, a share of (Σ λ)(Σ μ). The forget set is not read.

    Differs from the paper: A and G are the retain set's, not those of 100 MB of pretraining text. With fewer positions
    than inputs or outputs, directions without curvature go first.

    Source: Merullo et al., arXiv:2510.24256, the edit by pairs; code: goodfire-ai/memorization_kfac.
    """

    label = "K-FAC"
    source = "Merullo et al. 2025, arXiv:2510.24256"
    reference = "retain_data"
    version = 1
    strength = Strength("erased_mass", cumulative=False, off=0.0)
    searched_training = ()

    erased_mass: Annotated[float, Ge(0.0), Lt(1.0), LogUniform(low=0.0005, high=0.8)] = 0.4
    """Largest erased share of the curvature's mass: the paper's 1 − ρ."""
    ranking: Annotated[Literal["pairs", "sides"], Choice(values=("pairs", "sides"))] = "pairs"
    """`pairs`: by λ_i μ_j, the paper's; `sides`: W ← U_G U_Gᵀ W U_A U_Aᵀ with each side's top eigenvectors."""
    layers: Annotated[PositiveCount, Choice(values=(1, 3))] = 3
    """Neighbouring layers that are edited."""
    depth: Annotated[float, Ge(0.0), Le(1.0), Choice(values=(0.5, 0.8, 1.0))] = 0.8
    """Place of the last of these; 1 is the last layer."""
    edited: Annotated[Literal["inputs", "all"], Choice(values=("inputs", "all"))] = "inputs"
    """`inputs`: up and gate; `all`: the down-projection too."""
    labels: Literal["sampled", "true"] = "sampled"
    """Labels of G's gradients: `sampled` from the model (Fisher information), or the texts'."""

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        return lacks_layers(str(config.get("model_type")))

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the edited model; the notes contain each matrix's remaining squared norm."""
        assert task.retain is not None
        model = task.load_original()
        edited_layers = self.edited_layers(model.config.num_hidden_layers)
        matrices = [matrix for matrix in mlp_matrices(model) if matrix.layer in edited_layers]
        if self.edited == "inputs":
            matrices = [matrix for matrix in matrices if "C_proj" not in matrix.kinds]
        seed = task.seed if self.labels == "sampled" else None
        task.progress(f"second moments of {len(matrices)} matrices")
        moments = second_moments(model, task.retain, matrices, task.training, seed)
        kept: dict[str, Json] = {}
        for matrix in matrices:
            matrix_moments = moments.pop(matrix.parameter)
            stored = model.get_parameter(matrix.parameter).detach()
            for name, rows in matrix.rows_of_blocks(stored).items():
                weight_OI = matrix.outputs_first(stored)[rows]
                block_moments = SecondMoments(matrix_moments.inputs_II, matrix_moments.gradients_OO[rows, rows])
                before = weight_OI.square().sum()
                weight_OI -= self.erased_part(weight_OI, block_moments)
                kept[name] = float(weight_OI.square().sum() / before)
        yield ErasedModel(self.erased_mass, model, {"kept_square_norm": kept}, changed_blocks=tuple(kept))

    def edited_layers(self, count: int) -> range:
        """Return the edited layers of a model of so many, from 0.

        Example:
            >>> edit = KFACEdit()
            >>> edit.edited_layers(32), edit.edited_layers(2), KFACEdit(layers=1, depth=1.0).edited_layers(12)
            (range(23, 26), range(0, 2), range(11, 12))
        """
        end = max(1, round(self.depth * count))
        return range(max(0, end - self.layers), end)

    def erased_part(self, weight_OI: torch.Tensor, moments: SecondMoments) -> torch.Tensor:
        """Return the part to subtract from W; zeros leave W bit-identical.

        Example:
            >>> curvature = SecondMoments(torch.diag(torch.tensor([1.0, 3.0])), torch.diag(torch.tensor([5.0, 5.0])))
            >>> KFACEdit(erased_mass=0.3).erased_part(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), curvature)
            tensor([[1., 0.],
                    [3., 0.]])
        """
        eigenvalues_O, vectors_OO = torch.linalg.eigh(moments.gradients_OO)
        eigenvalues_I, vectors_II = torch.linalg.eigh(moments.inputs_II)
        # Rounding makes the least a little negative.
        curvature_O, curvature_I = eigenvalues_O.clamp(min=0.0), eigenvalues_I.clamp(min=0.0)
        if self.ranking == "pairs":
            is_erased_OI = least(torch.outer(curvature_O, curvature_I), self.erased_mass)
        else:
            is_erased_OI = least(curvature_O, self.erased_mass)[:, None] | least(curvature_I, self.erased_mass)
        coefficients_OI = vectors_OO.T @ weight_OI.to(vectors_OO) @ vectors_II
        erased_OI: torch.Tensor = vectors_OO @ (coefficients_OI * is_erased_OI) @ vectors_II.T
        return erased_OI.to(weight_OI)


def least(values: torch.Tensor, share: float) -> torch.Tensor:
    """Mark the least values that together hold less than this share of the sum.

    Example:
        >>> least(torch.tensor([5.0, 1.0, 4.0]), 0.2), least(torch.tensor([5.0, 0.0, 4.0]), 0.0)
        (tensor([False,  True, False]), tensor([False, False, False]))
    """
    flat = values.flatten().cpu()  # A GPU adds them up in another order each time.
    order = flat.argsort(stable=True)
    held = flat[order].cumsum(0)
    is_least = torch.zeros_like(order, dtype=torch.bool)
    is_least[order] = held < share * held[-1]
    return is_least.view(values.shape).to(values.device)
