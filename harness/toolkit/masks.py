"""Masks of a model's matrices that are trained in the weights' stead: each weight stays as it is, or becomes 0."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch.nn.utils import parametrize

from harness.contracts import Model
from harness.errors import ModelError


class WeightMasks:
    """The masks of some matrices of a model in training; the loop merges them while the model is measured.

    Each weight has a score, drawn as Kaiming-uniform with a = √5. The weights whose scores are the smallest in size, a
    share `dropped` of each matrix, are 0. A score's gradient is that of the weight's factor, as if that were |score|
    (straight through).

    Source: Ramanujan et al., arXiv:1911.13299, section 3 (edge-popup).

    Args:
        model: What the masks are of; its own weights ask for no gradient any more.
        matrices: Names of parameters with two dimensions, each a module's `weight`.
        dropped: The share of each matrix that is 0: 0 leaves the model as it is.
        seed: What the scores are drawn with.

    Raises:
        ModelError: A name is none of the model's matrices.
    """

    def __init__(self, model: Model, matrices: Sequence[str], dropped: float, seed: int) -> None:
        self._plain, self._before = model, dict[str, torch.Tensor]()
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model: Model = copy.deepcopy(model, shared)
        """Another tree of modules around the same weights, in which the masks stand."""
        self._masks: dict[str, _Mask] = {}
        generator, weights = torch.Generator().manual_seed(seed), dict(model.named_parameters())
        model.requires_grad_(False)
        for name in matrices:
            weight = weights.get(name)
            if weight is None or weight.dim() != 2 or not name.endswith(".weight"):
                raise ModelError(
                    f"{name} is no matrix of this model that a mask could be of. Name parameters with two dimensions "
                    "that are called weight."
                )
            drawn = torch.nn.init.kaiming_uniform_(torch.empty(weight.shape), a=5**0.5, generator=generator)
            # Made from the matrix itself: where that is, and as real or fake as it is.
            self._masks[name] = _Mask(weight.detach().new_empty(weight.shape).copy_(drawn), dropped)
            parametrize.register_parametrization(
                self.model.get_submodule(name.removesuffix(".weight")), "weight", self._masks[name]
            )

    @torch.no_grad()
    def merge(self) -> None:
        """Mask the plain model's matrices, which are kept as they are on the CPU until `unmerge`."""
        for name, mask in self._masks.items():
            weight = self._plain.get_parameter(name)
            self._before[name] = weight.detach().to("cpu", copy=True)
            weight.copy_(mask(weight))

    @torch.no_grad()
    def unmerge(self) -> None:
        """Put back what was masked in the plain model's matrices, if anything was."""
        while self._before:
            name, matrix = self._before.popitem()
            self._plain.get_parameter(name).copy_(matrix)

    def close(self) -> None:
        """Drop the kept matrices, as they were before merging."""
        self._before.clear()


class _Mask(torch.nn.Module):
    def __init__(self, scores: torch.Tensor, dropped: float) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(scores)
        self._dropped = round(dropped * scores.numel())

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * straight_through_mask(self.scores, self._dropped)


def straight_through_mask(scores: torch.Tensor, dropped: int) -> torch.Tensor:
    """Return 0 where a score is among the `dropped` smallest in size and 1 elsewhere; its gradient is that of |score|.

    Source: Ramanujan et al., arXiv:1911.13299, section 3.

    Example:
        >>> scores = torch.tensor([0.5, -0.1, -0.9], requires_grad=True)
        >>> mask = straight_through_mask(scores, dropped=1)
        >>> mask.tolist()
        [1.0, 0.0, 1.0]
        >>> mask.sum().backward()
        >>> scores.grad.tolist()
        [1.0, -1.0, -1.0]
    """
    sizes = scores.abs()
    mask = torch.ones_like(sizes)
    if dropped:
        smallest = sizes.detach().flatten().topk(dropped, largest=False).indices
        mask.view(-1)[smallest] = 0.0
    return (sizes - sizes.detach()) + mask
