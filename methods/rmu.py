"""RMU: steer a layer's hidden states of the forget set in one random direction, and keep those of the retain set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Le

from harness.contracts import ErasedModel, ErasureTask, Json, LogUniform, Model, Positive
from harness.toolkit import Batch, SumRetainWeight, TrainedMethod, hidden_states, lacks_layers, train_and_yield


@dataclass(frozen=True, kw_only=True)
class RMU(TrainedMethod):
    """Minimises ‖h(forget) − c u‖²/d + α ‖h(retain) − h_original(retain)‖²/d, means over tokens.

    h is the hidden state of width d that leaves one layer, u a random direction of non-negative parts and length 1 that
    stays the same, and c = β ‖h_original(forget)‖ for each token.

    Differs from the paper: its c is one number, 6.5 or 20 for 7B models, which fits no other width and depth; that c
    follows the original's states is of Dang et al., arXiv:2408.06223, with β = 5. All weights up to the layer are
    trained, as open-unlearning does, where the paper's code trains three matrices.

    Source: Li et al., "The WMDP Benchmark", arXiv:2403.03218, section 4.
    """

    label = "RMU"
    source = "Li et al. 2024, arXiv:2403.03218"
    reference = "retain_data"
    version = 1

    steering: Annotated[Positive, LogUniform(low=0.5, high=20.0)] = 5.0
    """β: how long the states become, as a multiple of the original's."""
    retain_weight: SumRetainWeight = 1.0
    """α, of the retain term; the paper's code has 100 to 1,200."""
    depth: Annotated[float, Gt(0.0), Le(1.0)] = 0.5
    """Layer whose states are steered, as a share of the layers from below; 1 is the last."""

    def refuses(self, config: Mapping[str, Json]) -> str | None:
        """Return why it is not known where a model's layers are."""
        return lacks_layers(str(config.get("model_type")))

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        """Yield the model after each epoch asked for."""
        model, original = task.load_original(), task.load_original()
        parts_D = torch.rand(model.config.hidden_size, generator=torch.Generator().manual_seed(task.seed))
        direction_D = (parts_D / parts_D.norm()).to(model.device)

        def loss(model: Model, forget: Batch, retain: Batch) -> torch.Tensor:
            return self.loss(model, original, direction_D, forget, retain)

        yield from train_and_yield(task, model, loss, frozen=[original])

    def loss(
        self, model: Model, original: Model, direction_D: torch.Tensor, forget: Batch, retain: Batch
    ) -> torch.Tensor:
        """Return how far the forget set's states are from their aim, plus α times how far the retain set's moved."""
        with torch.no_grad():
            before_BSD, kept_BSD = self.states(original, forget), self.states(original, retain)
            aim_BSD = self.steering * before_BSD.norm(dim=-1, keepdim=True) * direction_D
        steered = forget.mean((self.states(model, forget) - aim_BSD).square().mean(dim=-1))
        moved = retain.mean((self.states(model, retain) - kept_BSD).square().mean(dim=-1))
        return steered + self.retain_weight * moved

    def states(self, model: Model, batch: Batch) -> torch.Tensor:
        """Return the states_BSD that leave the layer, in fp32, at the tokens that each prediction is made from."""
        return hidden_states(model, batch.tokens_BT[:, :-1], self.depth)[-1].float()
